package wire

import (
	"bytes"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DecodeAnswer reads an answer that is one JSON document: an event, a list of
// them as {"events": […]}, or an object without a type, which counts as text:
// {"text": "hi"}. All of it is checked before anything is returned, so that an
// agent's answer takes effect whole or not at all.
func DecodeAnswer(raw []byte) (events []*Event, replaced bool, bad *Malformed) {
	raw, replaced, bad = clean(bytes.TrimPrefix(raw, byteOrderMark))
	if bad != nil {
		return nil, false, bad
	}
	var head struct {
		Type   *string          `json:"type"`
		Events []jsontext.Value `json:"events"`
		Text   jsontext.Value   `json:"text"`
	}
	if err := jsonv2.Unmarshal(raw, &head); err != nil {
		return nil, false, explain(err)
	}
	var event *Event
	switch {
	case head.Type != nil:
		event, bad = decode(raw)
	case head.Events != nil:
		events, bad = decodeList(raw)
		return events, replaced, bad
	case head.Text != nil:
		event, bad = decodeText(raw)
	default:
		bad = malformed("", "needs one of type, events, text")
	}
	if bad != nil {
		return nil, false, bad
	}
	return []*Event{event}, replaced, nil
}

func decodeList(raw []byte) ([]*Event, *Malformed) {
	var in struct {
		Events []jsontext.Value `json:"events"`
	}
	if bad := unmarshal(raw, &in); bad != nil {
		return nil, bad
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
