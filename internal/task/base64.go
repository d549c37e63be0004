package task

import (
	"bytes"
	"encoding/base64"
)

// DecodeBase64 decodes base64 as clients and agents write it: in either alphabet, with or without padding, and with line breaks,
// which many encoders add (RFC 4648, 3).
func DecodeBase64(text []byte) (decoded []byte, ok bool) {
	const breaks = "\r\n"
	text = bytes.TrimRight(text, breaks)
	bare := bytes.TrimRight(text, "="+breaks)
	padding := bytes.Count(text[len(bare):], []byte("="))
	encoding := base64.RawStdEncoding // it passes over line breaks
	if bytes.ContainsAny(bare, "-_") {
		encoding = base64.RawURLEncoding
	}
	out := make([]byte, encoding.DecodedLen(len(bare)))
	n, err := encoding.Decode(out, bare)
	if err != nil || padding > 2 {
		return nil, false
	}
	return out[:n], true
}
