package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	httpexec "github.com/holdfast-a2a/holdfast/internal/worker/executor/http"
)

// An event that is not committed keeps its bytes. Meanwhile large events wait, and count neither as silence nor as
// a failure; small ones go on. One that is larger than the budget has the turn. A run that is canceled while it waits leaves
// nothing behind.
func TestLargeEventsWaitForMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		memory := limit.NewRuns(4 << 20)
		begin, begun := make(chan struct{}), make(chan struct{})
		close(begun)
		a, emitted := emits(1, 1<<20, begin)
		b, _ := emits(1, 1<<20, begun)
		c, _ := emits(20, 1000, begun)
		a.InactivityTimeout, b.InactivityTimeout = time.Second, time.Second
		p := startInBubble(t, setup{memory: memory}, a, b, c)
		first := p.create("a", "x")
		p.is(first, task.StateWorking)
		unlock := p.lock(first)
		close(begin)
		synctest.Wait()
		require.EqualValues(t, 1, emitted.Load())
		require.InDelta(t, 5<<20, memory.Stat().Used, 100_000)
		second := p.create("b", "x")
		waittest.Advance(5 * time.Second)
		require.Empty(t, p.is(second, task.StateWorking).Artifacts)
		p.cancel(second)
		require.Empty(t, p.is(second, task.StateCanceled).Artifacts)
		canceled := second
		second = p.create("b", "x")
		p.is(p.create("c", "x"), task.StateCompleted)
		require.Empty(t, p.is(second, task.StateWorking).Artifacts)
		unlock()
		waittest.Advance(time.Second)
		for _, of := range []*task.Task{first, second} {
			require.Len(t, p.is(of, task.StateCompleted).Artifacts[0].Parts[0].Text, 1<<20)
		}
		require.Empty(t, p.is(canceled, task.StateCanceled).Artifacts)
		require.Zero(t, memory.Stat().Used)
	})
}

// While there is no memory for more, runs keep fewer small events back, and go on.
func TestTheWindowIsSmallerWithoutMemory(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]bool{"free": false, "full": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				memory := limit.NewRuns(32 << 20)
				want := 256 // of 4 KiB in a mebibyte
				if full {
					for _, agent := range []string{"b", "c"} {
						require.True(t, memory.Event(agent).TryGrow(8<<20))
					}
					want = 16 // in 64 KiB
				}
				begin := make(chan struct{})
				a, emitted := emits(600, 10, begin)
				p := startInBubble(t, setup{memory: memory}, a)
				of := p.create("a", "x")
				p.is(of, task.StateWorking)
				unlock := p.lock(of)
				close(begin)
				synctest.Wait()
				require.EqualValues(t, want, emitted.Load())
				unlock()
				waittest.Advance(time.Second)
				require.Len(t, p.is(of, task.StateCompleted).Artifacts[0].Parts[0].Text, 6000)
			})
		})
	}
}

// free waits until nothing uses memory any more.
func free(t *testing.T, b *limit.Runs) {
	t.Helper()
	waittest.Eventually(t, "the memory is free", func() error { return waittest.Unless(b.Stat().Used == 0, "%d used", b.Stat().Used) })
}

// An agent that stops in the middle of large events holds its half of the memory. Its other runs wait, without counting
// as silent, and other agents go on.
func TestASlowAgentHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	const size, slowRuns = 2 << 20, 12
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
		e := storetest.Must(httpexec.New(httpexec.Options{URL: s.URL}))(t)
		return worker.Agent{Executor: e, Concurrency: 16}
	}
	slow := agent(func(ctx context.Context) {
		select {
		case <-proceed:
		case <-ctx.Done():
		}
	})
	memory := limit.NewRuns(60 << 20)
	p := start(t, setup{memory: memory}, slow, agent(func(context.Context) {}))
	var tasks []*task.Task
	for range slowRuns {
		tasks = append(tasks, p.create("a", "x"))
	}
	// Some halves of an event fit the agent's half, and another has the turn.
	waittest.Eventually(t, "the events", func() error { return waittest.Unless(memory.Stat().Used > 15<<20, "%d bytes", memory.Stat().Used) })
	for range 3 {
		got := p.become(p.create("b", "x"), task.StateCompleted)
		require.Len(t, got.Artifacts[0].Parts[0].Text, size)
	}
	require.Greater(t, memory.Stat().Used, int64(15<<20), "the slow ones still hold theirs")
	for _, h := range tasks {
		require.Empty(t, p.become(h, task.StateWorking).Artifacts)
	}
	close(proceed)
	for _, h := range tasks {
		require.Len(t, p.become(h, task.StateCompleted).Artifacts[0].Parts[0].Text, size)
	}
	free(t, memory)
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
		e := storetest.Must(httpexec.New(httpexec.Options{URL: s.URL}))(t)
		agents = append(agents, worker.Agent{Executor: e, Concurrency: runs, InactivityTimeout: time.Hour})
	}
	memory := limit.NewRuns(4 << 20)
	p := start(t, setup{memory: memory}, agents...)
	var tasks []*task.Task
	for i := range runs {
		tasks = append(tasks, p.create([]string{"a", "b", "c"}[i%3], "x"))
	}
	for _, h := range tasks {
		require.Len(t, p.become(h, task.StateCompleted).Artifacts[0].Parts[0].Text, 2*size)
	}
	free(t, memory)
}
