// Package notifications receives the push notifications of A2A servers behind fronts. A notification says only that a task has news:
// the handler drops its content, and the run reads the task. Notifications get lost, come twice and
// out of order, and differ between servers.
package notifications

import (
	"io"
	"net/http"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Purpose names the keys of tokens to store.Derive.
const Purpose = "notifications"

// Path is where notifications arrive, below the URL of the server. A token follows.
const Path = "/notifications/"

// The numbers of the two tokens of a task: the one in the URL, which a proxy may log, is not the one that a sender shows.
const (
	inURL = iota
	inHeader
)

// tokenPrefix lets a scanner for leaked secrets recognise a token that senders show.
const tokenPrefix = "hfpush_"

// Options configures a handler.
type Options struct {
	URL     string // of the server, without a trailing slash
	Tokens  *task.Tokens
	MaxBody int64 // bytes of a notification that are read, and dropped
	// Notified gets the task of each notification with its token. It must not block.
	Notified func(task.ID)
	// Counted gets the outcome of each request but challenges, for metrics: accepted or refused.
	Counted func(outcome string)
}

// Handler receives notifications. It is safe for concurrent use.
type Handler struct{ o Options }

// New makes a handler.
func New(o Options) *Handler { return &Handler{o} }

// Target returns where an agent sends its notifications about a task, and the token that it shows. Both are the same on all
// replicas.
func (h *Handler) Target(id task.ID) (url, token string) {
	return h.o.URL + Path + h.o.Tokens.Make(id, inURL), tokenPrefix + h.o.Tokens.Make(id, inHeader)
}

// ServeHTTP answers a notification. It says the same of every request without the URL and the token of its task, and of a task
// that has ended or was deleted the same as of a task that runs. It also answers servers that ask whether the URL wants their
// notifications: it repeats their validationToken.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, made, shown := h.read(r)
	challenge := r.URL.Query().Get("validationToken")
	switch {
	case made && shown && r.Method == http.MethodPost:
		limit.Accept(r.Context())
		h.o.Counted("accepted")
		h.o.Notified(id)
		// A sender that gets its answer before it has sent everything may take that for a failure.
		_, _ = io.CopyN(io.Discard, r.Body, h.o.MaxBody)
		w.WriteHeader(http.StatusNoContent)
	case made && r.Method == http.MethodGet && challenge != "" && len(challenge) <= maxChallenge:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, challenge) //nolint:gosec // plain text with nosniff, which the server sets
	default:
		h.o.Counted("refused")
		http.Error(w, http.StatusText(http.StatusNotFound), http.StatusNotFound)
	}
}

// maxChallenge bounds a validationToken, in bytes.
const maxChallenge = 256

// read returns the task of a request, and whether its URL was made here and its token is the task's.
func (h *Handler) read(r *http.Request) (id task.ID, made, shown bool) {
	id, number, ok := h.o.Tokens.Read(strings.TrimPrefix(r.URL.Path, Path))
	made = ok && number == inURL
	for _, text := range Shown(r.Header) {
		text, ours := strings.CutPrefix(text, tokenPrefix)
		of, number, ok := h.o.Tokens.Read(text)
		shown = shown || ours && ok && number == inHeader && of == id
	}
	return id, made, shown
}

// Shown returns the tokens that a notification shows. Versions and servers have other headers for it.
func Shown(h http.Header) (all []string) {
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
