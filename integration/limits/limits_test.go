package limits

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
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

// Every limit is reported in the terms of every version and binding, for single answers and for streams, and counted
// each time.
func TestLimitsInEveryVersion(t *testing.T) {
	t.Parallel()
	const rate = 6 // and ten times as many at once
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: strings.NewReplacer(
		"cancel_grace: 5s", "cancel_grace: 5s, concurrency: 2, queue: 1, max_artifacts: 1KiB", "max_block: 1h",
		fmt.Sprintf("max_block: 1h, max_body: 64KiB, per_principal: {live_tasks: 2, streams: 3, rate: %d}", rate),
	).Replace(clustertest.Steady) + "auth: {schemes: [{name: keys, kind: api_key}]}\n"})
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
	each("parts", sender.says(slices.Repeat([]string{"x"}, 1001)...), func(w a2atest.Operation, a *a2atest.Reply) {
		require.Equal(t, tooLarge(w.Wire, partsMember(w.Wire)+": must not have more than 1000 parts"), a.Rejection, w)
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

	// The bucket fills during the test: take more from it.
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

// Greedy callers send at two replicas at once. None has more live tasks than it may, on both together, and a modest caller is
// served beside them.
func TestLimitsHoldOnAllReplicas(t *testing.T) {
	t.Parallel()
	const greedy, each, live = 5, 10, 3
	db := clustertest.NewDB(t)
	config := clustertest.Replace(clustertest.Steady, "max_block: 1h", fmt.Sprintf("max_block: 1h, per_principal: {live_tasks: %d}", live)) +
		"auth: {schemes: [{name: keys, kind: api_key}]}\n"
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
	keys := newKeys(db, greedy+1)
	var rush errgroup.Group
	for i := range greedy * each {
		at := []*clustertest.Replica{a, b}[i%2]
		rush.Go(func() error {
			_, err := at.TrySend(a2atest.V03, a2atest.Say("hold").Detached().With("X-API-Key", keys[i/each]))
			if err != nil && !strings.Contains(err.Error(), "which is the limit") {
				return err
			}
			return nil
		})
	}
	require.NoError(t, rush.Wait())
	of := map[string]int{}
	for _, owner := range clustertest.Column[string](db, "SELECT owner FROM holdfast.tasks") {
		of[owner]++
	}
	require.Equal(t, map[string]int{"s0": live, "s1": live, "s2": live, "s3": live, "s4": live}, of)
	for _, r := range []*clustertest.Replica{a, b} {
		require.Positive(t, limited(r, "demo", "live_tasks"))
		sent := r.Send(a2atest.V03, a2atest.Say("echo:hi").With("X-API-Key", keys[greedy]))
		require.Equal(t, "completed", sent.State())
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
