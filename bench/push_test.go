package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/load"
)

// The receiver of webhooks is this test binary as a process of its own, at any number of addresses.

const (
	receiverEnv    = "HOLDFAST_BENCH_RECEIVER" // the number of addresses
	firstInherited = 3                         // the first file descriptor after stdin, stdout and stderr
)

// receipts are the deliveries that arrived.
type receipts struct {
	Count       int
	First, Last time.Time
}

// receive serves the listeners that the parent process passed on.
func receive(listeners int) error {
	var mu sync.Mutex
	var got receipts
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		mu.Lock()
		got.Count++
		if got.Last = time.Now(); got.Count == 1 {
			got.First = got.Last
		}
		mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /receipts", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(w).Encode(&got)
	})
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	ended := make(chan error)
	for i := range listeners {
		l, err := net.FileListener(os.NewFile(uintptr(firstInherited+i), "listener"))
		if err != nil {
			return err
		}
		go func() { ended <- http.Serve(l, mux) }()
	}
	return <-ended
}

// receiver is the process that receives webhooks.
type receiver struct{ addrs []string }

func newReceiver(b *testing.B, addrs int) *receiver {
	b.Helper()
	r := &receiver{}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), receiverEnv+"="+strconv.Itoa(addrs))
	for range addrs {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			b.Fatal(err)
		}
		file, err := l.File()
		if err != nil {
			b.Fatal(err)
		}
		r.addrs, cmd.ExtraFiles = append(r.addrs, l.Addr().String()), append(cmd.ExtraFiles, file)
		_ = l.Close() // the child has its own copy
	}
	run(b, cmd)
	for _, file := range cmd.ExtraFiles {
		_ = file.Close()
	}
	for _, addr := range r.addrs {
		awaitReady(b, addr)
	}
	return r
}

func (r *receiver) hook(n int) string { return "http://" + r.addrs[n%len(r.addrs)] + "/hook" }

func (r *receiver) look(b *testing.B) (got receipts) {
	b.Helper()
	resp, err := http.Get("http://" + r.addrs[0] + "/receipts")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		b.Fatal(err)
	}
	return got
}

// waitUntil waits until a condition holds. It checks rarely, to disturb little.
func waitUntil(b *testing.B, what string, done func() bool) {
	b.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("%s: not within 5 minutes", what)
		}
	}
}

// delivered waits until no delivery is due.
func (c *cluster) delivered(b *testing.B) {
	b.Helper()
	waitUntil(b, "all is delivered", func() bool {
		return one[int](b, c.db, "SELECT count(*) FROM holdfast.push_cursors WHERE due_at IS NOT NULL") == 0
	})
}

// hookClient is a client of A2A 1.0 whose tasks have a webhook.
type hookClient struct {
	target *load.Target
	conn   *load.Conn
}

func newHookClient(b *testing.B, r *replica) *hookClient {
	b.Helper()
	t, err := load.NewTarget(r.URL, http.Header{"A2a-Version": {"1.0"}})
	if err != nil {
		b.Fatal(err)
	}
	return &hookClient{t, dial(b, t)}
}

// send waits until the task has ended.
func (h *hookClient) send(text, hook string) error {
	body, err := h.conn.Call(h.target.Request("SendMessage", fmt.Appendf(nil, `{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":%q}]},
		"configuration":{"historyLength":0,"returnImmediately":false,"taskPushNotificationConfig":{"url":%q}}}`, text, hook), ""))
	if err == nil && !bytes.Contains(body, []byte(`"TASK_STATE_COMPLETED"`)) {
		err = fmt.Errorf("the task has not completed: %.200s", body)
	}
	return err
}

// pushDeliveries measures how fast a replica delivers a backlog when it does nothing else.
func pushDeliveries(b *testing.B) {
	b.Helper()
	const perHost = 8 // by default
	config := config + "push: {allow_private: true}\n"
	for _, hosts := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("hosts=%d/inflight=%d", hosts, hosts*perHost), func(b *testing.B) {
			c := newClusterWith(b, config, whole)
			to := newReceiver(b, hosts)
			var clients []*hookClient
			for range 16 {
				clients = append(clients, newHookClient(b, c.replicas[0]))
			}
			// Several deliveries for each one under way, and about as many as fit into the time.
			tasks := 4 * hosts * perHost
			if tiny() == 0 {
				tasks = max(tasks, int(1500*benchtime().Seconds()))
			}
			var nth atomic.Int64
			spread(b, tasks, clients, func(h *hookClient) error { return h.send("echo:hello", to.hook(int(nth.Add(1)))) })
			want := one[int](b, c.db, `SELECT count(*) FROM holdfast.push_cursors k JOIN holdfast.task_events e ON e.task = k.task
				WHERE k.due_at IS NOT NULL AND e.kind = 2 AND e.seq BETWEEN k.next_seq AND k.due_seq`)
			settle(b)
			b.StartTimer()
			c.start(b, pushOnly)
			c.delivered(b)
			b.StopTimer()
			got := to.look(b)
			if got.Count < want {
				b.Fatalf("%d of %d deliveries arrived", got.Count, want)
			}
			metric(b, float64(got.Count)/got.Last.Sub(got.First).Seconds(), "deliveries/s")
		})
	}
}
