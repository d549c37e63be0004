package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Script is what happens to one response. The zero values are those of a server without faults.
type Script struct {
	Events []string // in JSON; the server adds the response's beginning
	// Cut is after how many events the connection breaks off, counting the beginning; 0: it does not.
	Cut    int
	Refuse http.HandlerFunc // answers instead; nil: nobody
	Next   chan struct{}    // each event waits for a receive; nil does not wait
}

// Response is a request for a response. The server refuses unknown members, as OpenAI does.
type Response struct {
	Model           string           `json:"model"`
	Input           []map[string]any `json:"input"`
	Instructions    string           `json:"instructions"`
	Stream          bool             `json:"stream"`
	Store           *bool            `json:"store"`
	Tools           []map[string]any `json:"tools"`
	Reasoning       map[string]any   `json:"reasoning"`
	Include         []string         `json:"include"`
	Temperature     *float64         `json:"temperature"`
	MaxOutputTokens *int             `json:"max_output_tokens"`

	Key string `json:"-"` // for idempotency
}

// Responses is a server of the Responses API that takes nothing but valid requests. Each response follows the next
// script, and further ones the last.
type Responses struct {
	*httptest.Server
	t       *testing.T
	mu      sync.Mutex
	scripts []Script
	calls   []Response
}

// NewResponses starts a server. It fails the test at an invalid request.
func NewResponses(t *testing.T, scripts ...Script) *Responses {
	t.Helper()
	f := &Responses{t: t, scripts: scripts}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", f.create)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, route := mux.Handler(r); route == "" || r.Header.Get("Authorization") != "Bearer "+Key {
			f.t.Errorf("invalid request: %s %s", r.Method, r.URL)
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

// Base is the base URL of the API.
func (f *Responses) Base() string { return f.URL + "/v1" }

// Calls returns the requests for new responses.
func (f *Responses) Calls() []Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *Responses) create(w http.ResponseWriter, r *http.Request) {
	got := Response{Key: r.Header.Get("Idempotency-Key")}
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	err := in.Decode(&got)
	if err != nil || r.Header.Get("Content-Type") != "application/json" || got.Model != Model || len(got.Input) == 0 ||
		got.Store == nil || *got.Store || got.Key == "" || !validItems(got.Input) || !validTools(got.Tools) {
		f.t.Errorf("invalid request: %+v: %v", got, err)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	f.mu.Lock()
	s := f.scripts[min(len(f.calls), len(f.scripts)-1)]
	f.calls = append(f.calls, got)
	f.mu.Unlock()
	switch {
	case s.Refuse != nil:
		s.Refuse(w, r)
	case !got.Stream:
		Answers(http.StatusOK, s.Events[0])(w, r, Request{})
	default:
		s.stream(w, r)
	}
}

// validItems checks what OpenAI checks: each item has its members, and a result follows its call.
func validItems(items []map[string]any) bool {
	calls := map[any]bool{}
	for _, it := range items {
		switch it["type"] {
		case nil:
			if _, ok := it["content"].([]any); it["role"] == "assistant" && ok || it["role"] == nil || it["content"] == nil {
				return false
			}
		case "function_call":
			calls[it["call_id"]] = true
			if it["name"] == nil || it["arguments"] == nil || it["id"] != nil {
				return false
			}
		case "function_call_output":
			if !calls[it["call_id"]] || it["output"] == nil {
				return false
			}
		case "reasoning":
			if it["encrypted_content"] == nil || it["summary"] == nil {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func validTools(tools []map[string]any) bool {
	for _, t := range tools {
		if t["type"] == "function" && (t["name"] == nil || t["parameters"] == nil || t["strict"] != false) {
			return false
		}
	}
	return true
}

func (s *Script) stream(w http.ResponseWriter, r *http.Request) {
	events := append([]string{`{"type":"response.created","response":{"object":"response","model":"small-0611","status":"queued","output":[]}}`}, s.Events...)
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	for i, e := range events {
		if s.Cut > 0 && i == s.Cut {
			panic(http.ErrAbortHandler)
		}
		if s.Next != nil && i > 0 {
			select {
			case <-s.Next:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = fmt.Fprintf(w, "event: x\ndata: %s\n\n", e)
		_ = http.NewResponseController(w).Flush()
	}
}

// Said is an event with text of the output item with the index.
func Said(index int, text string) string {
	return fmt.Sprintf(`{"type":"response.output_text.delta","item_id":"i","output_index":%d,"content_index":0,"delta":%s,"logprobs":[]}`, index, quote(text))
}

// Item is the end of an output item.
func Item(index int, item string) string {
	return fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, index, item)
}

// FunctionCall is an output item that calls a function.
func FunctionCall(id, name, arguments string) string {
	return fmt.Sprintf(`{"type":"function_call","id":"fc_%s","call_id":%q,"name":%q,"arguments":%s,"status":"completed"}`, id, id, name, quote(arguments))
}

// Ended is the end of a response: its status, further members in JSON, and its output.
func Ended(status, members string, output ...string) string {
	if members != "" {
		members += ","
	}
	return fmt.Sprintf(`{"type":"response.%s","response":{"object":"response","status":%q,%s"output":[%s],"usage":{"input_tokens":12,"input_tokens_details":{"cached_tokens":4},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":17}}}`,
		status, status, members, strings.Join(output, ","))
}

// Message is an output item with text.
func Message(text string) string {
	return fmt.Sprintf(`{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":%s,"annotations":[]}]}`, quote(text))
}

func quote(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err) // strings have JSON
	}
	return string(raw)
}
