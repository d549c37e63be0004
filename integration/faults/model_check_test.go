package faults

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Afterwards the logs tell the order of all events. Each answer must be the view of its task at some event: not older
// than the newest one that was known before the operation began, and not younger than the operation's end.

// record is a task with its log, and when clients learned of its events.
type record struct {
	id, public string
	log        []logged
	views      []view // after each event; the first is before any event
	seen       []sighting
	cancels    []time.Time
	accepted   time.Time // of the first cancel
}

// fold makes the views of the log.
func (r *record) fold() {
	for i := range len(r.log) + 1 {
		r.views = append(r.views, viewed(r.log[:i]))
	}
}

type sighting struct {
	at  time.Time
	Seq int64
}

// floor is the newest event that a client had seen at that time.
func (r *record) floor(at time.Time) int64 {
	most := int64(0)
	for _, s := range r.seen {
		if !at.Before(s.at) {
			most = max(most, s.Seq)
		}
	}
	return most
}

// asked reports whether a cancel was under way before any client had seen the task's last event.
func (r *record) asked() bool {
	return slices.ContainsFunc(r.cancels, func(at time.Time) bool { return r.floor(at) < int64(len(r.log)) })
}

// ceiling is the newest event that can have been committed at that time. An event has the time at which its statement
// began.
func (r *record) ceiling(at time.Time) int64 {
	for i := len(r.log); i > 0; i-- {
		if !at.Before(r.log[i-1].at) {
			return int64(i)
		}
	}
	return 0
}

// torn reports whether this event is in the middle of a commit: a message to a parked task and the status after it
// are one commit.
func (r *record) torn(seq int64) bool {
	return seq > 0 && seq < int64(len(r.log)) && r.log[seq-1].kind == 1 && r.log[seq].state == "submitted" && r.log[seq].attempt == 0
}

// settle ends all activity: all replicas serve, tasks without an end are canceled, and every run, answer and stream ends.
// Then it checks.
func (w *world) settle() []string {
	for i, r := range w.replicas {
		if how, ended := r.Ended(); ended && w.up[i] {
			w.died = append(w.died, fmt.Sprintf("replica %s ended by itself: %s", r.Name, how))
			w.down(i)
		}
		w.perform(&op{kind: opStart, on: i})
	}
	n := 1 << 20 // above the numbers of the sequence
	canceled := map[string]bool{}
	waittest.Eventually(w.l.T, "everything ends", func() error {
		busy := clustertest.Column[string](w.l, `SELECT coalesce(t.client_id, t.id::text) || ' ' || (e.payload->'parts'->0->>'text')
			FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id AND e.seq = 1
			WHERE t.state < 3 AND e.payload->'metadata'->>'op' LIKE $1`, w.run+"-%")
		for _, row := range busy {
			if id, script, _ := strings.Cut(row, " "); script == "hold" && !canceled[id] {
				canceled[id] = true
				w.ops[n] = &done{op: &op{n: n}, target: id}
				w.perform(&op{n: n + 1, kind: opCancel, task: n, d: a2atest.V03})
				n += 2
			}
		}
		for _, d := range w.all {
			select {
			case <-d.over:
			default:
				busy = append(busy, d.String())
			}
		}
		return waittest.Unless(len(busy) == 0, "%d: %q", len(busy), busy)
	})
	return append(w.died, w.check()...)
}

// records reads the tasks and logs of the sequence.
func (w *world) records() (map[string]*record, error) {
	out := map[string]*record{}
	rows := clustertest.Column[string](w.l, `SELECT t.id || ' ' || coalesce(t.client_id, t.id::text)
		FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id AND e.seq = 1
		WHERE e.payload->'metadata'->>'op' LIKE $1`, w.run+"-%")
	for _, row := range rows {
		r := &record{}
		r.id, r.public, _ = strings.Cut(row, " ")
		var err error
		if r.log, err = logOf(w.l, r.id); err != nil {
			return nil, err
		}
		r.fold()
		out[r.public] = r
	}
	return out, nil
}

