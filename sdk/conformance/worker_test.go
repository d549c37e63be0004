package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// of is a scenario with an argument.
func of[T any](scenario func(*testing.T, T), v T) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		scenario(t, v)
	}
}

// TestWorker runs the scenarios.
func TestWorker(t *testing.T) {
	t.Parallel()
	refuse := &problem{status: http.StatusConflict, reason: "ordinal", more: map[string]any{"field": "from"}}
	for name, scenario := range map[string]func(t *testing.T){
		"vocabulary": vocabulary, "identity": identity, "credential": credential, "version": version,
		"claim cut": of(claimLost, false), "claim cut in the middle": of(claimLost, true), "run twice": runTwice, "slots": slots, "many runs": manyRuns,
		"slow renewals": slowRenewals, "block": block, "out of step": outOfStep, "run over": runOver, "refused": refusedEvents,
		"busy": busy, "away": away, "large": large, "slow server": slowServer,
		"lost": of(stopped, "lost"), "over": of(stopped, "over"), "canceled": canceled, "goodbye": goodbye,
		"replica drains claim": of(replicaDrains, claims), "replica drains heartbeat": of(replicaDrains, heartbeats),
		"worker drains claim": of(workerDrains, 2), "worker drains heartbeat": of(workerDrains, 1),
		"terminated": of(finishes, syscall.SIGTERM), "interrupted": of(finishes, syscall.SIGINT),
		"terminated too late": terminatedTooLate, "terminated twice": terminatedTwice,

		// A run that is longer than its lease.
		"leases": of(streams, stream{command: "slow", n: 48, size: 500, server: short}),
		"silent": of(streams, stream{command: "slow", n: 60, size: 500, server: silent}),
		"cut before a commit": of(streams, stream{command: "stream", n: 200, size: 50, server: func(b *bench) {
			b.line = once(action{cut: true}, 0, 1, 7, 60, 61, 199)
		}}),
		"cut after a commit": of(streams, stream{command: "stream", n: 200, size: 50, server: func(b *bench) {
			b.line = once(action{cut: true, store: true}, 0, 1, 7, 60, 61, 199)
		}}),
		// The event that ends the run is stored, and has no answer.
		"cut after the end": of(streams, stream{command: "stream", n: 3, size: 8, server: func(b *bench) {
			b.line = once(action{cut: true, store: true}, 3)
		}}),
		"conflict": of(streams, stream{command: "stream", n: 30, size: 20, server: func(b *bench) {
			b.line = once(action{refuse: refuse}, 2, 3, 10)
		}}),
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if name == "block" && slices.Contains(strings.Split(*without, ","), name) {
				t.Skip("-without says that the agent under test does not know this command")
			}
			scenario(t)
		})
	}
}

