package push_test

import (
	"context"
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

// A claim that waits for its host has read its events already. Its extension tells that meanwhile the task was purged, or its
// webhook deleted or disabled.
func TestExtensionsOfClaims(t *testing.T) {
	t.Parallel()
	r := start(t, storetest.New(t).URL, func(o *push.Options) { o.Worker = func() task.ID { return task.ID{} } }) // it claims nothing
	for name, c := range map[string]struct {
		meanwhile func(id task.ID) error
		abandoned bool
		held      bool
	}{
		"in time": {meanwhile: func(task.ID) error { return nil }, held: true},
		"purged":  {meanwhile: func(id task.ID) error { _, err := r.Erase(t.Context(), []task.ID{id}, true, ""); return err }},
		"deleted": {meanwhile: func(id task.ID) error { _, err := r.DeletePush(t.Context(), id, "hook"); return err }},
		"disabled": {meanwhile: func(id task.ID) error {
			_, err := r.DisablePush(t.Context(), id, "hook", "enough")
			return err
		}},
		// An extension that its caller no longer waits for would hold the claim for nobody.
		"abandoned": {meanwhile: func(task.ID) error { return nil }, abandoned: true},
	} {
		of := r.begin(hook("http://127.0.0.1", "1.0"))
		r.emit(of, status(task.StateCompleted, "x"))
		due, _, err := r.ClaimPush(t.Context(), &store.PushClaim{Worker: r.id, Limit: 1, PerHost: 1, PerCaller: 1, Lock: time.Hour})
		require.NoError(t, err)
		require.Len(t, due, 1)
		require.NoError(t, c.meanwhile(of.id))
		o := &store.PushOutcome{Task: of.id, ConfigID: "hook", Claim: due[0].Claim, From: due[0].Next, To: due[0].Next, Keep: true, DueIn: 2 * time.Hour}
		if !c.abandoned {
			_, held, err := r.RecordPush(t.Context(), o)
			require.NoError(t, err)
			require.Equal(t, c.held, held, name)
			continue
		}
		before := r.cursor(of.id).DueAt
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err = r.RecordPush(ctx, o)
		require.Error(t, err)
		behind := *o
		behind.Claim = [16]byte{1}
		_, _, err = r.RecordPush(t.Context(), &behind)
		require.NoError(t, err)
		require.Equal(t, before, r.cursor(of.id).DueAt)
	}
}
