// Package dispatch is the layer between the codecs and the engine that is the same in every
// binding. It completes a decoded call with the headers of its request, calls the engine, and
// renders the answer in the version of the request. A binding does the framing: it finds codec and
// endpoint, calls Call or Open, and shows documents and errors in its own way.
package dispatch

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

// Engine is the part of the engine that operations call, as one caller sees it at one agent.
type Engine interface {
	Send(ctx context.Context, r *engine.SendRequest) (*task.Task, error)
	Stream(ctx context.Context, r *engine.SendRequest) (*engine.Stream, error)
	Get(ctx context.Context, r *engine.GetRequest) (*task.Task, error)
	List(ctx context.Context, r *engine.ListRequest) (*engine.Page, error)
	Cancel(ctx context.Context, r *engine.CancelRequest) (*task.Task, error)
	Subscribe(ctx context.Context, r *engine.SubscribeRequest) (*engine.Stream, error)
	SetPush(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error)
	GetPush(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error)
	ListPush(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error)
	DeletePush(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error)
}

// Views converts a function that returns a caller's view of the engine to the type of
// Options.Engine.
func Views[V Engine](as func(c task.Caller, agent string) V) func(task.Caller, string) Engine {
	return func(c task.Caller, agent string) Engine { return as(c, agent) }
}

// Observer takes the measurements of operations. Every field is optional.
type Observer struct {
	Answered     func(Answer)
	FirstEvent   func(agent string, took time.Duration) // a stream has sent its first event
	StreamOpened func(version string) (closed func())
	Resumed      func(version string)
	Limited      func(agent, limit string) // a limit refused a request
}

// Answer describes an answered request, for measurements.
type Answer struct {
	Operation string
	Binding   string // jsonrpc, rest or grpc
	Version   string // of A2A; empty if none was recognized
	Agent     string
	Outcome   string        // Succeeded, Refused, or the reason of an error
	Took      time.Duration // until the answer was ready, or the stream was open
	Admitted  bool          // the agent has admitted the caller
	Tenant    string        // of an admitted caller
	// TaskID and ContextID are those of the task of an operation that has succeeded.
	TaskID, ContextID string
	TraceID           string // of the request's span, or that the client has sent
	RequestID         string // that the client, or a proxy, has sent
}

// Writes reports whether the operation changes something.
func (a *Answer) Writes() bool { return writes[a.Operation] }

var writes = map[string]bool{
	engine.OpSend.String(): true, engine.OpStream.String(): true, engine.OpCancel.String(): true,
	engine.OpPushSet.String(): true, engine.OpPushDelete.String(): true,
}

// Options configures a Runner. The zero value of a number means its default.
type Options struct {
	Engine    func(c task.Caller, agent string) Engine
	KeepAlive time.Duration // between keep-alives on a quiet stream; default 15 s
	// Streams bounds the open streams, of each caller and of all, in all bindings; Rates bounds the requests of each caller.
	// Nil: no bound.
	Streams *limit.Places[task.Owner]
	Rates   *limit.Rates[task.Owner]
	// Memory bounds the bytes that requests hold. Nil: no bound.
	Memory *limit.Budgets
	// LegacyTaskIDs lets a message with an unknown task id create that task, in versions that once
	// allowed it.
	LegacyTaskIDs bool
	// ReopenTerminal lets a message restart a task that has ended, in versions that allow it.
	ReopenTerminal bool
	// EventNames gives the events of streams names, in versions whose early clients read them.
	EventNames bool
	// ReturnByDefault answers a send as soon as it is stored, unless the request says to wait.
	ReturnByDefault bool
	// Ambiguous chooses the shape of answers to requests that fit several versions.
	Ambiguous Ambiguous
	// Agents are the agents of this server, for requests that name one.
	Agents   []Agent
	Observer Observer
}

// Ambiguous chooses the shape of answers to requests that read the same in several versions.
type Ambiguous uint8

// The choices.
const (
	AsOrigin Ambiguous = iota // the version in which the task was created
	AsUnion                   // the newest version that reads the request, plus members that the task's version expects
	AsNewest                  // the newest version that reads the request
)