// vocabulary runs each command.
func vocabulary(t *testing.T) {
	t.Helper()
	b := begin(t, 4)
	data := map[string]any{"message": map[string]any{"role": "user", "parts": []any{
		map[string]any{"text": "data"}, map[string]any{"data": map[string]any{"list": []any{1, "é", nil, true}}},
	}}}
	turn := map[string]any{"turn": 2, "attempt": 2, "history": said}
	input := func(input map[string]any) map[string]any {
		return map[string]any{"turn": 2, "attempt": 2, "history": said, "message": nil, "input": input}
	}
	for _, c := range []struct {
		text string
		with map[string]any
		want outcome
	}{
		{"hello", nil, outcome{Text: "Hello, world!", End: "completed"}},
		{"echo  a\nb \"é\" 🙂\t", nil, outcome{Text: " a\nb \"é\" 🙂\t", End: "completed"}},
		{"stream 3 10", nil, outcome{Text: "00000000..00000001..00000002..", End: "completed"}},
		{"progress", nil, outcome{Progress: "Half way.", End: "completed"}},
		{"data", data, outcome{Data: `{"list":[1,"é",null,true]}`, End: "completed"}},
		{"file", nil, outcome{File: "f.txt text/plain Hello", End: "completed"}},
		{"history", turn, outcome{Text: "user hi\nagent there", End: "completed"}},
		{"reads", turn, outcome{Text: "3 entries", End: "completed"}},
		{"state", nil, outcome{Text: "n=1", End: "completed"}},
		{"state", map[string]any{"attempt": 2, "state": map[string]any{"task": map[string]any{"data": map[string]any{"n": 41}, "version": 7}}}, outcome{Text: "n=42", End: "completed"}},
		{"checkpoint", nil, outcome{Stored: `{"n":1}`, Text: "begun", End: "completed"}},
		{"checkpoint", map[string]any{"attempt": 2, "try": 2, "checkpoint": map[string]any{"n": 5}}, outcome{Text: "at 5", End: "completed"}},
		{"ask", nil, outcome{End: "input-required Name?"}},
		{"auth", nil, outcome{End: "auth-required Sign in.", Note: "resume 60"}},
		{"link", map[string]any{"resume": map[string]any{"url": "https://example.com/resume/x"}}, outcome{Text: "https://example.com/resume/x", End: "completed"}},
		{"wait 3600", nil, outcome{End: "wait", Note: "for 3600"}},
		{"call flights", nil, outcome{End: "call", Note: "c flights hi"}},
		{"complete", nil, outcome{End: "completed Bye."}},
		{"fail", nil, outcome{End: "failed Out of paper."}},
		{"reject", nil, outcome{End: "rejected Not me."}},
		{"reply", nil, outcome{End: "reply Hi."}},
		{"retry 7", nil, outcome{End: "retry", Note: "after 7"}},
		{"", input(map[string]any{"source": "timer", "until": "2026-03-01T08:00:00Z"}), outcome{Text: "timer", End: "completed"}},
		{"", input(map[string]any{"source": "resume", "method": "POST", "text": "yes"}), outcome{Text: "resume yes", End: "completed"}},
		{"", input(map[string]any{"source": "resume", "method": "POST", "contentType": "application/json", "data": map[string]any{"ok": true}}), outcome{Text: `resume {"ok":true}`, End: "completed"}},
		{"", input(map[string]any{"source": "calls", "results": []any{
			map[string]any{"id": "c", "agent": "flights", "task": "t-9", "state": "completed", "artifacts": []any{
				map[string]any{"artifactId": "text-1", "parts": []any{map[string]any{"text": "DY 1303"}}},
			}},
		}}), outcome{Text: "c completed DY 1303", End: "completed"}},
	} {
		r := b.add(c.text, c.with)
		b.over(r)
		got := b.outcome(r)
		got.Data, got.Stored = compact(got.Data), compact(got.Stored)
		require.Equal(t, c.want, got, "%q", c.text)
	}
	crash := b.add("crash")
	b.over(crash)
	o := b.outcome(crash)
	require.True(t, strings.HasPrefix(o.End, "failed"), o.End)
	require.NotContains(t, o.End, "secret 42")
	b.end()
}

// compact writes JSON in one form.
func compact(raw string) string {
	var v any
	if raw == "" || json.Unmarshal([]byte(raw), &v) != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return string(out)
}

// identity starts the agent twice.
func identity(t *testing.T) {
	t.Helper()
	b := begin(t, 2)
	for n := 1; n <= 2; n++ {
		r := b.add("hello")
		b.over(r)
		var workers int
		var about map[string]any
		b.with(func() { workers, about = len(b.workers), b.about })
		require.Equal(t, n, workers, "ids of workers")
		require.Equal(t, "n-test", about["name"])
		require.Equal(t, "v-test", about["version"])
		require.NotEmpty(t, about["sdk"])
		b.end()
		if n == 1 {
			b.start()
		}
	}
}

// credential is wrong at first, and changes later.
func credential(t *testing.T) {
	t.Helper()
	b := begin(t, 2, func(b *bench) { b.credential = "key-2" })
	b.until("claims with the wrong credential", func() bool { return b.counts[claims] >= 3 })
	b.write("key-2")
	r := b.add("slow 40 100")
	b.count(r, 2)
	b.with(func() { b.credential = "key-3" })
	b.write("key-3")
	beats := 0
	b.with(func() { beats = b.counts[heartbeats] })
	b.over(r)
	b.until("another heartbeat or claim", func() bool { return b.counts[heartbeats] > beats || b.claiming != nil })
	b.over(b.add("hello"))
	require.NotEmpty(t, b.process.text(), "stderr")
	b.end()
}

// version is one that the server does not speak.
func version(t *testing.T) {
	t.Helper()
	b := begin(t, 2, func(b *bench) {
		b.before = func(x *exchange, _ int) bool {
			x.problem(&problem{status: http.StatusNotFound, reason: "version", more: map[string]any{"versions": []string{"7"}}})
			return true
		}
	})
	require.NotZero(t, b.exits(), "exit status")
	require.Contains(t, strings.ToLower(b.process.text()), "version")
	b.check()
}

