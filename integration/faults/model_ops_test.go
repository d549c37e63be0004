package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Operations are data, so that a sequence can be printed, repeated and shrunk.

type opKind = string

const (
	opSend   opKind = "send"   // a message: for a new task, or for the task of another operation
	opStream opKind = "stream" // the same, as a stream
	opRepeat opKind = "repeat" // the keyed message of another operation, again
	opMisuse opKind = "misuse" // another message with the same key
	opGet    opKind = "get"
	opCancel opKind = "cancel"
	opResume opKind = "resume"
	opCut    opKind = "cut" // closes the open streams of a task
	opKill   opKind = "kill"
	opStop   opKind = "stop"
	opStart  opKind = "start"
)

// op is one operation of a sequence. Operations refer to each other by number. An operation that refers to a missing
// one does nothing.
type op struct {
	n       int
	kind    opKind
	task    int // the operation that made the task; n: this one does; -1: a task that does not exist
	like    int // of repeat and misuse
	on      int // replica
	d       *a2atest.Wire
	text    string
	wait    bool // a blocking send, where the version has the choice
	keyed   bool
	history int  // historyLength; -1: not given
	after   int  // resume: thousandths of the log; fromSnapshot, or so much beyond its end
	pause   int  // round trips to the database until the next one
	join    bool // the next operation waits for this one
}

const (
	wholeLog     = 1000
	fromSnapshot = -1
)

func (o *op) String() string {
	type plain op
	return fmt.Sprintf("#%d %s in %s: %+v", o.n, o.kind, o.d, plain(*o))
}

// done is an operation that was performed, and its results.
type done struct {
	*op
	msg        string // the mark of its message
	key        string
	begin, end time.Time
	replica    int
	target     string        // the task's public id in the request
	taskID     string        // and in the answer
	known      chan struct{} // closed when taskID is known, or never will be
	over       chan struct{} // closed at the end

	answer *a2atest.Result
	refuse *a2atest.Error
	broken error // any other failure

	// Of streams.
	streams  bool
	position int64 // Last-Event-ID; -1: none
	events   []got
	eof      bool
	close    func()
	cut      bool
}

type got struct {
	*a2atest.Event
	at time.Time
}

func (d *done) say() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s–%s %s", d.begin.Format("15:04:05.000"), d.end.Format("05.000"), d.op)
	switch {
	case d.refuse != nil:
		fmt.Fprintf(&b, " → %s", d.refuse)
	case d.broken != nil:
		fmt.Fprintf(&b, " → %v", d.broken)
	case d.answer != nil:
		fmt.Fprintf(&b, " → %s %q history %d", d.answer.State(), d.answer.Said(), len(d.answer.History))
	}
	if d.streams {
		fmt.Fprintf(&b, " after %d, eof=%v cut=%v:", d.position, d.eof, d.cut)
		for _, e := range d.events {
			fmt.Fprintf(&b, " %d%s", e.Seq, e.State())
		}
	}
	return b.String()
}

// outage is a time during which a replica may break off requests.
type outage struct {
	from, to time.Time // to is zero while it lasts
}

// world is the replicas, which all sequences share, and the present sequence.
type world struct {
	l        *clustertest.DB
	replicas []*clustertest.Replica
	urls     []string

	mu      sync.Mutex
	up      []bool
	outages [][]outage

	run  string // marks the messages of this sequence
	ops  map[int]*done
	all  []*done  // in the order of their beginning
	died []string // replicas that ended unexpectedly
}

func newWorld(l *clustertest.DB, names ...string) *world {
	w := &world{l: l, up: make([]bool, len(names)), outages: make([][]outage, len(names))}
	// Only the end of a run answers what waits for it.
	config := clustertest.Replace(clustertest.Patient, "cancel_grace: 5s", "cancel_grace: 1h")
	var all []clustertest.Options
	for _, name := range names {
		all = append(all, clustertest.Options{Name: name, DB: l.URL, Config: config})
	}
	w.replicas = clustertest.Together(l.T, all...)
	for i, r := range w.replicas {
		r.Options.Async = true
		w.urls, w.up[i] = append(w.urls, r.URL), true
	}
	return w
}

