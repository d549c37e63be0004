// Package resumeurl serves resume URLs: a request by one begins the next turn of a task that asks for input. The URL is the
// credential, so the schemes of the agent do not apply, and no page needs CORS to send a form.
package resumeurl

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Tasks are the tasks that can be resumed. Errors: task.NotFound, task.Terminal (the URL is dead; the text says why),
// task.Unavailable.
type Tasks interface {
	Resumable(ctx context.Context, id task.ID, turn int) (agent string, err error)
	Resume(ctx context.Context, r *task.ResumeRequest) error
}

// Agent says what the URLs of an agent's tasks accept.
type Agent struct {
	ByGet   bool  // GET, too
	MaxBody int64 // bytes
}

// Options configures the handler.
type Options struct {
	Tokens  *task.Tokens
	Tasks   Tasks
	NewID   func() task.ID
	Agents  map[string]Agent
	Timeout time.Duration // to read a body
	Memory  *limit.Budgets
	Log     *slog.Logger
}

// Handler serves resume URLs.
type Handler struct{ opt Options }

// New makes a handler.
func New(o Options) *Handler { return &Handler{o} }

const (
	thanks  = "Thank you. The task goes on, and you can close this window."
	nothing = "There is nothing here."
)

// ServeHTTP answers a request by a resume URL. It says the same of a forged token, an unknown task and a deleted one, and nothing of
// what the request has.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Referrer-Policy", "no-referrer")
	id, number, ok := h.opt.Tokens.Read(strings.TrimPrefix(r.URL.Path, task.ResumePath))
	if !ok {
		say(w, http.StatusNotFound, nothing)
		return
	}
	limit.Accept(r.Context())
	turn := int(number)
	name, err := h.opt.Tasks.Resumable(r.Context(), id, turn)
	agent, known := h.opt.Agents[name]
	switch {
	case err != nil:
		h.refuse(w, err)
		return
	case !known:
		say(w, http.StatusNotFound, nothing)
		return
	case r.Method != http.MethodPost && (r.Method != http.MethodGet || !agent.ByGet):
		// HEAD, too: programs that preview links send it.
		w.Header().Set("Allow", agent.allow())
		say(w, http.StatusMethodNotAllowed, "This link accepts only "+agent.allow()+".")
		return
	case prefetch(r.Header):
		say(w, http.StatusServiceUnavailable, "This link works once, so it must not be fetched ahead.")
		return
	}
	content, release, ok := h.read(w, r, name, agent)
	if !ok {
		return
	}
	defer release()
	err = h.opt.Tasks.Resume(r.Context(), &task.ResumeRequest{
		ID: h.opt.NewID(), Task: id, Turn: turn, Agent: name, Address: r.RemoteAddr, Content: content,
	})
	if err != nil {
		h.refuse(w, err)
		return
	}
	say(w, http.StatusAccepted, thanks)
}

func (a Agent) allow() string {
	if a.ByGet {
		return "GET, POST"
	}
	return "POST"
}

// prefetch reports whether a browser asks ahead of its user.
func prefetch(h http.Header) bool {
	for _, name := range []string{"Sec-Purpose", "Purpose", "X-Moz"} {
		if strings.HasPrefix(h.Get(name), "prefetch") {
			return true
		}
	}
	return false
}

// read reads what the request brings. The caller must release its memory.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, name string, agent Agent) (content *task.Resumed, release func(), ok bool) {
	content = &task.Resumed{Method: r.Method, Query: r.URL.RawQuery, ContentType: r.Header.Get("Content-Type")}
	if r.Method == http.MethodGet {
		return content, func() {}, true
	}
	account := h.opt.Memory.Open(limit.Holder{Agent: name, Resume: true})
	limits := web.BodyLimits{Size: agent.MaxBody, Timeout: h.opt.Timeout}.OrDefaults()
	limits.Begin(w)
	read, fault := limits.Read(w, r, account)
	if fault == nil {
		content.Body = read
		return content, account.Close, true
	}
	account.Close()
	if fault.Err != nil {
		h.refuse(w, fault.Err)
	} else {
		say(w, fault.Status, fault.Msg)
	}
	return nil, nil, false
}

// refuse answers with an error. Its text is for the sender.
func (h *Handler) refuse(w http.ResponseWriter, err error) {
	var e *task.Error
	switch task.KindOf(err) {
	case task.NotFound:
		say(w, http.StatusNotFound, nothing)
	case task.Terminal:
		text := "This link is not valid any more."
		if errors.As(err, &e) {
			text = e.Msg
		}
		say(w, http.StatusGone, text)
	case task.Unavailable, task.RateLimited:
		after := time.Second
		if errors.As(err, &e) {
			after = max(after, e.RetryAfter)
		}
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(after.Seconds()))))
		say(w, http.StatusServiceUnavailable, "This does not work now. Try again.")
	default:
		h.opt.Log.Error("request by resume URL failed", "error", err)
		say(w, http.StatusInternalServerError, "Something went wrong here.")
	}
}

// say answers with a text for people.
func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") //nolint:gosec // plain text with nosniff, of the server alone
}
