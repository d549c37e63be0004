package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
)

// BodyLimits bound a body. A number that is 0 means its default.
type BodyLimits struct {
	Size    int64         // default 16 MiB
	Depth   int           // nesting of objects and arrays; default rawjson.MaxDepth
	Timeout time.Duration // to read the whole body, or to write an answer; default 60 s
	// ReserveNothing reserves no memory for an announced length: the buffer grows as bytes arrive.
	ReserveNothing bool
}

// OrDefaults replaces missing limits by their defaults.
func (l BodyLimits) OrDefaults() BodyLimits {
	l.Size = cmp.Or(l.Size, 16<<20)
	l.Depth = cmp.Or(l.Depth, rawjson.MaxDepth)
	l.Timeout = cmp.Or(l.Timeout, 60*time.Second)
	return l
}

// BodyFault says why a body was not read.
type BodyFault struct {
	Status int // HTTP status: 413, 415, 408, 400 when the client broke off, or 0 with Err
	Msg    string
	Err    error // the server has no memory for the body now
}

// Error implements error.
func (f *BodyFault) Error() string { return f.Msg }

// Unwrap returns why the server could not read the body.
func (f *BodyFault) Unwrap() error { return f.Err }

// Begin sets the read deadline of the body. The deadline stays when the body is refused: net/http
// then reads on for a while to reuse the connection.
func (l BodyLimits) Begin(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(l.Timeout))
}

// Read reads the body, which the account of its request takes bytes for. After a fault that leaves
// the body unread, the server closes the connection.
func (l BodyLimits) Read(w http.ResponseWriter, r *http.Request, account *limit.Account) ([]byte, *BodyFault) {
	if r.ContentLength > l.Size {
		return nil, l.tooLarge(w)
	}
	content, full, err := l.readAll(r.Context(), http.MaxBytesReader(w, r.Body, l.Size), r.ContentLength, account)
	if full != nil {
		w.Header().Set("Connection", "close")
		return nil, &BodyFault{Err: full}
	}
	if err == nil {
		// The answer may be a stream that lives for hours. The server reads nothing during that
		// time.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		if coding := r.Header.Get("Content-Encoding"); coding != "" && len(content) > 0 && !strings.ContainsRune("{[ \t\r\n", rune(content[0])) {
			w.Header().Set("Accept-Encoding", "identity") // RFC 9110, 15.5.16
			return nil, &BodyFault{Status: http.StatusUnsupportedMediaType, Msg: "Content-Encoding: the body must not be compressed"}
		}
		return content, nil
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, l.tooLarge(w)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, &BodyFault{Status: http.StatusRequestTimeout, Msg: "the body did not arrive in time"}
	}
	return nil, &BodyFault{Status: http.StatusBadRequest, Msg: "the body is incomplete"}
}

func (l BodyLimits) tooLarge(w http.ResponseWriter) *BodyFault {
	w.Header().Set("Connection", "close")
	return &BodyFault{Status: http.StatusRequestEntityTooLarge, Msg: "the limit is " + strconv.FormatInt(l.Size, 10) + " bytes"}
}

// readAll reads a body whose length the client may have announced; announced is negative if not. It
// takes bytes before it reads them: first those of a small body, then all that are announced, or
// twice as many each time. full says that the server has none.
func (l BodyLimits) readAll(ctx context.Context, r io.Reader, announced int64, account *limit.Account) (content []byte, full, err error) {
	if l.ReserveNothing {
		announced = -1
	}
	most := announced
	if announced < 0 {
		most = l.Size
	}
	var read bytes.Buffer
	for step := min(most, limit.SmallBytes); ; {
		if full := account.Body(ctx, step); full != nil {
			return nil, full, nil
		}
		if !l.ReserveNothing {
			read.Grow(int(step) - read.Len() + bytes.MinRead)
		}
		_, err := io.CopyN(&read, r, step-int64(read.Len()))
		switch {
		case errors.Is(err, io.EOF):
			return read.Bytes(), nil, nil
		case err != nil:
			return nil, nil, err
		case announced >= 0 && step == announced:
			return read.Bytes(), nil, nil
		case step == most:
			// A body of exactly the limit ends here; a larger one is refused.
			_, err := io.CopyN(io.Discard, r, 1)
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return read.Bytes(), nil, err
		case announced >= 0:
			step = announced
		default:
			step = min(2*step, most)
		}
	}
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
