package wire

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// MaxRetryAfter bounds the delay that an agent may ask for. A wrong unit must not park a task for a year.
const MaxRetryAfter = 24 * time.Hour

// Action is what an event asks of the run.
type Action uint8

// The actions. Several types of event share one: ask, auth, complete, fail and
// reject are all a Status.
const (
	Status Action = iota + 1
	Artifact
	Text // an Artifact; the Player chooses its id if the agent did not
	Reply
	Checkpoint
	Record
	Retry
	Wait
	Call
	Store
)

// Event is one decoded event.
type Event struct {
	Action     Action
	State      task.State       // Status
	Message    *task.Message    // Status (may be nil) and Reply
	Metadata   json.RawMessage  // Status: of the event
	Error      *Error           // Status: what the agent's code has raised, for operators; or nil
	Resume     *executor.Resume // Status of ask and auth; may be nil
	Chunk      executor.Chunk   // Artifact, Text
	Checkpoint json.RawMessage  // Checkpoint, Record
	Wait       executor.Wait    // Wait
	Calls      []executor.Call  // Call
	Reason     string           // Retry
	After      time.Duration    // Retry; zero leaves the delay to the server
	Stored     Stored           // Store
}

// Stored is a state event.
type Stored struct {
	Scope   executor.Scope
	Value   json.RawMessage // null removes what is stored
	Version int64           // executor.AnyVersion if the agent did not say
}

// Ends reports whether the event is the last one of its run.
func (e *Event) Ends() bool {
	return e.Action == Reply || e.Action == Retry || e.Action == Wait || e.Action == Call || e.Action == Status && e.State.Settled()
}

// eventDocument is an event in JSON. Each type has some of the members.
type eventDocument struct {
	Type string `json:"type"`

	State         *string           `json:"state,omitzero"`
	Message       *speech           `json:"message,omitzero"`
	Metadata      jsontext.Value    `json:"metadata,omitzero"`
	Error         *Error            `json:"error,omitzero"`
	Resume        *resume           `json:"resume,omitzero"`
	Artifact      *ArtifactDocument `json:"artifact,omitzero"`
	Text          *string           `json:"text,omitzero"`
	Name          string            `json:"name,omitzero"`
	ArtifactID    string            `json:"artifactId,omitzero"`
	Append        *bool             `json:"append,omitzero"`
	Last          bool              `json:"last,omitzero"`
	Data          jsontext.Value    `json:"data,omitzero"`
	Scope         *string           `json:"scope,omitzero"`
	Version       *int64            `json:"version,omitzero"`
	Until         *string           `json:"until,omitzero"`
	For           *float64          `json:"for,omitzero"`
	Interruptible bool              `json:"interruptible,omitzero"`
	Calls         []call            `json:"calls,omitzero"`
	Kind          string            `json:"kind,omitzero"`
	Nth           int               `json:"nth,omitzero"`
	Emitted       map[string]int64  `json:"emitted,omitzero"`
	Open          []string          `json:"open,omitzero"`
	Tries         int               `json:"tries,omitzero"`
	Took          float64           `json:"took,omitzero"`
	Reason        string            `json:"reason,omitzero"`
	After         float64           `json:"after,omitzero"`
}

// eventType has the members of a type of event besides type, and what its events mean.
type eventType struct {
	members string
	read    func(*eventDocument) (*Event, *Malformed)
}

var eventTypes = map[string]eventType{
	"text":       {"text name artifactId append last", readText},
	"artifact":   {"artifact append last metadata", readArtifact},
	"status":     {"state message metadata", readStatus},
	"ask":        {"message metadata resume", ends(task.StateInputRequired, true)},
	"auth":       {"message metadata resume", ends(task.StateAuthRequired, false)},
	"complete":   {"message metadata", ends(task.StateCompleted, false)},
	"fail":       {"message metadata error", ends(task.StateFailed, true)},
	"reject":     {"message metadata", ends(task.StateRejected, false)},
	"reply":      {"message", readReply},
	"checkpoint": {"data", readCheckpoint},
	"record":     {"kind name nth data error emitted open tries took", readRecord},
	"retry":      {"reason after", readRetry},
	"wait":       {"until for interruptible", readWait},
	"call":       {"calls", readCall},
	"state":      {"scope data version", readState},
}

