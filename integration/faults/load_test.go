package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
)

// load is a crowd of clients that talk to all replicas and survive faults. They repeat unanswered requests with the
// same key on any replica, and resume streams that were cut. The ledger records every answer that they get.
type load struct {
	t      testing.TB
	urls   []string
	http   *http.Client
	ledger *judge.Ledger
	seed   uint64
	lossy  bool   // the database may lose what it acknowledged
	hooks  *hooks // receives webhooks; nil: no client speaks every version
	agent  *agent // behind HTTP

	turn    sync.RWMutex // held for reading by each operation
	stop    chan struct{}
	closing sync.Once
	ended   sync.WaitGroup

	done    atomic.Int64 // operations
	tries   atomic.Int64 // requests that had to be repeated
	resumes atomic.Int64 // streams that were continued
	fronted atomic.Int64 // tasks of the front

	mu      sync.Mutex
	trouble []error
}

// giveUp bounds an operation with all its tries. No fault may delay a client for that long.
const giveUp = 10 * time.Minute

func newLoad(t testing.TB, seed uint64, urls ...string) *load {
	t.Helper()
	l := &load{
		t: t, urls: urls, ledger: judge.New(), seed: seed, stop: make(chan struct{}),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
	t.Cleanup(l.end)
	return l
}

// start adds clients. Every second one speaks 0.1. Every other pair is patient: it stays connected to a silent
// replica, where the others try another one.
func (l *load) start(clients int) {
	for i := range clients {
		c := l.client(a2atest.Old[i%2], uint64(i))
		c.cutting = true
		if i/2%2 == 0 {
			c.idle, c.try = 4*time.Second, 5*time.Second
		}
		l.ended.Go(c.run)
	}
}

// client makes a patient client that never cuts its own streams.
func (l *load) client(d *a2atest.Wire, n uint64) *client {
	rng := mathrand.New(mathrand.NewPCG(l.seed, n))
	return &client{load: l, d: d, rng: rng, urls: l.urls, path: "/", idle: giveUp, try: 30 * time.Second}
}

// devoted reads a stream from one replica, whose connections must not break. If the replica ends the stream, because
// it is cut off from the database, the client resumes there. It closes began at the first event of its run.
func (l *load) devoted(url string, began chan struct{}) error {
	c := l.client(a2atest.V03, 0)
	c.urls = []string{url}
	m := c.message("", "chunks=500 size=20 delay=10ms")
	m.params["message"].(object)["contextId"] = "devoted-" + m.mark
	f := &subscriber{client: c, message: m, unbroken: true, seen: func(_ string, n int) {
		if n == 1 {
			close(began)
		}
	}}
	return f.completes(judge.Outcome{Chunks: 500})
}

// rewound reads a stream that begins again, because the database loses events that it has shown. progress receives the
// number of events that it has read.
func (l *load) rewound(n uint64, progress *atomic.Int64) (f *subscriber, err error) {
	c := l.client(a2atest.V03, n).at("remote")
	c.idle = 10 * time.Second
	f = &subscriber{client: c, message: c.message("", trickling), seen: func(_ string, n int) { progress.Store(int64(n)) }}
	if err = f.completes(judge.Outcome{}); err == nil && !f.again {
		err = fmt.Errorf("the stream of task %s did not begin again", f.task)
	}
	return f, err
}

// completes reads the stream of a message to the end of a task that completes.
func (f *subscriber) completes(want judge.Outcome) error {
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	f.ledger.Sending(f.message.mark)
	state, err := f.follow(ctx)
	if err == nil && state != "completed" {
		err = fmt.Errorf("task %s is %s", f.task, state)
	}
	want.State = "completed"
	f.ledger.Expect(f.task, want)
	return err
}

// end lets every client finish its operation.
func (l *load) end() {
	l.closing.Do(func() { close(l.stop) })
	l.ended.Wait()
	l.http.CloseIdleConnections()
}

// pause waits until no operation is under way. Clients begin the next one after a call of the function that it
// returns.
func (l *load) pause() (resume func()) {
	l.turn.Lock()
	return l.turn.Unlock
}

// troubles are the errors that clients could not handle.
func (l *load) troubles() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.trouble[:min(len(l.trouble), 10)]...)
}

