package rawjson

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Compact copies a valid JSON value without the white space between its tokens. Numbers, the order
// of members and the escapes in strings stay as they are. An opaque value needs this before it goes
// into a server-sent event, which is one line.
func Compact(raw []byte) []byte {
	v := jsontext.Value(bytes.Clone(raw))
	_ = v.Compact() // fails only for a value that is not JSON
	return v
}
