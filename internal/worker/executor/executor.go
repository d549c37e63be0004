// Package executor is the contract between the worker pool and the code that runs an agent. The pool owns leases,
// retries and the log. The built-in kinds are subpackages; the public package agent adapts the code of Go users.
package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

// Executor runs an agent for one message of one task.
//
// Execute runs at least once per message. After a crash or a lost lease, another worker calls it again with a higher
// Attempt. So pass Run.IdempotencyKey to services with side effects. ctx ends when the task is canceled, the lease is
// lost, a timeout passes or the server stops; context.Cause says which.
//
// Returning nil completes the task, unless the run has already settled it. An error fails it. The client reads the text
// of a Failure; any other error is logged, and the client reads only that the agent failed. Retryable errors are
// retried with backoff, up to the agent's max attempts, and so are errors that say that Holdfast's own database is away
// (task.Unavailable). An Unavailable waits for the agent and counts no try.
type Executor interface {
	Execute(ctx context.Context, run *Run, out Emitter) error
}

// Func makes a function an Executor.
type Func func(ctx context.Context, run *Run, out Emitter) error

// Execute calls f.
func (f Func) Execute(ctx context.Context, run *Run, out Emitter) error { return f(ctx, run, out) }

// Run describes one invocation.
type Run struct {
	ID        task.ID // internal, unique on the server
	TaskID    string  // public id
	ContextID string
	Agent     string
	Tenant    string
	Owner     string
	Keys      Keys
	// Message is the user's message that this run answers, without parts if Input has begun the turn alone. Do not change it.
	Message  *task.Message
	Metadata json.RawMessage // of the task's first request
	// TurnMetadata is that of the request with this message. The other facts are of that request, too.
	TurnMetadata        json.RawMessage
	AcceptedOutputModes []string                   // media types that the client can read; none: any
	Extensions          []string                   // URIs of the extensions in force
	ExtensionParams     map[string]json.RawMessage // of those that have parameters on the agent's card, by URI
	Scopes              []string                   // of the caller
	Traceparent         string                     // W3C Trace Context of the run if it is traced, or else of the request; or ""
	Tracestate          string                     // that belongs to Traceparent, or ""
	Forwarded           task.Forwarded             // none for a turn that no message of a client began
	Deadline            time.Time                  // when the run times out; zero: never
	Attempt             task.Attempt               // rises with every run; a failover that loses a claim repeats it
	Try                 int                        // 1 for the first invocation for this message
	Turn                int                        // 1 for the task's first message
	Input               *Input                     // what began the turn, if not only the client's message; or nil
	// ResumeURL begins the next turn if the run ends with an Ask with a Resume. It is the same for all tries, and a secret of
	// those who may answer. "": the server has none.
	ResumeURL string
	OnBegin   func() // see Began; may be nil
	Key       string // the IdempotencyKey that a server has given to this process; "" in the server itself

	Limits Limits
	API    *API // where the agent can act for this run from elsewhere; nil: nowhere
	Memory Memory
	Buffer Buffer // of the event that the executor is reading from its agent; nil: without a bound
}

// In sets the trace context that the agent gets.
func (r *Run) In(c tracing.Context) { r.Traceparent, r.Tracestate = c.Parent, c.State }

// Trace returns the trace context that the agent gets.
func (r *Run) Trace() tracing.Context {
	return tracing.Context{Parent: r.Traceparent, State: r.Tracestate}
}

// API is the run API of one run (docs/run-api.yaml).
type API struct {
	URL   string
	Token string // a secret; it is of no use when the attempt is over
	// HandOver lets the run API write the events of the run instead of the executor, which must emit nothing more. It blocks
	// until an event has ended the run, or until ctx ends.
	HandOver func(ctx context.Context) error
}

// Limits are those that the agent of a run should know before it sends something. 0: the agent need not know.
type Limits struct {
	Event int   // bytes of an event as JSON
	State int64 // bytes of the state of a task or context
}

// Hold blocks until the process has memory for n bytes of the event that the executor is reading. Time in it does not
// count as silence of the agent. The error is the cause of ctx.
func (r *Run) Hold(ctx context.Context, n int) error {
	if r.Buffer == nil {
		return nil
	}
	return r.Buffer.Grow(ctx, n)
}

