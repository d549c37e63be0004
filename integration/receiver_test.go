package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

// The receiver of webhooks is this test binary as a process of its own. It does with each request what the test has asked
// for, keeps in a file what came, and is asked about it at another address. So it can be killed, and come back.

const receiverEnv = "HOLDFAST_INTEGRATION_RECEIVER" // a receiverSetup

// receiverSetup is what the process is told when it starts.
type receiverSetup struct {
	Addrs     []string
	Cert, Key string // files; without them it is no TLS
	Journal   string // a file
}

// act is what a receiver does with a request. The zero value accepts it.
type act struct {
	Do     deed
	Hold   bool          // until the test releases it, or the sender is gone
	Wait   time.Duration // before it answers
	Status int           // default 204
	Header http.Header
	// RetryDate adds a Retry-After of a date: so long from the answer, in whole seconds.
	RetryDate time.Duration
	Text      string
}

// deed is what a receiver does in place of answering properly.
type deed string

const (
	answers         deed = ""
	neverAnswers    deed = "never answers"
	hangsInHeaders  deed = "never ends its headers"
	hangsInBody     deed = "never ends its body"
	floods          deed = "has a body without end"
	closes          deed = "closes the connection"
	resets          deed = "resets the connection"
	resetsUnread    deed = "resets the connection before it has read the body"
	speaksOtherwise deed = "does not speak HTTP"
)

// notification is what a receiver got, whole.
type notification struct {
	At         time.Time
	Host, Path string
	Header     http.Header
	Body       []byte
	RetryAfter string // what it was answered
}

// tally counts what came to a path, or to an address.
type tally struct {
	Posts   int // also those that are in no notification
	Open    int // that are not answered yet
	Most    int // that were open at once
	Written int // bytes of floods that the sender took
}

// inbox is the receiver within its process.
type inbox struct {
	journal *os.File

	mu       sync.Mutex
	got      [][]byte                 // the lines of the journal
	more     chan struct{}            // closed when something came
	acts     map[string][]act         // by path or address, "" for those without
	releases map[string]chan struct{} // as acts: what is held waits for that
	tallies  map[string]*tally        // by path, and by address
}

// serveReceiver is the process. It ends when the test does.
func serveReceiver(setup string) error {
	var s receiverSetup
	if err := json.Unmarshal([]byte(setup), &s); err != nil {
		return err
	}
	b := &inbox{more: make(chan struct{}), acts: map[string][]act{}, tallies: map[string]*tally{}, releases: map[string]chan struct{}{}}
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
		go func() {
			if s.Cert != "" {
				ended <- hooks.ServeTLS(l, s.Cert, s.Key)
			} else {
				ended <- hooks.Serve(l)
			}
		}()
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

// open reads what came in earlier lives. The last line may be torn: its sender has no answer.
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

func (b *inbox) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	path := q.URL.RequestURI()
	a, release := b.arrive(path, q.Host)
	defer b.count(func(c *tally) { c.Open-- }, path, q.Host)
	if a.Do == resetsUnread {
		hangUp(w, true)
		return
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	n := &notification{At: time.Now(), Host: q.Host, Path: path, Header: q.Header, Body: body, RetryAfter: a.Header.Get("Retry-After")}
	if a.RetryDate > 0 {
		n.RetryAfter = n.At.Add(a.RetryDate).UTC().Format(http.TimeFormat)
	}
	b.keep(n)
	if a.Hold {
		select {
		case <-release:
		case <-q.Context().Done():
			return
		}
	}
	time.Sleep(a.Wait)
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	if n.RetryAfter != "" {
		w.Header().Set("Retry-After", n.RetryAfter)
	}
	b.answer(w, q, &a)
}

func (b *inbox) answer(w http.ResponseWriter, q *http.Request, a *act) {
	status := a.Status
	if status == 0 {
		status = http.StatusNoContent
	}
	switch a.Do {
	case neverAnswers:
		<-q.Context().Done()
	case hangsInHeaders:
		hangIn(w, "HTTP/1.1 200 OK\r\nX-Slow: ")
	case hangsInBody:
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, a.Text)
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
	case floods:
		w.WriteHeader(status)
		for chunk := bytes.Repeat([]byte("water "), 10_000); ; {
			n, err := w.Write(chunk)
			b.count(func(c *tally) { c.Written += n }, q.URL.RequestURI(), q.Host)
			if err != nil {
				return
			}
		}
	case closes, resets:
		hangUp(w, a.Do == resets)
	case speaksOtherwise:
		hangIn(w, "220 mail.example ESMTP\r\n")
	default:
		w.WriteHeader(status)
		_, _ = io.WriteString(w, a.Text)
	}
}

// hangUp ends a connection without an answer.
func hangUp(w http.ResponseWriter, reset bool) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if reset {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	_ = c.Close()
}

