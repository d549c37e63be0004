//go:build interop

package interop

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
)

// receiver accepts every POST, and GET /received?path= returns the requests to a path.
type receiver struct {
	mu      sync.Mutex
	arrived map[string][]delivery // by path
}

// delivery is a request that arrived.
type delivery struct {
	Headers map[string]string `json:"headers"` // their names in lower case
	Body    string            `json:"body"`
}

func (v *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		v.take(w, r)
	case r.Method == http.MethodGet && r.URL.Path == "/received":
		v.mu.Lock()
		defer v.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(append([]delivery{}, v.arrived[r.URL.Query().Get("path")]...))
	default:
		http.Error(w, "POST to any path, or GET /received?path=", http.StatusNotFound)
	}
}

func (v *receiver) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	headers := map[string]string{}
	for name, values := range r.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.arrived == nil {
		v.arrived = map[string][]delivery{}
	}
	v.arrived[r.URL.Path] = append(v.arrived[r.URL.Path], delivery{Headers: headers, Body: string(body)})
}