// lose gives the first claims an answer that does not arrive.
func lose(times int, half bool) func(b *bench) {
	return func(b *bench) {
		lost := 0
		b.before = func(x *exchange, _ int) bool {
			if x.kind != claims || lost == times {
				return false
			}
			lost++
			b.with(func() {
				for _, r := range b.runs {
					r.given, r.lost, r.leased = r.given+1, true, b.now()+b.lease
				}
			})
			x.cut(half)
			return true
		}
		b.add("hello")
		b.add("who")
	}
}

func claimLost(t *testing.T, half bool) {
	t.Helper()
	b := begin(t, 2, lose(2, half))
	b.over(b.runs...)
	require.Equal(t, outcome{Text: "Hello, world!", End: "completed"}, b.outcome(b.runs[0]))
	require.Equal(t, outcome{Text: "task-2", End: "completed"}, b.outcome(b.runs[1]))
	b.end()
}

// runTwice gives a run again that the worker has.
func runTwice(t *testing.T) {
	t.Helper()
	b := begin(t, 3)
	r := b.add("slow 100 100")
	b.count(r, 1)
	b.until("a claim that waits", func() bool { return b.claiming != nil })
	b.with(func() { r.lost = true }) // the next claim names it, so the server does not give it again by itself
	b.with(func() {
		b.before = func(x *exchange, _ int) bool {
			if x.kind != claims {
				return false
			}
			var in map[string]any
			if !x.decode(&in) {
				return true
			}
			b.with(func() { b.before, r.given = nil, r.given+1 })
			x.answer(http.StatusOK, map[string]any{"runs": []any{map[string]any{"id": r.id, "run": r.document, "lease": b.lease.Seconds()}}})
			return true
		}
	})
	b.over(b.add("hello")) // ends the claim that waits; the next one gets the run again
	b.over(r)
	require.Equal(t, numbers(100, 8), b.outcome(r).Text)
	require.Equal(t, 2, r.given)
	b.over(b.add("hello"))
	b.end()
}

// numbers is the text of a stream.
func numbers(n, size int) string {
	var out strings.Builder
	for i := range n {
		number := fmt.Sprintf("%08d", i)
		out.WriteString(number + strings.Repeat(".", size-len(number)))
	}
	return out.String()
}

// slots has more runs than the worker may have. Claims are checked by the server.
func slots(t *testing.T) {
	t.Helper()
	b := begin(t, 3, func(b *bench) {
		for range 15 {
			b.add("slow 3 50")
		}
	})
	b.over(b.runs...)
	for _, r := range b.runs {
		require.Equal(t, outcome{Text: numbers(3, 8), End: "completed"}, b.outcome(r))
	}
	b.end()
}

// manyRuns has many at a time, and must not mix their tokens.
func manyRuns(t *testing.T) {
	t.Helper()
	b := begin(t, 40, func(b *bench) {
		for range 200 {
			b.add("who")
		}
	})
	b.over(b.runs...)
	for _, r := range b.runs {
		require.Equal(t, outcome{Text: r.task, End: "completed"}, b.outcome(r))
	}
	b.end()
}

// short makes leases shorter than the run of a scenario.
func short(b *bench) { b.lease = shortLease }

// slowRenewals has a run that is longer than its lease, while new runs come all the time. A heartbeat renews after 0.8 s, unless the
// worker gives it up before.
func slowRenewals(t *testing.T) {
	t.Helper()
	b := begin(t, 40, short, func(b *bench) {
		b.before = func(x *exchange, _ int) bool {
			if x.kind != heartbeats {
				return false
			}
			body, err := io.ReadAll(x.Body) // only then the context ends with the connection
			x.Body = io.NopCloser(bytes.NewReader(body))
			select {
			case <-x.Context().Done():
				return true
			case <-after(800 * time.Millisecond):
				return err != nil
			}
		}
	})
	r := b.add("slow 48 500")
	next := b.now()
	b.until("the end of the long run", func() bool {
		if b.now() > next {
			next = b.now() + 100*time.Millisecond
			b.queue("slow 2 100")
		}
		return r.over
	})
	b.over(b.runs...)
	require.Equal(t, numbers(48, 8), b.outcome(r).Text)
	b.end()
}

