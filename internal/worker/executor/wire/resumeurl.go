package wire

import (
	"encoding/base64"
	"mime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// resume is the member of ask and auth events that makes the resume URL valid.
type resume struct {
	For  *float64 `json:"for,omitzero"`
	Show bool     `json:"show,omitzero"`
}

func (r *resume) executor() (*executor.Resume, *Malformed) {
	out := &executor.Resume{Show: r.Show}
	if r.For != nil {
		if *r.For <= 0 || *r.For > executor.MaxResume.Seconds() {
			return nil, malformed("for", "must be more than 0 and at most %.0f seconds", executor.MaxResume.Seconds())
		}
		out.For = max(time.Duration(*r.For*float64(time.Second)), 1)
	}
	return out, nil
}

// resumeDocument is the member of the run document with the resume URL.
type resumeDocument struct {
	URL string `json:"url"`
}

// resumed has the members of input for a request by resume URL. At most one of the last three is there.
type resumed struct {
	Method      string         `json:"method,omitempty"`
	Query       string         `json:"query,omitempty"`
	ContentType string         `json:"contentType,omitempty"`
	Data        jsontext.Value `json:"data,omitzero"`
	Text        *string        `json:"text,omitzero"`
	Bytes       *string        `json:"bytes,omitzero"`
}

// fromResumed shows a body as JSON if its type says so and it is JSON that this server also takes from agents; else as
// text if it is UTF-8.
func fromResumed(in *executor.Resumed) (out resumed) {
	if in == nil {
		return out
	}
	out = resumed{Method: in.Method, Query: in.Query, ContentType: in.ContentType}
	switch {
	case len(in.Body) == 0:
	case isJSON(in.ContentType) && !task.Deeper(in.Body, MaxDepth) && jsontext.Value(in.Body).IsValid():
		out.Data = jsontext.Value(in.Body)
	case utf8.Valid(in.Body):
		text := string(in.Body)
		out.Text = &text
	default:
		text := base64.StdEncoding.EncodeToString(in.Body)
		out.Bytes = &text
	}
	return out
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// executor returns the request. Its body is as it came, except for white space around JSON.
func (r *resumed) executor() (*executor.Resumed, *Malformed) {
	out := &executor.Resumed{Method: r.Method, Query: r.Query, ContentType: r.ContentType}
	switch {
	case r.Data != nil:
		out.Body = r.Data
	case r.Text != nil:
		out.Body = []byte(*r.Text)
	case r.Bytes != nil:
		var ok bool
		if out.Body, ok = task.DecodeBase64([]byte(*r.Bytes)); !ok {
			return nil, malformed("bytes", "must be base64")
		}
	}
	return out, nil
}
