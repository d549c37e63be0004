package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
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
		e := &replica{Engine: engine.New(engine.Options{Store: func(task.Caller, store.Visibility) engine.Store { return c }})}
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

// Package store, and the isolation of callers, prove which tasks a list has.
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

// aboutATask are the operations that name a task. The answer is all that a caller gets: an error, or the result.
var aboutATask = map[string]func(ctx context.Context, r *replica, c asker, id string) (any, error){
	"find": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return r.as(c).Find(ctx, id)
	},
	"get": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return r.as(c).Get(ctx, &engine.GetRequest{TaskID: id, WithArtifacts: true})
	},
	"cancel": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return r.as(c).Cancel(ctx, &engine.CancelRequest{TaskID: id})
	},
	"subscribe": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return subscribed(r.as(c).Subscribe(ctx, &engine.SubscribeRequest{TaskID: id}))
	},
	"subscribe, live": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return subscribed(r.as(c).Subscribe(ctx, &engine.SubscribeRequest{TaskID: id, Live: true}))
	},
	"resume behind its last event": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return subscribed(r.as(c).Subscribe(ctx, &engine.SubscribeRequest{TaskID: id, Resume: true, After: task.Position{Seq: 3}}))
	},
	"resume after an event that does not exist": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return subscribed(r.as(c).Subscribe(ctx, &engine.SubscribeRequest{TaskID: id, Resume: true, After: task.Position{Seq: 1000}}))
	},
	"send": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		q := send("mine")
		q.by, q.TaskID = c, id
		return r.Send(ctx, q)
	},
	"send in its context": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		q := send("mine")
		q.by, q.TaskID, q.ContextID = c, id, "context"
		return r.Send(ctx, q)
	},
	"send with its key": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		q := send("ask")
		q.by, q.TaskID, q.IdempotencyKey = c, id, "key"
		return r.Send(ctx, q)
	},
	"stream": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		q := send("mine")
		q.by, q.TaskID = c, id
		return subscribed(r.Stream(ctx, q))
	},
	"push set": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return r.as(c).SetPush(ctx, &engine.PushRequest{Dialect: "1.0", TaskID: id, Set: webhook()})
	},
	"push clear": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return r.as(c).SetPush(ctx, &engine.PushRequest{Dialect: "0.1", TaskID: id})
	},
	"push get": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return r.as(c).GetPush(ctx, &engine.PushRequest{TaskID: id, MayLack: true})
	},
	"push get by id": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return r.as(c).GetPush(ctx, &engine.PushRequest{TaskID: id, ConfigID: "hook"})
	},
	"push list": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return r.as(c).ListPush(ctx, &engine.PushRequest{TaskID: id})
	},
	"push delete": func(ctx context.Context, r *replica, c asker, id string) (any, error) {
		return r.as(c).DeletePush(ctx, &engine.PushRequest{TaskID: id, ConfigID: "hook"})
	},
}

func subscribed(s *engine.Stream, err error) (any, error) {
	if err == nil {
		s.Close()
	}
	return s, err
}

func webhook() *engine.PushSetting {
	return &engine.PushSetting{PushConfig: task.PushConfig{ID: "hook", URL: "http://receiver.example/"}}
}

// words are the parts of an error that the fault tables of all versions and bindings read.
func words(err error) string {
	var e *task.Error
	if !errors.As(err, &e) {
		return fmt.Sprintf("%v: %v", task.KindOf(err), err)
	}
	return fmt.Sprintf("kind %v, %q, field %q, reason %v, retry %s", e.Kind, e.Msg, e.Field, e.Challenges, e.RetryAfter)
}

// isolated is a parked task of alice's with a webhook, at an agent.
func isolated(t *testing.T, r *replica, agent, name string) *task.Task {
	t.Helper()
	return isolatedOf(t, r, alice.Caller, agent, name)
}

func isolatedOf(t *testing.T, r *replica, owner task.Caller, agent, name string) *task.Task {
	t.Helper()
	q := send("ask")
	q.by = asker{owner, agent}
	q.TaskID, q.MayCreate, q.ContextID = name, name != "", "context"
	if name == "" {
		q.IdempotencyKey = "key"
	}
	h := r.must(t, q)
	require.Equal(t, task.StateInputRequired, h.Status.State)
	_, err := r.as(q.by).SetPush(t.Context(), &engine.PushRequest{Dialect: "1.0", TaskID: h.PublicID, Set: webhook()})
	require.NoError(t, err)
	return h
}

