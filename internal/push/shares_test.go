package push

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

type extending struct {
	Store
	n int
}

func (e *extending) ExtendPush(context.Context, task.ID, string, [16]byte, time.Duration) error {
	e.n++
	return nil
}

// An attempt may take as long as the timeout. What is left of a claim then is for its record.
func TestAClaimOutlastsAnAttempt(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{100 * time.Millisecond, 15 * time.Second, 2 * time.Minute} {
		db := &extending{}
		d := New(Options{Store: db, Sender: NewSender(SenderOptions{Timeout: timeout})})
		lock := timeout + recordTime
		c := &claim{PushDue: &task.PushDue{}}
		for left := range 100 {
			c.until = time.Now().Add(lock * time.Duration(left) / 100)
			require.True(t, d.extend(t.Context(), c))
			require.Greater(t, time.Until(c.until), timeout+recordTime/5, "%s, %d %% left", timeout, left)
		}
		require.Positive(t, db.n)
	}
}

// Hosts come and go while a process lives. The last ones that do not answer are those to remember.
func TestNewSilentHostsAreRemembered(t *testing.T) {
	t.Parallel()
	d := New(Options{Sender: NewSender(SenderOptions{})})
	d.hosts["busy"] = &share{active: 1, claims: 1}
	d.heard("busy", true)
	for i := range 3 * mostSilent {
		host := strconv.Itoa(i)
		d.heard(host, true)
		require.True(t, d.silent[host], host)
	}
	require.Len(t, d.silent, mostSilent)
	require.True(t, d.silent["busy"])
	d.heard("busy", false)
	require.False(t, d.silent["busy"])
}
