package protocol

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
)

// How each version expresses the content of the matrix.

var versions = []*version{
	{
		name: "0.1", wires: []*a2atest.Wire{a2atest.V01},
		send: func(m *said, taskID, contextID string, metadata json.RawMessage) object {
			return optional(object{"id": taskID, "sessionId": contextID, "message": messageV01(m)}, "metadata", string(metadata))
		},
		get: func(taskID string) object { return object{"id": taskID, "historyLength": 100} },
		task: func(k *told, sent bool) object {
			o := object{"id": k.id, "sessionId": k.context, "status": statusV01(k.state, k.status)}
			o["artifacts"] = list(k.artifacts, artifactV01)
			if !sent { // the answer to a send has no history, since the request asks for none
				o["history"] = list(k.history, messageV01)
			}
			return optional(o, "metadata", k.metadata)
		},
		event: func(k *told, e *happened) object {
			if e.artifact == nil {
				return object{"id": k.id, "status": statusV01(e.state, e.message), "final": isFinal(e)}
			}
			a := artifactV01(e.artifact)
			if e.more {
				a["append"] = true
			}
			if e.last {
				a["lastChunk"] = true
			}
			return object{"id": k.id, "artifact": a}
		},
		unsaid: func(m *said) { m.id, m.extensions, m.references = "", nil, nil },
	},
	{
		name: "0.3", wires: []*a2atest.Wire{a2atest.V03},
		send: func(m *said, taskID, contextID string, metadata json.RawMessage) object {
			return optional(object{"message": messageV03(m, taskID, contextID)}, "metadata", string(metadata))
		},
		get: func(taskID string) object { return object{"id": taskID} },
		task: func(k *told, _ bool) object {
			o := documentOf(k, messageV03, statusV03, artifactV03)
			o["kind"] = "task"
			return o
		},
		event: func(k *told, e *happened) object {
			o := object{"taskId": k.id, "contextId": k.context}
			if e.artifact == nil {
				o["kind"], o["status"], o["final"] = "status-update", statusV03(k, e.state, e.message), isFinal(e)
				return o
			}
			o["kind"], o["artifact"] = "artifact-update", artifactV03(e.artifact)
			return chunk(o, e)
		},
		unsaid: func(*said) {},
	},
	versionV10(),
	protoV03,
	grpcV03,
	grpcV10,
}

// documentOf is a task, as all versions but 0.1 show it.
func documentOf(
	k *told, message func(m *said, taskID, contextID string) object, status func(k *told, state string, m *said) object, artifact func(a *made) object,
) object {
	o := object{"id": k.id, "contextId": k.context, "status": status(k, k.state, k.status)}
	o["artifacts"] = list(k.artifacts, artifact)
	o["history"] = list(k.history, func(m *said) object { return message(m, k.id, k.context) })
	return optional(o, "metadata", k.metadata)
}

// proto is a version with the documents of a proto file. marks: the last status of a stream has a mark.
func proto(
	name string, wires []*a2atest.Wire, marks bool,
	message func(m *said, taskID, contextID string) object, status func(k *told, state string, m *said) object, artifact func(a *made) object,
) *version {
	return &version{
		name: name, wires: wires,
		send: func(m *said, taskID, contextID string, metadata json.RawMessage) object {
			return optional(object{"message": message(m, taskID, contextID)}, "metadata", string(metadata))
		},
		get: func(taskID string) object { return object{"id": taskID} },
		task: func(k *told, sent bool) object {
			o := documentOf(k, message, status, artifact)
			if sent {
				return object{"task": o}
			}
			return o
		},
		event: func(k *told, e *happened) object {
			o := object{"taskId": k.id, "contextId": k.context}
			if e.artifact != nil {
				o["artifact"] = artifact(e.artifact)
				return object{"artifactUpdate": chunk(o, e)}
			}
			o["status"] = status(k, e.state, e.message)
			if marks {
				o["final"] = isFinal(e)
			}
			return object{"statusUpdate": o}
		},
		unsaid: func(*said) {},
	}
}

func versionV10() *version {
	return proto("1.0", []*a2atest.Wire{a2atest.V10, a2atest.REST10}, false, messageV10, statusV10, artifactV10)
}

// isFinal: in the older versions, only the last status of a stream has the mark.
func isFinal(e *happened) bool {
	return !e.finalBefore && e.state != "working" && e.state != "submitted"
}

func chunk(o object, e *happened) object {
	if e.more {
		o["append"] = true
	}
	if e.last {
		o["lastChunk"] = true
	}
	return o
}

// optional adds a member of JSON, unless it is empty.
func optional(o object, name, raw string) object {
	if raw != "" {
		o[name] = json.RawMessage(raw)
	}
	return o
}

func list[T any](all []T, each func(T) object) []any {
	out := make([]any, len(all))
	for i, v := range all {
		out[i] = each(v)
	}
	return out
}

