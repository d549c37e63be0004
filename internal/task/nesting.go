package task

// MaxNesting is how deeply arrays and objects of data and metadata may nest that clients see. Libraries of protobuf read at
// most 100 messages within each other. An object costs three, and up to six are around it.
const MaxNesting = 30

// Deeper reports whether arrays and objects of JSON nest more than so many levels. The JSON may be invalid.
func Deeper(raw []byte, levels int) bool {
	depth, inString := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > levels {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
