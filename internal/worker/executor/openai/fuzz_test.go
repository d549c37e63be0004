package openai

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

// Any bytes of an API end in an answer, or in an error of the run: no panic, no text beyond the bound.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		`{"choices":[{"message":{"content":"hi","tool_calls":[{"function":{"name":"x","arguments":{}}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`,
		"data: {\"choices\":[{\"delta\":{\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}}]}\n\ndata: [DONE]\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":-1,\"id\":\"a\"}]}}]}\n\n",
		"data: {\"error\":{\"code\":\"429\"}}\n\n: x\n\n",
		`{"choices":[{"message":{"images":[{"image_url":{"url":"data:;base64,"}}]}}]}`, `{"error":[]}`, "{", "",
	} {
		f.Add(seed, true, false)
		f.Add(seed, false, false)
	}
	for _, seed := range []string{
		`{"id":"r","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]},` +
			`{"type":"function_call","call_id":"c","name":"x","arguments":"{}"},{"type":"reasoning","encrypted_content":"e","summary":[]}]}`,
		"data: {\"type\":\"response.created\",\"response\":{}}\n\n" +
			"data: {\"type\":\"response.output_text.delta\",\"output_index\":-1,\"delta\":\"hi\"}\n\n" +
			"data: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"type\":\"image_generation_call\",\"result\":\"aGk=\"}]}}\n\n",
		"data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"invalid_prompt\"}}}\n\n",
	} {
		f.Add(seed, true, true)
		f.Add(seed, false, true)
	}
	opts := Options{MaxEvent: 4096, IdleTimeout: time.Minute}
	f.Fuzz(func(t *testing.T, body string, streamed, newer bool) {
		a := &agent{opts: opts, format: chat{&opts}}
		if newer {
			a.format = responses{&opts}
		}
		out := executortest.NewRecorder()
		w := newWriter(t.Context(), executortest.NewRun("x"), out, true)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		var err error
		got := newAnswer(opts.MaxEvent)
		same := func(s string) string { return s }
		if streamed {
			err = a.stream(ctx, cancel, strings.NewReader(body), got, w, same)
		} else {
			err = a.whole(strings.NewReader(body), got, w, same)
		}
		_, failed := errors.AsType[*executor.Failure](err)
		_, rejected := errors.AsType[*rejection](err)
		if err != nil && !failed && !rejected {
			t.Errorf("an error that clients cannot read: %v", err)
		}
		if n := len(out.Text(t)); n > 3*4096 { // text, reasoning, and an image as its address
			t.Errorf("%d bytes of text", n)
		}
	})
}
