package rawjson

import (
	"bytes"
	"strconv"
	"unicode/utf16"
)

// An escape of a UTF-16 code unit has four hexadecimal digits.
const (
	escape = `\u`
	size   = len(`\ud800`)
)

// Repair returns JSON in which U+FFFD replaces each half of a surrogate pair, and reports whether it
// replaced one. It does not change text, and returns it if it replaced nothing.
func Repair(text []byte) (out []byte, repaired bool) {
	out = text
	for i := 0; ; {
		next := bytes.IndexByte(out[i:], '\\')
		if next < 0 {
			return out, repaired
		}
		i += next
		switch kind(out[i:]) {
		case high:
			if kind(out[i+size:]) == low {
				i += 2 * size
				continue
			}
		case low:
		case other: // skip both bytes: what follows an escaped backslash is no escape
			i = min(i+2, len(out))
			continue
		}
		if !repaired {
			out, repaired = bytes.Clone(text), true
		}
		i += copy(out[i:], `\ufffd`)
	}
}

// WithoutNUL returns JSON in which U+FFFD replaces escaped NUL characters, which the log cannot store. It does not change text, and
// returns it if it replaced nothing.
func WithoutNUL(text []byte) (out []byte, replaced bool) {
	if !bytes.Contains(text, nulEscape) {
		return text, false
	}
	text = bytes.Clone(text)
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if bytes.HasPrefix(text[i:], nulEscape) {
			copy(text[i:], `\ufffd`)
			replaced = true
		}
		i++ // skip both bytes: u0000 after an escaped backslash is text
	}
	return text, replaced
}

// Kinds of escapes.
const (
	other = iota
	high
	low
)

// kind returns the kind of the escape at the beginning of a text.
func kind(text []byte) int {
	if len(text) < size || string(text[:len(escape)]) != escape {
		return other
	}
	n, err := strconv.ParseUint(string(text[len(escape):size]), 16, 16)
	switch {
	case err != nil || !utf16.IsSurrogate(rune(n)):
		return other
	case n < 0xdc00:
		return high
	}
	return low
}