// Drop returns the memory of Hold: the event was emitted, or will not be.
func (r *Run) Drop() {
	if r.Buffer != nil {
		r.Buffer.Release()
	}
}

// Input is what began a turn besides a message of the client.
type Input struct {
	Source string // SourceTimer, SourceCalls or SourceResume
	// Until is when the agent's wait ended, or would have ended.
	Until time.Time
	// Interrupted says that the run's Message ended the wait earlier.
	Interrupted bool
	// Results are those of the calls that the turn follows, in the order of the calls.
	Results []Result
	// Resumed is the request by resume URL.
	Resumed *Resumed
}

// The sources of an Input.
const (
	SourceTimer = "timer" // the turn follows a wait
	SourceCalls = "calls" // the turn follows calls
)

// Began tells the worker that the agent is there and has begun the run, so that it starts more runs. An executor need not
// call it: the first emission and a good end say the same.
func (r *Run) Began() {
	if r.OnBegin != nil {
		r.OnBegin()
	}
}

// Memory is what an agent may know of its task and context, and what it may store beside them. Each call is a query.
type Memory interface {
	// History returns the conversation of the task before this run's message, oldest first.
	History(ctx context.Context) ([]task.Message, error)
	// Snapshot returns the task as it was before this run's message: its state and its history. Its artifacts are those of
	// now. The first ones, as many as before says, existed before the message; earlier attempts for it have begun the others.
	Snapshot(ctx context.Context) (t *task.Task, before int, err error)
	// Earlier returns the events that earlier attempts for the same message have emitted, with their checkpoints.
	Earlier(ctx context.Context) ([]task.Event, error)
	// References returns the tasks that the message refers to, as far as they are its owner's and this agent's, with the
	// state stored for each and what was said in it within the bounds. Bounds of zero read no dialogue.
	References(ctx context.Context, within Bounds) ([]Reference, error)
	// Checkpoint returns the last checkpoint of earlier attempts for this message, or nil.
	Checkpoint(ctx context.Context) (json.RawMessage, error)
	// Checkpoints returns all checkpoints of earlier attempts for this message, oldest first.
	Checkpoints(ctx context.Context) ([]json.RawMessage, error)
	// Records returns what the durable runs of the task have recorded, in all turns and tries, oldest first: those after a
	// place, of so many bytes but at least one. next is the place after which others follow; 0: none do.
	Records(ctx context.Context, after task.Seq, bytes int64) (records []json.RawMessage, next task.Seq, err error)
	// Task returns the task as its log has it, with its messages and artifacts. The caller may change it.
	Task(ctx context.Context) (*task.Task, error)
	// Dialogue returns what the user and the agent have said before this run's message, oldest first: messages, and
	// artifacts with their whole content. OfContext has the other tasks of the owner in the context, too, if they have
	// ended or wait for their client. The bounds keep the newest entries.
	Dialogue(ctx context.Context, of Scope, within Bounds) ([]Said, error)
	// State returns the value that a run has stored for the task or for its context. It outlives the run.
	State(ctx context.Context, of Scope) (State, error)
	// SetState stores a value and returns its version. The value is committed when SetState returns. version is that of
	// the value to replace: 0 if none is stored, or AnyVersion. A value nil or null removes what is stored, and has the version 0.
	//
	// Errors: ErrStateChanged if another version is stored, and task.LeaseLost if the attempt may not write any more. A
	// value that is too large or not JSON is a Failure.
	SetState(ctx context.Context, of Scope, value json.RawMessage, version int64) (int64, error)
}

// Reference is a task that a message refers to.
type Reference = task.Reference

// Said is an entry of a dialogue.
type Said = task.Said

// Bounds bound a dialogue.
type Bounds = task.Bounds

// Scope is a task or its context: what a State belongs to, or a dialogue covers.
type Scope int

// The scopes. The state of a context is shared by the tasks of one owner with one agent in that context.
const (
	OfTask Scope = iota + 1
	OfContext
)

// String returns the name of the scope: task or context.
func (s Scope) String() string {
	if s == OfContext {
		return "context"
	}
	return "task"
}

// State is a value that a run has stored. The zero State says that nothing is stored.
type State struct {
	Value   json.RawMessage
	Version int64 // rises with each write, from 1
}

// AnyVersion lets SetState replace a value whatever its version.
const AnyVersion int64 = -1