// check compares the whole database and every answer with the model.
func (w *world) check() []string {
	var found []string
	if err := invarianttest.Check(waittest.Context(w.l.T), w.l.URL); err != nil {
		found = append(found, err.Error())
	}
	records, err := w.records()
	if err != nil {
		return append(found, err.Error())
	}
	c := &checker{
		w: w, records: records, stored: map[string]*record{}, keys: map[string]string{}, heard: map[string]time.Time{},
	}
	all := slices.Clone(w.all)
	slices.SortStableFunc(all, func(a, b *done) int { return a.end.Compare(b.end) })
	c.prepare(all)
	for _, d := range all {
		if d.d == nil {
			continue // an operation on a replica
		}
		c.performed++
		if err := c.operation(d); err != nil {
			found = append(found, fmt.Sprintf("%v\n  %s\n%s", err, d.say(), c.context(d)))
		}
	}
	for _, r := range records {
		if err := legal(r.log, r.asked(), r.accepted); err != nil {
			found = append(found, fmt.Sprintf("the log of %s is not the model's: %v\n%s", r.public, err, c.story(r.public)))
		}
		if !r.accepted.IsZero() && !terminal(r.views[len(r.log)].state) {
			found = append(found, fmt.Sprintf("%s was canceled and is %s\n%s", r.public, r.views[len(r.log)].state, c.story(r.public)))
		}
	}
	return append(found, c.found...)
}

type checker struct {
	w         *world
	records   map[string]*record
	stored    map[string]*record   // by the mark of a message
	keys      map[string]string    // for each key, the mark of its message
	heard     map[string]time.Time // when a client learned that a message is stored
	performed int
	found     []string
}

// prepare notes facts that need no order: which messages are stored, and when cancels were requested.
func (c *checker) prepare(all []*done) {
	keyOf := map[string]string{}
	for _, d := range all {
		if d.key != "" {
			keyOf[d.msg] = d.key
		}
		if d.kind != opCancel {
			continue
		}
		if r := c.records[d.target]; r != nil {
			r.cancels = append(r.cancels, d.begin)
			if d.answer != nil && r.accepted.IsZero() {
				r.accepted = d.end
			}
		}
	}
	for _, r := range c.records {
		for i := range r.log {
			e := &r.log[i]
			if e.kind != 1 {
				continue
			}
			if c.stored[e.op] != nil {
				c.found = append(c.found, fmt.Sprintf("message %s is stored twice\n%s", e.op, c.story(r.public)))
			}
			c.stored[e.op] = r
			if key := keyOf[e.op]; key != "" {
				if other := c.keys[key]; other != "" {
					c.found = append(c.found, fmt.Sprintf("%s is stored for %s and %s\n%s", key, other, e.op, c.story(r.public)))
				}
				c.keys[key] = e.op
			}
		}
	}
}

// story checks a task's log and every operation on it.
func (c *checker) story(public string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  task %s:\n", public)
	if r := c.records[public]; r != nil {
		for i := range r.log {
			fmt.Fprintf(&b, "  %s\n", &r.log[i])
		}
	}
	for _, d := range c.w.all {
		if d.d == nil || d.target == public || d.taskID == public {
			fmt.Fprintf(&b, "  %s\n", d.say())
		}
	}
	return b.String()
}

func (c *checker) context(d *done) string {
	for _, id := range []string{d.taskID, d.target} {
		if c.records[id] != nil {
			return c.story(id)
		}
	}
	return ""
}

// codes of the errors that the model expects, by version.
const (
	notFound      = -32001
	notCancelable = -32002
	invalid       = -32602
)

func endedCode(d *a2atest.Wire) int {
	if d == a2atest.V01 {
		return -32009
	}
	return invalid
}

