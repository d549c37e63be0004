package cli

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/rpc/notifications"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	// maxNotification bounds a notification, in bytes.
	maxNotification = 64 << 20
	// maxChallenge bounds a validationToken, in bytes.
	maxChallenge = 256
	// lastNotification is how long the verb waits for the notification of a state that it knows.
	lastNotification = 30 * time.Second
)

// receiver is the webhook of a command.
type receiver struct {
	talk   *talk
	push   client.Push
	path   string
	server *http.Server
	// told gets the states of notifications. A full channel drops them: the last state is read from known.
	told chan struct{}
	last task.State // guarded by talk.mu
}

// receive starts a receiver of push notifications.
func (t *talk) receive(ctx context.Context, address, url string) (*receiver, error) {
	var on net.ListenConfig
	l, err := on.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	r := &receiver{talk: t, path: "/" + rand.Text(), told: make(chan struct{}, 1)}
	if url == "" {
		url = "http://" + l.Addr().String()
	} else if !isURL(url) {
		_ = l.Close()
		return nil, usage("--listen-url: %q is not a URL; write http://host:port or https://host", url)
	}
	r.push = client.Push{ID: "holdfast-cli", URL: url + r.path, Token: rand.Text()}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.server.Serve(l) }() // it ends with close
	t.note("Listening for push notifications at %s", url)
	return r, nil
}

func (r *receiver) close() { _ = r.server.Close() }

// ServeHTTP receives a notification.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	challenge := req.URL.Query().Get("validationToken")
	switch {
	case req.URL.Path != r.path:
		http.NotFound(w, req)
	case req.Method == http.MethodGet && challenge != "" && len(challenge) <= maxChallenge:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, challenge) //nolint:gosec // plain text with nosniff
	case req.Method != http.MethodPost:
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
	case !r.shows(req.Header):
		r.talk.note("Refused a push notification without the token of this command.")
		http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
	default:
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxNotification))
		if err != nil {
			http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
			return
		}
		r.notified(body)
		w.WriteHeader(http.StatusNoContent)
	}
}

// shows reports whether a notification has the token of this command.
func (r *receiver) shows(h http.Header) bool {
	for _, token := range notifications.Shown(h) {
		if subtle.ConstantTimeCompare([]byte(token), []byte(r.push.Token)) == 1 {
			return true
		}
	}
	return false
}

// notified prints a notification.
func (r *receiver) notified(body []byte) {
	t := r.talk
	e, err := t.agent.Notification(body)
	if err != nil {
		t.note("A push notification cannot be read: %v", err)
		return
	}
	t.mu.Lock()
	t.out.endText()
	switch {
	case t.json():
		err = printLine(t.Out, e.Raw)
	default:
		p := &printer{w: t.Out}
		p.line("webhook: %s", notice(e))
		err = p.err
	}
	if s := e.State(); s != task.StateUnspecified {
		r.last = s
	}
	t.mu.Unlock()
	if err != nil {
		t.note("print a push notification: %v", err)
	}
	select {
	case r.told <- struct{}{}:
	default:
	}
}

// notice describes a notification in a line.
func notice(e *client.Event) string {
	switch {
	case e.Task != nil:
		return "task " + e.Task.PublicID + " " + stateName(e.State())
	case e.Message != nil:
		return "message " + e.Message.ID
	case e.Event.Artifact != nil:
		return "artifact " + label(e.Event.Artifact)
	}
	return stateName(e.State())
}

// await waits for the notification of a state.
func (r *receiver) await(ctx context.Context, state task.State) error {
	timer := time.NewTimer(lastNotification)
	defer timer.Stop()
	for {
		r.talk.mu.Lock()
		last := r.last
		r.talk.mu.Unlock()
		if last == state {
			return nil
		}
		select {
		case <-r.told:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return fmt.Errorf("the task is %s, but no push notification has said so within %s; see: holdfast webhooks attempts TASK", stateName(state), lastNotification)
		}
	}
}
