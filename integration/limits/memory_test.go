package limits

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

var whole = flag.Bool("memory.whole", false, "TestMemory puts the whole loads on the server (make memory)")

// loads are what TestMemory puts on a server, one after the other. Sizes are in bytes.
type loads struct {
	limit, peak      int // memory that the server may use, and the most that it may have resident
	backlog, message int // messages that wait for their agent, and the size of each
	bodies, body     int // requests at once, and the size of each
	readers, long    int // of a task with so many chunks of a megabyte, in each way to read one
	streams, event   int // streams behind live events of this size, whose clients read nothing
	shown            int // chunks of a megabyte of the task that slow clients get
	hooks            int // webhooks of each of three receivers, whose bodies are as large as they may be
	runs             int // of an agent that sends large events at once
}

// Each of the whole loads alone would take more than a gigabyte if nothing bounded it; the others show that the server works so
// at all. The limit of the Go runtime is a soft one.
var (
	some = loads{
		limit: 200 << 20, peak: 400 << 20, backlog: 4, message: 10 << 20, bodies: 12, body: 12 << 20,
		readers: 2, long: 24, streams: 40, event: 4 << 20, shown: 8, hooks: 8, runs: 6,
	}
	all = loads{
		limit: 512 << 20, peak: 512 << 20, backlog: 100, message: 10 << 20, bodies: 200, body: 16<<20 - 1<<10,
		readers: 10, long: 300, streams: 1000, event: 8 << 20, shown: 35, hooks: 30, runs: 100,
	}
)

const bounded = `
listen: 127.0.0.1:0
grpc_listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
limits: {memory: %d, max_block: 1h, connections_per_address: 0}
worker: {lease_ttl: 10m}
push: {allow_private: true, https_only: false, validation_challenge: false, retry_first: 100ms, retry_most: 1s, timeout: 2m}
agents:
  - name: demo
    executor: {kind: demo}
  - name: quick
    executor: {kind: demo}
  - name: large
    executor: {kind: http, http: {url: %q}}
`

// TestMemory puts large loads on a server with little memory. It may be slow, or refuse with a time to retry. But it
// must live, lose nothing that it acknowledged, and serve small requests meanwhile.
func TestMemory(t *testing.T) {
	t.Parallel()
	l := some
	if *whole {
		l = all
	}
	m := &memoryTest{t: t, loads: l, db: clustertest.NewDB(t), proceed: make(chan struct{}), pace: make(chan struct{}), slowGets: map[int]int{}}
	m.line = []byte(`{"type":"text","text":"` + strings.Repeat("x", l.event) + `"}` + "\n")
	agent := httptest.NewServer(http.HandlerFunc(m.answer))
	t.Cleanup(agent.Close)
	m.config = fmt.Sprintf(bounded, l.limit, agent.URL)

	m.queueBacklog()
	m.Replica = clustertest.Start(t, clustertest.Options{Name: "limited", DB: m.db.URL, Config: m.config})
	require.Contains(t, m.Log(), `"source":"limits.memory"`)
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- m.requestLittle(stop) }()
	for _, load := range []struct {
		name string
		put  func()
	}{
		{"a backlog", m.runBacklog},
		{"large bodies", m.sendBodies},
		{"readers of a long task", m.readLong},
		{"slow readers of a long task", m.readSlowly},
		{"webhooks with large bodies", m.deliver},
		{"slow streams", m.openStreams},
		{"large events of agents", m.emitLarge},
	} {
		load.put()
		t.Logf("%s: peak of %d MiB", load.name, m.peak()>>20)
	}
	close(stop)
	require.NoError(t, <-ended)
	// By its documentation the race detector takes 5 to 10 times the memory. That range is as wide as the gap between
	// the loads with and without budgets, so no factor would be a reliable check. Without the detector the short form
	// checks, too.
	if !clustertest.UnderRace() {
		require.Less(t, m.peak(), l.peak)
	}
	m.completed()
}

// memoryTest is a server under load.
type memoryTest struct {
	t *testing.T
	loads
	*clustertest.Replica
	db      *clustertest.DB
	config  string
	lengthy string        // the task of readLong
	pace    chan struct{} // requestLittle sends one after each small task, which then waits for the next receiver
	proceed chan struct{} // closed when the agent "large" may answer
	line    []byte        // an event of it

	mu       sync.Mutex
	acked    []string    // tasks
	slowGets map[int]int // by status
}

