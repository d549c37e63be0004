package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A client of our own, which knows less than the one of the command line: it checks the frames of a stream byte by
// byte, and speaks two dialects.

// object is JSON to be sent.
type object = map[string]any

// dialect is how a version words the operations.
type dialect struct {
	name, send, stream string
	// params makes those of a send; an empty task id leaves it to the server, or takes a new one where clients choose.
	params func(taskID, text string) object
}

var (
	v01 = &dialect{"v0.1", "tasks/send", "tasks/sendSubscribe", func(taskID, text string) object {
		if taskID == "" {
			taskID = "task-" + rand.Text()
		}
		return object{"id": taskID, "message": object{"role": "user", "parts": []any{object{"type": "text", "text": text}}}}
	}}
	v03 = &dialect{"v0.3", "message/send", "message/stream", func(taskID, text string) object {
		message := object{
			"kind": "message", "messageId": rand.Text(), "role": "user",
			"parts": []any{object{"kind": "text", "text": text}},
		}
		if taskID != "" {
			message["taskId"] = taskID
		}
		return object{"message": message}
	}}
	dialects = []*dialect{v01, v03}
)

// result is a task, a message or an event of either dialect.
type result struct {
	Kind      string     `json:"kind"`
	ID        string     `json:"id"`
	TaskID    string     `json:"taskId"`
	ContextID string     `json:"contextId"`
	SessionID string     `json:"sessionId"`
	Status    *status    `json:"status"`
	Artifact  *artifact  `json:"artifact"`
	Artifacts []artifact `json:"artifacts"`
	History   []message  `json:"history"`
	Parts     []part     `json:"parts"`
	Append    bool       `json:"append"`
	LastChunk bool       `json:"lastChunk"`
	Final     bool       `json:"final"`
}

type status struct {
	State   string   `json:"state"`
	Message *message `json:"message"`
}

type message struct {
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

type artifact struct {
	ArtifactID string `json:"artifactId"`
	Name       string `json:"name"`
	Parts      []part `json:"parts"`
	Append     bool   `json:"append"`
	LastChunk  bool   `json:"lastChunk"`
}

type part struct {
	Text string          `json:"text"`
	Data json.RawMessage `json:"data"`
}

func (r *result) task() string {
	if r.TaskID != "" {
		return r.TaskID
	}
	return r.ID
}

func (r *result) state() string {
	if r.Status == nil {
		return ""
	}
	return r.Status.State
}

// said is the text of the status message.
func (r *result) said() string {
	if r.Status == nil || r.Status.Message == nil {
		return ""
	}
	return text(r.Status.Message.Parts)
}

func text(parts []part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    struct {
		ErrorID string `json:"errorId"`
	} `json:"data"`
}

func (e *rpcError) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Message) }

// answer is a JSON-RPC response, with what HTTP had to say.
type answer struct {
	HTTP   int
	Header http.Header
	Body   []byte

	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Err    *rpcError       `json:"error"`
}

func (a *answer) result() (*result, error) {
	if a.Err != nil {
		return nil, a.Err
	}
	r := new(result)
	if err := json.Unmarshal(a.Result, r); err != nil {
		return nil, fmt.Errorf("%w: %s", err, a.Body)
	}
	return r, nil
}

func request(method string, params any) []byte {
	b, err := json.Marshal(object{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		panic(err)
	}
	return b
}

// post sends a body as it is.
func post(ctx context.Context, url string, body []byte, header ...string) (*http.Response, error) {
	return postWith(ctx, http.DefaultClient, url, body, header...)
}

func postWith(ctx context.Context, client *http.Client, url string, body []byte, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return client.Do(req)
}

// ask posts a body and reads a plain answer.
func ask(ctx context.Context, url string, body []byte, header ...string) (*answer, error) {
	resp, err := post(ctx, url, body, header...)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &answer{HTTP: resp.StatusCode, Header: resp.Header}
	if a.Body, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.Body, a); err != nil {
		return nil, fmt.Errorf("HTTP %d, not JSON-RPC: %.300s", a.HTTP, a.Body)
	}
	return a, nil
}

// call is ask for an answer that must be a result.
func (r *replica) call(method string, params any) *result {
	r.t.Helper()
	res, err := r.try(method, params)
	require.NoError(r.t, err, "%s on %s", method, r.name)
	return res
}

func (r *replica) try(method string, params any) (*result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, err := ask(ctx, r.url+"/", request(method, params))
	if err != nil {
		return nil, err
	}
	return a.result()
}

// event is one server-sent event.
type event struct {
	seq int64 // its id
	*result
}

// stream is an open event stream.
type stream struct {
	t     testing.TB
	close func()
	body  *bufio.Reader
	// Last is the id of the last event read.
	last int64
	bare bool // events have no envelope: HTTP+JSON
}

