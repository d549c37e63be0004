package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	httpexec "github.com/holdfast-a2a/holdfast/internal/executor/http"
	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

// holdback keeps the appends of an agent back until it is opened, and counts those without a result.
type holdback struct {
	worker.Store
	agent string

	mu         sync.Mutex
	open       bool
	held       []*store.Append
	most, left int
}

func (h *holdback) Append(a *store.Append) {
	// The status working, which the server writes, has no place here.
	if a.Agent != h.agent || a.Events[0].Kind != task.EventArtifact {
		h.Store.Append(a)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left++
	h.most = max(h.most, h.left)
	done := a.Done
	a.Done = func(requeued bool, err error) {
		h.mu.Lock()
		h.left--
		h.mu.Unlock()
		done(requeued, err)
	}
	if h.open {
		h.Store.Append(a)
	} else {
		h.held = append(h.held, a)
	}
}

func (h *holdback) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = true
	for _, a := range h.held {
		h.Store.Append(a)
	}
	h.held = nil
}

func (h *holdback) waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.left
}

// emits emits an artifact event of so many bytes n times.
func emits(n, size int) worker.Agent {
	return does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		for range n {
			if _, err := out.Artifact(ctx, text(strings.Repeat("x", size))); err != nil {
				return err
			}
		}
		return nil
	})
}

// An event that is not committed keeps its bytes. Meanwhile large events wait, and count neither as silence nor as
// a failure; small ones go on. One that is larger than the budget goes on alone.
func TestLargeEventsWaitForMemory(t *testing.T) {
	t.Parallel()
	events := memory.NewBudget(2 << 20)
	events.Patience = 0
	var h *holdback
	silent := does(func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error { return waits(ctx) })
	begun := make(chan struct{}, 1)
	waiter := does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		begun <- struct{}{}
		_, err := out.Artifact(ctx, text(strings.Repeat("x", 1<<20)))
		return err
	})
	silent.InactivityTimeout, waiter.InactivityTimeout = 3*time.Second, 3*time.Second // longer than a busy machine needs around the wait
	p := start(t, setup{
		events: events,
		wrap:   func(s *store.Store) worker.Store { h = &holdback{Store: s, agent: "a"}; return h },
	}, emits(1, 1<<20), waiter, emits(20, 1000), silent)
	first := p.create("a", "x")
	eventually(t, "the event", func() bool { return h.waiting() == 1 })
	require.Equal(t, int64(5<<20), events.Stat().Used)
	second := p.create("b", "x")
	await(t, begun)
	p.become(p.create("c", "x"), task.StateCompleted)
	// Since the second has waited, a silent run became too old.
	p.become(p.create("d", "x"), task.StateFailed)
	p.become(second, task.StateWorking)
	require.Empty(t, p.become(second, task.StateWorking).Artifacts)
	h.release()
	for _, of := range []*task.Task{first, second} {
		require.Len(t, p.become(of, task.StateCompleted).Artifacts[0].Parts[0].Text, 1<<20)
	}
	eventually(t, "the memory", func() bool { return events.Stat().Used == 0 })
}

// A run that is canceled while it waits for memory ends, and nothing of it stays behind.
func TestCanceledWhileItWaitsForMemory(t *testing.T) {
	t.Parallel()
	events := memory.NewBudget(1 << 20)
	events.Patience = 0
	require.True(t, events.TryTake("another", 1<<20))
	begun := make(chan struct{}, 1)
	p := start(t, setup{events: events}, does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		begun <- struct{}{}
		_, err := out.Artifact(ctx, text(strings.Repeat("x", 1<<20)))
		return err
	}))
	h := p.create("a", "x")
	await(t, begun)
	_, err := p.store.Cancel(t.Context(), h, nil)
	require.NoError(t, err)
	require.Empty(t, p.become(h, task.StateCanceled).Artifacts)
	events.Give("another", 1<<20)
	require.Zero(t, events.Stat().Used)
}

// While there is no memory for more, runs keep fewer small events back, and go on.
func TestTheWindowIsSmallerWithoutMemory(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]bool{"free": false, "full": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := memory.NewBudget(16 << 20)
			want := 256 // of 4 KiB in a mebibyte
			if full {
				require.True(t, events.TryTake("another", 16<<20))
				want = 16 // in 64 KiB
			}
			var h *holdback
			p := start(t, setup{
				events: events,
				wrap:   func(s *store.Store) worker.Store { h = &holdback{Store: s, agent: "a"}; return h },
			}, emits(600, 10))
			of := p.create("a", "x")
			eventually(t, "the events", func() bool { return h.waiting() == want })
			h.release()
			require.Len(t, p.become(of, task.StateCompleted).Artifacts[0].Parts[0].Text, 6000)
			require.Equal(t, want, h.most)
		})
	}
}

