// Package operation is what lies between the codecs and the engine and is the same
// in every binding: it completes a decoded call with what came beside its params,
// asks the engine, and renders the answer in the version of the request. A binding
// does the framing: it finds codec and endpoint, calls Call or Open, and shows
// documents and errors in its own way.
package operation

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v01"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Engine is what operations ask for.
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

// Observer takes the measurements of operations. Every field is optional.
type Observer struct {
	Request      func(operation, dialect, outcome string)
	StreamOpened func(dialect string) (closed func())
	Resumed      func(dialect string)
	Limited      func(agent, limit string) // a request was refused
}

// Options configures a Runner. The zero value of a number means its default.
type Options struct {
	Engine     Engine
	KeepAlive  time.Duration // between signs of life on a quiet stream; default 15 s
	MaxStreams int           // open at a time, in all bindings; default any number
	// Callers bounds what each caller may ask. Nil: nothing.
	Callers *limit.Callers
	// MaxParts is how many parts a message may have, MaxPart how much is in one, in bytes. 0: any.
	MaxParts int
	MaxPart  int64
	// LegacyTaskIDs lets an unknown task id in message/send become a new task.
	LegacyTaskIDs bool
	// ReopenTerminal lets a message of 0.1 to a task that has ended begin it anew.
	ReopenTerminal bool
	// ReturnByDefault answers a send that does not say whether to wait when it is stored.
	ReturnByDefault bool
	// Ambiguous is the shape of answers where the request does not tell its version.
	Ambiguous Ambiguous
	// Agents are those of this server, for requests that name one.
	Agents   []Agent
	Observer Observer
}

// Ambiguous chooses the shape of answers to requests that read the same in 0.1 and 0.3.
type Ambiguous uint8

// The choices.
const (
	AsOrigin Ambiguous = iota // that of the version the task was created in
	AsUnion                   // of 0.3; of a task of 0.1 with what both versions look for
	As03
)

// Agent is what operations must know of an agent.
type Agent struct {
	Name       string
	Extensions []Extension // that its card declares
}

// Extension is one of the protocol's extensions.
type Extension struct {
	URI      string
	Required bool // a client that does not name it is refused
}

// Runner runs operations, for all bindings of a server.
type Runner struct {
	opt     Options
	agents  map[string]*Agent
	streams chan struct{}
}

// New makes a runner.
func New(o Options) *Runner {
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
	r := &Runner{opt: o, agents: map[string]*Agent{}}
	for i := range o.Agents {
		r.agents[o.Agents[i].Name] = &o.Agents[i]
	}
	if o.MaxStreams > 0 {
		r.streams = make(chan struct{}, o.MaxStreams)
	}
	return r
}

// Endpoint is where a request arrived: which agent's, and who calls.
type Endpoint struct {
	Agent string
	// Common says that the endpoint serves every agent, and Agent unless the request names another.
	Common bool
	// Admit is who calls, as an agent sees it, or why the agent does not let the caller in. Nil:
	// nobody in particular, whatever the agent.
	Admit func(agent string) (engine.Principal, error)
	// Watch calls end with an error when the agent would not let the caller in any more. Nil: it always will.
	Watch func(agent string, end func(error)) (stop func())
	// TurnedAway is why no agent that can be reached here lets the caller in. It is the answer
	// to whatever the request says.
	TurnedAway error
	Principal  engine.Principal // that Admit has found
	Address    string           // where the connection came from
	// ExtendedCard renders the extended card of the agent of a request. Nil: there is none.
	ExtendedCard func(r *Request) ([]byte, error)
}

// Request is a decoded request with what came beside its params.
type Request struct {
	Endpoint
	Codec dialect.Codec
	Call  *dialect.Call
	// IdempotencyKey and LastEventID are the headers of these names, or "".
	IdempotencyKey string
	LastEventID    string
	// ExactTotal asks for the exact total of a list, by the header Prefer: count=exact.
	ExactTotal bool
	// Extensions are those that the client names, active those that are in force.
	Extensions []string
	active     []string
	// ambiguous is a header with several values of which one would have to be chosen: a proxy in
	// front might have gone by another.
	ambiguous string
	// Ambiguous is set when Method and Params read the same in several versions: the answer
	// then has the shape of the version that the task was created in (registry.Choice).
	Ambiguous bool
	Method    string
	Params    []byte
}

func (r *Request) caller() engine.Caller {
	return engine.Caller{Principal: r.Principal, Agent: r.Agent, Address: r.Address}
}

// origin turns to the version that the task was created in, where the request reads
// the same in every version and the answer does not.
func (o *Runner) origin(r *Request, version string) {
	if !r.Ambiguous || version == r.Codec.Version() || o.opt.Ambiguous == As03 {
		return
	}
	if o.opt.Ambiguous == AsUnion {
		if version == v01.Version {
			r.Codec = v03.Union{}
		}
		return
	}
	c := registry.ByVersion(version)
	if c == nil {
		return
	}
	if _, has := c.Operation(r.Method); !has {
		return
	}
	// Again, because versions differ in what a request shows that does not say.
	if call, err := c.Decode(r.Call.Op, r.Params); err == nil {
		r.Codec, r.Call = c, call
	}
}

// Call runs an operation whose answer is one document, and returns that.
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
			t, err = o.opt.Engine.Send(ctx, c.Send)
		}
	case engine.OpGet:
		c.Get.Caller, c.Get.WithArtifacts = r.caller(), true
		t, err = o.opt.Engine.Get(ctx, c.Get)
	case engine.OpList:
		c.List.Caller, c.List.ExactTotal = r.caller(), r.ExactTotal
		page, err := o.opt.Engine.List(ctx, c.List)
		if err != nil {
			return nil, err
		}
		return r.Codec.Page(page, c.View)
	case engine.OpCancel:
		c.Cancel.Caller = r.caller()
		t, err = o.opt.Engine.Cancel(ctx, c.Cancel)
	case engine.OpPushSet, engine.OpPushGet, engine.OpPushList, engine.OpPushDelete:
		return o.push(ctx, r)
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
	o.origin(r, t.Dialect)
	return r.Codec.Result(r.Call.Op, t, r.Call.View)
}

// push runs an operation on the webhooks of a task.
func (o *Runner) push(ctx context.Context, r *Request) ([]byte, error) {
	var do func(context.Context, *engine.PushRequest) (*engine.Pushes, error)
	switch r.Call.Op {
	case engine.OpPushSet:
		do = o.opt.Engine.SetPush
	case engine.OpPushGet:
		do = o.opt.Engine.GetPush
	case engine.OpPushList:
		do = o.opt.Engine.ListPush
	default:
		do = o.opt.Engine.DeletePush
	}
	p := r.Call.Push
	p.Caller, p.Dialect = r.caller(), r.Codec.Version()
	answer, err := do(ctx, p)
	if err != nil {
		return nil, err
	}
	return r.Codec.Pushes(r.Call.Op, answer)
}

// Outcomes for metrics, beside the reasons of package fault.
const (
	Succeeded = "ok"
	Refused   = "refused" // by the binding, before an operation
)

// Observe counts an answered request. The codec is nil when no version was recognised.
func (o *Runner) Observe(op engine.Op, c dialect.Codec, outcome string) {
	if o.opt.Observer.Request == nil {
		return
	}
	version := ""
	if c != nil {
		version = c.Version()
	}
	o.opt.Observer.Request(op.String(), version, outcome)
}
