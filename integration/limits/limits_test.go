package limits

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

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// limited is how often a limit was reached.
func limited(r *clustertest.Replica, agent, limit string) int {
	r.T.Helper()
	return r.Counted(fmt.Sprintf(`holdfast_limited_total{agent=%q,limit=%q}`, agent, limit))
}

// tooOften is the rejection of a request that the client may repeat after some seconds.
func tooOften(w *a2atest.Wire, says, wait string) a2atest.Rejection {
	f := a2atest.Rejection{Status: "429", Code: -32603, RetryAfter: wait, Message: "Rate limit exceeded: " + says}
	switch {
	case w.Binding == a2atest.GRPC:
		f.Status, f.Code, f.Reason = "ResourceExhausted", 0, "RATE_LIMITED"
	case w.Version == "1.0":
		f.Reason = "RATE_LIMITED"
		if w.Binding == a2atest.REST {
			f.Code = http.StatusTooManyRequests
		}
	case w.Version == "0.1":
		f.Code = -32010
	}
	return f
}

// tooLarge is the rejection of a request that cannot succeed later.
func tooLarge(w *a2atest.Wire, says string) a2atest.Rejection {
	f := a2atest.Rejection{Status: "413", Code: -32600, Message: "Request too large: " + says}
	switch {
	case w.Binding == a2atest.GRPC:
		f.Status, f.Code, f.Reason = "ResourceExhausted", 0, "REQUEST_TOO_LARGE"
	case w.Version == "1.0":
		f.Reason = "REQUEST_TOO_LARGE"
		if w.Binding == a2atest.REST {
			f.Code = http.StatusRequestEntityTooLarge
		}
	}
	return f
}

// partsMember is the member of a request that holds the parts of its message.
func partsMember(w *a2atest.Wire) string {
	if w.Version == "0.3" && w.Binding != a2atest.JSONRPC {
		return "message.content"
	}
	return "message.parts"
}

// unread is the rejection of a body that the server did not read. The version is unknown unless the path names it.
func unread(w *a2atest.Wire, most int) a2atest.Rejection {
	f := tooLarge(w, fmt.Sprintf("the limit is %d bytes", most))
	if w.Binding == a2atest.JSONRPC {
		f.Reason = ""
	}
	return f
}

// caller is a principal that calls a replica.
type caller struct {
	*clustertest.Replica
	key []string // its header
}

// says sends a message.
func (c *caller) says(texts ...string) *a2atest.Args { return a2atest.Say(texts...).With(c.key...) }

// begin creates a task without waiting for it.
func (c *caller) begin(text string) (taskID string) {
	c.T.Helper()
	return c.Send(a2atest.V03, c.says(text).Detached()).Task()
}

func (c *caller) cancels(taskID string) {
	c.T.Helper()
	require.Equal(c.T, "canceled", c.CancelOver(a2atest.V03, c.says().To(taskID)).State())
}

// params is a message for requests that name no version.
func params(w *a2atest.Wire, taskID, text string) object {
	return w.Params(a2atest.Send, a2atest.Say(text).To(taskID))
}

