// Package httpjson defines the versions over HTTP+JSON, besides the documents of their codecs:
// paths, the request members that a path contains, and the bodies of errors.
package httpjson

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03proto"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v10"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// Version is a version as HTTP+JSON speaks it.
type Version struct {
	dialect.Codec
	Prefix string // the first segment of its paths, or ""
	Card   string // the path of the extended card
	Media  string // a media type besides application/json, or ""
	config member // the member that names a webhook's configuration in requests
	body   func(f *Failure) []byte
}

// Versions are the versions with HTTP+JSON, the newest first.
var Versions = []*Version{
	{Codec: v10.Codec{}, Card: "extendedAgentCard", Media: v10.MediaType, config: member{"id", ""}, body: body10},
	{
		Codec: v03proto.Codec{}, Prefix: "v1", Card: "card",
		config: member{"pushNotificationConfigId", "push_notification_config_id"}, body: body03,
	},
}

// Begins reports whether a segment begins a path of the version, after its prefix.
func (v *Version) Begins(segment string) bool {
	return strings.HasPrefix(segment, "message:") || segment == "tasks" || segment == v.Card
}

// ErrorBody renders the body of an error.
func (v *Version) ErrorBody(f *Failure) []byte { return v.body(f) }

// Resource is what a path names.
type Resource struct {
	Task    string
	Configs bool   // the path is about push configurations
	Config  string // one of them, or ""
}

// member is a request member, by its names in JSON and in the proto file.
type member struct{ name, field string }

// Member is a request member. Field is its name in the proto file, if that differs.
type Member struct{ Name, Field, Value string }

// Members returns the request members that a path contains. It names tasks and configurations by
// id, which codecs prefer to resource names: an id may contain a slash.
func (v *Version) Members(r *Resource) []Member {
	switch {
	case r.Task == "":
		return nil
	case r.Config != "":
		return []Member{{"taskId", "task_id", r.Task}, {v.config.name, v.config.field, r.Config}}
	case r.Configs:
		return []Member{{"taskId", "task_id", r.Task}}
	}
	return []Member{{"id", "", r.Task}}
}

// Failure is an error as an answer shows it.
type Failure struct {
	HTTP    int
	Status  string // gRPC status name
	Code    int    // JSON-RPC code; 0.3 also shows it here
	Message string
	Reason  string // for google.rpc.ErrorInfo, if there are no details
	Details []byte // JSON, or nil
}

// body10 renders a google.rpc.Status, as ProtoJSON in the member error.
func body10(f *Failure) []byte {
	details := f.Details
	if details == nil {
		details = fault.Info(f.Reason)
	}
	b := append(make([]byte, 0, 128+len(details)), `{"error":{"code":`...)
	b = strconv.AppendInt(b, int64(f.HTTP), 10)
	b = append(b, `,"status":"`+f.Status+`","message":`...)
	b, _ = jsontext.AppendQuote(b, f.Message)
	b = append(append(b, `,"details":`...), details...)
	return append(b, '}', '}')
}

// body03 renders the members that the official libraries write or read. No two libraries agree, and
// the A2A document shows none.
func body03(f *Failure) []byte {
	b := append(make([]byte, 0, 128+len(f.Details)), `{"error":"`+className(f.Code)+`","code":`...)
	b = strconv.AppendInt(b, int64(f.Code), 10)
	b = append(b, `,"message":`...)
	b, _ = jsontext.AppendQuote(b, f.Message)
	if f.Details != nil {
		b = append(append(b, `,"data":`...), f.Details...)
	}
	return append(b, '}')
}

// className returns the name of a code's error in 0.3.
func className(code int) string {
	switch code {
	case -32700:
		return "JSONParseError"
	case -32600:
		return "InvalidRequestError"
	case -32601:
		return "MethodNotFoundError"
	case -32602:
		return "InvalidParamsError"
	case -32001:
		return "TaskNotFoundError"
	case -32002:
		return "TaskNotCancelableError"
	case -32003:
		return "PushNotificationNotSupportedError"
	case -32004:
		return "UnsupportedOperationError"
	case -32005:
		return "ContentTypeNotSupportedError"
	case -32006:
		return "InvalidAgentResponseError"
	case -32007:
		return "AuthenticatedExtendedCardNotConfiguredError"
	case -32009:
		return "VersionNotSupportedError"
	}
	return "InternalError"
}