// operation checks an operation. Operations come in the order of their ends.
func (c *checker) operation(d *done) error {
	excused := c.w.excused(d)
	if d.broken != nil && !excused && !d.cut {
		return fmt.Errorf("it broke, and no replica was going down: %w", d.broken)
	}
	if d.refuse != nil {
		if unavailable := map[*a2atest.Wire]int{a2atest.V01: -32011, a2atest.V03: -32603}[d.d]; d.refuse.Code == unavailable && excused {
			return nil
		}
		return c.refused(d)
	}
	switch d.kind {
	case opGet, opCancel:
		return c.read(d)
	case opResume:
		return c.followed(d, 0)
	}
	return c.sent(d)
}

// refused checks an error.
func (c *checker) refused(d *done) error {
	r := c.records[d.target]
	if len(d.events) > 0 {
		return fmt.Errorf("an error in the middle of a stream")
	}
	ended := false
	if r != nil {
		ended = slices.ContainsFunc(r.log, func(e logged) bool { return e.ends() && !e.at.After(d.end) })
	}
	switch d.kind {
	case opGet, opResume, opCancel:
		switch {
		case d.refuse.Code == notFound && (r == nil || r.floor(d.begin) == 0):
			return nil // made at the same moment, or never
		case d.kind == opCancel && d.refuse.Code == notCancelable && ended:
			return nil
		}
		return fmt.Errorf("refused: %w", d.refuse)
	}
	isStored := c.stored[d.msg]
	if since, known := c.heard[d.msg]; known && since.Before(d.begin) {
		return fmt.Errorf("a repetition is refused: %w", d.refuse)
	}
	switch {
	case strings.Contains(d.refuse.Message, "Idempotency-Key"):
		if other := c.keys[d.key]; d.refuse.Code != invalid || other == "" || other == d.msg {
			return fmt.Errorf("the key is said to be in use: %w", d.refuse)
		}
		return nil
	case isStored != nil && d.key == "":
		return fmt.Errorf("refused, and stored: %w", d.refuse)
	case d.refuse.Code == endedCode(d.d) && ended:
		return nil
	case d.refuse.Code == notFound && d.d == a2atest.V03 && d.target != "" && (r == nil || r.floor(d.begin) == 0):
		return nil
	}
	return fmt.Errorf("refused: %w", d.refuse)
}

// at finds the oldest event at which the task can have looked like the answer, and notes that a client saw it.
func (c *checker) at(r *record, d *done, from int64, fits func(*view) string) error {
	from, to := max(from, r.floor(d.begin)), r.ceiling(d.end)
	why := "there was nothing to see yet"
	for seq := from; seq <= to; seq++ {
		if seq == 0 || r.torn(seq) {
			continue
		}
		if why = fits(&r.views[seq]); why == "" {
			r.seen = append(r.seen, sighting{d.end, seq})
			return nil
		}
	}
	return fmt.Errorf("no event from %d to %d has it: %s", from, to, why)
}

func (c *checker) read(d *done) error {
	if d.answer == nil {
		return nil
	}
	r := c.records[d.target]
	if r == nil {
		return errors.New("a task that was never made")
	}
	history := d.history
	if d.kind == opCancel {
		history = -1
		if !terminal(d.answer.State()) && !c.w.excused(d) {
			return errors.New("a cancel is answered before the task has ended")
		}
	}
	return c.at(r, d, 0, func(v *view) string { return v.differs(d.answer, d.d, history) })
}