// Agent is an agent as operations know it.
type Agent struct {
	Name       string
	Extensions []Extension // that its card declares
	NoStreams  bool        // its card declares no streams
	Forward    []string    // canonical names of the headers of clients that it gets
}

// agent is an agent with its current extensions.
type agent struct {
	*Agent
	extensions atomic.Pointer[[]Extension]
}

// SetExtensions replaces the extensions of an agent, whose card has changed.
func (o *Runner) SetExtensions(name string, all []Extension) {
	if a := o.agents[name]; a != nil {
		a.extensions.Store(&all)
	}
}

// Extension is a protocol extension.
type Extension struct {
	URI      string
	Required bool // refuse clients that do not name it
}

// Runner runs operations, for all bindings of a server.
type Runner struct {
	opt    Options
	agents map[string]*agent
}

// New makes a runner.
func New(o Options) *Runner {
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
	r := &Runner{opt: o, agents: map[string]*agent{}}
	for i := range o.Agents {
		a := &agent{Agent: &o.Agents[i]}
		a.extensions.Store(&a.Extensions)
		r.agents[a.Name] = a
	}
	return r
}

// Endpoint says at which agent a request arrived, and who calls.
type Endpoint struct {
	Agent string
	// Common says that the endpoint serves every agent. Agent is then the default, unless the
	// request names another.
	Common bool
	Admission
	// TurnedAway says why no agent that is reachable here admits the caller. It is then the answer
	// to every request.
	TurnedAway error
	// ExtendedCard renders the extended card of a request's agent. Nil: no extended card.
	ExtendedCard func(r *Request) ([]byte, error)
}

// Admission decides which agents admit the caller of a request.
type Admission interface {
	// Admit returns the caller as the agent sees it, or why the agent does not admit the caller.
	Admit(agent string) (task.Caller, error)
	// Watch calls end with an error once the agent no longer admits the caller.
	Watch(agent string, end func(error)) (stop func())
}

// Unread returns what the caller of a request that cannot be read learns: err, or why the agent of the request does not
// admit the caller. tenant is the agent that the request names, or "".
func (e *Endpoint) Unread(tenant string, err error) error {
	if tenant == "" || !e.Common {
		tenant = e.Agent
	}
	if _, refused := e.Admit(tenant); refused != nil {
		return refused
	}
	return err
}

// Request is a decoded request with its headers.
type Request struct {
	Endpoint
	Binding string // its name, for measurements
	Began   time.Time
	Caller  task.Caller // admitted by the agent
	// Account has the bytes that the request holds.
	Account *limit.Account
	counted bool   // charged to its caller's rate
	engine  Engine // as the caller sees it
	Codec   dialect.Codec
	Call    *dialect.Call
	// IdempotencyKey and LastEventID are the headers of these names, or "".
	IdempotencyKey string
	LastEventID    string
	// ExactTotal asks for the exact total of a list, by the header Prefer: count=exact.
	ExactTotal bool
	// Extensions are the extensions that the client names, active those in force.
	Extensions []string
	active     []string
	// TaskID and ContextID are those of the task of an operation that has succeeded.
	TaskID, ContextID string
	// trace is the W3C Trace Context that the client sends.
	trace tracing.Context
	// requestID is the header X-Request-Id, or "" if it is no plain id.
	requestID string
	// header returns the values of one header, by its canonical HTTP name.
	header func(name string) []string
	// ambiguous names a header that has several values where one is needed. The server refuses it,
	// since a proxy in front may have used another value.
	ambiguous string
	// Ambiguous is set when Method and Params read the same in several versions. The answer then
	// has the shape of the version in which the task was created (registry.Choice).
	Ambiguous bool
	Method    string
	Params    []byte
}

// origin switches to the version in which the task was created, when the request reads the same in
// several versions and the answer does not.
func (o *Runner) origin(r *Request, version string) {
	if !r.Ambiguous || version == r.Codec.Traits().Version || o.opt.Ambiguous == AsNewest {
		return
	}
	if o.opt.Ambiguous == AsUnion {
		if union := registry.Union(r.Codec, version); union != nil {
			r.Codec = union
		}
		return
	}
	c := registry.ByVersion(version)
	if c == nil {
		return
	}
	if _, has := c.Traits().Operations[r.Method]; !has {
		return
	}
	// Versions differ in their defaults for members that a request omits, so decode again.
	if call, err := c.Decode(r.Call.Op, r.Params); err == nil {
		r.Codec, r.Call = c, call
	}
}

