package rawjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// AppendString is [AppendQuoted].
func AppendString(dst []byte, s string) []byte { return AppendQuoted(dst, s) }

// AppendText is AppendString for the text of a part.
func AppendText(dst []byte, p *task.Part) []byte {
	if p.Quoted != "" {
		return append(dst, p.Quoted...)
	}
	return AppendString(dst, p.Text)
}

// AppendMember appends a comma, the name, and a colon. The name must need no escapes.
func AppendMember(dst []byte, name string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

// AppendStringMember appends a comma and the member. It appends nothing if s is empty.
func AppendStringMember(dst []byte, name, s string) []byte {
	if s == "" {
		return dst
	}
	return AppendString(AppendMember(dst, name), s)
}

// AppendStringsMember appends a comma and an array of strings. It appends nothing if the array is
// empty.
func AppendStringsMember(dst []byte, name string, all []string) []byte {
	if len(all) == 0 {
		return dst
	}
	return AppendArray(AppendMember(dst, name), all, func(dst []byte, s *string) []byte { return AppendString(dst, *s) })
}

// AppendBytes appends bytes as padded base64 in the standard alphabet.
func AppendBytes(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// AppendRaw appends an opaque value unchanged. A line break between its tokens would split the
// event that carries the value. Such a value did not come through a codec, so AppendRaw compacts
// it.
func AppendRaw(dst []byte, raw json.RawMessage) []byte {
	if bytes.IndexByte(raw, '\n') >= 0 || bytes.IndexByte(raw, '\r') >= 0 {
		raw = Compact(raw)
	}
	return append(dst, raw...)
}

// AppendRawMember appends a comma and an opaque member. It appends nothing if the member is absent.
func AppendRawMember(dst []byte, name string, raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return dst
	}
	return AppendRaw(AppendMember(dst, name), raw)
}

// AppendTime appends a timestamp in UTC with milliseconds, the form of every version.
func AppendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, `"2006-01-02T15:04:05.000Z"`)
}

// AppendArray appends a JSON array. each appends one element.
func AppendArray[T any](dst []byte, all []T, each func([]byte, *T) []byte) []byte {
	dst = append(dst, '[')
	for i := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = each(dst, &all[i])
	}
	return append(dst, ']')
}

// Size estimates the length of the JSON of parts, in bytes, so that a buffer need not grow.
func Size(parts []task.Part) int {
	n := 0
	for i := range parts {
		p := &parts[i]
		n += 64 + len(p.Text) + base64.StdEncoding.EncodedLen(len(p.Raw)) + len(p.URL) + len(p.Data) + len(p.Metadata)
	}
	return n
}

// TaskSize is Size for the document of a task with a history. It has room for escapes: a large document
// that grows while it is written is copied.
func TaskSize(t *task.Task, history []task.Message) int {
	n := 512
	for i := range history {
		n += 256 + Size(history[i].Parts)
	}
	for i := range t.Artifacts {
		n += 256 + Size(t.Artifacts[i].Parts)
	}
	if t.Status.Message != nil {
		n += Size(t.Status.Message.Parts)
	}
	return n + n/8
}
