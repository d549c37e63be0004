package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// responses is the Responses API. Each request has the whole conversation, as that of Chat Completions.
type responses struct{ opts *Options }

func (responses) method() []string { return []string{"responses"} }

func (f responses) request(conversation []message, box *toolbox) map[string]any {
	body := map[string]any{"stream": !f.opts.Whole, "store": false}
	if f.opts.Reasoning {
		body["reasoning"] = map[string]string{"summary": "auto"}
	}
	items := []any{}
	for i := range conversation {
		m := &conversation[i]
		if m.Role == roleSystem {
			body["instructions"] = m.Content
			continue
		}
		items = append(items, itemsOf(m)...)
	}
	body["input"] = items
	if tools := f.tools(box); len(tools) > 0 {
		body["tools"] = tools
	}
	return body
}

// tools are the configured tools of the provider, and those of the toolbox.
func (f responses) tools(box *toolbox) []any {
	var all []any
	if err := json.Unmarshal(f.opts.Parameters["tools"], &all); err != nil {
		all = nil // none are configured; validate has read the others
	}
	for _, t := range box.tools {
		about := t.about()
		about["type"], about["strict"] = "function", false // servers of MCP do not know the rules of strict schemas
		all = append(all, about)
	}
	return all
}

// itemsOf returns a message as items of the API.
func itemsOf(m *message) []any {
	if m.Role == roleTool {
		return []any{map[string]any{"type": "function_call_output", "call_id": m.ToolCallID, "output": m.Content}}
	}
	var items []any
	for _, t := range m.thoughts {
		items = append(items, t)
	}
	switch said := m.Content.(type) {
	case string:
		items = append(items, map[string]any{"role": m.Role, "content": said})
	case []content:
		parts := make([]map[string]any, len(said))
		for i := range said {
			parts[i] = said[i].input()
		}
		items = append(items, map[string]any{"role": m.Role, "content": parts})
	}
	for i := range m.ToolCalls {
		c := &m.ToolCalls[i]
		items = append(items, map[string]any{
			"type": typeCall, "call_id": c.ID, "name": c.Function.Name, "arguments": c.Function.Arguments,
		})
	}
	return items
}

// input returns a part as the Responses API has it.
func (c *content) input() map[string]any {
	switch {
	case c.Image != nil:
		return map[string]any{"type": "input_image", "image_url": c.Image.URL}
	case c.Audio != nil:
		return map[string]any{"type": "input_audio", "input_audio": c.Audio}
	case c.File != nil && c.File.url != "":
		return map[string]any{"type": "input_file", "file_url": c.File.url}
	case c.File != nil:
		return map[string]any{"type": "input_file", "filename": c.File.Filename, "file_data": c.File.Data}
	default:
		return map[string]any{"type": "input_text", "text": c.Text}
	}
}

// event is an event of a stream. Each type has some of the members.
type event struct {
	Type     string         `json:"type"`
	Response *response      `json:"response"`
	Index    int            `json:"output_index"`
	Item     *item          `json:"item"`
	Delta    jsontext.Value `json:"delta"` // a string, where it is text
	Error    jsontext.Value `json:"error"`
	Code     jsontext.Value `json:"code"` // of an error
	Message  jsontext.Value `json:"message"`
}

// response is a whole answer, or the beginning of one.
type response struct {
	Status     string         `json:"status"`
	Model      string         `json:"model"`
	Output     []item         `json:"output"`
	Error      jsontext.Value `json:"error"`
	Incomplete *struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Usage jsontext.Value `json:"usage"`
}

// item is an item of the output.
type item struct {
	Type      string         `json:"type"`
	ID        string         `json:"id"`
	Content   jsontext.Value `json:"content"` // of a message: parts
	CallID    string         `json:"call_id"` // of a call
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
	Summary   jsontext.Value `json:"summary"` // of reasoning: parts
	Encrypted *string        `json:"encrypted_content"`
	Result    *string        `json:"result"` // of an image: base64
	Format    string         `json:"output_format"`
}

const typeCall = "function_call"

// thought is reasoning that the model wants back with the results of its calls. Only the provider can read it.
type thought struct {
	Type      string         `json:"type"`
	ID        string         `json:"id,omitempty"`
	Summary   jsontext.Value `json:"summary"`
	Encrypted string         `json:"encrypted_content"`
}

func (responses) read(to *answer, raw []byte, line int, redact func(string) string) (piece, error) {
	if line == 0 {
		var r response
		if err := decode(raw, line, &r, redact); err != nil {
			return piece{}, err
		}
		if reported := errorIn(r.Error); reported != nil && r.Status == "" {
			return piece{}, reported.during(redact)
		}
		if r.Status == "" && r.Output == nil {
			return piece{}, &executor.Failure{Msg: "the model's answer is not understood: status, output: are missing"}
		}
		return to.conclude(&r, redact)
	}
	var e event
	if err := decode(raw, line, &e, redact); err != nil {
		return piece{}, err
	}
	if reported := errorIn(e.Error); reported != nil {
		return piece{}, reported.during(redact)
	}
	switch e.Type {
	case "":
		return piece{}, &executor.Failure{Msg: fmt.Sprintf("the model's answer is not understood: line %d: type: is missing", line)}
	case "error":
		return piece{}, (&apiError{message: unquote(e.Message), code: unquote(e.Code)}).during(redact)
	case "response.created":
		if e.Response != nil {
			to.model = e.Response.Model
		}
	case "response.output_text.delta":
		return to.say(e.Index, unquote(e.Delta))
	case "response.refusal.delta":
		to.refusal.WriteString(unquote(e.Delta))
		return piece{}, to.bounded()
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		to.reasoned = true
		return piece{reasoning: unquote(e.Delta)}, nil
	case "response.reasoning_summary_part.added":
		if to.reasoned {
			return piece{reasoning: "\n\n"}, nil
		}
	case "response.output_item.done":
		if e.Item != nil {
			to.streamed[e.Item.Type] = true
			return to.item(e.Item)
		}
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		if e.Response == nil {
			return piece{}, &executor.Failure{Msg: fmt.Sprintf("the model's answer is not understood: line %d: response: is missing", line)}
		}
		if e.Response.Status == "" {
			e.Response.Status = strings.TrimPrefix(e.Type, "response.")
		}
		return to.conclude(e.Response, redact)
	default: // the beginnings and ends of what other events have, and types of the future
	}
	return piece{}, nil
}