// sent checks the answer to a message.
func (c *checker) sent(d *done) error {
	r := c.stored[d.msg]
	if d.answer == nil && len(d.events) == 0 {
		if d.eof && !c.w.excused(d) {
			return errors.New("an empty stream")
		}
		return nil
	}
	if r == nil || r.public != d.taskID || (d.target != "" && r.public != d.target) {
		return fmt.Errorf("answered for task %s, and the message is not stored there", d.taskID)
	}
	first := int64(1 + slices.IndexFunc(r.log, func(e logged) bool { return e.op == d.msg }))
	if d.kind != opRepeat && d.task == d.n && d.d == a2atest.V03 && first != 1 {
		return errors.New("the first message of a task is not its first event")
	}
	if r.torn(first) {
		first++
	}
	if d.streams {
		err := c.followed(d, first)
		c.hear(d, d.events[0].at)
		return err
	}
	c.hear(d, d.end)
	waits := d.d == a2atest.V01 || d.wait
	return c.at(r, d, first, func(v *view) string {
		if waits && !settled(v.state) && !c.w.excused(d) {
			return "answered before the task has settled"
		}
		return v.differs(d.answer, d.d, d.history)
	})
}

func (c *checker) hear(d *done, at time.Time) {
	if since, known := c.heard[d.msg]; !known || at.Before(since) {
		c.heard[d.msg] = at
	}
}

// followed checks a stream. first, if not 0, is the event of its message.
func (c *checker) followed(d *done, first int64) error {
	id := d.target
	if id == "" {
		id = d.taskID
	}
	r := c.records[id]
	if r == nil {
		if len(d.events) == 0 && !d.eof {
			return nil
		}
		return errors.New("a stream of a task that was never made")
	}
	excused := c.w.excused(d)
	if len(d.events) == 0 {
		return c.empty(d, r)
	}
	seq, rest, over, err := c.opened(d, r, first)
	if err != nil {
		return err
	}
	for i, e := range rest {
		if over {
			return fmt.Errorf("event %d comes after the final one", e.Seq)
		}
		for seq++; seq <= int64(len(r.log)) && !r.log[seq-1].streamed(); seq++ {
		}
		if seq > int64(len(r.log)) || e.Seq != seq {
			return fmt.Errorf("event %d of the stream has id %d, and not %d", i+1, e.Seq, seq)
		}
		if err := c.shown(d, r, &r.log[seq-1], &e); err != nil {
			return fmt.Errorf("event %d: %w", seq, err)
		}
		r.seen = append(r.seen, sighting{e.at, seq})
		over = e.Final
	}
	if !over && d.eof && !excused {
		return errors.New("the stream ended without a final event")
	}
	return nil
}

// empty checks a stream without events: the client had seen all of them, or something broke.
func (c *checker) empty(d *done, r *record) error {
	if !d.eof || c.w.excused(d) {
		return nil
	}
	if d.position >= 0 {
		for seq := r.floor(d.begin); seq <= r.ceiling(d.end); seq++ {
			status := int64(0)
			for i := range seq {
				if r.log[i].kind == 2 {
					status = i + 1
				}
			}
			if status > 0 && status <= d.position && settled(r.views[seq].state) {
				return nil
			}
		}
	}
	return errors.New("an empty stream")
}

// opened checks the opening of a stream. It returns the seq after which events follow, and those events.
func (c *checker) opened(d *done, r *record, first int64) (seq int64, rest []got, over bool, err error) {
	n := 1 + slices.IndexFunc(d.events, func(e got) bool { return e.Seq != 0 })
	if n == 0 {
		if !d.eof {
			return 0, nil, false, nil // cut in its opening
		}
		return 0, nil, false, errors.New("no event has an id")
	}
	seq = d.events[n-1].Seq
	if d.position >= 0 && seq > d.position {
		if d.events[0].Seq == 0 || d.events[0].Kind == "task" {
			return 0, nil, false, errors.New("a snapshot, though the position is in the log")
		}
		return d.position, d.events, false, nil
	}
	if d.position >= 0 && d.position <= r.floor(d.begin) {
		return 0, nil, false, fmt.Errorf("event %d again", seq)
	}
	last := d.events[n-1]
	if seq > r.ceiling(last.at) || r.torn(seq) || seq < r.floor(d.begin) && first == 0 {
		return 0, nil, false, fmt.Errorf("a snapshot at %d, when from %d to %d were there", seq, r.floor(d.begin), r.ceiling(last.at))
	}
	if first > 0 && seq != first && !c.repeated(d, last.at) {
		return 0, nil, false, fmt.Errorf("opened at %d, while its message led to %d", seq, first)
	}
	v := &r.views[seq]
	wrong := ""
	if opening := d.events[:n]; d.d == a2atest.V03 {
		wrong = opening03(v, opening)
	} else {
		wrong = opening01(v, opening, d.kind == opResume)
	}
	if wrong != "" {
		return 0, nil, false, fmt.Errorf("the opening at %d: %s", seq, wrong)
	}
	r.seen = append(r.seen, sighting{last.at, seq})
	return seq, d.events[n:], last.Final, nil
}