// answer plays the agent "large".
func (m *memoryTest) answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	select {
	case <-m.proceed:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for range largeEvents {
		_, _ = w.Write(m.line)
	}
}

// largeEvents is the number of events of the agent "large".
const largeEvents = 3

// sendLarge is a request whose text the demo agent does not repeat. The answer does not wait for the task.
func sendLarge(size int) []byte {
	return []byte(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"configuration":{"blocking":false,"historyLength":0},"message":{"kind":"message",` +
		`"messageId":"m","role":"user","parts":[{"kind":"text","text":"echo:x"},{"kind":"text","text":"` + strings.Repeat("x", size) + `"}]}}}`)
}

// queueBacklog lets messages wait, on a server that runs no agent.
func (m *memoryTest) queueBacklog() {
	m.t.Helper()
	r := clustertest.Start(m.t, clustertest.Options{Name: "queues", DB: m.db.URL, Config: m.config, Env: []string{"HOLDFAST_ROLES=api"}})
	m.Replica = r
	body := sendLarge(m.message)
	for range m.backlog {
		statuses := m.each(1, body)
		require.Equal(m.t, map[int]int{http.StatusOK: 1}, statuses)
	}
	r.Stop()
}

func (m *memoryTest) runBacklog() {
	m.t.Helper()
	m.waitRuns()
}

// waitRuns waits until no task is open, except those of the agent "large".
func (m *memoryTest) waitRuns() {
	m.t.Helper()
	m.waitFor("demo")
}

// waitFor waits until no task of an agent is open. Each time that one has ended, a small one is served.
func (m *memoryTest) waitFor(agent string) {
	m.t.Helper()
	last := -1
	waittest.Eventually(m.t, "the runs of "+agent, func() error {
		n := clustertest.One[int](m.db, "SELECT count(*)::int FROM holdfast.tasks_open WHERE agent = $1", agent)
		if n != last {
			last = n
			<-m.pace
		}
		return waittest.Unless(n == 0, "%d tasks are open", n)
	})
}

func (m *memoryTest) sendBodies() {
	m.t.Helper()
	body := sendLarge(m.body)
	statuses := m.log(fmt.Sprintf("%d bodies of %d MiB", m.bodies, m.body>>20), m.each(m.bodies, body))
	require.Positive(m.t, statuses[http.StatusOK])
	m.refusedWell(statuses)
	m.waitRuns()
	waittest.Eventually(m.t, "it still takes large bodies", func() error {
		statuses := m.each(1, body)
		return waittest.Unless(statuses[http.StatusOK] == 1, "%v", statuses)
	})
}

func (m *memoryTest) readLong() {
	m.t.Helper()
	task := m.Send(a2atest.V03, a2atest.Say(fmt.Sprintf("chunks=%d size=1000000", m.long)).Detached()).ID
	m.lengthy = task
	m.waitRuns()
	m.refusedWell(m.log("gets of the long task", m.each(m.readers, []byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"`+task+`"}}`))))
	m.refusedWell(m.log("lists with it", m.each(m.readers, []byte(`{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"includeArtifacts":true,"pageSize":5}}`), "A2A-Version", "1.0")))
	var readers sync.WaitGroup
	for range m.readers {
		readers.Go(func() {
			n, err := m.readStream("", task, io.Discard)
			if err != nil || n < int64(m.long)*1_000_000 {
				m.t.Errorf("a stream from the first event: %d bytes, %v", n, err)
			}
		})
	}
	readers.Wait()
}

func (m *memoryTest) log(what string, statuses map[int]int) map[int]int {
	m.t.Logf("%s: %v", what, statuses)
	return statuses
}

// readStream reads a stream from the first event of a task.
func (m *memoryTest) readStream(path, task string, into io.Writer) (int64, error) {
	resp, err := a2atest.Post(m.t.Context(), m.URL+path, subscription(task), "Last-Event-ID", "0")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return io.Copy(into, resp.Body)
}

// slowly takes up to a megabyte for each small request: a client that reads all the time, but slowly.
type slowly struct {
	pace  <-chan struct{}
	taken int
}

func (s *slowly) Write(p []byte) (int, error) {
	if s.taken += len(p); s.taken > 1<<20 {
		s.taken = 0
		<-s.pace
	}
	return len(p), nil
}