// client is one client of the load. It does one operation after another.
type client struct {
	*load
	d       *a2atest.Wire
	rng     *mathrand.Rand
	urls    []string
	path    string        // of the agent
	cutting bool          // it cuts its streams now and then
	idle    time.Duration // it leaves a stream that has been silent for so long, even without comments
	try     time.Duration // it repeats a request that has no answer after so long
}

// operations are what clients do, with weights.
var operations = []struct {
	name   string
	weight int
	do     func(*client, context.Context) error
}{
	{"sending", 5, (*client).sending},
	{"streaming", 4, (*client).streaming},
	{"multi-turn", 2, (*client).conversing},
	{"hasty", 1, (*client).hasty},
	{"busy", 2, (*client).interrupting},
	{"cancel", 2, (*client).canceling},
	{"waiting", 2, (*client).waiting},
	{"resuming", 2, (*client).resuming},
	{"delegating", 2, (*client).delegating},
	{"revoking", 2, (*client).revoking},
	{"posting", 2, (*client).posting},
	{"calling", 1, greets("remote")},
	{"commanding", 1, greets("command")},
	{"modeling", 1, greets("model")},
	{"fronting", 2, streams("front")},
	{"working", 2, streams("far")},
	{"speaking", 8, (*client).speaking}, // the last one: not without hooks
}

func (c *client) run() {
	sum, operations := 0, operations
	switch {
	case c.lossy:
		operations = operations[:2] // that leave no task for a client that lost it
	case c.hooks == nil:
		operations = operations[:len(operations)-1]
	}
	for _, o := range operations {
		sum += o.weight
	}
	for {
		select {
		case <-c.stop:
			return
		case <-time.After(time.Duration(c.rng.IntN(60)) * time.Millisecond): // a client thinks
		}
		n := c.rng.IntN(sum)
		for _, o := range operations {
			if n -= o.weight; n < 0 {
				c.operate(o.name, o.do)
				break
			}
		}
	}
}

func (c *client) operate(name string, do func(*client, context.Context) error) {
	c.turn.RLock()
	defer c.turn.RUnlock()
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	err := do(c, ctx)
	c.mu.Lock()
	if err != nil && (!c.lossy || !gone(err)) {
		c.trouble = append(c.trouble, fmt.Errorf("%s in %s: %w", name, c.d, err))
	}
	c.mu.Unlock()
	c.done.Add(1)
}

// sending waits for the answer or not, and polls until the task has ended.
func (c *client) sending(ctx context.Context) error {
	waits := c.rng.IntN(5) < 3
	if !waits {
		c = c.modern()
	}
	script, chunks := []string{"echo:hello", "sleep=100ms"}[c.rng.IntN(2)], 0
	if c.rng.IntN(2) == 0 {
		script, chunks = c.chunks(2, 30)
	}
	m := c.message("", script)
	if !waits {
		m.without("blocking")
	}
	return c.completes(ctx, m, chunks)
}

// delegating has the agent call others, of which one calls as well, and polls until it has each result once, or reads their
// progress from a stream.
func (c *client) delegating(ctx context.Context) error {
	c = c.modern()
	if c.rng.IntN(2) == 0 {
		taskID, _, err := c.stream(ctx, c.message("", "relay=helper,nobody,helper "+judge.Steps+"3 delay=500ms"), nil)
		if err == nil {
			c.ledger.Expect(taskID, judge.Outcome{State: "completed"})
		}
		return err
	}
	taskID, r, err := c.send(ctx, c.message("", "call=helper,nobody,remote "+nested).without("blocking"))
	if err != nil {
		return err
	}
	c.ledger.Expect(taskID, judge.Outcome{State: "completed"})
	if err := c.poll(ctx, taskID, r, "completed"); err != nil {
		return err
	}
	return c.shows(ctx, taskID, "helper completed: "+nested+"\nnobody rejected: there is no agent \"nobody\"\nremote completed: \n")
}

// completes sends a message and polls until its task has completed.
func (c *client) completes(ctx context.Context, m *outgoing, chunks int) error {
	taskID, r, err := c.send(ctx, m)
	if err != nil {
		return err
	}
	c.ledger.Expect(taskID, judge.Outcome{State: "completed", Chunks: chunks})
	return c.poll(ctx, taskID, r, "completed")
}

