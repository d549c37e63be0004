package web

import (
	"io"
	"net/http"
	"time"
)

// How much of a body is read after the answer, and for how long.
const (
	restBytes = 64 << 20
	restTime  = 30 * time.Second
	restPause = 5 * time.Second // for a piece
	restPiece = 64 << 10
	restSmall = 256 << 10
)

// ReadOn lets h answer before it has read a whole body, as it does when it refuses one. Over HTTP/1 the server closes the connection
// after such an answer, and a client that is still sending would get a reset instead of it. So ReadOn first reads the rest, at most
// 64 MiB and for 30 s.
func ReadOn(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 || r.ProtoMajor != 1 {
			h.ServeHTTP(w, r)
			return
		}
		b := &watched{ReadCloser: r.Body}
		r.Body = b
		h.ServeHTTP(w, r)
		if b.ended || !b.begun && r.Header.Get("Expect") != "" { // the client waits for a word before it sends
			return
		}
		if _, err := w.Write(nil); err != nil { // a stream has taken the connection
			return
		}
		if w.Header().Get("Connection") != "close" { // net/http reads so much before it answers
			if n, _ := io.CopyN(io.Discard, b, restSmall+1); n <= restSmall {
				return
			}
		}
		c := http.NewResponseController(w)
		if c.Flush() != nil {
			return
		}
		end := time.Now().Add(restTime)
		for left := int64(restBytes); left > 0 && !b.ended; {
			until := time.Now().Add(restPause)
			if until.After(end) {
				until = end
			}
			if c.SetReadDeadline(until) != nil {
				return
			}
			n, _ := io.CopyN(io.Discard, b, min(left, restPiece))
			left -= n
		}
	})
}

// watched is a body that knows how far it was read.
type watched struct {
	io.ReadCloser
	begun, ended bool
}

func (b *watched) Read(p []byte) (int, error) {
	b.begun = true
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}
