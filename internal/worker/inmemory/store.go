// Package inmemory is a worker.Store without PostgreSQL, for tests of agents in one process. Its statements have the rules
// of those in queries/; a test of package worker runs the same agents on both and compares the logs.
//
// It differs where a test would only wait: a retry is due at once, whatever its delay.
package inmemory

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Listener learns of changes. Its methods must not block, and may be called by any goroutine.
type Listener struct {
	Committed func()              // events were written
	Ready     func(agent string)  // an agent's queue has a row to claim
	Canceled  func(id task.ID)    // a running task was asked to end
	Delayed   func(time.Duration) // a retry asked for a delay; it is due now
}

// Store has the tables tasks, task_events and task_queue of one process. Its methods do not return the slices and events
// that it keeps, except events, which nobody changes.
type Store struct {
	listener Listener

	mu      sync.Mutex
	rows    map[task.ID]*row
	states  map[stateKey]state
	notices map[task.ID]*notice
	queue   []task.ID // the rows with a queue row, in their order
	appends []*store.Append
	writing bool // whether write runs
	clock   time.Time
}

// row is a task with its log and its queue row.
type row struct {
	head task.Task // only the members that never change
	log  []*task.Event

	state         task.State
	fence         task.Fence
	ordinal       int64
	worker        task.ID
	pending       int
	turns         int
	canceled      bool // cancel_requested
	artifactBytes int64

	messageSeq  task.Seq
	turn        int
	tries       int
	suspect     bool
	spared      int
	availableAt time.Time
	awaySince   time.Time

	// Of a turn that follows a wait.
	inputSeq      task.Seq // the note with the wait; 0: the turn follows none
	interrupted   bool
	wakesAt       time.Time // zero: no timer, or it has fired
	interruptible bool
	results       []task.Result // of calls

	resumable  bool     // parked: the resume URL of its turn is valid
	resumedSeq task.Seq // the note of a resume that came before the run has parked, or 0

	contents map[task.Seq]*task.Resumed // of resumes, by their notes

	turnOf map[task.Attempt]int
}

// New makes an empty store.
func New(l Listener) *Store {
	return &Store{listener: l, rows: map[task.ID]*row{}, states: map[stateKey]state{}, notices: map[task.ID]*notice{}}
}

// Create adds a task with its first message, as TaskCreate does. q may be nil.
func (s *Store) Create(h *task.Task, m *task.Message, q *task.Request) {
	s.mu.Lock()
	head := store.Empty(h)
	head.CreatedAt = s.now()
	r := &row{head: *head, state: task.StateSubmitted, turnOf: map[task.Attempt]int{}, contents: map[task.Seq]*task.Resumed{}}
	s.rows[h.ID] = r
	s.write(r, &task.Event{Kind: task.EventMessage, Message: inTask(r, m), Request: q})
	s.enqueue(r, 1)
	s.mu.Unlock()
	s.changed(r.head.Agent)
}

// AddMessage adds a message to a task, as MessageAppend does, and returns its turn. q may be nil. Errors: task.Terminal.
func (s *Store) AddMessage(id task.ID, m *task.Message, q *task.Request) (turn int, err error) {
	s.mu.Lock()
	r := s.rows[id]
	if r.state.Terminal() {
		s.mu.Unlock()
		return 0, task.Errorf(task.Terminal, "the task is %s", r.state)
	}
	parked, interrupts := r.state.Parked(), r.interruptible && r.wakesAt.After(s.now())
	if !interrupts { // else the turn of the timer becomes that of the message
		r.turns++
	}
	turn = r.turns
	s.write(r, &task.Event{Kind: task.EventMessage, Message: inTask(r, m), Request: q})
	switch {
	case interrupts:
		r.wakesAt, r.availableAt, r.interrupted, r.messageSeq = time.Time{}, s.now(), true, r.head.LastSeq
	case parked:
		s.write(r, &task.Event{Kind: task.EventStatus, State: task.StateSubmitted})
		r.state, r.pending, r.canceled = task.StateSubmitted, 0, false
		s.enqueue(r, r.head.LastSeq-1)
	default:
		r.pending++
	}
	s.mu.Unlock()
	s.changed(r.head.Agent)
	return turn, nil
}

