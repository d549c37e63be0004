package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// cost is the processor time of a cluster and its database for what has been done, over any number of turns. It moves less
// than a rate when something else runs on the machine.
type cost struct {
	spent time.Duration
	done  float64
}

// of adds what do does so many times, and returns the rate at which it says that it did.
func (t *cost) of(b *testing.B, c *cluster, do func() (n int, rate float64)) (rate float64) {
	b.Helper()
	before := c.processorTime(b)
	n, rate := do()
	for pid, used := range c.processorTime(b) {
		t.spent += used - before[pid]
	}
	t.done += float64(n)
	return rate
}

func (t *cost) each() float64 { return float64(t.spent.Microseconds()) / t.done }

// compareCosts reports both, where they could be measured.
func compareCosts(b *testing.B, with, without *cost) {
	b.Helper()
	if without.spent > 0 {
		metric(b, without.each(), "without-cpu-µs")
		metric(b, with.each(), "with-cpu-µs")
	}
}

// processorTime is what the replicas and the processes of their database's connections have used, as far as they run here:
// not what looks whether all is delivered.
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
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // behind the name of the program
		for _, field := range f[11:13] {                                     // in user mode, and in the kernel
			ticks, err := strconv.Atoi(field)
			if err != nil {
				b.Fatal(err)
			}
			used[pid] += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return used
}
