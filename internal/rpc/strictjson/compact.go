package strictjson

import "bytes"

// Compact copies a valid JSON value without the white space between its tokens.
// Numbers, the order of members and the escapes in strings stay as they are. An
// opaque value needs this before it may stand in a server-sent event, which is
// one line.
func Compact(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		switch raw[i] {
		case ' ', '\t', '\r', '\n':
			i++
		case '"':
			end := stringEnd(raw, i)
			out = append(out, raw[i:end]...)
			i = end
		default:
			out = append(out, raw[i])
			i++
		}
	}
	return out
}

// stringEnd is the index after the string that begins at raw[start].
func stringEnd(raw []byte, start int) int {
	for i := start + 1; ; {
		quote := bytes.IndexByte(raw[i:], '"')
		if quote < 0 {
			return len(raw)
		}
		i += quote + 1
		backslashes := 0
		for raw[i-2-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i
		}
	}
}
