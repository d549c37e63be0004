// Package sse writes server-sent events to clients that may be slow or dead.
package sse

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Writer writes one stream. It belongs to one goroutine. After an error nothing
// more can be written: the client is gone, and resumes by the last id it saw.
type Writer struct {
	to      transport
	timeout time.Duration
	buf     *[]byte // of buffers; nil while nothing is added
}

// transport is what a stream is written to.
type transport interface {
	SetWriteDeadline(t time.Time) error
	Write(p []byte) (int, error)
	Flush() error
}

// Start sends the headers of a stream. A client that takes nothing for longer than
// timeout ends it, so that a dead one holds nothing.
func Start(w http.ResponseWriter, timeout time.Duration) *Writer {
	announce(w.Header())
	w.WriteHeader(http.StatusOK)
	return &Writer{to: response{http.NewResponseController(w), w}, timeout: timeout}
}

func announce(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
}

// response writes by way of net/http.
type response struct {
	*http.ResponseController
	w http.ResponseWriter
}

func (r response) Write(p []byte) (int, error) { return r.w.Write(p) }

// Event adds an event to the next Flush. data is the parts of one document
// without line breaks; id 0 leaves the id out.
func (s *Writer) Event(id int64, data ...[]byte) {
	b := s.added()
	if id > 0 {
		b = append(b, "id: "...)
		b = strconv.AppendInt(b, id, 10)
		b = append(b, '\n')
	}
	b = append(b, "data: "...)
	for _, part := range data {
		b = append(b, part...)
	}
	*s.buf = append(b, '\n', '\n')
}

// KeepAlive adds a comment, which clients ignore and proxies count as life.
func (s *Writer) KeepAlive() { *s.buf = append(s.added(), ": keep-alive\n\n"...) }

// buffers are shared, so that a quiet stream has none.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooled bounds what a buffer may hold on to after an unusually large event.
const maxPooled = 256 << 10

func (s *Writer) added() []byte {
	if s.buf == nil {
		s.buf = buffers.Get().(*[]byte)
	}
	return *s.buf
}

// piece is what must be taken within one timeout. An event of any size comes through to a
// client that takes it steadily.
const piece = 32 << 10

// Flush sends what was added. Its deadline also holds for what net/http writes when
// the handler returns, so a stream that ends after a silence is flushed once more,
// even if nothing was added: the end of the body would come too late otherwise.
// Before the next request net/http clears the deadline.
func (s *Writer) Flush() error {
	s.extend()
	if s.buf != nil {
		b := s.buf
		s.buf = nil
		err := s.write(*b)
		if cap(*b) <= maxPooled {
			*b = (*b)[:0]
			buffers.Put(b)
		}
		if err != nil {
			return err
		}
	}
	return s.to.Flush()
}

func (s *Writer) write(b []byte) error {
	for ; len(b) > 0; s.extend() {
		n := min(len(b), piece)
		if _, err := s.to.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (s *Writer) extend() {
	// Not every ResponseWriter has deadlines (tests); a stream without is still a stream.
	_ = s.to.SetWriteDeadline(time.Now().Add(s.timeout))
}

// Full reports whether enough is added to be sent before more is encoded.
func (s *Writer) Full() bool { return s.buf != nil && len(*s.buf) >= 64<<10 }
