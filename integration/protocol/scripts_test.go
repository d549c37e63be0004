package protocol

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// gateway is the step at which an agent waits for the test.
const gateway = "gate"

// gate lets agents pass gateways.
type gate struct {
	pass chan struct{}
	once sync.Once
}

// step lets one agent pass one gateway; open lets all pass all.
func (g *gate) step() { g.pass <- struct{}{} }
func (g *gate) open() { g.once.Do(func() { close(g.pass) }) }

// scripts is an HTTP server with an agent per path, each with a script.
type scripts struct {
	URL   string
	mu    sync.Mutex // guards the fields below
	runs  map[string][][]string
	gates map[string]*gate
}

func newScripts(t *testing.T) *scripts {
	t.Helper()
	s := &scripts{runs: map[string][][]string{}, gates: map[string]*gate{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// learn adds a script, and returns the agent's gate.
func (s *scripts) learn(name string, runs [][]string) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[name], s.gates[name] = runs, &gate{pass: make(chan struct{})}
	return s.gates[name]
}

func (s *scripts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var run struct{ Turn int }
	if err := json.NewDecoder(r.Body).Decode(&run); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := strings.Trim(r.URL.Path, "/")
	s.mu.Lock()
	runs, gate := s.runs[name], s.gates[name]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-ndjson")
	_ = http.NewResponseController(w).Flush()
	if run.Turn > len(runs) {
		return
	}
	for _, event := range runs[run.Turn-1] {
		if event == gateway {
			select {
			case <-gate.pass:
			case <-r.Context().Done():
				return
			}
			continue
		}
		_, _ = fmt.Fprintln(w, event)
		_ = http.NewResponseController(w).Flush()
	}
}