// An agent that stops in the middle of large events holds its half of the memory. Its other runs wait, without counting
// as silent, and other agents go on.
func TestASlowAgentHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	const size, slowRuns = 2 << 20, 6
	proceed := make(chan struct{})
	event := []byte(fmt.Sprintf(`{"type":"text","text":"%s"}`+"\n", strings.Repeat("x", size)))
	agent := func(pause func(context.Context)) worker.Agent {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			_, _ = w.Write(event[:size/2])
			pause(r.Context())
			_, _ = w.Write(event[size/2:])
		}))
		t.Cleanup(s.Close)
		e, err := httpexec.New(httpexec.Options{URL: s.URL})
		require.NoError(t, err)
		return worker.Agent{Executor: e, Concurrency: 16}
	}
	slow := agent(func(ctx context.Context) {
		select {
		case <-proceed:
		case <-ctx.Done():
		}
	})
	lines := memory.NewLines(8 << 20)
	events := memory.NewBudget(1 << 20)
	events.Patience = 0
	p := start(t, setup{lines: lines, events: events}, slow, agent(func(context.Context) {}))
	var tasks []*task.Task
	for range slowRuns {
		tasks = append(tasks, p.create("a", "x"))
	}
	// Two halves of a line fit the agent's half, and another has the turn.
	eventually(t, "the lines", func() bool { return lines.Stat().Used > 4<<20 })
	for range 3 {
		got := p.become(p.create("b", "x"), task.StateCompleted)
		require.Len(t, got.Artifacts[0].Parts[0].Text, size)
	}
	require.Greater(t, lines.Stat().Used, int64(4<<20), "the slow ones still hold theirs")
	for _, h := range tasks {
		require.Empty(t, p.become(h, task.StateWorking).Artifacts)
	}
	close(proceed)
	for _, h := range tasks {
		require.Len(t, p.become(h, task.StateCompleted).Artifacts[0].Parts[0].Text, size)
	}
	eventually(t, "the memory", func() bool { return lines.Stat().Used == 0 && events.Stat().Used == 0 })
	require.Zero(t, lines.Stat().Used)
}

// Many runs of several agents send events at once that are larger than all budgets together. Each waits for the others
// and all arrive whole.
func TestManyLargeLinesAtOnce(t *testing.T) {
	t.Parallel()
	const size, runs = 1 << 20, 12
	long := strings.Repeat("x", size)
	forms := map[string][]byte{
		"application/x-ndjson": []byte(`{"type":"text","text":"` + long + `"}` + "\n" + `{"type":"text","text":"` + long + `"}` + "\n"),
		"text/event-stream":    []byte(`data: {"type":"text","text":"` + long + `"}` + "\n\n" + `data: {"type":"text","text":"` + long + `"}` + "\n\n"),
		"application/json":     []byte(`{"events":[{"type":"text","text":"` + long + `"},{"type":"text","text":"` + long + `"}]}`),
	}
	var agents []worker.Agent
	for form, answer := range forms {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", form)
			_, _ = bytes.NewReader(answer).WriteTo(w)
		}))
		t.Cleanup(s.Close)
		e, err := httpexec.New(httpexec.Options{URL: s.URL})
		require.NoError(t, err)
		agents = append(agents, worker.Agent{Executor: e, Concurrency: runs, InactivityTimeout: time.Hour})
	}
	lines, events := memory.NewLines(1<<20), memory.NewBudget(1<<20)
	events.Patience = 0
	p := start(t, setup{lines: lines, events: events}, agents...)
	var tasks []*task.Task
	for i := range runs {
		tasks = append(tasks, p.create([]string{"a", "b", "c"}[i%3], "x"))
	}
	for _, h := range tasks {
		require.Len(t, p.become(h, task.StateCompleted).Artifacts[0].Parts[0].Text, 2*size)
	}
	eventually(t, "the memory", func() bool { return lines.Stat().Used == 0 && events.Stat().Used == 0 })
	require.Zero(t, lines.Stat().Used)
}
