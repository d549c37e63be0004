package jsonrpc_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// still is an engine that answers at once and stores nothing.
type still struct {
	*rpctest.Recorder
	t *task.Task
}

func (s still) Send(context.Context, *engine.SendRequest) (*task.Task, error) { return s.t, nil }
func (s still) Get(context.Context, *engine.GetRequest) (*task.Task, error)   { return s.t, nil }

// sink is a ResponseWriter that discards everything. It has deadlines like a real one.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header              { return s.header }
func (s *sink) WriteHeader(int)                  {}
func (s *sink) Write(p []byte) (int, error)      { return len(p), nil }
func (s *sink) SetReadDeadline(time.Time) error  { return nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkSend measures what the binding adds to a send: routing, the envelope, and the codec both
// ways.
func BenchmarkSend(b *testing.B) {
	s := rpc.New(rpc.Options{
		Agents:  []rpc.Agent{{Name: "demo", Default: true}},
		JSONRPC: options{Engine: rpctest.ForAll(still{t: rpctest.Sample("0.3")})}.binding(), Log: slog.New(slog.DiscardHandler),
	})
	for name, body := range map[string]string{
		"0.1":       call("tasks/send"),
		"0.3":       call("message/send"),
		"0.3 64KiB": strings.Replace(call("message/send"), "hi", strings.Repeat("x", 64<<10), 1),
		"tasks/get": call("tasks/get"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			w := &sink{header: http.Header{}}
			r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, "/", nil)
			r.Header.Set("Content-Type", "application/json")
			r.ContentLength = int64(len(body))
			content := strings.NewReader(body)
			r.Body = io.NopCloser(content)
			for b.Loop() {
				content.Reset(body)
				s.ServeHTTP(w, r)
			}
		})
	}
}
