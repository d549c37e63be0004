package bench

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// cost is the processor time that a cluster and its database used, over any number of turns. Other programs on the
// machine disturb it less than a rate.
type cost struct {
	spent    time.Duration
	database time.Duration // of spent
	done     float64
}

// of adds the cost of n calls of do, and returns the rate that do reports.
func (t *cost) of(b *testing.B, c *cluster, do func() (n int, rate float64)) (rate float64) {
	b.Helper()
	before := c.processorTime(b)
	n, rate := do()
	for pid, used := range c.processorTime(b) {
		t.spent += used - before[pid]
		if !c.has(pid) {
			t.database += used - before[pid]
		}
	}
	t.done += float64(n)
	return rate
}

// has reports whether the process is a replica.
func (c *cluster) has(pid int) bool {
	return slices.ContainsFunc(c.replicas, func(r *replica) bool { return r.PID() == pid })
}

func (t *cost) each() float64 { return float64(t.spent.Microseconds()) / t.done }

// costly runs a load, which returns how many operations it had, and reports the processor time of each, if it can be measured.
func costly(b *testing.B, c *cluster, load func() (n int)) {
	b.Helper()
	var used cost
	used.of(b, c, func() (int, float64) { return load(), 0 })
	if used.spent > 0 {
		metric(b, float64(used.database.Microseconds())/used.done, "db-µs")
		metric(b, float64((used.spent-used.database).Microseconds())/used.done, "server-µs")
	}
}

// processorTime is the time used by the replicas and by the backends of their database, if they run on this machine.
// The connection that checks deliveries is excluded.
func (c *cluster) processorTime(b *testing.B) map[int]time.Duration {
	b.Helper()
	used := map[int]time.Duration{}
	pids := one[[]int](b, c.db, "SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	for _, r := range c.replicas {
		pids = append(pids, r.PID())
	}
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil // not Linux, or elsewhere
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // after the program's name
		for _, field := range f[11:13] {                                     // user mode and kernel
			ticks, err := strconv.Atoi(field)
			if err != nil {
				b.Fatal(err)
			}
			used[pid] += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return used
}
