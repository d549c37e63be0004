package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/load"
)

// The agents behind HTTP and in workers are this test binary as processes of their own.

const (
	writerEnv   = "HOLDFAST_BENCH_WRITER" // http:<address to serve>, or worker:<URL of the server>
	writerSlots = 500                     // runs of a worker at a time
)

// tokensPerSecond is how many pieces a run emits in a second, and tokenSize the bytes of each: its index, the time and three more.
const (
	tokensPerSecond = 40
	tokenSize       = 32
)

const llmConfig = anyConnections + `
agents:
  - name: demo
    default: true
    executor: {kind: demo}
    limits: {concurrency: 20000, run_timeout: 0}
  - name: web
    executor: {kind: http, http: {url: "http://%s/"}}
    limits: {concurrency: 20000, run_timeout: 0}
  - name: remote
    executor: {kind: worker}
    limits: {run_timeout: 0}
`

// write is an agent that emits texts at a steady pace: it makes up for a piece that was late, as a model does whose tokens wait.
func write(how string) error {
	kind, where, _ := strings.Cut(how, ":")
	if kind == "worker" {
		return agent.Connect(context.Background(), where, map[string]agent.Executor{
			"remote": agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
				return pieces(ctx, run.Text(), func(text string) error { return out.Text(ctx, "", text) })
			}),
		}, agent.ConnectOptions{Concurrency: writerSlots})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		var run struct {
			Message struct{ Parts []struct{ Text string } }
		}
		if err := json.NewDecoder(r.Body).Decode(&run); err != nil || len(run.Message.Parts) == 0 {
			http.Error(w, "not a run", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		rc := http.NewResponseController(w)
		_ = pieces(r.Context(), run.Message.Parts[0].Text, func(text string) error {
			if _, err := fmt.Fprintf(w, `{"type":"text","text":%q}`+"\n", text); err != nil {
				return err
			}
			return rc.Flush()
		})
	})
	return http.ListenAndServe(where, mux)
}

