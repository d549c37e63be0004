package openai

import (
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// format is an API of OpenAI: the form of its requests and of its answers.
type format interface {
	// method is the path of the API's method below the base URL.
	method() []string
	// request returns the members of a request besides the model and the configured parameters.
	request(conversation []message, box *toolbox) map[string]any
	// read adds an event of a stream, or a whole answer if line is 0.
	read(to *answer, raw []byte, line int, redact func(string) string) (piece, error)
	// ended takes the end that the server marks: [DONE] of a stream, or the end of a document.
	ended(a *answer)
}

// chat is Chat Completions.
type chat struct{ opts *Options }

func (chat) method() []string { return []string{"chat", "completions"} }

func (f chat) request(conversation []message, box *toolbox) map[string]any {
	body := map[string]any{"messages": conversation, "stream": !f.opts.Whole}
	if !f.opts.Whole {
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	if len(box.tools) > 0 {
		definitions := make([]map[string]any, len(box.tools))
		for i, t := range box.tools {
			definitions[i] = map[string]any{"type": "function", "function": t.about()}
		}
		body["tools"] = definitions
	}
	return body
}

func (chat) read(to *answer, raw []byte, line int, redact func(string) string) (piece, error) {
	var c completion
	if err := decode(raw, line, &c, redact); err != nil {
		return piece{}, err
	}
	if reported := errorIn(c.Error); reported != nil {
		return piece{}, reported.during(redact)
	}
	if line == 0 && len(c.Choices) == 0 {
		return piece{}, &executor.Failure{Msg: "the model's answer is not understood: choices: is missing or empty"}
	}
	return to.add(&c)
}

// ended completes an answer: some servers give no reason.
func (chat) ended(a *answer) {
	if a.finish == "" {
		a.finish = "stop"
	}
}
