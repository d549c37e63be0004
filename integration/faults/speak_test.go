package faults

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-a2a/holdfast/cmd/torture/checks"
	wires "github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// tongue is a version over a binding.
type tongue struct{ version, binding string }

// tongues are those of clients that speak to the replicas as the verbs of the command line do.
var tongues = []tongue{
	{"0.2", wires.JSONRPC},
	{"0.3", wires.JSONRPC},
	{"0.3", wires.HTTPJSON},
	{"0.3", wires.GRPC},
	{"1.0", wires.JSONRPC},
	{"1.0", wires.HTTPJSON},
	{"1.0", wires.GRPC},
}

// hooks receives the webhooks of clients, and can be away in several ways.
type hooks struct {
	t      testing.TB
	server *httptest.Server

	mu      sync.Mutex
	boxes   map[string]*box // by path
	more    chan struct{}   // closed at the next delivery
	away    absence
	refused int           // requests while it was away
	back    chan struct{} // closed when it answers again
}

// absence is how a receiver treats requests until it is back.
type absence func(w http.ResponseWriter, r *http.Request, back <-chan struct{})

// box has the deliveries to one path, in their order and without repetitions.
type box struct {
	bodies [][]byte
	ids    map[string][]byte // the body by the id of the delivery
}

func newHooks(t testing.TB) *hooks {
	t.Helper()
	h := &hooks{t: t, boxes: map[string]*box{}, more: make(chan struct{})}
	h.server = httptest.NewServer(h)
	t.Cleanup(func() {
		h.answer()
		h.server.CloseClientConnections()
		h.server.Close()
	})
	return h
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	h.mu.Lock()
	if away := h.away; away != nil {
		h.refused++
		back := h.back
		h.mu.Unlock()
		away(w, r, back)
		return
	}
	defer h.mu.Unlock()
	if b := h.boxes[r.URL.Path]; b != nil { // of others, the end was delivered before
		switch id := r.Header.Get("Idempotency-Key"); {
		case b.ids[id] == nil:
			b.ids[id] = body
			b.bodies = append(b.bodies, body)
			close(h.more)
			h.more = make(chan struct{})
		case !bytes.Equal(b.ids[id], body):
			h.t.Errorf("the webhook %s got delivery %s twice, with different content:\n%s\n%s", r.URL.Path, id, b.ids[id], body)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// leave treats all requests in a way until answer.
func (h *hooks) leave(how absence) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away, h.refused, h.back = how, 0, make(chan struct{})
}

func (h *hooks) answer() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away != nil {
		h.away = nil
		close(h.back)
	}
}

func (h *hooks) open(path string) *box {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := &box{ids: map[string][]byte{}}
	h.boxes[path] = b
	return b
}

func (h *hooks) close(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.boxes, path)
}

// after returns the deliveries after the first n, as soon as there are any.
func (h *hooks) after(ctx context.Context, b *box, n int) ([][]byte, error) {
	for {
		h.mu.Lock()
		rest, more := b.bodies[n:], h.more
		h.mu.Unlock()
		if len(rest) > 0 {
			return rest, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, fmt.Errorf("the webhook got %d deliveries, and not the end of its task: %w", n, ctx.Err())
		}
	}
}

// leaveHooks keeps the receivers of webhooks away, in each way, until the replicas have tried to deliver.
func (c *rig) leaveHooks() {
	h := c.load.hooks
	defer h.answer()
	for _, how := range []absence{
		func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
			http.Error(w, "away", http.StatusServiceUnavailable)
		},
		func(http.ResponseWriter, *http.Request, <-chan struct{}) { panic(http.ErrAbortHandler) },
		func(w http.ResponseWriter, r *http.Request, back <-chan struct{}) {
			select {
			case <-back:
			case <-r.Context().Done():
			}
			http.Error(w, "too late", http.StatusServiceUnavailable)
		},
	} {
		h.leave(how)
		waittest.Eventually(c.t, "the replicas try to deliver", func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			return waittest.Unless(h.refused >= 5, "%d deliveries", h.refused)
		})
		h.answer()
		c.progress(len(c.replicas))
	}
}

