// Package sse writes server-sent events to clients that may be slow or dead.
package sse

import (
	"net/http"
	"strconv"
	"time"
)

// Writer writes one stream. It belongs to one goroutine. After an error nothing
// more can be written: the client is gone, and resumes by the last id it saw.
type Writer struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	buf     []byte
}

// Start sends the headers of a stream. A write that takes longer than timeout
// ends it, so that a dead client holds nothing.
func Start(w http.ResponseWriter, timeout time.Duration) *Writer {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return &Writer{w: w, rc: http.NewResponseController(w), timeout: timeout}
}

// Event adds an event to the next Flush. data is the parts of one document
// without line breaks; id 0 leaves the id out.
func (s *Writer) Event(id int64, data ...[]byte) {
	if id > 0 {
		s.buf = append(s.buf, "id: "...)
		s.buf = strconv.AppendInt(s.buf, id, 10)
		s.buf = append(s.buf, '\n')
	}
	s.buf = append(s.buf, "data: "...)
	for _, part := range data {
		s.buf = append(s.buf, part...)
	}
	s.buf = append(s.buf, '\n', '\n')
}

// KeepAlive adds a comment, which clients ignore and proxies count as life.
func (s *Writer) KeepAlive() { s.buf = append(s.buf, ": keep-alive\n\n"...) }

// maxIdleBuffer is what a quiet stream may keep allocated.
const maxIdleBuffer = 16 << 10

// Flush sends what was added. Its deadline also holds for what net/http writes when
// the handler returns, so a stream that ends after a silence is flushed once more,
// even if nothing was added: the end of the body would come too late otherwise.
// Before the next request net/http clears the deadline.
func (s *Writer) Flush() error {
	// Not every ResponseWriter has deadlines (tests); a stream without is still a stream.
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.timeout))
	if len(s.buf) > 0 {
		if _, err := s.w.Write(s.buf); err != nil {
			return err
		}
	}
	if cap(s.buf) > maxIdleBuffer {
		s.buf = nil
	}
	s.buf = s.buf[:0]
	return s.rc.Flush()
}

// Full reports whether enough is added to be sent before more is encoded.
func (s *Writer) Full() bool { return len(s.buf) >= 64<<10 }
