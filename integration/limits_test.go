package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

// limited is how often a limit was met.
func (r *replica) limited(agent, limit string) int {
	r.t.Helper()
	return r.counted(fmt.Sprintf(`holdfast_limited_total{agent=%q,limit=%q}`, agent, limit))
}

// rejection is how a limit is told in one way to call.
type rejection struct {
	status, reason, retryAfter, message string
	code                                int
}

func (a *reply) rejection() rejection {
	return rejection{a.status, a.reason, a.retryAfter, a.message, a.code}
}

// tooOften is the rejection of what may be repeated after some seconds.
func (w *way) tooOften(says, wait string) rejection {
	f := rejection{status: "429", code: -32603, retryAfter: wait, message: "Rate limit exceeded: " + says}
	switch {
	case w.binding == onGRPC:
		f.status, f.code, f.reason = "ResourceExhausted", 0, "RATE_LIMITED"
	case w.version == "1.0":
		f.reason = "RATE_LIMITED"
		if w.binding == onREST {
			f.code = http.StatusTooManyRequests
		}
	case w.version == "0.1":
		f.code = -32010
	}
	return f
}

// tooLarge is the rejection of what is no better the next time.
func (w *way) tooLarge(says string) rejection {
	f := rejection{status: "413", code: -32600, message: "Request too large: " + says}
	switch {
	case w.binding == onGRPC:
		f.status, f.code, f.reason = "ResourceExhausted", 0, "REQUEST_TOO_LARGE"
	case w.version == "1.0":
		f.reason = "REQUEST_TOO_LARGE"
		if w.binding == onREST {
			f.code = http.StatusRequestEntityTooLarge
		}
	}
	return f
}

// unread is that of a body that was not read, so that nobody knows what version it is of, unless its path says so.
func (w *way) unread(most int) rejection {
	f := w.tooLarge(fmt.Sprintf("the limit is %d bytes", most))
	switch w.binding {
	case onJSONRPC:
		f.reason = ""
	case onGRPC: // the library's words
		f.reason, f.message = "", "grpc: received message larger than max"
	}
	return f
}

// caller is a principal that calls a replica.
type caller struct {
	r   *replica
	key []string // its header
}

// says is something that it says.
func (c *caller) says(texts ...string) *utterance { return &utterance{texts: texts, header: c.key} }

// begin begins a task that is not waited for.
func (c *caller) begin(text string) (taskID string) {
	c.r.t.Helper()
	p := v03.params("", text)
	p["configuration"] = object{"blocking": false}
	return c.ask(v03.send, p).task()
}

func (c *caller) ask(method string, params object) *result {
	c.r.t.Helper()
	got, err := ask(short(c.r.t, patience), c.r.url, request(method, params), c.key...)
	require.NoError(c.r.t, err)
	res, err := got.result()
	require.NoError(c.r.t, err)
	return res
}

func (c *caller) awaitState(taskID, state string) {
	c.r.t.Helper()
	eventually(c.r.t, "the task is "+state, func() error {
		now := c.ask("tasks/get", object{"id": taskID}).state()
		return unless(now == state, "it is %s", now)
	})
}

