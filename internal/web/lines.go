package web

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrCut says that a stream ended inside an event. Only the transport knows whether the writer omitted the last line
// end or the connection broke.
var ErrCut = errors.New("the stream ended inside an event")

// LineError says that a line of a stream cannot be read.
type LineError struct {
	Line    int // from 1
	Problem string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Problem) }

// Stream reads events from NDJSON or server-sent events, one at a time. It bounds the size of each event, but not their
// number.
type Stream struct {
	in   *bufio.Reader
	max  int
	line int
	buf  []byte
	next func(*Stream) ([]byte, int, error)
	data []byte // of the server-sent event being read
	id   string

	hold func(n int) error // waits for the memory of an event of n bytes; may be nil
	drop func()            // returns it
}

// Lines reads NDJSON. Empty lines are skipped.
func Lines(r io.Reader, maxEvent int) *Stream {
	return &Stream{in: bufio.NewReaderSize(r, 64<<10), max: maxEvent, next: (*Stream).nextLine}
}

// ServerSentEvents reads text/event-stream and uses only the fields data and id.
func ServerSentEvents(r io.Reader, maxEvent int) *Stream {
	return &Stream{in: bufio.NewReaderSize(&lineFeeds{in: r}, 64<<10), max: maxEvent, next: (*Stream).nextServerSent}
}

// Next returns an event and the line where it begins. The bytes are valid until the next call. At the end the error is
// io.EOF. If the last event has no end, the error is ErrCut, and the bytes come with it.
func (s *Stream) Next() (raw []byte, line int, err error) {
	s.forget()
	return s.next(s)
}

// ID returns the newest id of server-sent events, or "". An event without an id inherits it.
func (s *Stream) ID() string { return s.id }

// Bound makes the stream call hold before it keeps more of an event, with the size that the event then has. drop returns that memory.
func (s *Stream) Bound(hold func(n int) error, drop func()) { s.hold, s.drop = hold, drop }

// Close drops the last event and its memory.
func (s *Stream) Close() { s.forget() }

// forget drops the last event, and the buffers of a large one.
func (s *Stream) forget() {
	s.buf, s.data = small(s.buf), small(s.data)
	if s.drop != nil {
		s.drop()
	}
}

// largest is the size in bytes of the largest buffer that a stream keeps.
const largest = 64 << 10

// small returns an empty buffer: the same one, unless a large event has made it large.
func small(buf []byte) []byte {
	if cap(buf) > largest {
		return nil
	}
	return buf[:0]
}

// keep waits for the memory of n more bytes.
func (s *Stream) keep(n int) error {
	if s.hold == nil {
		return nil
	}
	return s.hold(len(s.buf) + len(s.data) + n)
}

func (s *Stream) nextLine() ([]byte, int, error) {
	for {
		raw, err := s.readLine()
		if err != nil || len(raw) > 0 {
			return raw, s.line, err
		}
	}
}

func (s *Stream) nextServerSent() ([]byte, int, error) {
	s.data = s.data[:0]
	began := 0
	for {
		raw, err := s.readLine()
		cut := errors.Is(err, ErrCut)
		if bytes.HasPrefix(raw, []byte("{")) {
			// The standard ignores such a field, but here it would be a lost event.
			return nil, s.line, &LineError{s.line, `is not a line of server-sent events: "data: " is missing`}
		}
		if id, ok := field(raw, "id"); ok && err == nil && bytes.IndexByte(id, 0) < 0 {
			s.id = string(id)
		}
		if value, ok := field(raw, "data"); ok && (err == nil || cut) {
			if began == 0 {
				began = s.line
			} else {
				s.data = append(s.data, '\n')
			}
			if err := s.keep(len(value)); err != nil {
				return nil, began, err
			}
			if s.data = append(s.data, value...); len(s.data) > s.max {
				return nil, began, s.tooLong(began)
			}
		}
		empty := len(bytes.TrimSpace(s.data)) == 0 // by the standard, this is no event
		switch {
		case !empty && (cut || errors.Is(err, io.EOF)):
			return s.data, began, ErrCut
		case cut:
			return nil, s.line, io.EOF
		case err != nil:
			return nil, s.line, err
		case len(raw) == 0 && !empty:
			return s.data, began, nil
		case len(raw) == 0:
			s.data, began = s.data[:0], 0
		}
	}
}

// lineFeeds ends lines with LF that end with LF, CR or CRLF.
type lineFeeds struct {
	in   io.Reader
	skip bool // the last byte was a CR: a following LF belongs to it
}

// Read implements io.Reader.
func (l *lineFeeds) Read(p []byte) (int, error) {
	for {
		n, err := l.in.Read(p)
		kept := p[:0]
		for _, b := range p[:n] {
			if b == '\r' || b != '\n' || !l.skip {
				kept = append(kept, b)
			}
			if l.skip = b == '\r'; l.skip {
				kept[len(kept)-1] = '\n'
			}
		}
		if len(kept) > 0 || err != nil || n == 0 {
			return len(kept), err
		}
	}
}

// field returns the value of a line, if it is the field name. Comments, event names and retry hints have no meaning here.
func field(line []byte, name string) (value []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(name))
	value, colon := bytes.CutPrefix(rest, []byte(":"))
	return bytes.TrimPrefix(value, []byte(" ")), ok && (colon || len(rest) == 0)
}

// byteOrderMark is what some platforms write before UTF-8. It is not part of an event.
var byteOrderMark = []byte("\ufeff")

// readLine returns a line without its end and without surrounding JSON white space.
func (s *Stream) readLine() ([]byte, error) {
	raw, err := s.rawLine()
	if s.line == 1 {
		if raw = bytes.TrimPrefix(raw, byteOrderMark); len(raw) == 0 && errors.Is(err, ErrCut) {
			err = io.EOF
		}
	}
	return raw, err
}

func (s *Stream) rawLine() ([]byte, error) {
	s.line++
	s.buf = s.buf[:0]
	for {
		piece, err := s.in.ReadSlice('\n')
		if len(s.buf)+len(piece) > s.max+len("data: \r\n") {
			return nil, s.tooLong(s.line)
		}
		if err == nil && len(s.buf) == 0 {
			return bytes.TrimRight(piece, " \t\r\n"), nil
		}
		if err := s.keep(len(piece)); err != nil {
			return nil, err
		}
		s.buf = append(s.buf, piece...)
		switch {
		case err == nil:
			return bytes.TrimRight(s.buf, " \t\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			if raw := bytes.TrimRight(s.buf, " \t\r"); len(raw) > 0 {
				return raw, ErrCut
			}
			return nil, io.EOF
		default:
			return nil, err
		}
	}
}

func (s *Stream) tooLong(line int) error {
	return &LineError{line, fmt.Sprintf("is longer than the %d bytes that an event may have", s.max)}
}