// silent does not answer one heartbeat, as a host does that falls silent. It renews nothing.
func silent(b *bench) {
	short(b)
	b.before = func(x *exchange, n int) bool {
		if x.kind != heartbeats || n != 2 {
			return false
		}
		_, _ = io.Copy(io.Discard, x.Body) // only then the context ends with the connection
		<-x.Context().Done()
		return true
	}
}

// stream is a run that emits so many pieces of text, in spite of what the server does.
type stream struct {
	command string // stream, with pieces of a size, or slow, with a pause in milliseconds
	n, size int
	server  func(b *bench)
}

// streams has one slot, which is free when the stream has ended.
func streams(t *testing.T, s stream) {
	t.Helper()
	b := begin(t, 1, s.server)
	r := b.add(fmt.Sprintf("%s %d %d", s.command, s.n, s.size))
	b.over(r)
	size := s.size
	if s.command == "slow" {
		size = 8
	}
	require.Equal(t, outcome{Text: numbers(s.n, size), End: "completed"}, b.outcome(r))
	b.over(b.add("hello"))
	b.end()
}

func block(t *testing.T) {
	t.Helper()
	b := begin(t, 2, short)
	r := b.add("block 24")
	b.over(r)
	require.Equal(t, outcome{Text: "done", End: "completed"}, b.outcome(r))
	b.end()
}

// once does something else with the first upload of each of these events.
func once(do action, ordinals ...int) func(x *exchange, r *run, ordinal int) action {
	seen := map[int]bool{}
	return func(_ *exchange, _ *run, ordinal int) action {
		if !slices.Contains(ordinals, ordinal) || seen[ordinal] {
			return stored
		}
		seen[ordinal] = true
		return do
	}
}

// outOfStep has a server that has lost events which it had acknowledged.
func outOfStep(t *testing.T) {
	t.Helper()
	b := begin(t, 1)
	r := b.add("slow 200 50")
	b.count(r, 5)
	b.with(func() {
		b.before = func(x *exchange, _ int) bool {
			if x.kind != events {
				return false
			}
			b.with(func() { b.before = nil })
			x.problem(&problem{status: http.StatusConflict, reason: "ordinal", more: map[string]any{"next": 1}})
			return true
		}
	})
	b.over(r)
	require.True(t, r.released)
	b.over(b.add("hello"))
	b.end()
}

// runOver answers an event with 410, or with 401: the token is good for as long as the run.
func runOver(t *testing.T) {
	t.Helper()
	for _, refuse := range []*problem{
		{status: http.StatusGone, reason: "over", more: map[string]any{}}, {status: http.StatusUnauthorized, reason: "unauthenticated", more: map[string]any{}},
	} {
		b := begin(t, 1, func(b *bench) { b.line = once(action{refuse: refuse}, 5) })
		r := b.add("slow 1000 20")
		b.over(r)
		b.over(b.add("hello")) // the slot is free
		require.Len(t, r.events, 5)
		b.end()
	}
}

// refusedEvents refuses events for good. They must not come again, and their runs must end.
func refusedEvents(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		text    string
		ordinal int
		refuse  *problem
	}{
		{"reply", 0, &problem{status: http.StatusUnprocessableEntity, reason: "refused", more: map[string]any{"line": 1}}},
		{"slow 5 20", 2, &problem{status: http.StatusBadRequest, reason: "invalid", more: map[string]any{"line": 1, "field": "artifact"}}},
		{"stream 50 100", 20, &problem{status: http.StatusRequestEntityTooLarge, reason: "too_large", more: map[string]any{"line": 1}}},
		{"complete", 0, &problem{status: http.StatusUnprocessableEntity, reason: "refused", more: map[string]any{"line": 1}}},
	} {
		b := begin(t, 1, func(b *bench) { b.line = once(action{refuse: c.refuse}, c.ordinal) })
		r := b.add(c.text)
		b.over(r)
		require.True(t, strings.HasPrefix(b.outcome(r).End, "failed"), "%s: %+v", c.text, b.outcome(r))
		require.Len(t, r.events, c.ordinal+1, c.text)
		b.end()
	}
	b := begin(t, 1)
	r := b.add("stream 1 9000", map[string]any{"limits": map[string]any{"event": 9000}})
	b.over(r)
	require.True(t, strings.HasPrefix(b.outcome(r).End, "failed"))
	require.Len(t, r.events, 1, "the SDK refuses it, and not the server")
	b.end()
}

