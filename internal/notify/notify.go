// Package notify receives the push notifications of A2A servers behind fronts. A notification says only that a task has news:
// what it contains is not looked at, and the run reads the task (decision 0062).
package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Purpose names the keys of tokens to store.Derive.
const Purpose = "notifications"

// Path is where notifications arrive, below the URL of the server. The id of the task follows.
const Path = "/notifications/"

// tokenPrefix lets a scanner for leaked secrets recognise a token.
const tokenPrefix = "hfpush_"

// Options configures a handler.
type Options struct {
	URL     string   // of the server, without a trailing slash
	Keys    [][]byte // the first one makes tokens, and all of them verify tokens. There must be one
	MaxBody int64    // bytes of a notification that are read, and dropped
	// Notified gets the task of each notification with its token. It must not block.
	Notified func(task.ID)
}

// Handler receives notifications. It is safe for concurrent use.
type Handler struct{ o Options }

// New makes a handler.
func New(o Options) *Handler { return &Handler{o} }

// Target returns where an agent sends its notifications about a task, and the token that it shows. Both are the same on all
// replicas.
func (h *Handler) Target(id task.ID) (url, token string) {
	return h.o.URL + Path + hex.EncodeToString(id[:]), tokenOf(h.o.Keys[0], id)
}

// tokenOf returns the token of a task: the MAC of its id.
func tokenOf(key []byte, id task.ID) string {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(id[:])
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Serves reports whether a request is a notification.
func (h *Handler) Serves(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, Path) }

// ServeHTTP answers a notification. It says the same of every request without the token of its task, and of a task that has
// ended or was deleted the same as of a task that runs.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, ok := h.read(r)
	if !ok {
		http.Error(w, http.StatusText(http.StatusNotFound), http.StatusNotFound)
		return
	}
	h.o.Notified(id)
	// A sender that gets its answer before it has sent everything may take that for a failure.
	_, _ = io.CopyN(io.Discard, r.Body, h.o.MaxBody)
	w.WriteHeader(http.StatusNoContent)
}

// read returns the task of a request that has its token.
func (h *Handler) read(r *http.Request) (id task.ID, ok bool) {
	raw, err := hex.DecodeString(strings.TrimPrefix(r.URL.Path, Path))
	if err != nil || len(raw) != len(id) || r.Method != http.MethodPost {
		return id, false
	}
	id = task.ID(raw)
	for _, shown := range tokens(r.Header) {
		for _, key := range h.o.Keys {
			ok = hmac.Equal([]byte(shown), []byte(tokenOf(key, id))) || ok
		}
	}
	return id, ok
}

// tokens returns what a request shows. Versions and servers have other headers for it.
func tokens(h http.Header) (all []string) {
	for _, name := range []string{"X-A2a-Notification-Token", "A2a-Notification-Token", "X-A2a-Token"} {
		if token := h.Get(name); token != "" {
			all = append(all, token)
		}
	}
	if scheme, token, _ := strings.Cut(h.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		all = append(all, strings.TrimSpace(token))
	}
	return all
}
