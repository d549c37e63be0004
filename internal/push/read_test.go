package push

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/webhook"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// folds counts how often a log is read from its first event.
type folds struct {
	*world
	begun int
}

func (f *folds) ReadPush(ctx context.Context, d *store.PushDue, r store.PushRange) (*store.PushPage, error) {
	if r.Everything && r.From == 1 {
		f.begun++
	}
	return f.world.ReadPush(ctx, d, r)
}

// A claim reads each event of the log once, also of a long one.
func TestAClaimFoldsTheLogOnce(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		t.Helper()
		f := &folds{world: w}
		c := w.hook("host", 1, "whole")
		w.start(func(o *Options) { o.Store = f })
		const claims = 16
		w.emit(c, claims*turns)
		w.advance(0)
		require.Len(t, c.requests, claims*turns)
		require.Equal(t, claims, f.begun)
	})
}

func TestSizesOfTasksCountAllThatGrows(t *testing.T) {
	t.Parallel()
	many := &task.Task{Metadata: []byte(`{"key":"value"}`)}
	require.EqualValues(t, len(many.Metadata), size(many))
	for i := range 1000 {
		many.Artifacts = append(many.Artifacts, task.Artifact{ID: fmt.Sprint(i)})
	}
	require.Greater(t, size(many), int64(100_000), "as empty artifacts have in memory")
	for i := range many.Artifacts {
		many.Artifacts[i].Parts = []task.Part{task.Text("x")}
	}
	require.Greater(t, size(many), int64(200_000))
}

// A version without bare messages has no reference to one either.
func TestReferencesToBareMessages(t *testing.T) {
	t.Parallel()
	d := &Dispatcher{opt: Options{Encoder: webhook.Encoder{}, MaxBody: 1000}}
	for version, has := range map[string]bool{"0.1": false, "0.3": false, "1.0": true} {
		c := &claim{PushDue: &store.PushDue{Config: task.PushConfig{Dialect: version}}, header: &task.Task{Direct: true}}
		for _, e := range []*task.Event{nil, {Kind: task.EventStatus, Direct: true}} {
			delivery, err := d.render(c, &pending{event: e, task: e == nil, large: true}, c.header)
			require.NoError(t, err)
			require.Equal(t, has, delivery != nil, version)
		}
	}
}