// Every limit is reported in the terms of every version and binding, for single answers and for streams, and counted
// each time.
func TestLimitsInEveryVersion(t *testing.T) {
	t.Parallel()
	const burst = 150
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Replace(clustertest.Settings, "cancel_grace: 5s", "cancel_grace: 5s, concurrency: 2, queue: 1, max_artifacts: 1KiB") + fmt.Sprintf(`
auth: {schemes: [{name: keys, kind: api_key}]}
limits: {max_body: 64KiB, max_part: 2KiB, max_parts: 3, per_principal: {live_tasks: 2, streams: 3, rate: 1, burst: %d}}
`, burst)})
	keys := newKeys(db, 7)
	next := func() *caller { // with fresh limits
		c := &caller{r, []string{"x-api-key", keys[0]}}
		keys = keys[1:]
		return c
	}
	// each makes the same request in every version and binding, and checks the answer and the counter.
	each := func(limit string, u *a2atest.Args, check func(w a2atest.Operation, a *a2atest.Reply)) {
		t.Helper()
		for _, w := range a2atest.Sends {
			before := limited(r, "demo", limit)
			check(w, r.Do(w, u))
			require.Equal(t, before+1, limited(r, "demo", limit), "%s: %s is counted", w, limit)
		}
	}

	sender := next()
	each("body", sender.says("echo:"+strings.Repeat("x", 80<<10)), func(w a2atest.Operation, a *a2atest.Reply) {
		a.Message, _, _ = strings.Cut(a.Message, " (") // where the library adds numbers
		require.Equal(t, unread(w.Wire, 64<<10), a.Rejection, w)
	})
	each("parts", sender.says("echo:x", strings.Repeat("x", 3000)), func(w a2atest.Operation, a *a2atest.Reply) {
		require.Equal(t, tooLarge(w.Wire, partsMember(w.Wire)+"[1]: must not be longer than 2048 bytes"), a.Rejection, w)
	})
	each("parts", sender.says("echo:x", "y", "z", "and one more"), func(w a2atest.Operation, a *a2atest.Reply) {
		require.Equal(t, tooLarge(w.Wire, partsMember(w.Wire)+": must not have more than 3 parts"), a.Rejection, w)
	})
	each("artifacts", next().says("chunks=20 size=100 delay=0ms"), func(w a2atest.Operation, a *a2atest.Reply) {
		require.Equal(t, w.Worded("failed"), a.State(), w)
		require.Contains(t, a.Body, "The agent's artifacts exceed the limit of 1024 bytes for one task.", w)
	})

	streamer := next()
	held := streamer.begin("hold")
	db.AwaitState(held, "working")
	var open []*a2atest.Reply
	for range 3 {
		open = append(open, r.Subscribe(a2atest.Unversioned, a2atest.Say().To(held).With(streamer.key...)))
	}
	for _, w := range a2atest.Sends {
		before := limited(r, "demo", "streams")
		a := r.Do(w, streamer.says("echo:x"))
		if !w.Op.Streams() {
			require.Equal(t, w.Worded("completed"), a.State(), "%s: other requests still work", w)
			continue
		}
		require.Equal(t, tooOften(w.Wire, "you have reached your limit of open streams; close one", "5"), a.Rejection, w)
		require.Equal(t, before+1, limited(r, "demo", "streams"), w)
	}
	for _, s := range open {
		s.Close()
	}
	waittest.Eventually(t, "the places are free again", func() error {
		n := r.Metric("holdfast_streams_open")
		return waittest.Unless(n == 0, "%v streams are open", n)
	})
	require.Equal(t, "completed", r.Do(a2atest.Sends[1], streamer.says("echo:x")).State())
	streamer.cancels(held)

	holder := next()
	var holds []string
	for range 2 { // also the limit of concurrent runs
		id := holder.begin("hold")
		db.AwaitState(id, "working") // before the next one, since only one may wait
		holds = append(holds, id)
	}
	each("live_tasks", holder.says("echo:x"), func(w a2atest.Operation, a *a2atest.Reply) {
		require.Equal(t, tooOften(w.Wire, "2 of your tasks with this agent have not ended, which is the limit", "5"), a.Rejection, w)
	})
	waiting := next()
	waits := waiting.begin("echo:x")
	db.AwaitState(waits, "submitted")
	each("queue", next().says("echo:x"), func(w a2atest.Operation, a *a2atest.Reply) {
		require.Equal(t, tooOften(w.Wire, "1 tasks wait for this agent, which is the limit", "2"), a.Rejection, w)
	})
	for _, id := range holds {
		holder.cancels(id)
	}
	db.AwaitState(waits, "completed")

	// The bucket fills during the test: take one more from it each second.
	hasty := next()
	refuse := func(w a2atest.Operation, u *a2atest.Args) *a2atest.Reply {
		for {
			if a := r.Do(w, u); a.RetryAfter != "" {
				return a
			}
		}
	}
	unknown := hasty.says("x").To("nobody")
	for _, w := range a2atest.Sends {
		before := limited(r, "demo", "rate")
		require.Equal(t, tooOften(w.Wire, "you have reached your limit of requests per second", "1"), refuse(w, unknown).Rejection, w)
		require.Equal(t, before+1, limited(r, "demo", "rate"), w)
	}
}

// account is a principal of the load, with its results.
type account struct {
	key                  string
	done, taken, refused atomic.Int64
}

