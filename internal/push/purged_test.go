package push_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
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
		require.Len(p.t, storetest.Must(p.Erase(ctx, []task.ID{d.Task}, true, ""))(p.t), 1)
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