// streaming reads a stream to its end, through every cut, and sometimes the whole log once more.
func (c *client) streaming(ctx context.Context) error {
	script, chunks := c.chunks(5, 60)
	taskID, _, err := c.stream(ctx, c.message("", script), nil)
	if err != nil {
		return err
	}
	c.ledger.Expect(taskID, judge.Outcome{State: "completed", Chunks: chunks})
	if c.rng.IntN(3) == 0 {
		after := int64(c.rng.IntN(chunks)) + 1
		r := c.ledger.Follow(taskID)
		r.From(after)
		_, err = (&subscriber{client: c, reading: r, task: taskID, last: after, id: strconv.FormatInt(after, 10)}).follow(ctx)
	}
	return err
}

// conversing answers the agent's question. Message and answer are each sent as a stream or not, and the answer in the
// other version.
func (c *client) conversing(ctx context.Context) error {
	taskID, state, err := c.either(ctx, c.message("", "ask:which city?"))
	if err != nil {
		return err
	}
	if state != "input-required" {
		return fmt.Errorf("task %s is %s, and should ask", taskID, state)
	}
	other := *c
	other.d = map[*a2atest.Wire]*a2atest.Wire{a2atest.V01: a2atest.V03, a2atest.V03: a2atest.V01}[c.d]
	_, state, err = other.either(ctx, other.message(taskID, "Oslo"))
	if err == nil && state != "completed" {
		err = fmt.Errorf("task %s is %s after the answer", taskID, state)
	}
	c.ledger.Expect(taskID, judge.Outcome{State: "completed"})
	return err
}

// hasty answers without waiting for the question, so the answer may arrive first.
func (c *client) hasty(ctx context.Context) error {
	c = c.modern()
	taskID, _, err := c.send(ctx, c.message("", "ask:which city?").without("blocking"))
	if err != nil {
		return err
	}
	c.ledger.Expect(taskID, judge.Outcome{State: "completed"})
	_, r, err := c.send(ctx, c.message(taskID, "Oslo"))
	if err != nil {
		return err
	}
	// A repeated request may have returned while the task was parked; the task still gets its answer.
	return c.poll(ctx, taskID, r, "completed")
}

// interrupting sends a message to a busy task while it streams.
func (c *client) interrupting(ctx context.Context) error {
	script, chunks := c.chunks(10, 30)
	at := c.rng.IntN(10)
	var second error
	taskID, _, err := c.stream(ctx, c.message("", script), func(taskID string, n int) {
		if n != at {
			return
		}
		other := c.modern()
		if _, _, second = other.send(ctx, other.message(taskID, "echo:meanwhile").without("blocking")); errors.As(second, new(*refusal)) {
			second = nil // the task had ended
		}
	})
	if err != nil {
		return err
	}
	c.ledger.Expect(taskID, judge.Outcome{State: "completed", Chunks: chunks})
	return second
}

// canceling cancels a task that does not end by itself.
func (c *client) canceling(ctx context.Context) error {
	var canceled error
	var wait sync.WaitGroup
	taskID, state, err := c.stream(ctx, c.message("", "hold"), func(taskID string, n int) {
		if n != 0 {
			return
		}
		after := time.Duration(c.rng.IntN(300)) * time.Millisecond
		other := *c // cancels while c reads
		other.rng = mathrand.New(mathrand.NewPCG(c.rng.Uint64(), 0))
		wait.Go(func() {
			time.Sleep(after)
			canceled = other.cancel(ctx, taskID)
		})
	})
	wait.Wait()
	if err != nil {
		return err
	}
	c.ledger.Expect(taskID, judge.Outcome{State: "canceled"})
	if state != "canceled" {
		return fmt.Errorf("task %s is %s after a cancel", taskID, state)
	}
	return canceled
}

