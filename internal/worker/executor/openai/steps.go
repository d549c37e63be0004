package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// steps are what a turn has done so far: rounds of what the model said and the results of its calls. Each step is a
// checkpoint before it is used, so that a later run of the turn continues behind it.
type steps struct {
	run    *executor.Run
	out    executor.Emitter
	rounds []*round
	log    []step // all of them
	// carried is how many rounds belong to earlier turns, which ended with a question or with calls of agents. The
	// conversation has their text.
	carried int
	before  spent // in the turns before this one that the same message of the client began
}

// round is an answer of the model that asks for calls.
type round struct {
	Text  string `json:"text,omitempty"`
	Usage usage  `json:"usage"`
	Calls []call `json:"calls"`
	// Thoughts are reasoning that the model wants back.
	Thoughts []thought `json:"thoughts,omitempty"`
	Images   int       `json:"images,omitempty"`

	began   []bool // by call
	results []*result
}

func (r *round) prepare() {
	r.began, r.results = make([]bool, len(r.Calls)), make([]*result, len(r.Calls))
}

// step is a checkpoint: one of its members is set.
type step struct {
	Said   *round  `json:"said,omitempty"`
	Began  *place  `json:"began,omitempty"` // a call is about to be made
	Result *result `json:"result,omitempty"`
	Of     *place  `json:"of,omitempty"` // the call of the result
}

// place is a call within the turn.
type place struct {
	Round int `json:"round"`
	Call  int `json:"call"`
}

// recall reads the steps of earlier runs of the turn, and those of an earlier turn that ended with a question or with calls of
// agents.
func (s *steps) recall(ctx context.Context) error {
	if s.run.Attempt == 1 {
		return nil
	}
	if asked, err := s.restore(ctx); asked || err != nil {
		return err
	}
	stored, err := s.run.Memory.Checkpoints(ctx)
	if err != nil {
		return fmt.Errorf("read the checkpoints: %w", err)
	}
	for _, raw := range stored {
		var one step
		if err := json.Unmarshal(raw, &one); err != nil {
			return fmt.Errorf("read a checkpoint: %w", err)
		}
		if err := s.apply(one); err != nil {
			return err
		}
	}
	return nil
}

func (s *steps) apply(one step) error {
	for _, at := range []*place{one.Began, one.Of} {
		if at != nil && (at.Round < 0 || at.Round >= len(s.rounds) || at.Call < 0 || at.Call >= len(s.rounds[at.Round].Calls)) {
			return fmt.Errorf("a stored step names call %d of round %d, which is not stored", at.Call, at.Round)
		}
	}
	switch {
	case one.Said != nil:
		one.Said.prepare()
		s.rounds = append(s.rounds, one.Said)
	case one.Began != nil:
		s.rounds[one.Began.Round].began[one.Began.Call] = true
	case one.Result != nil && one.Of != nil:
		s.rounds[one.Of.Round].results[one.Of.Call] = one.Result
	}
	s.log = append(s.log, one)
	return nil
}

// calls counts the calls since the client's newest message.
func (s *steps) calls() int {
	n := s.before.Calls
	for _, r := range s.rounds[s.carried:] {
		n += len(r.Calls)
	}
	return n
}

// record stores a step. It returns when the step is committed.
func (s *steps) record(ctx context.Context, one step) error {
	raw, err := json.Marshal(one)
	if err != nil {
		return fmt.Errorf("encode a checkpoint: %w", err)
	}
	if err := s.out.Checkpoint(ctx, raw); err != nil {
		return err
	}
	if err := s.out.Committed(ctx); err != nil {
		return err
	}
	return s.apply(one)
}

// said records an answer with calls. A call gets an id of its own if the model gave none, or one that another call has.
func (s *steps) said(ctx context.Context, a *answer, images int) error {
	r := &round{Text: a.text.String(), Usage: a.usage, Thoughts: a.thoughts, Images: images}
	seen := map[string]bool{}
	for _, c := range a.calls {
		if c.ID == "" || !slices.Contains(r.Calls, c) { // else a provider has sent it twice
			r.Calls = append(r.Calls, c)
		}
	}
	for i := range r.Calls {
		c := &r.Calls[i]
		if c.ID == "" || seen[c.ID] {
			c.ID = fmt.Sprintf("call_%d_%d", len(s.rounds), i)
		}
		seen[c.ID] = true
	}
	return s.record(ctx, step{Said: r})
}

// open are the calls without a result.
func (s *steps) open() []place {
	var all []place
	for i, r := range s.rounds {
		for j := range r.Calls {
			if r.results[j] == nil {
				all = append(all, place{i, j})
			}
		}
	}
	return all
}

func (s *steps) call(at place) *call { return &s.rounds[at.Round].Calls[at.Call] }

// perform makes a call and records its result.
func (s *steps) perform(ctx context.Context, at place, with func(key string) result) error {
	if err := s.record(ctx, step{Began: &at}); err != nil {
		return err
	}
	got := with(fmt.Sprintf("%s:%d:%d", s.run.IdempotencyKey(), at.Round, at.Call))
	if ctx.Err() != nil {
		// The run was interrupted, and maybe the call with it: the next run decides.
		return context.Cause(ctx)
	}
	return s.record(ctx, step{Result: &got, Of: &at})
}

// messages returns the rounds as the API takes them.
func (s *steps) messages() []message {
	var all []message
	for at, r := range s.rounds {
		said := message{Role: roleAssistant, thoughts: r.Thoughts}
		if r.Text != "" && at >= s.carried {
			said.Content = r.Text
		}
		for i := range r.Calls {
			c := &r.Calls[i]
			out := toolCall{ID: c.ID, Type: "function"}
			out.Function.Name = c.Name
			out.Function.Arguments, _ = objectOf(c.Arguments) // some servers parse them, and refuse what is no object
			said.ToolCalls = append(said.ToolCalls, out)
		}
		all = append(all, said)
		for i, got := range r.results {
			if got != nil {
				all = append(all, message{Role: roleTool, ToolCallID: r.Calls[i].ID, Content: got.Text})
			}
		}
	}
	return all
}

// text is what the model said in the rounds of this turn.
func (s *steps) text() string {
	var all strings.Builder
	for _, r := range s.rounds[s.carried:] {
		all.WriteString(withBreak(r.Text))
	}
	return all.String()
}

// images counts the images of this turn.
func (s *steps) images() int {
	n := 0
	for _, r := range s.rounds[s.carried:] {
		n += r.Images
	}
	return n
}

// withBreak separates what the model says before its calls from what it says after them.
func withBreak(text string) string {
	if text == "" {
		return ""
	}
	return text + "\n\n"
}

// usage is what the rounds since the client's newest message cost.
func (s *steps) usage() usage {
	all := s.before.Usage
	for _, r := range s.rounds[s.carried:] {
		all.plus(r.Usage)
	}
	return all
}
