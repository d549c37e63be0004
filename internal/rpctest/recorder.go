package rpctest

import (
	"context"
	"sync"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Recorder is an engine that answers every operation alike, and remembers the last request.
type Recorder struct {
	Task *task.Task
	Err  error

	mu    sync.Mutex
	asked any
	by    identity.Caller
	agent string
}

// As remembers who asks, and which agent.
func (e *Recorder) As(c identity.Caller, agent string) dispatch.Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.by, e.agent = c, agent
	return e
}

// LastBy is who asked last, and which agent.
func (e *Recorder) LastBy() (by identity.Caller, agent string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.by, e.agent
}

// ForAll is an engine that is the same for every caller.
func ForAll(e dispatch.Engine) func(identity.Caller, string) dispatch.Engine {
	return func(identity.Caller, string) dispatch.Engine { return e }
}

// Open is the admission of agents that ask nobody.
type Open struct{}

// Admit lets everybody in.
func (Open) Admit(string) (identity.Caller, error) { return identity.Caller{}, nil }

// Watch has nothing to watch.
func (Open) Watch(string, func(error)) (stop func()) { return func() {} }

func (e *Recorder) ask(request any) (*task.Task, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = request
	if e.Err != nil {
		return nil, e.Err
	}
	return e.Task, nil
}

// Last is the last request, once.
func (e *Recorder) Last() any {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() { e.asked = nil }()
	return e.asked
}

// Send answers with the task.
func (e *Recorder) Send(_ context.Context, r *engine.SendRequest) (*task.Task, error) {
	return e.ask(r)
}

// Get answers with the task.
func (e *Recorder) Get(_ context.Context, r *engine.GetRequest) (*task.Task, error) { return e.ask(r) }

// Cancel answers with the task.
func (e *Recorder) Cancel(_ context.Context, r *engine.CancelRequest) (*task.Task, error) {
	return e.ask(r)
}

// List answers with the task.
func (e *Recorder) List(_ context.Context, r *engine.ListRequest) (*engine.Page, error) {
	t, err := e.ask(r)
	if err != nil {
		return nil, err
	}
	return &engine.Page{Tasks: []*task.Task{t}, Size: r.PageSize, Total: 1}, nil
}

// Stream opens a stream that has no events: to ask for one panics.
func (e *Recorder) Stream(_ context.Context, r *engine.SendRequest) (*engine.Stream, error) {
	t, err := e.ask(r)
	return &engine.Stream{Task: t, Header: t}, err
}

// Subscribe opens such a stream, too.
func (e *Recorder) Subscribe(_ context.Context, r *engine.SubscribeRequest) (*engine.Stream, error) {
	t, err := e.ask(r)
	return &engine.Stream{Task: t, Header: t}, err
}

func (e *Recorder) push(r *engine.PushRequest) (*engine.Pushes, error) {
	if _, err := e.ask(r); err != nil {
		return nil, err
	}
	return &engine.Pushes{TaskID: "t-1", Configs: []task.PushConfig{
		{ID: "p", URL: "https://hook.example/a2a", Token: "secret", Schemes: []string{"Bearer", "Basic"}, Credentials: "secret"},
	}}, nil
}

// SetPush answers with a webhook.
func (e *Recorder) SetPush(_ context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	return e.push(r)
}

// GetPush does, too.
func (e *Recorder) GetPush(_ context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	return e.push(r)
}

// ListPush does, too.
func (e *Recorder) ListPush(_ context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	return e.push(r)
}

// DeletePush does, too.
func (e *Recorder) DeletePush(_ context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	return e.push(r)
}
