package bench

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/load"
)

// holderEnv has the URL of a replica. The holder of its streams is this test binary as a process of its own, so that no process
// needs more open files than a replica.
const holderEnv = "HOLDFAST_BENCH_HOLDER"

// heldStreams are those of the holder. A connection that nothing refers to would be closed.
var heldStreams []net.Conn

// holdStreams opens a stream of each task whose id comes in, says so, and holds them until it is killed.
func holdStreams(url string) error {
	target, err := load.NewTarget(url, nil)
	if err != nil {
		return err
	}
	ids := make(chan string)
	var all sync.WaitGroup
	var mu sync.Mutex
	for range 32 {
		all.Go(func() {
			buf := make([]byte, 8<<10)
			for id := range ids {
				c, failed := hold(a2atest.Host(url), target.Request("tasks/resubscribe", load.TaskQuery(id), ""), buf)
				mu.Lock()
				heldStreams = append(heldStreams, c)
				if failed != nil {
					err = failed
				}
				mu.Unlock()
			}
		})
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		ids <- lines.Text()
	}
	close(ids)
	all.Wait()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, len(heldStreams)); err != nil {
		return err
	}
	select {}
}

// manyStreams holds 100,000 idle streams on six replicas. Each replica has streams of as many tasks, which wait without a run, and
// the same tasks as the others.
func manyStreams(b *testing.B) {
	b.Helper()
	const replicas, streams = 6, 100_000
	each := streams / replicas
	if tiny() > 0 {
		each = 50
	}
	b.Run(fmt.Sprintf("replicas=%d/streams=%d", replicas, replicas*each), func(b *testing.B) {
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < uint64(each)+500 {
			b.Skipf("%d open files are allowed (ulimit -n)", limit.Cur)
		}
		c := startCluster(b, config, nil, whole, whole, whole, whole, whole, whole)
		ids := make([]string, each)
		var next sync.Mutex
		at := 0
		var all sync.WaitGroup
		for w := range 32 {
			t := c.replicas[w%replicas].target
			conn := dial(b, t)
			all.Go(func() {
				for {
					next.Lock()
					i := at
					at++
					next.Unlock()
					if i >= each {
						return
					}
					body, err := conn.Call(t.Request("message/send", load.Message("m-"+strconv.Itoa(i), "wait=24h", false), ""))
					var o load.Outcome
					if err == nil {
						o, err = load.ReadOutcome(body)
					}
					if err != nil {
						b.Error(err)
						return
					}
					ids[i] = o.TaskID
				}
			})
		}
		all.Wait()
		if b.Failed() {
			b.FailNow()
		}
		waitUntil(b, "all tasks wait", func() bool {
			return one[int](b, c.db, "SELECT count(*) FROM holdfast.task_queue WHERE wakes_at IS NOT NULL AND worker_id IS NULL") == each
		})
		window := max(20*time.Second, benchtime())
		if tiny() > 0 {
			window = time.Second
		}
		settle(b)
		before := settledAll(b, c.replicas)
		serverIdle, dbIdle := c.idle(b, window)
		for _, r := range c.replicas {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), holderEnv+"="+r.URL)
			cmd.Stdin = strings.NewReader(strings.Join(ids, "\n"))
			said, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			run(b, cmd)
			all.Go(func() {
				if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || line != strconv.Itoa(each)+"\n" {
					b.Errorf("the holder of %s has %q streams: %v", r.URL, line, err)
				}
			})
		}
		all.Wait()
		if b.Failed() {
			b.FailNow()
		}
		var rss, heap, stack float64
		for i, after := range settledAll(b, c.replicas) {
			if got := after.streams - before[i].streams; int(got) != each {
				b.Fatalf("replica %d has %v open streams", i, got)
			}
			rss += after.rss - before[i].rss
			heap += after.heap - before[i].heap
			stack += after.stack - before[i].stack
		}
		server, db := c.idle(b, window)
		n := float64(replicas * each)
		metric(b, rss/1024/n, "KiB-RSS/stream")
		metric(b, heap/1024/n, "KiB-heap/stream")
		metric(b, stack/1024/n, "KiB-stack/stream")
		metric(b, (server-serverIdle)/n, "server-µs/s/stream")
		metric(b, (db-dbIdle)/n, "db-µs/s/stream")
	})
}

// idle returns the processor time of all replicas and of their database in a second of a window in which nothing happens, in µs.
func (c *cluster) idle(b *testing.B, window time.Duration) (server, database float64) {
	b.Helper()
	before := c.processorTime(b)
	time.Sleep(window)
	for pid, t := range c.processorTime(b) {
		if spent := float64((t - before[pid]).Microseconds()) / window.Seconds(); c.has(pid) {
			server += spent
		} else {
			database += spent
		}
	}
	return server, database
}
