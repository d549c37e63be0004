package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// world is a database with webhooks, their receivers, and the processes that deliver, in the time of a bubble. Its statements do
// what those of queries/push.sql do; the tests of the store prove that those do it.
type world struct {
	mu        sync.Mutex
	cursors   []*cursor
	processes []*process
	answer    func(*request) (status int, header http.Header, err error) // of all receivers
	fails     func(statement string) error                               // what a statement returns instead of its result
	written   bool                                                       // a record that fails is committed all the same
	perHost   int                                                        // of a claim; 0: as the process wants it
	extended  int                                                        // claims
	problems  []string
}

// cursor is a webhook. Its PushDue is what a claim returns.
type cursor struct {
	store.PushDue
	log                []*task.Event
	dueAt, lockedUntil time.Time
	disabled           string
	attempts           []store.PushOutcome
	requests           []*request
	notBefore          time.Time // a failed attempt
	epoch, underWay    int       // attempts at the present URL
}

// request is an attempt as its receiver sees it.
type request struct {
	*cursor
	url, id, body string
	host          string
	seq           task.Seq
	snapshot      bool
	at            time.Time
	status        int // its answer
	ctx           context.Context
}

func newWorld() *world {
	return &world{answer: answers(http.StatusNoContent), fails: func(string) error { return nil }}
}

func answers(status int, headers ...string) func(*request) (int, http.Header, error) {
	header := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	return func(*request) (int, http.Header, error) { return status, header, nil }
}

// hangs takes a request and does not answer.
func hangs(r *request) (int, http.Header, error) {
	<-r.ctx.Done()
	return 0, nil, r.ctx.Err()
}

// hook sets a webhook of a caller at a host. Its task has a message, which is not delivered.
func (w *world) hook(host string, caller int64, dialect string) *cursor {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.cursors)
	c := &cursor{log: []*task.Event{{Seq: 1, Kind: task.EventMessage, Message: &task.Message{ID: "m", Role: task.RoleUser}}}}
	c.Task, c.PublicID, c.Caller, c.Next = task.ID{1, byte(n / 256), byte(n)}, strconv.Itoa(n), caller, 2
	c.Config = task.PushConfig{ID: "hook", URL: fmt.Sprintf("http://%s/%d", host, n), Host: host, Dialect: dialect, CreatedAt: time.Now()}
	w.cursors = append(w.cursors, c)
	return c
}

// emit appends events to a log, as one commit.
func (w *world) emit(c *cursor, n int) {
	w.mu.Lock()
	for range n {
		seq := task.Seq(len(c.log) + 1)
		e := &task.Event{Task: c.Task, Seq: seq, Kind: task.EventStatus, State: task.StateWorking, At: time.Now()}
		e.Message = &task.Message{ID: fmt.Sprint("m-", seq), Role: task.RoleAgent, Parts: []task.Part{task.Text("x")}}
		e.Direct = c.Config.Dialect == "silent"
		c.log = append(c.log, e)
	}
	c.Upto = task.Seq(len(c.log))
	if c.dueAt.IsZero() && c.disabled == "" {
		c.dueAt = time.Now()
	}
	w.mu.Unlock()
	w.wake()
}

func (w *world) wake() {
	for _, p := range w.processes {
		p.Wake()
	}
}

// enable makes a webhook due at once that no process has claimed. With another host, it also gets another URL, and a claim of the
// old one is lost.
func (w *world) enable(c *cursor, host string) {
	w.mu.Lock()
	if host == "" && !c.lockedUntil.IsZero() {
		w.mu.Unlock()
		return
	}
	if host != "" {
		c.epoch++ // another URL, also on the same host
		c.Config.URL, c.Config.Host = fmt.Sprintf("http://%s/%s?%d", host, c.PublicID, c.epoch), host
		c.Claim, c.lockedUntil, c.Accepted, c.underWay = [16]byte{}, time.Time{}, false, 0
	}
	c.disabled, c.Failures, c.FailingSince, c.notBefore = "", 0, time.Time{}, time.Time{}
	if c.Upto >= c.Next {
		c.dueAt = time.Now()
	}
	w.mu.Unlock()
	w.wake()
}

// of returns a webhook's cursor.
func (w *world) of(id task.ID) *cursor {
	return w.cursors[slices.IndexFunc(w.cursors, func(c *cursor) bool { return c.Task == id })]
}

