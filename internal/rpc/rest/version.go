package rest

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03proto"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v10"
	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
)

// version is a version as this binding speaks it.
type version struct {
	dialect.Codec
	card    string // the path of the extended card
	media   string // besides application/json
	faults  *fault.Table
	members func(t *Target) []member // what the path says, as members of the request
	body    func(f *failure) []byte  // of an error
}

var (
	version03 = &version{Codec: v03proto.Codec{}, card: "card", faults: fault.Table03, members: members03, body: body03}
	version10 = &version{
		Codec: v10.Codec{}, card: "extendedAgentCard", media: "application/a2a+json", faults: &fault.Base,
		members: members10, body: body10,
	}
)

// member is a member of a request, by the names that it has in JSON and in the proto file.
type member struct{ name, field, value string }

func members10(t *Target) []member {
	switch {
	case t.task == "":
		return nil
	case t.config != "":
		return []member{{"taskId", "task_id", t.task}, {"id", "", t.config}}
	case t.configs:
		return []member{{"taskId", "task_id", t.task}}
	}
	return []member{{"id", "", t.task}}
}

// members03 names tasks and push configurations by their ids, which the codec takes
// before the name of a resource: an id may hold a slash.
func members03(t *Target) []member {
	switch {
	case t.task == "":
		return nil
	case t.config != "":
		return []member{{"taskId", "task_id", t.task}, {"pushNotificationConfigId", "push_notification_config_id", t.config}}
	case t.configs:
		return []member{{"taskId", "task_id", t.task}}
	}
	return []member{{"id", "", t.task}}
}

// failure is an error as it is told.
type failure struct {
	http    int
	status  string // of gRPC, by name
	code    int    // of JSON-RPC, which 0.3 has here too
	message string
	details []byte // JSON, or nil
}

// body10 is a google.rpc.Status, as ProtoJSON in the member error.
func body10(f *failure) []byte {
	b := append(make([]byte, 0, 128+len(f.details)), `{"error":{"code":`...)
	b = strconv.AppendInt(b, int64(f.http), 10)
	b = append(b, `,"status":"`+f.status+`","message":`...)
	b, _ = jsontext.AppendQuote(b, f.message)
	b = append(append(b, `,"details":`...), f.details...)
	return append(b, '}', '}')
}

// body03 has the members that the official libraries write or read; no two agree, and
// the document shows none.
func body03(f *failure) []byte {
	b := append(make([]byte, 0, 128+len(f.details)), `{"error":"`+className(f.code)+`","code":`...)
	b = strconv.AppendInt(b, int64(f.code), 10)
	b = append(b, `,"message":`...)
	b, _ = jsontext.AppendQuote(b, f.message)
	if f.details != nil {
		b = append(append(b, `,"data":`...), f.details...)
	}
	return append(b, '}')
}

// className is what 0.3 calls the error of a code.
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
