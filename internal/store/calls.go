package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// NewCall is a call that has not begun.
type NewCall struct {
	Parent  task.ID
	Note    task.Seq // the run note of the parent with the call
	Nth     int      // its place in that note, from 1
	Agent   string   // "" if it answers
	Task    task.ID  // to create, or to answer
	Answers bool
	Callers []string // the agents of the callers, from that of the first one to that of Parent
	at      time.Time
}

// NewCalls returns calls that have not begun and are older than a duration, those that wait for longest first, from after a
// call on. The zero value is before all.
func (s *Store) NewCalls(ctx context.Context, older time.Duration, after NewCall, most int) ([]NewCall, error) {
	rows, err := s.q.CallsNew(ctx, s.hot, dbsqlc.CallsNewParams{
		Older: older, MaxRows: int32(most), AfterTime: after.at, AfterParent: uuid.UUID(after.Parent), AfterSeq: int64(after.Note), AfterNth: int32(after.Nth),
	})
	if err != nil {
		return nil, translate("find calls", err)
	}
	out := make([]NewCall, len(rows))
	for i, r := range rows {
		out[i] = NewCall{
			Parent: task.ID(r.Parent), Note: task.Seq(r.Seq), Nth: int(r.Nth), Agent: r.Agent, Task: task.ID(r.Child), Answers: r.Answers, Callers: r.Callers,
			at: r.CreatedAt,
		}
	}
	return out, nil
}

// CallNote is a run note with calls.
type CallNote struct {
	Parent  *task.Task // header
	Calls   []task.Call
	Trace   string        // W3C Trace Context of the run that calls, or ""
	Request *task.Request // of the newest message that the parent has answered; nil: it has none, or has ended
}

// CallNote reads a run note with calls. Errors: task.NotFound.
func (s *Store) CallNote(ctx context.Context, parent task.ID, note task.Seq) (*CallNote, error) {
	row, err := s.q.CallNote(ctx, s.hot, int64(note), uuid.UUID(parent))
	if err != nil {
		return nil, translate("read calls", err)
	}
	out := &CallNote{Parent: header(&row.Task)}
	run := &task.Event{Task: parent, Seq: note, Kind: task.EventRun}
	if err := decodePayload(run, row.Note, nil); err != nil {
		return nil, translate("read calls", err)
	}
	if run.Run != nil {
		out.Calls, out.Trace = run.Run.Calls, run.Run.Traceparent
	}
	message := &task.Event{Task: parent, Kind: task.EventMessage}
	if err := decodePayload(message, row.Request, nil); err != nil {
		return nil, translate("read calls", err)
	}
	out.Request = message.Request
	return out, nil
}

// HasCalled reports whether a task has called another one in an earlier turn.
func (s *Store) HasCalled(ctx context.Context, parent, child task.ID) (bool, error) {
	known, err := s.q.CallKnown(ctx, s.hot, uuid.UUID(child), uuid.UUID(parent))
	return known, translate("find call", err)
}

// RefuseCall ends a call that has not begun with a reason, which its caller reads. Errors: task.Unavailable; Blocked.
func (s *Store) RefuseCall(ctx context.Context, c NewCall, reason string) error {
	var agents []string
	err := s.promptly(ctx, func() error {
		return pgx.BeginFunc(ctx, s.brief(s.hot), func(tx pgx.Tx) error {
			parents, err := s.q.QueueRowLock(ctx, tx, uuid.UUID(c.Parent))
			if err != nil {
				return err
			}
			_, err = s.q.CallRefuse(ctx, tx, dbsqlc.CallRefuseParams{
				Parent: uuid.UUID(c.Parent), Seq: int64(c.Note), Nth: int32(c.Nth), Error: cleanName(reason),
			})
			if err != nil {
				return err
			}
			agents, err = s.q.CallersWake(ctx, tx, parents)
			return err
		})
	})
	s.ready(agents)
	return translate("refuse call", err)
}

// BeginAnswer records that a called task has got the message of a call, and that events up to after are not the result.
// ended says that the task had ended before: its end is the result. Errors: task.Unavailable; Blocked.
func (s *Store) BeginAnswer(ctx context.Context, c NewCall, after task.Seq, ended bool) error {
	err := s.promptly(ctx, func() error {
		return pgx.BeginFunc(ctx, s.brief(s.hot), func(tx pgx.Tx) error {
			_, err := s.q.CallAnswered(ctx, tx, dbsqlc.CallAnsweredParams{
				Parent: uuid.UUID(c.Parent), Seq: int64(c.Note), Nth: int32(c.Nth), AfterSeq: int64(after),
			})
			if err != nil || !ended {
				return err
			}
			return s.q.SettledAdd(ctx, tx, uuid.UUID(c.Task))
		})
	})
	return translate("begin call", err)
}

