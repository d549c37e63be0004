package hub

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A replica that does not reach the database ends its streams, so that clients resume them on another one.
func TestCutOffReplicaEndsSubscriptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const outage = 5 * time.Second
		h := New(Options{Outage: outage})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = h.watch(ctx) }()
		follow := func() <-chan error {
			s := h.Subscribe(&task.Task{ID: store.NewID()})
			s.Start(task.Position{Seq: 1})
			ended := make(chan error, 1)
			go func() {
				defer s.Close()
				_, err := s.Next(ctx)
				ended <- err
			}()
			return ended
		}
		first := follow()
		for range 10 {
			waittest.Advance(outage)
			h.Reached()
		}
		require.Empty(t, first)
		waittest.Advance(outage)
		require.Empty(t, first)
		waittest.Advance(2 * time.Second)
		require.Len(t, first, 1)
		err := <-first
		require.ErrorIs(t, err, ErrCutOff)
		require.ErrorIs(t, err, ErrClosed, "the client resumes")
		h.Reached()
		again := follow()
		waittest.Advance(outage)
		require.Empty(t, again)
	})
}

func TestPageSizeFollowsEventSize(t *testing.T) {
	t.Parallel()
	const most, aim = 500, 1 << 20
	read := func(rows, bytesEach int) (next int) { return paced(rows, most, rows*bytesEach, aim) }

	rows := firstPage
	for range 10 {
		rows = read(rows, 300)
	}
	require.Equal(t, most, rows, "small events are read in large pages")
	rows = read(rows, 16<<20)
	require.Equal(t, most/4, rows)
	for range 10 {
		rows = read(rows, 16<<20)
	}
	require.Equal(t, 1, rows, "huge events are read one by one")
	require.Equal(t, 16, read(16, aim/32), "a page of the right size stays")
}
