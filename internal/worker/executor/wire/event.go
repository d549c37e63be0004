package wire

import (
	"encoding/json"
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
	Checkpoint json.RawMessage  // Checkpoint
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

// decoders has a decoder for each type of event.
var decoders = map[string]func([]byte) (*Event, *Malformed){
	"text":       decodeText,
	"artifact":   decodeArtifact,
	"status":     decodeStatus,
	"ask":        asks(task.StateInputRequired, true),
	"auth":       asks(task.StateAuthRequired, false),
	"complete":   says(task.StateCompleted),
	"fail":       decodeFail,
	"reject":     says(task.StateRejected),
	"reply":      decodeReply,
	"checkpoint": decodeCheckpoint,
	"retry":      decodeRetry,
	"wait":       decodeWait,
	"call":       decodeCall,
	"state":      decodeState,
}

const knownTypes = "text, artifact, status, ask, auth, complete, fail, reject, reply, checkpoint, state, retry, wait, call"

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

func decode(raw []byte) (*Event, *Malformed) {
	var head struct {
		Type *string `json:"type"`
	}
	if err := jsonv2.Unmarshal(raw, &head); err != nil {
		return nil, explain(err)
	}
	if head.Type == nil {
		return nil, malformed("type", "is missing; it is one of %s", knownTypes)
	}
	decodeType, ok := decoders[*head.Type]
	if !ok {
		return nil, malformed("type", "must be one of %s", knownTypes)
	}
	return decodeType(raw)
}

// unmarshal reads the members of one type of event and refuses any other.
func unmarshal(raw []byte, into any) *Malformed {
	if err := jsonv2.Unmarshal(raw, into, jsonv2.RejectUnknownMembers(true)); err != nil {
		return explain(err)
	}
	return nil
}

func decodeText(raw []byte) (*Event, *Malformed) {
	var in struct {
		Type       string  `json:"type"`
		Text       *string `json:"text"`
		Name       string  `json:"name"`
		ArtifactID string  `json:"artifactId"`
		Append     *bool   `json:"append"`
		Last       bool    `json:"last"`
	}
	if bad := unmarshal(raw, &in); bad != nil {
		return nil, bad
	}
	if in.Text == nil {
		return nil, malformed("text", "is missing")
	}
	event := &Event{Action: Text, Chunk: executor.Chunk{
		Artifact: task.Artifact{ID: in.ArtifactID, Name: in.Name, Parts: []task.Part{task.Text(*in.Text)}},
		Last:     in.Last,
	}}
	if event.Chunk.Grows = in.Append == nil; in.Append != nil {
		event.Chunk.Append = *in.Append
	}
	return event, nil
}

func decodeArtifact(raw []byte) (*Event, *Malformed) {
	var in struct {
		Type     string         `json:"type"`
		Artifact *artifact      `json:"artifact"`
		Append   bool           `json:"append"`
		Last     bool           `json:"last"`
		Metadata jsontext.Value `json:"metadata"`
	}
	if bad := unmarshal(raw, &in); bad != nil {
		return nil, bad
	}
	if in.Artifact == nil {
		return nil, malformed("artifact", "is missing")
	}
	a, bad := in.Artifact.task()
	if bad != nil {
		return nil, bad.inside("artifact")
	}
	if in.Append && a.ID == "" {
		return nil, malformed("artifact.artifactId", "is missing; append needs the id of the artifact to continue")
	}
	metadata, bad := object(in.Metadata)
	if bad != nil {
		return nil, bad.inside("metadata")
	}
	return &Event{Action: Artifact, Chunk: executor.Chunk{
		Artifact: a, Append: in.Append, Last: in.Last, Metadata: metadata,
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

func decodeStatus(raw []byte) (*Event, *Malformed) {
	var in struct {
		Type     string         `json:"type"`
		State    *string        `json:"state"`
		Message  *speech        `json:"message"`
		Metadata jsontext.Value `json:"metadata"`
	}
	if bad := unmarshal(raw, &in); bad != nil {
		return nil, bad
	}
	state := task.StateWorking
	if in.State != nil {
		var ok bool
		if state, ok = agentStates[*in.State]; !ok {
			return nil, malformed("state",
				"must be one of working, input-required, auth-required, completed, failed, rejected")
		}
	}
	msg, bad := in.Message.task()
	if bad != nil {
		return nil, bad.inside("message")
	}
	metadata, bad := object(in.Metadata)
	if bad != nil {
		return nil, bad.inside("metadata")
	}
	return &Event{Action: Status, State: state, Message: msg, Metadata: metadata}, nil
}

// says returns the decoder of events that have a state, and may have a message.
func says(state task.State) func([]byte) (*Event, *Malformed) {
	return func(raw []byte) (*Event, *Malformed) {
		var in struct {
			Type     string         `json:"type"`
			Message  *speech        `json:"message"`
			Metadata jsontext.Value `json:"metadata"`
		}
		if bad := unmarshal(raw, &in); bad != nil {
			return nil, bad
		}
		return ending(state, false, in.Message, in.Metadata)
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

func decodeFail(raw []byte) (*Event, *Malformed) {
	var in struct {
		Type     string         `json:"type"`
		Message  *speech        `json:"message"`
		Metadata jsontext.Value `json:"metadata"`
		Error    *Error         `json:"error"`
	}
	if bad := unmarshal(raw, &in); bad != nil {
		return nil, bad
	}
	event, bad := ending(task.StateFailed, true, in.Message, in.Metadata)
	if bad == nil {
		event.Error = in.Error
	}
	return event, bad
}

// asks returns the decoder of events that park the task.
func asks(state task.State, needsMessage bool) func([]byte) (*Event, *Malformed) {
	return func(raw []byte) (*Event, *Malformed) {
		var in struct {
			Type     string         `json:"type"`
			Message  *speech        `json:"message"`
			Metadata jsontext.Value `json:"metadata"`
			Resume   *resume        `json:"resume"`
		}
		if bad := unmarshal(raw, &in); bad != nil {
			return nil, bad
		}
		event, bad := ending(state, needsMessage, in.Message, in.Metadata)
		if bad != nil || in.Resume == nil {
			return event, bad
		}
		if event.Resume, bad = in.Resume.executor(); bad != nil {
			return nil, bad.inside("resume")
		}
		return event, nil
	}
}

// ending returns the event that ends a run in a state.
func ending(state task.State, needsMessage bool, message *speech, data jsontext.Value) (*Event, *Malformed) {
	msg, bad := message.said(needsMessage)
	if bad != nil {
		return nil, bad
	}
	metadata, bad := object(data)
	if bad != nil {
		return nil, bad.inside("metadata")
	}
	return &Event{Action: Status, State: state, Message: msg, Metadata: metadata}, nil
}

func decodeReply(raw []byte) (*Event, *Malformed) {
	var in struct {
		Type    string  `json:"type"`
		Message *speech `json:"message"`
	}
	if bad := unmarshal(raw, &in); bad != nil {
		return nil, bad
	}
	msg, bad := in.Message.said(true)
	if bad != nil {
		return nil, bad
	}
	return &Event{Action: Reply, Message: msg}, nil
}

// said decodes the member message of an event.
func (s *speech) said(needed bool) (*task.Message, *Malformed) {
	if s == nil && needed {
		return nil, malformed("message", "is missing")
	}
	msg, bad := s.task()
	if bad != nil {
		return nil, bad.inside("message")
	}
	return msg, nil
}

func decodeCheckpoint(raw []byte) (*Event, *Malformed) {
	var in struct {
		Type string         `json:"type"`
		Data jsontext.Value `json:"data"`
	}
	if bad := unmarshal(raw, &in); bad != nil {
		return nil, bad
	}
	if in.Data == nil {
		return nil, malformed("data", "is missing")
	}
	return &Event{Action: Checkpoint, Checkpoint: compact(in.Data)}, nil
}

func decodeState(raw []byte) (*Event, *Malformed) {
	var in struct {
		Type    string         `json:"type"`
		Scope   *string        `json:"scope"`
		Data    jsontext.Value `json:"data"`
		Version *int64         `json:"version"`
	}
	if bad := unmarshal(raw, &in); bad != nil {
		return nil, bad
	}
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

func decodeRetry(raw []byte) (*Event, *Malformed) {
	var in struct {
		Type   string  `json:"type"`
		Reason string  `json:"reason"`
		After  float64 `json:"after"`
	}
	if bad := unmarshal(raw, &in); bad != nil {
		return nil, bad
	}
	if in.After < 0 || in.After > MaxRetryAfter.Seconds() {
		return nil, malformed("after", "must be between 0 and %.0f seconds", MaxRetryAfter.Seconds())
	}
	return &Event{
		Action: Retry, Reason: in.Reason,
		After: time.Duration(in.After * float64(time.Second)),
	}, nil
}
