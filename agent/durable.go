package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// Durable makes an Executor of a function that reads like the conversation. It runs from its top in every try and turn; what it has
// got from Step, Ask, Call and the other words of DurableRun is recorded, and returns at once. So a crash repeats no step that was
// recorded, and an answer that comes a week later goes on where the question was asked.
//
// A step is at least once: its effect may happen and its record not. Pass DurableRun.IdempotencyKey to what must not happen twice.
//
// Code outside of steps runs again in each turn, and must do the same again: no time, no random number, no read of a file. Names
// say what was recorded. Steps that run beside each other (All) need names of their own.
func Durable(f func(ctx context.Context, run *DurableRun) error) Executor { return durableFunc(f) }

type durableFunc func(ctx context.Context, run *DurableRun) error

// DurableRun is what a durable function has of its task. Message is the one that began the task, in each turn. While the function
// waits for an answer, a result or a time, nothing runs: the run ends, and its deferred functions run.
type DurableRun struct {
	*Run
	d *durable
}

// CodeChanged says that a function asks for something else than it has recorded: its code has changed since.
type CodeChanged struct {
	Recorded string // kind and name
	Met      string // kind and name; "": the function has returned
	Line     string // of the code
}

func (c *CodeChanged) Error() string {
	if c.Met == "" {
		return "the code has changed: it recorded " + c.Recorded + ", and now returns without it"
	}
	return "the code has changed: it recorded " + c.Recorded + ", and now asks for " + c.Met + " at " + c.Line
}

// StepError is the error of a step, as it was recorded.
type StepError struct{ Step, Message string }

func (e *StepError) Error() string { return e.Step + ": " + e.Message }

// place is what a record is found by.
type place struct {
	name string
	nth  int
}

func (p place) String() string { return p.name + "#" + strconv.Itoa(p.nth) }

// waits is what a run has ended for: the data of a record of the kind wait.
type waits struct {
	Turn   int                  `json:"turn"`
	Asks   []string             `json:"asks,omitempty"`
	Calls  []string             `json:"calls,omitempty"`
	Sleeps map[string]time.Time `json:"sleeps,omitempty"`
}

func (w *waits) equal(o *waits) bool {
	return w.Turn == o.Turn && slices.Equal(w.Asks, o.Asks) && slices.Equal(w.Calls, o.Calls) && maps.EqualFunc(w.Sleeps, o.Sleeps, time.Time.Equal)
}

// pending is an await without an answer.
type pending struct {
	place
	kind  string
	path  string // of the branch
	ask   Ask
	form  json.RawMessage
	call  Call
	until time.Time
	done  chan struct{} // a sleep is over
}

// durable is the replay of a function, and what it does beyond.
type durable struct {
	run *Run
	out *emitter

	mu        sync.Mutex
	records   map[place]*wire.RecordDocument
	unclaimed []place // records that the function has not asked for yet, in their order
	counts    map[string]int
	waits     []waits
	version   int // 1, and one more for each wait that the replay has passed: text ids have it
	emitted   map[string]int64
	kept      map[string]int64 // as the newest record has them: a replay skips as many
	unnamed   map[string]int
	steps     map[*underway]bool
	dirty     bool // something may not be committed

	branches, waiting int // goroutines of the function, and those of them that wait
	pending           []*pending
	held              []*holding
	idle              chan struct{} // all branches wait
	gone              chan struct{} // closed: the run has ended
}

// holding is a word that waits until all records have been asked for.
type holding struct {
	kind, name, line string
	free             chan struct{}
	older            bool // a Version that the records have passed
}

// errOlder says that the records have passed a Version.
var errOlder = errors.New("agent: older records")

// versionName begins the name of the record of a Version.
const versionName = "version "

// underway is a step that runs.
type underway struct {
	place
	wrote map[string]bool // artifacts
}

type (
	stepKey   struct{} // of the step in a context
	branchKey struct{} // of the path of a branch of All in a context, such as -2-1
)

func branchOf(ctx context.Context) string {
	path, _ := ctx.Value(branchKey{}).(string)
	return path
}

