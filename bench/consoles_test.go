package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/load"
)

// A page of the console works like this; see console/src/routes/tasks.tsx and console/src/layout/me.ts.
const (
	consolePage   = 200              // tasks that the list reads at a time
	consoleCounts = 5 * time.Second  // between two counts, or 50 times as long as the last one took
	consoleMe     = 60 * time.Second // between two looks at who the operator is
)

// consoleRate is how many tasks begin in a second while consoles are open.
const consoleRate = 100

// consoles opens the list of tasks in 50 consoles, half of them with a filter by agent, half of them on each of two replicas.
// Meanwhile two agents on both replicas run a fixed number of tasks a second. Rounds with and without consoles alternate, and the
// difference is the cost of the consoles: medians of the rounds. Every console must get the end of every task of its filter.
func consoles(b *testing.B) {
	b.Helper()
	c := newClusterWith(b, config+"  - name: second\n    executor: {kind: demo}\n", whole, whole)
	const n = 50
	b.Run(fmt.Sprintf("consoles=%d", n), func(b *testing.B) {
		if tiny() == 0 {
			before := c.memory(b)
			_, leave := openConsoles(b, c, n)
			after := c.memory(b)
			leave()
			metric(b, (after.rss-before.rss)/1024/n, "KiB-RSS/console")
			metric(b, (after.heap+after.stack-before.heap-before.stack)/1024/n, "KiB-heap-stack/console")
		}
		found := map[string][]float64{}
		for range rounds(3) {
			c.underLoad(b, nil, func(v float64, unit string) { found["without-"+unit] = append(found["without-"+unit], v) })
			open, leave := openConsoles(b, c, n)
			c.underLoad(b, open, func(v float64, unit string) { found["with-"+unit] = append(found["with-"+unit], v) })
			leave()
		}
		for unit, values := range found {
			metric(b, median(values), unit)
		}
	})
}

// openConsoles opens n consoles, and returns when their lists are live.
func openConsoles(b *testing.B, c *cluster, n int) (open []*console, leave func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var all, ready sync.WaitGroup
	ready.Add(n)
	for i := range n {
		o := &console{
			admin: c.replicas[i%2].Admin + "/admin/v1", ready: sync.OnceFunc(ready.Done),
			from: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))},
		}
		if i%4 >= 2 {
			o.agent = "second"
		}
		open = append(open, o)
		all.Go(func() {
			defer o.ready() // a console that failed must not block the others
			if err := o.run(ctx); err != nil && ctx.Err() == nil {
				b.Error(err)
			}
		})
	}
	leave = func() { cancel(); all.Wait() }
	ready.Wait()
	if b.Failed() {
		leave()
		b.FailNow()
	}
	return open, leave
}

// underLoad runs tasks for a while, and tells what that cost and what the consoles got.
func (c *cluster) underLoad(b *testing.B, open []*console, metric func(v float64, unit string)) {
	b.Helper()
	window := max(2*consoleCounts, benchtime())
	if tiny() > 0 {
		window = time.Second
	}
	targets := make([]*load.Target, 0, 2*len(c.replicas))
	for _, r := range c.replicas {
		targets = append(targets, r.target, targetOf(b, r.URL+"/agents/second"))
	}
	settle(b)
	before := tally(open)
	used := c.processorTime(b)
	begun := time.Now()
	ran := paced(b, targets, consoleRate, window)
	// Every console must know the end of every task. The agents took the tasks in turn.
	waitUntil(b, "every console knows the end of every task", func() bool {
		for _, o := range open {
			want := int64(ran)
			if o.agent != "" {
				want /= 2
			}
			if o.ended.Load() < want && o.resyncs.Load() == 0 {
				return false
			}
		}
		return true
	})
	took := time.Since(begun).Seconds()
	now := c.processorTime(b)
	after := tally(open)

	var server, database time.Duration
	for pid, t := range now {
		if spent := t - used[pid]; c.serves(pid) {
			server += spent
		} else {
			database += spent
		}
	}
	metric(float64(ran)/took, "tasks/s")
	if len(now) > 0 {
		metric(ms(server)/took, "server-cpu-ms/s")
		metric(ms(database)/took, "database-cpu-ms/s")
	}
	if len(open) == 0 {
		return
	}
	metric(float64(after.events-before.events)/took, "events/s")
	metric(float64(after.streamed-before.streamed)/took/1024, "stream-KiB/s")
	metric(float64(after.reads-before.reads)/took, "reads/s")
	metric(float64(after.read-before.read)/took/1024, "read-KiB/s")
	metric(float64(after.resyncs-before.resyncs), "resyncs")
}