const knownTypes = "text, artifact, status, ask, auth, complete, fail, reject, reply, checkpoint, record, state, retry, wait, call"

// Decode reads one event. The error is a *Malformed without a line; only the caller knows the line.
func Decode(raw []byte) (*Event, *Malformed) {
	if bad := tooDeep(raw); bad != nil {
		return nil, bad
	}
	return decode(repaired(raw))
}

// repaired replaces halves of UTF-16 surrogate pairs: an agent may cut a text in the middle of a character.
func repaired(raw []byte) []byte {
	raw, _ = rawjson.Repair(raw)
	return raw
}

// skipped is a value that is not read.
type skipped struct{}

func (*skipped) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return dec.SkipValue() }

func decode(raw []byte) (*Event, *Malformed) {
	var head struct {
		Type    *string            `json:"type"`
		Members map[string]skipped `json:",embed"`
	}
	if err := jsonv2.Unmarshal(raw, &head); err != nil {
		return nil, explain(err)
	}
	if head.Type == nil {
		return nil, malformed("type", "is missing; it is one of %s", knownTypes)
	}
	return decodeAs(*head.Type, head.Members, raw)
}

// decodeAs reads an event of a type, which has these members besides its type.
func decodeAs(name string, members map[string]skipped, raw []byte) (*Event, *Malformed) {
	of, ok := eventTypes[name]
	if !ok {
		return nil, malformed("type", "must be one of %s", knownTypes)
	}
	known := strings.Fields(of.members)
	for _, member := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(known, member) {
			return nil, malformed(member, "is not a known member")
		}
	}
	var in eventDocument
	if bad := unmarshal(raw, &in); bad != nil {
		return nil, bad
	}
	return of.read(&in)
}

// unmarshal refuses members that are not known.
func unmarshal(raw []byte, into any) *Malformed {
	if err := jsonv2.Unmarshal(raw, into, jsonv2.RejectUnknownMembers(true)); err != nil {
		return explain(err)
	}
	return nil
}

func readText(in *eventDocument) (*Event, *Malformed) {
	if in.Text == nil {
		return nil, malformed("text", "is missing")
	}
	return &Event{Action: Text, Chunk: executor.Chunk{
		Artifact: task.Artifact{ID: in.ArtifactID, Name: in.Name, Parts: []task.Part{task.Text(*in.Text)}},
		Append:   in.Append != nil && *in.Append, Grows: in.Append == nil, Last: in.Last,
	}}, nil
}

func readArtifact(in *eventDocument) (*Event, *Malformed) {
	if in.Artifact == nil {
		return nil, malformed("artifact", "is missing")
	}
	if bad := check(in.Artifact.Parts, &in.Artifact.Metadata, in.Artifact.Extensions); bad != nil {
		return nil, bad.inside("artifact")
	}
	a, bad := in.Artifact.task()
	if bad != nil {
		return nil, bad.inside("artifact")
	}
	appends := in.Append != nil && *in.Append
	if appends && a.ID == "" {
		return nil, malformed("artifact.artifactId", "is missing; append needs the id of the artifact to continue")
	}
	if bad := object(&in.Metadata); bad != nil {
		return nil, bad.inside("metadata")
	}
	return &Event{Action: Artifact, Chunk: executor.Chunk{
		Artifact: *a, Append: appends, Last: in.Last, Metadata: json.RawMessage(in.Metadata),
	}}, nil
}

