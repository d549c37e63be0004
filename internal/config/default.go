package config

import (
	"reflect"
	"time"
)

// Default returns the configuration without any settings, before the demo agent is added. The demo agent is added only
// when the file has no agents.
func Default() *Config {
	c := new(Config)
	fill(reflect.ValueOf(c).Elem())
	return c
}

// fill sets the fields of a section to what their tag default says.
func fill(section reflect.Value) {
	l := &loader{}
	for i := range section.NumField() {
		field, v := section.Type().Field(i), section.Field(i)
		if text := field.Tag.Get("default"); text != "" {
			l.setText(field.Name, text, v)
		}
		if v.Kind() == reflect.Struct {
			fill(v)
		}
	}
	if err := l.err(); err != nil {
		panic(err)
	}
}

// drainDelay suits a balancer that checks readiness each second. Nothing balances a server that only its machine reaches.
const drainDelay = 3 * time.Second

// DefaultCard is the card of an agent whose configuration has none.
func DefaultCard() (c Card) {
	fill(reflect.ValueOf(&c).Elem())
	return c
}

// defaultConcurrency is how many runs of an agent one replica runs at once. A demo run costs a goroutine, an http run a
// connection, a command run a process.
var defaultConcurrency = map[ExecutorKind]int{
	ExecutorDemo:    512,
	ExecutorHTTP:    256,
	ExecutorCommand: 16,
	ExecutorGo:      256,
	ExecutorOpenAI:  256,
	ExecutorA2A:     256,
	ExecutorWorker:  256, // only for tasks that have waited too long: workers say what they can run
}

// complete fills the settings that depend on other keys.
func (a *Agent) complete(concurrencySet, historySet bool) {
	if !historySet && a.Executor.Kind == ExecutorOpenAI {
		a.History = HistoryContext // people expect a chat to go on when its last task has ended
	}
	if !concurrencySet {
		a.Limits.Concurrency = defaultConcurrency[a.Executor.Kind]
	}
	if a.Executor.Kind != ExecutorA2A { // which has a card of its own
		a.CompleteCard()
	}
}

// CompleteCard fills the members of the card that clients need.
func (a *Agent) CompleteCard() {
	if a.Card.Name == "" {
		a.Card.Name = a.Name
	}
	if a.Card.Description == "" {
		a.Card.Description = "The agent " + a.Name + "."
	}
	if len(a.Card.Skills) == 0 {
		// Clients of every version expect a skill, so an agent without skills becomes its own skill.
		a.Card.Skills = []Skill{{ID: a.Name, Name: a.Card.Name, Description: a.Card.Description}}
	}
	for i := range a.Card.Skills {
		s := &a.Card.Skills[i]
		if s.Name == "" {
			s.Name = s.ID
		}
		if s.Description == "" {
			s.Description = s.Name
		}
		if len(s.Tags) == 0 {
			s.Tags = []string{s.ID}
		}
	}
}

// NewAgent returns an agent with the default settings. The caller sets its executor.
func NewAgent(name string) *Agent {
	a := &Agent{Name: name}
	fill(reflect.ValueOf(a).Elem())
	return a
}

// demoAgent is the agent when the file has no agents.
func demoAgent() Agent {
	a := NewAgent("demo")
	a.Default = true
	a.DirectReplies = true
	a.Executor.Kind = ExecutorDemo
	a.Card = Card{
		Name: "Holdfast demo",
		Description: "Shows every feature of A2A without a model: the first text part of a message is a small script, " +
			"such as echo:hello, chunks=20 size=64 delay=100ms, or ask:which city?",
		Version:   "1.0.0",
		Provider:  Provider{Organization: "Holdfast", URL: "https://github.com/holdfast-a2a/holdfast"},
		Streaming: true,
		Skills: []Skill{
			{
				ID: "echo", Name: "Echo", Description: "Answers with an artifact that holds what was sent.",
				Tags: []string{"demo", "text"}, Examples: []string{"echo:hello", "file", "data"},
			},
			{
				ID: "stream", Name: "Stream", Description: "Streams an artifact chunk by chunk, to watch streams and to resume them.",
				Tags: []string{"demo", "streaming"}, Examples: []string{"chunks=20 size=64 delay=100ms", "sleep=2s", "hold"},
			},
			{
				ID: "converse", Name: "Converse", Description: "Asks back and waits for the next message, or for authentication.",
				Tags: []string{"demo", "multi-turn"}, Examples: []string{"ask:which city?", "auth", "message:hi"},
			},
			{
				ID: "end", Name: "End badly", Description: "Fails, rejects or crashes, to see how that looks.",
				Tags: []string{"demo", "errors"}, Examples: []string{"fail:no luck", "reject:not today", "crash"},
			},
		},
	}
	return *a
}
