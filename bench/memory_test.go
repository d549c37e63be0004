package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/load"
)

// memory opens idle streams on a replica that only serves clients; the tasks run on another replica. So the growth of
// the first is the cost of streams, and that of the second the cost of waiting runs.
func memory(b *testing.B) {
	b.Helper()
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("streams=%d/tasks=1", n), func(b *testing.B) { idleStreams(b, n, false) })
		b.Run(fmt.Sprintf("streams=%d/tasks=%d", n, n), func(b *testing.B) { idleStreams(b, n, true) })
	}
}

func idleStreams(b *testing.B, n int, ownTasks bool) {
	b.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < uint64(n)+500 {
		b.Skipf("%d open files are allowed (ulimit -n)", limit.Cur)
	}
	c := newCluster(b, apiOnly, workerOnly)
	api, worker := c.replicas[0], c.replicas[1]
	req := func() []byte {
		return api.target.Request("message/stream", load.Message("m-1", "hold", false), "")
	}
	if !ownTasks {
		id := ask(b, api.target, "hold", false).TaskID
		req = func() []byte { return api.target.Request("tasks/resubscribe", load.TaskQuery(id), "") }
		await(b, c, 1)
	}
	before, workerBefore := settled(b, api), settled(b, worker)
	// The sockets have small buffers: the client shares the machine's memory with the server under test.
	held := make([]net.Conn, n)
	defer func() {
		for _, h := range held {
			if h != nil {
				_ = h.Close()
			}
		}
	}()
	var wg sync.WaitGroup
	const openers = 32
	for w := range openers {
		wg.Go(func() {
			buf := make([]byte, 8<<10)
			for i := w; i < n; i += openers {
				var err error
				if held[i], err = hold(a2atest.Host(api.URL), req(), buf); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	if ownTasks {
		await(b, c, n)
	}
	after, workerAfter := settled(b, api), settled(b, worker)
	if got := after.streams - before.streams; int(got) != n {
		b.Fatalf("the server has %v open streams", got)
	}
	perStream := func(bytes float64) float64 { return bytes / 1024 / float64(n) }
	metric(b, perStream(after.rss-before.rss), "KiB-RSS/stream")
	metric(b, perStream(after.heap-before.heap), "KiB-heap/stream")
	metric(b, perStream(after.stack-before.stack), "KiB-stack/stream")
	metric(b, (after.goroutines-before.goroutines)/float64(n), "goroutines/stream")
	if ownTasks {
		metric(b, perStream(workerAfter.rss-workerBefore.rss), "KiB-RSS/run")
	}
}

// hold opens a stream and reads its first event.
func hold(addr string, req, buf []byte) (net.Conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	err = c.SetDeadline(time.Now().Add(time.Minute))
	if err == nil {
		_, err = c.Write(req)
	}
	n := 0
	for err == nil && !bytes.Contains(buf[:n], []byte("\ndata: ")) {
		var more int
		more, err = c.Read(buf[n:])
		n += more
	}
	if err != nil || !bytes.HasPrefix(buf[:n], []byte("HTTP/1.1 200")) {
		_ = c.Close()
		return nil, fmt.Errorf("open a stream: %w: %.300s", err, buf[:n])
	}
	return c, nil
}

// await waits until n tasks are working.
func await(b *testing.B, c *cluster, n int) {
	b.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if one[int](b, c.db, "SELECT count(*) FROM holdfast.tasks WHERE state = 2") == n {
			return
		}
	}
	b.Fatalf("not all of %d tasks are working", n)
}

// usage is the memory of a server process, in bytes.
type usage struct {
	rss, heap, stack, goroutines, streams float64
}

// settled reads the memory after two collections, with a pause for work under way and for pages to go back to the
// system.
func settled(b *testing.B, r *replica) (u usage) {
	b.Helper()
	time.Sleep(2 * time.Second)
	for range 2 {
		fetch(b, r.Admin+"/debug/pprof/heap?gc=1")
		time.Sleep(2 * time.Second)
	}
	scanner := bufio.NewScanner(bytes.NewReader(fetch(b, r.Admin+"/metrics")))
	for scanner.Scan() {
		name, value, _ := strings.Cut(scanner.Text(), " ")
		into := map[string]*float64{
			"go_memstats_heap_inuse_bytes": &u.heap, "go_memstats_stack_inuse_bytes": &u.stack, "go_goroutines": &u.goroutines,
			`holdfast_streams_open{version="0.3"}`: &u.streams,
		}[name]
		if into == nil {
			continue
		}
		var err error
		if *into, err = strconv.ParseFloat(value, 64); err != nil {
			b.Fatal(err)
		}
	}
	if u.heap == 0 {
		b.Fatal("the server has no memory metrics")
	}
	u.rss = rss(b, r.PID())
	return u
}

func rss(b *testing.B, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip(err) // not Linux
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib * 1024
		}
	}
	b.Fatal("no VmRSS")
	return 0
}

func fetch(b *testing.B, url string) []byte {
	b.Helper()
	resp, err := http.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatalf("%s: %d %v", url, resp.StatusCode, err)
	}
	return body
}
