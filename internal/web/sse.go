package web

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

// EventWriter writes one stream. It belongs to one goroutine. After an error it cannot write any more:
// the client is gone, and resumes by the last id it saw.
type EventWriter struct {
	to      transport
	timeout time.Duration
	buf     *[]byte // of buffers; nil while no event is waiting
	large   []insert
}

// insert is a large part of an event that follows the first bytes of the buffer. It stays where it
// is, because all streams that show the event share it.
type insert struct {
	at   int
	part []byte
}

// copied is the size in bytes up to which parts of events are copied to the buffer.
const copied = 16 << 10

// transport is the destination of a stream.
type transport interface {
	SetWriteDeadline(t time.Time) error
	Write(p []byte) (int, error)
	Flush() error
}

// StartEvents sends the headers of a stream. The stream ends when its client reads nothing for longer
// than timeout, so that a dead client holds nothing.
func StartEvents(w http.ResponseWriter, timeout time.Duration) *EventWriter {
	announce(w.Header())
	w.WriteHeader(http.StatusOK)
	return &EventWriter{to: response{http.NewResponseController(w), w}, timeout: timeout}
}

func announce(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
}

// response writes through net/http.
type response struct {
	*http.ResponseController
	w http.ResponseWriter
}

func (r response) Write(p []byte) (int, error) { return r.w.Write(p) }

// Event adds an event to the next Flush. data is one document, in parts and without line breaks. An
// empty id is left out. The caller must not change data before the Flush.
func (s *EventWriter) Event(id []byte, data ...[]byte) {
	b := s.added()
	if len(id) > 0 {
		b = append(b, "id: "...)
		b = append(b, id...)
		b = append(b, '\n')
	}
	b = append(b, "data: "...)
	for _, part := range data {
		part = oneLine(part)
		if len(part) > copied {
			s.large = append(s.large, insert{len(b), part})
		} else {
			b = append(b, part...)
		}
	}
	*s.buf = append(b, '\n', '\n')
}

// separators are what some clients (httpx-sse before 0.4.2) take for the end of a line. In JSON they occur only in strings.
var separators = [...]struct{ raw, escape []byte }{
	{[]byte("\u2028"), []byte(`\u2028`)}, {[]byte("\u2029"), []byte(`\u2029`)}, {[]byte("\u0085"), []byte(`\u0085`)},
}

// oneLine escapes the line separators of Unicode in JSON. Without one, it returns the same bytes.
func oneLine(document []byte) []byte {
	for _, s := range separators {
		if bytes.Contains(document, s.raw) {
			document = bytes.ReplaceAll(document, s.raw, s.escape)
		}
	}
	return document
}

// Name sets the name of the next event.
func (s *EventWriter) Name(name string) {
	b := append(s.added(), "event: "...)
	*s.buf = append(append(b, name...), '\n')
}

// KeepAlive adds a comment: clients ignore it, and proxies see activity.
func (s *EventWriter) KeepAlive() { *s.buf = append(s.added(), ": keep-alive\n\n"...) }

// buffers is a shared pool, so that a quiet stream holds no buffer.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooled is the size in bytes above which a buffer does not return to the pool.
const maxPooled = 256 << 10

func (s *EventWriter) added() []byte {
	if s.buf == nil {
		s.buf = buffers.Get().(*[]byte)
	}
	return *s.buf
}

// piece is the amount, in bytes, that a client must read within one timeout. A client that reads
// steadily gets events of any size.
const piece = 32 << 10

// Flush sends the added events. Its deadline also covers what net/http writes after the handler
// returns. Flush a stream that ends after a silence once more, even if nothing was added: otherwise
// the end of the body exceeds the deadline. net/http clears the deadline before the next request.
func (s *EventWriter) Flush() error {
	s.extend()
	if s.buf != nil {
		b, large := s.buf, s.large
		s.buf, s.large = nil, nil
		err := s.writeAll(*b, large)
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

// writeAll writes a buffer with its inserts.
func (s *EventWriter) writeAll(b []byte, large []insert) error {
	written := 0
	for _, l := range large {
		if err := s.write(b[written:l.at]); err != nil {
			return err
		}
		if err := s.write(l.part); err != nil {
			return err
		}
		written = l.at
	}
	return s.write(b[written:])
}

func (s *EventWriter) write(b []byte) error {
	for ; len(b) > 0; s.extend() {
		n := min(len(b), piece)
		if _, err := s.to.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (s *EventWriter) extend() {
	// Some ResponseWriters have no deadlines (tests). The stream works without.
	_ = s.to.SetWriteDeadline(time.Now().Add(s.timeout))
}

// Full reports whether the stream should be flushed before it takes more.
func (s *EventWriter) Full() bool { return s.buf != nil && (len(s.large) > 0 || len(*s.buf) >= piece) }
