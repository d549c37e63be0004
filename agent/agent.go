package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/connect"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Executor is an agent. Execute answers one message; see the package comment for
// when and how often it is called. Calls run concurrently.
type Executor interface {
	Execute(ctx context.Context, run *Run, out Emitter) error
}

// Func makes a function an Executor.
type Func func(ctx context.Context, run *Run, out Emitter) error

// Execute calls f.
func (f Func) Execute(ctx context.Context, run *Run, out Emitter) error { return f(ctx, run, out) }

// Run is one invocation. The zero value of every field is possible, so a test can
// make a Run from a Message alone.
type Run struct {
	TaskID     string
	TaskKey    string // for memory of the task outside of Holdfast; TaskID may be that of another caller, too
	ContextID  string
	ContextKey string // for memory of the context, which no other caller or agent has; clients choose ContextID
	Agent      string // the name under which the agent is configured
	Tenant     string
	Owner      string
	Message    Message         // what to answer; do not change it. Without parts if a timer or a callback began the turn
	Input      *Input          // what began the turn, if not only a message; or nil
	Metadata   json.RawMessage // of the request that created the task
	Turn       int             // 1 for the task's first message
	Try        int             // 1 for the first invocation for this message
	Attempt    int             // rises with every invocation for this task

	// The following are of the request with this message.
	TurnMetadata        json.RawMessage
	AcceptedOutputModes []string                   // media types that the client can read; none: any
	Extensions          []string                   // URIs of the extensions in force
	ExtensionParams     map[string]json.RawMessage // of those that have parameters on the agent's card, by URI
	Scopes              []string                   // of the caller
	Traceparent         string                     // W3C Trace Context of the run if it is traced, or else of the request; or ""
	Tracestate          string                     // that belongs to Traceparent, or ""

	Deadline time.Time // when the run times out; zero: never

	// ResumeURL begins the next turn if this one ends with an Ask with a Resume: give it to the third party that answers instead of the
	// client, before or after asking. It is the same for every try. Everybody with it can answer.
	ResumeURL string

	key    string
	memory memory
}

// memory is what the run knows of its task and context: the log in the server's process, or the run API.
type memory interface {
	History(ctx context.Context) ([]task.Message, error)
	Snapshot(ctx context.Context) (t *task.Task, before int, err error)
	References(ctx context.Context, within executor.Bounds) ([]executor.Reference, error)
	Checkpoint(ctx context.Context) (json.RawMessage, error)
	Records(ctx context.Context, after task.Seq, bytes int64) (records []json.RawMessage, next task.Seq, err error)
	Dialogue(ctx context.Context, of executor.Scope, within executor.Bounds) ([]executor.Said, error)
	State(ctx context.Context, of executor.Scope) (executor.State, error)
	SetState(ctx context.Context, of executor.Scope, value json.RawMessage, version int64) (int64, error)
}

// Text is the text of the message's first text part.
func (r *Run) Text() string { return r.Message.Text() }

// IdempotencyKey is the same for every try at this message and different for
// everything else on the server: hand it to services with side effects.
func (r *Run) IdempotencyKey() string { return r.key }