func (w *world) problem(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// process is a dispatcher, and the transport of its sender.
type process struct {
	*Dispatcher
	w      *world
	active []*request
	peak   map[string]int // of the attempts under way, of each host and caller
	stop   context.CancelFunc
	done   chan struct{}
}

// start runs a process. change may be nil.
func (w *world) start(change func(*Options)) *process {
	s := NewSender(SenderOptions{Guard: web.NewGuard(web.GuardOptions{AllowPrivate: true}), Signer: unsigned{}})
	p := &process{w: w, peak: map[string]int{}, done: make(chan struct{})}
	s.client = &http.Client{Transport: p}
	o := Options{
		Store: w, Sender: s, Encoder: plain{}, Worker: func() task.ID { return task.ID{9} }, StopGrace: time.Hour,
		Schedule: Schedule{First: time.Second, Most: time.Hour},
	}
	if change != nil {
		change(&o)
	}
	p.Dispatcher = New(o)
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	w.processes = append(w.processes, p)
	go func() {
		defer close(p.done)
		_ = p.Run(ctx)
	}()
	return p
}

// halt stops all processes. Deliveries under way may end.
func (w *world) halt() {
	for _, p := range w.processes {
		p.stop()
	}
	for _, p := range w.processes {
		<-p.done
	}
	w.processes = nil
}

func (w *world) ClaimPush(_ context.Context, p *store.PushClaim) (won []*store.PushDue, next time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails("claim"); err != nil {
		return nil, 0, err
	}
	now, perHost := time.Now(), p.PerHost
	if w.perHost > 0 {
		perHost = w.perHost
	}
	hosts, callers := map[string]int{}, map[int64]int{}
	next = -1
	for _, c := range slices.SortedStableFunc(slices.Values(w.cursors), func(a, b *cursor) int { return a.dueAt.Compare(b.dueAt) }) {
		switch {
		case c.dueAt.IsZero(), slices.Contains(p.BusyHosts, c.Config.Host), slices.Contains(p.BusyCallers, c.Caller):
		case c.dueAt.After(now):
			if ahead := c.dueAt.Sub(now); next < 0 && ahead <= p.Ahead {
				next = ahead
			}
		case len(won) < p.Limit && hosts[c.Config.Host] < perHost && (c.Caller == 0 || callers[c.Caller] < p.PerCaller):
			hosts[c.Config.Host]++
			callers[c.Caller]++
			c.Claim = [16]byte(store.NewID())
			c.lockedUntil = now.Add(p.Lock)
			c.dueAt = c.lockedUntil
			due := c.PushDue
			due.Unreadable = w.fails("open")
			won = append(won, &due)
		}
	}
	if len(won) == p.Limit {
		next = 0
	}
	if len(won) > 0 {
		err = w.fails("claimed")
	}
	return won, next, err
}

func (w *world) ReadPush(_ context.Context, d *store.PushDue, r store.PushRange) (*store.PushPage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails("read"); err != nil {
		return nil, err
	}
	c := w.of(d.Task)
	page := &store.PushPage{Header: &task.Task{ID: c.Task, PublicID: c.PublicID, Agent: "a", ContextID: "c", LastSeq: task.Seq(len(c.log))}}
	for _, e := range c.log {
		wanted := r.Everything || e.Kind == task.EventStatus
		if wanted && e.Seq >= r.From && (r.Upto == 0 || e.Seq <= r.Upto) && (r.Limit == 0 || page.Found < r.Limit) {
			page.Events = append(page.Events, e)
			page.Found++
		}
	}
	return page, nil
}

func (w *world) RecordPush(_ context.Context, o *store.PushOutcome) (ours, more bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err = w.fails("record")
	if err == nil || w.written {
		ours, more = w.record(w.of(o.Task), o)
	}
	return ours && err == nil, more && err == nil, err
}

func (w *world) record(c *cursor, o *store.PushOutcome) (ours, more bool) {
	repeated := o.Delivered && c.Next != o.From
	switch {
	case c.Claim != o.Claim:
		return false, false
	case (o.Delivered || o.Failed) && c.Next != o.From && (!o.Delivered || !o.Keep || c.Next != o.To+1):
		return false, false
	}
	now := time.Now()
	if o.Keep && !o.Delivered && !o.Failed {
		w.extended++
	}
	if o.DeliveryID != "" && !repeated {
		c.attempts = append(c.attempts, *o)
	}
	if o.Disable != "" {
		c.disabled = o.Disable
	}
	switch {
	case o.Failed:
		c.Failures++
		if c.FailingSince.IsZero() {
			c.FailingSince = now
		}
		c.notBefore = now.Add(o.DueIn)
	case o.Delivered:
		c.Next, c.Failures, c.FailingSince, c.notBefore = o.To+1, 0, time.Time{}, time.Time{}
		c.Accepted = c.Accepted || o.DeliveryID != ""
	}
	keep := o.Keep && !o.Failed
	more = c.disabled == "" && (!o.Delivered || c.Upto > o.To)
	switch {
	case !more:
		c.dueAt = time.Time{}
	case !o.Delivered || !keep:
		c.dueAt = now.Add(o.DueIn)
	}
	c.lockedUntil = c.dueAt
	if !more || !keep {
		c.Claim, c.lockedUntil = [16]byte{}, time.Time{}
	}
	return true, more
}

// RoundTrip is a receiver, which checks what holds for every attempt.
func (p *process) RoundTrip(of *http.Request) (*http.Response, error) {
	w := p.w
	body, err := io.ReadAll(of.Body)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	n, _ := strconv.Atoi(strings.TrimPrefix(of.URL.Path, "/"))
	c := w.cursors[n]
	r := &request{cursor: c, host: of.URL.Host, url: of.URL.String(), id: of.Header.Get("Idempotency-Key"), body: string(body), at: time.Now(), ctx: of.Context()}
	kind, text, _ := strings.Cut(r.body, " ")
	seq, _ := strconv.Atoi(text)
	r.seq, r.snapshot = task.Seq(seq), kind == "task"
	counts := w.begun(p, r)
	p.active = append(p.active, r)
	p.count()
	answer := w.answer
	w.mu.Unlock()

	status, header, err := answer(r)

	w.mu.Lock()
	defer w.mu.Unlock()
	p.active = slices.DeleteFunc(p.active, func(other *request) bool { return other == r })
	if counts && r.url == c.Config.URL {
		c.underWay--
	}
	if err == nil {
		err = of.Context().Err()
	}
	if err != nil {
		return nil, err
	}
	r.status = status
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(nil)), Request: of}, nil
}