// Resume begins the next turn of a task by the resume URL of a turn, as TaskResume does, and returns it. Errors:
// task.Terminal.
func (s *Store) Resume(id task.ID, turn int, content *task.Resumed) (next int, err error) {
	s.mu.Lock()
	r := s.rows[id]
	parked := r.state.Parked()
	if r.state.Terminal() || r.turns-r.pending != turn || parked && !r.resumable || !parked && r.resumedSeq > 0 {
		s.mu.Unlock()
		return 0, task.Errorf(task.Terminal, "the resume URL of turn %d is not valid", turn)
	}
	s.write(r, &task.Event{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunResume}})
	note := r.head.LastSeq
	r.contents[note] = content
	if parked {
		s.write(r, &task.Event{Kind: task.EventStatus, State: task.StateSubmitted})
		r.state = task.StateSubmitted
		r.turns++
		s.enqueue(r, r.messageSeq)
		r.inputSeq = note
	} else {
		r.resumedSeq = note
	}
	s.mu.Unlock()
	s.changed(r.head.Agent)
	return turn + 1, nil
}

// Turn returns the turn that runs, waits or has parked the task.
func (s *Store) Turn(id task.ID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[id].turns - s.rows[id].pending
}

// Fire makes the turn after a wait due, as TimersFire does when its time has come. It returns the turn, or 0 if no timer
// of the task is set.
func (s *Store) Fire(id task.ID) (turn int) {
	s.mu.Lock()
	r := s.rows[id]
	if r.wakesAt.IsZero() || r.wakesAt.Equal(never) {
		s.mu.Unlock()
		return 0
	}
	r.wakesAt, r.availableAt = time.Time{}, s.now()
	turn = r.turn
	s.mu.Unlock()
	s.changed(r.head.Agent)
	return turn
}

// Calls returns the calls whose results a task waits for, or nil.
func (s *Store) Calls(id task.ID) []task.Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[id]
	if !r.wakesAt.Equal(never) {
		return nil
	}
	return r.log[r.inputSeq-1].Run.Calls
}

// Return gives a task the results of its calls and makes its turn due, as CallersWake does. It returns the turn. Calls must
// have returned the calls.
func (s *Store) Return(id task.ID, results []task.Result) (turn int) {
	s.mu.Lock()
	r := s.rows[id]
	r.wakesAt, r.availableAt, r.results = time.Time{}, s.now(), results
	turn = r.turn
	s.mu.Unlock()
	s.changed(r.head.Agent)
	return turn
}

// Cancel ends a task or asks its worker to end it, as TaskCancel does. metadata is that of the request, or nil. Errors:
// task.NotCancelable.
func (s *Store) Cancel(id task.ID, metadata json.RawMessage) error {
	s.mu.Lock()
	r := s.rows[id]
	if r.state.Terminal() {
		s.mu.Unlock()
		return task.Errorf(task.NotCancelable, "the task is %s", r.state)
	}
	r.canceled = true
	running := !r.worker.IsZero()
	if s.notices[id] == nil && r.fence.Attempt > 0 {
		s.notices[id] = &notice{metadata: metadata}
	}
	if !running {
		s.dequeue(r)
		r.pending, r.state, r.wakesAt = 0, task.StateCanceled, time.Time{}
		s.write(r, &task.Event{Kind: task.EventStatus, State: task.StateCanceled})
	}
	s.mu.Unlock()
	s.changed("")
	if running {
		s.listener.Canceled(id)
	}
	return nil
}

// Rescue takes all runs from their worker, as RunsRescue does with those of a dead process. It calls lost before another
// worker can claim the tasks. It returns their number.
func (s *Store) Rescue(lost func()) int {
	s.mu.Lock()
	var lonely []*row
	for _, r := range s.rows {
		if !r.worker.IsZero() {
			lonely = append(lonely, r)
		}
	}
	crowd := len(lonely) > 1
	for _, r := range lonely {
		s.write(r, &task.Event{Kind: task.EventRun, Attempt: r.fence.Attempt, Run: &task.RunNote{Outcome: task.RunLost}})
		r.fence.Attempt++
		r.worker, r.ordinal, r.awaySince, r.availableAt = task.ID{}, 0, time.Time{}, s.now()
		suspect := r.suspect || r.spared > 0 || !crowd
		if crowd && !r.suspect {
			r.spared++
		}
		r.suspect = suspect
	}
	lost()
	s.mu.Unlock()
	for _, r := range lonely {
		s.changed(r.head.Agent)
	}
	return len(lonely)
}

// Events returns the log of a task after a seq.
func (s *Store) Events(id task.ID, after task.Seq) []*task.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.rows[id].log
	return log[min(int(after), len(log)):len(log):len(log)]
}

