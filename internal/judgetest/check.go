package judgetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// most is the most violations that are reported.
const most = 20

// FromAgent and Steps begin the messages of agents for others, which no client sends. Package invarianttest checks that each has
// its task, and that callers show the steps of these tasks in their order, once, and only while they wait.
const (
	FromAgent = "called:"
	Steps     = "steps="
)

// Check returns the violations in the database behind url, or nil. It checks the database alone (package invariant)
// and against the ledger. It may run at any time: everything recorded before it began must be stored.
func Check(ctx context.Context, url string, l *Ledger) error { return open(ctx, url, l, false) }

// CheckAtRest is Check after all clients are done. Then every task has ended or is parked, as expected, and every
// stream has ended.
func CheckAtRest(ctx context.Context, url string, l *Ledger) error { return open(ctx, url, l, true) }

func open(ctx context.Context, url string, l *Ledger, rest bool) error {
	l = l.copy() // before the snapshot that it is compared with
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("judge: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return check(ctx, tx, l, rest)
	})
}

func check(ctx context.Context, tx pgx.Tx, l *Ledger, rest bool) error {
	a := &auditor{rest: rest}
	a.found = append(a.found, invarianttest.CheckIn(ctx, tx))
	logs, err := readLogs(ctx, tx)
	if err != nil {
		return fmt.Errorf("judge: %w", err)
	}
	if l.Exports != "" {
		// After the snapshot: rows that it no longer has were exported before.
		if err := readExports(l.Exports, logs); err != nil {
			return fmt.Errorf("judge: %w", err)
		}
	}
	a.logs = logs
	a.messages(l)
	a.resumes(l)
	a.expected(l)
	a.waits()
	for _, r := range l.readings {
		a.reading(r)
	}
	return errors.Join(a.found...)
}

// log is the stored log of one task.
type log struct {
	id     string // as clients know it
	events []row
}

// row is an event of a log.
type row struct {
	Event
	shown  bool   // in streams
	mark   string // of a user's message
	resume bool   // the note of one
	at     time.Time
	until  time.Time // of a wait that ends a run; zero for all other events
	early  bool      // of a wait: a message ends it
}

func readLogs(ctx context.Context, tx pgx.Tx) (map[string]*log, error) {
	//nolint:rowserrcheck // ForEachRow does
	rows, err := tx.Query(ctx, `
		SELECT coalesce(t.client_id, t.id::text), e.seq, e.kind, coalesce(e.state, 0), coalesce(e.artifact_id, ''), e.append, e.last,
		       coalesce(e.payload #>> '{parts,-1,text}', ''),
		       (SELECT coalesce(string_agg(p ->> 'text', '' ORDER BY n), '') FROM json_array_elements(
		            CASE e.kind WHEN 3 THEN e.payload -> 'parts' WHEN 2 THEN e.payload #> '{message,parts}' END
		        ) WITH ORDINALITY AS x (p, n)),
		       e.created_at, CASE e.kind WHEN 4 THEN (e.payload ->> 'until')::timestamptz END, coalesce((e.payload ->> 'interruptible')::boolean, false),
		       e.kind = 4 AND e.payload ->> 'outcome' = 'resume'
		  FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id
		 ORDER BY e.task, e.seq`)
	if err != nil {
		return nil, err
	}
	logs := map[string]*log{}
	var id, mark string
	var kind task.EventKind
	var state task.State
	var r row
	var until *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &r.Seq, &kind, &state, &r.Artifact, &r.Append, &r.Last, &mark, &r.Text, &r.at, &until, &r.early, &r.resume}, func() error {
		r.until = time.Time{}
		if until != nil {
			r.until = *until
		}
		r.shown = kind == task.EventStatus || kind == task.EventArtifact
		r.State, r.mark = "", ""
		switch kind {
		case task.EventStatus:
			r.State = state.String()
		case task.EventMessage:
			r.mark = mark
		case task.EventArtifact, task.EventRun:
		}
		if logs[id] == nil {
			logs[id] = &log{id: id}
		}
		logs[id].events = append(logs[id].events, r)
		return nil
	})
	return logs, err
}

type auditor struct {
	logs  map[string]*log
	rest  bool
	found []error
	told  int
}

func (a *auditor) violation(format string, args ...any) {
	switch a.told++; {
	case a.told <= most:
		a.found = append(a.found, fmt.Errorf(format, args...))
	case a.told == most+1:
		a.found = append(a.found, errors.New("and more"))
	}
}

