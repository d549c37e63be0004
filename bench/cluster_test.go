package bench

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/bench/load"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Roles of replicas.
const (
	whole   = "api,worker"
	apiOnly = "api"
)

// cluster is replicas on a database of their own.
type cluster struct {
	dbURL    string
	db       *pgx.Conn
	replicas []*replica
}

// replica is a server process.
type replica struct {
	*clustertest.Replica
	target *load.Target // the demo agent of the replica
}

// anyConnections lets one address open as many connections as it likes.
const anyConnections = "limits: {connections_per_address: 0}\n"

// config has an agent "serial" that runs one task at a time, so fan-out begins when all readers are connected.
const config = anyConnections + `
agents:
  - name: demo
    default: true
    direct_replies: true
    executor: {kind: demo}
    limits: {concurrency: 20000, run_timeout: 0}
  - name: serial
    executor: {kind: demo}
    limits: {concurrency: 1}
`

// newCluster starts a replica for each of the roles and warms them up. They end with b.
func newCluster(b *testing.B, roles ...string) *cluster {
	b.Helper()
	c := &cluster{dbURL: newDatabase(b)}
	for _, r := range roles {
		c.replicas = append(c.replicas, c.start(b, r))
	}
	c.db = connect(b, c.dbURL)
	for i, r := range c.replicas {
		if strings.HasPrefix(roles[i], apiOnly) {
			t := []*load.Target{r.target}
			measure(b, load.Options{Targets: t, Mode: load.Blocking, Text: "echo:hello", InFlight: 8, Count: 200})
			measure(b, load.Options{Targets: t, Mode: load.Stream, Text: "chunks=100 size=256", InFlight: 2, Count: 4})
		}
	}
	settle(b)
	return c
}

func (c *cluster) start(b *testing.B, roles string) *replica {
	b.Helper()
	const any = "127.0.0.1:0"
	r := &replica{Replica: clustertest.Start(b, clustertest.Options{Name: roles, DB: c.dbURL, Config: config, Env: []string{
		"HOLDFAST_LISTEN=" + any, "HOLDFAST_ADMIN_LISTEN=" + any, "HOLDFAST_GRPC_LISTEN=" + any, "HOLDFAST_ROLES=" + roles,
		"HOLDFAST_LOG_LEVEL=info", "HOLDFAST_SECRET_KEYS=" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
	}})}
	if r.URL != "" {
		r.target = targetOf(b, r.URL)
	}
	return r
}

// processes are those, beside replicas, that an interrupted run must kill.
var processes sync.Map // *os.Process to nothing

// run starts a process and kills it at the end of b. It needs no graceful stop: nobody uses its results, and its
// database is dropped.
func run(b *testing.B, cmd *exec.Cmd) {
	b.Helper()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	processes.Store(cmd.Process, nil)
	var ending atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := cmd.Wait(); !ending.Load() {
			fmt.Fprintf(os.Stderr, "bench: %v ended by itself: %v\n", cmd.Args, err)
		}
	}()
	b.Cleanup(func() {
		ending.Store(true)
		_ = cmd.Process.Kill()
		<-ended
		processes.Delete(cmd.Process)
	})
}

func targetOf(b *testing.B, url string) *load.Target {
	b.Helper()
	t, err := load.NewTarget(url, nil)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// awaitReady waits until a process serves.
func awaitReady(b *testing.B, addr string) {
	b.Helper()
	waittest.Eventually(b, addr+" is ready", func() error {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			err = waittest.Unless(resp.StatusCode == http.StatusOK, "%s", resp.Status)
		}
		return err
	})
}

// targets are the demo agents of the replicas.
func (c *cluster) targets() []*load.Target {
	out := make([]*load.Target, len(c.replicas))
	for i, r := range c.replicas {
		out[i] = r.target
	}
	return out
}

// measure runs a load; every task must be completed.
func measure(b *testing.B, o load.Options) *load.Result {
	b.Helper()
	o.Timeout = 5 * time.Minute
	r, err := load.Run(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	if r.Failed() > 0 {
		b.Fatalf("%d of %d tasks were not completed: %v, for example: %v", r.Failed(), r.Failed()+r.Tasks, r.Errors, r.Example)
	}
	return r
}

// metric reports a number. It drops the time per operation, which means nothing with many requests in flight.
func metric(b *testing.B, value float64, unit string) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(value, unit)
}

func quantiles(b *testing.B, sorted []time.Duration) {
	b.Helper()
	metric(b, ms(load.Quantile(sorted, 0.5)), "p50-ms")
	metric(b, ms(load.Quantile(sorted, 0.99)), "p99-ms")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func chunksOf(n, size int) string { return fmt.Sprintf("chunks=%d size=%d", n, size) }