// Settled is a task that has ended, and what it has called must end.
type Settled struct {
	Task task.ID
	seqs []int64
}

// promptly is again for a write of the duty calls, which gives up when a lock blocks it: the duty has other work, and retries.
func (s *Store) promptly(ctx context.Context, do func() error) error {
	return s.retry(ctx, "calls", do, unavailable, 0)
}

// joinRows is how many ends of tasks JoinCalls takes at a time.
const joinRows = 500

// Joined says how far JoinCalls has come. The zero value is before all.
type Joined struct {
	Ended   []Settled // tasks that have ended and have called others
	Blocked bool      // another session's lock holds back a result
	More    bool      // there may be further ends, after these

	task uuid.UUID
	seq  int64
}

// JoinCalls gives calls their results, and makes the turns due that wait for no other call. It continues after an earlier
// call. The caller must end what the tasks in Ended have called (OpenCalls), and then call ForgetSettled.
//
// It locks the queue rows of the callers, so that two joins of one caller see each other. It waits for no lock: it leaves what
// is locked for a later call.
func (s *Store) JoinCalls(ctx context.Context, after Joined) (j Joined, err error) {
	var agents []string
	err = s.promptly(ctx, func() error {
		j, agents = Joined{}, nil
		return pgx.BeginFunc(ctx, s.brief(s.hot), func(tx pgx.Tx) (err error) {
			agents, err = s.joinCalls(ctx, tx, after, &j)
			return err
		})
	})
	if err != nil {
		return Joined{}, translate("join calls", err)
	}
	s.ready(agents)
	return j, nil
}

func (s *Store) joinCalls(ctx context.Context, tx pgx.Tx, after Joined, j *Joined) (agents []string, err error) {
	rows, err := s.q.SettledTake(ctx, tx, after.task, after.seq, joinRows)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	last := rows[len(rows)-1]
	j.task, j.seq, j.More = last.Task, last.Seq, len(rows) == joinRows
	seqs := map[uuid.UUID][]int64{}
	for _, r := range rows {
		seqs[r.Task] = append(seqs[r.Task], r.Seq)
	}
	calls, err := s.q.CallersLock(ctx, tx, slices.Collect(maps.Keys(seqs)))
	if err != nil {
		return nil, err
	}
	var waiting []uuid.UUID
	for _, c := range calls {
		if !c.Free {
			j.Blocked = true
			delete(seqs, c.Child)
		}
		if c.Waits {
			waiting = append(waiting, c.Parent)
		}
	}
	var tasks []uuid.UUID
	var newest []int64
	for id, all := range seqs {
		tasks, newest = append(tasks, id), append(newest, all[len(all)-1]) // the rows are in order
	}
	if _, err := s.q.CallsSettle(ctx, tx, tasks, newest); err != nil {
		return nil, err
	}
	if agents, err = s.q.CallersWake(ctx, tx, waiting); err != nil {
		return nil, err
	}
	over, err := s.q.CallersEnded(ctx, tx, tasks)
	if err != nil {
		return nil, err
	}
	for _, id := range over {
		j.Ended = append(j.Ended, Settled{task.ID(id), seqs[id]})
		delete(seqs, id)
	}
	var done []uuid.UUID
	var dropped []int64
	for id, all := range seqs {
		for _, seq := range all {
			done, dropped = append(done, id), append(dropped, seq)
		}
	}
	_, err = s.q.SettledDrop(ctx, tx, done, dropped)
	return agents, err
}

// OpenCalls ends the calls of a task that have not begun, and returns the tasks that it has called and that have not ended.
// Errors: task.Unavailable; Blocked.
func (s *Store) OpenCalls(ctx context.Context, parent task.ID) ([]*task.Task, error) {
	if err := s.q.CallsVoid(ctx, s.brief(s.hot), uuid.UUID(parent)); err != nil {
		return nil, translate("end calls", err)
	}
	// A call that began before is visible to this statement: one of the two has waited for the other's commit.
	rows, err := s.q.CallsUnended(ctx, s.hot, uuid.UUID(parent))
	if err != nil {
		return nil, translate("find called tasks", err)
	}
	open := make([]*task.Task, len(rows))
	for i := range rows {
		open[i] = header(&rows[i])
	}
	return open, nil
}