// History is the conversation of the task before this message, oldest first. Each
// call reads the database.
func (r *Run) History(ctx context.Context) ([]Message, error) {
	if r.memory == nil {
		return nil, nil
	}
	stored, err := r.memory.History(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	history := make([]Message, len(stored))
	for i := range stored {
		history[i] = fromMessage(&stored[i])
	}
	return history, nil
}

// Checkpoint decodes the last checkpoint of earlier tries at this message into v, and reports whether there was one.
func (r *Run) Checkpoint(ctx context.Context, v any) (bool, error) {
	if r.memory == nil || r.Attempt < 2 {
		return false, nil
	}
	data, err := r.memory.Checkpoint(ctx)
	if err != nil {
		return false, fmt.Errorf("read the checkpoint: %w", err)
	}
	if data == nil {
		return false, nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return false, fmt.Errorf("decode the checkpoint: %w", err)
	}
	return true, nil
}

// Said is what the user or the agent has said: a message, or an artifact of the agent.
type Said struct {
	TaskID   string
	Role     Role
	Parts    []Part
	Metadata json.RawMessage

	MessageID  string // of a message
	ArtifactID string // of an artifact, which may have a name
	Name       string
	// State is that of the status that carried the agent's message, such as "input-required". "working" is progress.
	State string
	// Omitted is the size of a content that is left out because it is large: there are no Parts.
	Omitted int64
}

// Text is the text of its text parts, one after the other.
func (s *Said) Text() string {
	var b strings.Builder
	for i := range s.Parts {
		b.WriteString(s.Parts[i].Text)
	}
	return b.String()
}

// Reference is a task that the message refers to.
type Reference struct {
	TaskID    string
	ContextID string
	State     string // such as "completed"
	Said      []Said
}

// References are the tasks that the message refers to, at most 20, as far as they are its owner's and this agent's, with
// what was said in each: at most 100 entries of together 1 MiB. Each call reads the database.
func (r *Run) References(ctx context.Context) ([]Reference, error) {
	if r.memory == nil || len(r.Message.References) == 0 {
		return nil, nil
	}
	stored, err := r.memory.References(ctx, executor.Bounds{Count: 100, Bytes: 1 << 20})
	if err != nil {
		return nil, fmt.Errorf("read the referenced tasks: %w", err)
	}
	refs := make([]Reference, len(stored))
	for i := range stored {
		s := &stored[i]
		refs[i] = Reference{TaskID: s.TaskID, ContextID: s.ContextID, State: s.State.String(), Said: make([]Said, len(s.Said))}
		for j := range s.Said {
			refs[i].Said[j] = fromSaid(&s.Said[j])
		}
	}
	return refs, nil
}

// DialogueOptions says what Dialogue returns. The zero value means the task, 100 entries of together 1 MiB, no progress.
type DialogueOptions struct {
	Of       Scope // OfContext: with the owner's other tasks with this agent in the context
	Entries  int   // the newest are kept
	Bytes    int64 // of all entries together; an entry of more than half of it comes without its content
	Progress bool  // with the messages of Working
}

// Dialogue is what the user and the agent have said before this message, as a model needs it: messages and artifacts,
// oldest first. An artifact has its whole content and its place is where that begins. Other tasks of the context come first, if
// they have ended or wait for their client. Each call reads the database.
func (r *Run) Dialogue(ctx context.Context, o DialogueOptions) ([]Said, error) {
	if r.memory == nil {
		return nil, nil
	}
	stored, err := r.memory.Dialogue(ctx, cmp.Or(executor.Scope(o.Of), executor.OfTask), executor.Bounds{
		Count: cmp.Or(o.Entries, 100), Bytes: cmp.Or(o.Bytes, 1<<20), Progress: o.Progress,
	})
	if err != nil {
		return nil, fmt.Errorf("read the dialogue: %w", err)
	}
	said := make([]Said, len(stored))
	for i := range stored {
		said[i] = fromSaid(&stored[i])
	}
	return said, nil
}

// Scope is a task or its context: what a stored state belongs to, or a dialogue covers.
type Scope int

// The scopes. The tasks of one owner with one agent in a context share the state of the context.
const (
	OfTask    = Scope(executor.OfTask)
	OfContext = Scope(executor.OfContext)
)

// AnyVersion lets SetState replace a state whatever its version.
const AnyVersion = executor.AnyVersion

// ErrStateChanged says that another run has changed the state since it was read.
var ErrStateChanged = executor.ErrStateChanged

// State decodes the state that a run has stored with SetState into v, and returns its version. If nothing is stored, it
// leaves v alone and returns 0. A state outlives its run: that of the task until the task is deleted, that of the context
// until the last of its tasks is deleted. Each call reads the database.
func (r *Run) State(ctx context.Context, of Scope, v any) (version int64, err error) {
	if r.memory == nil {
		return 0, nil
	}
	s, err := r.memory.State(ctx, executor.Scope(of))
	if err != nil {
		return 0, fmt.Errorf("read the state: %w", err)
	}
	if s.Value == nil {
		return 0, nil
	}
	if err := json.Unmarshal(s.Value, v); err != nil {
		return 0, fmt.Errorf("decode the state: %w", err)
	}
	return s.Version, nil
}

// SetState stores v as JSON, and returns its version. It is committed when SetState returns. version is what State
// returned, or AnyVersion: runs of other tasks may change the state of their context at the same time. If another version
// is stored the error is ErrStateChanged; read it and try again. A nil v removes what is stored. The agent's
// limits.max_state bounds the size.
func (r *Run) SetState(ctx context.Context, of Scope, v any, version int64) (int64, error) {
	if r.memory == nil {
		return 0, errNoMemory
	}
	value, err := json.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("encode the state: %w", err)
	}
	return r.memory.SetState(ctx, executor.Scope(of), value, version)
}