// speaking sends in any version over any binding, and reads the stream through every cut, from any replica. Half of these clients
// set a webhook, and wait for the end of the task there, too. Then another version reads the task.
func (c *client) speaking(ctx context.Context) error {
	w := tongues[c.rng.IntN(len(tongues))]
	script, chunks := c.chunks(2, 30)
	mark := rand.Text()
	m := &wires.Message{ID: rand.Text(), Key: mark, Parts: []task.Part{task.Text(script), task.Text(mark)}}
	var b *box
	if c.rng.IntN(2) == 0 {
		path := "/" + mark
		b = c.hooks.open(path)
		defer c.hooks.close(path)
		m.Push = wires.Push{ID: "soak", URL: c.hooks.server.URL + path, Token: mark}
	}
	c.ledger.Sending(mark)
	l := &checks.Listener{Ledger: c.ledger}
	known, n := "", 0
	err := c.until(ctx, w, func(ctx context.Context, cl *wires.Client) error {
		switch {
		case n == 0:
		case known == "":
			c.tries.Add(1)
		default:
			c.resumes.Add(1)
		}
		n++
		left := -1
		if c.cutting && c.rng.IntN(3) == 0 {
			left = 1 + c.rng.IntN(20)
		}
		l.Seen = func() bool {
			if known == "" {
				known = l.Task()
				c.ledger.Stored(mark, known)
			}
			left--
			return left != 0
		}
		err := l.Listen(ctx, cl, func(ctx context.Context) (*wires.Stream, error) {
			if known == "" {
				return cl.Stream(ctx, m)
			}
			return cl.Subscribe(ctx, known, l.Last())
		})
		if l.Ended() {
			return nil
		}
		return cmp.Or(err, errors.New("the stream was cut"))
	})
	if err != nil {
		return fmt.Errorf("task %q: %w", known, err)
	}
	c.ledger.Expect(known, judge.Outcome{State: "completed", Chunks: chunks})
	if b != nil {
		if err := c.delivered(ctx, w, b, known); err != nil {
			return fmt.Errorf("%v: task %s: %w", w, known, err)
		}
	}
	other := tongues[c.rng.IntN(len(tongues))]
	return c.until(ctx, other, func(ctx context.Context, cl *wires.Client) error {
		e, err := cl.Get(ctx, known)
		if err == nil {
			(&checks.Listener{Ledger: c.ledger}).Note(cl, e)
		}
		return err
	})
}

// delivered records what a webhook got, until the end of its task.
func (c *client) delivered(ctx context.Context, w tongue, b *box, taskID string) error {
	var bodies [][]byte
	l := &checks.Listener{Ledger: c.ledger}
	return c.until(ctx, w, func(_ context.Context, cl *wires.Client) error {
		for !l.Ended() {
			more, err := c.hooks.after(ctx, b, len(bodies))
			if err != nil {
				return err
			}
			for _, body := range more {
				e, err := cl.Notification(body)
				if err != nil {
					return &seam{fmt.Errorf("a notification: %w: %.300s", err, body)}
				}
				if e.TaskID != taskID {
					return &seam{fmt.Errorf("a notification about task %s", e.TaskID)}
				}
				l.Delivered(cl, e)
			}
			bodies = append(bodies, more...)
		}
		return nil
	})
}

// connected connects to one replica for a while.
func (c *client) connected(ctx context.Context, w tongue, do func(context.Context, *wires.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.try)
	defer cancel()
	cl, err := wires.Open(ctx, wires.Options{Server: c.urls[c.rng.IntN(len(c.urls))], Version: w.version, Binding: w.binding, HTTP: c.http})
	if err != nil {
		return err
	}
	defer cl.Close()
	return do(ctx, cl)
}

// until connects to one replica after another until one answers.
func (c *client) until(ctx context.Context, w tongue, do func(context.Context, *wires.Client) error) error {
	for {
		err := c.connected(ctx, w, do)
		if err == nil || errors.As(err, new(*seam)) || wires.Reported(err) != nil && !wires.Temporary(err) {
			return err
		}
		if late := c.breathe(ctx); late != nil {
			return fmt.Errorf("%v: %w; at last: %w", w, late, err)
		}
	}
}

func (w tongue) String() string { return w.version + " over " + strings.ToLower(w.binding) }
