package a2atest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
)

// Reply is an answer: one result, or a stream of events. Its fields describe the part that was read.
type Reply struct {
	T         testing.TB
	Wire      *Wire
	Header    http.Header
	Streaming bool
	Close     func()

	Last   int64    // number in the id of the last event
	LastID string   // the whole id
	Body   string   // last document
	Task   string   // id
	States []string // as the wire names them

	Rejection
	Challenge string

	read func() (id string, data []byte, err error)
}

// Rejection is how a request is rejected. Status is that of any answer: the number for HTTP, the name for gRPC.
type Rejection struct {
	Status, Reason, RetryAfter, Message string
	Code                                int
}

// Event is a result, with its id if it came on a stream.
type Event struct {
	Seq int64
	Raw []byte
	*Result
}

// NewReply reads an answer that came over HTTP.
func NewReply(t testing.TB, w *Wire, resp *http.Response) *Reply {
	t.Helper()
	r := &Reply{
		T: t, Wire: w, Header: resp.Header, Close: func() { _ = resp.Body.Close() },
		// 204 is an empty stream.
		Streaming: resp.Header.Get("Content-Type") == "text/event-stream" || resp.StatusCode == http.StatusNoContent,
		Challenge: resp.Header.Get("WWW-Authenticate"),
		Rejection: Rejection{Status: strconv.Itoa(resp.StatusCode), RetryAfter: resp.Header.Get("Retry-After")},
	}
	if r.Streaming {
		in := bufio.NewReader(resp.Body)
		r.read = func() (string, []byte, error) { return readFrame(in) }
		return r
	}
	done := false
	r.read = func() (string, []byte, error) {
		if done {
			return "", nil, io.EOF
		}
		done = true
		b, err := io.ReadAll(resp.Body)
		return "", b, err
	}
	return r
}

// NewStream reads a stream of JSON-RPC.
func NewStream(t testing.TB, body io.Reader) *Reply {
	t.Helper()
	in := bufio.NewReader(body)
	return &Reply{T: t, Wire: V03, Streaming: true, Close: func() {}, read: func() (string, []byte, error) { return readFrame(in) }}
}

// readFrame reads a server-sent event: an id, if it has one, and one line of data.
func readFrame(in *bufio.Reader) (id string, data []byte, err error) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if line != "" || data != nil {
				return "", nil, io.ErrUnexpectedEOF
			}
			return "", nil, err
		}
		switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); name {
		case "":
			if data != nil { // otherwise the frame was a comment
				return id, data, nil
			}
		case "id":
			id = value
		case "data":
			if data != nil {
				return "", nil, errors.New("an event has two lines of data")
			}
			data = []byte(value)
		default:
			if !strings.HasPrefix(line, ":") {
				return "", nil, fmt.Errorf("unexpected line %q", line)
			}
		}
	}
}

// unmarked removes the id of an event from a gRPC message.
func unmarked(data []byte) (id string, rest []byte, err error) {
	var doc map[string]map[string]json.RawMessage
	if err := json.Unmarshal(data, &doc); err != nil {
		return "", nil, err
	}
	for _, payload := range doc {
		var all map[string]json.RawMessage
		if payload["metadata"] == nil {
			continue
		}
		if err := json.Unmarshal(payload["metadata"], &all); err != nil {
			return "", nil, err
		}
		var mark struct{ EventID string }
		if all[ResumeURI] != nil {
			if err := json.Unmarshal(all[ResumeURI], &mark); err != nil {
				return "", nil, err
			}
		}
		id = mark.EventID
		if delete(all, ResumeURI); len(all) == 0 {
			delete(payload, "metadata")
		} else {
			payload["metadata"] = JSON(all)
		}
	}
	return id, JSON(doc), nil
}