// ForgetSettled forgets an ended task whose calls have ended. Errors: task.Unavailable; Blocked.
func (s *Store) ForgetSettled(ctx context.Context, t Settled) error {
	tasks := make([]uuid.UUID, len(t.seqs))
	for i := range tasks {
		tasks[i] = uuid.UUID(t.Task)
	}
	if _, err := s.q.SettledDrop(ctx, s.brief(s.hot), tasks, t.seqs); err != nil {
		return translate("forget calls", err)
	}
	return translate("forget calls", s.q.CallsErase(ctx, s.brief(s.hot), uuid.UUID(t.Task)))
}

// Results returns the results of the calls of a run note, in the order of the calls, with contents of at most so many bytes.
// The content of a result that does not fit any more is left out. Errors: task.Unavailable.
func (s *Store) Results(ctx context.Context, of *task.Task, note task.Seq, most int64) ([]task.Result, error) {
	rows, err := s.q.CallResults(ctx, s.api, uuid.UUID(of.ID), int64(note))
	if err != nil {
		return nil, translate("read results", err)
	}
	out := make([]task.Result, len(rows))
	for i, r := range rows {
		out[i] = task.Result{ID: r.CallID, Agent: r.Agent, State: task.State(r.State), Error: r.Error}
		if r.Error != "" {
			continue
		}
		out[i].TaskID = task.ID(r.Child).String()
		size, err := s.result(ctx, r.Child, task.Seq(r.ChildSeq), most, &out[i])
		if err != nil {
			return nil, err
		}
		most -= size
	}
	return out, nil
}

// result reads the content of a result: the message of the status upto, and the artifacts before it. It returns their size.
func (s *Store) result(ctx context.Context, child uuid.UUID, upto task.Seq, most int64, r *task.Result) (size int64, err error) {
	row, err := s.q.TaskByID(ctx, s.api, child)
	if errors.Is(err, pgx.ErrNoRows) {
		r.Error = "the task was deleted"
		return 0, nil
	}
	if err != nil {
		return 0, translate("read results", err)
	}
	h := header(&row)
	r.Agent = h.Agent
	status, err := s.EventsAfter(ctx, h, task.Position{Seq: upto - 1}, 1)
	if err != nil {
		return 0, err
	}
	for _, e := range status {
		switch m := e.Message; {
		case m == nil:
		case m.Size() > most:
			r.Omitted = m.Size()
		default:
			r.Message, size = m, m.Size()
		}
	}
	// The bytes of all chunks, so at least those of the artifacts.
	if size+row.ArtifactBytes > most {
		r.Omitted += row.ArtifactBytes
		return size, nil
	}
	f := newFold(h)
	h.LastSeq = min(h.LastSeq, upto)
	_, err = s.walk(ctx, s.api, h, 0, walkRows, true, func(row *dbsqlc.EventsOfRow) error {
		if task.EventKind(row.Kind) != task.EventArtifact {
			return nil // there may be much of it
		}
		return f.add(row)
	})
	if err != nil {
		return 0, translate("read results", err)
	}
	r.Artifacts = f.task.Artifacts
	for i := range r.Artifacts {
		size += r.Artifacts[i].Size()
	}
	return size, nil
}

// CallRow is a call as operators see it.
type CallRow struct {
	ID       string     `json:"id"`
	Agent    string     `json:"agent,omitempty"`
	Parent   task.ID    `json:"-"`
	Task     task.ID    `json:"task"`
	Answers  bool       `json:"-"`
	Result   task.State `json:"result,omitzero"` // unspecified: none yet
	Error    string     `json:"error,omitempty"`
	CalledAt time.Time  `json:"called_at"`
}

// Calls returns the calls of a task, and the one that has created it, in their order.
func (s *Store) Calls(ctx context.Context, id task.ID) ([]CallRow, error) {
	rows, err := s.q.CallsOf(ctx, s.api, uuid.UUID(id))
	if err != nil {
		return nil, translate("read calls", err)
	}
	out := make([]CallRow, len(rows))
	for i, r := range rows {
		out[i] = CallRow{
			ID: r.CallID, Agent: r.Agent, Parent: task.ID(r.Parent), Task: task.ID(r.Child), Answers: r.Answers, Result: task.State(r.State.Int16), Error: r.Error.String, CalledAt: r.CreatedAt,
		}
	}
	return out, nil
}

// kin tells the duty calls that there may be something to do.
func (s *Store) kin(n int32) {
	if n > 0 && s.listener != nil {
		s.listener.CallsDue()
	}
}

// ready announces that agents have rows to claim.
func (s *Store) ready(agents []string) {
	if s.listener == nil {
		return
	}
	slices.Sort(agents)
	for _, agent := range slices.Compact(agents) {
		s.listener.Ready(agent)
	}
}
