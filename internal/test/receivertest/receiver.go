// Package receivertest is a receiver of webhooks for tests. A test can kill it, and make it misbehave.
//
// It is the test binary again, in a process of its own. It treats each request as the test has asked, keeps
// notifications in a file, and answers the test at another address. So it survives a kill.
package receivertest

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

const env = "HOLDFAST_INTEGRATION_RECEIVER" // a setup

// setup is the configuration of the process.
type setup struct {
	Addrs   []string
	Journal string // a file
}

// Act is how a receiver treats a request. The zero value accepts it.
type Act struct {
	Hold   bool // until the test releases it, or the sender closes the connection
	Flood  bool // its body has no end
	Status int  // default 204
	Text   string
}

// Notification is a request that a receiver got.
type Notification struct {
	Host, Path string
	Header     http.Header
	Body       []byte
}

// Tally counts requests to a path, or to an address.
type Tally struct {
	Posts   int // including those without a notification
	Open    int // without an answer yet
	Most    int // open at once
	Written int // bytes of floods that the sender read
}

// Hooked adds webhooks to clustertest.Settings. Sends wait for an hour.
func Hooked(more a2atest.Object) string {
	return clustertest.Settings + "limits: {max_block: 1h}\n" + Pushing(more)
}

// Pushing allows webhooks to this machine by plain HTTP, with fast retries; more is added to push.
func Pushing(more a2atest.Object) string {
	push := a2atest.Object{
		"allow_private": true, "https_only": false, "validation_challenge": false, "retry_first": "20ms", "retry_most": "200ms",
	}
	maps.Copy(push, more)
	return "\npush: " + string(a2atest.JSON(push)) + "\n"
}

// inbox is the receiver within its process.
type inbox struct {
	journal *os.File

	mu       sync.Mutex
	got      [][]byte                 // lines of the journal
	more     chan struct{}            // closed at the next notification
	acts     map[string][]Act         // by path or address; "" for the others
	releases map[string]chan struct{} // keys as in acts: held requests wait for them
	tallies  map[string]*Tally        // by path, and by address
}

// Main turns this process into the receiver, and does not return, if a test has started it as one. Call it from
// TestMain.
func Main() {
	if how := os.Getenv(env); how != "" {
		fmt.Fprintln(os.Stderr, "the receiver:", serve(how))
		os.Exit(1)
	}
}

// serve is the receiver's process. It ends with the test.
func serve(how string) error {
	var s setup
	if err := json.Unmarshal([]byte(how), &s); err != nil {
		return err
	}
	b := &inbox{more: make(chan struct{}), acts: map[string][]Act{}, tallies: map[string]*Tally{}, releases: map[string]chan struct{}{}}
	if err := b.open(s.Journal); err != nil {
		return err
	}
	hooks := &http.Server{Handler: b}
	ended := make(chan error, 1)
	for _, addr := range s.Addrs {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		go func() { ended <- hooks.Serve(l) }()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { ended <- http.Serve(l, b.control()) }()
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- errors.Join(err, io.EOF)
	}()
	if _, err := fmt.Fprintln(os.Stdout, l.Addr()); err != nil {
		return err
	}
	return <-ended
}

// open reads the journal of earlier runs. The last line may be incomplete: its sender got no answer.
func (b *inbox) open(journal string) error {
	raw, err := os.ReadFile(journal)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	raw = raw[:bytes.LastIndexByte(raw, '\n')+1]
	for line := range bytes.Lines(raw) {
		b.got = append(b.got, line)
	}
	if b.journal, err = os.OpenFile(journal, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	return b.journal.Truncate(int64(len(raw)))
}

// ServeHTTP treats a request as the test has asked.
func (b *inbox) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	path := q.URL.RequestURI()
	a, release := b.arrive(path, q.Host)
	defer b.count(func(c *Tally) { c.Open-- }, path, q.Host)
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	b.keep(&Notification{Host: q.Host, Path: path, Header: q.Header, Body: body})
	if a.Hold {
		select {
		case <-release:
		case <-q.Context().Done():
			return
		}
	}
	w.WriteHeader(cmp.Or(a.Status, http.StatusNoContent))
	_, _ = io.WriteString(w, a.Text)
	for chunk := bytes.Repeat([]byte("water "), 10_000); a.Flood; {
		n, err := w.Write(chunk)
		b.count(func(c *Tally) { c.Written += n }, path, q.Host)
		if err != nil {
			return
		}
	}
}

// arrive counts a request, and returns its act: the next one for its path, or else for its address, or else for all.
// The last act stays.
func (b *inbox) arrive(path, host string) (a Act, release <-chan struct{}) {
	b.count(func(c *Tally) {
		c.Posts++
		c.Open++
		c.Most = max(c.Most, c.Open)
	}, path, host)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, of := range []string{path, host, ""} {
		acts := b.acts[of]
		switch {
		case len(acts) > 1:
			b.acts[of] = acts[1:]
			fallthrough
		case len(acts) == 1:
			return acts[0], b.releases[of]
		}
	}
	return Act{}, nil
}