// Every limit is told in the words of every version, on every binding, for one answer and for a stream of them, and
// counted each time.
func TestLimitsAreToldInEveryVersion(t *testing.T) {
	t.Parallel()
	const burst = 150
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: replace(settings, "cancel_grace: 5s", "cancel_grace: 5s, concurrency: 2, queue: 1, max_artifacts: 1KiB") + fmt.Sprintf(`
auth: {schemes: [{name: keys, kind: api_key}]}
limits: {max_body: 64KiB, max_part: 2KiB, max_parts: 3, per_principal: {live_tasks: 2, streams: 3, rate: 1, burst: %d}}
`, burst)})
	t.Cleanup(db.sound)
	accounts := newAccounts(t, db.url, 7)
	next := func() *caller { // whose limits nobody has touched
		c := &caller{r, []string{"x-api-key", accounts[0].key}}
		accounts = accounts[1:]
		return c
	}
	// each says the same in every way, and looks at the answer and at the count.
	each := func(limit string, u *utterance, check func(w *way, a *reply)) {
		t.Helper()
		for _, w := range ways {
			before := r.limited("demo", limit)
			check(w, w.send(t, r, u))
			require.Equal(t, before+1, r.limited("demo", limit), "%s: %s is counted", w.name, limit)
		}
	}

	sender := next()
	each("body", sender.says("echo:"+strings.Repeat("x", 80<<10)), func(w *way, a *reply) {
		a.message, _, _ = strings.Cut(a.message, " (") // where the library has numbers
		require.Equal(t, w.unread(64<<10), a.rejection(), w.name)
	})
	each("parts", sender.says("echo:x", strings.Repeat("x", 3000)), func(w *way, a *reply) {
		require.Equal(t, w.tooLarge("message.parts[1]: must not be longer than 2048 bytes"), a.rejection(), w.name)
	})
	each("parts", sender.says("echo:x", "y", "z", "and one more"), func(w *way, a *reply) {
		require.Equal(t, w.tooLarge("message.parts: must not be more than 3"), a.rejection(), w.name)
	})
	each("artifacts", next().says("chunks=20 size=100 delay=0ms"), func(w *way, a *reply) {
		require.Equal(t, w.worded("failed"), a.state(), w.name)
		require.Contains(t, a.body, "The agent's artifacts would take more than 1024 bytes, which is as much as those of one task may.", w.name)
	})

	streamer := next()
	held := streamer.begin("hold")
	streamer.awaitState(held, "working")
	var open []*stream
	for range 3 {
		open = append(open, r.open("tasks/resubscribe", object{"id": held}, streamer.key...))
	}
	for _, w := range ways {
		before := r.limited("demo", "streams")
		a := w.send(t, r, streamer.says("echo:x"))
		if !w.streams {
			require.Equal(t, w.worded("completed"), a.state(), "%s: what is no stream goes on", w.name)
			continue
		}
		require.Equal(t, w.tooOften("you have as many open streams as you may", "5"), a.rejection(), w.name)
		require.Equal(t, before+1, r.limited("demo", "streams"), w.name)
	}
	for _, s := range open {
		s.close()
	}
	eventually(t, "their places are free", func() error {
		n := r.metric("holdfast_streams_open")
		return unless(n == 0, "%v streams are open", n)
	})
	require.Equal(t, "completed", ways[1].send(t, r, streamer.says("echo:x")).state())
	require.Equal(t, "canceled", streamer.ask("tasks/cancel", object{"id": held}).state())

	holder := next()
	holds := []string{holder.begin("hold"), holder.begin("hold")} // which is as much as runs at a time, too
	for _, id := range holds {
		holder.awaitState(id, "working")
	}
	each("live_tasks", holder.says("echo:x"), func(w *way, a *reply) {
		require.Equal(t, w.tooOften("2 of your tasks with this agent have not ended, which is as many as may be", "5"), a.rejection(), w.name)
	})
	waiting := next()
	waits := waiting.begin("echo:x")
	waiting.awaitState(waits, "submitted")
	each("queue", next().says("echo:x"), func(w *way, a *reply) {
		require.Equal(t, w.tooOften("1 tasks wait for this agent, which is as many as may be", "2"), a.rejection(), w.name)
	})
	for _, id := range holds {
		require.Equal(t, "canceled", holder.ask("tasks/cancel", object{"id": id}).state())
	}
	waiting.awaitState(waits, "completed")

	// A bucket fills again while we look at it: one more is taken from it each second.
	hasty := next()
	refuse := func(w *way, u *utterance) *reply {
		for {
			if a := w.send(t, r, u); a.retryAfter != "" {
				return a
			}
		}
	}
	unknown := &utterance{task: "nobody", texts: []string{"x"}, header: hasty.key}
	for _, w := range ways {
		before := r.limited("demo", "rate")
		require.Equal(t, w.tooOften("you have sent more requests in a second than you may", "1"), refuse(w, unknown).rejection(), w.name)
		require.Equal(t, before+1, r.limited("demo", "rate"), w.name)
	}
}

// account is a principal of the load and what came of its requests.
type account struct {
	key                  string
	done, taken, refused atomic.Int64
}

// send sends once, and reports whether it was taken.
func (a *account) send(ctx context.Context, url string, params object) (taken bool, err error) {
	got, err := ask(ctx, url, request(v03.send, params), "X-API-Key", a.key)
	switch {
	case err != nil:
		return false, err
	case got.HTTP == http.StatusTooManyRequests:
		a.refused.Add(1)
		_, err := strconv.Atoi(got.Header.Get("Retry-After"))
		return false, err
	}
	a.taken.Add(1)
	res, err := got.result()
	if err != nil {
		return true, err
	}
	if res.state() == "completed" {
		a.done.Add(1)
	}
	return true, nil
}

