package v0

import (
	"cmp"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
)

// Named reads params that name a task. more reads another member, if it knows it; nil knows none. With beside, the id may also be
// where llms.txt of 0.2 has it.
func Named(r *rawjson.Reader, beside bool, more func(member string) bool) string {
	var id, other string
	for r.Object(); r.Next(); {
		switch member := string(r.Name()); {
		case member == "id":
			id = r.String()
		case member == "taskId" && beside:
			other = r.String()
		case more == nil || !more(member):
			r.Skip()
		}
	}
	id = cmp.Or(id, other)
	r.Require(id != "", "id")
	return id
}

// Cancel reads TaskIdParams.
func Cancel(r *rawjson.Reader) *engine.CancelRequest {
	c := new(engine.CancelRequest)
	c.TaskID = Named(r, true, func(member string) bool {
		if member != "metadata" {
			return false
		}
		c.Metadata = r.RawObject()
		return true
	})
	return c
}

// Subscribe reads the params of a resubscription. Only the id counts, even where 0.1 allows a
// historyLength.
func Subscribe(r *rawjson.Reader) *engine.SubscribeRequest {
	return &engine.SubscribeRequest{TaskID: Named(r, true, nil)}
}
