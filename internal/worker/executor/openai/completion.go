package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// completion is a chat completion, or a chunk of one. Providers add members, leave out some and vary the types of others;
// those that vary are read leniently.
type completion struct {
	Error   jsontext.Value `json:"error"`
	Model   string         `json:"model"`
	Choices []choice       `json:"choices"`
	Usage   jsontext.Value `json:"usage"`
}

type choice struct {
	Index        int     `json:"index"`
	Delta        *said   `json:"delta"`   // of a chunk
	Message      *said   `json:"message"` // of a whole completion
	FinishReason *string `json:"finish_reason"`
}

// said is what the model said.
type said struct {
	Content          jsontext.Value `json:"content"` // a string, null, or a list of parts
	Refusal          *string        `json:"refusal"`
	ReasoningContent jsontext.Value `json:"reasoning_content"` // the name of DeepSeek, vLLM and LiteLLM
	Reasoning        jsontext.Value `json:"reasoning"`         // the name of OpenRouter, Groq and Ollama
	ToolCalls        []callPiece    `json:"tool_calls"`
	Images           []image        `json:"images"`
}

// callPiece is a call of a tool, or a piece of one.
type callPiece struct {
	Index    *int     `json:"index"`
	ID       *string  `json:"id"`
	Function function `json:"function"`
}

type function struct {
	Name      *string        `json:"name"`
	Arguments jsontext.Value `json:"arguments"` // a string; some servers send the object itself
}

// arguments are those of a call, or a piece of them, as text.
func (f *function) arguments() string {
	if f.Arguments.Kind() == jsontext.KindBeginObject {
		return string(f.Arguments)
	}
	return unquote(f.Arguments)
}

type image struct {
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

// text returns the text of a content that is a string or a list of parts.
func text(content jsontext.Value) string {
	switch content.Kind() {
	case jsontext.KindString:
		return unquote(content)
	case jsontext.KindBeginArray:
		var all strings.Builder
		for _, p := range partsOf(content) {
			if p.Type == "text" || p.Type == "output_text" {
				all.WriteString(unquote(p.Text))
			}
		}
		return all.String()
	default:
		return ""
	}
}

// part is a part of a content.
type part struct {
	Type    string         `json:"type"`
	Text    jsontext.Value `json:"text"`
	Refusal jsontext.Value `json:"refusal"`
}

// partsOf reads a list of parts. Anything else has none.
func partsOf(list jsontext.Value) []part {
	var parts []part
	if list.Kind() != jsontext.KindBeginArray || wire.Unmarshal(list, &parts) != nil {
		return nil
	}
	return parts
}

// unquote returns the content of a JSON string, or "" for any other value.
func unquote(v jsontext.Value) string {
	if v.Kind() != jsontext.KindString {
		return ""
	}
	plain, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return ""
	}
	return string(plain)
}

// A string of an event that ends with the first half of a surrogate pair, and one that begins with the second. Some servers cut
// between them.
var (
	endsInHalf   = regexp.MustCompile(`([^\\](?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2})"`)
	beginsInHalf = regexp.MustCompile(`"(\\u[dD][c-fC-F][0-9a-fA-F]{2})`)
)

// joined moves the half of a character at the end of a string to the next event, where the other half is.
func (a *answer) joined(event []byte) []byte {
	if a.half != "" {
		event = beginsInHalf.ReplaceAll(event, []byte(`"`+a.half+`$1`))
		a.half = ""
	}
	if at := endsInHalf.FindSubmatchIndex(event); at != nil {
		a.half = string(event[at[4]:at[5]])
		event = slices.Delete(slices.Clone(event), at[4], at[5])
	}
	return event
}

// maxCalls bounds the calls of one answer, and maxArguments the arguments of each, in bytes.
const (
	maxCalls     = 128
	maxArguments = 1 << 20
)

// answer is what the chunks of a completion add up to.
type answer struct {
	max     int // bytes of text
	text    strings.Builder
	refusal strings.Builder
	calls   []call
	places  map[int]int // the calls by the index that the provider gave them
	half    string      // of a character
	model   string
	finish  string // the reason why it ended; empty until then
	last    bool   // nothing follows that matters
	usage   usage

	// Of the Responses API.
	index    int             // the output index of the newest text
	streamed map[string]bool // types of items that the stream has had whole
	reasoned bool            // the stream has had reasoning
	thoughts []thought
	thinking int // bytes of thoughts
}

// newAnswer returns an answer of which nothing has come, with text of at most so many bytes.
func newAnswer(most int) *answer { return &answer{max: most, streamed: map[string]bool{}} }

// call is a call of a tool that the model asks for, under the id that its provider gave.
type call struct {
	ID        string `json:"id"`
	Name      string `json:"name"`      // as the model knows the tool
	Arguments string `json:"arguments"` // JSON, if the model made no mistake
}

// piece is what one chunk adds to the output of the run.
type piece struct {
	text, reasoning string
	images          []image
}

// add adds a chunk.
func (a *answer) add(c *completion) (piece, error) {
	if a.model == "" {
		a.model = c.Model
	}
	a.usage.read(c.Usage)
	var out piece
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index != 0 || a.finish != "" {
			continue // we asked for one choice, and it says nothing after its end
		}
		said := choice.Delta
		if said == nil {
			said = choice.Message
		}
		if said != nil {
			if err := a.addSaid(said, &out); err != nil {
				return out, err
			}
		}
		if choice.FinishReason != nil {
			a.finish = *choice.FinishReason
		}
	}
	return out, nil
}