// Two hundred callers share two replicas. Some take all they can get, more often and more at a time than they may; the
// others go about their work within their limits. Nobody gets more than the limits, on both replicas together where they
// hold for both, and everybody gets their work done.
func TestLimitsUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		modest, greedy   = 180, 20
		tasks            = 10 // of each of the modest: on each replica fewer than may be sent at once
		loops            = 3  // of each of the greedy, on each replica
		live, rate, both = 3, 8, 2
	)
	db := newDB(t)
	config := replace(settings, "store: {pool_size: 4}", fmt.Sprintf(`store: {pool_size: 8}
auth: {schemes: [{name: keys, kind: api_key}]}
limits: {per_principal: {rate: %d, live_tasks: %d}}`, rate, live))
	replicas := make([]*replica, both)
	for i, name := range []string{"a", "b"} {
		replicas[i] = start(t, replicaOptions{Name: name, DB: db.url, Config: config, Async: true})
	}
	for _, r := range replicas {
		r.waitServing()
		r.waitReady()
	}
	accounts := newAccounts(t, db.url, modest+greedy)

	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var work, rush, watch errgroup.Group
	full, quiet := make(chan struct{}), make(chan struct{})
	var highest atomic.Int64
	conn, err := pgx.Connect(ctx, db.url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	watch.Go(func() error {
		for {
			var n int64
			if err := conn.QueryRow(ctx, `SELECT coalesce(max(n), 0) FROM (
				SELECT count(*) AS n FROM holdfast.tasks WHERE state < 5 GROUP BY tenant, owner, agent) x`).Scan(&n); err != nil {
				return err
			}
			highest.Store(max(highest.Load(), n))
			select {
			case <-quiet:
				return nil
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	begun := time.Now()
	for _, a := range accounts[modest:] {
		for i := range both * loops {
			rush.Go(func() error {
				p := v03.params("", "sleep=300ms")
				p["configuration"] = object{"blocking": false}
				for ctx.Err() == nil {
					select {
					case <-full:
						return nil
					default:
					}
					if _, err := a.send(ctx, replicas[i%both].url, p); err != nil {
						return err
					}
				}
				return ctx.Err()
			})
		}
	}
	for i, a := range accounts[:modest] {
		work.Go(func() error {
			for n := 0; a.done.Load() < tasks; n++ {
				taken, err := a.send(ctx, replicas[(i+n)%both].url, v03.params("", "sleep=10ms"))
				if err != nil {
					return err
				}
				if !taken {
					return errors.New("one that keeps to its limits was refused")
				}
			}
			return nil
		})
	}
	require.NoError(t, work.Wait(), "everybody's work is done")
	close(full)
	require.NoError(t, rush.Wait())
	close(quiet)
	require.NoError(t, watch.Wait())
	took := time.Since(begun)

	require.Equal(t, int64(live), highest.Load(), "what some tried to exceed was reached, and by nobody exceeded")
	var taken, refused int64
	for _, a := range accounts[modest:] {
		// A bucket on each replica, full at first.
		require.LessOrEqual(t, a.taken.Load(), int64(both*rate*(1+took.Seconds()))+both)
		require.Positive(t, a.taken.Load())
		require.Positive(t, a.refused.Load())
		taken, refused = taken+a.taken.Load(), refused+a.refused.Load()
	}
	t.Logf("%d callers did %d tasks each in %s; %d greedy ones had %d requests taken and %d refused",
		modest, tasks, took.Round(time.Millisecond), greedy, taken, refused)
	for _, limit := range []string{"rate", "live_tasks"} {
		require.Positive(t, replicas[0].limited("demo", limit), limit)
		require.Positive(t, replicas[1].limited("demo", limit), limit)
	}
	db.sound()
}

// newAccounts are principals, each with an API key.
func newAccounts(t *testing.T, url string, n int) []*account {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: url})
	require.NoError(t, err)
	defer s.Close(context.WithoutCancel(t.Context()))
	out := make([]*account, n)
	for i := range out {
		key, id, hash := auth.NewAPIKey()
		_, err := s.AddAPIKey(t.Context(), &store.APIKey{ID: id, Hash: hash, Tenant: "t", Subject: fmt.Sprintf("s%d", i)}, 0)
		require.NoError(t, err)
		out[i] = &account{key: key}
	}
	return out
}