func (b *inbox) count(how func(*Tally), keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		if b.tallies[key] == nil {
			b.tallies[key] = &Tally{}
		}
		how(b.tallies[key])
	}
}

// keep stores a notification before the answer.
func (b *inbox) keep(n *Notification) {
	line, err := json.Marshal(n)
	if err != nil {
		panic(err)
	}
	line = append(line, '\n')
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.journal.Write(line); err != nil {
		panic(err)
	}
	b.got = append(b.got, line)
	close(b.more)
	b.more = make(chan struct{})
}

// control serves the test's commands.
func (b *inbox) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /got", func(w http.ResponseWriter, q *http.Request) {
		from, _ := strconv.Atoi(q.FormValue("from"))
		b.mu.Lock()
		got, more := b.got[from:], b.more
		b.mu.Unlock()
		if len(got) == 0 && q.FormValue("wait") != "" {
			select {
			case <-more:
			case <-q.Context().Done():
			}
			b.mu.Lock()
			got = b.got[from:]
			b.mu.Unlock()
		}
		for _, line := range got {
			_, _ = w.Write(line)
		}
	})
	mux.HandleFunc("GET /tally", func(w http.ResponseWriter, q *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		var sum Tally
		if one := b.tallies[q.FormValue("of")]; one != nil {
			sum = *one
		}
		_ = json.NewEncoder(w).Encode(&sum)
	})
	mux.HandleFunc("POST /acts", func(w http.ResponseWriter, q *http.Request) {
		var acts []Act
		if err := json.NewDecoder(q.Body).Decode(&acts); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		of := q.FormValue("of")
		b.mu.Lock()
		defer b.mu.Unlock()
		if held := b.releases[of]; held != nil {
			close(held)
		}
		b.acts[of], b.releases[of] = acts, make(chan struct{})
	})
	return mux
}

// Receiver is the process, as the test uses it.
type Receiver struct {
	t       testing.TB
	setup   setup
	URL     string   // its first address
	URLs    []string // its addresses
	cmd     *exec.Cmd
	errs    bytes.Buffer
	control string

	seen  int             // number of fetched notifications
	queue []*Notification // fetched, and not taken by the test
}

// Start starts a receiver at n addresses, which it keeps while it is down.
func Start(t testing.TB, addrs int) *Receiver {
	t.Helper()
	r := &Receiver{t: t, setup: setup{Journal: filepath.Join(t.TempDir(), "journal")}}
	for range addrs {
		addr := nettest.Reserve(t)
		r.setup.Addrs, r.URLs = append(r.setup.Addrs, addr), append(r.URLs, "http://"+addr)
	}
	r.URL = r.URLs[0]
	t.Cleanup(func() {
		r.Kill()
		if bytes.Contains(r.errs.Bytes(), []byte("DATA RACE")) || t.Failed() && r.errs.Len() > 0 {
			t.Errorf("output of the receiver:\n%s", r.errs.Bytes())
		}
	})
	r.Run()
	return r
}

// Run starts the process, or restarts it after a kill. It has its notifications, and no acts.
func (r *Receiver) Run() {
	r.t.Helper()
	how, err := json.Marshal(&r.setup)
	require.NoError(r.t, err)
	r.cmd = exec.Command(os.Args[0])
	r.cmd.Env = append(os.Environ(), env+"="+string(how))
	r.cmd.Stderr = &r.errs
	_, err = r.cmd.StdinPipe() // closes when the test ends
	require.NoError(r.t, err)
	out, err := r.cmd.StdoutPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, r.cmd.Start())
	control, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(r.t, err, "the Receiver starts")
	r.control = "http://" + strings.TrimSpace(control)
}

// Kill kills the process.
func (r *Receiver) Kill() {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	r.cmd = nil
}

// ask sends a command to the process, and fails the test if there is no answer in time.
func (r *Receiver) ask(what, method, path string, in any) []byte {
	r.t.Helper()
	body, err := json.Marshal(in)
	require.NoError(r.t, err)
	req, err := http.NewRequestWithContext(waittest.Context(r.t), method, r.control+path, bytes.NewReader(body))
	require.NoError(r.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err, "timed out: %s", what)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	require.Equal(r.t, http.StatusOK, resp.StatusCode, "%s", got)
	return got
}

// Behave sets the acts for the next requests to a path or an address, one after another; the last one stays. "" means
// all paths and addresses without acts of their own. Held requests there are released.
func (r *Receiver) Behave(of string, acts ...Act) {
	r.t.Helper()
	r.ask("acts", http.MethodPost, "/acts?of="+url.QueryEscape(of), acts)
}