// State returns the state of a task, and whether a worker runs it.
func (s *Store) State(id task.ID) (state task.State, running bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[id]
	return r.state, !r.worker.IsZero()
}

// Turns returns the turn of each attempt that was claimed, and the newest turn.
func (s *Store) Turns(id task.ID) (of map[task.Attempt]int, newest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.rows[id].turnOf), s.rows[id].turns
}

// Task folds the log of a task.
func (s *Store) Task(id task.ID) (*task.Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[id]
	t := store.Empty(&r.head)
	for _, e := range r.log {
		if err := t.Apply(e); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Claim implements worker.Store.
func (s *Store) Claim(_ context.Context, worker task.ID, want []store.Demand) ([]*store.Claimed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*store.Claimed
	suspects := 1
	for _, d := range want {
		if d.NoSuspect {
			suspects = 0
		}
	}
	for _, d := range want {
		for _, id := range s.queue {
			r := s.rows[id]
			switch {
			case d.Slots == 0, r.head.Agent != d.Agent, !r.worker.IsZero(), !r.wakesAt.IsZero(), slices.Contains(d.Skip, id),
				r.suspect && suspects == 0, s.now().Sub(r.availableAt) < d.Older:
				continue
			case r.suspect:
				suspects--
			}
			d.Slots--
			out = append(out, s.claim(r, worker))
		}
	}
	return out, nil
}

func (s *Store) claim(r *row, worker task.ID) *store.Claimed {
	r.worker, r.ordinal = worker, 0
	r.tries++
	r.fence = task.Fence{Attempt: r.fence.Attempt + 1, ClaimedAt: s.now().UnixMicro()}
	r.turnOf[r.fence.Attempt] = r.turn
	h := r.head
	h.Status.State = r.state
	asked := r.log[r.messageSeq-1]
	c := &store.Claimed{
		Task: &h, Message: asked.Message, Request: asked.Request, MessageSeq: r.messageSeq, Fence: r.fence, Turn: r.turn, Try: r.tries,
		CancelRequested: r.canceled, Since: r.availableAt, ArtifactBytes: r.artifactBytes, Suspect: r.suspect,
		Spared: r.spared,
	}
	if r.inputSeq > 0 {
		note := r.log[r.inputSeq-1].Run
		c.Wait = &store.Wait{
			Seq: r.inputSeq, Calls: note.Outcome == task.RunCalls, Until: note.Until, Interrupted: r.interrupted, Resumed: r.contents[r.inputSeq],
		}
		if !r.interrupted {
			c.Message, c.Request = &task.Message{}, nil
		}
	}
	if !r.awaySince.IsZero() {
		c.AwayFor = max(s.now().Sub(r.awaySince), 1)
	}
	return c
}

// Append implements worker.Store. The caller may hold locks that Done takes, so another goroutine writes.
func (s *Store) Append(a *store.Append) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appends = append(s.appends, a)
	if !s.writing {
		s.writing = true
		go s.writeAppends()
	}
}

func (s *Store) writeAppends() {
	for {
		s.mu.Lock()
		if len(s.appends) == 0 {
			s.writing = false
			s.mu.Unlock()
			return
		}
		a := s.appends[0]
		s.appends = s.appends[1:]
		again, err := s.append(a)
		s.mu.Unlock()
		a.Done(again, err)
		if again {
			s.changed(a.Agent)
		} else {
			s.changed("")
		}
	}
}

// append writes the events of a run, as EventsAppend does.
func (s *Store) append(a *store.Append) (again bool, err error) {
	r := s.rows[a.Task]
	if r.fence != a.Fence || r.ordinal != a.Ordinal || r.state >= task.StateInputRequired || r.worker.IsZero() {
		return false, task.LeaseLost
	}
	status, waits, resumed := -1, false, task.Seq(0)
	for i, e := range a.Events {
		if e.Kind == task.EventStatus {
			status = i
		}
		waits = waits || e.Waits()
	}
	for i, e := range a.Events {
		e := *e
		e.Attempt = a.Attempt
		if i == status {
			r.resumable = e.Resumable > 0
			if e.State.Parked() && r.canceled {
				e.State = task.StateCanceled
			} else if r.resumable && r.resumedSeq > 0 {
				e.State, again, resumed = task.StateSubmitted, true, r.resumedSeq
			} else if e.State.Parked() && r.pending > 0 {
				e.State, again = task.StateSubmitted, true
			}
			r.state = e.State
		}
		if e.Waits() && e.Run.Outcome == task.RunWaits {
			e.Run = s.timer(e.Run)
		}
		if e.Artifact != nil {
			r.artifactBytes += e.Artifact.Size()
		}
		s.write(r, &e)
	}
	r.ordinal += int64(len(a.Events))
	switch {
	case waits:
		again = s.wait(r, r.log[len(r.log)-1])
	case resumed > 0:
		r.turns++
		s.requeue(r, r.messageSeq)
		r.inputSeq = resumed
	case again:
		r.pending--
		s.requeue(r, r.next())
	case r.state >= task.StateInputRequired:
		r.worker = task.ID{}
		s.dequeue(r)
	}
	return again, nil
}

// timer returns the note of a wait with the time at which it ends.
func (s *Store) timer(note *task.RunNote) *task.RunNote {
	out, now := *note, s.now()
	if out.For > 0 {
		out.Until, out.For = now.Add(out.For), 0
	}
	if out.Until.Before(now) {
		out.Until = now
	}
	return &out
}

// wait ends a run in a wait, and reports whether the next turn is due at once.
func (s *Store) wait(r *row, e *task.Event) (due bool) {
	interrupted := e.Run.Interruptible && r.pending > 0 && !r.canceled
	message := r.messageSeq
	if interrupted {
		r.pending--
		message = r.next()
	} else {
		r.turns++
	}
	s.requeue(r, message)
	r.inputSeq, r.interrupted, r.interruptible = e.Seq, interrupted, e.Run.Interruptible
	if interrupted || r.canceled {
		return true
	}
	r.wakesAt = e.Run.Until
	if e.Run.Outcome == task.RunCalls {
		r.wakesAt = never
	}
	return false
}

// never is when the turn after calls begins by itself.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// next is the message after that of the turn.
func (r *row) next() task.Seq {
	i := slices.IndexFunc(r.log[r.messageSeq:], func(e *task.Event) bool { return e.Kind == task.EventMessage })
	return r.messageSeq + task.Seq(i) + 1
}

// GiveBack implements worker.Store.
func (s *Store) GiveBack(ctx context.Context, back store.Requeue) error {
	_, err := s.Requeue(ctx, back)
	return err
}

// Requeue implements worker.Store.
func (s *Store) Requeue(_ context.Context, back store.Requeue) (awayFor time.Duration, err error) {
	s.mu.Lock()
	r := s.rows[back.Task]
	if r.fence != back.Fence || r.state >= task.StateInputRequired || r.worker.IsZero() {
		s.mu.Unlock()
		return 0, task.LeaseLost
	}
	if !back.Silent {
		s.write(r, &task.Event{Kind: task.EventRun, Attempt: back.Attempt, Run: &back.Note})
	}
	r.worker, r.suspect = task.ID{}, false
	if back.Uncount {
		r.tries--
	}
	switch now := s.now(); {
	case !back.Away:
		r.awaySince = time.Time{}
	case r.awaySince.IsZero():
		r.awaySince = now
	default:
		awayFor = now.Sub(r.awaySince)
	}
	if !back.InPlace {
		r.availableAt = s.now()
	}
	s.mu.Unlock()
	if back.Delay > 0 && s.listener.Delayed != nil {
		s.listener.Delayed(back.Delay)
	}
	if back.InPlace { // the pool probes at its own pace
		s.changed("")
	} else {
		s.changed(back.Agent)
	}
	return awayFor, nil
}

// Began implements worker.Store: outages are not recorded.
func (s *Store) Began(context.Context, []string) ([]string, error) { return nil, nil }

// Acquit implements worker.Store.
func (s *Store) Acquit(_ context.Context, worker, id task.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rows[id]; r.worker == worker {
		r.suspect = false
	}
	return nil
}

// Owned implements worker.Store.
func (s *Store) Owned(_ context.Context, worker task.ID) ([]store.Owned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.Owned
	for id, r := range s.rows {
		if r.worker == worker {
			out = append(out, store.Owned{Task: id, Fence: r.fence, CancelRequested: r.canceled})
		}
	}
	return out, nil
}

// LastSeqs implements worker.Store.
func (s *Store) LastSeqs(_ context.Context, ids []task.ID) (map[task.ID]task.Seq, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[task.ID]task.Seq{}
	for _, id := range ids {
		if r := s.rows[id]; r != nil {
			out[id] = r.head.LastSeq
		}
	}
	return out, nil
}

// Held implements worker.Store.
func (s *Store) Held(_ context.Context, worker task.ID, ids []task.ID) ([]store.Owned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.Owned
	for _, id := range ids {
		if r := s.rows[id]; r != nil && r.worker == worker {
			out = append(out, store.Owned{Task: id, Fence: r.fence, CancelRequested: r.canceled})
		}
	}
	return out, nil
}

// Ended implements worker.Store.
func (s *Store) Ended(_ context.Context, runs map[task.ID]task.Fence) (map[task.ID]store.Ending, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[task.ID]store.Ending{}
	for id, run := range runs {
		if r := s.rows[id]; r != nil && (r.fence != run || r.worker.IsZero()) {
			out[id] = store.Ending{Fence: r.fence, State: r.state, Waits: !r.wakesAt.IsZero()}
		}
	}
	return out, nil
}

// Silence implements worker.Store: there is no run API.
func (s *Store) Silence(context.Context, task.ID, task.Fence) (d time.Duration, never bool, err error) {
	return 0, true, nil
}

// NewTaskID implements worker.Store.
func (s *Store) NewTaskID() task.ID { return store.NewID() }

// Results implements worker.Store. It does not bound them.
func (s *Store) Results(_ context.Context, of *task.Task, _ task.Seq, _ int64) ([]task.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[of.ID].results, nil
}

// ArtifactIDs implements worker.Store.
func (s *Store) ArtifactIDs(_ context.Context, id task.ID) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, e := range s.rows[id].log {
		if e.Artifact != nil && !slices.Contains(out, e.Artifact.ID) {
			out = append(out, e.Artifact.ID)
		}
	}
	return out, nil
}

