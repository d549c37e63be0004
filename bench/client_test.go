package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// conn is the least HTTP client that does: the load shares its cores with what it
// measures, and net/http would take as much of them as the server.
type conn struct {
	c net.Conn
	r *bufio.Reader
	b []byte
}

func dial(addr string) (*conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, r: bufio.NewReaderSize(c, 64<<10)}, nil
}

func (c *conn) close() { _ = c.c.Close() }

func request(method, text string) []byte {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"message":{"kind":"message","messageId":"m-1","role":"user","parts":[{"kind":"text","text":%q}]},"configuration":{"historyLength":0}}}`, method, text)
	return []byte("POST / HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// call sends a request and returns the body of a plain answer, valid until the next call.
func (c *conn) call(req []byte) ([]byte, error) {
	if _, err := c.c.Write(req); err != nil {
		return nil, err
	}
	length, _, err := c.head()
	if err != nil {
		return nil, err
	}
	if cap(c.b) < length {
		c.b = make([]byte, length)
	}
	c.b = c.b[:length]
	_, err = io.ReadFull(c.r, c.b)
	return c.b, err
}

func (c *conn) head() (length int, chunked bool, err error) {
	status, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, false, err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200")) {
		return 0, false, fmt.Errorf("unexpected answer %s", strings.TrimSpace(string(status)))
	}
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, false, err
		}
		if len(line) <= 2 {
			return length, chunked, nil
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(v))); err != nil {
				return 0, false, err
			}
		}
		chunked = chunked || bytes.HasPrefix(line, []byte("Transfer-Encoding: chunked"))
	}
}

// stream sends a request and calls each for every SSE data line until the stream ends.
func (c *conn) stream(req []byte, each func(data []byte)) error {
	if _, err := c.c.Write(req); err != nil {
		return err
	}
	if _, chunked, err := c.head(); err != nil || !chunked {
		return fmt.Errorf("not a stream: %w", err)
	}
	var rest []byte
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return err
		}
		if cap(c.b) < int(n)+2 {
			c.b = make([]byte, n+2)
		}
		c.b = c.b[:n+2]
		if _, err := io.ReadFull(c.r, c.b); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		rest = append(rest, c.b[:n]...)
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			if data, ok := bytes.CutPrefix(rest[:i], []byte("data: ")); ok {
				each(data)
			}
			rest = rest[i+1:]
		}
	}
}

// stamp finds the emission time in a chunk of the demo agent: index, space, unix nanoseconds.
func stamp(data []byte) (time.Time, bool) {
	i := bytes.Index(data, []byte(`"text":"`))
	if i < 0 || len(data) < i+8+9+19 {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(string(data[i+8+9:i+8+9+19]), 10, 64)
	return time.Unix(0, n), err == nil
}

// taskID finds the task's id in the first document of a stream.
func taskID(data []byte) string {
	const mark = `"kind":"task","id":"`
	i := bytes.Index(data, []byte(mark))
	if i < 0 {
		return ""
	}
	return string(data[i+len(mark) : i+len(mark)+36])
}
