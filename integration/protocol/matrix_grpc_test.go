package protocol

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
)

// gRPC in the matrix: messages are built from, and shown as, the ProtoJSON of the versions, whose numbers are
// doubles.

var (
	grpcV03 = doubled(wordsP03{parts: "parts", references: true, names: true}.version(a2atest.GRPC03), a2atest.GRPC03)
	grpcV10 = doubled(versionV10(), a2atest.GRPC10)
)

// doubled is the version as gRPC carries it.
func doubled(v *version, w *a2atest.Wire) *version {
	task, event, unsaid, get := v.task, v.event, v.unsaid, v.get
	v.wires = []*a2atest.Wire{w}
	v.task = func(k *told, sent bool) object { return asMessage(task(k, sent)) }
	v.event = func(k *told, e *happened) object { return asMessage(event(k, e)) }
	v.unsaid = func(m *said) {
		unsaid(m)
		m.metadata = doubles(m.metadata)
		for i := range m.parts {
			p := &m.parts[i]
			p.data, p.meta = doubles(p.data), doubles(p.meta)
		}
	}
	v.get = func(taskID string) object {
		if v.name == "0.3" {
			return object{"name": "tasks/" + taskID}
		}
		return get(taskID)
	}
	return v
}

// doubles changes the numbers of JSON as a conversion to double does, and reports whether one was too large.
func doubles(raw string) string {
	if raw == "" {
		return ""
	}
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		panic(err)
	}
	return string(a2atest.JSON(throughDoubles(v)))
}

func throughDoubles(v any) any {
	switch v := v.(type) {
	case object:
		for name := range v {
			v[name] = throughDoubles(v[name])
		}
	case []any:
		for i := range v {
			v[i] = throughDoubles(v[i])
		}
	case json.Number:
		if f, err := v.Float64(); err == nil {
			return f
		}
		return string(v)
	}
	return v
}

// asMessage removes from a document what a message cannot hold: false is not shown.
func asMessage(o object) object {
	var out object
	if err := json.Unmarshal([]byte(doubles(string(a2atest.JSON(o)))), &out); err != nil {
		panic(err)
	}
	if update, is := out["statusUpdate"].(object); is && update["final"] == false {
		delete(update, "final")
	}
	return out
}

func withMillis(v any) any {
	switch v := v.(type) {
	case object:
		for name := range v {
			if at, is := v[name].(string); is && name == "timestamp" && !strings.Contains(at, ".") {
				v[name] = strings.Replace(at, "Z", ".000Z", 1)
			}
			v[name] = withMillis(v[name])
		}
	case []any:
		for i := range v {
			v[i] = withMillis(v[i])
		}
	}
	return v
}