// ended leaves an answer without an end as it is: only the status of a response says that it is complete.
func (responses) ended(*answer) {}

// say adds text. A new item begins a new paragraph.
func (a *answer) say(index int, text string) (piece, error) {
	if text == "" {
		return piece{}, nil
	}
	if index != a.index && a.text.Len() > 0 {
		text = "\n\n" + text
	}
	a.index = index
	a.text.WriteString(text)
	return piece{text: text}, a.bounded()
}

// bounded checks the size of what the model has said.
func (a *answer) bounded() error {
	if a.text.Len()+a.refusal.Len() > a.max {
		return &executor.Failure{Msg: fmt.Sprintf("the model's answer is longer than %d bytes", a.max)}
	}
	return nil
}

// maxThoughts bounds the encrypted reasoning of an answer, in bytes.
const maxThoughts = 1 << 20

// item adds an item that is not text.
func (a *answer) item(it *item) (out piece, err error) {
	switch {
	case it.Type == typeCall && a.callOf(it.CallID) < 0: // some servers repeat calls
		err = a.addCall(&callPiece{ID: &it.CallID, Function: function{&it.Name, it.Arguments}})
	case it.Type == "reasoning" && it.Encrypted != nil:
		summary := it.Summary
		if summary.Kind() != jsontext.KindBeginArray {
			summary = jsontext.Value("[]")
		}
		a.thoughts = append(a.thoughts, thought{"reasoning", it.ID, summary, *it.Encrypted})
		a.thinking += len(summary) + len(*it.Encrypted)
		if a.thinking > maxThoughts {
			err = &executor.Failure{Msg: fmt.Sprintf("the model's encrypted reasoning is longer than %d bytes", maxThoughts)}
		}
	case it.Type == "image_generation_call" && it.Result != nil && *it.Result != "":
		out.images = make([]image, 1)
		out.images[0].ImageURL.URL = "data:image/" + cmp.Or(it.Format, "png") + ";base64," + *it.Result
	}
	return out, err
}

// conclude takes a whole answer: what the stream has not said, and how it ended. The stream has had all items of a
// type, or none: their ids and places in the whole answer may be others.
func (a *answer) conclude(r *response, redact func(string) string) (piece, error) {
	var out piece
	var said, refusal, reasoning strings.Builder
	for i := range r.Output {
		it := &r.Output[i]
		text, refused := output(it.Content)
		switch it.Type {
		case "message":
			if said.Len() > 0 && text != "" {
				said.WriteString("\n\n")
			}
			said.WriteString(text)
			refusal.WriteString(refused)
		case "reasoning":
			summary, _ := output(it.Summary)
			reasoning.WriteString(summary + text)
		}
		if a.streamed[it.Type] {
			continue
		}
		p, err := a.item(it)
		if err != nil {
			return out, err
		}
		out.images = append(out.images, p.images...)
	}
	if rest, ok := strings.CutPrefix(said.String(), a.text.String()); ok {
		a.text.WriteString(rest)
		out.text = rest
	}
	if a.refusal.Len() == 0 {
		a.refusal.WriteString(refusal.String())
	}
	if !a.reasoned {
		out.reasoning = reasoning.String()
	}
	a.model = cmp.Or(r.Model, a.model)
	a.usage.read(r.Usage)
	if err := a.bounded(); err != nil {
		return out, err
	}
	return out, a.end(r, redact)
}

// end takes the status of a response.
func (a *answer) end(r *response, redact func(string) string) error {
	switch r.Status {
	case "queued", "in_progress":
		return nil
	case "failed":
		reported := errorIn(r.Error)
		if reported == nil {
			reported = &apiError{message: "the response failed"}
		}
		return reported.during(redact)
	case "cancelled":
		return (&apiError{message: "the response was cancelled"}).during(redact)
	case "incomplete":
		a.finish = "length"
		if r.Incomplete != nil && r.Incomplete.Reason == "content_filter" {
			a.finish = "content_filter"
		}
	default: // completed, or none
		a.finish = "stop"
		if len(a.calls) > 0 {
			a.finish = "tool_calls"
		}
	}
	a.last = true
	return nil
}

// output returns the text of a list of parts, and the refusal in it.
func output(parts jsontext.Value) (text, refusal string) {
	for _, p := range partsOf(parts) {
		switch p.Type {
		case "output_text", "summary_text", "reasoning_text":
			text += unquote(p.Text)
		case "refusal":
			refusal += unquote(p.Refusal)
		}
	}
	return text, refusal
}
