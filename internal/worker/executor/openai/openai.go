package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	nethttp "net/http"
	"net/url"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

type agent struct {
	opts   Options
	url    *url.URL // of the API
	client *nethttp.Client
	format format

	servers                []*toolServer
	listWithin, callWithin time.Duration // of servers of tools
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
	a := &agent{
		opts: opts, url: base, client: web.ToAgents(opts.ConnectTimeout, opts.HeaderTimeout, opts.Observe),
		listWithin: opts.ToolTimeout, callWithin: opts.ToolTimeout,
	}
	a.format = chat{&a.opts}
	if opts.Responses {
		a.format = responses{&a.opts}
	}
	for i := range opts.Tools {
		server, err := newToolServer(opts.Tools[i], &opts)
		if err != nil {
			return nil, fmt.Errorf("openai: tools[%d]: %w", i, err)
		}
		a.servers = append(a.servers, server)
	}
	return a, nil
}

// Execute implements executor.Executor.
func (a *agent) Execute(ctx context.Context, run *executor.Run, out executor.Emitter) error {
	w := newWriter(ctx, run, out, a.opts.Reasoning)
	done := &steps{run: run, out: out}
	err := a.answer(ctx, run, done, w)
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

func (a *agent) answer(ctx context.Context, run *executor.Run, done *steps, w *writer) error {
	messages, err := a.conversation(ctx, run)
	if err != nil {
		return err
	}
	if len(a.servers)+len(a.opts.Agents) > 0 {
		if err := done.recall(ctx); err != nil {
			return err
		}
	}
	w.resume(done)
	box, err := a.tools(ctx, run)
	defer box.close()
	if err != nil {
		return err
	}
	for {
		ended, err := a.act(ctx, done, box, w)
		if ended || err != nil {
			return err
		}
		images := w.images
		got, err := a.ask(ctx, joined(messages, done.messages()), done, box, w)
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
		case len(got.calls) > 0 && len(box.tools) == 0:
			return &executor.Failure{Msg: fmt.Sprintf("the model called the tool %q, but it has no tools", got.calls[0].Name)}
		case len(got.calls) > 0 && done.calls()+len(got.calls) > a.opts.MaxToolCalls:
			return &executor.Failure{Msg: fmt.Sprintf("the model called tools more than %d times in one turn", a.opts.MaxToolCalls)}
		case len(got.calls) > 0:
			if err := done.said(ctx, got, w.images-images); err != nil {
				return err
			}
			w.rest(got)
			continue
		case got.finish == "length" && got.text.Len() == 0 && !w.wrote():
			return &executor.Failure{Msg: "the model reached its limit of tokens before it said anything; raise max_tokens"}
		}
		if err := w.close(); err != nil {
			return err
		}
		// The task need not wait until the programs of tools have ended.
		return w.out.Status(ctx, task.StateCompleted, nil)
	}
}

// act makes the calls that the model asked for. It ends the run with a question if the client must approve some of them,
// and with calls of agents otherwise.
func (a *agent) act(ctx context.Context, done *steps, box *toolbox, w *writer) (ended bool, err error) {
	var undecided, delegated []place
	for _, at := range done.open() {
		if got := done.returned(at); got != nil {
			if err := done.record(ctx, step{Of: &at, Result: got}); err != nil {
				return false, err
			}
			continue
		}
		t := box.find(done.call(at).Name)
		switch {
		case t == nil || !t.approve:
		case at.Round >= done.carried:
			undecided = append(undecided, at)
			continue
		default:
			if v := decide(done.run.Message); !v.approves(done.call(at).ID) {
				if err := done.record(ctx, step{Of: &at, Result: &result{notApproved, true}}); err != nil {
					return false, err
				}
				continue
			}
		}
		if t != nil && t.agent != "" {
			delegated = append(delegated, at)
			continue
		}
		if err := a.perform(ctx, done, at, t, w); err != nil {
			return false, err
		}
	}
	if len(undecided) > 0 {
		return true, done.ask(ctx, undecided, w)
	}
	return done.delegate(ctx, delegated, box, w)
}

// perform makes a call that the model asked for.
func (a *agent) perform(ctx context.Context, done *steps, at place, t *tool, w *writer) error {
	if err := w.flush(); err != nil {
		return err
	}
	wanted := done.call(at)
	switch {
	case t == nil:
		return done.record(ctx, step{Of: &at, Result: &result{fmt.Sprintf("There is no tool %q.", web.Excerpt([]byte(wanted.Name))), true}})
	case done.rounds[at.Round].began[at.Call] && !t.repeats:
		// An earlier run was interrupted during this call.
		return done.record(ctx, step{Of: &at, Result: &result{unknown, true}})
	}
	return done.perform(ctx, at, func(key string) result {
		stop := w.beatDuring()
		defer stop()
		return t.call(ctx, wanted.Arguments, key, a.callWithin)
	})
}

// ask asks the model for its next answer.
func (a *agent) ask(ctx context.Context, conversation []message, done *steps, box *toolbox, w *writer) (*answer, error) {
	body, err := a.request(conversation, box)
	if err != nil {
		return nil, err
	}
	got := newAnswer(a.opts.MaxEvent)
	return got, a.complete(ctx, body, fmt.Sprintf("%s:%d", done.run.IdempotencyKey(), len(done.rounds)), got, w)
}

// request returns the body of a call.
func (a *agent) request(messages []message, box *toolbox) ([]byte, error) {
	body := a.format.request(messages, box)
	body["model"] = a.opts.Model
	for name, value := range a.opts.Parameters {
		switch {
		case string(value) == "null":
			delete(body, name)
		case name != "tools": // which the format joins with ours
			body[name] = value
		}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode the request to the model: %w", err)
	}
	return raw, nil
}