// Header implements worker.Store.
func (s *Store) Header(_ context.Context, id task.ID) (*task.Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.rows[id].head
	h.Status.State = s.rows[id].state
	return &h, nil
}

// EventsAfter implements worker.Store.
func (s *Store) EventsAfter(_ context.Context, owner *task.Task, after task.Position, limit int) ([]*task.Event, error) {
	evs := s.Events(owner.ID, after.Seq)
	return evs[:min(limit, len(evs))], nil
}

// Conversation implements worker.Store.
func (s *Store) Conversation(_ context.Context, h *task.Task, said, begins task.Seq) ([]task.Message, error) {
	log := s.Events(h.ID, 0)
	for _, e := range log {
		if e.Seq > begins && e.Kind == task.EventStatus && e.State == task.StateSubmitted {
			begins = e.Seq
		}
	}
	t := store.Empty(h)
	for _, e := range log {
		if e.Seq > begins || e.Kind == task.EventMessage && e.Seq >= said {
			continue
		}
		t.LastSeq = e.Seq - 1 // events were left out
		if err := t.Apply(e); err != nil {
			return nil, err
		}
	}
	if t.Status.Message != nil {
		return append(t.History, *t.Status.Message), nil
	}
	return t.History, nil
}

// write appends an event to a log.
func (s *Store) write(r *row, e *task.Event) {
	r.head.LastSeq++
	e.Task, e.Seq, e.At = r.head.ID, r.head.LastSeq, s.now()
	r.log = append(r.log, e)
}