// hangIn writes something and leaves it to the sender to end the connection.
func hangIn(w http.ResponseWriter, text string) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(c, text)
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
}

// arrive counts a request, and says what to do with it: each takes the next of the acts of its path, or else of its
// address, or else of all. The last one stays.
func (b *inbox) arrive(path, host string) (a act, release <-chan struct{}) {
	b.count(func(c *tally) {
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
	return act{}, nil
}

func (b *inbox) count(how func(*tally), keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		if b.tallies[key] == nil {
			b.tallies[key] = &tally{}
		}
		how(b.tallies[key])
	}
}

// keep remembers what came, before it is answered.
func (b *inbox) keep(n *notification) {
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

// control is what the test asks and tells.
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
		var sum tally
		if one := b.tallies[q.FormValue("of")]; one != nil {
			sum = *one
		}
		_ = json.NewEncoder(w).Encode(&sum)
	})
	mux.HandleFunc("POST /acts", func(w http.ResponseWriter, q *http.Request) {
		var acts []act
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

// receiver is that process, as the test sees it.
type receiver struct {
	t       testing.TB
	setup   receiverSetup
	url     string   // of the first of its addresses
	urls    []string // of all
	cmd     *exec.Cmd
	errs    bytes.Buffer
	control string

	seen  int             // how many notifications were fetched
	queue []*notification // of these, those that the test has not taken
}

// receive starts a receiver at one address or several, which are its own also while it is down.
func receive(t testing.TB, addrs int) *receiver {
	t.Helper()
	r := newReceiver(t, "http://", addrs)
	r.run()
	return r
}

func newReceiver(t testing.TB, scheme string, addrs int) *receiver {
	t.Helper()
	r := &receiver{t: t, setup: receiverSetup{Journal: filepath.Join(t.TempDir(), "journal")}}
	for range addrs {
		addr := reserve(t)
		r.setup.Addrs, r.urls = append(r.setup.Addrs, addr), append(r.urls, scheme+addr)
	}
	r.url = r.urls[0]
	t.Cleanup(func() {
		r.kill()
		if bytes.Contains(r.errs.Bytes(), []byte("DATA RACE")) || t.Failed() && r.errs.Len() > 0 {
			t.Errorf("the receiver said:\n%s", r.errs.Bytes())
		}
	})
	return r
}

// reserve binds a port and does not listen at it. While nobody else does, connections are refused; and nobody else is
// given it who asks for any port.
func reserve(t testing.TB) (addr string) {
	t.Helper()
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	// With this on both sides, one of them may listen.
	require.NoError(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
}

// run starts the process, again if it has been killed. It knows what came before, and no acts.
func (r *receiver) run() {
	r.t.Helper()
	setup, err := json.Marshal(&r.setup)
	require.NoError(r.t, err)
	r.cmd = exec.Command(os.Args[0])
	r.cmd.Env = append(os.Environ(), receiverEnv+"="+string(setup))
	r.cmd.Stderr = &r.errs
	_, err = r.cmd.StdinPipe() // which ends when we do
	require.NoError(r.t, err)
	out, err := r.cmd.StdoutPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, r.cmd.Start())
	control, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(r.t, err, "the receiver starts")
	r.control = "http://" + strings.TrimSpace(control)
}

// kill ends the process at once.
func (r *receiver) kill() {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	r.cmd = nil
}

// ask asks the process, and fails the test when there is no answer in time.
func (r *receiver) ask(what, method, path string, in any) []byte {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	body, err := json.Marshal(in)
	require.NoError(r.t, err)
	req, err := http.NewRequestWithContext(ctx, method, r.control+path, bytes.NewReader(body))
	require.NoError(r.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err, "waited in vain: %s", what)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	require.Equal(r.t, http.StatusOK, resp.StatusCode, "%s", got)
	return got
}

// behave says what happens to the next requests to a path, or to an address, one after the other; the last stays. "" is
// all of which nothing was said. What is held there is released.
func (r *receiver) behave(of string, acts ...act) {
	r.t.Helper()
	r.ask("acts", http.MethodPost, "/acts?of="+url.QueryEscape(of), acts)
}

// tally is what has come to a path, or to an address, in this life of the process.
func (r *receiver) tally(of string) (sum tally) {
	r.t.Helper()
	require.NoError(r.t, json.Unmarshal(r.ask("a tally", http.MethodGet, "/tally?of="+url.QueryEscape(of), nil), &sum))
	return sum
}

// next waits for a notification.
func (r *receiver) next(what string) *notification {
	r.t.Helper()
	for len(r.queue) == 0 {
		r.fetch(what, "&wait=1")
	}
	n := r.queue[0]
	r.queue = r.queue[1:]
	return n
}

// rest are the notifications that have come, and were not taken.
func (r *receiver) rest() []*notification {
	r.t.Helper()
	r.fetch("the rest", "")
	rest := r.queue
	r.queue = nil
	return rest
}

func (r *receiver) fetch(what, wait string) {
	r.t.Helper()
	lines := r.ask(what, http.MethodGet, fmt.Sprintf("/got?from=%d%s", r.seen, wait), nil)
	for line := range bytes.Lines(lines) {
		n := &notification{}
		require.NoError(r.t, json.Unmarshal(line, n))
		r.seen++
		r.queue = append(r.queue, n)
	}
}

// until takes notifications up to one with a state.
func (r *receiver) until(state string) (all []*notification, states []string) {
	r.t.Helper()
	for {
		n := r.next("a notification with " + state)
		all, states = append(all, n), append(states, n.state(r.t))
		if states[len(states)-1] == state {
			return all, states
		}
	}
}

// id is that of the delivery.
func (n *notification) id() string { return n.Header.Get("Idempotency-Key") }

// state is that of the task, in the words of 0.3.
func (n *notification) state(t testing.TB) string {
	t.Helper()
	var doc struct {
		Status       *status
		StatusUpdate *struct{ Status status }
		Task         *struct{ Status status }
	}
	require.NoError(t, json.Unmarshal(n.Body, &doc), "%s", n.Body)
	switch {
	case doc.Status != nil:
		return doc.Status.State
	case doc.StatusUpdate != nil:
		return inOldWords(doc.StatusUpdate.Status.State)
	case doc.Task != nil:
		return inOldWords(doc.Task.Status.State)
	}
	return ""
}

// inOldWords makes TASK_STATE_INPUT_REQUIRED input-required.
func inOldWords(state string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(state, "TASK_STATE_"), "_", "-"))
}

