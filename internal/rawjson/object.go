package rawjson

import (
	"encoding/json"
)

// A codec sometimes needs its own member in an opaque object, such as the mark of a wrapped value
// in a part's metadata. These three functions keep every other member as it was written. nil is an
// absent object.

// Lookup returns the raw value of a member.
func Lookup(object json.RawMessage, name string) (json.RawMessage, bool) {
	r := NewReader(object)
	defer r.Close()
	for r.Object(); r.member(); {
		if string(r.Name()) == name {
			return r.Raw(), true
		}
		r.Skip()
	}
	return nil, false
}

// Without returns the object without a member, or nil if no member is left.
func Without(object json.RawMessage, name string) json.RawMessage {
	r := NewReader(object)
	defer r.Close()
	var rest []byte
	for r.Object(); r.member(); {
		if string(r.Name()) == name {
			r.Skip()
			continue
		}
		if rest == nil {
			rest = append(make([]byte, 0, len(object)), '{')
		} else {
			rest = append(rest, ',')
		}
		rest = append(append(rest, r.name...), ':')
		rest = append(rest, r.Raw()...)
	}
	if rest == nil {
		return nil
	}
	return append(rest, '}')
}

// With returns the object with one more member at its end. The name must be free, and must need no
// escapes.
func With(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	object = Compact(object)
	out := make([]byte, 0, len(object)+len(name)+len(value)+len(`{"":}`))
	if len(object) > len("{}") {
		out = append(out, object[:len(object)-1]...)
		out = append(out, ',')
	} else {
		out = append(out, '{')
	}
	out = append(append(append(out, '"'), name...), '"', ':')
	out = append(out, value...)
	return append(out, '}')
}