// busy refuses the first requests of each kind.
func busy(t *testing.T) {
	t.Helper()
	b := begin(t, 1, func(b *bench) {
		answers := []*problem{
			{status: http.StatusTooManyRequests, reason: "busy", after: 1},
			{status: http.StatusServiceUnavailable, reason: "unavailable", after: 2},
			{status: http.StatusInternalServerError, reason: "internal"},
			{status: http.StatusBadGateway, reason: "unavailable"},
			{status: http.StatusGatewayTimeout, reason: "unavailable"},
		}
		b.before = func(x *exchange, n int) bool {
			if n >= len(answers) || x.kind == heartbeats && n >= 2 {
				return false
			}
			x.problem(answers[n])
			return true
		}
	})
	r := b.add("stream 20 20")
	b.over(r)
	require.Equal(t, outcome{Text: numbers(20, 20), End: "completed"}, b.outcome(r))
	asleep := b.add("sleep")
	b.until("heartbeats", func() bool { return b.counts[heartbeats] >= 4 })
	b.with(func() { asleep.stop, asleep.metadata = "canceled", map[string]any{"why": "tired"} })
	b.over(asleep)
	require.True(t, asleep.released)
	reads := b.add("reads", map[string]any{"turn": 2, "attempt": 2, "history": said})
	b.over(reads)
	require.Equal(t, "3 entries", b.outcome(reads).Text)
	b.end()
}

// away closes the server for a while.
func away(t *testing.T) {
	t.Helper()
	b := begin(t, 2)
	r := b.add("slow 60 100")
	b.count(r, 5)
	b.away()
	b.pause(3 * time.Second)
	b.listen(b.addr)
	b.over(r)
	require.Equal(t, outcome{Text: numbers(60, 8), End: "completed"}, b.outcome(r))
	b.over(b.add("hello"))
	b.end()
}

func large(t *testing.T) {
	t.Helper()
	b := begin(t, 2)
	for _, c := range []struct{ n, size int }{{1, 8 << 20}, {40, 1 << 20}, {20000, 40}} {
		r := b.add(fmt.Sprintf("stream %d %d", c.n, c.size))
		b.over(r)
		require.True(t, b.outcome(r).Text == numbers(c.n, c.size), "stream %d %d", c.n, c.size) //nolint:testifylint // Equal would print it
	}
	b.end()
}

// slowServer takes no events for a while. The worker must not fill its memory with them.
func slowServer(t *testing.T) {
	t.Helper()
	stalled, hold, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	b := begin(t, 1, func(b *bench) {
		b.line = func(x *exchange, _ *run, ordinal int) action {
			switch {
			case ordinal < 100:
				return stored
			case ordinal == 100:
				once.Do(func() { close(stalled) })
				select {
				case <-hold:
				case <-x.Context().Done():
				}
			}
			return action{refuse: &problem{status: http.StatusGone, reason: "over", more: map[string]any{}}}
		}
	})
	r := b.add("stream 20000 20000")
	waittest.Within(t, "the stall of the server", stalled)
	before := b.resident()
	most := before
	for range 30 {
		b.pause(100 * time.Millisecond)
		most = max(most, b.resident())
	}
	close(hold)
	b.over(r)
	require.Less(t, most, before+64<<20, "bytes of memory")
	b.end()
}

// resident returns the memory of the agent, in bytes.
func (b *bench) resident() int {
	b.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.process.cmd.Process.Pid))
	if os.IsNotExist(err) {
		b.t.Skip("this system has no /proc")
	}
	require.NoError(b.t, err)
	pages, err := strconv.Atoi(strings.Fields(string(raw))[1])
	require.NoError(b.t, err)
	return pages * os.Getpagesize()
}

// stopped ends a run by a heartbeat.
func stopped(t *testing.T, stop string) {
	t.Helper()
	b := begin(t, 2)
	slow, bye := b.add("slow 1000 20"), b.add("goodbye")
	b.count(slow, 3)
	b.said("begun " + bye.task)
	b.with(func() { slow.stop, bye.stop = stop, stop })
	b.over(slow, bye)
	b.said("stopped task-2 stopped")
	next, after := b.add("hello"), b.add("hello")
	b.over(next, after)
	require.Empty(t, bye.events)
	require.Less(t, len(slow.events), 1000)
	require.False(t, slow.released || bye.released)
	b.end()
}

