package v0

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/jsonrw"
)

// Cancel reads TaskIdParams.
func Cancel(r *jsonrw.Reader) *engine.CancelRequest {
	c := new(engine.CancelRequest)
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "id", "taskId": // llms.txt of 0.2
			c.TaskID = r.String()
		case "metadata":
			c.Metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	r.Require(c.TaskID != "", "id")
	return c
}

// Subscribe reads the params of a resubscription. Only the id counts, even where 0.1 allows a
// historyLength.
func Subscribe(r *jsonrw.Reader) *engine.SubscribeRequest {
	s := new(engine.SubscribeRequest)
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "id", "taskId":
			s.TaskID = r.String()
		default:
			r.Skip()
		}
	}
	r.Require(s.TaskID != "", "id")
	return s
}