func newStream(t testing.TB, body io.Reader) *stream {
	t.Helper()
	return &stream{t: t, body: bufio.NewReader(body), close: func() {}}
}

// open starts a stream. It fails the test when the answer is not one.
func (r *replica) open(method string, params any, header ...string) *stream {
	r.t.Helper()
	s, err := openURL(r.t, r.url+"/", method, params, header...)
	require.NoError(r.t, err, "%s on %s", method, r.name)
	return s
}

func openURL(t testing.TB, url, method string, params any, header ...string) (*stream, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	resp, err := post(ctx, url, request(method, params), header...) //nolint:bodyclose // close does
	if err != nil {
		cancel()
		return nil, err
	}
	s := newStream(t, resp.Body)
	s.close = func() {
		cancel()
		_ = resp.Body.Close()
	}
	t.Cleanup(s.close)
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		s.close()
		return nil, fmt.Errorf("HTTP %d, %s: %s", resp.StatusCode, got, body)
	}
	return s, nil
}

// resume continues the stream of a task after an event.
func (r *replica) resume(taskID string, after int64) *stream {
	r.t.Helper()
	return r.open("tasks/resubscribe", object{"id": taskID}, "Last-Event-ID", strconv.FormatInt(after, 10))
}

// next reads an event. At the end of the stream the error is io.EOF; a connection that broke has another.
func (s *stream) next() (*event, error) {
	var id, data string
	for {
		line, err := s.body.ReadString('\n')
		if err != nil {
			if line != "" || data != "" {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
		switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); name {
		case "":
			if data == "" {
				continue // after a comment
			}
			return s.event(id, data)
		case "id":
			id = value
		case "data":
			if data != "" {
				return nil, errors.New("an event has two lines of data")
			}
			data = value
		default:
			if !strings.HasPrefix(line, ":") {
				return nil, fmt.Errorf("unexpected line %q", line)
			}
		}
	}
}

func (s *stream) event(id, data string) (*event, error) {
	a := new(answer)
	if s.bare {
		a.Result = []byte(data)
	} else if err := json.Unmarshal([]byte(data), a); err != nil {
		return nil, fmt.Errorf("%w: %s", err, data)
	}
	res, err := a.result()
	if s.bare {
		wrapped := new(restResult)
		err = json.Unmarshal(a.Result, wrapped)
		res = wrapped.inner()
	}
	if err != nil {
		return nil, err
	}
	e := &event{result: res}
	if id != "" {
		if e.seq, err = strconv.ParseInt(id, 10, 64); err != nil {
			return nil, err
		}
		s.last = e.seq
	}
	return e, nil
}

// take reads n events.
func (s *stream) take(n int) []*event {
	s.t.Helper()
	out := make([]*event, n)
	for i := range out {
		e, err := s.next()
		require.NoError(s.t, err, "event %d of %d", i+1, n)
		out[i] = e
	}
	return out
}

// rest reads to the proper end of the stream: a final event, then EOF.
func (s *stream) rest() []*event {
	s.t.Helper()
	out, err := s.untilEnd()
	require.ErrorIs(s.t, err, io.EOF)
	require.NotEmpty(s.t, out, "the stream ended without an event")
	require.True(s.t, out[len(out)-1].Final, "the stream ended without a final event")
	return out
}

// untilEnd reads until the stream ends or breaks.
func (s *stream) untilEnd() ([]*event, error) {
	var out []*event
	for {
		e, err := s.next()
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
}

// until reads up to an event that the condition holds for.
func (s *stream) until(what string, cond func(*event) bool) *event {
	s.t.Helper()
	for {
		e, err := s.next()
		require.NoError(s.t, err, "waiting for %s", what)
		if cond(e) {
			return e
		}
	}
}

func (s *stream) untilState(state string) *event {
	s.t.Helper()
	return s.until(state, func(e *event) bool { return e.state() == state })
}

// chunksOf are the texts of the artifact events.
func chunksOf(events []*event) []string {
	var out []string
	for _, e := range events {
		if e.Artifact != nil {
			out = append(out, text(e.Artifact.Parts))
		}
	}
	return out
}

// untilSettled polls a task through a replica until it waits or has ended.
func (r *replica) untilSettled(taskID string) *result {
	r.t.Helper()
	var res *result
	eventually(r.t, taskID+" settles", func() error {
		var err error
		if res, err = r.try("tasks/get", object{"id": taskID}); err != nil {
			return err
		}
		if s := res.state(); s == "submitted" || s == "working" {
			return errors.New("it is " + s)
		}
		return nil
	})
	return res
}

func short(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func last(events []*event) *event { return events[len(events)-1] }
