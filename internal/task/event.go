package task

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// EventKind is the kind of a row of a log. The numbers are stored.
type EventKind uint8

// The kinds of event.
const (
	// EventMessage is a user's message.
	EventMessage EventKind = iota + 1
	// EventStatus is a change of state, or a further message in the same state.
	EventStatus
	// EventArtifact is a chunk of an artifact.
	EventArtifact
	// EventRun records a failed attempt, a wait, a checkpoint or a resume. No client sees it.
	EventRun
)

// EventKinds are all kinds, in the order of their numbers.
var EventKinds = []EventKind{EventMessage, EventStatus, EventArtifact, EventRun}

// String returns the name used in logs and in the operators' views.
func (k EventKind) String() string {
	if k < EventMessage || k > EventRun {
		return "unknown"
	}
	return [...]string{"message", "status", "artifact", "run"}[k-EventMessage]
}

// MarshalText implements encoding.TextMarshaler.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *EventKind) UnmarshalText(text []byte) error {
	i := slices.IndexFunc(EventKinds, func(k EventKind) bool { return k.String() == string(text) })
	if i < 0 {
		return fmt.Errorf("%q is not a kind of event", text)
	}
	*k = EventKinds[i]
	return nil
}

// Event is one row of a task's log. Once stored it never changes, and it may be
// shared between goroutines.
type Event struct {
	Task    ID
	Seq     Seq
	Kind    EventKind
	Attempt Attempt   // attempt that wrote it; 0 for a client's write
	At      time.Time // time of the commit, by the database's clock

	State    State           // EventStatus
	Direct   bool            // EventStatus: the agent answered with a bare Message, no task intended
	Cause    string          // EventStatus: why the run failed, for operators; clients never see it
	Message  *Message        // EventMessage; EventStatus when the status carries one
	Artifact *Artifact       // EventArtifact
	Append   bool            // EventArtifact: append the parts to the existing ones
	Last     bool            // EventArtifact: the artifact is complete
	Metadata json.RawMessage // of the event itself
	Run      *RunNote        // EventRun
	Request  *Request        // EventMessage: the request that carried it; may be nil

	// Artifacts are the ids of all artifacts of the task so far, in the order of their first
	// appearance, on an EventStatus that parks it. Its next run reads them; clients never see them.
	// nil: not stated.
	Artifacts []string

	// Resumable is how long the resume URL of the turn is valid after the commit, on an EventStatus that parks the task. 0: it
	// is not. It is not part of the log.
	Resumable time.Duration
}

// Streamed reports whether clients see the event on a stream.
func (e *Event) Streamed() bool { return e.Kind == EventStatus || e.Kind == EventArtifact }

// Memory returns about how many bytes of memory the event takes.
func (e *Event) Memory() int64 {
	n := int64(overhead+len(e.Cause)+len(e.Metadata)) + lengths(e.Artifacts)
	if e.Message != nil {
		n += e.Message.Size()
	}
	if e.Artifact != nil {
		n += e.Artifact.Memory()
	}
	if r := e.Run; r != nil {
		n += int64(len(r.Outcome) + len(r.Error) + len(r.Worker) + len(r.Checkpoint) + len(r.Traceparent) + len(r.Sealed))
		for i := range r.Calls {
			c := &r.Calls[i]
			n += overhead + int64(len(c.ID)+len(c.Agent)+len(c.ContextID)+len(c.Metadata))
			if c.Message != nil {
				n += c.Message.Size()
			}
		}
	}
	if q := e.Request; q != nil {
		n += int64(len(q.Metadata)+len(q.Traceparent)+len(q.Tracestate)) + lengths(q.OutputModes) + lengths(q.Extensions) + lengths(q.Scopes)
	}
	return n
}

// Waits reports whether the event ends a run in a wait: for a time or for the results of calls.
func (e *Event) Waits() bool {
	return e.Kind == EventRun && e.Run != nil && (e.Run.Outcome == RunWaits || e.Run.Outcome == RunCalls)
}

// Keeps reports whether the event keeps what its attempt wrote before it: the next try replaces only what came after.
func (e *Event) Keeps() bool {
	return e.Kind == EventRun && e.Run != nil && (e.Run.Outcome == RunCheckpoint || e.Run.Outcome == RunRecord)
}

// Outcomes of an attempt that a RunNote records.
const (
	RunLost       = "lost"       // the worker stopped renewing its lease
	RunRetry      = "retry"      // it failed with a retryable error
	RunAway       = "away"       // the agent did not begin it: it was away or too busy
	RunReturned   = "returned"   // the worker shut down and gave it back
	RunCheckpoint = "checkpoint" // it continues; Checkpoint holds its progress
	RunRecord     = "record"     // it continues; Checkpoint holds the record of a durable run, for this turn and all later ones
	RunWaits      = "waits"      // it ended; the next turn begins at the time Until, or after For
	RunCalls      = "calls"      // it ended; the next turn begins with the results of Calls
	RunResume     = "resume"     // not an attempt: a request by resume URL, which begins the next turn
	RunCancel     = "cancel"     // it continues; a client has asked to cancel the task, with metadata
)

// RunNote is the content of an EventRun.
type RunNote struct {
	Outcome    string
	Error      string
	Worker     string
	Checkpoint json.RawMessage

	Until         time.Time     // RunWaits; zero before the commit of a wait that For describes
	For           time.Duration // RunWaits, before its commit
	Interruptible bool          // RunWaits: a message of the client begins the next turn earlier

	Calls       []Call // RunCalls
	Traceparent string // RunCalls: W3C Trace Context of the run, or ""

	Sealed []byte // RunResume: the Resumed, as only the store reads it
}

// Recorded is what the server and its operators understand of a record.
type Recorded struct {
	Kind  string          `json:"kind"`
	Name  string          `json:"name"`
	Nth   int             `json:"nth"`
	Data  json.RawMessage `json:"data"`
	Open  []string        `json:"open"` // artifacts that it does not keep: steps that were under way have written them
	Error *struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

// Recorded returns the record in a note; nil: the note has none.
func (r *RunNote) Recorded() *Recorded {
	var out Recorded
	if r.Outcome != RunRecord || json.Unmarshal(r.Checkpoint, &out) != nil {
		return nil
	}
	return &out
}

// String names the step and says what came of it.
func (r *Recorded) String() string {
	name := r.Name
	if r.Kind != r.Name {
		name = r.Kind + " " + name
	}
	if r.Nth > 1 {
		name += fmt.Sprint(" ", r.Nth)
	}
	if r.Error != nil {
		return name + " raised " + cmp.Or(r.Error.Message, r.Error.Type, "an error")
	}
	return name + ": " + string(r.Data)
}

// Resumed is a request by the resume URL of a task. It may have secrets: it is stored sealed, and only the agent reads it.
type Resumed struct {
	Method      string // POST or GET
	Query       string // as it came, without the question mark
	ContentType string
	Body        []byte
}
