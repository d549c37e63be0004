package push_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// purging deletes the task of each claim before the dispatcher gets the claim.
type purging struct {
	*store.Store
	t        *testing.T
	recorded chan bool // whether the claim was still there
}

func (p *purging) ClaimPush(ctx context.Context, c *store.PushClaim) (due []*store.PushDue, next time.Duration, err error) {
	due, next, err = p.Store.ClaimPush(ctx, c)
	for _, d := range due {
		gone, err := p.Erase(ctx, []task.ID{d.Task}, true, "")
		require.NoError(p.t, err)
		require.Len(p.t, gone, 1)
	}
	return due, next, err
}

func (p *purging) RecordPush(ctx context.Context, o *store.PushOutcome) (ours, more bool, err error) {
	ours, more, err = p.Store.RecordPush(ctx, o)
	p.recorded <- ours
	return ours, more, err
}

// Versions whose deliveries show the whole task have nothing to show of a purged one.
func TestPurgedTaskIsNotDelivered(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	p := &purging{t: t, recorded: make(chan bool, 1)}
	r := start(t, storetest.New(t).URL, func(o *push.Options) { p.Store, o.Store = o.Store.(*store.Store), p })
	of := r.begin(hook(url, "0.3"))
	r.emit(of, status(task.StateCompleted, "x"))
	require.False(t, waittest.Within(t, "the outcome", p.recorded))
	require.Empty(t, got)
}

// counted counts the outcomes.
type counted struct {
	*store.Store
	n atomic.Int64
}

func (c *counted) RecordPush(ctx context.Context, o *store.PushOutcome) (ours, more bool, err error) {
	ours, more, err = c.Store.RecordPush(ctx, o)
	c.n.Add(1)
	return ours, more, err
}

// A claim that waits for its host has read its events already. Meanwhile the task is purged, or its webhook deleted.
func TestClaimsThatWaitEndWithTheirWebhook(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *replica, id task.ID) error{
		"purged": func(r *replica, id task.ID) error {
			_, err := r.Erase(t.Context(), []task.ID{id}, true, "")
			return err
		},
		"deleted": func(r *replica, id task.ID) error {
			_, err := r.DeletePush(t.Context(), id, "hook")
			return err
		},
		"disabled": func(r *replica, id task.ID) error {
			_, err := r.DisablePush(t.Context(), id, "hook", "enough")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold := make(chan struct{})
			url, got := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
				<-hold
				w.WriteHeader(http.StatusNoContent)
			})
			var may atomic.Bool
			var rested atomic.Int64 // looks without a lease
			may.Store(true)
			records := &counted{}
			r := start(t, storetest.New(t).URL, func(o *push.Options) {
				worker := o.Worker
				o.Worker = func() task.ID {
					if may.Load() {
						return worker()
					}
					rested.Add(1)
					return task.ID{}
				}
				records.Store, o.Store = o.Store.(*store.Store), records
				o.PerHost = 2
			})
			r.emit(r.begin(hook(url, "1.0")), status(task.StateCompleted, "first"))
			require.Equal(t, "first", said(t, waittest.Within(t, "the first", got).body))

			// One claim wins two more: the host has a slot for one of them.
			may.Store(false)
			r.Wake()
			awaited(t, "no look is under way", func() bool { return rested.Load() > 0 })
			ids := map[string]task.ID{}
			for _, text := range []string{"second", "third"} {
				of := r.begin(hook(url, "1.0"))
				r.emit(of, status(task.StateCompleted, text))
				ids[text] = of.id
			}
			may.Store(true)
			r.Wake()
			delete(ids, said(t, waittest.Within(t, "the second", got).body))
			require.Len(t, ids, 1)
			for _, id := range ids {
				require.False(t, r.cursor(id).LockedUntil.IsZero(), "it is claimed")
				require.NoError(t, end(r, id))
			}
			close(hold)
			awaited(t, "the end of the claim", func() bool { return records.n.Load() == 3 })
			require.Empty(t, got)
		})
	}
}

// An extension that its caller no longer waits for would hold the claim for nobody.
func TestAbandonedExtensionIsNotWritten(t *testing.T) {
	t.Parallel()
	url, _ := receiver(t, accept)
	r := start(t, storetest.New(t).URL, func(o *push.Options) { o.Worker = func() task.ID { return task.ID{} } })
	of := r.begin(hook(url, "1.0"))
	r.emit(of, status(task.StateCompleted, "x"))
	due, _, err := r.ClaimPush(t.Context(), &store.PushClaim{Worker: r.id, Limit: 1, PerHost: 1, PerCaller: 1, Lock: time.Hour})
	require.NoError(t, err)
	require.Len(t, due, 1)
	before := r.cursor(of.id).DueAt
	o := store.PushOutcome{Task: of.id, ConfigID: due[0].Config.ID, Claim: due[0].Claim, From: due[0].Next, To: due[0].Next}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	extension := o
	extension.Keep, extension.DueIn = true, 2*time.Hour
	_, _, err = r.RecordPush(ctx, &extension)
	require.Error(t, err)
	failed := o // written behind it
	failed.Claim = [16]byte{1}
	_, _, err = r.RecordPush(t.Context(), &failed)
	require.NoError(t, err)
	require.Equal(t, before, r.cursor(of.id).DueAt)
}