// readSlowly reads streams, gets and lists slowly, at once.
func (m *memoryTest) readSlowly() {
	m.t.Helper()
	large := m.Send(a2atest.V03, a2atest.Say(fmt.Sprintf("chunks=%d size=1000000", m.shown)).Detached()).ID
	m.waitRuns()
	var readers sync.WaitGroup
	for range m.readers {
		readers.Go(func() {
			for { // on a busy machine the server may cut a reader off that is too slow
				n, err := m.readStream("", m.lengthy, &slowly{pace: m.pace})
				if err == nil && n >= int64(m.long)*1_000_000 {
					return
				}
				m.t.Logf("a stream that is read slowly: %d bytes, %v", n, err)
			}
		})
		readers.Go(func() {
			resp, err := a2atest.Post(m.t.Context(), m.URL, []byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"`+large+`"}}`))
			if err != nil {
				m.t.Errorf("a slow get: %v", err)
				return
			}
			defer resp.Body.Close()
			n, err := io.Copy(&slowly{pace: m.pace}, resp.Body)
			if resp.StatusCode == http.StatusOK && (err != nil || n < int64(m.shown)*1_000_000) {
				m.t.Errorf("a get that is read slowly: %d bytes, %v", n, err)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.slowGets[resp.StatusCode]++
		})
	}
	readers.Wait()
	m.refusedWell(m.log("slow gets of a smaller task, beside streams", m.slowGets))
	require.Positive(m.t, m.slowGets[http.StatusOK])
}

// hooked is a receiver that counts the large bodies that it got.
type hooked struct {
	*httptest.Server
	mu    sync.Mutex
	large map[string]bool // by path
}

func newHooked(t *testing.T, least int64, into func() io.Writer) *hooked {
	t.Helper()
	h := &hooked{large: map[string]bool{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(into(), r.Body); err == nil && n >= least {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.large[r.URL.Path] = true
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(h.Close)
	return h
}

// deliver lets tasks with webhooks grow to push.max_body. One receiver reads slowly.
func (m *memoryTest) deliver() {
	m.t.Helper()
	const least = 500_000
	discard := func() io.Writer { return io.Discard }
	receivers := []*hooked{
		newHooked(m.t, least, discard), newHooked(m.t, least, discard), newHooked(m.t, least, func() io.Writer { return &slowly{pace: m.pace} }),
	}
	for i := range m.hooks {
		for _, r := range receivers {
			m.acked = append(m.acked, m.Send(a2atest.V03, a2atest.Say("chunks=5 size=100000").Detached().Hooked(fmt.Sprintf("%s/%d", r.URL, i), nil)).ID)
		}
	}
	m.waitRuns()
	for _, r := range receivers {
		waittest.Eventually(m.t, "the deliveries", func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			return waittest.Unless(len(r.large) == m.hooks, "%d of %d have come", len(r.large), m.hooks)
		})
	}
	failed := clustertest.One[int](m.db, "SELECT count(*)::int FROM holdfast.push_attempts WHERE class <> 'delivered'")
	require.Zero(m.t, failed, "attempts that failed")
}

// givesBack waits until no byte of a budget is in use. The server gives bytes back after the commit that the database shows.
func (m *memoryTest) givesBack(budget string) {
	m.t.Helper()
	waittest.Eventually(m.t, "the memory of "+budget, func() error {
		n := int(m.Metric(`holdfast_memory_in_flight_bytes{budget="` + budget + `"}`))
		return waittest.Unless(n == 0, "%d bytes are in use", n)
	})
}

// emitLarge runs an agent many times at once. Each run sends large events as fast as the server takes them.
func (m *memoryTest) emitLarge() {
	m.t.Helper()
	for range m.runs {
		m.acked = append(m.acked, m.Under("/agents/large").Send(a2atest.V03, a2atest.Say("go").Detached()).ID)
	}
	m.waitFor("large")
	m.givesBack("runs")
}

func subscription(task string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/resubscribe","params":{"id":"` + task + `"}}`)
}

// openStreams opens streams whose clients read nothing. Then the agent answers with large events.
func (m *memoryTest) openStreams() {
	m.t.Helper()
	task := m.Under("/agents/large").Send(a2atest.V03, a2atest.Say("go").Detached()).ID
	m.acked = append(m.acked, task)
	body := subscription(task)
	for range m.streams {
		c, err := (&net.Dialer{}).DialContext(m.t.Context(), "tcp", a2atest.Host(m.URL))
		require.NoError(m.t, err)
		defer func() { _ = c.Close() }()
		_, err = fmt.Fprintf(c, "POST /agents/large HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		require.NoError(m.t, err)
	}
	waittest.Eventually(m.t, "the streams", func() error {
		n := int(m.Metric("holdfast_streams_open"))
		return waittest.Unless(n >= m.streams, "%d are open", n)
	})
	close(m.proceed)
	m.waitFor("large")
	// A client that reads gets everything.
	n, err := m.readStream("/agents/large", task, io.Discard)
	require.NoError(m.t, err)
	require.Greater(m.t, n, int64(largeEvents*m.event))
}

// requestLittle sends and gets small tasks until stop.
func (m *memoryTest) requestLittle(stop <-chan struct{}) error {
	quick := m.URL + "/agents/quick"
	defer close(m.pace)
	for n := 0; ; n++ {
		select {
		case <-stop:
			m.t.Logf("%d small requests were served", 2*n)
			return nil
		default:
		}
		sent, err := call(m.t.Context(), quick, []byte(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"echo:small"}]}}}`))
		if err != nil || sent.status != http.StatusOK || sent.state != "completed" {
			return fmt.Errorf("small send %d: %+v, %w", n, sent, err)
		}
		got, err := call(m.t.Context(), quick, []byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"`+sent.id+`"}}`))
		if err != nil || got.status != http.StatusOK || got.id != sent.id {
			return fmt.Errorf("small get %d: %+v, %w", n, got, err)
		}
		select {
		case m.pace <- struct{}{}:
		case <-stop:
		}
	}
}