// waiting sends to an agent that waits without a process, and sometimes ends the wait with a message. The judge finds waits
// that end early.
func (c *client) waiting(ctx context.Context) error {
	c = c.modern()
	script, ends := fmt.Sprintf("wait=%dms", c.rng.IntN(2000)), c.rng.IntN(3) == 0
	if ends {
		script = "wait=1h interruptible"
	}
	taskID, r, err := c.send(ctx, c.message("", script).without("blocking"))
	if err != nil {
		return err
	}
	if ends {
		time.Sleep(time.Duration(c.rng.IntN(500)) * time.Millisecond) // the wait may have begun, or not
		if _, r, err = c.send(ctx, c.message(taskID, "now").without("blocking")); err != nil {
			return err
		}
	}
	c.ledger.Expect(taskID, judge.Outcome{State: "completed"})
	return c.poll(ctx, taskID, r, "completed")
}

func (c *client) cancel(ctx context.Context, taskID string) error {
	for {
		a, err := c.ask(ctx, a2atest.Request("tasks/cancel", object{"id": taskID}))
		var refused *refusal
		switch {
		case errors.As(err, &refused) && refused.Code == -32002:
			return nil // an earlier try canceled it
		case err != nil:
			return err
		}
		r, err := a.Result()
		if err != nil {
			return err
		}
		c.ledger.Follow(taskID).Saw(viewOf(r))
		if r.State() == "canceled" {
			return nil
		}
		// Its worker did not answer in time. A second cancel is allowed.
		if err := c.breathe(ctx); err != nil {
			return err
		}
	}
}

// modern is this client speaking 0.3, which can send without waiting.
func (c *client) modern() *client {
	m := *c
	m.d = a2atest.V03
	return &m
}

func (c *client) chunks(least, most int) (script string, n int) {
	n = least + c.rng.IntN(most-least)
	return fmt.Sprintf("chunks=%d size=%d delay=%dms", n, 20+c.rng.IntN(200), 2+c.rng.IntN(30)), n
}

// outgoing is a message with its mark, the same for all tries.
type outgoing struct {
	mark   string
	params object
}

func (c *client) message(taskID, script string) *outgoing {
	m := &outgoing{rand.Text(), c.d.Params(a2atest.Send, a2atest.Say(script).To(taskID))}
	content := m.params["message"].(object)
	parts := content["parts"].([]any)
	mark := maps.Clone(parts[0].(object))
	mark["text"] = m.mark
	content["parts"] = append(parts, mark)
	return m
}

func (m *outgoing) without(flag string) *outgoing {
	m.params["configuration"] = object{flag: false}
	return m
}

// either sends the message, as a stream or not.
func (c *client) either(ctx context.Context, m *outgoing) (taskID, state string, err error) {
	if c.rng.IntN(2) == 0 {
		return c.stream(ctx, m, nil)
	}
	taskID, r, err := c.send(ctx, m)
	if err != nil {
		return "", "", err
	}
	reading := c.ledger.Follow(taskID)
	reading.Saw(viewOf(r))
	for r.State() == "submitted" || r.State() == "working" {
		if r, err = c.get(ctx, taskID, reading); err != nil {
			return "", "", err
		}
	}
	return taskID, r.State(), nil
}

// send repeats a message until its outcome is known.
func (c *client) send(ctx context.Context, m *outgoing) (taskID string, r *a2atest.Result, err error) {
	c.ledger.Sending(m.mark)
	a, err := c.ask(ctx, a2atest.Request(c.d.Method(a2atest.Send), m.params), "Idempotency-Key", m.mark)
	if errors.As(err, new(*refusal)) {
		c.ledger.Refused(m.mark)
	}
	if err != nil {
		return "", nil, err
	}
	if r, err = a.Result(); err != nil {
		return "", nil, err
	}
	c.ledger.Stored(m.mark, r.Task())
	return r.Task(), r, nil
}