// The predicates work without row-level security, and with it the errors have the same text.
func TestTasksOfOthersDoNotExist(t *testing.T) {
	t.Parallel()
	for _, without := range []bool{true, false} {
		t.Run(fmt.Sprintf("row-level security %v", !without), func(t *testing.T) {
			t.Parallel()
			r := start(t, setup{withoutRowSecurity: without, push: &engine.Push{MaxPerTask: 5}, pageKey: "key"})
			named, unnamed := isolated(t, r, "a", "chosen"), isolated(t, r, "a", "")
			shared := isolated(t, r, "shared", "shared")
			isolatedOf(t, r, task.Caller{Subject: "alice"}, "shared", "without a tenant")
			before := everything(t, r, named, unnamed, shared)
			for who, c := range map[string]asker{
				"another subject":              {Caller: task.Caller{Tenant: "t", Subject: "mallory"}, Agent: "a"},
				"the same subject elsewhere":   {Caller: task.Caller{Tenant: "u", Subject: "alice"}, Agent: "a"},
				"nobody":                       {Agent: "a"},
				"the owner at another agent":   {Caller: alice.Caller, Agent: "strict"},
				"another tenant, all shared":   {Caller: task.Caller{Tenant: "u", Subject: "alice"}, Agent: "shared"},
				"a colleague at another agent": {Caller: task.Caller{Tenant: "t", Subject: "bob"}, Agent: "strict"},
				"another one without a tenant": {Caller: task.Caller{Subject: "bob"}, Agent: "shared"},
			} {
				for name, op := range aboutATask {
					none := func(id string) string {
						got, err := op(t.Context(), r, c, id)
						require.Error(t, err, "%s: %s: %v", who, name, got)
						return strings.ReplaceAll(words(err), id, "ID")
					}
					require.Equal(t, none("0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f"), none(unnamed.PublicID), "%s: %s", who, name)
					require.Equal(t, none("unknown"), none("chosen"), "%s: %s", who, name)
					require.Equal(t, none("unknown"), none("shared"), "%s: %s", who, name)
					require.Equal(t, none("unknown"), none("without a tenant"), "%s: %s", who, name)
					require.Equal(t, none("0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f"), none(named.ID.String()), "%s: %s", who, name)
				}
				page, err := r.as(c).List(t.Context(), &engine.ListRequest{PageSize: 10})
				require.NoError(t, err)
				require.Empty(t, page.Tasks, who)
				require.Zero(t, page.Total, who)
				page, err = r.as(c).List(t.Context(), &engine.ListRequest{PageSize: 10, ContextID: "context", ExactTotal: true})
				require.NoError(t, err)
				require.Empty(t, page.Tasks, who)
				require.Zero(t, page.Total, who)
			}
			require.Equal(t, before, everything(t, r, named, unnamed, shared))
		})
	}
}

func everything(t *testing.T, r *replica, of ...*task.Task) (all []any) {
	t.Helper()
	for _, h := range of {
		c := alice
		c.Agent = h.Agent
		got, err := r.as(c).Get(t.Context(), &engine.GetRequest{TaskID: h.PublicID, WithArtifacts: true})
		require.NoError(t, err)
		pushes, err := r.as(c).ListPush(t.Context(), &engine.PushRequest{TaskID: h.PublicID})
		require.NoError(t, err)
		require.Len(t, pushes.Configs, 1)
		all = append(all, got, pushes)
	}
	return all
}

// A tenant's callers may continue the tasks that they see; each subject's keys and tokens stay its own.
func TestTasksSharedByTenant(t *testing.T) {
	t.Parallel()
	for _, without := range []bool{true, false} {
		t.Run(fmt.Sprintf("row-level security %v", !without), func(t *testing.T) {
			t.Parallel()
			r := start(t, setup{withoutRowSecurity: without, push: &engine.Push{MaxPerTask: 5}, pageKey: "key"})
			named, unnamed := isolated(t, r, "shared", "chosen"), isolated(t, r, "shared", "")
			bob := asker{Caller: task.Caller{Tenant: "t", Subject: "bob"}, Agent: "shared"}
			for name, op := range aboutATask {
				if name == "cancel" || name == "send" || name == "stream" || strings.HasPrefix(name, "send ") || strings.HasPrefix(name, "push ") {
					continue // they change the task
				}
				for _, h := range []*task.Task{named, unnamed} {
					_, err := op(t.Context(), r, bob, h.PublicID)
					require.NoError(t, err, name)
				}
			}
			own := send("ask")
			own.by, own.IdempotencyKey, own.ContextID = bob, "key", "context"
			mine := r.must(t, own)
			require.NotEqual(t, unnamed.ID, mine.ID, "a key belongs to a subject")
			for _, exact := range []bool{true, false} {
				for _, contextID := range []string{"", "context"} {
					q := &engine.ListRequest{PageSize: 2, ExactTotal: exact, ContextID: contextID}
					var ids []task.ID
					for {
						page, err := r.as(bob).List(t.Context(), q)
						require.NoError(t, err)
						require.Equal(t, 3, page.Total)
						for _, h := range page.Tasks {
							ids = append(ids, h.ID)
						}
						if q.PageToken = page.NextToken; q.PageToken == "" {
							break
						}
					}
					require.Equal(t, []task.ID{mine.ID, unnamed.ID, named.ID}, ids, "newest first, of all subjects")
				}
			}
			// A client-chosen id of a colleague's task means that task.
			q := send("more")
			q.by, q.TaskID, q.MayCreate, q.IdempotencyKey = bob, "chosen", true, "another key"
			got := r.must(t, q)
			require.Equal(t, named.ID, got.ID)
			require.Equal(t, task.StateCompleted, got.Status.State)
			require.Equal(t, "alice", got.Owner)
			again := send("more")
			again.by, again.TaskID, again.MayCreate, again.IdempotencyKey = bob, "chosen", true, "another key"
			require.Equal(t, got.LastSeq, r.must(t, again).LastSeq, "a repetition, with bob's key")
			again.by.Subject = "carol"
			again.Message.ID = ""
			r.refuses(t, again, task.Terminal, "the key belongs to bob")
			again.MayReopen, again.IdempotencyKey = true, ""
			r.refuses(t, again, task.Terminal, "only the owner's next task may take the name over")
			canceled, err := r.as(bob).Cancel(t.Context(), &engine.CancelRequest{TaskID: unnamed.PublicID})
			require.NoError(t, err)
			require.Equal(t, task.StateCanceled, canceled.Status.State)
		})
	}
}
