package task

import (
	"bytes"
	"encoding/json"
)

// Merge adds the members of a JSON object to those of another; of two with one name the added one stays, as in the official
// SDKs. Members keep their text, and their place. A value that is no object has no members.
func Merge(object, added json.RawMessage) json.RawMessage {
	switch {
	case !isObject(added):
		return object
	case !isObject(object):
		return added
	}
	var all []member
	at := map[string]int{}
	for _, raw := range []json.RawMessage{object, added} {
		more, err := members(raw)
		if err != nil { // not JSON, which nothing stores
			return object
		}
		for _, m := range more {
			n, ok := at[m.name]
			if !ok {
				n = len(all)
				at[m.name] = n
				all = append(all, m)
			}
			all[n].value = m.value
		}
	}
	out := []byte{'{'}
	for i, m := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.quoted...), ':'), m.value...)
	}
	return append(out, '}')
}

const space = " \t\r\n"

func isObject(raw json.RawMessage) bool {
	raw = bytes.TrimLeft(raw, space)
	return len(raw) > 0 && raw[0] == '{'
}

type member struct {
	name   string
	quoted []byte // as it is written
	value  json.RawMessage
}

func members(object json.RawMessage) (all []member, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		before := d.InputOffset()
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string), quoted: bytes.Trim(object[before:d.InputOffset()], ","+space)}
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	_, err = d.Token()
	return all, err
}
