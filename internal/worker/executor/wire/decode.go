package wire

import (
	"bytes"

	jsonv2 "github.com/go-json-experiment/json"
)

// Unmarshal decodes JSON that a service outside sent. Unlike Decode, it ignores members that it does not know, and replaces
// invalid UTF-8. It refuses what nests deeper than MaxDepth.
func Unmarshal(raw []byte, into any) *Malformed {
	if bad := tooDeep(raw); bad != nil {
		return bad
	}
	if err := jsonv2.Unmarshal(repaired(bytes.ToValidUTF8(raw, []byte("\uFFFD"))), into); err != nil {
		return explain(err)
	}
	return nil
}
