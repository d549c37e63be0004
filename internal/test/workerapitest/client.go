// Package workerapitest is a worker for tests. It compares each request that is accepted, and each answer, with
// docs/worker-api.yaml.
package workerapitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/openapitest"
	"github.com/holdfast-a2a/holdfast/internal/test/runapitest"
)

// document is docs/worker-api.yaml.
var document = openapitest.Document{File: "worker-api.yaml"}

// Path is where the worker API is.
const Path = "/worker/v1"

// Worker is a worker.
type Worker struct {
	URL  string // of the server
	Key  string // its credential; "" for none
	Info map[string]any
	HTTP *http.Client
}

// New makes a worker with an id of its own.
func New(url string) *Worker {
	return &Worker{
		URL: url, HTTP: http.DefaultClient,
		Info: map[string]any{"id": uuid.NewString(), "name": "test", "version": "v1", "sdk": "workerapitest"},
	}
}

// ID returns the id of the worker.
func (w *Worker) ID() string { return w.Info["id"].(string) }

// Doc is a body.
type Doc map[string]any

// Slots is an entry of the agents of a claim.
func Slots(agent string, n int) Doc { return Doc{"name": agent, "slots": n} }

// Run is a run of a claim, or one to stop.
type Run struct {
	ID       string
	Lease    float64
	Stop     string
	Metadata json.RawMessage
	Doc      json.RawMessage `json:"run"`
}

// Document is what tests look at in a run document.
type Document struct {
	RunAPI  runapitest.Client `json:"runApi"`
	Task    struct{ ID, Agent string }
	Try     int
	Turn    int
	Attempt int
	Message struct{ Parts []struct{ Text string } }
}

// Read returns the run document.
func (r *Run) Read(t testing.TB) (d Document) {
	t.Helper()
	require.NoError(t, json.Unmarshal(r.Doc, &d))
	return d
}

// Answer is an answer of the worker API.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte

	Runs     []Run
	Lease    float64
	Drain    string
	Released []string
	Reason   string
	Detail   string
	Field    string
	Versions []string
}

// IDs returns the ids of the runs.
func (a *Answer) IDs() []string {
	ids := []string{}
	for _, r := range a.Runs {
		ids = append(ids, r.ID)
	}
	return ids
}

// Claim claims runs of agents.
func (w *Worker) Claim(t testing.TB, wait float64, agents ...Doc) *Answer {
	t.Helper()
	return w.Do(t, "/claims", Doc{"agents": agents, "wait": wait})
}

// Beat sends a heartbeat.
func (w *Worker) Beat(t testing.TB, wait float64, runs ...string) *Answer {
	t.Helper()
	return w.Do(t, "/heartbeat", Doc{"runs": append([]string{}, runs...), "wait": wait})
}

// Release gives runs back.
func (w *Worker) Release(t testing.TB, runs ...string) *Answer {
	t.Helper()
	return w.Do(t, "/release", Doc{"runs": runs})
}

// Do sends a body with the worker in it.
func (w *Worker) Do(t testing.TB, path string, body Doc) *Answer {
	t.Helper()
	a, err := w.Try(t.Context(), path, body)
	require.NoError(t, err, path)
	return a
}

// Try is Do. It returns an error if there is no answer, or another one than the document has.
func (w *Worker) Try(ctx context.Context, path string, body Doc) (*Answer, error) {
	if body["worker"] == nil {
		body["worker"] = w.Info
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return w.Raw(ctx, http.MethodPost, Path+path, raw)
}

// Raw sends a body as it is. headers are names and values.
func (w *Worker) Raw(ctx context.Context, method, path string, body []byte, headers ...string) (*Answer, error) {
	q, err := http.NewRequestWithContext(ctx, method, w.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	if w.Key != "" {
		q.Header.Set("Authorization", "Bearer "+w.Key)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	res, err := w.HTTP.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	a := &Answer{Status: res.StatusCode, Header: res.Header}
	if a.Body, err = io.ReadAll(res.Body); err != nil {
		return nil, err
	}
	if err := check(method, path, q.Header.Get("Content-Type"), body, a); err != nil {
		return nil, fmt.Errorf("%s: %d %s: %w", path, a.Status, a.Body, err)
	}
	return a, json.Unmarshal(a.Body, a)
}

// check compares an answer with the document, and the request if it was accepted.
func check(method, path, media string, body []byte, a *Answer) error {
	path = strings.TrimPrefix(path, Path)
	if a.Status == http.StatusOK {
		if err := document.CheckBody(method, path, media, body); err != nil {
			return fmt.Errorf("a request that the document does not have was accepted: %w", err)
		}
	}
	return document.Check(method, path, a.Status, a.Header, a.Body)
}
