package client

import (
	"encoding/json"
	"errors"
	"fmt"
)

// The types of A2A 0.3, with the members that the command line shows. Each reply and event also keeps its raw JSON with
// all members.

// Message is one turn of the conversation.
type Message struct {
	Kind      string `json:"kind"`
	MessageID string `json:"messageId"`
	Role      string `json:"role"`
	Parts     []Part `json:"parts"`
	TaskID    string `json:"taskId,omitempty"`
	ContextID string `json:"contextId,omitempty"`
}

// Part is a piece of content; Kind is text, file or data.
type Part struct {
	Kind string          `json:"kind"`
	Text string          `json:"text,omitempty"`
	File *File           `json:"file,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// File is the content of a file part, in base64 or by reference.
type File struct {
	Name     string `json:"name,omitempty"`
	MimeType string `json:"mimeType,omitempty"`
	Bytes    string `json:"bytes,omitempty"`
	URI      string `json:"uri,omitempty"`
}

// Status is the state of a task, with the agent's message.
type Status struct {
	State     string   `json:"state"`
	Message   *Message `json:"message,omitempty"`
	Timestamp string   `json:"timestamp,omitempty"`
}

// Artifact is an output of a task, or a chunk of one.
type Artifact struct {
	ArtifactID  string `json:"artifactId"`
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
	Parts       []Part `json:"parts"`
}

// Task is a task as the server shows it.
type Task struct {
	ID        string     `json:"id"`
	ContextID string     `json:"contextId"`
	Status    Status     `json:"status"`
	Artifacts []Artifact `json:"artifacts,omitempty"`
	History   []Message  `json:"history,omitempty"`
}

// StatusUpdate reports a new state.
type StatusUpdate struct {
	TaskID    string `json:"taskId"`
	ContextID string `json:"contextId"`
	Status    Status `json:"status"`
	Final     bool   `json:"final"`
}

// ArtifactUpdate carries an artifact or a chunk of one.
type ArtifactUpdate struct {
	TaskID    string   `json:"taskId"`
	ContextID string   `json:"contextId"`
	Artifact  Artifact `json:"artifact"`
	Append    bool     `json:"append"`
	LastChunk bool     `json:"lastChunk"`
}

// Event is a result from the server: the answer to a send, or one event of a stream. Exactly one of the pointers is
// set.
type Event struct {
	ID  string          // in the stream; empty if the server sends none
	Raw json.RawMessage // the unchanged result

	Task     *Task
	Message  *Message
	Status   *StatusUpdate
	Artifact *ArtifactUpdate
}

// TaskID returns the id of the event's task, or "" for a bare message.
func (e *Event) TaskID() string {
	switch {
	case e.Task != nil:
		return e.Task.ID
	case e.Status != nil:
		return e.Status.TaskID
	case e.Artifact != nil:
		return e.Artifact.TaskID
	}
	return ""
}

// Final reports whether this is the last event of its stream.
func (e *Event) Final() bool {
	return e.Message != nil || (e.Status != nil && e.Status.Final)
}

// State returns the task's state in the event, or "".
func (e *Event) State() string {
	switch {
	case e.Task != nil:
		return e.Task.Status.State
	case e.Status != nil:
		return e.Status.Status.State
	}
	return ""
}

// Settled reports whether a task in this state is parked or has ended.
func Settled(state string) bool {
	switch state {
	case "submitted", "working", "unknown", "":
		return false
	}
	return true
}

var errResult = errors.New("the server's answer is not a task, a message or an event of A2A 0.3")

func parseEvent(id string, raw json.RawMessage) (*Event, error) {
	var tag struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &tag); err != nil {
		return nil, errResult
	}
	e := &Event{ID: id, Raw: raw}
	var target any
	switch tag.Kind {
	case "task":
		e.Task = new(Task)
		target = e.Task
	case "message":
		e.Message = new(Message)
		target = e.Message
	case "status-update":
		e.Status = new(StatusUpdate)
		target = e.Status
	case "artifact-update":
		e.Artifact = new(ArtifactUpdate)
		target = e.Artifact
	default:
		return nil, errResult
	}
	if err := json.Unmarshal(raw, target); err != nil {
		return nil, fmt.Errorf("read the server's %s: %w", tag.Kind, err)
	}
	return e, nil
}

// Card is the agent card of the versions before 1.0.
type Card struct {
	Name            string `json:"name"`
	Description     string `json:"description"`
	URL             string `json:"url"`
	Version         string `json:"version"`
	ProtocolVersion string `json:"protocolVersion"`
	Provider        *struct {
		Organization string `json:"organization"`
		URL          string `json:"url"`
	} `json:"provider"`
	Capabilities struct {
		Streaming         bool `json:"streaming"`
		PushNotifications bool `json:"pushNotifications"`
	} `json:"capabilities"`
	DefaultInputModes  []string `json:"defaultInputModes"`
	DefaultOutputModes []string `json:"defaultOutputModes"`
	Skills             []struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Examples    []string `json:"examples"`
	} `json:"skills"`

	Raw json.RawMessage `json:"-"`
}