// messages finds each message in the task that its sender was told, and nowhere else.
func (a *auditor) messages(l *Ledger) {
	places := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(a.logs)) {
		for _, e := range a.logs[id].events {
			if e.mark == "" || strings.HasPrefix(e.mark, FromAgent) || strings.HasPrefix(e.mark, Steps) {
				continue
			}
			if l.messages[e.mark] == nil {
				// Ignore a message that was sent after the copy of the ledger.
				if a.rest {
					a.violation("message %q, event %d of task %s: no client sent it", e.mark, e.Seq, id)
				}
				continue
			}
			places[e.mark] = append(places[e.mark], id)
		}
	}
	for _, mark := range slices.Sorted(maps.Keys(l.messages)) {
		m, at := l.messages[mark], places[mark]
		switch {
		case len(at) > 1:
			a.violation("message %q is stored %d times: in %s", mark, len(at), strings.Join(at, ", "))
		case m.fate == refused && len(at) == 1:
			a.violation("message %q was refused, and is stored in task %s", mark, at[0])
		case m.fate == stored && len(at) == 0:
			a.violation("message %q was acknowledged in task %s, and is lost", mark, m.task)
		case m.fate == stored && at[0] != m.task:
			a.violation("message %q was acknowledged in task %s, and is in task %s", mark, m.task, at[0])
		}
	}
}

// resumes finds each accepted request by a resume URL as the input of one turn of its task, and no other input. Each note in a
// log has its turn, because the agents ask for all of them.
func (a *auditor) resumes(l *Ledger) {
	places := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(a.logs)) {
		notes, turns := 0, 0
		for _, e := range a.logs[id].events {
			if e.resume {
				notes++
			}
			mark, ok := strings.CutPrefix(e.Text, Resumed)
			if !ok || e.State == "" {
				continue
			}
			turns++
			mark, _, _ = strings.Cut(mark, "\n")
			places[mark] = append(places[mark], id)
			if a.rest && l.resumes[mark] == nil {
				a.violation("resume %q, event %d of task %s: no client sent it", mark, e.Seq, id)
			}
		}
		if turns > notes || a.rest && turns < notes {
			a.violation("task %s has %d turns of resumes, and was resumed %d times", id, turns, notes)
		}
	}
	for _, mark := range slices.Sorted(maps.Keys(l.resumes)) {
		m, at := l.resumes[mark], places[mark]
		switch {
		case len(at) > 1:
			a.violation("resume %q is the input of %d turns: in %s", mark, len(at), strings.Join(at, ", "))
		case m.fate == refused && len(at) == 1:
			a.violation("resume %q was refused, and is the input of a turn of task %s", mark, at[0])
		case m.fate == stored && len(at) == 0 && a.rest:
			a.violation("resume %q was accepted in task %s, and is the input of no turn", mark, m.task)
		case m.fate == stored && len(at) == 1 && at[0] != m.task:
			a.violation("resume %q was accepted in task %s, and is the input of a turn of task %s", mark, m.task, at[0])
		}
	}
}

// expected checks the final states of the tasks.
func (a *auditor) expected(l *Ledger) {
	if !a.rest {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(a.logs)) {
		present := a.logs[id].present()
		switch present.State {
		case "submitted", "working":
			a.violation("task %s is still %s", id, present.State)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.expected)) {
		want := l.expected[id]
		lg := a.logs[id]
		if lg == nil {
			a.violation("task %s was acknowledged, and is lost", id)
			continue
		}
		if got := lg.present(); got.State != want.State {
			a.violation("task %s is %s, and should be %s", id, got.State, want.State)
		}
		if want.Chunks > 0 {
			if err := lg.indexed(want.Chunks, want.Size); err != nil {
				a.violation("task %s: %w", id, err)
			}
		}
	}
}

// waits checks that no run follows a wait before its time. A message may end a wait that allows it, and a cancel any. That
// a timer fires at all is part of expected, and that it fires once part of the invariants: turns counts timers.
func (a *auditor) waits() {
	for _, id := range slices.Sorted(maps.Keys(a.logs)) {
		events := a.logs[id].events
		messages := 0
		for i := range events {
			if events[i].mark != "" {
				messages++
			}
			if wait := &events[i]; !wait.until.IsZero() {
				if next := after(events[i+1:], wait.early, messages > 1); next != nil && next.at.Before(wait.until) {
					a.violation("task %s: event %d of %s follows a wait until %s", id, next.Seq, next.at.Format(time.RFC3339Nano), wait.until.Format(time.RFC3339Nano))
				}
			}
		}
	}
}

// after returns the first event of the run after a wait, or nil if no run followed, or a client ended the wait.
func after(events []row, early, messaged bool) *row {
	for i := range events {
		switch e := &events[i]; {
		case e.mark != "":
			messaged = true
		case early && messaged || e.State == "canceled":
			return nil
		default:
			return e
		}
	}
	return nil
}