// Tally returns the counts for a path or an address, in this run of the process.
func (r *Receiver) Tally(of string) (sum Tally) {
	r.t.Helper()
	require.NoError(r.t, json.Unmarshal(r.ask("a tally", http.MethodGet, "/tally?of="+url.QueryEscape(of), nil), &sum))
	return sum
}

// Next waits for a notification.
func (r *Receiver) Next(what string) *Notification {
	r.t.Helper()
	for len(r.queue) == 0 {
		r.fetch(what, "&wait=1")
	}
	n := r.queue[0]
	r.queue = r.queue[1:]
	return n
}

// Rest returns the notifications that have arrived and were not taken.
func (r *Receiver) Rest() []*Notification {
	r.t.Helper()
	r.fetch("the rest", "")
	rest := r.queue
	r.queue = nil
	return rest
}

func (r *Receiver) fetch(what, wait string) {
	r.t.Helper()
	lines := r.ask(what, http.MethodGet, fmt.Sprintf("/got?from=%d%s", r.seen, wait), nil)
	for line := range bytes.Lines(lines) {
		n := &Notification{}
		require.NoError(r.t, json.Unmarshal(line, n))
		r.seen++
		r.queue = append(r.queue, n)
	}
}

// Until takes notifications until one has a state.
func (r *Receiver) Until(state string) (all []*Notification, states []string) {
	r.t.Helper()
	for {
		n := r.Next("a Notification with " + state)
		all, states = append(all, n), append(states, n.State(r.t))
		if states[len(states)-1] == state {
			return all, states
		}
	}
}

// ID is the id of the delivery.
func (n *Notification) ID() string { return n.Header.Get("Idempotency-Key") }

// State is the state of the task, as 0.3 names it.
func (n *Notification) State(t testing.TB) string {
	t.Helper()
	var doc struct {
		Status       *a2atest.Status
		StatusUpdate *struct{ Status a2atest.Status }
		Task         *struct{ Status a2atest.Status }
	}
	require.NoError(t, json.Unmarshal(n.Body, &doc), "%s", n.Body)
	switch {
	case doc.Status != nil:
		return doc.Status.State
	case doc.StatusUpdate != nil:
		return a2atest.Plain(doc.StatusUpdate.Status.State)
	case doc.Task != nil:
		return a2atest.Plain(doc.Task.Status.State)
	}
	return ""
}

// Claims are the claims of the JWT, which must match this delivery and this body. The signature is not checked.
func (n *Notification) Claims(t testing.TB) (claims struct {
	Iss, Aud, Sub, Jti string
	Digest             string `json:"request_body_sha256"`
},
) {
	t.Helper()
	signed, err := jose.ParseSignedCompact(n.Header.Get("X-A2A-Signature"), []jose.SignatureAlgorithm{jose.ES256})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(signed.UnsafePayloadWithoutVerification(), &claims))
	require.Equal(t, n.ID(), claims.Jti)
	digest := sha256.Sum256(n.Body)
	require.Equal(t, hex.EncodeToString(digest[:]), claims.Digest)
	return claims
}

// Stories are the notifications that receivers got, by path.
type Stories struct {
	t      testing.TB
	First  map[string]*Notification // by delivery id
	Times  map[string]int           // by delivery id: how often it arrived
	States map[string][]string      // by path, without repetitions
}

// NewStories makes empty Stories.
func NewStories(t testing.TB) *Stories {
	t.Helper()
	return &Stories{t, map[string]*Notification{}, map[string]int{}, map[string][]string{}}
}

// Add adds a notification, and returns its path and state. A repetition, which has the same id, must have the same
// content and does not count: then the path is "".
func (s *Stories) Add(n *Notification) (path, state string) {
	s.t.Helper()
	n.Claims(s.t)
	s.Times[n.ID()]++
	if first := s.First[n.ID()]; first != nil {
		require.Equal(s.t, first.Path, n.Path)
		require.Equal(s.t, string(first.Body), string(n.Body), "%s: %s", n.Path, n.ID())
		return "", ""
	}
	s.First[n.ID()] = n
	state = n.State(s.t)
	s.States[n.Path] = append(s.States[n.Path], state)
	return n.Path, state
}

// UntilAll takes notifications until n paths got the end of their task, no delivery is due, and all later
// notifications are repetitions.
func (r *Receiver) UntilAll(db *clustertest.DB, paths int) *Stories {
	r.t.Helper()
	s := NewStories(r.t)
	for ended := 0; ended < paths; {
		if _, state := s.Add(r.Next("the end of every task")); state == "completed" {
			ended++
		}
	}
	db.NothingIsDue()
	for _, n := range r.Rest() {
		path, state := s.Add(n)
		require.Empty(r.t, path, "something new after the end: %s", state)
	}
	return s
}
