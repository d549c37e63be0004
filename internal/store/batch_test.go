package store

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

type sized int

func (s sized) size() int { return int(s) }

// Large items are written in several flushes, in order: PostgreSQL accepts no message of more than a gigabyte.
func TestFlushIsLimitedInItemsAndBytes(t *testing.T) {
	t.Parallel()
	var got [][]sized
	b := newBatcher(3, func(_ context.Context, items []sized) { got = append(got, append([]sized(nil), items...)) })
	for _, n := range []sized{1, 2, 3, 4, batchBytes, 5, 9 * batchBytes, 6, 7} {
		require.True(t, b.add(n))
	}
	stop := make(chan struct{})
	close(stop)
	b.run(t.Context(), stop)
	require.Equal(t, [][]sized{{1, 2, 3}, {4, batchBytes}, {5, 9 * batchBytes}, {6, 7}}, got)
}

// unsent is the driver's error for a message that it could not send.
type unsent struct{ error }

func (unsent) SafeToRetry() bool { return true }

func TestTooLargeStatementIsNotRetried(t *testing.T) {
	t.Parallel()
	// The error of pgproto3 for a message of a gigabyte.
	err := unsent{errors.New("message body too large")}
	require.True(t, pgconn.SafeToRetry(err))
	require.Equal(t, failFinal, classify(fmt.Errorf("append: %w", err)))
	require.Equal(t, failUnsent, classify(unsent{errors.New("broken pipe")}))
}
