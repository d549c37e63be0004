package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// listing is a list request with its caller.
type listing struct {
	by asker
	engine.ListRequest
}

func (r *replica) List(ctx context.Context, q *listing) (*engine.Page, error) {
	return r.as(q.by).List(ctx, &q.ListRequest)
}

func list(change func(r *listing)) *listing {
	r := &listing{alice, engine.ListRequest{PageSize: 50, WithHistory: true}}
	if change != nil {
		change(r)
	}
	return r
}

func (r *replica) list(t testing.TB, q *listing) *engine.Page {
	t.Helper()
	page, err := r.List(t.Context(), q)
	require.NoError(t, err)
	return page
}

// counting delays exact counts.
type counting struct {
	engine.Store
	inside      atomic.Int64
	begun, goOn chan struct{}
}

func (c *counting) List(context.Context, *store.Listing) ([]*task.Task, bool, error) {
	return []*task.Task{{}}, true, nil
}

func (c *counting) Count(_ context.Context, _ *store.Listing, bound int) (int, error) {
	if bound == store.Uncounted {
		defer c.inside.Add(-1)
		if c.inside.Add(1) > 1 {
			return 0, errors.New("two at once")
		}
		c.begun <- struct{}{}
		<-c.goOn
	}
	return bound, nil
}

// An exact total may take seconds of a connection: the process counts one at a time, and callers take turns.
func TestExactTotalsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counting{begun: make(chan struct{}, 1), goOn: make(chan struct{})}
		e := &replica{Engine: engine.New(engine.Options{Store: func(identity.Caller, store.Visibility) engine.Store { return c }})}
		exact := func(subject string) *listing {
			return list(func(q *listing) { q.ExactTotal, q.by.Subject = true, subject })
		}
		asks := func(subject string) <-chan error {
			counted := make(chan error, 1)
			go func() {
				page, err := e.List(t.Context(), exact(subject))
				if err == nil && page.Total != store.Uncounted {
					err = fmt.Errorf("a total of %d", page.Total)
				}
				counted <- err
			}()
			synctest.Wait()
			return counted
		}
		refused := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, task.RateLimited)
			var refused *task.Error
			require.ErrorAs(t, err, &refused)
			require.Positive(t, refused.RetryAfter)
		}
		first := asks("one")
		<-c.begun
		second := asks("two")
		for _, subject := range []string{"one", "two"} {
			_, err := e.List(t.Context(), exact(subject))
			refused(err)
		}
		_, err := e.List(t.Context(), list(nil))
		require.NoError(t, err, "totals up to the bound are counted meanwhile")
		c.goOn <- struct{}{}
		require.NoError(t, <-first)
		again := asks("one")
		<-c.begun
		c.goOn <- struct{}{}
		require.NoError(t, <-second, "a caller that has waited comes before one that was served")
		<-c.begun

		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := e.List(ctx, exact("gone"))
			gone <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		_, err = e.List(t.Context(), exact("patient"))
		refused(err)
		c.goOn <- struct{}{}
		require.NoError(t, <-again)
	})
}

// Whose tasks a list has, and which of them a filter selects, is proven in package store and with the isolation of callers.
func TestListShowsWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	first := r.must(t, send("chunks 3"))
	asked := r.must(t, send("ask"))
	page := r.list(t, list(nil))
	require.Len(t, page.Tasks, 2)
	require.Equal(t, asked.ID, page.Tasks[0].ID, "newest status first")
	require.Equal(t, "and?", page.Tasks[0].Status.Message.FirstText())
	require.Equal(t, first.ID, page.Tasks[1].ID)
	require.Len(t, page.Tasks[1].History, 1)
	require.Empty(t, page.Tasks[1].Artifacts)
	require.Equal(t, 2, page.Total)
	require.Equal(t, 50, page.Size)
	require.Empty(t, page.NextToken)

	page = r.list(t, list(func(q *listing) { q.WithArtifacts = true; q.State = task.StateCompleted }))
	require.Len(t, page.Tasks, 1)
	require.Equal(t, []task.Part{task.Text("012")}, page.Tasks[0].Artifacts[0].Parts)
	since := page.Tasks[0].Status.At
	page = r.list(t, list(func(q *listing) { q.ContextID, q.Since = first.ContextID, since }))
	require.Len(t, page.Tasks, 1, "the limit itself is included")
}

func TestListOmitsBareMessages(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	bare := send("bare")
	bare.by.Agent = "direct"
	require.True(t, r.must(t, bare).Direct)
	kept := send("echo")
	kept.by.Agent = "direct"
	r.must(t, kept)
	page := r.list(t, list(func(q *listing) { q.by.Agent = "direct" }))
	require.Len(t, page.Tasks, 1)
	require.Equal(t, 1, page.Total)
}

func TestListPages(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	const n = 7
	for i := range n {
		r.must(t, send(fmt.Sprint("task ", i)))
	}
	// Later pages may show other parts of the tasks.
	first := r.list(t, list(func(q *listing) { q.PageSize = 3 }))
	require.Len(t, first.Tasks, 3)
	require.Equal(t, n, first.Total)
	other := r.list(t, list(func(q *listing) { q.PageToken, q.PageSize, q.WithArtifacts = first.NextToken, 2, true }))
	require.Len(t, other.Tasks, 2)
	require.NotEmpty(t, other.Tasks[0].Artifacts)
	_, err := r.List(t.Context(), list(func(q *listing) { q.PageToken = "cursor-token" }))
	var fault *task.Error
	require.ErrorAs(t, err, &fault)
	require.Equal(t, task.Invalid, fault.Kind)
	require.Equal(t, "pageToken", fault.Field)

	// A requested total is counted again on every page.
	r.must(t, send("one more"))
	next := func(exact bool) int {
		return r.list(t, list(func(q *listing) {
			q.PageSize, q.PageToken, q.ExactTotal = 3, first.NextToken, exact
		})).Total
	}
	require.Equal(t, n, next(false))
	require.Equal(t, n+1, next(true))
}
