package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// logged is an operator with one task, whose events end as a test says.
type logged struct {
	fakeOperator
	last task.Event
}

func (o *logged) events() (task.Task, []task.Event) {
	header, events := storedTask()
	events = events[:3] // the first run is lost
	e := o.last
	e.Task, e.Seq, e.At = header.ID, 4, storedAt
	return header, append(events, e)
}

func (o *logged) GetTask(context.Context, string) (*task.Task, error) {
	return task.Fold(o.events())
}

func (o *logged) Calls(context.Context, *task.Task) ([]store.CallRow, error) { return nil, nil }

func (o *logged) Events(_ context.Context, _ *task.Task, after task.Seq) (out []*task.Event, _ error) {
	_, events := o.events()
	for i := range events[after:] {
		out = append(out, &events[int(after)+i])
	}
	return out, nil
}

// tasks get says why the newest run failed, unless the task has ended well.
func TestGetShowsTheFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last task.Event
		want string
		json *failureView
	}{
		"failed": {
			task.Event{Kind: task.EventStatus, Attempt: 2, State: task.StateFailed, Cause: "HTTP 500\nout of memory"},
			"error        attempt 2 failed: HTTP 500\n             out of memory\n",
			&failureView{4, storedAt.UTC(), 2, "failed", "HTTP 500\nout of memory"},
		},
		"failed by its agent": {
			task.Event{Kind: task.EventStatus, Attempt: 2, State: task.StateRejected, Message: &task.Message{Role: task.RoleAgent, Parts: []task.Part{task.Text("not that")}}},
			"error        attempt 2 rejected: not that\n", &failureView{4, storedAt.UTC(), 2, "rejected", "not that"},
		},
		"waits for its next attempt": {
			task.Event{Kind: task.EventRun, Attempt: 2, Run: &task.RunNote{Outcome: task.RunRetry, Error: "refused"}},
			"error        attempt 2 retry: refused\n", &failureView{4, storedAt.UTC(), 2, "retry", "refused"},
		},
		"runs again": {
			task.Event{Kind: task.EventStatus, Attempt: 2, State: task.StateWorking},
			"error        attempt 1 lost: lease expired\n", &failureView{3, storedAt.UTC().Add(2e9), 1, "lost", "lease expired"},
		},
		"completed": {task.Event{Kind: task.EventStatus, Attempt: 2, State: task.StateCompleted}, "", nil},
	} {
		op := &logged{last: c.last}
		s := operating(op)
		r := s.succeeds(t, "tasks", "get", "order-7")
		if c.want == "" {
			require.NotContains(t, r.out, "error  ", name)
		}
		require.Contains(t, r.out, c.want, name)
		var v taskView
		r = s.run(t, "tasks", "get", "order-7", "-o", "json")
		require.NoError(t, json.NewDecoder(bytes.NewBufferString(r.out)).Decode(&v), r.err)
		require.Equal(t, c.json, v.Failure, name)
		if c.last.Cause != "" {
			require.Contains(t, s.run(t, "tasks", "events", "order-7").out, "failed\n  HTTP 500\n  out of memory\n")
			require.Contains(t, s.run(t, "tasks", "events", "order-7", "-o", "json").out, `"cause":"HTTP 500\nout of memory"`)
		}
	}
}

// Credentials on a command line get a warning, which does not repeat them; files get none.
func TestSecretsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	agent := newRemoteAgent(t)
	for header, warns := range map[string]bool{
		"Authorization: Bearer s3cret": true, "x-api-key:s3cret": true, "Cookie: s=s3cret": true, "Idempotency-Key: s3cret": false, "@testdata/headers.txt": false,
	} {
		r := session{}.succeeds(t, "send", "--url", agent.URL, "hello", "-H", header)
		require.Equal(t, warns, bytes.Contains([]byte(r.err), []byte("list of processes")), "%s: %s", header, r.err)
		require.NotContains(t, r.err, "s3cret")
	}
	for header, warns := range map[string]bool{"Authorization: Bearer s3cret": true, "X-Team: s3cret": false, "@testdata/headers.txt": false} {
		r := session{}.run(t, "torture", "http://127.0.0.1:1", "--other-header", header)
		require.Equal(t, warns, strings.Contains(r.err, "list of processes"), "%s: %s", header, r.err)
		require.Equal(t, warns, strings.Contains(r.err, "--other-header @FILE"), "%s: %s", header, r.err)
		require.NotContains(t, r.err, "s3cret")
	}
	for url, has := range map[string]bool{
		"postgres://u:p@h/d": true, "postgres://u@h/d": false, "postgres://h/d?password=p": true, "host=h password=p": true, "host=h user=u": false, "": false,
	} {
		require.Equal(t, has, hasPassword(url), url)
	}
	op := &fakeOperator{}
	s := operating(op)
	r := s.succeeds(t, "tasks", "list", "--database-url", "host=h password=s3cret")
	require.Contains(t, r.err, "the password of --database-url")
	require.NotContains(t, r.err, "s3cret")
}
