package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Script is what happens to one response. The zero values are those of a server without faults.
type Script struct {
	Events []string // in JSON; the server adds the response's beginning, its id and the numbers
	// Cuts has an entry for each connection that breaks off: after how many events, counted from its first one.
	Cuts []int
	// Refusals answer the first requests for the stream instead: the POST, and then each GET. A nil one does not.
	Refusals []http.HandlerFunc
	Next     chan struct{} // each event waits for a receive; nil does not wait
	// From changes the number of the first event that a GET sends, which is one after starting_after.
	From func(int) int
	// Number changes the numbers of events.
	Number func(int) int
	Plain  bool // no background mode, and no word about it
	ID     string
}

// Response is a request for a response. The server refuses unknown members, as OpenAI does.
type Response struct {
	Model           string           `json:"model"`
	Input           []map[string]any `json:"input"`
	Instructions    string           `json:"instructions"`
	Stream          bool             `json:"stream"`
	Store           *bool            `json:"store"`
	Background      bool             `json:"background"`
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
	t         *testing.T
	mu        sync.Mutex
	scripts   []Script
	responses []*stored
	reads     []string
	canceled  []string
}

// stored is a response on the server.
type stored struct {
	Script
	request Response
	opened  int // requests for its stream
}

// NewResponses starts a server. It fails the test at an invalid request.
func NewResponses(t *testing.T, scripts ...Script) *Responses {
	t.Helper()
	f := &Responses{t: t, scripts: scripts}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", f.create)
	mux.HandleFunc("GET /v1/responses/{id}", f.read)
	mux.HandleFunc("POST /v1/responses/{id}/cancel", f.cancel)
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
	all := make([]Response, len(f.responses))
	for i, r := range f.responses {
		all[i] = r.request
	}
	return all
}

// Reads returns the queries of requests for the rest of a response.
func (f *Responses) Reads() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.reads)
}

// Canceled returns the ids of the responses that were canceled.
func (f *Responses) Canceled() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.canceled)
}

func (f *Responses) create(w http.ResponseWriter, r *http.Request) {
	got := Response{Key: r.Header.Get("Idempotency-Key")}
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	err := in.Decode(&got)
	if err != nil || r.Header.Get("Content-Type") != "application/json" || got.Model != Model || len(got.Input) == 0 ||
		got.Store == nil || *got.Store != got.Background || got.Key == "" || !validItems(got.Input) || !validTools(got.Tools) {
		f.t.Errorf("invalid request: %+v: %v", got, err)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	f.mu.Lock()
	s := &stored{Script: f.scripts[min(len(f.responses), len(f.scripts)-1)], request: got}
	if s.ID == "" {
		s.ID = fmt.Sprintf("resp_%d", len(f.responses)+1)
	}
	f.responses = append(f.responses, s)
	f.mu.Unlock()
	f.serve(w, r, s, 0)
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

func (f *Responses) find(id string) *stored {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.responses {
		if s.ID == id {
			return s
		}
	}
	return nil
}

func (f *Responses) read(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.reads = append(f.reads, r.URL.RawQuery)
	f.mu.Unlock()
	s := f.find(r.PathValue("id"))
	query := r.URL.Query()
	from := 0
	if after := query.Get("starting_after"); after != "" {
		n, err := strconv.Atoi(after)
		if err != nil {
			f.t.Errorf("invalid request: %s", r.URL)
		}
		from = n + 1
	}
	if s == nil || s.Plain || query.Get("stream") != "true" {
		Answers(http.StatusNotFound, `{"error":{"message":"Response with id '`+r.PathValue("id")+`' not found.","type":"invalid_request_error","param":null,"code":null}}`)(w, r, Request{})
		return
	}
	if s.From != nil {
		from = s.From(from)
	}
	f.serve(w, r, s, from)
}

func (f *Responses) cancel(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if f.find(id) == nil {
		f.t.Errorf("canceled %s, which does not exist", id)
	}
	f.mu.Lock()
	f.canceled = append(f.canceled, id)
	f.mu.Unlock()
	Answers(http.StatusOK, `{"id":"`+id+`","object":"response","status":"cancelled"}`)(w, r, Request{})
}

// serve sends the events of a response from a number on.
func (f *Responses) serve(w http.ResponseWriter, r *http.Request, s *stored, from int) {
	f.mu.Lock()
	nth := s.opened
	s.opened++
	f.mu.Unlock()
	if nth < len(s.Refusals) && s.Refusals[nth] != nil {
		s.Refusals[nth](w, r)
		return
	}
	if !s.request.Stream {
		Answers(http.StatusOK, s.Events[0])(w, r, Request{})
		return
	}
	background := ""
	if !s.Plain {
		background = fmt.Sprintf(`,"background":%t`, s.request.Background)
	}
	events := append([]string{
		fmt.Sprintf(`{"type":"response.created","response":{"id":%q,"object":"response","model":"small-0611","status":"queued","output":[]%s}}`, s.ID, background),
	}, s.Events...)
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	for i := from; i < len(events); i++ {
		if nth < len(s.Cuts) && i-from == s.Cuts[nth] {
			panic(http.ErrAbortHandler)
		}
		if s.Next != nil && i > 0 {
			select {
			case <-s.Next:
			case <-r.Context().Done():
				return
			}
		}
		number := i
		if s.Number != nil {
			number = s.Number(i)
		}
		e := events[i]
		if number >= 0 && strings.HasPrefix(e, `{"type"`) {
			e = fmt.Sprintf(`{"sequence_number":%d,`, number) + e[1:]
		}
		_, _ = fmt.Fprintf(w, "event: x\ndata: %s\n\n", e)
		_ = http.NewResponseController(w).Flush()
	}
	if nth < len(s.Cuts) {
		panic(http.ErrAbortHandler)
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
