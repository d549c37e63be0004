package task

import "encoding/json"

// Call is a message of an agent for another agent, which answers it in a task of its own.
type Call struct {
	ID        string // of the call, unique in its event
	Agent     string
	Task      ID // that answers it: a new one, or with Answers one that an earlier call has created
	Answers   bool
	ContextID string // of a new task; "": that of the caller
	Message   *Message
	Metadata  json.RawMessage // of the request
	RequestID ID              // with Answers; makes the message safe to retry
	Relay     bool            // the caller shows the progress of the called task
}

// Result is what came of a call.
type Result struct {
	ID        string // of the call
	Agent     string
	TaskID    string // public id; "" if the call was refused
	State     State  // terminal or parked
	Message   *Message
	Artifacts []Artifact
	Omitted   int64  // bytes of the content that was left out because it is large
	Error     string // why the call was refused, or the content cannot be read
}