// paced sends tasks to the targets in turn at a fixed rate, and returns how many have ended: an even number.
func paced(b *testing.B, targets []*load.Target, rate float64, window time.Duration) int {
	b.Helper()
	const sendersOfTarget = 8
	each := int(window.Seconds()*rate) / len(targets)
	begun := time.Now()
	var all sync.WaitGroup
	for at, t := range targets {
		var next atomic.Int64
		for range sendersOfTarget {
			conn := dial(b, t)
			all.Go(func() {
				for n := int(next.Add(1)) - 1; n < each; n = int(next.Add(1)) - 1 {
					id := n*len(targets) + at
					time.Sleep(time.Until(begun.Add(time.Duration(float64(id) / rate * float64(time.Second)))))
					message := load.Message(fmt.Sprintf("paced-%d-%d", begun.UnixNano(), id), "steps=2 delay=50ms", true)
					if _, err := conn.Call(t.Request("message/send", message, "")); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return each * len(targets)
}

// memory is that of all replicas.
func (c *cluster) memory(b *testing.B) (sum usage) {
	b.Helper()
	for _, r := range c.replicas {
		u := settled(b, r)
		sum.rss += u.rss
		sum.heap += u.heap
		sum.stack += u.stack
	}
	return sum
}

// serves reports whether a process is a replica, and not of the database.
func (c *cluster) serves(pid int) bool {
	for _, r := range c.replicas {
		if r.PID() == pid {
			return true
		}
	}
	return false
}

// console is an open list of tasks, and counts what the server sends it.
type console struct {
	admin, agent string
	ready        func() // the list is live
	// from is the address of the operator's machine: replicas bound the connections and streams of an address.
	from net.Addr

	events, streamed, resyncs, ended atomic.Int64
	reads, read                      atomic.Int64
}

type consoleTally struct{ events, streamed, resyncs, reads, read int64 }

func tally(open []*console) (sum consoleTally) {
	for _, o := range open {
		sum.events += o.events.Load()
		sum.streamed += o.streamed.Load()
		sum.resyncs += o.resyncs.Load()
		sum.reads += o.reads.Load()
		sum.read += o.read.Load()
	}
	return sum
}

// run does what the page does, until ctx ends or a request fails.
func (o *console) run(ctx context.Context) error {
	dialer := &net.Dialer{LocalAddr: o.from}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 6, MaxConnsPerHost: 6, DialContext: dialer.DialContext}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	every := func(pause func(took time.Duration) time.Duration, path string) {
		all.Go(func() {
			for {
				begun := time.Now()
				if err := o.get(ctx, client, path); err != nil {
					cancel(err)
					return
				}
				select {
				case <-time.After(pause(time.Since(begun))):
				case <-ctx.Done():
					return
				}
			}
		})
	}
	every(func(time.Duration) time.Duration { return consoleMe }, "/me")
	every(func(took time.Duration) time.Duration { return max(consoleCounts, 50*took) }, "/tasks/counts?"+o.filter())
	for _, path := range []string{"/agents", o.list()} {
		if err := o.get(ctx, client, path); err != nil {
			cancel(err)
		}
	}
	if err := o.follow(ctx, client); err != nil {
		cancel(err)
	}
	all.Wait()
	return context.Cause(ctx)
}

func (o *console) filter() string {
	if o.agent == "" {
		return ""
	}
	return "agent=" + o.agent
}

func (o *console) list() string { return fmt.Sprintf("/tasks?%s&limit=%d", o.filter(), consolePage) }

func (o *console) get(ctx context.Context, client *http.Client, path string) error {
	body, err := o.request(ctx, client, path)
	if err != nil {
		return err
	}
	defer body.Close()
	n, err := io.Copy(io.Discard, body)
	o.reads.Add(1)
	o.read.Add(n)
	return err
}

func (o *console) request(ctx context.Context, client *http.Client, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.admin+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return nil, fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return resp.Body, nil
}

// follow reads the live list. As the page does, it reads the newest tasks again when the stream is ready and after a resync.
func (o *console) follow(ctx context.Context, client *http.Client) error {
	body, err := o.request(ctx, client, "/tasks/stream?"+o.filter())
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewReaderSize(body, 64<<10)
	var name string
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		o.streamed.Add(int64(len(line)))
		switch line = bytes.TrimSpace(line); {
		case bytes.HasPrefix(line, []byte("event:")):
			name = strings.TrimSpace(string(line[len("event:"):]))
		case bytes.HasPrefix(line, []byte("data:")):
			if err := o.told(ctx, client, name, line[len("data:"):]); err != nil {
				return err
			}
		}
	}
}

func (o *console) told(ctx context.Context, client *http.Client, name string, data []byte) error {
	o.events.Add(1)
	switch name {
	case "task":
		var change struct {
			Task struct {
				State string `json:"state"`
			} `json:"task"`
		}
		if err := json.Unmarshal(data, &change); err != nil {
			return err
		}
		if change.Task.State == "completed" {
			o.ended.Add(1)
		}
		return nil
	case "resync":
		o.resyncs.Add(1)
	case "ready":
		defer o.ready()
	}
	return o.get(ctx, client, o.list())
}
