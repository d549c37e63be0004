package engine

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Op is a protocol operation, whatever a version calls it.
type Op uint8

// The operations of A2A. No version has all of them.
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

// String is the name used in logs and metrics.
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return opNames[OpNone]
}

// Streams reports whether the answer of the operation is a stream.
func (o Op) Streams() bool { return o == OpStream || o == OpSubscribe }

// Principal is who calls. Tasks belong to their tenant and subject. The zero value is
// everybody, where nothing is asked.
type Principal struct {
	Tenant  string
	Subject string
	Scopes  []string
	// Method is the kind of credential that was shown: api_key, basic, jwt or mtls; "" for none.
	Method string
	// Credential names it for the record: the scheme, and the id that it has there. It is no secret.
	Credential string
}

// Has reports whether a scope was granted. The empty one is everybody's.
func (p *Principal) Has(scope string) bool {
	return scope == "" || slices.Contains(p.Scopes, scope)
}

// Caller is what the binding adds to every request.
type Caller struct {
	Principal Principal
	Agent     string // the agent whose endpoint was called
	Address   string // where the connection came from; "" where that is not known
}

// AllHistory asks for the whole history.
const AllHistory = -1

// SendRequest is a message from a client: for a new task, or for the task named.
type SendRequest struct {
	Caller
	Dialect        string // version string of the codec, becomes the new task's origin
	TaskID         string // public id; empty for a new task
	MayCreate      bool   // an unknown TaskID becomes the id of a new task (0.1)
	MayReopen      bool   // a task of this Dialect that has ended gives its id, which a client chose, to a new one
	ContextID      string // empty: the server makes one, or takes the task's
	ContextMember  string // what the version calls ContextID, for messages
	Message        *task.Message
	Metadata       json.RawMessage // becomes the task's metadata when it is new
	Wait           bool            // answer when the task has settled, not when it is stored
	WaitUnsaid     bool            // Wait is the version's habit and not the client's word
	OutputModes    []string        // media types that the client can read; none: any
	Negotiate      bool            // refuse media types that the agent does not declare
	IdempotencyKey string
	Push           *PushSetting // of the task, with the message; nil for none
}

// PushSetting is a webhook's configuration as a request has it.
type PushSetting struct {
	task.PushConfig
	Member  string // where it is in the request, for messages; empty: it is the request
	Further bool   // without an id it becomes one more, and not the task's default
}

// PushRequest is about the webhooks of a task.
type PushRequest struct {
	Caller
	Dialect  string // version string of the codec, becomes the configuration's
	TaskID   string
	ConfigID string       // to get or to delete
	Set      *PushSetting // to set; nil deletes the default one (0.1)
	MayLack  bool         // to get none is no error (0.1)
}

// GetRequest names a task.
type GetRequest struct {
	Caller
	TaskID string
	// WithArtifacts says whether the reply will show them, so that no more is read.
	WithArtifacts bool
}

// ListRequest asks for a page of the caller's tasks, newest status first.
type ListRequest struct {
	Caller
	ContextID     string     // empty: any
	State         task.State // StateUnspecified: any
	Since         time.Time  // only tasks whose status is of this moment or later; zero: any
	PageSize      int        // 1 to 100
	PageToken     string     // of the page before, whose filter was the same
	WithHistory   bool       // whether the reply will show them, so that no more is read
	WithArtifacts bool
	// ExactTotal counts every task that fits and not only up to a bound.
	ExactTotal bool
}

// Page is some of a caller's tasks.
type Page struct {
	Tasks     []*task.Task
	NextToken string // empty on the last page
	Size      int    // how many tasks a page has at most
	Total     int    // how many tasks fit, over all pages
}

// CancelRequest names the task to cancel.
type CancelRequest struct {
	Caller
	TaskID   string
	Metadata json.RawMessage
}

// SubscribeRequest joins the stream of a task, from the id After (exclusive) when Resume is set,
// else with a snapshot.
type SubscribeRequest struct {
	Caller
	TaskID string
	Resume bool
	After  task.Seq
	// Live follows the task to its end: one that has ended is refused, unless the client
	// resumes, and one that is parked goes on.
	Live bool
}