// Call runs an operation with one document as its answer, and returns that document.
func (o *Runner) Call(ctx context.Context, r *Request) ([]byte, error) {
	var (
		t   *task.Task
		err = o.prepare(r)
	)
	if err != nil {
		return nil, err
	}
	switch c := r.Call; c.Op {
	case engine.OpSend:
		if err = o.prepareSend(r, c.Send); err == nil {
			t, err = r.engine.Send(ctx, c.Send)
		}
	case engine.OpGet:
		c.Get.WithArtifacts = true
		t, err = r.engine.Get(ctx, c.Get)
	case engine.OpList:
		c.List.ExactTotal = r.ExactTotal
		page, err := r.engine.List(ctx, c.List)
		if err != nil {
			return nil, err
		}
		return r.Codec.Page(page, c.View)
	case engine.OpCancel:
		t, err = r.engine.Cancel(ctx, c.Cancel)
	case engine.OpPushSet, engine.OpPushGet, engine.OpPushList, engine.OpPushDelete:
		return push(ctx, r)
	case engine.OpExtendedCard:
		if r.ExtendedCard == nil {
			return nil, &task.Error{Kind: task.NoExtendedCard}
		}
		return r.ExtendedCard(r)
	default:
		err = task.Unsupported
	}
	if err != nil {
		return nil, err
	}
	r.About(t)
	o.origin(r, t.Dialect)
	return r.Codec.Result(r.Call.Op, t, r.Call.View)
}

// push runs an operation on the webhooks of a task.
func push(ctx context.Context, r *Request) ([]byte, error) {
	var do func(context.Context, *engine.PushRequest) (*engine.Pushes, error)
	switch r.Call.Op {
	case engine.OpPushSet:
		do = r.engine.SetPush
	case engine.OpPushGet:
		do = r.engine.GetPush
	case engine.OpPushList:
		do = r.engine.ListPush
	default:
		do = r.engine.DeletePush
	}
	p := r.Call.Push
	p.Dialect = r.Codec.Traits().Version
	answer, err := do(ctx, p)
	if err != nil {
		return nil, err
	}
	r.TaskID = p.TaskID
	return r.Codec.Pushes(r.Call.Op, answer)
}

// Outcomes for metrics, besides the reasons of package fault.
const (
	Succeeded = "ok"
	Refused   = "refused" // by the binding, before the operation
)

// About notes the task of a request, for its measurements.
func (r *Request) About(t *task.Task) { r.TaskID, r.ContextID = t.PublicID, t.ContextID }

// Observe measures an answered request. Its codec is nil when no version was recognized.
func (o *Runner) Observe(ctx context.Context, op engine.Op, r *Request, outcome string) {
	version := ""
	if r.Codec != nil {
		version = r.Codec.Traits().Version
	}
	if span := tracing.Current(ctx); span != nil {
		r.describe(span, op, version, outcome)
	}
	if o.opt.Observer.Answered == nil {
		return
	}
	o.opt.Observer.Answered(Answer{
		Operation: op.String(), Binding: r.Binding, Version: version, Agent: r.Agent, Outcome: outcome, Took: time.Since(r.Began),
		Admitted: r.engine != nil, Tenant: r.Caller.Tenant, TaskID: r.TaskID, ContextID: r.ContextID,
		TraceID: cmp.Or(tracing.TraceID(ctx), r.trace.TraceID()), RequestID: r.requestID,
	})
}

// describe names the span of a request, and says what came of it.
func (r *Request) describe(span *tracing.Span, op engine.Op, version, outcome string) {
	span.Set(
		tracing.Operation.String(op.String()), tracing.Binding.String(r.Binding), tracing.Version.String(version), tracing.Agent.String(r.Agent),
		tracing.TaskID.String(r.TaskID), tracing.ContextID.String(r.ContextID), tracing.Outcome.String(outcome),
	)
	if op != engine.OpNone && r.Binding != "grpc" { // a call over gRPC has the name of its method
		span.Name("A2A " + op.String())
	}
	if outcome != Succeeded {
		span.Fail(outcome)
	}
}
