package push

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func claimOf(host string, caller int64) *claim {
	return &claim{PushDue: &store.PushDue{Caller: caller, Config: task.PushConfig{Host: host}}}
}

// begin lets a claim join, and start if it fits.
func (s *shares) begin(c *claim) (started bool) {
	s.join(c)
	if started = s.fits(c); started {
		s.start(c)
	}
	return started
}

func (s *shares) sortedBusy() string {
	hosts, callers := s.busy()
	slices.Sort(hosts)
	slices.Sort(callers)
	return fmt.Sprint(slices.Compact(hosts), callers)
}

// Hosts come and go while a process lives. It remembers the last ones that did not answer.
func TestNewSilentHostsAreRemembered(t *testing.T) {
	t.Parallel()
	s := newShares(64, 8)
	s.begin(claimOf("busy", 0))
	s.noteAnswer("busy", false)
	for i := range 3 * mostSilent {
		host := strconv.Itoa(i)
		s.noteAnswer(host, false)
		require.True(t, s.silent[host], host)
	}
	require.Len(t, s.silent, mostSilent)
	require.True(t, s.silent["busy"])
	s.noteAnswer("busy", true)
	require.False(t, s.silent["busy"])
}

// A claim that was just won counts before it is accepted.
func TestBusyWithAClaimThatWasWon(t *testing.T) {
	t.Parallel()
	s := newShares(6, 2)
	s.begin(claimOf("a", 1))
	var won []*store.PushDue
	for _, host := range []string{"a", "b", "c"} {
		won = append(won, claimOf(host, 2).PushDue)
	}
	hosts, callers := s.busyWith(won)
	require.Equal(t, []string{"a"}, hosts)
	require.Equal(t, []int64{2}, callers)
	require.Equal(t, "[] []", s.sortedBusy())
	require.Len(t, s.hosts, 1)
}
