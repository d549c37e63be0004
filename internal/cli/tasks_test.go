package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// tailAPI plays what a tail reads: one step for each read of the header.
type tailAPI struct {
	*fakeAPI
	steps []tailStep
	at    int
}

type tailStep struct {
	last  int
	state task.State
	err   error
	// broken makes one read of events fail.
	broken bool
}

func newTail(steps ...tailStep) *tailAPI {
	f := &tailAPI{fakeAPI: newFake(), steps: steps}
	f.routes["GET /tasks/{id}"] = func(*http.Request) (any, error) {
		s := f.steps[min(f.at, len(f.steps)-1)]
		f.at++
		return shown.TaskDetail{Task: shownTask(s.last, s.state)}, s.err
	}
	f.routes["GET /tasks/{id}/log"] = func(r *http.Request) (any, error) {
		if s := &f.steps[min(f.at, len(f.steps))-1]; s.broken {
			s.broken = false
			return nil, away
		}
		_, events := storedTask()
		events = after(r, events)
		return shownEvents(events[:min(2, len(events))]), nil // in pages
	}
	return f
}

var away = task.Errorf(task.Unavailable, "the database is not reachable")

func TestTailOfTask(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steps []tailStep
		args  []string
		code  int
		seqs  []int
		err   string
	}{
		"grows and completes": {
			steps: []tailStep{{last: 1, state: task.StateSubmitted}, {last: 3, state: task.StateWorking}, {last: 5, state: task.StateCompleted}},
			seqs:  []int{1, 2, 3, 4, 5},
		},
		"fails": {steps: []tailStep{{last: 5, state: task.StateFailed}}, code: exitEnded, seqs: []int{1, 2, 3, 4, 5}},
		"parks": {steps: []tailStep{{last: 2, state: task.StateInputRequired}}, code: exitWaits, seqs: []int{1, 2}},
		"parks and continues": {
			steps: []tailStep{{last: 2, state: task.StateInputRequired}, {last: 5, state: task.StateCompleted}},
			args:  []string{"--follow-parked"}, seqs: []int{1, 2, 3, 4, 5},
		},
		"an old header does not end it": {
			// The pages of events are newer than the header that says parked.
			steps: []tailStep{{last: 1, state: task.StateInputRequired}, {last: 5, state: task.StateCompleted}},
			seqs:  []int{1, 2, 3, 4, 5},
		},
		"is cut twice": {
			steps: []tailStep{{last: 2, state: task.StateWorking}, {err: away}, {err: away}, {last: 5, state: task.StateCompleted, broken: true}},
			seqs:  []int{1, 2, 3, 4, 5}, err: "The database does not answer",
		},
		"stays cut": {
			steps: []tailStep{{last: 2, state: task.StateWorking}, {err: away}}, args: []string{"--retry-for", "1ms"},
			code: exitFailed, seqs: []int{1, 2}, err: "has not answered for 1ms",
		},
		"is deleted": {
			steps: []tailStep{{last: 2, state: task.StateWorking}, {err: task.NotFound}},
			code:  exitFailed, seqs: []int{1, 2}, err: "task order-7: task not found",
		},
		"is restored from a backup": {
			steps: []tailStep{{last: 4, state: task.StateWorking}, {last: 3, state: task.StateWorking}},
			code:  exitFailed, seqs: []int{1, 2, 3, 4}, err: "restored from a backup",
		},
		"is asked for more than there is": {
			steps: []tailStep{{last: 4, state: task.StateWorking}}, args: []string{"--after", "5"},
			code: exitUsage, err: "--after: 5 is beyond the log of order-7, which has 4 events",
		},
	} {
		s := operating(newTail(c.steps...))
		r := s.run(t, append([]string{"tasks", "tail", "order-7", "-o", "json"}, c.args...)...)
		require.Equal(t, c.code, r.code, r.err)
		require.Contains(t, r.err, c.err, name)
		require.Equal(t, c.seqs, seqsIn(t, r.out), name)
	}
}

func TestInterruptedTailPrintsResumeCommand(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	api := newTail(tailStep{last: 2, state: task.StateWorking}, tailStep{err: away})
	var out bytes.Buffer
	// The signal comes while the tail waits for the database, when it prints its note.
	errs := &interrupting{cancel: cancel}
	require.Equal(t, exitInterrupted, Run(ctx, []string{"tasks", "tail", "order-7"}, IO{Out: &out, Err: errs}, operating(api).deps), errs)
	require.Contains(t, errs.String(), "continue with: holdfast tasks tail order-7 --after 2")
}

type interrupting struct {
	bytes.Buffer
	cancel context.CancelFunc
}

func (i *interrupting) Write(b []byte) (int, error) {
	i.cancel()
	return i.Buffer.Write(b)
}

// seqsIn reads the seqs from lines of JSON.
func seqsIn(t *testing.T, out string) (seqs []int) {
	t.Helper()
	for line := range strings.Lines(out) {
		var e struct{ Seq int }
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		seqs = append(seqs, e.Seq)
	}
	return seqs
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
		api := newFake()
		_, events := storedTask()
		events = append(events[:3], c.last) // the first run is lost
		events[3].Seq, events[3].At = 4, storedAt
		api.routes["GET /tasks/{id}"] = func(*http.Request) (any, error) {
			return shown.TaskDetail{Task: shownTask(4, task.StateWorking)}, nil
		}
		api.routes["GET /tasks/{id}/log"] = func(r *http.Request) (any, error) { return shownEvents(after(r, events)), nil }
		s := operating(api)
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
	for url, has := range map[string]bool{
		"postgres://u:p@h/d": true, "postgres://u@h/d": false, "postgres://h/d?password=p": true, "host=h password=p": true, "host=h user=u": false, "": false,
	} {
		require.Equal(t, has, hasPassword(url), url)
	}
	s := operating(newFake())
	r := s.succeeds(t, "tasks", "list", "--database-url", "host=h password=s3cret")
	require.Contains(t, r.err, "the password of --database-url")
	require.NotContains(t, r.err, "s3cret")
}