// Next reads the next event, or the only one. At the end the error is io.EOF. A broken connection gives another
// error, and an error in the answer is an *Error, or over gRPC a status.
func (r *Reply) Next() (*Event, error) {
	id, data, err := r.read()
	if err != nil {
		return nil, err
	}
	r.Body = string(data)
	e := &Event{Raw: data}
	if r.Wire.Binding != GRPC {
		var doc struct {
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(data, &doc); err != nil {
			return nil, fmt.Errorf("%w: %s", err, data)
		}
		if doc.Error != nil {
			if id != "" {
				return nil, fmt.Errorf("an error has the id %s, but a client cannot resume after an error: %s", id, data)
			}
			return nil, r.rejected(doc.Error, data)
		}
		if r.Wire.Binding == JSONRPC {
			e.Raw = doc.Result
		}
	}
	if e.Result, err = readResult(e.Raw); err != nil {
		return nil, err
	}
	if task := e.Task(); task != "" {
		r.Task = task
	}
	if state := e.State(); state != "" {
		r.States = append(r.States, state)
	}
	if id != "" {
		// Clients must not look into ids. Tests compare their first part with the log.
		seq, _, _ := strings.Cut(id, "-")
		if e.Seq, err = strconv.ParseInt(seq, 10, 64); err != nil {
			return nil, err
		}
		r.Last, r.LastID = e.Seq, id
	}
	return e, nil
}

// rejected reads an error. In HTTP+JSON of 0.3 it is the whole document.
func (r *Reply) rejected(doc json.RawMessage, whole []byte) error {
	if doc[0] == '"' {
		doc = whole
	}
	e := new(Error)
	if err := json.Unmarshal(doc, e); err != nil {
		return err
	}
	r.Code, r.Message, r.Reason = e.Code, e.Message, e.Reason
	return e
}

// ended reads the end of a gRPC call.
func (r *Reply) ended(err error, trailer metadata.MD) {
	if errors.Is(err, io.EOF) {
		err = nil
	}
	s := grpcstatus.Convert(err)
	r.Rejection = Rejection{Status: s.Code().String(), Message: s.Message()}
	r.Challenge = strings.Join(trailer.Get("www-authenticate"), "")
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			r.RetryAfter = strconv.FormatInt(d.GetRetryDelay().GetSeconds(), 10)
		case *errdetails.ErrorInfo:
			r.Reason = d.GetReason()
		}
	}
}

// State is the last state that was read.
func (r *Reply) State() string {
	if len(r.States) == 0 {
		return ""
	}
	return r.States[len(r.States)-1]
}

// More reads on until a state, or until the end or an error.
func (r *Reply) More(until string) {
	r.T.Helper()
	for {
		_, err := r.Next()
		switch _, isStatus := grpcstatus.FromError(err); {
		case err == nil && until != "" && r.State() == until:
			return
		case err == nil, errors.As(err, new(*Error)):
		case errors.Is(err, io.EOF), isStatus:
			require.Empty(r.T, until, "that was all: %+v", r.Rejection)
			return
		default:
			require.NoError(r.T, err, r.Wire)
		}
	}
}

// Take reads n events.
func (r *Reply) Take(n int) []*Event {
	r.T.Helper()
	out := make([]*Event, n)
	for i := range out {
		e, err := r.Next()
		require.NoError(r.T, err, "event %d of %d", i+1, n)
		out[i] = e
	}
	return out
}

// Rest reads to the proper end of a stream: a final event in the versions that mark it, then the end.
func (r *Reply) Rest() []*Event {
	r.T.Helper()
	out, err := r.UntilEnd()
	require.ErrorIs(r.T, err, io.EOF)
	require.NotEmpty(r.T, out, "the stream ended without an event")
	require.Equal(r.T, r.Wire.Version != "1.0", out[len(out)-1].Final, "whether the stream ended with a final event")
	return out
}

// UntilEnd reads until a stream ends or breaks.
func (r *Reply) UntilEnd() ([]*Event, error) {
	var out []*Event
	for {
		e, err := r.Next()
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
}

// Until reads up to an event that the condition holds for.
func (r *Reply) Until(what string, cond func(*Event) bool) *Event {
	r.T.Helper()
	for {
		e, err := r.Next()
		require.NoError(r.T, err, "waiting for %s", what)
		if cond(e) {
			return e
		}
	}
}

// UntilState reads up to a state, as the wire names it.
func (r *Reply) UntilState(state string) *Event {
	r.T.Helper()
	return r.Until(state, func(e *Event) bool { return e.State() == state })
}

// Chunks are the texts of the artifact events.
func Chunks(events []*Event) []string {
	var out []string
	for _, e := range events {
		if e.Artifact != nil {
			out = append(out, Text(e.Artifact.Parts))
		}
	}
	return out
}

// Seqs are the ids of the events that have one.
func Seqs(events []*Event) []int64 {
	var out []int64
	for _, e := range events {
		if e.Seq != 0 {
			out = append(out, e.Seq)
		}
	}
	return out
}

// Last is the last of the events.
func Last(events []*Event) *Event { return events[len(events)-1] }
