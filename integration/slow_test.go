package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Consumers that read slowly, or nothing, cost the server what they may cost, and nobody else anything.
func TestSlowAndDeadConsumers(t *testing.T) {
	t.Parallel()
	const (
		dead, slow = 40, 4
		chunks     = 500
		size       = 64 << 10
	)
	db := newDB(t)
	config := replace(settings, "store: {pool_size: 4}", "store: {pool_size: 4}\nsse: {write_timeout: 4s, keep_alive: 1s}")
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: config, Async: true})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: config, Async: true})
	for _, r := range []*replica{a, b} {
		r.waitServing()
		r.waitReady()
	}
	before := a.metric("go_memstats_sys_bytes")

	healthy := a.open(v03.stream, v03.params("", fmt.Sprintf("chunks=%d size=%d delay=5ms", chunks, size)))
	seen := healthy.take(1)
	taskID := seen[0].task()
	var dying []*consumer
	die := func(n int) {
		for i := range n {
			c := a.consume(dialects[i%2], taskID, nil)
			_, err := c.in.Peek(1) // the stream is open
			require.NoError(t, err)
			dying = append(dying, c)
		}
	}
	die(dead / 2)
	hurry := make(chan struct{})
	var progress [slow]atomic.Int64
	all := make(chan []*event, slow)
	for i := range slow {
		c := a.consume(dialects[i%2], taskID, hurry)
		go func() {
			s := c.stream(t)
			var got []*event
			for {
				e, err := s.next()
				if err != nil {
					if err != io.EOF { //nolint:errorlint // next returns it as it is
						t.Errorf("slow consumer %d: %v after %d events", i, err, len(got))
					}
					break
				}
				got = append(got, e)
				progress[i].Add(1)
			}
			all <- got
		}()
	}

	// Nobody waits for them: the healthy one has the end while they are far behind, and other tasks run.
	seen = append(seen, healthy.rest()...)
	var behind []int64
	for i := range slow {
		behind = append(behind, progress[i].Load())
		require.Less(t, behind[i], int64(chunks/2), "a slow consumer is as far as a healthy one")
	}
	require.Equal(t, "completed", last(seen).state())
	indexed(t, chunksOf(seen), chunks)
	require.Equal(t, ids(len(seen)), seqsOf(seen))
	require.Equal(t, "completed", a.call(v01.send, v01.params("", "echo:meanwhile")).state())
	die(dead - dead/2) // of a log that is complete

	// Whoever takes nothing is cut off by the write deadline; whoever takes little is not.
	eventually(t, "the dead are cut off", func() error {
		n := a.metric("holdfast_streams_open")
		return unless(n <= slow, "%v streams are open", n)
	})
	require.Equal(t, slow, int(a.metric("holdfast_streams_open")), "only they are")
	for i := range slow {
		require.Less(t, progress[i].Load(), int64(chunks), "a slow consumer has it all: it was not slow")
	}
	close(hurry)
	for range slow {
		require.Equal(t, seqsOf(seen)[1:], seqsOf(within(t, "a slow consumer", all)), "late, and everything")
	}

	// The dead come back to life: what is left in their connections ends in the middle, and the rest is elsewhere.
	for i, c := range dying {
		s := c.stream(t)
		s.last = 1
		got, err := s.untilEnd()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "it breaks off in the middle, and nothing follows")
		require.Less(t, len(got), chunks/2, "the connection held nearly everything: the test shows nothing")
		if i < 4 {
			got = append(got, b.resume(taskID, s.last).rest()...)
			require.Equal(t, seqsOf(seen)[1:], seqsOf(got))
			require.Equal(t, chunksOf(seen), chunksOf(got))
		}
	}
	require.Zero(t, a.metric("holdfast_streams_open"))

	// What the server ever had from the system. With all of it buffered for each it would be more than ten times the bound,
	// which leaves each of them a page of the log, and the collector as much again.
	grown := a.metric("go_memstats_sys_bytes") - before
	unbounded := float64(chunks * size * (dead + slow))
	t.Logf("memory grew by %.0f MiB; buffers without bound would take %.0f MiB; at the healthy one's end the slow were at %v of %d",
		grown/(1<<20), unbounded/(1<<20), behind, len(seen))
	require.Less(t, grown, unbounded/10)
	db.sound()
}

// consumer is a client on a bare connection, which reads when it is told to.
type consumer struct {
	in    *bufio.Reader
	hurry <-chan struct{} // until it is closed, reading is slow
}

// consume asks for a task's events from the beginning, and reads nothing yet.
func (r *replica) consume(d *dialect, taskID string, hurry <-chan struct{}) *consumer {
	r.t.Helper()
	conn, err := net.DialTimeout("tcp", hostOf(r.url), patience)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(r.t, conn.SetDeadline(time.Now().Add(5*patience)))
	body := request("tasks/resubscribe", object{"id": taskID})
	_, err = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nA2A-Version: %s\r\nLast-Event-ID: 1\r\nContent-Length: %d\r\n\r\n%s",
		strings.TrimPrefix(d.name, "v"), len(body), body)
	require.NoError(r.t, err)
	return &consumer{bufio.NewReaderSize(conn, 16), hurry}
}

// Read takes 32 KiB ten times a second, or all there is. The pause is what makes it slow.
func (c *consumer) Read(p []byte) (int, error) {
	if c.hurry != nil {
		select {
		case <-c.hurry:
		case <-time.After(100 * time.Millisecond):
			p = p[:min(len(p), 32<<10)]
		}
	}
	return c.in.Read(p)
}

// stream begins to read.
func (c *consumer) stream(t *testing.T) *stream {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 32<<10), nil)
	if err != nil {
		t.Error(err)
		return newStream(t, strings.NewReader(""))
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return newStream(t, resp.Body)
}

// metric is the sum of a metric's samples.
func (r *replica) metric(name string) float64 {
	r.t.Helper()
	client := http.Client{Timeout: patience}
	resp, err := client.Get(r.admin + "/metrics")
	require.NoError(r.t, err)
	defer resp.Body.Close()
	sum, found := 0.0, false
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		sample, value, _ := strings.Cut(in.Text(), " ")
		if family, _, _ := strings.Cut(sample, "{"); family != name {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		require.NoError(r.t, err)
		sum, found = sum+v, true
	}
	require.NoError(r.t, in.Err())
	require.True(r.t, found, "no metric %s", name)
	return sum
}