// begun checks an attempt at its begin, unless its webhook was changed meanwhile.
func (w *world) begun(p *process, r *request) (counts bool) {
	c := r.cursor
	c.requests = append(c.requests, r)
	if r.url != c.Config.URL {
		return false
	}
	c.underWay++
	switch timeout := p.opt.Sender.opt.Timeout; {
	case c.underWay > 1:
		w.problem("%s: two attempts at a time", r.body)
	case c.lockedUntil.Before(r.at.Add(timeout)):
		w.problem("%s at %s: the claim ends at %s", r.body, r.at, c.lockedUntil)
	case !r.snapshot && r.seq != c.Next, r.snapshot && r.seq < c.Next, r.seq > task.Seq(len(c.log)):
		w.problem("%s: the next event is %d of %d", r.body, c.Next, len(c.log))
	case r.at.Before(c.notBefore):
		w.problem("%s at %s: retried before %s", r.body, r.at, c.notBefore)
	case r.id != DeliveryID(c.Task, &c.Config, r.seq, r.snapshot):
		w.problem("%s: another id", r.body)
	}
	return true
}

// count remembers the most attempts under way.
func (p *process) count() {
	now := map[string]int{"all": len(p.active)}
	for _, r := range p.active {
		now[r.host]++
		now[fmt.Sprint("caller ", r.Caller)]++
	}
	for key := range maps.Keys(now) {
		p.peak[key] = max(p.peak[key], now[key])
	}
}

// plain names the event that a body shows, or the newest one of the task.
type plain struct{}

func (plain) Whole(dialect string) bool { return dialect == "whole" }

func (p plain) Body(c *task.PushConfig, t *task.Task, e *task.Event) (body []byte, contentType string, err error) {
	switch {
	case c.Dialect == "unknown":
		return nil, "", errors.New("no such version")
	case e == nil:
		return fmt.Appendf(nil, "task %d", t.LastSeq), "text/plain", nil
	case e.Direct:
		return nil, "", nil
	case p.Whole(c.Dialect):
		// The task as of the event, and not as it is by now.
		return fmt.Appendf(nil, "event %d", t.LastSeq), "text/plain", nil
	}
	return fmt.Appendf(nil, "event %d", e.Seq), "text/plain", nil
}

type unsigned struct{}

func (unsigned) Sign([]byte, string, string) (string, error) { return "", nil }
