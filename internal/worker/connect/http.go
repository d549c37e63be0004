package connect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/web"
)

// problem is an answer that is an error (RFC 9457).
type problem struct{ web.Problem }

func (p *problem) Error() string {
	text := fmt.Sprintf("the server answered %d %s", p.Status, http.StatusText(p.Status))
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	return text
}

// status returns the status and the Retry-After of an answer. Both are 0 if no answer came.
func status(err error) (code int, after time.Duration) {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.Status, p.After
	}
	return 0, 0
}

// The bounds of answers. A claim has at most slots run documents, each with histories and results of a few MiB.
const (
	maxAnswer  = 1 << 30
	maxProblem = 64 << 10
)

// client sends requests to one server.
type client struct {
	url    string
	http   atomic.Pointer[http.Client]
	bearer func() (string, error) // of the worker; may be nil
}

// renew lets later requests use new connections. Requests under way keep theirs.
func (c *client) renew() {
	old := c.http.Load()
	next := *old
	if t, ok := old.Transport.(*http.Transport); ok {
		next.Transport = t.Clone()
	}
	c.http.Store(&next)
	old.CloseIdleConnections()
}

// exchange is a request and what its answer is read into.
type exchange struct {
	method, path string
	token        string // of a run; "": the credential of the worker
	header       map[string]string
	body         []byte
	into         any // a *[]byte gets the body as it is; nil drops it
}

// do sends a request. The error is a *problem if the server refused it, and something else if the answer is not whole.
func (c *client) do(ctx context.Context, x *exchange) error {
	var body io.Reader
	if x.body != nil {
		body = bytes.NewReader(x.body)
	}
	q, err := http.NewRequestWithContext(ctx, x.method, c.url+x.path, body)
	if err != nil {
		return fmt.Errorf("build the request: %w", err)
	}
	token := x.token
	if token == "" && c.bearer != nil {
		if token, err = c.bearer(); err != nil {
			return fmt.Errorf("read the credential: %w", err)
		}
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	if x.body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	for name, value := range x.header {
		q.Header.Set(name, value)
	}
	res, err := c.http.Load().Do(q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return refused(res)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch into := x.into.(type) {
	case nil:
		return nil
	case *[]byte:
		*into = raw
		return nil
	}
	if err := json.Unmarshal(raw, x.into); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

func refused(res *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(res.Body, maxProblem)) // the status says enough
	p := &problem{}
	if json.Unmarshal(raw, p) != nil {
		p = &problem{}
	}
	p.Status = res.StatusCode
	p.After = web.RetryAfter(strings.TrimSpace(res.Header.Get("Retry-After")), time.Now(), maxRetryAfter)
	return p
}

// maxRetryAfter bounds what a proxy may ask for.
const maxRetryAfter = 5 * time.Minute

// The pauses between tries of a request.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 8 * time.Second
)

// backoff counts the failures of a request in a row.
type backoff struct{ pause time.Duration }

// reset says that a try succeeded.
func (b *backoff) reset() { b.pause = 0 }

// wait waits before the next try: a doubled, jittered pause, and not less than the server has asked for. It returns early if
// ctx ends.
func (b *backoff) wait(ctx context.Context, err error) { b.waitAtMost(ctx, err, lastPause) }

// waitAtMost is wait with a shorter longest pause. The server may still ask for a longer one.
func (b *backoff) waitAtMost(ctx context.Context, err error, longest time.Duration) {
	b.pause = min(max(2*b.pause, firstPause), lastPause, max(longest, firstPause))
	pause := b.pause + rand.N(b.pause/4)
	_, after := status(err)
	select {
	case <-ctx.Done():
	case <-time.After(max(pause, after)):
	}
}

// NewClient returns the client that a worker uses unless its program brings one. Unlike a server, a worker may need a proxy to
// reach others.
func NewClient() *http.Client {
	c := web.ToAgents(10*time.Second, 0, nil)
	if t, ok := c.Transport.(*http.Transport); ok {
		t.Proxy = http.ProxyFromEnvironment
	}
	return c
}
