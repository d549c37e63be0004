// Package body reads request bodies, in the same way for every binding over HTTP.
package body

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/strictjson"
)

// Limits bound a body. A number that is 0 means its default.
type Limits struct {
	Size    int64         // default 16 MiB
	Depth   int           // nesting of objects and arrays; default strictjson.MaxDepth
	Timeout time.Duration // to read the whole body, or to write an answer; default 60 s
	// ReserveNothing reserves no memory for an announced length: the buffer grows as bytes arrive.
	ReserveNothing bool
}

// OrDefaults replaces missing limits by their defaults.
func (l Limits) OrDefaults() Limits {
	l.Size = cmp.Or(l.Size, 16<<20)
	l.Depth = cmp.Or(l.Depth, strictjson.MaxDepth)
	l.Timeout = cmp.Or(l.Timeout, 60*time.Second)
	return l
}

// Fault says why a body was not read.
type Fault struct {
	Status int // HTTP status: 413, 408, or 400 when the client broke off
	Msg    string
}

// Begin sets the read deadline of the body. The deadline stays when the body is refused: net/http
// then reads on for a while to reuse the connection.
func (l Limits) Begin(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(l.Timeout))
}

// Read reads the body. After a fault that leaves the body unread, the server closes the connection.
func (l Limits) Read(w http.ResponseWriter, r *http.Request) ([]byte, *Fault) {
	if r.ContentLength > l.Size {
		return nil, l.tooLarge(w)
	}
	announced := r.ContentLength
	if l.ReserveNothing {
		announced = 0
	}
	content, err := readAll(http.MaxBytesReader(w, r.Body, l.Size), announced)
	if err == nil {
		// The answer may be a stream that lives for hours. The server reads nothing during that
		// time.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		return content, nil
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, l.tooLarge(w)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, &Fault{http.StatusRequestTimeout, "the body did not arrive in time"}
	}
	return nil, &Fault{http.StatusBadRequest, "the body is incomplete"}
}

func (l Limits) tooLarge(w http.ResponseWriter) *Fault {
	w.Header().Set("Connection", "close")
	return &Fault{http.StatusRequestEntityTooLarge, "the limit is " + strconv.FormatInt(l.Size, 10) + " bytes"}
}

// maxAnnounced bounds the memory that an announced length reserves before the body arrives, in
// bytes.
const maxAnnounced = 256 << 10

// readAll reads a body whose length the client may have announced.
func readAll(r io.Reader, announced int64) ([]byte, error) {
	content := bytes.NewBuffer(make([]byte, 0, min(max(announced, 0), maxAnnounced)+bytes.MinRead))
	_, err := content.ReadFrom(r)
	return content.Bytes(), err
}

// IsJSON reports whether a Content-Type is JSON, or absent. It ignores parameters: reading the body
// detects a charset other than UTF-8, and ASCII does no harm.
func IsJSON(contentType string) bool {
	if contentType == "" || contentType == "application/json" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return false
	}
	return media == "application/json" || strings.HasSuffix(media, "+json")
}
