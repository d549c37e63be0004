package protocol

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
)

// HTTP+JSON in the matrix: 1.0, and 0.3 in the format of its proto file.

// protoV03 is 0.3 in the format of its proto file.
var protoV03 = wordsP03{parts: "content"}.version(a2atest.REST03)

// wordsP03 holds the differences between the proto file of 0.3.0 and the later one that gRPC uses.
type wordsP03 struct {
	parts      string
	references bool
	names      bool // of files
}

// part is a part as the version shows it.
func (w wordsP03) part(p piece) object {
	if p.text == "" && p.data == "" && !w.names {
		p.filename = ""
	}
	return partP03(p)
}

func (w wordsP03) version(wire *a2atest.Wire) *version {
	v := proto("0.3", []*a2atest.Wire{wire}, true, w.message, w.status, w.artifact)
	v.send = func(m *said, taskID, contextID string, metadata json.RawMessage) object {
		sent := w
		sent.names = true // read, and not shown
		return optional(object{"message": sent.message(m, taskID, contextID)}, "metadata", string(metadata))
	}
	v.unsaid = func(m *said) {
		if !w.references {
			m.references = nil
		}
	}
	return v
}

func (w wordsP03) message(m *said, taskID, contextID string) object {
	o := object{"messageId": orAny(m.id), "role": "ROLE_" + strings.ToUpper(m.role), w.parts: list(m.parts, w.part)}
	identified(o, taskID, contextID)
	words(o, "extensions", m.extensions)
	if w.references {
		words(o, "referenceTaskIds", m.references)
	}
	return optional(o, "metadata", m.metadata)
}

func (w wordsP03) status(k *told, state string, m *said) object {
	o := object{"state": "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(state, "-", "_")), "timestamp": anyTime}
	if state == "canceled" {
		o["state"] = "TASK_STATE_CANCELLED"
	}
	if m != nil {
		o["message"] = w.message(m, k.id, k.context)
	}
	return o
}

func (w wordsP03) artifact(a *made) object {
	o := object{"artifactId": a.id, "parts": list(a.parts, w.part)}
	named(o, a)
	words(o, "extensions", a.extensions)
	return optional(o, "metadata", a.meta)
}

// partP03 is a part of JSON-RPC without its kind, and with its content one level deeper.
func partP03(p piece) object {
	o := partOld("kind", false)(p)
	delete(o, "kind")
	if data, is := o["data"]; is {
		o["data"] = object{"data": data}
	}
	if file, is := o["file"].(object); is {
		for old, name := range map[string]string{"bytes": "fileWithBytes", "uri": "fileWithUri"} {
			if v, there := file[old]; there {
				delete(file, old)
				file[name] = v
			}
		}
	}
	return o
}
