package engine

import (
	"encoding/json"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

// Op is a protocol operation, independent of its name in a version.
type Op uint8

// The operations of A2A. Each version has some of them.
const (
	OpNone Op = iota
	OpSend
	OpStream
	OpGet
	OpList
	OpCancel
	OpSubscribe
	OpPushSet
	OpPushGet
	OpPushList
	OpPushDelete
	OpExtendedCard
)

var opNames = [...]string{
	OpNone: "none", OpSend: "send", OpStream: "stream", OpGet: "get", OpList: "list", OpCancel: "cancel",
	OpSubscribe: "subscribe", OpPushSet: "push_set", OpPushGet: "push_get", OpPushList: "push_list",
	OpPushDelete: "push_delete", OpExtendedCard: "extended_card",
}

// String returns the name used in logs and metrics.
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return opNames[OpNone]
}

// Streams reports whether the operation responds with a stream.
func (o Op) Streams() bool { return o == OpStream || o == OpSubscribe }

// AllHistory asks for the whole history.
const AllHistory = -1

// SendRequest is a message from a client, for a new task or for task TaskID.
type SendRequest struct {
	Dialect        string // version string of the codec, becomes the new task's origin
	TaskID         string // public id; empty for a new task
	MayCreate      bool   // an unknown TaskID becomes the id of a new task (0.1)
	MayReopen      bool   // a new task may take over the client-chosen id of an ended task of this Dialect
	ContextID      string // empty: the server generates one, or uses the task's
	ContextMember  string // the version's name of ContextID, for error messages
	Message        *task.Message
	PartsMember    string          // the version's name of the message's parts, for error messages
	Metadata       json.RawMessage // becomes the metadata of a new task
	Wait           bool            // respond when the task has settled, not when the message is stored
	WaitUnsaid     bool            // Wait is the version's default, not set by the client
	OutputModes    []string        // media types that the client can read; none: any
	Extensions     []string        // URIs of the extensions in force
	Trace          tracing.Context // of the client; the zero value: none
	Forwarded      task.Forwarded
	IdempotencyKey string
	// Answers says that the message must find its task waiting for its client, unless it is a repeated request.
	Answers bool
	Push    *PushSetting // webhook to set with the message; nil for none
}

// PushSetting is a webhook's configuration in a request.
type PushSetting struct {
	task.PushConfig
	Member  string // its path in the request, for error messages; empty: the whole request
	Further bool   // without an id, add a configuration instead of setting the default one
}

// PushRequest sets, gets, lists or deletes webhooks of a task.
type PushRequest struct {
	Dialect  string // version string of the codec, becomes the configuration's
	TaskID   string
	ConfigID string       // to get or to delete
	Set      *PushSetting // to set; nil deletes the default configuration (0.1)
	MayLack  bool         // get: a missing configuration is not an error (0.1)

	// Of a list:
	PageSize  int    // 0: all
	PageToken string // from the previous page
}

// GetRequest names a task.
type GetRequest struct {
	TaskID string
	// WithArtifacts says whether the response shows artifacts. If not, they are not read.
	WithArtifacts bool
}

// ListRequest asks for a page of the caller's tasks, newest status first.
type ListRequest struct {
	ContextID     string     // empty: any
	State         task.State // StateUnspecified: any
	Since         time.Time  // only tasks with a status at or after this time; zero: any
	PageSize      int        // 1 to 100
	PageToken     string     // from the previous page, with the same filter
	WithHistory   bool       // whether the response shows them; if not, they are not read
	WithArtifacts bool
	// ExactTotal counts every matching task instead of stopping at a bound.
	ExactTotal bool
}

// Page is one page of a caller's tasks.
type Page struct {
	Tasks     []*task.Task
	NextToken string // empty on the last page
	Size      int    // maximum number of tasks on a page
	Total     int    // number of matching tasks, over all pages
}

// CancelRequest names the task to cancel.
type CancelRequest struct {
	TaskID   string
	Metadata json.RawMessage
}

// SubscribeRequest joins the stream of a task. With Resume the stream starts after the stream id
// After, otherwise with a snapshot.
type SubscribeRequest struct {
	TaskID string
	Resume bool
	After  task.Position
	// Live follows the task to its end. An ended task is refused unless the client resumes. The
	// stream of a parked task stays open.
	Live bool
}