// indexed checks that the chunks count from 0 to n-1. If size is not zero, an event may have several chunks of that size.
func (l *log) indexed(n, size int) error {
	next := 0
	for _, e := range l.events {
		if !e.shown || e.Artifact == "" {
			continue
		}
		for chunk := range slices.Chunk([]byte(e.Text), cmp.Or(size, max(len(e.Text), 1))) {
			index, err := strconv.Atoi(string(chunk[:min(8, len(chunk))]))
			if err != nil || index != next {
				return fmt.Errorf("event %d is chunk %.8q, and should be %d", e.Seq, chunk, next)
			}
			next++
		}
	}
	if next != n {
		return fmt.Errorf("%d chunks, and should be %d", next, n)
	}
	return nil
}

// reading follows the log along with a client.
func (a *auditor) reading(r *Reading) {
	if len(r.entries) == 0 {
		return
	}
	lg := a.logs[r.task]
	if lg == nil {
		a.violation("task %s was shown to a client, and is lost", r.task)
		return
	}
	fail := func(i int, format string, args ...any) {
		a.violation("task %s, a client's entry %d of %d: %w", r.task, i+1, len(r.entries), fmt.Errorf(format, args...))
	}
	at := -1        // the event that the client's stream has reached; -1 before it began
	f := lg.start() // never goes back: a later answer is not older
	final := false  // the last entry was the end of a stream
	streamed := false
	for i, e := range r.entries {
		switch {
		case e.view != nil && e.view.Seq > 0:
			if e.view.Seq > int64(len(lg.events)) {
				fail(i, "a view of event %d, but the log ends with %d", e.view.Seq, len(lg.events))
				return
			}
			if int64(f.at) > e.view.Seq {
				fail(i, "a view of event %d after one of %d", e.view.Seq, f.at)
				return
			}
			for int64(f.at) < e.view.Seq {
				f.step()
			}
			if err := f.differs(e.view); err != nil {
				fail(i, "a view of event %d: %w", e.view.Seq, err)
				return
			}
			at, streamed = f.at, true
			final = f.State != "submitted" && f.State != "working"
		case e.view != nil:
			for f.differs(e.view) != nil {
				if !f.step() {
					fail(i, "no position of the log from there on has the state %s with these artifacts", e.view.State)
					return
				}
			}
		case e.event == nil:
			at, streamed, final = int(e.from), true, false
		default:
			if at < 0 {
				fail(i, "an event before the stream was opened")
				return
			}
			for at < len(lg.events) && !lg.events[at].shown {
				at++
			}
			if at >= len(lg.events) {
				fail(i, "event %d, but the log ends with %d", e.event.Seq, len(lg.events))
				return
			}
			if err := lg.events[at].differs(e.event); err != nil {
				fail(i, "%w", err)
				return
			}
			at++
			final = e.event.Final
			for f.at < at {
				f.step()
			}
			if final && (f.State == "submitted" || f.State == "working") {
				fail(i, "event %d is final, and the task continues", e.event.Seq)
				return
			}
		}
	}
	if a.rest && streamed && !final && !r.left {
		a.violation("task %s: a client's stream stopped at event %d of %d and had no end", r.task, at, len(lg.events))
	}
}

// differs compares an event of a stream with the stored one at its place.
func (r *row) differs(e *Event) error {
	got := *e
	got.Final = false
	if got == r.Event {
		return nil
	}
	return fmt.Errorf("was told %+v, and the log continues with %+v", cut(got), cut(r.Event))
}

func cut(e Event) Event {
	e.Text = e.Text[:min(len(e.Text), 40)]
	return e
}

// fold is a task after some of its events.
type fold struct {
	log  *log
	at   int // number of events
	View     // without Seq
}

func (l *log) start() *fold {
	return &fold{log: l, View: View{State: "submitted", Artifacts: map[string]string{}}}
}

// step applies the next event.
func (f *fold) step() bool {
	if f.at == len(f.log.events) {
		return false
	}
	e := f.log.events[f.at]
	f.at++
	switch {
	case e.State != "":
		f.State = e.State
	case e.Artifact != "" && e.Append:
		f.Artifacts[e.Artifact] += e.Text
	case e.Artifact != "":
		f.Artifacts[e.Artifact] = e.Text
	}
	return true
}

func (f *fold) differs(v *View) error {
	switch {
	case f.State != v.State:
		return fmt.Errorf("was told that it is %s, and the log says %s", v.State, f.State)
	case v.Artifacts != nil && !maps.Equal(f.Artifacts, v.Artifacts):
		return fmt.Errorf("was shown artifacts of %d bytes, and the log has %d, or other ones", size(v.Artifacts), size(f.Artifacts))
	}
	return nil
}

func size(artifacts map[string]string) (n int) {
	for _, text := range artifacts {
		n += len(text)
	}
	return n
}

// present is the task after its last event.
func (l *log) present() *fold {
	f := l.start()
	for f.step() {
	}
	return f
}
