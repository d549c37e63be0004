// Package otlptest is a receiver of OpenTelemetry's protocol for tests: a real server, with the official messages.
package otlptest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Span is a span that was exported. Ids are in hexadecimal.
type Span struct {
	Trace, ID, Parent, Name, Kind string
	Attributes                    map[string]string
	Resource                      map[string]string
	Links                         []string // ids of spans
	Failed                        bool
}

// Receiver has the spans that were exported to it.
type Receiver struct {
	collector.UnimplementedTraceServiceServer
	URL     string // of OTLP over HTTP
	GRPC    string // of OTLP over gRPC
	t       testing.TB
	mu      sync.Mutex
	spans   []*Span
	refused bool
}

// Start starts a receiver that runs until the test ends.
func Start(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{t: t}
	web := httptest.NewServer(http.HandlerFunc(r.post))
	t.Cleanup(web.Close)
	r.URL = web.URL
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	r.GRPC = "http://" + l.Addr().String()
	return r
}

// Env has the variables with which a process exports every span soon.
func (r *Receiver) Env() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.URL, "OTEL_BSP_SCHEDULE_DELAY=20"}
}

// Refuse makes all exports fail, or work again.
func (r *Receiver) Refuse(refuse bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = refuse
}

func (r *Receiver) post(w http.ResponseWriter, q *http.Request) {
	var in io.Reader = q.Body
	if q.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(q.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		in = unzipped
	}
	body, err := io.ReadAll(in)
	request := &collector.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	if err != nil || q.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(q.URL.Path, err), http.StatusBadRequest)
		return
	}
	answer, err := r.Export(q.Context(), request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, _ := proto.Marshal(answer)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(out)
}

// Export implements the service of OTLP over gRPC.
func (r *Receiver) Export(_ context.Context, q *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused {
		return nil, fmt.Errorf("the test refuses exports")
	}
	for _, of := range q.GetResourceSpans() {
		resource := texts(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, read(s, resource))
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func read(s *trace.Span, resource map[string]string) *Span {
	out := &Span{
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Name: s.GetName(), Kind: s.GetKind().String()[len("SPAN_KIND_"):], Attributes: texts(s.GetAttributes()), Resource: resource,
		Failed: s.GetStatus().GetCode() == trace.Status_STATUS_CODE_ERROR,
	}
	for _, l := range s.GetLinks() {
		out.Links = append(out.Links, hex.EncodeToString(l.GetSpanId()))
	}
	return out
}

func texts(attributes []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attributes {
		out[a.GetKey()] = text(a.GetValue())
	}
	return out
}

func text(v *common.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_ArrayValue:
		var b bytes.Buffer
		for i, e := range v.ArrayValue.GetValues() {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(text(e))
		}
		return b.String()
	case *common.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	case *common.AnyValue_BoolValue:
		return fmt.Sprint(v.BoolValue)
	case *common.AnyValue_DoubleValue:
		return fmt.Sprint(v.DoubleValue)
	}
	return ""
}

// Spans returns the spans that were exported so far.
func (r *Receiver) Spans() []*Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Await waits until a span is exported that fits, and returns it.
func (r *Receiver) Await(what string, fits func(*Span) bool) (found *Span) {
	r.t.Helper()
	waittest.Eventually(r.t, "the span of "+what, func() error {
		all := r.Spans()
		for _, s := range all {
			if fits(s) {
				found = s
				return nil
			}
		}
		names := make([]string, len(all))
		for i, s := range all {
			names[i] = s.Kind + " " + s.Name
		}
		return fmt.Errorf("got %q", names)
	})
	return found
}

// Below waits for a span with a name and a parent.
func (r *Receiver) Below(parent, name string) *Span {
	r.t.Helper()
	return r.Await(name, func(s *Span) bool { return s.Parent == parent && s.Name == name })
}