// poll gets the task until it reaches the state, and records each answer, beginning with r.
func (c *client) poll(ctx context.Context, taskID string, r *a2atest.Result, until string) (err error) {
	reading := c.ledger.Follow(taskID)
	reading.Saw(viewOf(r))
	for r.State() != until {
		if terminal(r.State()) {
			return fmt.Errorf("task %s is %s, and should be %s", taskID, r.State(), until)
		}
		if r, err = c.get(ctx, taskID, reading); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) get(ctx context.Context, taskID string, reading *judge.Reading) (*a2atest.Result, error) {
	if err := c.breathe(ctx); err != nil {
		return nil, err
	}
	a, err := c.ask(ctx, a2atest.Request("tasks/get", object{"id": taskID}))
	if err != nil {
		return nil, err
	}
	r, err := a.Result()
	if err == nil {
		reading.Saw(viewOf(r))
	}
	return r, err
}

// gone reports whether the task of a request is lost.
func gone(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.Code == -32001
}

// refusal is an error for the client's request. internal is an internal error, which no fault excuses.
type (
	refusal  struct{ told }
	internal struct{ told }
	told     = *a2atest.Error
)

// final reports whether another try is useless.
func final(err error) bool {
	return errors.As(err, new(*refusal)) || errors.As(err, new(*internal)) || errors.As(err, new(*seam))
}

// ask sends a request to one replica after another until one answers.
func (c *client) ask(ctx context.Context, body []byte, header ...string) (*a2atest.Answer, error) {
	var last error
	for ; ; c.tries.Add(1) {
		try, cancel := context.WithTimeout(ctx, c.try)
		a, err := c.askOne(try, body, header...)
		cancel()
		if err == nil || final(err) {
			return a, err
		}
		last = err
		if err := c.breathe(ctx); err != nil {
			return nil, fmt.Errorf("%w; at last: %w", err, last)
		}
	}
}

func (c *client) askOne(ctx context.Context, body []byte, header ...string) (*a2atest.Answer, error) {
	resp, err := c.post(ctx, body, header...)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readAnswer(resp)
}

func (c *client) post(ctx context.Context, body []byte, header ...string) (*http.Response, error) {
	return a2atest.PostWith(ctx, c.http, c.urls[c.rng.IntN(len(c.urls))]+c.path, body, header...)
}

// readAnswer classifies answers: a refusal and an internal error are final, any other error is retried.
func readAnswer(resp *http.Response) (*a2atest.Answer, error) {
	a, err := a2atest.ReadAnswer(resp)
	if err != nil {
		return nil, err
	}
	switch {
	case a.Error != nil:
		return nil, sorted(a.Error)
	case a.HTTP != http.StatusOK:
		return nil, fmt.Errorf("HTTP %d: %.300s", a.HTTP, a.Body)
	}
	return a, nil
}

// sorted classifies an error by its code and data. 0.3 has no code of its own for an unavailable database.
func sorted(e *a2atest.Error) error {
	switch {
	case e.ErrorID != "":
		return &internal{e}
	case e.Code == -32603 || e.Code == -32011:
		return e
	}
	return &refusal{e}
}

// breathe pauses before the next try.
func (c *client) breathe(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(50+mathrand.IntN(200)) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stream sends a message and reads its stream to the end. It calls seen with the number of events after the opening.
func (c *client) stream(ctx context.Context, m *outgoing, seen func(taskID string, n int)) (taskID, state string, err error) {
	c.ledger.Sending(m.mark)
	f := &subscriber{client: c, message: m, seen: seen}
	state, err = f.follow(ctx)
	if errors.As(err, new(*refusal)) && f.task == "" {
		c.ledger.Refused(m.mark)
	}
	return f.task, state, err
}

// subscriber reads one stream, over any number of connections.
type subscriber struct {
	*client
	message  *outgoing // that begins the stream; nil to subscribe
	reading  *judge.Reading
	task     string
	last     int64  // number of the last event; 0 before the opening is complete
	id       string // its id
	n        int    // events after the opening
	seen     func(taskID string, n int)
	again    bool // the stream has begun again, because the database has lost an event
	unbroken bool // a connection that breaks is an error; one that the server ends is not
}

func (f *subscriber) follow(ctx context.Context) (state string, err error) {
	var last error
	for first := true; ; first = false {
		if !first {
			if f.last > 0 {
				f.resumes.Add(1)
			} else {
				f.tries.Add(1)
			}
			if err := f.breathe(ctx); err != nil {
				return "", fmt.Errorf("task %s after event %d: %w; at last: %w", f.task, f.last, err, last)
			}
		}
		e, err := f.connect(ctx)
		switch {
		case e != nil:
			return e.State(), nil
		case final(err):
			return "", err
		}
		last = err
	}
}

// seam is a stream that does not continue at the right event, or breaks although it must not.
type seam struct{ error }

// connect reads from one replica until the stream ends, breaks, or this client cuts it. It returns the final event.
func (f *subscriber) connect(ctx context.Context) (*a2atest.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := time.AfterFunc(f.idle, cancel)
	defer idle.Stop()
	body, header := a2atest.Request("tasks/resubscribe", object{"id": f.task}), []string{"Last-Event-ID", f.id}
	if f.last == 0 && f.message != nil {
		body, header = a2atest.Request(f.d.Method(a2atest.Stream), f.message.params), []string{"Idempotency-Key", f.message.mark}
	}
	if f.d == a2atest.V01 {
		header = append(header, "X-A2A-Extensions", a2atest.ResumeURI)
	}
	resp, err := f.post(ctx, body, header...)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		_, err := readAnswer(resp)
		return nil, err
	}
	s := a2atest.NewStream(f.t, watched{resp.Body, func() { idle.Reset(f.idle) }})
	cut := -1
	if f.cutting && f.rng.IntN(3) == 0 {
		cut = f.rng.IntN(20)
	}
	var shown *a2atest.Result // the task that the stream opens with
	for {
		if cut--; cut == 0 {
			return nil, errors.New("cut by the client")
		}
		e, err := s.Next()
		var refused *a2atest.Error
		if errors.As(err, &refused) {
			return nil, sorted(refused)
		}
		if err != nil && f.unbroken && f.last > 0 && !errors.Is(err, io.EOF) {
			return nil, &seam{fmt.Errorf("task %s after event %d: %w", f.task, f.last, err)}
		}
		if err != nil {
			return nil, err
		}
		if f.lossy && f.last > 0 && (e.Kind == "task" || e.Seq <= f.last) {
			f.last, f.again = 0, true
		}
		if f.last == 0 {
			if e.Kind == "task" {
				shown = e.Result
			}
			if e.Seq == 0 {
				continue // still the opening
			}
			f.opened(e, shown)
		} else if err := f.read(e); err != nil {
			return nil, err
		}
		f.id = s.LastID
		if f.seen != nil {
			f.seen(f.task, f.n)
		}
		if e.Final {
			return e, nil
		}
	}
}

func (f *subscriber) opened(e *a2atest.Event, shown *a2atest.Result) {
	f.task, f.last = e.Task(), e.Seq
	if f.message != nil {
		f.ledger.Stored(f.message.mark, f.task)
	}
	f.reading = f.ledger.Follow(f.task)
	if f.again {
		f.reading.Again()
	}
	view := judge.View{Seq: e.Seq, State: e.State()}
	if shown != nil {
		view.Artifacts = viewOf(shown).Artifacts
	}
	f.reading.Saw(view)
}

func (f *subscriber) read(e *a2atest.Event) error {
	switch {
	case e.Kind == "task" || e.Seq == 0:
		return &seam{fmt.Errorf("task %s after event %d: the stream began again", f.task, f.last)}
	case e.Task() != f.task:
		return &seam{fmt.Errorf("task %s after event %d: an event of task %s", f.task, f.last, e.Task())}
	}
	f.last = e.Seq
	f.n++
	told := judge.Event{Seq: e.Seq, State: e.State(), Text: e.Said(), Final: e.Final}
	if a := e.Artifact; a != nil {
		told.Artifact, told.Text = nameOf(a), a2atest.Text(a.Parts)
		told.Append, told.Last = e.Append || a.Append, e.LastChunk || a.LastChunk
	}
	f.reading.Read(told)
	return nil
}

// viewOf is a task as an answer shows it.
func viewOf(r *a2atest.Result) judge.View {
	v := judge.View{State: r.State(), Artifacts: map[string]string{}}
	for i := range r.Artifacts {
		v.Artifacts[nameOf(r.Artifacts[i])] = a2atest.Text(r.Artifacts[i].Parts)
	}
	return v
}

// nameOf is the id of an artifact. 0.1 has none, but the demo agent uses it as the name.
func nameOf(a *a2atest.Artifact) string {
	if a.ArtifactID != "" {
		return a.ArtifactID
	}
	return a.Name
}

// watched reports each byte that arrives.
type watched struct {
	io.Reader
	alive func()
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.alive()
	}
	return n, err
}
