package limits

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// Clients that read slowly, or not at all, use bounded memory, and delay no other client.
func TestSlowAndDeadReaders(t *testing.T) {
	t.Parallel()
	const (
		dead, slow = 40, 4
		chunks     = 500
		size       = 64 << 10
	)
	db := clustertest.NewDB(t)
	config := clustertest.Replace(clustertest.Settings, "store: {pool_size: 4}", "store: {pool_size: 4}\nsse: {write_timeout: 10s, keep_alive: 1s}")
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
	before := a.Metric("go_memstats_sys_bytes")

	healthy := a.Stream(a2atest.V03, a2atest.Say(fmt.Sprintf("chunks=%d size=%d delay=5ms", chunks, size)))
	seen := healthy.Take(1)
	taskID := seen[0].Task()
	var dying []*consumer
	die := func(n int) {
		for i := range n {
			c := consume(a, a2atest.Old[i%2], taskID, nil)
			_, err := c.in.Peek(1) // the stream is open
			require.NoError(t, err)
			dying = append(dying, c)
		}
	}
	die(dead / 2)
	hurry := make(chan struct{})
	var progress [slow]atomic.Int64
	all := make(chan []*a2atest.Event, slow)
	for i := range slow {
		c := consume(a, a2atest.Old[i%2], taskID, hurry)
		go func() {
			s := c.stream(t)
			var got []*a2atest.Event
			for {
				e, err := s.Next()
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

	// The healthy reader has the end while the slow ones are far behind, and other tasks run.
	seen = append(seen, healthy.Rest()...)
	var behind []int64
	for i := range slow {
		behind = append(behind, progress[i].Load())
		require.Less(t, behind[i], int64(chunks/2), "a slow consumer is as far as a healthy one")
	}
	require.Equal(t, "completed", a2atest.Last(seen).State())
	clustertest.Indexed(t, a2atest.Chunks(seen), chunks)
	require.Equal(t, clustertest.Seq(len(seen)), a2atest.Seqs(seen))
	require.Equal(t, "completed", a.Send(a2atest.V01, a2atest.Say("echo:meanwhile")).State())
	die(dead - dead/2) // of a complete log

	// The write deadline cuts off readers that read nothing; slow readers stay.
	waittest.Eventually(t, "the server cuts off dead readers", func() error {
		n := a.Metric("holdfast_streams_open")
		return waittest.Unless(n <= slow, "%v streams are open", n)
	})
	require.Equal(t, slow, int(a.Metric("holdfast_streams_open")), "only dead readers are cut off")
	for i := range slow {
		require.Less(t, progress[i].Load(), int64(chunks), "a slow reader has all events: it was not slow")
	}
	close(hurry)
	for range slow {
		require.Equal(t, a2atest.Seqs(seen)[1:], a2atest.Seqs(waittest.Within(t, "a slow consumer", all)), "late, but complete")
	}

	// The dead readers read on: their connections hold an incomplete stream, and the rest is available from another
	// replica.
	for i, c := range dying {
		s := c.stream(t)
		s.Last = 1
		got, err := s.UntilEnd()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "the stream stops in the middle of an event, and nothing follows")
		require.Less(t, len(got), chunks/2, "the connection held nearly everything: the test shows nothing")
		if i < 4 {
			got = append(got, b.Resume(taskID, s.Last).Rest()...)
			require.Equal(t, a2atest.Seqs(seen)[1:], a2atest.Seqs(got))
			require.Equal(t, a2atest.Chunks(seen), a2atest.Chunks(got))
		}
	}
	require.Zero(t, a.Metric("holdfast_streams_open"))

	// The most memory that the server ever took from the system. Buffers of the whole log for each reader would
	// exceed the bound more than five times. The bound leaves each reader a page of the log, and the collector three
	// times as much on a busy machine.
	grown := a.Metric("go_memstats_sys_bytes") - before
	unbounded := float64(chunks * size * (dead + slow))
	t.Logf("memory grew by %.0f MiB; buffers without bound would take %.0f MiB; at the healthy one's end the slow were at %v of %d",
		grown/(1<<20), unbounded/(1<<20), behind, len(seen))
	require.Less(t, grown, unbounded/5)
}

// consumer is a client on a bare connection that reads on command.
type consumer struct {
	in    *bufio.Reader
	hurry <-chan struct{} // reading is slow until it closes
}

// consume asks for a task's events from the beginning, and reads nothing yet.
func consume(r *clustertest.Replica, d *a2atest.Wire, taskID string, hurry <-chan struct{}) *consumer {
	r.T.Helper()
	conn, err := net.DialTimeout("tcp", a2atest.Host(r.URL), waittest.Patience)
	require.NoError(r.T, err)
	r.T.Cleanup(func() { _ = conn.Close() })
	require.NoError(r.T, conn.SetDeadline(time.Now().Add(5*waittest.Patience)))
	body := a2atest.Request("tasks/resubscribe", object{"id": taskID})
	_, err = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nA2A-Version: %s\r\nLast-Event-ID: 1\r\nContent-Length: %d\r\n\r\n%s",
		d.Version, len(body), body)
	require.NoError(r.T, err)
	return &consumer{bufio.NewReaderSize(conn, 16), hurry}
}

// Read takes 16 KiB ten times a second; after hurry it takes all. The pause makes it slow.
func (c *consumer) Read(p []byte) (int, error) {
	if c.hurry != nil {
		select {
		case <-c.hurry:
		case <-time.After(100 * time.Millisecond):
			p = p[:min(len(p), 16<<10)]
		}
	}
	return c.in.Read(p)
}

// stream begins to read.
func (c *consumer) stream(t *testing.T) *a2atest.Reply {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 32<<10), nil)
	if err != nil {
		t.Error(err)
		return a2atest.NewStream(t, strings.NewReader(""))
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return a2atest.NewStream(t, resp.Body)
}
