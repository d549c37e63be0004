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

func TestAHostHasItsShare(t *testing.T) {
	t.Parallel()
	s := newShares(10, 2)
	first := claimOf("a", 1)
	require.True(t, s.begin(first))
	require.False(t, s.crowded(first))
	require.Equal(t, "[] []", s.sortedBusy())
	require.True(t, s.begin(claimOf("a", 2)))
	waits := claimOf("a", 3)
	require.False(t, s.begin(waits))
	require.True(t, s.crowded(waits))
	require.Equal(t, "[a] []", s.sortedBusy())
	require.True(t, s.begin(claimOf("b", 1)), "other hosts are not delayed")

	// Claims that wait count for their host, so it stays busy.
	s.leave(first)
	require.Equal(t, "[a] []", s.sortedBusy())
	require.True(t, s.fits(waits))
	s.start(waits)
	s.leave(waits)
	require.Equal(t, "[] []", s.sortedBusy())
}

func TestACallerHasHalf(t *testing.T) {
	t.Parallel()
	s := newShares(5, 2)
	for i := range 3 {
		require.True(t, s.begin(claimOf(strconv.Itoa(i), 7)))
	}
	require.False(t, s.begin(claimOf("other", 7)))
	require.Equal(t, "[] [7]", s.sortedBusy())
	require.True(t, s.begin(claimOf("other", 8)))

	// Callers without an identity have no share, and shares of finished claims are forgotten.
	s = newShares(4, 2)
	var all []*claim
	for i := range 4 {
		all = append(all, claimOf(strconv.Itoa(i), 0))
		require.True(t, s.begin(all[i]))
	}
	require.Zero(t, s.free())
	require.Equal(t, "[] []", s.sortedBusy())
	require.False(t, s.fits(all[0]), "no slot is free")
	for _, c := range all {
		s.leave(c)
	}
	require.Empty(t, s.hosts)
	require.Empty(t, s.callers)
	require.Equal(t, 4, s.free())
}

func TestSilentHostsHaveHalfTogether(t *testing.T) {
	t.Parallel()
	s := newShares(4, 2)
	for _, host := range []string{"a", "b", "c"} {
		require.False(t, s.heard(host, false))
	}
	require.True(t, s.begin(claimOf("a", 0)))
	require.True(t, s.begin(claimOf("b", 0)))
	require.Equal(t, "[a b c] []", s.sortedBusy())
	waits := claimOf("c", 0)
	require.False(t, s.begin(waits))
	require.True(t, s.begin(claimOf("d", 0)), "a host that answers is not delayed")
	require.True(t, s.heard("c", true), "its due rows were hidden")
	require.True(t, s.fits(waits))
	require.False(t, s.heard("c", true))
}

// Hosts come and go while a process lives. It remembers the last ones that did not answer.
func TestNewSilentHostsAreRemembered(t *testing.T) {
	t.Parallel()
	s := newShares(64, 8)
	s.begin(claimOf("busy", 0))
	s.heard("busy", false)
	for i := range 3 * mostSilent {
		host := strconv.Itoa(i)
		s.heard(host, false)
		require.True(t, s.silent[host], host)
	}
	require.Len(t, s.silent, mostSilent)
	require.True(t, s.silent["busy"])
	s.heard("busy", true)
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

func TestLargeDeliveriesHaveHalf(t *testing.T) {
	t.Parallel()
	s := newShares(8, 4)
	begun := func(host string, caller int64) *claim {
		c := claimOf(host, caller)
		require.True(t, s.begin(c))
		return c
	}
	first, second := begun("a", 0), begun("a", 0)
	require.True(t, s.enlarge(first))
	require.True(t, s.enlarge(first), "it is one already")
	require.True(t, s.enlarge(second))
	third := begun("a", 0)
	require.False(t, s.enlarge(third), "its host has half of its deliveries")
	for range 2 {
		require.True(t, s.enlarge(begun("b", 7)))
	}
	require.False(t, s.enlarge(begun("c", 8)), "large deliveries have half of all")
	s.leave(first)
	require.False(t, s.enlarge(begun("d", 7)), "its caller has half of its deliveries")
	require.True(t, s.enlarge(third))
	s.leave(third)
	s.leave(second)
	require.Equal(t, 2, s.large)
	require.Nil(t, s.hosts["a"])
}