// play performs a sequence, waits until all activity has ended, and returns the violations of the model.
func (w *world) play(ops []*op) []string {
	w.run, w.ops, w.all, w.died = rand.Text()[:8], map[int]*done{}, nil, nil
	for _, o := range ops {
		d := w.perform(o)
		if d != nil && o.join {
			waittest.Within(w.l.T, "an answer to "+o.String(), d.over)
		}
		for range o.pause {
			clustertest.One[int](w.l, "SELECT 1")
		}
	}
	return w.settle()
}

// perform begins an operation. It returns nil for an operation that does nothing.
func (w *world) perform(o *op) *done {
	d := &done{op: o, known: make(chan struct{}), over: make(chan struct{}), position: -1, msg: fmt.Sprintf("%s-%d", w.run, o.n)}
	switch o.kind {
	case opKill, opStop, opStart:
		return w.control(o)
	case opRepeat, opMisuse:
		like := w.ops[o.like]
		if like == nil || like.key == "" {
			return nil
		}
		// The same request except for its replica and, in a misuse, its text.
		same := *like.op
		same.on, same.pause, same.join, same.n, same.kind, same.like = o.on, o.pause, o.join, o.n, o.kind, o.like
		d.op, d.key, d.target, d.streams = &same, like.key, like.target, like.streams
		if o.kind == opRepeat {
			d.msg = like.msg
		} else {
			same.text = o.text
		}
	case opSend, opStream:
		d.streams = o.kind == opStream
		if o.keyed {
			d.key = "key-" + d.msg
		}
		if o.task == o.n {
			if o.d == a2atest.V01 {
				d.target = "t-" + d.msg
			}
			break
		}
		fallthrough
	default:
		d.streams = d.streams || o.kind == opResume
		if o.task >= 0 {
			maker := w.ops[o.task]
			if maker == nil {
				return nil
			}
			if d.target = maker.target; d.target == "" {
				if d.target = w.made(maker); d.target == "" {
					return nil
				}
			}
		} else {
			d.target = "nobody-" + d.msg
		}
		if o.kind == opCut {
			w.cutStreams(d.target)
			return nil
		}
	}
	w.mu.Lock()
	d.replica = o.on % len(w.urls)
	for range w.urls {
		if !w.up[d.replica] {
			d.replica = (d.replica + 1) % len(w.urls)
		}
	}
	w.mu.Unlock()
	if o.kind == opResume && o.after != fromSnapshot {
		var last int64
		err := w.l.Conn.QueryRow(waittest.Context(w.l.T), `SELECT last_seq FROM holdfast.tasks WHERE coalesce(client_id, id::text) = $1`, d.target).Scan(&last)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			w.l.T.Fatal(err)
		}
		if d.position = last * int64(o.after) / wholeLog; o.after > wholeLog {
			d.position = last + int64(o.after-wholeLog)
		}
	}
	w.ops[o.n], w.all = d, append(w.all, d)
	d.begin = time.Now()
	ctx, cancel := context.WithCancel(w.l.T.Context())
	d.close = cancel
	go func() {
		defer cancel()
		w.call(ctx, d)
	}()
	return d
}

// made waits until a message is stored, or never will be, and returns its task; "" without one. An answer that waits for the end of
// the task comes later.
func (w *world) made(d *done) (id string) {
	waittest.Eventually(w.l.T, "the message of "+d.String(), func() error {
		select {
		case <-d.known:
			id = d.taskID
		default:
			ids := clustertest.Column[string](w.l, "SELECT task::text FROM holdfast.task_events WHERE kind = 1 AND payload->'metadata'->>'op' = $1", d.msg)
			if len(ids) == 0 {
				return errors.New("it is not there")
			}
			id = ids[0]
		}
		return nil
	})
	return id
}

func (w *world) cutStreams(taskID string) {
	for _, d := range w.all {
		select {
		case <-d.over:
		default:
			w.mu.Lock()
			if d.streams && (d.target == taskID || d.taskID == taskID) {
				d.cut = true
				d.close()
			}
			w.mu.Unlock()
		}
	}
}

