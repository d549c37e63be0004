package binary

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxNested bounds the messages in a request. An empty one has two bytes, and becomes hundreds in
// memory.
const maxNested = 200_000

// nested counts the messages in a message, until there are more than maxNested. It stops at what it
// cannot read: Unmarshal refuses that.
func nested(b []byte, d protoreflect.MessageDescriptor, count int) int {
	fields := d.Fields()
	for len(b) > 0 && count <= maxNested {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return count
		}
		b = b[n:]
		field := fields.ByNumber(number)
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return count
			}
			if field != nil && field.IsList() {
				count++
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return count
		}
		b = b[n:]
		switch {
		case field == nil:
		case field.Message() != nil:
			count = nested(value, field.Message(), count+1)
		case field.IsList():
			count++
		}
	}
	return count
}
