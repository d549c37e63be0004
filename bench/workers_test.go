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
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/runapi/runapitest"
)

// remote is a worker. Each of its requests has a connection.
type remote struct {
	url, id string
	slots   int
	http    *http.Client
}

type claimedRun struct {
	ID  string `json:"id"`
	Run struct {
		RunAPI runapitest.Client `json:"runApi"`
	} `json:"run"`
}

func (r *remote) claim(ctx context.Context, running []string) (runs []claimedRun, err error) {
	body := fmt.Sprintf(`{"worker":{"id":%q},"agents":[{"name":"remote","slots":%d}],"running":[%s],"wait":60}`,
		r.id, r.slots, strings.Join(running, ","))
	var answer struct{ Runs []claimedRun }
	err = r.post(ctx, r.url+"/worker/v1/claims", "", "application/json", body, &answer)
	return answer.Runs, err
}

func (r *remote) post(ctx context.Context, url, token, media, body string, into any) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", media)
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := r.http.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%d %s: %w", res.StatusCode, raw, err)
	}
	return json.Unmarshal(raw, into)
}

// complete ends a run.
func (r *remote) complete(ctx context.Context, c *claimedRun) error {
	var taken struct{ Ended bool }
	return r.post(ctx, c.Run.RunAPI.URL+"/events?from=0", c.Run.RunAPI.Token, "application/x-ndjson", `{"type":"complete"}`+"\n", &taken)
}

// work claims runs and completes them until ctx ends.
func (r *remote) work(ctx context.Context, done *atomic.Int64) {
	for ctx.Err() == nil {
		runs, err := r.claim(ctx, nil)
		if err != nil {
			continue
		}
		var wg sync.WaitGroup
		for i := range runs {
			wg.Go(func() {
				if r.complete(ctx, &runs[i]) == nil {
					done.Add(1)
				}
			})
		}
		wg.Wait()
	}
}

const remoteConfig = anyConnections + `
agents:
  - name: demo
    default: true
    executor: {kind: demo}
  - name: web
    executor: {kind: http, http: {url: %q}}
  - name: remote
    executor: {kind: worker}
`

// workers starts remote workers.
func workers(url string, n, slots int) (done *atomic.Int64, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * n * slots}
	done = &atomic.Int64{}
	var wg sync.WaitGroup
	for range n {
		r := &remote{url: url, id: uuid.NewString(), slots: slots, http: &http.Client{Transport: transport}}
		wg.Go(func() { r.work(ctx, done) })
	}
	return done, func() {
		cancel()
		wg.Wait()
		transport.CloseIdleConnections()
	}
}

// waitingClaims waits until n claims wait at a replica.
func waitingClaims(b *testing.B, r *replica, n float64) {
	b.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if all, err := r.Samples(); err == nil && all["holdfast_worker_claims_waiting"] == n {
			return
		}
		if time.Since(began) > time.Minute {
			b.Fatal("the claims do not wait")
		}
	}
}

// begins measures the time from a message to the status working on its stream, for agents in the server's process, behind
// HTTP, and in a worker that waits.
func begins(b *testing.B) {
	b.Helper()
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, `{"type":"complete"}`+"\n")
	}))
	b.Cleanup(agent.Close)
	c := newClusterWith(b, fmt.Sprintf(remoteConfig, agent.URL), whole)
	r := c.replicas[0]
	for _, of := range []string{"demo", "web", "remote"} {
		b.Run(of, func(b *testing.B) {
			if of == "remote" {
				_, stop := workers(r.URL, 4, 1)
				defer stop()
			}
			var took []time.Duration
			for range rounds(20) {
				if of == "remote" {
					waitingClaims(b, r, 4)
				}
				d, err := untilWorking(b.Context(), r.URL+"/agents/"+of)
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, d)
			}
			slices.Sort(took)
			quantiles(b, took)
		})
	}
}

func untilWorking(ctx context.Context, url string) (time.Duration, error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"message":{"kind":"message","messageId":%q,"role":"user","parts":[{"kind":"text","text":"echo:hello"}]}}}`, uuid.NewString())
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	q.Header.Set("Content-Type", "application/json")
	began := time.Now()
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	took := time.Duration(0)
	for lines.Scan() {
		if took == 0 && bytes.Contains(lines.Bytes(), []byte(`"state":"working"`)) {
			took = time.Since(began)
		}
	}
	if took == 0 {
		return 0, fmt.Errorf("the stream has no status working: %w", lines.Err())
	}
	return took, nil
}

// queue makes tasks that wait for remote workers, and returns their number.
func queue(b *testing.B, url string) int64 {
	b.Helper()
	tasks := 500
	if tiny() > 0 {
		tasks = 20
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range tasks / 16 {
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"configuration":{"blocking":false},"message":{"kind":"message","messageId":%q,"role":"user","parts":[{"kind":"text","text":"x"}]}}}`, uuid.NewString())
				res, err := http.Post(url+"/agents/remote", "application/json", strings.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		})
	}
	wg.Wait()
	return int64(tasks / 16 * 16)
}

// claimed measures how many runs per second remote workers claim and complete.
func claimed(b *testing.B) {
	b.Helper()
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			c := newClusterWith(b, fmt.Sprintf(remoteConfig, "http://127.0.0.1:9"), whole)
			url := c.replicas[0].URL
			var rates []float64
			for range rounds(1) {
				queued := queue(b, url)
				began := time.Now()
				done, stop := workers(url, n, 1)
				for done.Load() < queued {
					if time.Since(began) > 2*time.Minute {
						b.Fatalf("%d of %d runs", done.Load(), queued)
					}
					time.Sleep(time.Millisecond)
				}
				rates = append(rates, float64(queued)/time.Since(began).Seconds())
				stop()
			}
			slices.Sort(rates)
			metric(b, rates[len(rates)/2], "runs/s")
		})
	}
}

// idleWorkers measures the memory of workers that wait.
func idleWorkers(b *testing.B) {
	b.Helper()
	n := 10_000
	if tiny() > 0 {
		n = 100
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < uint64(n)+500 {
		b.Skipf("%d open files are allowed (ulimit -n)", limit.Cur)
	}
	c := newClusterWith(b, fmt.Sprintf(remoteConfig, "http://127.0.0.1:9"), whole)
	r := c.replicas[0]
	before := settled(b, r)
	held := make([]net.Conn, n)
	defer func() {
		for _, h := range held {
			if h != nil {
				_ = h.Close()
			}
		}
	}()
	for i := range held {
		body := fmt.Sprintf(`{"worker":{"id":%q},"agents":[{"name":"remote","slots":1}],"wait":60}`, uuid.NewString())
		var err error
		if held[i], err = net.Dial("tcp", a2atest.Host(r.URL)); err != nil {
			b.Fatal(err)
		}
		if _, err = fmt.Fprintf(held[i], "POST /worker/v1/claims HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			b.Fatal(err)
		}
	}
	waitingClaims(b, r, float64(n))
	after := settled(b, r)
	metric(b, (after.rss-before.rss)/1024/float64(n), "KiB-RSS/worker")
	metric(b, (after.heap-before.heap)/1024/float64(n), "KiB-heap/worker")
	metric(b, (after.stack-before.stack)/1024/float64(n), "KiB-stack/worker")
	metric(b, (after.goroutines-before.goroutines)/float64(n), "goroutines/worker")
}
