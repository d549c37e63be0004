package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
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
	Lags        []time.Duration // of deliveries with a chunk's time stamp
}

// receive serves the listeners that the parent process passed on.
func receive(listeners int) error {
	var mu sync.Mutex
	var got receipts
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		now := time.Now()
		mu.Lock()
		got.Count++
		if got.Count == 1 {
			got.First = now
		}
		got.Last = now
		if bytes.HasPrefix(body, []byte(`{"artifactUpdate"`)) {
			if at, ok := load.Stamp(body); ok {
				got.Lags = append(got.Lags, now.Sub(at))
			}
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

// pushConfig is the server's configuration that allows webhooks to this machine.
func pushConfig(more string) string { return config + "push:\n  allow_private: true\n" + more }

// hookClient is a client of A2A 1.0. Its tasks have a webhook, unless the URL is "".
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

func (h *hookClient) send(text, hook string, wait bool) error {
	set := ""
	if hook != "" {
		set = fmt.Sprintf(`,"taskPushNotificationConfig":{"url":%q}`, hook)
	}
	body, err := h.conn.Call(h.target.Request("SendMessage", fmt.Appendf(nil,
		`{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":%q}]},"configuration":{"historyLength":0,"returnImmediately":%t%s}}`,
		text, !wait, set), ""))
	switch {
	case err != nil:
		return err
	case !bytes.Contains(body, []byte(`"result":{"task"`)):
		return fmt.Errorf("not a task: %.200s", body)
	case wait && !bytes.Contains(body, []byte(`"TASK_STATE_COMPLETED"`)):
		return errors.New("the task has not completed")
	}
	return nil
}

// pushLag measures the time from an executor's emission to a receiver: with one replica that runs the tasks and
// delivers, and with one replica for each.
func pushLag(b *testing.B) {
	b.Helper()
	config := pushConfig("  artifacts: true\n  coalesce_after: 0\n")
	clusters := map[string]*cluster{"same": newClusterWith(b, config, everything), "other": newClusterWith(b, config, whole, pushOnly)}
	for _, l := range []struct {
		name  string
		tasks int
		delay time.Duration
	}{{"idle", 1, 10 * time.Millisecond}, {"500-per-s", 50, 100 * time.Millisecond}} {
		for _, where := range []string{"same", "other"} {
			c := clusters[where]
			settle(b)
			b.Run(l.name+"/"+where, func(b *testing.B) {
				to := newReceiver(b, 1)
				client := newHookClient(b, c.replicas[0])
				each := 20
				if tiny() == 0 {
					each = max(each, int(benchtime()/l.delay))
				}
				for n := range l.tasks {
					if n > 0 {
						// Spread the tasks over each pause.
						time.Sleep(l.delay / time.Duration(l.tasks))
					}
					if err := client.send(fmt.Sprintf("chunks=%d size=64 delay=%s", each, l.delay), to.hook(0), false); err != nil {
						b.Fatal(err)
					}
				}
				var got receipts
				waitUntil(b, "every chunk arrives", func() bool {
					got = to.look(b)
					return len(got.Lags) >= l.tasks*each
				})
				c.delivered(b)
				slices.Sort(got.Lags)
				quantiles(b, got.Lags)
				metric(b, float64(got.Count)/got.Last.Sub(got.First).Seconds(), "deliveries/s")
			})
		}
	}
}

// pushDeliveries measures how fast a replica delivers a backlog when it does nothing else.
func pushDeliveries(b *testing.B) {
	b.Helper()
	const perHost = 8 // by default
	config := pushConfig("")
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
			spread(b, tasks, clients, func(h *hookClient) error { return h.send("echo:hello", to.hook(int(nth.Add(1))), true) })
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

// pushCost compares blocking tasks with and without a webhook, in turns. All deliveries of a turn end before the next
// one: they count in the processor time, but not in the rate.
func pushCost(b *testing.B) {
	b.Helper()
	const inFlight = 64
	for _, v := range []struct {
		name, config string
		roles        []string
	}{
		{"marked", "", []string{whole}},
		{"delivered", "", []string{everything}},
		{"elsewhere", "  concurrency: 16\n", []string{whole, pushOnly}},
	} {
		c := newClusterWith(b, pushConfig(v.config), v.roles...)
		b.Run(fmt.Sprintf("%s/inflight=%d", v.name, inFlight), func(b *testing.B) {
			to := newReceiver(b, 8)
			var clients []*hookClient
			for range inFlight {
				clients = append(clients, newHookClient(b, c.replicas[0]))
			}
			delivers := v.name != "marked"
			var cost, bareCost cost
			with := func() float64 {
				return cost.of(b, c, func() (n int, rate float64) {
					n, rate = hookedTasks(b, clients, to.hook)
					if delivers {
						c.delivered(b)
					}
					return n, rate
				})
			}
			without := func() float64 {
				return bareCost.of(b, c, func() (int, float64) { return hookedTasks(b, clients, func(int) string { return "" }) })
			}
			rates, bare, ratios := inTurns(with, without)
			if got := to.look(b).Count; (got > 0) != delivers {
				b.Fatalf("%d deliveries arrived", got)
			}
			metric(b, median(bare), "without/s")
			metric(b, median(rates), "with/s")
			metric(b, 100*(median(ratios)-1), "%slower")
			compareCosts(b, &cost, &bareCost)
		})
	}
}

// hookedTasks has every client send one task after another for a turn. It returns the number of tasks, and the tasks
// per second.
func hookedTasks(b *testing.B, clients []*hookClient, hook func(n int) string) (int, float64) {
	b.Helper()
	var n atomic.Int64
	elapsed := callForTurn(b, clients, func(i int, h *hookClient) error {
		n.Add(1)
		return h.send("echo:hello", hook(i), true)
	})
	return int(n.Load()), float64(n.Load()) / elapsed.Seconds()
}