func words(o object, name string, all []string) object {
	if len(all) > 0 {
		o[name] = all
	}
	return o
}

func orAny(id string) string {
	if id == "" {
		return anyID
	}
	return id
}

// 0.1

func messageV01(m *said) object {
	return optional(object{"role": m.role, "parts": list(m.parts, partOld("type", true))}, "metadata", m.metadata)
}

func statusV01(state string, m *said) object {
	shown := map[string]string{"rejected": "failed", "auth-required": "input-required"}[state]
	if shown == "" {
		shown = state
	}
	o := object{"state": shown, "timestamp": anyTime}
	if m != nil {
		message := messageV01(m)
		if shown != state {
			optional(message, "metadata", with(m.metadata, `"a2a_state":"`+state+`"`))
		}
		o["message"] = message
	}
	return o
}

func artifactV01(a *made) object {
	o := object{"index": a.index, "parts": list(a.parts, partOld("type", true))}
	named(o, a)
	return optional(o, "metadata", a.meta)
}

func named(o object, a *made) {
	if a.name != "" {
		o["name"] = a.name
	}
	if a.description != "" {
		o["description"] = a.description
	}
}

// partOld is a part in the versions before 1.0. 0.1 has arrays as data; later versions wrap them, as all wrap
// scalars.
func partOld(discriminator string, arrays bool) func(piece) object {
	return func(p piece) object {
		meta := p.meta
		o := object{}
		switch {
		case p.text != "":
			o[discriminator], o["text"] = "text", p.text
		case p.data != "":
			o[discriminator], o["data"] = "data", json.RawMessage(p.data)
			if p.data[0] != '{' && (p.data[0] != '[' || !arrays) {
				o["data"] = object{"value": json.RawMessage(p.data)}
				meta = with(meta, `"data_part_compat":true`)
			}
		default:
			file := object{}
			for name, v := range map[string]string{"name": p.filename, "mimeType": p.media, "bytes": p.raw, "uri": p.url} {
				if v != "" {
					file[name] = v
				}
			}
			o[discriminator], o["file"] = "file", file
			return optional(o, "metadata", meta)
		}
		if p.media != "" {
			meta = with(meta, `"mediaType":"`+p.media+`"`)
		}
		if p.filename != "" {
			meta = with(meta, `"filename":"`+p.filename+`"`)
		}
		return optional(o, "metadata", meta)
	}
}

func with(object, member string) string {
	if object == "" {
		return "{" + member + "}"
	}
	return strings.TrimSuffix(object, "}") + "," + member + "}"
}

// 0.3

func messageV03(m *said, taskID, contextID string) object {
	o := object{"kind": "message", "messageId": orAny(m.id), "role": m.role, "parts": list(m.parts, partOld("kind", false))}
	identified(o, taskID, contextID)
	words(words(o, "extensions", m.extensions), "referenceTaskIds", m.references)
	return optional(o, "metadata", m.metadata)
}

func identified(o object, taskID, contextID string) {
	if taskID != "" {
		o["taskId"] = taskID
	}
	if contextID != "" {
		o["contextId"] = contextID
	}
}

func statusV03(k *told, state string, m *said) object {
	o := object{"state": state, "timestamp": anyTime}
	if m != nil {
		o["message"] = messageV03(m, k.id, k.context)
	}
	return o
}

func artifactV03(a *made) object {
	o := object{"artifactId": a.id, "parts": list(a.parts, partOld("kind", false))}
	named(o, a)
	words(o, "extensions", a.extensions)
	return optional(o, "metadata", a.meta)
}

// 1.0

func messageV10(m *said, taskID, contextID string) object {
	o := object{"messageId": orAny(m.id), "role": "ROLE_" + strings.ToUpper(m.role), "parts": list(m.parts, partV10)}
	identified(o, taskID, contextID)
	words(words(o, "extensions", m.extensions), "referenceTaskIds", m.references)
	return optional(o, "metadata", m.metadata)
}

func statusV10(k *told, state string, m *said) object {
	o := object{"state": "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(state, "-", "_")), "timestamp": anyTime}
	if m != nil {
		o["message"] = messageV10(m, k.id, k.context)
	}
	return o
}

func artifactV10(a *made) object {
	o := object{"artifactId": a.id, "parts": list(a.parts, partV10)}
	named(o, a)
	words(o, "extensions", a.extensions)
	return optional(o, "metadata", a.meta)
}

func partV10(p piece) object {
	o := object{}
	for name, v := range map[string]string{"text": p.text, "raw": p.raw, "url": p.url, "filename": p.filename, "mediaType": p.media} {
		if v != "" {
			o[name] = v
		}
	}
	return optional(optional(o, "data", p.data), "metadata", p.meta)
}