// ErrStateChanged says that another run has changed the state since it was read.
var ErrStateChanged = errors.New("the state has changed since it was read")

// Buffer gives memory to events that executors read. Only one goroutine may use it. See Run.Hold and Run.Drop.
type Buffer interface {
	Grow(ctx context.Context, n int) error
	Release()
}

// Chunk is an artifact or a piece of one.
type Chunk struct {
	Artifact task.Artifact // without an ID: the n-th such artifact of the turn; Index is assigned by the worker
	Append   bool          // the parts continue those of the same ID
	Grows    bool          // the first chunk of a run continues what stood at the newest checkpoint, the later ones append; instead of Append
	Last     bool
	Metadata json.RawMessage // of the event
}

// TextID is the id of the artifact that texts of a name ("": text) form in a turn.
func TextID(name string, turn int) string { return fmt.Sprintf("%s-%d", cmp.Or(name, "text"), turn) }

// About is what a status has besides its state and message.
type About struct {
	Metadata json.RawMessage // a JSON object, for clients
	Cause    string          // why the run failed, for operators: clients do not see it
}

// Emitter writes to the task's log. Calls keep their order. A call returns when its event is queued within a bounded
// window. The end of the run waits until all events are committed; no client sees an event before its commit.
//
// Messages may leave ID, Role, TaskID and ContextID empty. After a settling status (input-required, auth-required,
// completed, failed, rejected), a Reply, a Wait, a Call or a lost lease, further calls return an error.
type Emitter interface {
	// Status reports working (with a message, or as a heartbeat) or settles the run.
	Status(ctx context.Context, s task.State, msg *task.Message) error
	// StatusAbout is Status with more about the event.
	StatusAbout(ctx context.Context, s task.State, msg *task.Message, more About) error
	// Ask parks the task, as Status with input-required or auth-required does.
	Ask(ctx context.Context, a Ask) error
	// Artifact emits a whole artifact or a chunk.
	Artifact(ctx context.Context, c Chunk) error
	// Reply ends the run with a bare Message instead of a task. It must be the first event of the run.
	Reply(ctx context.Context, msg *task.Message) error
	// Checkpoint stores the progress of the run for the next attempt, if there is one.
	Checkpoint(ctx context.Context, data json.RawMessage) error
	// Record stores what a durable run must not do again: for the next attempt and for all later turns. Like a checkpoint it keeps
	// what the run wrote before it, but not the artifacts that its member open names.
	Record(ctx context.Context, record json.RawMessage) error
	// Committed blocks until all events so far are committed. Call it before an effect outside that must not be repeated
	// because its checkpoint was lost.
	Committed(ctx context.Context) error
	// Wait ends the run. The task stays working, without a process, until the next turn begins: at the given time, or
	// with a message of the client.
	Wait(ctx context.Context, w Wait) error
	// Call ends the run. The task stays working, without a process, until each of the called agents has ended or parked
	// its task; the next turn gets the results. The error names the wrong member.
	Call(ctx context.Context, calls []Call) error
}

// Call is a message for another agent of this server, which answers it in a task of its own, or for a task that an earlier
// call has created.
type Call struct {
	ID        string // names the result; "": the place of the call, from 1
	Agent     string // "" with TaskID
	TaskID    string // the task of an earlier call that gets the message; "": a new one
	ContextID string // of a new task; "": that of the caller
	Message   *task.Message
	Metadata  json.RawMessage // of a new task, a JSON object
	// Relay shows the progress of the called task as progress of the caller, while that waits.
	Relay bool
}

// Result is what came of a call.
type Result = task.Result

// DefaultCalls is how many calls an event may have unless the agent's limits say something else.
const DefaultCalls = 100