// repeated reports whether another operation sent the same message: then it is unknown which one was first.
func (c *checker) repeated(d *done, until time.Time) bool {
	return slices.ContainsFunc(c.w.all, func(o *done) bool { return o != d && o.msg == d.msg && o.begin.Before(until) })
}

// opening03 is the task, and its final status if the task is settled.
func opening03(v *view, docs []got) string {
	switch {
	case docs[0].Kind != "task":
		return "no task"
	case settled(v.state) != (len(docs) == 2), len(docs) > 2:
		return fmt.Sprintf("%d documents for %s", len(docs), v.state)
	case len(docs) == 2 && (!docs[1].Final || docs[1].State() != v.state || docs[1].Said() != v.said):
		return "its final status is " + docs[1].State()
	}
	return v.differs(docs[0].Result, a2atest.V03, -1)
}

// opening01 is the status and, on resubscribing to a running task, its artifacts.
func opening01(v *view, docs []got, artifacts bool) string {
	var shown []string
	for _, doc := range docs[1:] {
		if doc.Artifact == nil {
			return "two statuses"
		}
		shown = append(shown, fmt.Sprintf("%s: %q", doc.Artifact.Name, partTexts(doc.Artifact.Parts)))
	}
	var want []string
	if artifacts && !settled(v.state) {
		want = v.artifacts
	}
	switch {
	case docs[0].State() != stateIn(a2atest.V01, v.state) || docs[0].Said() != v.said:
		return fmt.Sprintf("%s %q, not %s %q", docs[0].State(), docs[0].Said(), v.state, v.said)
	case docs[0].Final != settled(v.state):
		return fmt.Sprintf("%s, final %v", v.state, docs[0].Final)
	case !slices.Equal(shown, want):
		return fmt.Sprintf("artifacts %q, not %q", shown, want)
	}
	return ""
}

// shown compares an event of a stream with that of the log.
func (c *checker) shown(d *done, r *record, e *logged, g *got) error {
	if e.at.After(g.at) {
		return errors.New("seen before it was stored")
	}
	if e.kind == 3 {
		switch {
		case g.Artifact == nil || g.Artifact.Name != e.artifact || !slices.Equal(partTexts(g.Artifact.Parts), e.texts):
			return errors.New("another artifact event than the log's")
		case e.add != (g.Append || g.Artifact.Append), g.Final:
			return errors.New("other marks than the log's")
		}
		return nil
	}
	if g.State() != stateIn(d.d, e.state) || g.Said() != e.Said() {
		return fmt.Errorf("%s %q, not %s %q", g.State(), g.Said(), e.state, e.Said())
	}
	later := func(x logged) bool { return x.kind == 2 && x.Seq > e.Seq }
	passed := slices.ContainsFunc(r.log, func(x logged) bool { return later(x) && !x.at.After(g.at) })
	longPassed := slices.ContainsFunc(r.log[:r.floor(d.begin)], later)
	switch {
	case g.Final && !e.settles():
		return fmt.Errorf("%s is final", e.state)
	case g.Final && longPassed:
		return fmt.Errorf("%s is final, though the task had moved on before the stream began", e.state)
	case !g.Final && e.settles() && (!passed || e.ends()):
		return fmt.Errorf("%s is not final", e.state)
	}
	return nil
}
