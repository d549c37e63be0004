package load

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Target is an agent's endpoint.
type Target struct {
	addr string
	tls  *tls.Config // nil for plain HTTP
	head string      // of every request, up to Content-Length
}

// NewTarget reads the URL of an agent. Headers are sent with every request.
func NewTarget(rawURL string, header http.Header) (*Target, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	t := &Target{addr: u.Host}
	port := "80"
	switch u.Scheme {
	case "http":
	case "https":
		port = "443"
		t.tls = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	default:
		return nil, fmt.Errorf("%q is not a URL; write http://host:port or https://host", rawURL)
	}
	if u.Port() == "" {
		t.addr = net.JoinHostPort(u.Hostname(), port)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n",
		u.RequestURI(), u.Host)
	if header.Get("A2A-Version") == "" {
		b.WriteString("A2A-Version: 0.3\r\n")
	}
	if err := header.Write(&b); err != nil {
		return nil, err
	}
	t.head = b.String()
	return t, nil
}

// Request renders a JSON-RPC request. A lastEventID resumes a stream.
func (t *Target) Request(method string, params []byte, lastEventID string) []byte {
	return t.Post(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params), lastEventID)
}

// Post renders a request with any body.
func (t *Target) Post(body []byte, lastEventID string) []byte {
	resume := ""
	if lastEventID != "" {
		resume = "Last-Event-ID: " + lastEventID + "\r\n"
	}
	return fmt.Appendf(nil, "%s%sContent-Length: %d\r\n\r\n%s", t.head, resume, len(body), body)
}

// Conn is one connection. It carries one request at a time.
type Conn struct {
	c     net.Conn
	r     *bufio.Reader // the answer
	lines *bufio.Reader // the body of a stream
	body  []byte
	id    []byte // of the last document of a stream
	last  bool   // the server accepts no further request on it
}

// Dial connects to the target.
func (t *Target) Dial(ctx context.Context) (*Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", t.addr)
	if err != nil {
		return nil, err
	}
	if t.tls != nil {
		secured := tls.Client(c, t.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, err
		}
		c = secured
	}
	return &Conn{c: c, r: bufio.NewReaderSize(c, 64<<10), lines: bufio.NewReaderSize(nil, 64<<10)}, nil
}

// Close closes the connection and aborts the request under way.
func (c *Conn) Close() error { return c.c.Close() }

// SetDeadline bounds the following reads and writes.
func (c *Conn) SetDeadline(t time.Time) error { return c.c.SetDeadline(t) }

// StatusError is an answer other than 200.
type StatusError struct {
	Status int
	Body   string // its beginning
}

func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.Status, e.Body) }

// RPCError is a JSON-RPC error.
type RPCError struct {
	Code    int
	Message string
}

func (e *RPCError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// Call sends a request and returns the body of the answer. The body is valid until the next call.
func (c *Conn) Call(req []byte) ([]byte, error) {
	h, err := c.send(req)
	if err != nil {
		return nil, err
	}
	if h.stream {
		return nil, errors.New("the server answered with a stream instead of one document")
	}
	return c.whole(h)
}

// whole reads a body that is not a stream.
func (c *Conn) whole(h head) (body []byte, err error) {
	if h.length >= 0 {
		if cap(c.body) < h.length {
			c.body = make([]byte, h.length)
		}
		c.body = c.body[:h.length]
		_, err = io.ReadFull(c.r, c.body)
	} else {
		c.body, err = io.ReadAll(c.reader(h))
		if err == nil {
			err = c.after(h)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case h.status != http.StatusOK:
		return nil, &StatusError{h.status, strings.TrimSpace(string(c.body[:min(len(c.body), 300)]))}
	case bytes.Contains(c.body, []byte(`"error":`)) && refused(c.body) != nil:
		return nil, refused(c.body)
	}
	return c.body, nil
}

// Stream sends a request and calls each with every document of the stream until the server ends it. The data is valid
// during the call. An error of each ends the stream early.
func (c *Conn) Stream(req []byte, each func(data []byte) error) error {
	h, err := c.send(req)
	if err != nil {
		return err
	}
	if !h.stream {
		if _, err := c.whole(h); err != nil {
			return err
		}
		return errors.New("the server did not answer with a stream")
	}
	c.lines.Reset(c.reader(h))
	for {
		line, err := c.line()
		if errors.Is(err, io.EOF) {
			return c.after(h)
		}
		if err != nil {
			return err
		}
		if id, ok := bytes.CutPrefix(line, []byte("id:")); ok {
			c.id = append(c.id[:0], bytes.TrimSpace(id)...)
		}
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if err := each(bytes.TrimSpace(data)); err != nil {
				return err
			}
		}
	}
}

// LastEventID returns the id of the last document that a stream on this connection has sent, which resumes it, or "".
func (c *Conn) LastEventID() string { return string(c.id) }

// line reads a line of a stream without its end.
func (c *Conn) line() ([]byte, error) {
	line, err := c.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		c.body = append(c.body[:0], line...)
		line, err = c.lines.ReadBytes('\n')
		c.body = append(c.body, line...)
		line = c.body
	}
	return line, err
}

// head has the used parts of an answer's head.
type head struct {
	status  int
	length  int // -1 if missing
	chunked bool
	closing bool
	stream  bool
}

func (c *Conn) send(req []byte) (head, error) {
	if _, err := c.c.Write(req); err != nil {
		return head{}, err
	}
	h := head{length: -1}
	status, err := c.r.ReadSlice('\n')
	if err != nil {
		return h, err
	}
	if len(status) < len("HTTP/1.1 200") || !bytes.HasPrefix(status, []byte("HTTP/1.")) {
		return h, fmt.Errorf("not an HTTP/1 response: %q", status[:min(len(status), 40)])
	}
	if h.status, err = strconv.Atoi(string(status[9:12])); err != nil {
		return h, fmt.Errorf("not an HTTP/1 response: %q", status[:min(len(status), 40)])
	}
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return h, err
		}
		if len(line) <= 2 {
			c.last = h.closing || (h.length < 0 && !h.chunked)
			return h, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case is(name, "Content-Length"):
			if h.length, err = strconv.Atoi(string(value)); err != nil {
				return h, fmt.Errorf("Content-Length: %w", err)
			}
		case is(name, "Transfer-Encoding"):
			h.chunked = is(value, "chunked")
		case is(name, "Connection"):
			h.closing = is(value, "close")
		case is(name, "Content-Type"):
			h.stream = bytes.HasPrefix(bytes.ToLower(value), []byte("text/event-stream"))
		}
	}
}

func is(name []byte, want string) bool {
	return len(name) == len(want) && strings.EqualFold(string(name), want)
}

func (c *Conn) reader(h head) io.Reader {
	switch {
	case h.chunked:
		return httputil.NewChunkedReader(c.r)
	case h.length >= 0:
		return io.LimitReader(c.r, int64(h.length))
	}
	return c.r
}

// after prepares the connection for the next request after a body was read.
func (c *Conn) after(h head) error {
	for h.chunked { // the trailer
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
	}
	return nil
}

// refused returns the error of a JSON-RPC answer.
func refused(body []byte) error {
	var answer struct{ Error *RPCError }
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("the answer is not JSON-RPC: %w", err)
	}
	if answer.Error == nil {
		return nil
	}
	return answer.Error
}