// CheckCalls returns an error that names the wrong member. most bounds the calls; 0: DefaultCalls.
func CheckCalls(calls []Call, most int) error {
	if most == 0 {
		most = DefaultCalls
	}
	switch {
	case len(calls) == 0:
		return errors.New("calls: has no call")
	case len(calls) > most:
		return fmt.Errorf("calls: has %d calls; the agent's limit is %d", len(calls), most)
	}
	ids := map[string]bool{}
	for i := range calls {
		c := &calls[i]
		switch _, err := task.ParseID(c.TaskID); {
		case c.Message == nil || len(c.Message.Parts) == 0:
			return fmt.Errorf("calls[%d].message: needs at least one part", i)
		case c.Agent == "" && c.TaskID == "":
			return fmt.Errorf("calls[%d]: needs one of agent, task", i)
		case c.Agent != "" && c.TaskID != "":
			return fmt.Errorf("calls[%d]: takes only one of agent, task", i)
		case c.TaskID != "" && err != nil:
			return fmt.Errorf("calls[%d].task: is not the id of a task that was called", i)
		case c.TaskID != "" && c.ContextID != "":
			return fmt.Errorf("calls[%d].contextId: the task has a context; omit it", i)
		case ids[c.CallID(i)]:
			return fmt.Errorf("calls[%d].id: %q is the id of an earlier call", i, c.CallID(i))
		}
		ids[c.CallID(i)] = true
	}
	return nil
}

// CallID returns the id of the call at place i, from 0.
func (c *Call) CallID(i int) string {
	if c.ID != "" {
		return c.ID
	}
	return strconv.Itoa(i + 1)
}

// Wait describes a wait: a time, or a duration from the commit on, by the clock of the database. A time that is over is
// allowed.
type Wait struct {
	Until time.Time
	For   time.Duration
	// Interruptible lets a message of the client begin the next turn earlier. Otherwise the message is answered after
	// the turn of the timer.
	Interruptible bool
}

// MaxWait bounds waits. A wrong unit must not make a task wait for a century.
const MaxWait = 10 * 365 * 24 * time.Hour

// Check returns an error that names the wrong member.
func (w Wait) Check(now time.Time) error {
	switch {
	case w.Until.IsZero() && w.For == 0:
		return errors.New("wait: needs one of until, for")
	case !w.Until.IsZero() && w.For != 0:
		return errors.New("wait: takes only one of until, for")
	case w.For < 0:
		return errors.New("for: must be more than 0")
	case w.For > MaxWait:
		return fmt.Errorf("for: must be at most %.0f seconds (10 years)", MaxWait.Seconds())
	case w.Until.After(now.Add(MaxWait)):
		return fmt.Errorf("until: %s is more than 10 years ahead", w.Until.Format(time.RFC3339))
	case !w.Until.IsZero() && w.Until.Year() < 1:
		return errors.New("until: must not be before the year 1")
	}
	return nil
}

// The causes of a run's context, for context.Cause.
var (
	ErrCanceled   = errors.New("the task was canceled")
	ErrLeaseLost  = errors.New("the lease was lost")
	ErrTimeout    = errors.New("the run took longer than the agent allows")
	ErrInactivity = errors.New("the agent was silent for too long")
	ErrShutdown   = errors.New("the server is stopping")
)

// ErrReply is the error of a Reply that the agent may not give now.
var ErrReply = &Failure{Msg: "A bare reply must be the first event of a run, and the agent's configuration needs direct_replies: true."}

// Failure is an error whose text the client may read.
type Failure struct {
	Msg   string
	Cause error
}

func (f *Failure) Error() string {
	if f.Cause != nil {
		return f.Msg + ": " + f.Cause.Error()
	}
	return f.Msg
}

func (f *Failure) Unwrap() error { return f.Cause }

type retryable struct {
	err   error
	after time.Duration
}

func (r *retryable) Error() string { return r.err.Error() }
func (r *retryable) Unwrap() error { return r.err }

// Retryable marks an error as worth a retry: after the given delay, or after the worker's own backoff if it is zero.
func Retryable(err error, after time.Duration) error { return &retryable{err, after} }

// Unavailable is the error of an agent that is away or overloaded, and has not begun the run. The run does not count as
// a try: its task waits for the agent, for as long as the agent's unreachable_for.
type Unavailable struct {
	Err        error
	RetryAfter time.Duration // what the agent asks for; 0 if it says nothing
	// Answered says that something answered for the agent, so the reason may be this one message. If other runs begin
	// meanwhile and Err is retryable, the run counts as a try.
	Answered bool
}

func (u *Unavailable) Error() string { return u.Err.Error() }
func (u *Unavailable) Unwrap() error { return u.Err }

// IsRetryable reports whether err asks for a retry, and after which delay.
func IsRetryable(err error) (after time.Duration, ok bool) {
	var r *retryable
	if errors.As(err, &r) {
		return r.after, true
	}
	return 0, false
}