// claims are those of the JWT, which speaks of this delivery and this body. The signature is not looked at.
func (n *notification) claims(t testing.TB) (claims struct {
	Iss, Aud, Sub, Jti string
	Digest             string `json:"request_body_sha256"`
},
) {
	t.Helper()
	signed, err := jose.ParseSignedCompact(n.Header.Get("X-A2A-Signature"), []jose.SignatureAlgorithm{jose.ES256})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(signed.UnsafePayloadWithoutVerification(), &claims))
	require.Equal(t, n.id(), claims.Jti)
	digest := sha256.Sum256(n.Body)
	require.Equal(t, hex.EncodeToString(digest[:]), claims.Digest)
	return claims
}

// stories are what receivers were told, path by path.
type stories struct {
	t      testing.TB
	first  map[string]*notification // by delivery
	times  map[string]int           // by delivery: how often it came
	states map[string][]string      // by path, without repetitions
}

func newStories(t testing.TB) *stories {
	t.Helper()
	return &stories{t, map[string]*notification{}, map[string]int{}, map[string][]string{}}
}

// add takes a notification in, and tells its path and state. What repeats an earlier one, as its id says, must say the same,
// and counts for nothing: then the path is "".
func (s *stories) add(n *notification) (path, state string) {
	s.t.Helper()
	n.claims(s.t)
	s.times[n.id()]++
	if first := s.first[n.id()]; first != nil {
		require.Equal(s.t, first.Path, n.Path)
		require.Equal(s.t, string(first.Body), string(n.Body), "%s: %s", n.Path, n.id())
		return "", ""
	}
	s.first[n.id()] = n
	state = n.state(s.t)
	s.states[n.Path] = append(s.states[n.Path], state)
	return n.Path, state
}

// untilAll takes notifications until so many paths have been told of an end of their tasks, nothing more is due, and
// what has come since repeats what was known.
func (r *receiver) untilAll(db *ledger, paths int) *stories {
	r.t.Helper()
	s := newStories(r.t)
	for ended := 0; ended < paths; {
		if _, state := s.add(r.next("the end of every task")); state == "completed" {
			ended++
		}
	}
	db.nothingIsDue()
	for _, n := range r.rest() {
		path, state := s.add(n)
		require.Empty(r.t, path, "something new after the end: %s", state)
	}
	return s
}

// nothingIsDue waits until every delivery is made and recorded.
func (l *ledger) nothingIsDue() {
	l.t.Helper()
	eventually(l.t, "nothing is due", func() error {
		n := one[int](l, "SELECT count(*) FROM holdfast.push_cursors WHERE due_at IS NOT NULL")
		return unless(n == 0, "%d", n)
	})
}

// classes are what came of the attempts for a task, in their order.
func (l *ledger) classes(taskID string) []string {
	l.t.Helper()
	return column[string](l, "SELECT class FROM holdfast.v_push_attempts WHERE task_id = $1 ORDER BY attempt_id", taskID)
}
