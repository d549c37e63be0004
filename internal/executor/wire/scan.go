package wire

import "bytes"

const (
	escapedNUL         = `\u0000`
	escapedReplacement = `\ufffd`
)

// clean prepares a document for the decoder: it refuses nesting beyond MaxDepth
// and replaces NUL characters, which PostgreSQL cannot hold, by U+FFFD. It works
// on the text and therefore reaches member names and opaque JSON too. The result
// is raw itself or, when something was replaced, a copy.
func clean(raw []byte) (cleaned []byte, replaced bool, err *Malformed) {
	if tooDeep(raw) {
		return nil, false, malformed("", "nests deeper than %d levels", MaxDepth)
	}
	if !bytes.Contains(raw, []byte(escapedNUL)) {
		return raw, false, nil
	}
	cleaned, replaced = replaceNUL(raw)
	return cleaned, replaced, nil
}

func tooDeep(raw []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// replaceNUL steps over escapes in pairs, so that an escaped backslash followed
// by u0000 stays what it is.
func replaceNUL(raw []byte) (cleaned []byte, replaced bool) {
	cleaned = bytes.Clone(raw)
	for i := 0; i < len(cleaned); i++ {
		if cleaned[i] != '\\' {
			continue
		}
		if bytes.HasPrefix(cleaned[i:], []byte(escapedNUL)) {
			copy(cleaned[i:], escapedReplacement)
			replaced = true
		}
		i++
	}
	return cleaned, replaced
}
