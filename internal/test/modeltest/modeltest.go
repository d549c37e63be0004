// Package modeltest is a model's API for tests: a strict server of Chat Completions, whose answers a test writes.
package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Key is the API key that the server asks for.
const Key = "sk-s3cret-key-of-the-test"

// Model is the only model that it has.
const Model = "small"

// Handler answers a call.
type Handler func(w http.ResponseWriter, r *http.Request, call Request)

// Server is a model's API that takes nothing but valid requests. Each call is answered by the next handler, and further
// calls by the last one.
type Server struct {
	*httptest.Server
	t        *testing.T
	mu       sync.Mutex
	handlers []Handler
	requests []Request
}

// Request is what the API accepts. It refuses unknown members, as strict providers do.
type Request struct {
	Model         string           `json:"model"`
	Messages      []map[string]any `json:"messages"`
	Stream        bool             `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools       []map[string]any `json:"tools"`
	Temperature *float64         `json:"temperature"`
	MaxTokens   *int             `json:"max_tokens"`

	Key   string `json:"-"` // for idempotency
	Trace string `json:"-"` // the header traceparent
}

// New starts a server. It fails the test at an invalid request.
func New(t *testing.T, handlers ...Handler) *Server {
	t.Helper()
	f := &Server{t: t, handlers: handlers}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// ServeHTTP implements http.Handler.
func (f *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := Request{Key: r.Header.Get("Idempotency-Key"), Trace: r.Header.Get("Traceparent")}
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(&got); err != nil || r.Method != "POST" || r.URL.Path != "/v1/chat/completions" ||
		r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Bearer "+Key ||
		got.Model != Model || len(got.Messages) == 0 || got.Stream != (got.StreamOptions != nil) {
		f.t.Errorf("invalid request: %s %s %+v: %v", r.Method, r.URL, got, err)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	f.mu.Lock()
	handler := f.handlers[min(len(f.requests), len(f.handlers)-1)]
	f.requests = append(f.requests, got)
	f.mu.Unlock()
	handler(w, r, got)
}

// Calls returns the requests so far.
func (f *Server) Calls() []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// Base is the base URL of the API.
func (f *Server) Base() string { return f.URL + "/v1" }

// Write writes chunks of a stream, and flushes each.
func Write(w http.ResponseWriter, chunks ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, c := range chunks {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", c)
		_ = http.NewResponseController(w).Flush()
	}
}

// Streams answers with a stream.
func Streams(chunks ...string) Handler {
	return func(w http.ResponseWriter, _ *http.Request, _ Request) { Write(w, chunks...) }
}

// Answers answers with a document.
func Answers(code int, body string, header ...string) Handler {
	return func(w http.ResponseWriter, _ *http.Request, _ Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// Cuts sends chunks and then closes the connection.
func Cuts(chunks ...string) Handler {
	return func(w http.ResponseWriter, _ *http.Request, _ Request) {
		Write(w, chunks...)
		panic(http.ErrAbortHandler)
	}
}

// Text is a chunk with text.
func Text(text string) string { return Chunk(fmt.Sprintf(`{"content":%q}`, text), "null") }

// Chunk is a chunk with a delta and a finish_reason, both in JSON.
func Chunk(delta, finish string) string {
	return fmt.Sprintf(`{"id":"c-1","object":"chat.completion.chunk","created":1,"model":"small-0611","choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]}`,
		delta, finish)
}

// Chunks of a stream.
const (
	Role  = `{"id":"c-1","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}],"usage":null}`
	Stop  = `{"id":"c-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	Spent = `{"id":"c-1","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}`
	Done  = `[DONE]`
)