// each sends a request n times at once, and counts the statuses of the answers.
func (m *memoryTest) each(n int, body []byte, header ...string) map[int]int {
	var all sync.WaitGroup
	statuses := map[int]int{}
	for range n {
		all.Go(func() {
			a, err := call(m.t.Context(), m.URL, body, header...)
			if err != nil {
				m.t.Log(err)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			statuses[a.status]++
			if a.status == http.StatusOK && a.id != "" {
				m.acked = append(m.acked, a.id)
			}
		})
	}
	all.Wait()
	return statuses
}

// refusedWell checks that answers are successes, or refusals that help the client.
func (m *memoryTest) refusedWell(statuses map[int]int) {
	m.t.Helper()
	allowed := []int{http.StatusOK, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusServiceUnavailable}
	for code := range statuses {
		require.Contains(m.t, allowed, code)
	}
}

// completed checks that all acknowledged tasks are.
func (m *memoryTest) completed() {
	m.t.Helper()
	done := clustertest.Column[string](m.db, "SELECT id::text FROM holdfast.tasks WHERE state = 5")
	for _, task := range m.acked {
		require.Contains(m.t, done, task)
	}
}

// answer is an answer in short. status is negative if it lacks the time of a retry.
type answer struct {
	status    int
	id, state string
}

func call(ctx context.Context, url string, body []byte, header ...string) (answer, error) {
	resp, err := a2atest.PostWith(ctx, heeding, url, body, header...)
	if err != nil {
		return answer{}, err
	}
	return read(resp)
}

// heeding reads an answer that comes before the body has been sent. A server that refuses a body unread ends the connection
// soon after its answer; on a busy machine Go's client may see that end first, and would report it without the answer.
var heeding = &http.Client{Transport: &http.Transport{
	DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return heedingConn{c}, nil
	},
}}

type heedingConn struct{ net.Conn }

func (c heedingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return len(b), nil // reads tell, after the answer
	}
	return n, err
}

func read(resp *http.Response) (answer, error) {
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode}
	if a.status == http.StatusServiceUnavailable || a.status == http.StatusTooManyRequests {
		if resp.Header.Get("Retry-After") == "" {
			a.status = -a.status
		}
	}
	var begin bytes.Buffer
	_, err := io.CopyN(&begin, resp.Body, 64<<10)
	if err == nil { // it is long
		_, err = io.Copy(io.Discard, resp.Body)
		return a, err
	}
	var document struct {
		Result struct {
			ID     string
			Status struct{ State string }
		}
	}
	if err := json.Unmarshal(begin.Bytes(), &document); err != nil {
		return a, err
	}
	a.id, a.state = document.Result.ID, document.Result.Status.State
	return a, nil
}

// peak returns the most memory that the server has had resident, in bytes.
func (m *memoryTest) peak() int {
	m.t.Helper()
	read, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.PID()))
	require.NoError(m.t, err, "the server is alive")
	for line := range strings.Lines(string(read)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kib, err := strconv.Atoi(f[1])
			require.NoError(m.t, err)
			return kib << 10
		}
	}
	m.t.Fatal("no VmHWM")
	return 0
}
