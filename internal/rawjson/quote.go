package rawjson

import (
	"math/bits"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendQuoted appends s as a JSON string with only the escapes that JSON needs. Bytes that are not UTF-8 become U+FFFD.
//
// It returns what jsontext.AppendQuote does. It looks at eight bytes of ASCII at a time, because the server quotes every chunk twice:
// for the log and for the stream.
func AppendQuoted(dst []byte, s string) []byte {
	dst = slices.Grow(dst, len(s)+len(`""`))
	dst = append(dst, '"')
	for {
		n := plain(s)
		dst = append(dst, s[:n]...)
		s = s[n:]
		switch {
		case s == "":
			return append(dst, '"')
		case s[0] < 0x80:
			dst = appendEscape(dst, s[0])
			s = s[1:]
		default:
			n = len(dst)
			dst, _ = jsontext.AppendQuote(dst, s) // the error only reports a replacement
			return slices.Delete(dst, n, n+len(`"`))
		}
	}
}

// plain is the number of bytes of s before the first one that needs an escape or is not ASCII.
func plain(s string) int {
	const each, high = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(s)-n >= 8; n += 8 {
		b := s[n : n+8]
		x := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		// The subtractions set the high bit of the lowest byte that is less than a space, a quote or a backslash. They may set bits
		// above it, but none below.
		if found := (x | (x - each*' ') | (x ^ each*'"' - each) | (x ^ each*'\\' - each)) & high; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(s) && s[n] >= ' ' && s[n] < 0x80 && s[n] != '"' && s[n] != '\\' {
		n++
	}
	return n
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
