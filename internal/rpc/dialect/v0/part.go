package v0

import (
	"encoding/json"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Compat marks data that is not an object and is therefore wrapped as {"value": ...}. The mark is
// in the metadata of the part. The converters of the official Go and Python libraries use the same
// convention.
const Compat = "data_part_compat"

// Parts reads the parts of a message: at least one.
func Parts(r *rawjson.Reader) []task.Part {
	var parts []task.Part
	for r.Array(); r.Item(); {
		if len(parts) > rawjson.MaxParts {
			r.Skip() // refused by their number
			continue
		}
		parts = append(parts, part(r))
	}
	if len(parts) == 0 {
		r.Fail("must hold at least one part")
	}
	return parts
}

// part reads one part. Its members may come in any order, so part decides on its kind at the end.
func part(r *rawjson.Reader) task.Part {
	var p task.Part
	var kind string
	var hasText, hasFile bool
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "kind", "type":
			kind = r.String()
		case "text":
			p.Text, hasText = r.String(), true
		case "file":
			file(r, &p)
			hasFile = true
		case "data":
			p.Data = r.Raw()
		case "metadata":
			p.Metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	if kind == "" {
		kind = soleContent(hasText, hasFile, p.Data != nil)
	}
	switch kind {
	case "text":
		r.Require(hasText, "text")
		return task.Part{Kind: task.PartText, Text: p.Text, Metadata: p.Metadata}
	case "file":
		r.Require(hasFile, "file")
		p.Text, p.Data = "", nil
		return p
	case "data":
		r.Require(p.Data != nil, "data")
		return Unwrap(task.Part{Kind: task.PartData, Data: p.Data, Metadata: p.Metadata})
	case "":
		r.Fail("must be a text, file or data part")
	default:
		r.Fail("is of an unknown kind; use text, file or data")
	}
	return task.Part{}
}

// soleContent returns the kind of a part that does not state it, if only one is possible.
func soleContent(text, file, data bool) string {
	switch {
	case text && !file && !data:
		return "text"
	case file && !text && !data:
		return "file"
	case data && !text && !file:
		return "data"
	}
	return ""
}

// file reads the content of a file part. The examples of the first documents have the bytes in the
// member data.
func file(r *rawjson.Reader, p *task.Part) {
	var raw []byte
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "bytes", "data":
			raw = r.Bytes()
		case "uri":
			p.URL = r.String()
		case "name":
			p.Filename = r.String()
		case "mimeType":
			p.MediaType = r.String()
		default:
			r.Skip()
		}
	}
	if !SetFile(p, raw) {
		r.Fail("must have only one of bytes and uri")
	}
}

// SetFile turns p, whose URL was already read, and raw into a file. A file has at most one of URL
// and bytes. With neither it has only a name, and is stored with an empty URL.
func SetFile(p *task.Part, raw []byte) (ok bool) {
	if raw != nil && p.URL == "" {
		p.Kind, p.Raw = task.PartRaw, raw
		return true
	}
	p.Kind = task.PartURL
	return len(raw) == 0
}

// Unwrap undoes the wrapping of data that is not an object.
func Unwrap(p task.Part) task.Part {
	if mark, ok := rawjson.Lookup(p.Metadata, Compat); !ok || string(mark) != "true" {
		return p
	}
	value, ok := rawjson.Lookup(p.Data, "value")
	if !ok || rawjson.Without(p.Data, "value") != nil {
		return p
	}
	p.Data = value
	p.Metadata = rawjson.Without(p.Metadata, Compat)
	return p
}

// Style describes how a version writes parts.
type Style struct {
	Discriminator string // "type" or "kind"
	Second        string // a second discriminator, with the same value
	Arrays        bool   // data may be an array; otherwise only an object
}

// AppendPart appends a part.
func (s Style) AppendPart(dst []byte, p *task.Part) []byte {
	dst = append(dst, '{')
	metadata := p.Metadata
	switch p.Kind {
	case task.PartRaw, task.PartURL:
		dst = append(s.appendKind(dst, "file"), `"file":`...)
		dst = appendFile(dst, p)
	case task.PartData:
		var data json.RawMessage
		data, metadata = Wrap(p, s.Arrays)
		dst = rawjson.AppendRaw(append(s.appendKind(dst, "data"), `"data":`...), data)
	case task.PartText:
		dst = append(s.appendKind(dst, "text"), `"text":`...)
		dst = rawjson.AppendText(dst, p)
		metadata = FileMembers(p)
	}
	dst = rawjson.AppendRawMember(dst, "metadata", metadata)
	return append(dst, '}')
}

// appendKind appends the discriminators of a part, each with a comma.
func (s Style) appendKind(dst []byte, kind string) []byte {
	for _, name := range [...]string{s.Discriminator, s.Second} {
		if name != "" {
			dst = append(append(append(append(append(dst, '"'), name...), `":"`...), kind...), `",`...)
		}
	}
	return dst
}

func appendFile(dst []byte, p *task.Part) []byte {
	open := len(dst)
	dst = rawjson.AppendStringMember(dst, "name", p.Filename)
	dst = rawjson.AppendStringMember(dst, "mimeType", p.MediaType)
	if p.Kind == task.PartRaw {
		dst = rawjson.AppendBytes(rawjson.AppendMember(dst, "bytes"), p.Raw)
	} else {
		dst = rawjson.AppendStringMember(dst, "uri", p.URL)
	}
	if len(dst) == open {
		return append(dst, '{', '}')
	}
	dst[open] = '{' // replaces the first member's comma
	return append(dst, '}')
}

// Wrap returns the data and the metadata that a data part shows. The data must be an object, or
// with arrays also an array; other data is wrapped.
func Wrap(p *task.Part, arrays bool) (data, metadata json.RawMessage) {
	metadata = FileMembers(p)
	if !wraps(p.Data, arrays) {
		return p.Data, metadata
	}
	data = append(make([]byte, 0, len(`{"value":}`)+len(p.Data)), `{"value":`...)
	data = append(append(data, orNull(p.Data)...), '}')
	return data, rawjson.With(rawjson.Without(metadata, Compat), Compat, json.RawMessage("true"))
}

// wraps reports whether data must be wrapped, by its first byte.
func wraps(data json.RawMessage, arrays bool) bool {
	for _, c := range data {
		switch c {
		case ' ', '\t', '\r', '\n':
		case '{':
			return false
		case '[':
			return !arrays
		default:
			return true
		}
	}
	return true
}

func orNull(data json.RawMessage) json.RawMessage {
	if len(data) == 0 {
		return json.RawMessage("null")
	}
	return data
}

// FileMembers returns the metadata of a text or data part, with its media type and file name.
// Before 1.0 these have no members of their own, so they go into the metadata if their names are
// free there.
func FileMembers(p *task.Part) json.RawMessage {
	metadata := addFree(p.Metadata, "mediaType", p.MediaType)
	return addFree(metadata, "filename", p.Filename)
}

func addFree(metadata json.RawMessage, name, value string) json.RawMessage {
	if value == "" {
		return metadata
	}
	if _, taken := rawjson.Lookup(metadata, name); taken {
		return metadata
	}
	return rawjson.With(metadata, name, rawjson.AppendString(nil, value))
}
