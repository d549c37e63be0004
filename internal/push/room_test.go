package push_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// within gives a dispatcher a budget of bytes.
func within(b *limit.Budget, largest int64) func(*push.Options) {
	return func(o *push.Options) { o.Memory, o.Largest, o.MaxArtifacts = b, largest, 1<<30 }
}

func output(size int) *task.Event {
	return &task.Event{Kind: task.EventArtifact, Append: true, Artifact: &task.Artifact{ID: "out", Parts: []task.Part{task.Text(strings.Repeat("x", size))}}}
}

// artifact returns the length of the text that a body shows.
func artifact(t *testing.T, body []byte) (n int) {
	t.Helper()
	for _, a := range read(t, body).Artifacts {
		n += len(a.String())
	}
	return n
}

func unused(t *testing.T, b *limit.Budget) {
	t.Helper()
	waittest.Eventually(t, "the end of the deliveries", func() error {
		used := b.Stat().Used
		return waittest.Unless(used == 0, "%d bytes are in use", used)
	})
}

// A delivery that is larger than the budget goes on alone. Others wait for it, and small ones do not.
func TestLargeDeliveriesTakeTurns(t *testing.T) {
	t.Parallel()
	proceed := make(chan struct{})
	held, slow := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-proceed:
		case <-r.Context().Done():
		}
		accept(w, r)
	})
	url, got := receiver(t, accept)
	budget := limit.NewBudget(4 << 20)
	budget.Patience = 0
	r := start(t, storetest.New(t).URL, within(budget, 64<<20))
	large := func(to string) *run {
		of := r.begin(hook(to, "0.3"))
		r.emit(of, output(1<<20), output(1<<20), status(task.StateCompleted, "end"))
		return of
	}
	first := large(held)
	require.Equal(t, 2<<20, artifact(t, waittest.Within(t, "the first", slow).body))
	require.Greater(t, budget.Stat().Used, int64(6<<20-limit.SmallBytes*3))
	second := large(url)
	for i := range 5 {
		for _, to := range []string{url, held} {
			of := r.begin(hook(to, "0.3"))
			r.emit(of, output(100), status(task.StateCompleted, fmt.Sprint(i)))
		}
		require.Equal(t, 100, artifact(t, waittest.Within(t, "a small one", got).body))
		require.Equal(t, 100, artifact(t, waittest.Within(t, "a small one to the slow receiver", slow).body))
	}
	require.Empty(t, r.attempts(second.id))
	require.Empty(t, got)
	close(proceed)
	require.Equal(t, 2<<20, artifact(t, waittest.Within(t, "the second", got).body))
	unused(t, budget)
	for _, of := range []*run{first, second} {
		require.Equal(t, string(push.Delivered), r.recorded(of.id, 1)[0].Class)
	}
}

// A budget that stays full is no failure of the receiver: the claim is released, and the delivery comes later.
func TestAFullBudgetReleasesTheClaim(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	budget := limit.NewBudget(4 << 20)
	budget.Patience = time.Millisecond
	require.True(t, budget.TryTake("another", 4<<20))
	r := start(t, storetest.New(t).URL, within(budget, 64<<20))
	of := r.begin(hook(url, "0.3"))
	r.emit(of, output(1<<20), status(task.StateCompleted, "end"))
	waittest.Eventually(t, "refusals", func() error {
		refused := budget.Stat().Refused
		return waittest.Unless(refused >= 2, "%d", refused)
	})
	require.Empty(t, got)
	require.Empty(t, r.attempts(of.id))
	require.Zero(t, r.cursor(of.id).Failures)
	require.Equal(t, int64(4<<20), budget.Stat().Used)
	budget.Give("another", 4<<20)
	require.Equal(t, 1<<20, artifact(t, waittest.Within(t, "the delivery", got).body))
	unused(t, budget)
	require.Equal(t, 1, r.recorded(of.id, 1)[0].Attempt)
}

// A delivery that never fits is a failure of the webhook, and says why.
func TestADeliveryThatNeverFits(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	budget := limit.NewBudget(4 << 20)
	r := start(t, storetest.New(t).URL, func(o *push.Options) {
		within(budget, 3<<20)(o)
		o.Schedule = push.Schedule{First: time.Hour, Most: time.Hour}
	})
	for _, dialect := range []string{"0.3", "1.0"} {
		of := r.begin(hook(url, dialect))
		e := status(task.StateWorking, "large")
		e.Message.Parts = []task.Part{task.Text(strings.Repeat("x", 4<<20))}
		r.emit(of, e)
		a := r.recorded(of.id, 1)[0]
		require.Equal(t, string(push.Internal), a.Class)
		require.Contains(t, a.Error, "the delivery would read 4 MiB or more, which does not fit the memory of this server")
	}
	require.Empty(t, got)
	require.Zero(t, budget.Stat().Used)
}

// Deliveries that learn while they read that they need more give up what they have. So none waits in a circle.
func TestDeliveriesThatNeedMoreStartAgain(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	budget := limit.NewBudget(8 << 20)
	var may sync.WaitGroup
	may.Add(1)
	r := start(t, storetest.New(t).URL, func(o *push.Options) {
		within(budget, 64<<20)(o)
		o.MaxHistory, o.CoalesceAfter = 1<<30, 2
		worker := o.Worker
		o.Worker = func() task.ID { may.Wait(); return worker() }
	})
	const tasks, messages, size = 6, 16, 200 << 10
	for i := range tasks {
		// Nothing says beforehand how large the messages are. Of 1.0 a receiver that lags gets the whole task.
		of := r.begin(hook(url, []string{"0.3", "1.0"}[i%2]))
		for range messages {
			e := status(task.StateWorking, "m")
			e.Message.Parts = []task.Part{task.Text(strings.Repeat("x", size))}
			r.emit(of, e)
		}
	}
	may.Done()
	r.Wake()
	for range tasks {
		require.Greater(t, len(waittest.Within(t, "a delivery", got).body), messages*size)
	}
	unused(t, budget)
}
