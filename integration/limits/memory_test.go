package limits

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

const bounded = `
listen: 127.0.0.1:0
grpc_listen: off
admin_listen: 127.0.0.1:0
agents:
  - name: demo
    executor: {kind: demo}
`

// The server gets 200 MiB. Each load alone would take more than a gigabyte if nothing bounded it.
const (
	memoryLimit = 200 << 20
	memoryPeak  = 400 << 20 // resident; the limit of the Go runtime is a soft one
)

// TestMemory puts large loads on a server with little memory. It may refuse, with a time to retry, but it
// must live, and answer small requests meanwhile.
func TestMemory(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: bounded, Env: []string{"GOMEMLIMIT=" + strconv.Itoa(memoryLimit)}})
	small := r.Send(a2atest.V03, a2atest.Say("echo:small"))
	require.Equal(t, "completed", small.State())
	long := r.Send(a2atest.V03, a2atest.Say("chunks=60 size=1000000"))
	require.Equal(t, "completed", long.State())
	require.Contains(t, r.Log(), `"source":"GOMEMLIMIT"`)

	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			status, _, err := call(t.Context(), r, []byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"`+small.ID+`"}}`))
			if err != nil || status != http.StatusOK {
				ended <- fmt.Errorf("small request %d: status %d, %w", n, status, err)
				return
			}
		}
	}()
	each := func(n int, body []byte) map[int]int {
		var all sync.WaitGroup
		var mu sync.Mutex
		statuses := map[int]int{}
		for range n {
			all.Go(func() {
				status, header, err := call(t.Context(), r, body)
				if err == nil && (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) && header.Get("Retry-After") == "" {
					status = -1
				}
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			})
		}
		all.Wait()
		return statuses
	}
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"configuration":{"blocking":false},"message":{"kind":"message","messageId":"m","role":"user",` +
		`"parts":[{"kind":"text","text":"echo:x"},{"kind":"text","text":"` + strings.Repeat("x", 12<<20) + `"}]}}}`)
	sent := each(40, body)
	t.Logf("40 bodies of 12 MiB: %v, peak %d MiB", sent, peak(t, r)>>20)
	require.Positive(t, sent[http.StatusOK])
	require.Zero(t, sent[-1], "refusals say when to retry")

	got := each(10, []byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"`+long.ID+`"}}`))
	t.Logf("10 gets of 60 MB: %v, peak %d MiB", got, peak(t, r)>>20)
	require.Zero(t, got[-1])

	// Streams from the first event, whose clients read nothing.
	resume := []byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/resubscribe","params":{"id":"` + long.ID + `"}}`)
	for range 200 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.URL, "http://"))
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nLast-Event-ID: 0\r\nContent-Length: %d\r\n\r\n%s", len(resume), resume)
		require.NoError(t, err)
	}
	waittest.Eventually(t, "the streams", func() error {
		return waittest.Unless(r.Metric("holdfast_streams_open") > 100, "%v are open", r.Metric("holdfast_streams_open"))
	})
	t.Logf("200 streams of 60 MB: peak %d MiB", peak(t, r)>>20)
	close(stop)
	require.NoError(t, <-ended)
	require.Less(t, peak(t, r), memoryPeak)
	// The server still takes large bodies.
	status, _, err := call(t.Context(), r, body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
}

func call(ctx context.Context, r *clustertest.Replica, body []byte) (status int, h http.Header, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header, err
}

// peak returns the most memory that the process has had resident, in bytes.
func peak(t *testing.T, r *clustertest.Replica) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.PID()))
	require.NoError(t, err, "the server is alive")
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kib, err := strconv.Atoi(f[1])
			require.NoError(t, err)
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