// Emitter writes to the task. Its methods keep their order. They return when the event is on its way to the database;
// no client sees an event before it is stored. They fail when the run has ended: after a cancel, a lost lease, or one
// of AskInput, AskAuth, Ask, Complete, Fail, Reject, Reply, Wait and Call.
type Emitter interface {
	// Working reports that the agent is busy, with a message or with the zero Message.
	Working(ctx context.Context, m Message) error
	// Artifact emits a whole artifact. Without an ID it is a new artifact.
	Artifact(ctx context.Context, a Artifact) error
	// Chunk emits a piece of an artifact, which needs an ID.
	Chunk(ctx context.Context, c Chunk) error
	// Text adds text to the artifact of a name; "" stands for "text". The first text of a run replaces what an earlier try left
	// after its checkpoint.
	Text(ctx context.Context, name, text string) error
	// Checkpoint stores a JSON value for the next try, should there be one.
	Checkpoint(ctx context.Context, v any) error

	// AskInput ends the run with a question. The user's answer is the next turn.
	AskInput(ctx context.Context, question Message) error
	// AskAuth ends the run until the user has authenticated.
	AskAuth(ctx context.Context, m Message) error
	// Ask is AskInput or AskAuth with more choices, such as a resume URL.
	Ask(ctx context.Context, a Ask) error
	// Complete ends the task with a message. Returning nil completes without one.
	Complete(ctx context.Context, m Message) error
	// Fail ends the task as failed, with a message that the client reads.
	Fail(ctx context.Context, m Message) error
	// Reject ends the task as rejected: the agent will not do it.
	Reject(ctx context.Context, m Message) error
	// Reply answers with a bare message instead of a task. It must be the only event of the run.
	Reply(ctx context.Context, m Message) error
	// Wait ends the run. The task stays working, without a process, and the next turn begins when the time has come.
	Wait(ctx context.Context, w Wait) error
	// Call ends the run with calls of other agents. The task stays working, without a process, until each of them has
	// ended its task or asks something. Run.Input of the next turn has the results.
	Call(ctx context.Context, calls ...Call) error
}

// The reasons why a run's context ends, as context.Cause returns them.
var (
	ErrCanceled   = executor.ErrCanceled
	ErrLeaseLost  = executor.ErrLeaseLost
	ErrTimeout    = executor.ErrTimeout
	ErrInactivity = executor.ErrInactivity
	ErrShutdown   = executor.ErrShutdown
	// ErrOver is that of a run of Connect which the server has ended: by a timeout or a limit, or because its task was deleted.
	ErrOver = connect.ErrOver
)

// ErrReply is the error of Emitter.Reply where it is not allowed: after another event, in a later turn, or if the agent is
// not configured with direct_replies. The run goes on.
var ErrReply error = executor.ErrReply

// Failure returns an error whose text the client may read. The cause may be nil; it is logged and not shown.
func Failure(text string, cause error) error { return &executor.Failure{Msg: text, Cause: cause} }

// Retryable marks an error as temporary. The server retries the run after the given time, or after its own backoff if
// that is zero. When no attempts are left, the task fails.
func Retryable(err error, after time.Duration) error { return executor.Retryable(err, after) }

// Unavailable marks an error as that of a service that is away, before the run had any effect. The task waits without
// using up an attempt, for at most the agent's unreachable_for. The server starts fewer runs of the agent until one
// begins; after says when the first one may be due, or is zero. Emitting anything says that the run has begun.
func Unavailable(err error, after time.Duration) error {
	return &executor.Unavailable{Err: err, RetryAfter: after, Answered: true}
}

var (
	errNoArtifactID = errors.New("agent: a chunk needs the ID of its artifact")
	errNoMemory     = errors.New("agent: this run has no server that could store its state")
	errNoParts      = errors.New("agent: a message or artifact needs at least one part")
)
