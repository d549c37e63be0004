package wire

import (
	"bytes"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DecodeAnswer reads an answer that is one JSON document. The document is an event, a list of events as
// {"events": […]}, or an object without a type, which is text: {"text": "hi"}. It checks the whole document first, so
// that an answer takes effect completely or not at all.
func DecodeAnswer(raw []byte) ([]*Event, *Malformed) {
	raw = repaired(bytes.TrimPrefix(raw, []byte("\ufeff")))
	bad := tooDeep(raw)
	if bad != nil {
		return nil, bad
	}
	var head struct {
		Type    *string            `json:"type"`
		Members map[string]skipped `json:",embed"`
	}
	if err := jsonv2.Unmarshal(raw, &head); err != nil {
		return nil, explain(err)
	}
	_, list := head.Members["events"]
	_, text := head.Members["text"]
	var event *Event
	switch {
	case head.Type != nil:
		event, bad = decodeAs(*head.Type, head.Members, raw)
	case list:
		return decodeList(raw)
	case text:
		event, bad = decodeAs("text", head.Members, raw)
	default:
		bad = malformed("", "needs one of type, events, text")
	}
	if bad != nil {
		return nil, bad
	}
	return []*Event{event}, nil
}

func decodeList(raw []byte) ([]*Event, *Malformed) {
	var in struct {
		Events []jsontext.Value `json:"events"`
	}
	if bad := unmarshal(raw, &in); bad != nil {
		return nil, bad
	}
	if in.Events == nil {
		return nil, malformed("events", "is missing")
	}
	events := make([]*Event, len(in.Events))
	for i, rawEvent := range in.Events {
		member := fmt.Sprintf("events[%d]", i)
		if i > 0 && events[i-1].Ends() {
			return nil, malformed(member, "follows the event that ended the run")
		}
		event, bad := decode(rawEvent)
		if bad != nil {
			return nil, bad.inside(member)
		}
		if i > 0 && event.Action == Reply {
			return nil, malformed(member, "a reply must be the only event")
		}
		events[i] = event
	}
	return events, nil
}