// pieces emits what a text asks for in the demo agent's language.
func pieces(ctx context.Context, text string, emit func(string) error) error {
	var n, size, milliseconds int
	if _, err := fmt.Sscanf(text, "chunks=%d size=%d delay=%dms", &n, &size, &milliseconds); err != nil {
		return err
	}
	begun := time.Now()
	for i := range n {
		select {
		case <-time.After(time.Until(begun.Add(time.Duration(i*milliseconds) * time.Millisecond))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := emit(fmt.Sprintf("%08d %d %0*d", i, time.Now().UnixNano(), size-29, i%1000)); err != nil {
			return err
		}
	}
	return nil
}

// llm has many runs at once that emit small texts as language models do, each with a reader on the other replica. One reader in
// ten is cut on the way and resumes. Every reader must get every piece, in order and once.
func llm(b *testing.B) {
	b.Helper()
	for _, kind := range []string{"demo", "web", "remote"} {
		b.Run(kind, func(b *testing.B) {
			addr := clustertest.Reserve(b)
			c := warmed(b, startCluster(b, fmt.Sprintf(llmConfig, addr), nil, whole, apiOnly), []string{whole, apiOnly})
			for _, runs := range []int{500, 2000} {
				if tiny() > 0 {
					runs /= 25
				}
				writers := map[string][]string{
					"web": {"http:" + addr}, "remote": slices.Repeat([]string{"worker:" + c.replicas[0].URL}, (runs+writerSlots-1)/writerSlots),
				}[kind]
				b.Run(fmt.Sprintf("runs=%d", runs), func(b *testing.B) {
					for _, how := range writers {
						cmd := exec.Command(os.Args[0])
						cmd.Env = append(os.Environ(), writerEnv+"="+how)
						run(b, cmd)
					}
					switch kind {
					case "web":
						awaitReady(b, addr)
					case "remote":
						waitingClaims(b, c.replicas[0], float64(len(writers)))
					}
					settle(b)
					llmAt(b, c, kind, runs)
				})
			}
		})
	}
}

func llmAt(b *testing.B, c *cluster, kind string, runs int) {
	b.Helper()
	// Runs begin over a while, as those of people do. Then all of them emit together at least half of the time.
	const begins = 500 // in a second
	ramp := time.Duration(runs) * time.Second / begins
	each := tokensPerSecond * int((2*ramp + max(5*time.Second, benchtime())).Seconds())
	if tiny() > 0 {
		each = tokensPerSecond
	}
	text := fmt.Sprintf("chunks=%d size=%d delay=%dms", each, tokenSize, 1000/tokensPerSecond)
	from, to := targetOf(b, c.replicas[0].URL+"/agents/"+kind), targetOf(b, c.replicas[1].URL+"/agents/"+kind)
	readers := make([]tokenReader, runs)
	var used cost
	before := c.lsn(b)
	used.of(b, c, func() (int, float64) {
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for i := range readers {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Second / begins)
				cut := 0
				if i%10 == 0 {
					cut = each / 2
				}
				if err := readers[i].read(ctx, to, ask(b, from, text, false).TaskID, each, cut); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
		return runs * each, 0
	})
	if b.Failed() {
		b.FailNow()
	}
	wal := c.walSince(b, before)

	// The rate counts while every reader reads: from the last one's first piece to the first one's last. On a machine that is too
	// slow for that, it counts from the first piece to the last of all.
	begun, ended := readers[0].arrived[0], readers[0].arrived[each-1]
	start, end := begun, ended
	var lags, resumes []time.Duration
	for i := range readers {
		r := &readers[i]
		first, last := r.arrived[0], r.arrived[each-1]
		begun, ended = later(begun, first), earlier(ended, last)
		start, end = earlier(start, first), later(end, last)
		lags = append(lags, r.lags...)
		if r.resumed > 0 {
			resumes = append(resumes, r.resumed)
		}
	}
	if ended.Sub(begun) < time.Second {
		begun, ended = start, end
	}
	n := 0
	for i := range readers {
		for _, at := range readers[i].arrived {
			if !at.Before(begun) && !at.After(ended) {
				n++
			}
		}
	}
	rate := float64(n) / ended.Sub(begun).Seconds()
	metric(b, rate, "events/s")
	metric(b, 100*rate/float64(tokensPerSecond*runs), "%held")
	slices.Sort(lags)
	quantiles(b, lags)
	slices.Sort(resumes)
	metric(b, ms(load.Quantile(resumes, 0.5)), "resume-p50-ms")
	metric(b, ms(load.Quantile(resumes, 0.99)), "resume-p99-ms")
	metric(b, wal/float64(runs*each), "WAL-B/event")
	if used.spent > 0 {
		metric(b, float64(used.database.Microseconds())/used.done, "db-µs/event")
		metric(b, float64((used.spent-used.database).Microseconds())/used.done, "server-µs/event")
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// tokenReader follows a run.
type tokenReader struct {
	arrived []time.Time     // of each piece
	lags    []time.Duration // from emission to arrival, of the pieces that were emitted while the stream was open
	resumed time.Duration   // from the cut to the next piece
}

var errCut = errors.New("cut")

// read reads n pieces from the first event on. It cuts the connection after some of them, unless that is 0, and resumes.
func (r *tokenReader) read(ctx context.Context, target *load.Target, id string, n, cut int) error {
	var opened, left time.Time
	completed := false
	for after := "0"; !completed; {
		c, err := target.Dial(ctx)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		err = c.Stream(target.Request("tasks/resubscribe", load.TaskQuery(id), after), func(data []byte) error {
			now := time.Now()
			if opened.IsZero() {
				opened = now
			}
			if !load.IsChunk(data) {
				o, err := load.ReadOutcome(data)
				completed = o.Final && o.State == "completed"
				return err
			}
			index, at, ok := load.Piece(data)
			if !ok || index != len(r.arrived) {
				return fmt.Errorf("task %s: piece %d arrived instead of %d: %.300s", id, index, len(r.arrived), data)
			}
			r.arrived = append(r.arrived, now)
			if at.After(opened) {
				r.lags = append(r.lags, now.Sub(at))
			}
			if !left.IsZero() && r.resumed == 0 {
				r.resumed = now.Sub(left)
			}
			if len(r.arrived) == cut {
				left = now
				return errCut
			}
			return nil
		})
		stop()
		_ = c.Close()
		switch {
		case errors.Is(err, errCut):
			after, cut = c.LastEventID(), 0
		case err != nil:
			return err
		case !completed:
			return fmt.Errorf("task %s: the stream ended after %d pieces", id, len(r.arrived))
		}
	}
	if len(r.arrived) != n {
		return fmt.Errorf("task %s: %d of %d pieces arrived", id, len(r.arrived), n)
	}
	return nil
}