// send sends once, and reports whether the request was accepted.
func (a *account) send(ctx context.Context, url string, params object) (taken bool, err error) {
	got, err := a2atest.Ask(ctx, url, a2atest.Request("message/send", params), "X-API-Key", a.key)
	switch {
	case err != nil:
		return false, err
	case got.HTTP == http.StatusTooManyRequests:
		a.refused.Add(1)
		_, err := strconv.Atoi(got.Header.Get("Retry-After"))
		return false, err
	}
	a.taken.Add(1)
	res, err := got.Result()
	if err != nil {
		return true, err
	}
	if res.State() == "completed" {
		a.done.Add(1)
	}
	return true, nil
}

// Two hundred callers share two replicas. Greedy callers send more often, and more at a time, than they may; modest
// callers stay within their limits. No caller exceeds a limit, on both replicas together where the limit holds for
// both, and all modest callers finish their work.
func TestLimitsUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		modest, greedy = 180, 20
		tasks          = 10 // of each modest caller: on each replica fewer than the limit
		loops          = 3  // of each greedy caller, on each replica
		live, both     = 3, 2
		// Modest callers live on the burst, however slow the machine is; and greedy ones exceed the rate, however slow it is.
		rate, burst = 1, 8
	)
	db := clustertest.NewDB(t)
	config := clustertest.Replace(clustertest.Settings, "store: {pool_size: 4}", fmt.Sprintf(`store: {pool_size: 8}
auth: {schemes: [{name: keys, kind: api_key}]}
limits: {per_principal: {rate: %d, burst: %d, live_tasks: %d}}`, rate, burst, live))
	replicas := clustertest.Together(t,
		clustertest.Options{Name: "a", DB: db.URL, Config: config}, clustertest.Options{Name: "b", DB: db.URL, Config: config})
	accounts := make([]*account, modest+greedy)
	for i, key := range newKeys(db, len(accounts)) {
		accounts[i] = &account{key: key}
	}

	ctx, cancel := context.WithTimeout(t.Context(), 3*waittest.Patience)
	defer cancel()
	var work, rush, watch errgroup.Group
	full, quiet := make(chan struct{}), make(chan struct{})
	var highest atomic.Int64
	conn, err := pgx.Connect(ctx, db.URL)
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
				p := a2atest.V03.Params(a2atest.Send, a2atest.Say("sleep=300ms").Detached())
				for ctx.Err() == nil {
					select {
					case <-full:
						return nil
					default:
					}
					if _, err := a.send(ctx, replicas[i%both].URL, p); err != nil {
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
				taken, err := a.send(ctx, replicas[(i+n)%both].URL, params(a2atest.V03, "", "sleep=10ms"))
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
	require.NoError(t, work.Wait(), "all callers finish their work")
	close(full)
	require.NoError(t, rush.Wait())
	close(quiet)
	require.NoError(t, watch.Wait())
	took := time.Since(begun)

	require.Equal(t, int64(live), highest.Load(), "greedy callers reached the limit, and no caller exceeded it")
	var taken, refused int64
	for _, a := range accounts[modest:] {
		// A bucket on each replica, full at first.
		require.LessOrEqual(t, a.taken.Load(), int64(both*(burst+rate*took.Seconds()))+both)
		require.Positive(t, a.taken.Load())
		require.Positive(t, a.refused.Load())
		taken, refused = taken+a.taken.Load(), refused+a.refused.Load()
	}
	t.Logf("%d callers did %d tasks each in %s; %d greedy ones had %d requests taken and %d refused",
		modest, tasks, took.Round(time.Millisecond), greedy, taken, refused)
	for _, limit := range []string{"rate", "live_tasks"} {
		require.Positive(t, limited(replicas[0], "demo", limit), limit)
		require.Positive(t, limited(replicas[1], "demo", limit), limit)
	}
}

// newKeys are the keys of n principals.
func newKeys(db *clustertest.DB, n int) []string {
	db.T.Helper()
	subjects := make([]string, n)
	for i := range subjects {
		subjects[i] = fmt.Sprintf("s%d", i)
	}
	return db.Keys(store.APIKey{Tenant: "t"}, subjects...)
}
