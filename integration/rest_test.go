package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A client of HTTP+JSON: which paths a version has, and how it words a message.
type restClient struct {
	name, prefix, content string
	headers               []string
}

var (
	rest10      = &restClient{"1.0", "", "parts", []string{"A2A-Version", "1.0", "Content-Type", "application/a2a+json"}}
	rest03      = &restClient{"0.3", "/v1", "content", []string{"Content-Type", "application/json"}}
	restClients = []*restClient{rest10, rest03}
)

// message makes the body of a send; members are added to the message.
func (c *restClient) message(text string, members object) object {
	m := object{"messageId": "m-1", "role": "ROLE_USER", c.content: []any{object{"text": text}}}
	for name, v := range members {
		m[name] = v
	}
	return object{"message": m}
}

// do sends a request to a replica. A nil body is none.
func (c *restClient) do(t testing.TB, r *replica, verb, path string, body any, headers ...string) *http.Response {
	t.Helper()
	var content []byte
	if body != nil {
		content = mustMarshal(body)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, verb, r.url+c.prefix+path, bytes.NewReader(content))
	require.NoError(t, err)
	headers = append(c.headers[:len(c.headers):len(c.headers)], headers...)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// call is do for an answer that must be a result.
func (c *restClient) call(t testing.TB, r *replica, verb, path string, body any, headers ...string) *restResult {
	t.Helper()
	resp := c.do(t, r, verb, path, body, headers...)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", got)
	out := new(restResult)
	require.NoError(t, json.Unmarshal(got, out), "%s", got)
	return out
}

// refused is do for an answer that must be an error.
func (c *restClient) refused(t testing.TB, r *replica, verb, path string, body any, headers ...string) (status int, document string) {
	t.Helper()
	resp := c.do(t, r, verb, path, body, headers...)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"), "%s", got)
	return resp.StatusCode, string(got)
}

// restResult is a task, or a response or event that holds one.
type restResult struct {
	result
	Task           *result         `json:"task"`
	Message        json.RawMessage `json:"message"`
	StatusUpdate   *result         `json:"statusUpdate"`
	ArtifactUpdate *result         `json:"artifactUpdate"`
	NextPageToken  string          `json:"nextPageToken"`
	Tasks          []result        `json:"tasks"`
}

// event is the same as JSON-RPC has it.
func (r *restResult) inner() *result {
	for _, inner := range []*result{r.Task, r.StatusUpdate, r.ArtifactUpdate} {
		if inner != nil {
			return inner
		}
	}
	return &r.result
}

// open starts a stream.
func (c *restClient) open(t testing.TB, r *replica, verb, path string, body any, headers ...string) *stream {
	t.Helper()
	resp := c.do(t, r, verb, path, body, headers...) //nolint:bodyclose // do closes it
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	s := newStream(t, resp.Body)
	s.close = func() { _ = resp.Body.Close() }
	s.bare = true
	return s
}

func (c *restClient) resume(t testing.TB, r *replica, taskID string, after int64) *stream {
	t.Helper()
	return c.open(t, r, http.MethodPost, "/tasks/"+taskID+":subscribe", nil, "Last-Event-ID", strconv.FormatInt(after, 10))
}

func TestAStreamOverRESTIsResumedOnAnotherReplica(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	a, b := replicas[0], replicas[1]
	for _, c := range restClients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := openLedger(t, db.url)
			s := c.open(t, a, http.MethodPost, "/message:stream", c.message("chunks=60 size=64 delay=15ms", nil))
			seen := s.take(12)
			taskID := seen[0].task()
			s.close() // in the middle
			s = c.resume(t, b, taskID, s.last)
			seen = append(seen, s.take(15)...)
			s.close()
			rest, err := c.resume(t, a, taskID, s.last).untilEnd()
			require.ErrorIs(t, err, io.EOF)
			seen = append(seen, rest...)
			require.Equal(t, "TASK_STATE_COMPLETED", last(seen).state())
			require.Equal(t, c == rest03, last(seen).Final)
			require.Equal(t, l.seqs(taskID), seqsOf(seen), "every event that is stored was seen, once and in order")
			require.Equal(t, l.chunks(taskID), chunksOf(seen))
			indexed(t, chunksOf(seen), 60)

			// After the end any position gives what follows, on either replica and binding.
			for _, r := range replicas {
				tail, err := c.resume(t, r, taskID, 31).untilEnd()
				require.ErrorIs(t, err, io.EOF)
				require.Equal(t, seqsOf(seen)[31:], seqsOf(tail))
				require.Equal(t, seqsOf(tail), seqsOf(r.resume(taskID, 31).rest()))
				none, err := c.resume(t, r, taskID, int64(len(seen))).untilEnd()
				require.ErrorIs(t, err, io.EOF)
				require.Empty(t, none)
			}
			l.sound()
		})
	}
}

