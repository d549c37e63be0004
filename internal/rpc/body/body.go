// Package body reads the bodies of requests, the same for every binding over HTTP.
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

// Limits bound a body. The zero value of a number means its default.
type Limits struct {
	Size    int64         // default 16 MiB
	Depth   int           // of nested objects and arrays; default strictjson.MaxDepth
	Timeout time.Duration // for all of it, and for an answer; default 60 s
}

// OrDefaults fills in what was not set.
func (l Limits) OrDefaults() Limits {
	l.Size = cmp.Or(l.Size, 16<<20)
	l.Depth = cmp.Or(l.Depth, strictjson.MaxDepth)
	l.Timeout = cmp.Or(l.Timeout, 60*time.Second)
	return l
}

// Fault says why a body was not read.
type Fault struct {
	Status int // of HTTP: 413, 408, or 400 when the client broke off
	Msg    string
}

// Begin starts the time that the body has. The deadline stays when the body is refused:
// net/http reads on for a while then, to use the connection again.
func (l Limits) Begin(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(l.Timeout))
}

// Read takes the body in. After a fault that leaves it unread the connection is closed.
func (l Limits) Read(w http.ResponseWriter, r *http.Request) ([]byte, *Fault) {
	if r.ContentLength > l.Size {
		return nil, l.tooLarge(w)
	}
	content, err := readAll(http.MaxBytesReader(w, r.Body, l.Size), r.ContentLength)
	if err == nil {
		// The answer may be a stream that lives for hours, during which nothing is read.
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
	return nil, &Fault{http.StatusBadRequest, "the body broke off"}
}

func (l Limits) tooLarge(w http.ResponseWriter) *Fault {
	w.Header().Set("Connection", "close")
	return &Fault{http.StatusRequestEntityTooLarge, "the limit is " + strconv.FormatInt(l.Size, 10) + " bytes"}
}

// maxAnnounced is how much memory the announcement of a body takes.
const maxAnnounced = 256 << 10

// readAll reads a body whose length may be announced.
func readAll(r io.Reader, announced int64) ([]byte, error) {
	content := bytes.NewBuffer(make([]byte, 0, min(max(announced, 0), maxAnnounced)+bytes.MinRead))
	_, err := content.ReadFrom(r)
	return content.Bytes(), err
}

// IsJSON reports whether a Content-Type is of JSON, or absent. It does not look at
// parameters: a body in another charset than UTF-8 is found out when it is read, and an
// ASCII one does no harm.
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