func (a *answer) addSaid(s *said, out *piece) error {
	said := text(s.Content)
	a.text.WriteString(said)
	out.text += said
	if s.Refusal != nil {
		a.refusal.WriteString(*s.Refusal)
	}
	if err := a.bounded(); err != nil {
		return err
	}
	if reasoning := unquote(s.ReasoningContent); reasoning != "" {
		out.reasoning += reasoning
	} else {
		out.reasoning += unquote(s.Reasoning)
	}
	out.images = append(out.images, s.Images...)
	for i := range s.ToolCalls {
		if err := a.addCall(&s.ToolCalls[i]); err != nil {
			return err
		}
	}
	return nil
}

// addCall adds a piece of a call, or begins one.
func (a *answer) addCall(p *callPiece) error {
	at := a.callAt(p)
	if at < 0 {
		if at = len(a.calls); at >= maxCalls {
			return &executor.Failure{Msg: fmt.Sprintf("the model asks for more than %d calls of tools at once", maxCalls)}
		}
		a.calls = append(a.calls, call{})
	}
	if p.Index != nil {
		if a.places == nil {
			a.places = map[int]int{}
		}
		a.places[*p.Index] = at
	}
	c := &a.calls[at]
	c.ID, c.Name = cmp.Or(c.ID, deref(p.ID)), cmp.Or(c.Name, deref(p.Function.Name))
	switch more := p.Function.arguments(); {
	case more == c.Arguments && isObject(more): // some servers repeat the whole call at its end
	case c.Arguments == "{}" && strings.HasPrefix(more, "{"): // others begin each call with an empty object
		c.Arguments = more
	default:
		c.Arguments += more
	}
	if len(c.Arguments) > maxArguments {
		return &executor.Failure{Msg: fmt.Sprintf("the model calls a tool with more than %d bytes of arguments", maxArguments)}
	}
	return nil
}

// callAt returns the place of the call that a piece belongs to, or -1 if it begins one. Providers disagree about what says so:
// Gemini gives all calls the index 0, LiteLLM counts other output too, and some servers have no index, no id, or an id that
// changes with each piece. But each call has one name.
func (a *answer) callAt(p *callPiece) int {
	id, name, at, indexed := deref(p.ID), deref(p.Function.Name), -1, false
	if p.Index != nil {
		at, indexed = a.places[*p.Index]
	}
	same := a.callOf(id)
	switch {
	case indexed && (id == "" || name == ""):
		return at
	case name == "" && same < 0:
		return len(a.calls) - 1
	case same >= 0 && (p.Index == nil || indexed && at == same || name == ""):
		return same
	}
	return -1
}

// callOf returns the place of the call with an id, or -1.
func (a *answer) callOf(id string) int {
	if id == "" {
		return -1
	}
	return slices.IndexFunc(a.calls, func(c call) bool { return c.ID == id })
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// objectOf returns the arguments of a call as an object, which is empty for none and null. Not ok: they are no object.
func objectOf(arguments string) (object string, ok bool) {
	switch text := strings.TrimSpace(arguments); {
	case text == "", text == "null":
		return "{}", true
	case isObject(arguments):
		return arguments, true
	}
	return "{}", false
}

// isObject reports whether a text is one JSON object.
func isObject(s string) bool {
	v := jsontext.Value(s)
	return v.Kind() == jsontext.KindBeginObject && json.Valid([]byte(s))
}

// usage counts the tokens of a turn.
type usage struct {
	Input     int64 `json:"inputTokens"`
	Output    int64 `json:"outputTokens"`
	Total     int64 `json:"totalTokens"`
	Cached    int64 `json:"cachedInputTokens,omitempty"`
	Reasoning int64 `json:"reasoningTokens,omitempty"`
}

// read takes the counts of a completion. The counts of later chunks include those of earlier ones. Values that are
// not counts are ignored: they cost nobody an answer.
func (u *usage) read(raw jsontext.Value) {
	in := members(raw)
	if in == nil {
		return
	}
	input, output := "prompt_tokens", "completion_tokens"
	if _, ok := in["input_tokens"]; ok { // of the Responses API
		input, output = "input_tokens", "output_tokens"
	}
	u.Input, u.Output = count(in[input]), count(in[output])
	if u.Total = count(in["total_tokens"]); u.Total == 0 {
		u.Total = u.Input + u.Output
	}
	u.Cached = count(members(in[input+"_details"])["cached_tokens"])
	u.Reasoning = count(members(in[output+"_details"])["reasoning_tokens"])
}

// mostTokens keeps the sum of hostile counts a number.
const mostTokens = 1 << 50

func count(v jsontext.Value) int64 {
	var n int64
	if v.Kind() != jsontext.KindNumber || json.Unmarshal(v, &n) != nil || n < 0 || n > mostTokens {
		return 0
	}
	return n
}

func (u *usage) plus(other usage) {
	u.Input += other.Input
	u.Output += other.Output
	u.Total += other.Total
	u.Cached += other.Cached
	u.Reasoning += other.Reasoning
}