func TestAConversationOverREST(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	a, b := replicas[0], replicas[1]
	t.Cleanup(db.sound)
	for _, c := range restClients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			asked := c.call(t, a, http.MethodPost, "/message:send", c.message("ask:which city?", nil)).Task
			require.Equal(t, "TASK_STATE_INPUT_REQUIRED", asked.state())
			path := "/tasks/" + asked.ID
			answered := c.call(t, b, http.MethodPost, "/message:send", c.message("Oslo", object{"taskId": asked.ID})).Task
			require.Equal(t, "TASK_STATE_COMPLETED", answered.state())
			require.Len(t, c.call(t, a, http.MethodGet, path, nil).History, 3)
			require.Len(t, c.call(t, a, http.MethodGet, path+"?historyLength=1", nil).History, 1)
			require.Empty(t, c.call(t, a, http.MethodGet, path+"?historyLength=0", nil).History)
			listed := c.call(t, b, http.MethodGet, "/tasks?contextId="+asked.ContextID, nil)
			require.Len(t, listed.Tasks, 1)
			require.Empty(t, listed.NextPageToken)

			wants := map[*restClient][]struct {
				verb, path string
				body       any
				status     int
				says       string
			}{
				rest10: {
					{http.MethodPost, "/message:send", c.message("more", object{"taskId": asked.ID}), 400, "UNSUPPORTED_OPERATION"},
					{http.MethodPost, path + ":cancel", nil, 400, "TASK_NOT_CANCELABLE"},
					{http.MethodPost, path + ":subscribe", nil, 400, "UNSUPPORTED_OPERATION"},
					{http.MethodGet, "/tasks/nobody", nil, 404, "TASK_NOT_FOUND"},
					{http.MethodGet, "/tasks?pageToken=x", nil, 400, `"field":"pageToken"`},
				},
				rest03: {
					{http.MethodPost, "/message:send", c.message("more", object{"taskId": asked.ID}), 400, "InvalidParamsError"},
					{http.MethodPost, path + ":cancel", nil, 409, "TaskNotCancelableError"},
					{http.MethodGet, "/tasks/nobody:subscribe", nil, 404, "TaskNotFoundError"},
					{http.MethodGet, "/tasks/nobody", nil, 404, "TaskNotFoundError"},
					{http.MethodGet, "/tasks?pageToken=x", nil, 400, "pageToken"},
				},
			}
			for _, want := range wants[c] {
				status, document := c.refused(t, a, want.verb, want.path, want.body)
				require.Equal(t, want.status, status, document)
				require.Contains(t, document, want.says)
			}

			// A client that does not wait, and a cancel on the other replica.
			running := c.message("hold", nil)
			running["configuration"] = map[*restClient]object{rest10: {"returnImmediately": true}, rest03: {"blocking": false}}[c]
			held := c.call(t, a, http.MethodPost, "/message:send", running).Task
			require.Equal(t, "TASK_STATE_SUBMITTED", held.state())
			watched := c.open(t, a, http.MethodGet, "/tasks/"+held.ID+":subscribe", nil)
			canceled := c.call(t, b, http.MethodPost, "/tasks/"+held.ID+":cancel", object{})
			want := map[*restClient]string{rest10: "TASK_STATE_CANCELED", rest03: "TASK_STATE_CANCELLED"}[c]
			require.Equal(t, want, canceled.state())
			events, err := watched.untilEnd()
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, want, last(events).state())
		})
	}
}

func TestIdempotencyAcrossBindings(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	a, b := replicas[0], replicas[1]
	t.Cleanup(db.sound)
	first := rest10.call(t, a, http.MethodPost, "/message:send", rest10.message("echo:once", nil), "Idempotency-Key", "k").Task
	for _, c := range restClients {
		again := c.call(t, b, http.MethodPost, "/message:send", c.message("echo:once", nil), "Idempotency-Key", "k").Task
		require.Equal(t, first.ID, again.ID, "the request is what it says and not how")
		events, err := c.open(t, b, http.MethodPost, "/message:stream", c.message("echo:once", nil), "Idempotency-Key", "k").untilEnd()
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, first.ID, events[0].task())
		status, document := c.refused(t, a, http.MethodPost, "/message:send", c.message("echo:twice", nil), "Idempotency-Key", "k")
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, document, "Idempotency-Key")
	}
}

func TestTenantsAndBareMessagesOverREST(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	config := replace(settings, "name: demo", "name: demo\n    default: true") +
		"  - {name: second, executor: {kind: demo}, direct_replies: true}\n"
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: config})
	sent := rest10.call(t, r, http.MethodPost, "/second/message:send", rest10.message("echo:hi", nil)).Task
	require.Equal(t, sent.ID, rest10.call(t, r, http.MethodGet, "/agents/second/tasks/"+sent.ID, nil).ID)
	status, document := rest10.refused(t, r, http.MethodGet, "/tasks/"+sent.ID, nil)
	require.Equal(t, http.StatusNotFound, status, document)
	for _, base := range []string{"/second", "/agents/second", "/agents/second/v1"} {
		c := *rest10
		if strings.HasSuffix(base, "v1") {
			c = *rest03
			base = strings.TrimSuffix(base, "/v1")
			c.prefix = base + c.prefix
		} else {
			c.prefix = base
		}
		require.Contains(t, string(c.call(t, r, http.MethodPost, "/message:send", c.message("message:hello", nil)).Message), "hello")
		events, err := c.open(t, r, http.MethodPost, "/message:stream", c.message("message:hello", nil)).untilEnd()
		require.ErrorIs(t, err, io.EOF)
		require.Len(t, events, 1, "the message is the whole stream")
	}
}

// A stream lives as long as its task, whatever bounds there are for requests.
func TestAStreamOutlivesTheLimitsOfRequests(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: settings + "limits: {body_timeout: 1s, header_timeout: 1s, idle_timeout: 1s}\n"})
	for _, c := range restClients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			running := c.message("chunks=30 size=8 delay=100ms", nil)
			running["configuration"] = map[*restClient]object{rest10: {"returnImmediately": true}, rest03: {"blocking": false}}[c]
			sent := c.call(t, r, http.MethodPost, "/message:send", running).Task
			for _, body := range []any{nil, object{}} { // beside a GET, too
				events, err := c.open(t, r, http.MethodGet, "/tasks/"+sent.ID+":subscribe", body, "Last-Event-ID", "0").untilEnd()
				require.ErrorIs(t, err, io.EOF)
				require.Equal(t, "TASK_STATE_COMPLETED", last(events).state())
				indexed(t, chunksOf(events), 30)
			}
		})
	}
}