// enqueue adds the queue row for a message.
func (s *Store) enqueue(r *row, message task.Seq) {
	if r.turns == 0 {
		r.turns = 1
	}
	r.turn = r.turns - 1
	s.queue = append(s.queue, r.head.ID)
	s.requeue(r, message)
}

// requeue makes the queue row one for the next message.
func (s *Store) requeue(r *row, message task.Seq) {
	r.worker, r.messageSeq, r.tries, r.availableAt = task.ID{}, message, 0, s.now()
	r.suspect, r.spared, r.awaySince = false, 0, time.Time{}
	r.inputSeq, r.interrupted, r.wakesAt, r.interruptible, r.resumedSeq = 0, false, time.Time{}, false, 0
	r.turn++
}

func (s *Store) dequeue(r *row) {
	s.queue = slices.DeleteFunc(s.queue, func(id task.ID) bool { return id == r.head.ID })
}

// now returns the time of a commit: no two have the same.
func (s *Store) now() time.Time {
	now := time.Now().Truncate(time.Microsecond)
	if !now.After(s.clock) {
		now = s.clock.Add(time.Microsecond)
	}
	s.clock = now
	return now
}

func (s *Store) changed(agent string) {
	s.listener.Committed()
	if agent != "" {
		s.listener.Ready(agent)
	}
}

// inTask returns the message with the ids of its task.
func inTask(r *row, m *task.Message) *task.Message {
	out := *m
	out.TaskID, out.ContextID = r.head.PublicID, r.head.ContextID
	return &out
}
