package grpcapi

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // registers the types in details
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// fail returns the status of an operation's error.
func (c *call) fail(err error) error {
	e, ours := dispatch.Known(err)
	switch {
	case !ours:
		return c.tell(e, fault.Incident{TaskID: c.taskID})
	case c.ctx.Err() != nil: // an error after the client has left is no fault
		return status.FromContextError(c.ctx.Err()).Err()
	}
	return c.broken(err)
}

// broken returns the status of an internal fault. The client sees only the id of the log line.
func (c *call) broken(err error, attrs ...any) error {
	id := dispatch.LogFault(c.b.Log, c.op, c.taskID, err, attrs...)
	return c.tell(&task.Error{Kind: task.Internal}, fault.Incident{ID: id})
}

// tell returns the status of an error. The details are the same in both versions: 0.3 defines none
// for gRPC.
func (c *call) tell(e *task.Error, in fault.Incident) error {
	row := c.s.faults.Row(e.Kind)
	if !c.opened {
		c.observe(row.Reason)
	}
	fault.Headers(e, func(name, value string) {
		if name != "Retry-After" { // the details contain it
			c.stream.SetTrailer(metadata.Pairs(strings.ToLower(name), value))
		}
	})
	_, message := c.s.faults.Describe(e)
	b := strconv.AppendUint([]byte(`{"code":`), uint64(row.GRPC), 10)
	b, _ = jsontext.AppendQuote(append(b, `,"message":`...), message)
	b = append(append(b, `,"details":`...), c.s.faults.Details(e, in)...)
	if wait := fault.RetryAfter(e); wait != "" {
		b = append(b[:len(b)-1], `,{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"`+wait+`s"}]`...)
	}
	s := new(spb.Status)
	if err := protojson.Unmarshal(append(b, '}'), s); err != nil {
		c.b.Log.Error("could not encode the details of an error for gRPC", "error", err)
		return status.Error(codes.Code(row.GRPC), message)
	}
	return status.ErrorProto(s)
}
