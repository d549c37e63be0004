package rpctest

import (
	"context"
	"sync"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Recorder is an engine that answers every operation alike, and records the last request.
type Recorder struct {
	Task *task.Task
	Err  error
	Call func(ctx context.Context) // called before the answer

	mu    sync.Mutex
	asked any
	by    task.Caller
	agent string
}

// As records the caller and the agent.
func (e *Recorder) As(c task.Caller, agent string) dispatch.Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.by, e.agent = c, agent
	return e
}

// LastBy returns the last caller and agent.
func (e *Recorder) LastBy() (by task.Caller, agent string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.by, e.agent
}

// ForAll returns a function that gives every caller the same engine.
func ForAll(e dispatch.Engine) func(task.Caller, string) dispatch.Engine {
	return func(task.Caller, string) dispatch.Engine { return e }
}

// Open is the admission of agents without authentication.
type Open struct{}

// Admit admits every caller.
func (Open) Admit(string) (task.Caller, error) { return task.Caller{}, nil }

// Watch does nothing.
func (Open) Watch(string, func(error)) (stop func()) { return func() {} }

func (e *Recorder) ask(ctx context.Context, request any) (*task.Task, error) {
	e.mu.Lock()
	e.asked = request
	e.mu.Unlock()
	if e.Call != nil {
		e.Call(ctx)
	}
	if e.Err != nil {
		return nil, e.Err
	}
	return e.Task, nil
}

// Last returns the last request, once.
func (e *Recorder) Last() any {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() { e.asked = nil }()
	return e.asked
}

// Send answers with the task.
func (e *Recorder) Send(ctx context.Context, r *engine.SendRequest) (*task.Task, error) {
	return e.ask(ctx, r)
}

// Get answers with the task.
func (e *Recorder) Get(ctx context.Context, r *engine.GetRequest) (*task.Task, error) {
	return e.ask(ctx, r)
}

// Cancel answers with the task.
func (e *Recorder) Cancel(ctx context.Context, r *engine.CancelRequest) (*task.Task, error) {
	return e.ask(ctx, r)
}

// List answers with the task.
func (e *Recorder) List(ctx context.Context, r *engine.ListRequest) (*engine.Page, error) {
	t, err := e.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	return &engine.Page{Tasks: []*task.Task{t}, Size: r.PageSize, Total: 1}, nil
}

// Stream opens a stream without events: a call of Next panics.
func (e *Recorder) Stream(ctx context.Context, r *engine.SendRequest) (*engine.Stream, error) {
	t, err := e.ask(ctx, r)
	return &engine.Stream{Task: t, Header: t}, err
}

// Subscribe opens a stream without events, like Stream.
func (e *Recorder) Subscribe(ctx context.Context, r *engine.SubscribeRequest) (*engine.Stream, error) {
	t, err := e.ask(ctx, r)
	return &engine.Stream{Task: t, Header: t}, err
}

func (e *Recorder) push(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	if _, err := e.ask(ctx, r); err != nil {
		return nil, err
	}
	return &engine.Pushes{TaskID: "t-1", Configs: []task.PushConfig{
		{ID: "p", URL: "https://hook.example/a2a", Token: "secret", Schemes: []string{"Bearer", "Basic"}, Credentials: "secret"},
	}}, nil
}

// SetPush answers with a webhook.
func (e *Recorder) SetPush(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	return e.push(ctx, r)
}

// GetPush answers with a webhook.
func (e *Recorder) GetPush(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	return e.push(ctx, r)
}

// ListPush answers with a webhook.
func (e *Recorder) ListPush(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	return e.push(ctx, r)
}

// DeletePush answers without an error.
func (e *Recorder) DeletePush(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	return e.push(ctx, r)
}
