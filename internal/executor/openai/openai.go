package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	nethttp "net/http"
	"net/url"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/outbound"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

type agent struct {
	opts   Options
	url    string // of the API's method
	client *nethttp.Client
}

// New makes an executor that has a model answer.
func New(opts Options) (executor.Executor, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	base, err := url.Parse(opts.BaseURL)
	if err != nil {
		return nil, err // validate has parsed it
	}
	return &agent{
		opts: opts, url: base.JoinPath("chat", "completions").String(),
		client: outbound.ToAgents(opts.ConnectTimeout, opts.HeaderTimeout),
	}, nil
}

// Execute implements executor.Executor.
func (a *agent) Execute(ctx context.Context, run *executor.Run, out executor.Emitter) error {
	w := newWriter(ctx, run, out, a.opts.Reasoning)
	err := a.answer(ctx, run, w)
	if no, ok := errors.AsType[*rejection](err); ok && ctx.Err() == nil {
		return out.Status(ctx, task.StateRejected, &task.Message{
			Role: task.RoleAgent, Parts: []task.Part{task.Text(no.reason)}, Metadata: w.metadata(),
		})
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (a *agent) answer(ctx context.Context, run *executor.Run, w *writer) error {
	messages, err := a.conversation(ctx, run)
	if err != nil {
		return err
	}
	body, err := a.request(messages)
	if err != nil {
		return err
	}
	got, err := a.complete(ctx, run.IdempotencyKey(), body, w)
	if err != nil {
		return err
	}
	w.spent(got)
	switch {
	case got.refusal.Len() > 0:
		return &rejection{got.refusal.String()}
	case got.finish == "content_filter":
		return &rejection{filtered}
	case got.finish == "error": // of OpenRouter
		return broken(errors.New("finish_reason: error"))
	case len(got.calls) > 0:
		return &executor.Failure{Msg: fmt.Sprintf("the model called the tool %q, but it has no tools", got.calls[0].Name)}
	case got.finish == "length" && got.text.Len() == 0 && !w.wrote():
		return &executor.Failure{Msg: "the model reached its limit of tokens before it said anything; raise max_tokens"}
	}
	return w.close()
}

// request returns the body of a call.
func (a *agent) request(messages []message) ([]byte, error) {
	body := map[string]any{"model": a.opts.Model, "messages": messages, "stream": !a.opts.Whole}
	if !a.opts.Whole {
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	for name, value := range a.opts.Parameters {
		if string(value) == "null" {
			delete(body, name)
		} else {
			body[name] = value
		}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode the request to the model: %w", err)
	}
	return raw, nil
}