// agentStates are the states that an agent may choose. Only the server sets submitted and canceled.
var agentStates = map[string]task.State{
	"working":        task.StateWorking,
	"input-required": task.StateInputRequired,
	"auth-required":  task.StateAuthRequired,
	"completed":      task.StateCompleted,
	"failed":         task.StateFailed,
	"rejected":       task.StateRejected,
}

func readStatus(in *eventDocument) (*Event, *Malformed) {
	state := task.StateWorking
	if in.State != nil {
		var ok bool
		if state, ok = agentStates[*in.State]; !ok {
			return nil, malformed("state",
				"must be one of working, input-required, auth-required, completed, failed, rejected")
		}
	}
	return ends(state, false)(in)
}

// ends returns the reader of events that have a state, and may need a message.
func ends(state task.State, needsMessage bool) func(*eventDocument) (*Event, *Malformed) {
	return func(in *eventDocument) (*Event, *Malformed) {
		msg, bad := in.Message.said(needsMessage)
		if bad != nil {
			return nil, bad
		}
		if bad := object(&in.Metadata); bad != nil {
			return nil, bad.inside("metadata")
		}
		event := &Event{Action: Status, State: state, Message: msg, Metadata: json.RawMessage(in.Metadata), Error: in.Error}
		if in.Resume != nil {
			if event.Resume, bad = in.Resume.executor(); bad != nil {
				return nil, bad.inside("resume")
			}
		}
		return event, nil
	}
}

// Error is what an agent's code has raised, for operators.
type Error struct {
	Type    string `json:"type,omitempty"`  // such as the class of an exception
	Place   string `json:"place,omitempty"` // file and line
	Message string `json:"message,omitempty"`
	Trace   string `json:"trace,omitempty"`
}

// Cause returns the Error with a text; nil for none.
func Cause(text string) *Error {
	if text == "" {
		return nil
	}
	return &Error{Message: text}
}

// text is the error as operators read it. Its first line begins with type and place, by which failures are grouped.
func (e *Error) text() string {
	if e == nil {
		return ""
	}
	text := e.Message
	switch {
	case e.Type != "" && e.Place != "":
		text = e.Type + " at " + e.Place + ": " + text
	case e.Type != "":
		text = e.Type + ": " + text
	}
	if e.Trace != "" {
		text += "\n" + strings.TrimRight(e.Trace, "\n")
	}
	return text
}

func readReply(in *eventDocument) (*Event, *Malformed) {
	msg, bad := in.Message.said(true)
	return &Event{Action: Reply, Message: msg}, bad
}

func readCheckpoint(in *eventDocument) (*Event, *Malformed) {
	if in.Data == nil {
		return nil, malformed("data", "is missing")
	}
	return &Event{Action: Checkpoint, Checkpoint: compact(in.Data)}, nil
}

func readState(in *eventDocument) (*Event, *Malformed) {
	if in.Data == nil {
		return nil, malformed("data", "is missing; null removes what is stored")
	}
	stored := Stored{Scope: executor.OfTask, Value: compact(in.Data), Version: executor.AnyVersion}
	if in.Scope != nil {
		switch *in.Scope {
		case executor.OfTask.String():
		case executor.OfContext.String():
			stored.Scope = executor.OfContext
		default:
			return nil, malformed("scope", "must be one of task, context")
		}
	}
	if in.Version != nil {
		if *in.Version < 0 {
			return nil, malformed("version", "must not be negative; 0 says that nothing is stored")
		}
		stored.Version = *in.Version
	}
	return &Event{Action: Store, Stored: stored}, nil
}

func readRetry(in *eventDocument) (*Event, *Malformed) {
	if in.After < 0 || in.After > MaxRetryAfter.Seconds() {
		return nil, malformed("after", "must be between 0 and %.0f seconds", MaxRetryAfter.Seconds())
	}
	return &Event{Action: Retry, Reason: in.Reason, After: time.Duration(in.After * float64(time.Second))}, nil
}
