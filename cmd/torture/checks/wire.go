package checks

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Exchange is a request and its answer as they went over the wire. Long bodies are cut in the middle. Credentials are left out.
type Exchange struct {
	At       time.Time `json:"at"`
	Request  string    `json:"request"`  // method, URL, headers and body
	Response string    `json:"response"` // status, headers and body, or the error
}

func (e *Exchange) String() string {
	return fmt.Sprintf("%s\n> %s\n< %s", e.At.UTC().Format(time.RFC3339Nano), strings.ReplaceAll(e.Request, "\n", "\n> "), strings.ReplaceAll(e.Response, "\n", "\n< "))
}

// shownHeaders are those that matter and are never secret.
var shownHeaders = []string{"A2A-Version", "A2A-Extensions", "Last-Event-ID", "Idempotency-Key", "Content-Type", "Retry-After", attackHeader}

// attackHeader names the attack, so that its request is found again.
const attackHeader = "X-Torture-Attack"

// half is how many bytes of the beginning and of the end of a body are kept.
const half = 2 << 10

// tape keeps the beginning and the end of what is written.
type tape struct {
	mu         sync.Mutex
	head, tail []byte
	lost       bool
}

func (t *tape) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	room := min(half-len(t.head), len(p))
	t.head, p = append(t.head, p[:room]...), p[room:]
	t.tail = append(t.tail, p...)
	if len(t.tail) > 2*half {
		t.tail = append(t.tail[:0], t.tail[len(t.tail)-half:]...)
		t.lost = true
	}
	return n, nil
}

func (t *tape) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	head, tail := string(t.head), t.tail
	if t.lost || len(tail) > half {
		return strings.ToValidUTF8(head+"\n…\n"+string(tail[max(0, len(tail)-half):]), "\ufffd")
	}
	return strings.ToValidUTF8(head+string(tail), "\ufffd")
}

// kept is the number of exchanges that the recorder keeps.
const kept = 4096

// recorder keeps the newest exchanges of a check.
type recorder struct {
	next http.RoundTripper

	mu  sync.Mutex
	all []*recorded
}

type recorded struct {
	at             time.Time
	request, first string // first is the head of the answer
	body           tape
}

// forget drops all exchanges.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = nil
}

func (r *recorder) add(e *recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) >= kept {
		r.all = append(r.all[:0], r.all[kept/4:]...)
	}
	r.all = append(r.all, e)
}

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	var body tape
	if req.GetBody != nil {
		if copied, err := req.GetBody(); err == nil {
			_, _ = io.Copy(&body, copied)
			copied.Close()
		}
	}
	e := &recorded{at: time.Now(), request: req.Method + " " + req.URL.Redacted() + headers(req.Header) + "\n\n" + body.String()}
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		e.first = "no answer: " + err.Error()
		r.add(e)
		return nil, err
	}
	e.first = resp.Proto + " " + resp.Status + headers(resp.Header) + "\n\n"
	r.add(e)
	resp.Body = &taped{resp.Body, &e.body}
	return resp, nil
}

func headers(h http.Header) string {
	var b strings.Builder
	for _, name := range shownHeaders {
		for _, value := range h.Values(name) {
			b.WriteString("\n" + name + ": " + value)
		}
	}
	return b.String()
}

type taped struct {
	io.ReadCloser
	tape *tape
}

func (t *taped) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	_, _ = t.tape.Write(p[:n])
	return n, err
}

// evidence returns exchanges that mention a text, such as the id of a task: how it began, how it ended, and streams between.
func (r *recorder) evidence(about string) (out []Exchange) {
	if about == "" {
		return nil
	}
	r.mu.Lock()
	list := slices.Clone(r.all)
	r.mu.Unlock()
	for _, e := range list {
		response := e.first + e.body.String()
		if strings.Contains(e.request, about) || strings.Contains(response, about) {
			out = append(out, Exchange{e.at, strings.TrimSpace(e.request), strings.TrimSpace(response)})
		}
	}
	const first, last, streams = 2, 2, 3
	kept, between := out[:min(first, len(out))], 0
	for i := len(kept); i < len(out); i++ {
		stream := strings.Contains(out[i].Response, "\nContent-Type: text/event-stream") && between < streams
		if stream {
			between++
		}
		if stream || i >= len(out)-last {
			kept = append(kept, out[i])
		}
	}
	return kept
}