func canceled(t *testing.T) {
	t.Helper()
	b := begin(t, 1)
	for n := 1; n <= 2; n++ { // also one that the heartbeat under way does not name
		r := b.add("sleep")
		b.said("begun " + r.task) // code that has not begun would not be told
		b.with(func() { r.stop, r.metadata = "canceled", map[string]any{"why": "too late"} })
		b.over(r)
		b.said(fmt.Sprintf("stopped %s canceled too late", r.task))
		require.True(t, r.released)
		require.Empty(t, r.events)
	}
	b.end()
}

// goodbye emits something after a cancel.
func goodbye(t *testing.T) {
	t.Helper()
	b := begin(t, 1)
	r := b.add("goodbye")
	b.said("begun " + r.task)
	b.with(func() { r.stop = "canceled" })
	b.over(r)
	b.said("stopped task-1 canceled")
	require.Equal(t, outcome{Text: "bye"}, b.outcome(r))
	require.True(t, r.released)
	b.end()
}

func replicaDrains(t *testing.T, of kind) {
	t.Helper()
	slots := 2
	if of == heartbeats {
		slots = 1 // so that no claim waits
	}
	b := begin(t, slots)
	r := b.add("slow 300 50") // a worker may pause between heartbeats
	b.count(r, 3)
	b.until("a request that waits", func() bool { return b.counts[heartbeats] > 0 && (of == heartbeats || b.claiming != nil) })
	for range 3 {
		n := 0
		b.with(func() { n, b.drain = b.counts[of], "replica" })
		b.until("the next request", func() bool { return b.drain == "" && b.counts[of] > n })
	}
	b.over(r)
	require.Equal(t, outcome{Text: numbers(300, 8), End: "completed"}, b.outcome(r))
	b.over(b.add("hello"))
	b.end()
}

// workerDrains retires the worker. With one slot no claim waits, so a heartbeat says it.
func workerDrains(t *testing.T, slots int) {
	t.Helper()
	b := begin(t, slots)
	r := b.add("slow 40 100")
	b.count(r, 3)
	b.until("a heartbeat", func() bool { return b.counts[heartbeats] > 0 && (slots == 1 || b.claiming != nil) })
	b.with(func() { b.drain = "worker" })
	b.until("the drain", func() bool { return b.drained == "worker" })
	left := b.add("hello")
	b.over(r)
	require.Equal(t, outcome{Text: numbers(40, 8), End: "completed"}, b.outcome(r))
	require.Zero(t, b.exits(), "exit status")
	b.check()
	require.Zero(t, left.given)
}

// finishes ends the worker while it has a run.
func finishes(t *testing.T, s syscall.Signal) {
	t.Helper()
	b := begin(t, 2)
	r := b.add("slow 40 100")
	b.count(r, 3)
	waiting := b.waits()
	b.signal(s)
	waittest.Within(t, "the end of the claim", waiting.Done())
	left := b.add("hello")
	b.over(r)
	require.Zero(t, b.exits(), "exit status")
	require.Equal(t, outcome{Text: numbers(40, 8), End: "completed"}, b.outcome(r))
	b.check()
	require.True(t, left.given == 0 || left.released, "a run that came after the signal")
}

// terminatedTooLate has a run that does not end within the drain time.
func terminatedTooLate(t *testing.T) {
	t.Helper()
	b := begin(t, 2, func(b *bench) { b.grace = 1 })
	r, bye := b.add("sleep"), b.add("slow 10000 50")
	b.said("begun " + r.task)
	b.count(bye, 3)
	b.signal(syscall.SIGTERM)
	b.over(r, bye)
	require.Zero(t, b.exits(), "exit status")
	require.True(t, r.released && bye.released)
	require.Contains(t, strings.Join(b.process.lines(), "\n"), "stopped task-1 stopped")
	b.check()
}

// terminatedTwice gives the runs back at once.
func terminatedTwice(t *testing.T) {
	t.Helper()
	b := begin(t, 2, func(b *bench) { b.grace = 3600 })
	r := b.add("sleep")
	b.until("the run", func() bool { return r.given > 0 && b.counts[heartbeats] > 0 })
	waiting := b.waits()
	b.signal(syscall.SIGTERM)
	waittest.Within(t, "the end of the claim", waiting.Done())
	b.signal(syscall.SIGTERM)
	b.over(r)
	require.True(t, r.released)
	b.exits()
	b.check()
}
