package bench

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/bench/load"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
)

// The raw server is this test binary as a process of its own: net/http alone, with answers of the same size as the
// server's.

const rawServerEnv = "HOLDFAST_BENCH_RAW_SERVER"

const (
	rawTask  = `"kind":"task","id":"0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f","contextId":"0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e40"`
	rawIDs   = `"taskId":"0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f","contextId":"0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e40"`
	rawState = `"status":{"state":%q,"timestamp":"2026-01-02T03:04:05.678901Z"}`
)

func serveRaw(addr string) error {
	mux := http.NewServeMux()
	answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{`+rawTask+`,`+rawState+
		`,"artifacts":[{"artifactId":"echo","name":"echo","parts":[{"kind":"text","text":"hello"}]}],"history":[]}}`, "completed")
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = io.WriteString(w, answer)
	})
	// One handler flushes each chunk, the other each 16 KiB.
	mux.HandleFunc("POST /each", func(w http.ResponseWriter, r *http.Request) { streamRaw(w, r, 0) })
	mux.HandleFunc("POST /full", func(w http.ResponseWriter, r *http.Request) { streamRaw(w, r, 16<<10) })
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	return http.ListenAndServe(addr, mux)
}

var countOf = regexp.MustCompile(`chunks=(\d+)`)

func streamRaw(w http.ResponseWriter, r *http.Request, flushAt int) {
	body, err := io.ReadAll(r.Body)
	found := countOf.FindSubmatch(body)
	if err != nil || found == nil {
		http.Error(w, "no count", http.StatusBadRequest)
		return
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		http.Error(w, "no count", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	var out bytes.Buffer
	event := func(id int, format string, args ...any) {
		fmt.Fprintf(&out, "id: %d\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":", id)
		fmt.Fprintf(&out, format, args...)
		out.WriteString("}\n\n")
	}
	flush := func() {
		_, _ = w.Write(out.Bytes())
		_ = rc.Flush()
		out.Reset()
	}
	event(1, "{"+rawTask+","+rawState+"}", "submitted")
	text := strings.Repeat("x", 256-len("00000000 1700000000000000000 "))
	for i := range n {
		event(i+2, `{"kind":"artifact-update",%s,"append":%t,"artifact":{"artifactId":"chunks","name":"chunks","parts":[{"kind":"text","text":"%08d %d %s"}]}}`,
			rawIDs, i > 0, i, time.Now().UnixNano(), text)
		if out.Len() > flushAt {
			flush()
		}
	}
	event(n+2, `{"kind":"status-update",%s,"final":true,`+rawState+`}`, rawIDs, "completed")
	flush()
}

func startRaw(b *testing.B) (addr string) {
	b.Helper()
	addr = nettest.Reserve(b)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), rawServerEnv+"="+addr)
	run(b, cmd)
	awaitReady(b, addr)
	return addr
}

// rawEcho measures the load generator and net/http for requests without any work.
func rawEcho(b *testing.B) {
	b.Helper()
	target := targetOf(b, "http://"+startRaw(b))
	settle(b)
	for _, n := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("inflight=%d", n), func(b *testing.B) {
			r := measure(b, load.Options{Targets: []*load.Target{target}, Mode: load.Blocking, Text: "echo:hello", InFlight: n, Count: b.N})
			metric(b, r.TasksPerSecond(), "requests/s")
			quantiles(b, r.Latencies)
		})
	}
}

// rawSSE measures them for streams of chunks that are not stored.
func rawSSE(b *testing.B) {
	b.Helper()
	addr := startRaw(b)
	settle(b)
	for _, streams := range []int{4, 64} {
		for _, flush := range []string{"each", "full"} {
			b.Run(fmt.Sprintf("streams=%d/flush=%s", streams, flush), func(b *testing.B) {
				streamed(b, []*load.Target{targetOf(b, "http://"+addr+"/"+flush)}, streams, 1000, 256)
			})
		}
	}
}