// Execute implements Executor.
func (f durableFunc) Execute(ctx context.Context, run *Run, out Emitter) error {
	to, ok := out.(*emitter)
	if !ok {
		return errors.New("agent: Durable needs the emitter of a server")
	}
	d := &durable{
		run: run, out: to, records: map[place]*wire.RecordDocument{}, counts: map[string]int{}, version: 1, emitted: map[string]int64{}, kept: map[string]int64{},
		unnamed: map[string]int{}, steps: map[*underway]bool{}, branches: 1, idle: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	first, err := d.recall(ctx)
	if err != nil {
		return err
	}
	inner := *run
	inner.Message = first
	ended := make(chan outcome, 1)
	go d.branch(ended, func() {}, func() error { return f(ctx, &DurableRun{Run: &inner, d: d}) })
	for {
		select {
		case got := <-ended:
			if got.panicked != nil {
				panic(fmt.Sprintf("%v\n%s", got.panicked, got.stack))
			}
			if err := d.changed("", ""); err != nil && got.err == nil {
				return err
			}
			return got.err
		case <-d.idle:
			over, err := d.settle(ctx)
			if over || err != nil {
				close(d.gone)
				<-ended
				return err
			}
		}
	}
}

// outcome is how a goroutine of the function has ended.
type outcome struct {
	err      error
	panicked any
	stack    []byte
	gone     bool // the run has ended: the function did not return
}

// branch runs f in its goroutine, and then leave.
func (d *durable) branch(ended chan<- outcome, leave func(), f func() error) {
	got := outcome{gone: true}
	defer func() {
		if v := recover(); v != nil {
			got = outcome{panicked: v, stack: debug.Stack()}
		}
		leave()
		ended <- got
	}()
	got = outcome{err: f()}
}

// recall reads the records, and returns the message that began the task.
func (d *durable) recall(ctx context.Context) (first Message, err error) {
	if d.run.memory != nil && d.run.Attempt > 1 {
		for after := task.Seq(0); ; {
			page, next, err := d.run.memory.Records(ctx, after, 1<<20)
			if err != nil {
				return first, fmt.Errorf("read the records: %w", err)
			}
			for _, raw := range page {
				var r wire.RecordDocument
				if err := json.Unmarshal(raw, &r); err != nil {
					return first, fmt.Errorf("read the records: %w", err)
				}
				d.remember(&r)
			}
			if after = next; after == 0 {
				break
			}
		}
	}
	if r := d.records[place{"message", 1}]; r != nil {
		err = json.Unmarshal(r.Data, &first)
		return first, err
	}
	return d.run.Message, d.write(ctx, &wire.RecordDocument{Kind: "message", Name: "message", Nth: 1}, d.run.Message)
}

func (d *durable) remember(r *wire.RecordDocument) {
	at := place{r.Name, r.Nth}
	d.records[at] = r
	if r.Emitted != nil {
		d.kept = r.Emitted
	}
	switch r.Kind {
	case "message":
	case "wait":
		var w waits
		_ = json.Unmarshal(r.Data, &w) // it is ours
		d.waits = append(d.waits, w)
	default:
		d.unclaimed = append(d.unclaimed, at)
	}
}

// claim returns the record that a word asks for, or nil for a new one, once all records have been asked for.
func (d *durable) claim(ctx context.Context, kind, name string) (at place, r *wire.RecordDocument, err error) {
	if name == "" {
		return at, nil, errors.New("agent: a " + kind + " needs a name")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[name]++
	at = place{name, d.counts[name]}
	if r = d.records[at]; r != nil {
		if r.Kind != kind {
			return at, nil, &CodeChanged{r.Kind + " " + r.Name, kind + " " + name, line()}
		}
		d.unclaimed = slices.DeleteFunc(d.unclaimed, func(p place) bool { return p == at })
		d.passed(at)
		if len(d.unclaimed) == 0 {
			d.waiting -= len(d.held)
			for _, h := range d.held {
				close(h.free)
			}
			d.held = nil
		}
		return at, r, nil
	}
	if len(d.unclaimed) == 0 {
		return at, nil, nil
	}
	h := &holding{kind: kind, name: name, line: line(), free: make(chan struct{})}
	d.held = append(d.held, h)
	if err = d.wait(ctx, h.free); err == nil && h.older {
		err = errOlder
	}
	return at, nil, err
}

// wait waits until a channel is closed. d.mu is locked.
func (d *durable) wait(ctx context.Context, until <-chan struct{}) error {
	d.waiting++
	d.check()
	d.mu.Unlock()
	defer d.mu.Lock()
	select {
	case <-until:
		return nil
	case <-d.gone:
		runtime.Goexit()
		return nil
	case <-ctx.Done():
		d.mu.Lock()
		d.waiting--
		d.mu.Unlock()
		return context.Cause(ctx)
	}
}

func (d *durable) check() {
	if d.waiting == d.branches {
		select {
		case d.idle <- struct{}{}:
		default:
		}
	}
}

// passed notes that the replay has passed the last wait that lists a place.
func (d *durable) passed(at place) {
	for i, w := range slices.Backward(d.waits) {
		_, slept := w.Sleeps[at.String()]
		if slept || slices.Contains(w.Asks, at.String()) || slices.Contains(w.Calls, at.String()) {
			d.version = max(d.version, i+2)
			return
		}
	}
}

// changed returns an error if the function asks for something new, or returns, before it has asked for all that it recorded.
func (d *durable) changed(met, at string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.unclaimed) == 0 {
		return nil
	}
	r := d.records[d.unclaimed[0]]
	return Failure("The agent's code has changed since the task began.", &CodeChanged{r.Kind + " " + r.Name, met, at})
}

// line is where the function has called this package.
func line() string {
	var calls [20]uintptr
	frames := runtime.CallersFrames(calls[:runtime.Callers(2, calls[:])])
	for {
		f, more := frames.Next()
		if !more || !strings.HasSuffix(f.File, "/agent/durable.go") {
			return f.File + ":" + strconv.Itoa(f.Line)
		}
	}
}

// write records what a word has got.
func (d *durable) write(ctx context.Context, r *wire.RecordDocument, data any) error {
	if r.Error == nil {
		raw, err := json.Marshal(data)
		if err != nil {
			return fmt.Errorf("%s %s: %w", r.Kind, r.Name, err)
		}
		r.Data = raw
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	open := map[string]bool{}
	for s := range d.steps {
		maps.Copy(open, s.wrote)
	}
	r.Open = slices.Sorted(maps.Keys(open))
	r.Emitted = maps.Clone(d.kept)
	for key, n := range d.emitted {
		if !open[key] {
			r.Emitted[key] = max(n, r.Emitted[key])
		}
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("%s %s: %w", r.Kind, r.Name, err)
	}
	if err := d.out.out.Record(ctx, raw); err != nil {
		return err
	}
	d.kept, d.dirty = r.Emitted, true
	return nil
}

// settle ends the run: all branches wait, and none can go on. It reports whether the run is over.
func (d *durable) settle(ctx context.Context) (over bool, err error) {
	d.mu.Lock()
	if d.waiting < d.branches {
		d.mu.Unlock()
		return false, nil // it was so before
	}
	if len(d.held) > 0 {
		h := d.held[0]
		i := slices.IndexFunc(d.held, func(h *holding) bool { return strings.HasPrefix(h.name, versionName) })
		if i >= 0 {
			d.held[i].older = true
			close(d.held[i].free)
			d.held = slices.Delete(d.held, i, i+1)
			d.waiting--
		}
		d.mu.Unlock()
		if i >= 0 {
			return false, nil
		}
		return true, d.changed(h.kind+" "+h.name, h.line)
	}
	now := time.Now()
	w := waits{Turn: d.run.Turn, Sleeps: map[string]time.Time{}}
	var asks, calls []*pending
	var until time.Time
	slices.SortStableFunc(d.pending, func(a, b *pending) int { return cmp.Compare(a.path, b.path) })
	for _, p := range d.pending {
		switch {
		case p.kind == "call":
			calls, w.Calls = append(calls, p), append(w.Calls, p.String())
		case p.kind != "sleep":
			asks, w.Asks = append(asks, p), append(w.Asks, p.String())
		case !p.until.After(now):
			close(p.done)
			d.waiting--
			d.pending = slices.DeleteFunc(d.pending, func(q *pending) bool { return q == p })
			d.mu.Unlock()
			return false, nil
		default:
			w.Sleeps[p.String()] = p.until
			if until.IsZero() || p.until.Before(until) {
				until = p.until
			}
		}
	}
	nth := len(d.waits) + 1
	// If this turn has the same record, the event that should have ended it was lost.
	again := nth > 1 && d.waits[nth-2].equal(&w)
	d.mu.Unlock()
	if !again {
		if err := d.write(ctx, &wire.RecordDocument{Kind: "wait", Name: "wait", Nth: nth}, w); err != nil {
			return true, err
		}
	}
	switch {
	case len(calls) > 0:
		all := make([]Call, len(calls))
		for i, p := range calls {
			all[i] = p.call
			all[i].ID = p.String()
		}
		return true, d.out.Call(ctx, all...)
	case len(asks) > 0:
		return true, d.out.Ask(ctx, question(asks))
	default:
		return true, d.out.Wait(ctx, Wait{Until: until})
	}
}

// question is one question for all that wait for an answer, with a form that has a property for each.
func question(asks []*pending) Ask {
	if len(asks) == 1 {
		ask := asks[0].ask
		if form := asks[0].form; form != nil {
			ask.Message.Parts = append(slices.Clip(ask.Message.Parts), formPart(form))
		}
		return ask
	}
	out := Ask{Auth: true}
	properties, required := map[string]json.RawMessage{}, []string{}
	for _, p := range asks {
		out.Auth = out.Auth && p.ask.Auth
		out.Message.Parts = append(out.Message.Parts, p.ask.Message.Parts...)
		property := p.form
		if property == nil {
			property, _ = json.Marshal(map[string]string{"type": "string", "title": p.ask.Message.Text()}) // strings
		}
		properties[p.member()] = property
		required = append(required, p.member())
	}
	form, _ := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": required}) // valid JSON
	out.Message.Parts = append(out.Message.Parts, formPart(form))
	return out
}

// member names an answer in a form of several questions.
func (p *pending) member() string {
	if p.nth == 1 {
		return p.name
	}
	return p.name + "-" + strconv.Itoa(p.nth)
}

func formPart(schema json.RawMessage) Part {
	raw, _ := json.Marshal(map[string]json.RawMessage{"requestedSchema": schema}) // valid JSON
	return DataPart(raw)
}

// answer is the record of a question.
type answer struct {
	Message Message         `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// await returns what a question, a call or a sleep has got, or ends the run.
func (d *durable) await(ctx context.Context, p *pending) (raw []byte, err error) {
	var r *wire.RecordDocument
	if p.place, r, err = d.claim(ctx, p.kind, p.name); err != nil {
		return nil, err
	}
	if r != nil {
		return r.Data, nil
	}
	if p.form != nil && !json.Valid(p.form) {
		return nil, fmt.Errorf("agent: the form of %s is not JSON", p.name)
	}
	got, ok := d.got(p)
	if !ok {
		if err := d.pend(ctx, p); err != nil {
			return nil, err
		}
		got = p.until
	}
	r = &wire.RecordDocument{Kind: p.kind, Name: p.name, Nth: p.nth}
	err = d.write(ctx, r, got)
	return r.Data, err
}

// pend waits until a sleep is over, or for the end of the run.
func (d *durable) pend(ctx context.Context, p *pending) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.path = branchOf(ctx)
	d.pending = append(d.pending, p)
	return d.wait(ctx, p.done)
}

// got looks for the answer in what has begun the turn.
func (d *durable) got(p *pending) (any, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waits) == 0 {
		return nil, false
	}
	w, key, in := d.waits[len(d.waits)-1], p.String(), d.run.Input
	now := time.Now()
	if in != nil && in.Source == Timer && !in.Interrupted && in.Until.After(now) {
		now = in.Until // the clock of this machine is behind
	}
	if until, known := w.Sleeps[key]; known {
		p.until = until
	}
	switch {
	case p.kind == "sleep":
		if p.until.After(now) {
			return nil, false
		}
	case w.Turn >= d.run.Turn: // it was not asked yet
		return nil, false
	case p.kind == "call":
		if in == nil || in.Source != Calls {
			return nil, false
		}
		i := slices.IndexFunc(in.Results, func(r Result) bool { return r.ID == key })
		if i < 0 {
			return nil, false
		}
		d.passed(p.place)
		return in.Results[i], true
	case in != nil && !in.Interrupted, !slices.Contains(w.Asks, key):
		return nil, false
	}
	if p.kind == "sleep" {
		d.passed(p.place)
		return p.until, true
	}
	got := answer{Message: d.run.Message}
	if i := slices.IndexFunc(got.Message.Parts, func(part Part) bool { return part.Kind == KindData }); i >= 0 {
		got.Data = got.Message.Parts[i].Data
	}
	if len(w.Asks) > 1 && !got.of(p, slices.Index(w.Asks, key), len(w.Asks)) {
		return nil, false
	}
	d.passed(p.place)
	return got, true
}

// of reduces an answer to what it says to the i-th of n questions, and reports whether it says anything: a member of a form, or a line
// of a text. A text with another number of lines answers the first.
func (a *answer) of(p *pending, i, n int) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(a.Data, &members) == nil {
		a.Data = members[p.member()]
		var text string
		if json.Unmarshal(a.Data, &text) != nil {
			text = string(a.Data)
		}
		a.Message.Parts = []Part{TextPart(text)}
		return a.Data != nil
	}
	var lines []string
	for line := range strings.Lines(a.Message.Text()) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == n {
		a.Message.Parts = []Part{TextPart(lines[i])}
		return true
	}
	return i == 0
}

// Ask asks the client, and returns the answer. name is that of the record.
func (r *DurableRun) Ask(ctx context.Context, name string, question Message) (Message, error) {
	got, err := r.ask(ctx, &pending{kind: "ask", place: place{name: name}, ask: Ask{Message: question}})
	return got.Message, err
}

// Auth waits until the client has authenticated, and returns its message.
func (r *DurableRun) Auth(ctx context.Context, name string, m Message) (Message, error) {
	got, err := r.ask(ctx, &pending{kind: "auth", place: place{name: name}, ask: Ask{Message: m, Auth: true}})
	return got.Message, err
}

// AskForm asks the client to fill in a form, and decodes the answer into v. schema is the JSON Schema of an object, see
// docs/agents/questions.md. An answer in words is no form: an error of encoding/json says so.
func (r *DurableRun) AskForm(ctx context.Context, name string, question Message, schema json.RawMessage, v any) error {
	got, err := r.ask(ctx, &pending{kind: "ask", place: place{name: name}, ask: Ask{Message: question}, form: schema})
	if err != nil {
		return err
	}
	if got.Data == nil {
		got.Data, _ = json.Marshal(got.Message.Text()) // a string
	}
	return json.Unmarshal(got.Data, v)
}

func (r *DurableRun) ask(ctx context.Context, p *pending) (got answer, err error) {
	raw, err := r.d.await(ctx, p)
	if err == nil {
		err = json.Unmarshal(raw, &got)
	}
	return got, err
}

// Call has another agent answer a message in a task of its own.
func (r *DurableRun) Call(ctx context.Context, name string, call Call) (res Result, err error) {
	raw, err := r.d.await(ctx, &pending{kind: "call", place: place{name: name}, call: call})
	if err == nil {
		err = json.Unmarshal(raw, &res)
	}
	return res, err
}

// Sleep waits. A run that has begun to wait ends no sleep: it is over at the same time in each turn.
func (r *DurableRun) Sleep(ctx context.Context, name string, d time.Duration) error {
	return r.SleepUntil(ctx, name, time.Now().Add(d))
}

// SleepUntil waits until a time.
func (r *DurableRun) SleepUntil(ctx context.Context, name string, at time.Time) error {
	_, err := r.d.await(ctx, &pending{kind: "sleep", place: place{name: name}, until: at.UTC().Truncate(time.Millisecond), done: make(chan struct{})})
	return err
}

// All runs functions beside each other, and returns the first error in their order when all have ended. Each has texts of its own.
func (r *DurableRun) All(ctx context.Context, fs ...func(ctx context.Context) error) error {
	if len(fs) == 0 {
		return nil
	}
	d := r.d
	left := len(fs)
	d.mu.Lock()
	d.branches += left - 1
	d.mu.Unlock()
	leave := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if left--; left > 0 { // the place of the last one is that of the caller
			d.branches--
			d.check()
		}
	}
	ends := make([]chan outcome, len(fs))
	for i, f := range fs {
		ends[i] = make(chan outcome, 1)
		ctx := context.WithValue(ctx, branchKey{}, fmt.Sprintf("%s-%d", branchOf(ctx), i+1))
		go d.branch(ends[i], leave, func() error { return f(ctx) })
	}
	var first error
	for _, ended := range ends {
		got := <-ended
		switch {
		case got.gone:
			runtime.Goexit()
		case got.panicked != nil:
			panic(fmt.Sprintf("%v\n%s", got.panicked, got.stack))
		case first == nil:
			first = got.err
		}
	}
	return first
}

// StepOptions say how a step is tried again.
type StepOptions struct {
	Retries int              // after the first try
	Backoff time.Duration    // before the first retry, and twice as long before each further one, at most a minute; default a second
	Timeout time.Duration    // of one try; 0: none
	Final   func(error) bool // says that no retry can help; may be nil
}

// Step runs f, unless it is recorded, and returns what it returned: T goes through JSON. The last error is recorded, too, as a
// StepError. An error that Retryable or Unavailable has marked is not: return it, and the server tries the run again.
func Step[T any](ctx context.Context, run *DurableRun, name string, f func(ctx context.Context) (T, error), options ...StepOptions) (out T, err error) {
	var o StepOptions
	if len(options) > 0 {
		o = options[0]
	}
	raw, err := run.d.step(ctx, name, o, func(ctx context.Context) (any, error) { return f(ctx) })
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	return out, err
}

func (d *durable) step(ctx context.Context, name string, o StepOptions, f func(context.Context) (any, error)) ([]byte, error) {
	at, r, err := d.claim(ctx, "step", name)
	if err != nil {
		return nil, err
	}
	if r != nil {
		if r.Error != nil {
			return nil, &StepError{name, r.Error.Message}
		}
		return r.Data, nil
	}
	if err := d.commit(ctx); err != nil {
		return nil, err
	}
	d.mu.Lock()
	s := &underway{at, map[string]bool{}}
	d.steps[s] = true
	d.mu.Unlock()
	r = &wire.RecordDocument{Kind: "step", Name: name, Nth: at.nth}
	began := time.Now()
	v, err := d.try(context.WithValue(ctx, stepKey{}, s), o, r, f)
	d.mu.Lock()
	delete(d.steps, s)
	d.mu.Unlock()
	r.Took = time.Since(began).Seconds()
	if _, again := executor.IsRetryable(err); again || errors.As(err, new(*executor.Unavailable)) || err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		r.Error = &wire.Error{Type: fmt.Sprintf("%T", err), Message: err.Error()}
		err = &StepError{name, err.Error()}
	}
	return r.Data, cmp.Or(d.write(ctx, r, v), err)
}

// try calls f until it succeeds or may not be tried again.
func (d *durable) try(ctx context.Context, o StepOptions, r *wire.RecordDocument, f func(context.Context) (any, error)) (v any, err error) {
	pause := cmp.Or(o.Backoff, time.Second)
	for {
		r.Tries++
		func() {
			ctx := ctx
			if o.Timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, o.Timeout)
				defer cancel()
			}
			v, err = f(ctx)
		}()
		if err == nil || r.Tries > o.Retries || o.Final != nil && o.Final(err) || ctx.Err() != nil {
			return v, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		pause = min(2*pause, time.Minute)
	}
}

// commit waits until what was recorded is stored: no effect comes before the record of the one before.
func (d *durable) commit(ctx context.Context) error {
	d.mu.Lock()
	dirty := d.dirty
	d.dirty = false
	d.mu.Unlock()
	if !dirty {
		return nil
	}
	return d.out.out.Committed(ctx)
}

// IdempotencyKey differs by step, and is the same in each of its tries. Give it the context of the step.
func (r *DurableRun) IdempotencyKey(ctx context.Context) string {
	if s, ok := ctx.Value(stepKey{}).(*underway); ok {
		return r.TaskKey + "/" + s.String()
	}
	return r.TaskKey
}

// Value records what f returns, and returns that in each later run: a time, a random number, what was read.
func Value[T any](ctx context.Context, run *DurableRun, name string, f func() T) (out T, err error) {
	at, r, err := run.d.claim(ctx, "value", name)
	if err != nil {
		return out, err
	}
	if r == nil {
		r = &wire.RecordDocument{Kind: "value", Name: name, Nth: at.nth}
		if err := run.d.write(ctx, r, f()); err != nil {
			return out, err
		}
	}
	return out, json.Unmarshal(r.Data, &out)
}

// Version reports whether to run new code: not in a task whose records have passed this place before the code asked. So changed code
// still ends the tasks that began with the old one.
func (r *DurableRun) Version(ctx context.Context, name string) (bool, error) {
	at, rec, err := r.d.claim(ctx, "value", versionName+name)
	if errors.Is(err, errOlder) {
		return false, nil
	}
	if err == nil && rec == nil {
		err = r.d.write(ctx, &wire.RecordDocument{Kind: "value", Name: at.name, Nth: at.nth}, true)
	}
	return err == nil, err
}

// Now is the time, as it was when the function first asked.
func (r *DurableRun) Now(ctx context.Context) (time.Time, error) {
	return Value(ctx, r, "now", func() time.Time { return time.Now().UTC() })
}

// Random is a random text, as it was when the function first asked.
func (r *DurableRun) Random(ctx context.Context) (string, error) {
	return Value(ctx, r, "random", rand.Text)
}

// Text adds text to the artifact of a name; "" stands for "text".
func (r *DurableRun) Text(ctx context.Context, name, text string) error {
	name = cmp.Or(name, "text")
	id, skip := r.d.emits(ctx, func(version int) string { return fmt.Sprint(name, "-", version, branchOf(ctx)) })
	if skip {
		return nil
	}
	return r.d.out.out.Artifact(ctx, executor.Chunk{Grows: true, Artifact: task.Artifact{ID: id, Name: name, Parts: []task.Part{task.Text(text)}}})
}

// Artifact emits a whole artifact. Without an ID it is a new artifact.
func (r *DurableRun) Artifact(ctx context.Context, a Artifact) error {
	id, skip := r.d.emits(ctx, func(version int) string {
		if a.ID != "" {
			return a.ID
		}
		of := fmt.Sprint("artifact-", version, branchOf(ctx))
		if s, ok := ctx.Value(stepKey{}).(*underway); ok {
			of += "-" + s.String()
		}
		r.d.unnamed[of]++
		return fmt.Sprint(of, "-", r.d.unnamed[of])
	})
	if skip {
		return nil
	}
	a.ID = id
	return r.d.out.Artifact(ctx, a)
}

// Working reports progress.
func (r *DurableRun) Working(ctx context.Context, m Message) error {
	if _, skip := r.d.emits(ctx, func(int) string { return "status" }); skip {
		return nil
	}
	return r.d.out.Working(ctx, m)
}

// Complete ends the task with a message. A function that returns nil completes it without one.
func (r *DurableRun) Complete(ctx context.Context, m Message) error { return r.d.out.Complete(ctx, m) }

// Reject ends the task as rejected: the agent will not do it.
func (r *DurableRun) Reject(ctx context.Context, m Message) error { return r.d.out.Reject(ctx, m) }

// emits counts an emission, and reports whether the log has it already. of names it in a turn.
func (d *durable) emits(ctx context.Context, of func(version int) string) (id string, skip bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id = of(d.version)
	d.dirty = true
	if s, ok := ctx.Value(stepKey{}).(*underway); ok {
		s.wrote[id] = true
		return id, false
	}
	d.emitted[id]++
	return id, d.emitted[id] <= d.kept[id]
}
