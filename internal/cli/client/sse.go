package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxFrame bounds one event, in bytes, so that a broken server cannot fill the memory.
const maxFrame = 64 << 20

var errFrame = errors.New("an event of the stream is larger than 64 MiB")

// frame is one dispatched server-sent event.
type frame struct {
	ID   string // the last id seen; an event without an id inherits it
	Data []byte
}

// frames reads server-sent events as the HTML standard defines them. Lines end in LF, CR or CRLF. Data lines are joined
// by LF. Comments and unknown fields are skipped. An event that the end of the stream cuts short is dropped.
type frames struct {
	r      *bufio.Reader
	id     string
	skipLF bool // the last line ended in CR; a following LF belongs to it
	start  bool
}

func newFrames(r io.Reader) *frames {
	return &frames{r: bufio.NewReaderSize(r, 32<<10), start: true}
}

// next returns the next event that has data. At the end of the stream the error is io.EOF.
func (f *frames) next() (frame, error) {
	var data []byte
	hasData := false
	for {
		line, err := f.line()
		if err != nil {
			return frame{}, err
		}
		if len(line) == 0 {
			if hasData {
				return frame{ID: f.id, Data: data}, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if hasData {
				data = append(data, '\n')
			}
			if len(data)+len(value) > maxFrame {
				return frame{}, errFrame
			}
			data = append(data, value...)
			hasData = true
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				f.id = string(value)
			}
		}
	}
}

// line reads one line without its end. It never waits for the byte after a CR, because that byte may belong to a later
// event.
func (f *frames) line() ([]byte, error) {
	var line []byte
	for {
		b, err := f.r.ReadByte()
		if err != nil {
			return nil, err
		}
		if f.skipLF {
			f.skipLF = false
			if b == '\n' {
				continue
			}
		}
		if b == '\n' || b == '\r' {
			f.skipLF = b == '\r'
			break
		}
		if len(line) >= maxFrame {
			return nil, errFrame
		}
		line = append(line, b)
	}
	if f.start {
		f.start = false
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	return line, nil
}