// body is the request of an operation.
func (w *world) body(d *done) []byte {
	params := object{"id": d.target}
	if d.history >= 0 {
		params["historyLength"] = d.history
	}
	switch d.kind {
	case opGet:
		return a2atest.Request("tasks/get", params)
	case opCancel:
		return a2atest.Request("tasks/cancel", object{"id": d.target})
	case opResume:
		return a2atest.Request("tasks/resubscribe", object{"id": d.target})
	}
	params = d.d.Params(a2atest.Send, a2atest.Say(d.text).To(d.target))
	message := params["message"].(object)
	message["metadata"] = object{"op": d.msg}
	switch d.d {
	case a2atest.V01:
		if d.history >= 0 {
			params["historyLength"] = d.history
		}
	case a2atest.V03:
		message["messageId"] = d.msg
		configuration := object{"blocking": d.wait}
		if d.history >= 0 {
			configuration["historyLength"] = d.history
		}
		params["configuration"] = configuration
	}
	if d.streams {
		return a2atest.Request(d.d.Method(a2atest.Stream), params)
	}
	return a2atest.Request(d.d.Method(a2atest.Send), params)
}

// call sends the request and reads the answer.
func (w *world) call(ctx context.Context, d *done) {
	learn := sync.OnceFunc(func() { close(d.known) })
	defer func() {
		d.end = time.Now()
		learn()
		close(d.over)
	}()
	header := []string{"A2A-Version", d.d.Version}
	if d.d == a2atest.V01 {
		header = append(header, "X-A2A-Extensions", a2atest.ResumeURI)
	}
	if d.key != "" {
		header = append(header, "Idempotency-Key", d.key)
	}
	if d.position >= 0 {
		header = append(header, "Last-Event-ID", strconv.FormatInt(d.position, 10))
	}
	resp, err := a2atest.Post(ctx, w.urls[d.replica]+"/", w.body(d), header...)
	if err != nil {
		d.broken = err
		return
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		w.answered(d, resp)
		return
	}
	s := a2atest.NewStream(w.l.T, resp.Body)
	for {
		e, err := s.Next()
		switch {
		case errors.As(err, &d.refuse):
			continue // until its end
		case errors.Is(err, io.EOF):
			d.eof = true
			return
		case err != nil:
			d.broken = err
			return
		}
		w.mu.Lock()
		d.events = append(d.events, got{e, time.Now()})
		if d.taskID == "" {
			d.taskID = e.Task()
		}
		w.mu.Unlock()
		learn()
	}
}

func (w *world) answered(d *done, resp *http.Response) {
	a, err := a2atest.ReadAnswer(resp)
	if err != nil {
		d.broken = err
		return
	}
	r, err := a.Result()
	if err != nil && !errors.As(err, &d.refuse) {
		d.broken = err
	}
	if r != nil {
		d.answer, d.taskID = r, r.Task()
	}
}

// control kills, stops and starts replicas. At least one always serves.
func (w *world) control(o *op) *done {
	i := o.on % len(w.replicas)
	r := w.replicas[i]
	w.mu.Lock()
	serving := 0
	for _, up := range w.up {
		if up {
			serving++
		}
	}
	up := w.up[i]
	w.mu.Unlock()
	switch {
	case o.kind == opStart && !up:
		w.startAgain(i)
	case o.kind != opStart && up && serving > 1:
		w.down(i)
		if o.kind == opKill {
			r.Kill()
		} else if how, ended := r.Ended(); ended {
			w.died = append(w.died, fmt.Sprintf("replica %s ended by itself before it was stopped: %s", r.Name, how))
		} else {
			r.Signal(syscall.SIGTERM)
		}
	default:
		return nil
	}
	d := &done{op: o, begin: time.Now(), end: time.Now(), over: make(chan struct{})}
	close(d.over)
	w.all = append(w.all, d)
	return d
}

// down notes that a replica does not serve any more.
func (w *world) down(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up[i] = false
	w.outages[i] = append(w.outages[i], outage{from: time.Now()})
}

// startAgain starts a replica whose process has ended, or is about to.
func (w *world) startAgain(i int) {
	r := w.replicas[i]
	r.Wait()
	r.Run()
	r.WaitServing()
	w.mu.Lock()
	w.up[i] = true
	w.outages[i][len(w.outages[i])-1].to = time.Now()
	w.mu.Unlock()
}

// excused reports whether a replica was going down or away at some moment of an operation.
func (w *world) excused(d *done) bool {
	for _, o := range w.outages[d.replica] {
		if d.end.After(o.from) && (o.to.IsZero() || d.begin.Before(o.to)) {
			return true
		}
	}
	return false
}
