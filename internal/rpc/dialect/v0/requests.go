package v0

import (
	"cmp"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
)

// Cancel reads TaskIdParams.
func Cancel(r *rawjson.Reader) *engine.CancelRequest {
	c := new(engine.CancelRequest)
	beside := "" // where llms.txt of 0.2 has the id
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "id":
			c.TaskID = r.String()
		case "taskId":
			beside = r.String()
		case "metadata":
			c.Metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	c.TaskID = cmp.Or(c.TaskID, beside)
	r.Require(c.TaskID != "", "id")
	return c
}

// Subscribe reads the params of a resubscription. Only the id counts, even where 0.1 allows a
// historyLength.
func Subscribe(r *rawjson.Reader) *engine.SubscribeRequest {
	s := new(engine.SubscribeRequest)
	beside := ""
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "id":
			s.TaskID = r.String()
		case "taskId":
			beside = r.String()
		default:
			r.Skip()
		}
	}
	s.TaskID = cmp.Or(s.TaskID, beside)
	r.Require(s.TaskID != "", "id")
	return s
}
