package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Append is a write of a run: the next events of its attempt.
type Append struct {
	Task  task.ID
	Agent string
	task.Fence
	Ordinal int64 // number of events that the writer of the attempt wrote before, or AnyOrdinal
	Events  []*task.Event
	// Posted: the run API writes them, at any replica. After is the number of posted events with these. The error ErrPosted says
	// that another upload has come between.
	Posted bool
	After  int64
	// Done is called once, by a writer, in order for each task. It must not block. The error is
	// task.LeaseLost if the run was fenced; then none of the events were written. requeued says
	// that the run wanted to park or to wait, but the next turn is due already.
	Done func(requeued bool, err error)

	payloads []string
}

// AnyOrdinal is that of a status with which the server ends a run, whatever its writer has written.
const AnyOrdinal = -1

// ErrPosted says that other events have been posted in the place of these.
var ErrPosted = errors.New("other events were posted meanwhile")

func (a *Append) task() task.ID { return a.Task }

// after is the ordinal of the next append.
func (a *Append) after() int64 {
	switch {
	case a.Ordinal == AnyOrdinal:
		return AnyOrdinal
	case a.Posted:
		return a.After
	}
	return a.Ordinal + int64(len(a.Events))
}

func (a *Append) size() (n int) {
	for _, p := range a.payloads {
		n += len(p)
	}
	return n
}

// Append queues a run's events for the next commit and does not block. The fence is checked in that
// commit: a run with an outdated fence writes nothing.
func (s *Store) Append(a *Append) {
	a.payloads = make([]string, len(a.Events))
	for i, e := range a.Events {
		a.payloads[i] = EncodePayload(e)
	}
	if !s.appends[s.shard(a.Task)].add(a) {
		// Call Done from another goroutine: the caller may hold a lock that Done needs.
		go a.Done(false, task.Errorf(task.Unavailable, "the server is stopping"))
	}
}

// appendGroup is the consecutive appends of one run in one flush: one row lock, one range of seqs.
type appendGroup struct {
	items  []*Append
	events int
}

// metadata returns that of all statuses of the group, or "".
func (g *appendGroup) metadata() string {
	var merged json.RawMessage
	for _, a := range g.items {
		for _, e := range a.Events {
			if e.Kind == task.EventStatus {
				merged = task.Merge(merged, e.Metadata)
			}
		}
	}
	return string(merged)
}

func (g *appendGroup) last() *Append { return g.items[len(g.items)-1] }

// end returns the newest event of the group, the only one that may end its run.
func (g *appendGroup) end() *task.Event {
	last := g.last()
	return last.Events[len(last.Events)-1]
}

type runKey struct {
	id      task.ID
	attempt task.Attempt
}

// writeAppends writes items in one commit. It returns those whose rows another session has locked.
func (s *Store) writeAppends(ctx context.Context, items []*Append) (blocked []*Append) {
	start := time.Now()
	groups, others := groupAppends(items)
	if len(others) > 0 {
		items = slices.DeleteFunc(slices.Clone(items), func(a *Append) bool { return slices.Contains(others, a) })
		blocked = s.writeAppends(ctx, items)
		return append(blocked, s.writeAppends(ctx, others)...)
	}
	arg := appendParams(groups)
	next, wait := turns(groups)
	for try := 0; ; try++ {
		written, err := s.appendRows(ctx, arg, next, wait)
		if err == nil {
			s.flushed("append", countEvents(groups), start)
			return s.finishAppends(ctx, groups, written)
		}
		switch f := classifyTry(err, try); {
		case f == failFinal && len(groups) > 1:
			for _, g := range groups {
				blocked = append(blocked, s.writeAppends(ctx, g.items)...)
			}
			return blocked
		case f == failFinal || ctx.Err() != nil:
			for _, a := range items {
				a.Done(false, translate("append", err))
			}
			return nil
		case f == failBlocked:
			s.retried(ctx, "append", err, try)
			return items
		}
		// The run waits while the database is unavailable. If it loses its lease meanwhile, the
		// fence refuses the write when the database is back.
		s.retried(ctx, "append", err, try)
		_ = pause(ctx, try)
	}
}

// groupAppends sorts the appends of a statement by runs. A run may have two uploads at the same time, and beside it there may be
// one with the same attempt whose claim was lost. But one statement has one sequence of events of an attempt, up to the one that ends
// it: others has the rest.
func groupAppends(items []*Append) (groups []*appendGroup, others []*Append) {
	byRun := make(map[runKey]*appendGroup, len(items))
	for _, a := range items {
		k := runKey{a.Task, a.Attempt}
		g := byRun[k]
		if g != nil && (g.settles() || a.Posted != g.last().Posted || a.Ordinal != g.last().after() || a.Fence != g.last().Fence) {
			others = append(others, a)
			continue
		}
		if g == nil {
			g = &appendGroup{}
			byRun[k] = g
			groups = append(groups, g)
		}
		g.items = append(g.items, a)
		g.events += len(a.Events)
	}
	return groups, others
}

func countEvents(groups []*appendGroup) (n int) {
	for _, g := range groups {
		n += g.events
	}
	return n
}

// appended is what an append has written.
type appended struct {
	rows  []dbsqlc.EventsAppendRow
	next  []uuid.UUID // whose next turn has begun, instead of parking
	waits []dbsqlc.TurnsWaitRow
}

// appendRows writes runs. Statements of their own, in the same transaction, write waits and further turns, which few runs have.
func (s *Store) appendRows(ctx context.Context, arg dbsqlc.EventsAppendParams, next dbsqlc.TurnsNextParams, wait dbsqlc.TurnsWaitParams) (w appended, err error) {
	queries := []func(dbsqlc.DBTX) error{func(db dbsqlc.DBTX) (err error) {
		w.rows, err = s.q.EventsAppend(ctx, db, arg)
		return err
	}}
	if len(next.Tasks) > 0 {
		queries = append(queries, func(db dbsqlc.DBTX) (err error) {
			w.next, err = s.q.TurnsNext(ctx, db, next)
			return err
		})
	}
	if len(wait.Tasks) > 0 {
		queries = append(queries, func(db dbsqlc.DBTX) (err error) {
			w.waits, err = s.q.TurnsWait(ctx, db, wait)
			return err
		})
	}
	err = s.write.together(ctx, queries...)
	return w, err
}

// turns returns the runs that may begin another turn with their append: those that park, and those that wait.
func turns(groups []*appendGroup) (next dbsqlc.TurnsNextParams, wait dbsqlc.TurnsWaitParams) {
	for _, g := range groups {
		last, end := g.last(), g.end()
		id, attempt, claim := uuid.UUID(last.Task), int32(last.Attempt), claimedAt(last.Fence)
		switch {
		case end.Waits():
			wait.Tasks, wait.Attempts, wait.Claims = append(wait.Tasks, id), append(wait.Attempts, attempt), append(wait.Claims, claim)
			wait.Notes = append(wait.Notes, last.payloads[len(last.payloads)-1])
		case end.State.Parked():
			next.Tasks, next.Attempts, next.Claims = append(next.Tasks, id), append(next.Attempts, attempt), append(next.Claims, claim)
			next.Resumes = append(next.Resumes, end.Resumable > 0)
		}
	}
	return next, wait
}

func appendParams(groups []*appendGroup) dbsqlc.EventsAppendParams {
	runs, n := len(groups), countEvents(groups)
	arg := dbsqlc.EventsAppendParams{
		Tasks: make([]uuid.UUID, runs), Attempts: make([]int32, runs), Claims: make([]time.Time, runs), Ordinals: make([]int64, runs),
		Posts: make([]bool, runs), Afters: make([]int64, runs), Counts: make([]int64, runs), Asked: make([]int16, runs),
		StatusRns: make([]int64, runs), ShownRns: make([]int64, runs), Directs: make([]bool, runs), ArtifactSizes: make([]int64, runs),
		Listings: make([]bool, runs), Resumes: make([]float64, runs), Metadatas: make([]string, runs),
		Runs: make([]int32, 0, n), Rns: make([]int64, 0, n), Kinds: make([]int16, 0, n), States: make([]int16, 0, n),
		Appends: make([]bool, 0, n), Lasts: make([]bool, 0, n), ArtifactIds: make([]string, 0, n), Payloads: make([]string, 0, n),
	}
	for run, g := range groups {
		first, rn := g.items[0], int64(0)
		arg.Tasks[run], arg.Attempts[run], arg.Claims[run] = uuid.UUID(first.Task), int32(first.Attempt), claimedAt(first.Fence)
		arg.Ordinals[run], arg.Posts[run], arg.Afters[run] = first.Ordinal, first.Posted, g.last().after()
		arg.Counts[run], arg.Metadatas[run] = int64(g.events), g.metadata()
		for _, a := range g.items {
			for i, e := range a.Events {
				rn++
				if e.Streamed() {
					arg.ShownRns[run] = rn
				}
				if e.Waits() {
					continue // TurnsWait writes it
				}
				id := ""
				if e.Artifact != nil {
					id = cleanName(e.Artifact.ID)
					arg.ArtifactSizes[run] += e.Artifact.Size()
				}
				if e.State != 0 {
					arg.Asked[run], arg.StatusRns[run], arg.Directs[run] = int16(e.State), rn, e.Direct
					arg.Listings[run], arg.Resumes[run] = len(e.Artifacts) > 0, e.Resumable.Seconds()
				}
				arg.Runs, arg.Rns = append(arg.Runs, int32(run+1)), append(arg.Rns, rn)
				arg.Kinds, arg.States = append(arg.Kinds, int16(e.Kind)), append(arg.States, int16(e.State))
				arg.Appends, arg.Lasts = append(arg.Appends, e.Append), append(arg.Lasts, e.Last)
				arg.ArtifactIds, arg.Payloads = append(arg.ArtifactIds, id), append(arg.Payloads, a.payloads[i])
			}
		}
	}
	return arg
}

// finishAppends answers the groups that were written. It returns those of others that another session's lock blocks.
func (s *Store) finishAppends(ctx context.Context, groups []*appendGroup, w appended) (blocked []*Append) {
	wrote := make(map[runKey]*dbsqlc.EventsAppendRow, len(w.rows))
	for i := range w.rows {
		r := &w.rows[i]
		wrote[runKey{task.ID(r.ID), task.Attempt(r.Attempt)}] = r
	}
	again, until := map[task.ID]bool{}, map[task.ID]time.Time{}
	for _, id := range w.next {
		again[task.ID(id)] = true
	}
	for _, r := range w.waits {
		again[task.ID(r.ID)], until[task.ID(r.ID)] = r.Again, r.WakesAt
	}
	var missing []*appendGroup
	var events []*task.Event
	for _, g := range groups {
		first := g.items[0]
		r := wrote[runKey{first.Task, first.Attempt}]
		if r == nil {
			missing = append(missing, g)
			continue
		}
		events = append(events, g.stamp(r, until[first.Task])...)
	}
	if len(events) > 0 {
		s.committed(events...)
	}
	if len(w.rows) > 0 {
		s.marked(w.rows[0].Marked) // of the whole statement
	}
	if slices.ContainsFunc(w.rows, func(r dbsqlc.EventsAppendRow) bool { return r.Kin > 0 }) ||
		slices.ContainsFunc(w.waits, func(r dbsqlc.TurnsWaitRow) bool { return r.Kin > 0 }) {
		s.kin(1)
	}
	for _, g := range groups {
		if r := wrote[runKey{g.items[0].Task, g.items[0].Attempt}]; r != nil {
			s.canceled(g.items[0].Agent, r.CancelSeconds)
			g.done(again[g.items[0].Task], nil)
			if again[g.items[0].Task] && s.listener != nil {
				s.listener.Ready(g.items[0].Agent)
			}
			if s.listener != nil && g.ends() {
				s.listener.CancelWanted(g.items[0].Task) // its worker may be another process
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return s.finishMissing(ctx, missing)
}

// canceled tells the observer of the end of a task that was canceled so many seconds before; negative: it was not.
func (s *Store) canceled(agent string, seconds float64) {
	if seconds >= 0 && s.observe.Canceled != nil {
		s.observe.Canceled(agent, time.Duration(seconds*float64(time.Second)))
	}
}

// stamp sets the seq and the time of the events, and the end of a wait. Nobody else sees them before.
func (g *appendGroup) stamp(r *dbsqlc.EventsAppendRow, until time.Time) []*task.Event {
	out := make([]*task.Event, 0, g.events)
	seq := task.Seq(r.Base)
	var status *task.Event
	for _, a := range g.items {
		for _, e := range a.Events {
			seq++
			e.Task, e.Seq, e.At, e.Attempt = a.Task, seq, r.At, a.Attempt
			if e.Kind == task.EventStatus {
				status = e
			}
			if e.Kind == task.EventRun && e.Run.Outcome == task.RunWaits {
				e.Run.Until, e.Run.For = until, 0
			}
			out = append(out, e)
		}
	}
	if status != nil {
		status.State = task.State(r.State)
	}
	return out
}

func (g *appendGroup) done(requeued bool, err error) {
	for _, a := range g.items {
		a.Done(requeued, err)
	}
}

// finishMissing handles the groups without a row. Their rows tell whether another session has locked
// the task, an earlier try was committed before its connection died, or the run was fenced. It
// returns the first kind and answers the others.
func (s *Store) finishMissing(ctx context.Context, missing []*appendGroup) (blocked []*Append) {
	ids := make([]uuid.UUID, len(missing))
	for i, g := range missing {
		ids[i] = uuid.UUID(g.items[0].Task)
	}
	lowest, highest := span(ids)
	var now map[task.ID]dbsqlc.RunStatesRow
	read := func(db dbsqlc.DBTX) error {
		rows, err := s.q.RunStates(ctx, db, ids, lowest, highest)
		now = make(map[task.ID]dbsqlc.RunStatesRow, len(missing))
		for _, r := range rows {
			now[task.ID(r.ID)] = r
		}
		return err
	}
	for try := 0; ; try++ {
		err := read(s.write)
		if err == nil && slices.ContainsFunc(missing, func(g *appendGroup) bool { return g.isIn(now) }) {
			err = s.proven(ctx, s.write, read)
		}
		if err == nil {
			break
		}
		if !unavailable(err) || ctx.Err() != nil {
			for _, g := range missing {
				g.done(false, translate("append", err))
			}
			return nil
		}
		s.retried(ctx, "append", err, try)
		_ = pause(ctx, try)
	}
	for _, g := range missing {
		first := g.items[0]
		r, ok := now[first.Task]
		owned := ok && r.Owned && fenceOf(r.Attempt, r.ClaimedAt) == first.Fence
		writes := owned && r.Posted == first.Posted
		begun := g.last().after() == 0 && !g.settles() && task.State(r.State) == task.StateWorking // it was only the status working
		switch {
		case writes && r.RunOrdinal == first.Ordinal && !begun, owned && first.Ordinal == AnyOrdinal:
			if s.observe.Retried != nil {
				s.observe.Retried("append")
			}
			blocked = append(blocked, g.items...)
		case g.isIn(now):
			s.committedBefore(g, &r)
		case writes && first.Posted:
			g.done(false, ErrPosted)
		default:
			if s.observe.Fenced != nil {
				s.observe.Fenced(len(g.items))
			}
			g.done(false, task.LeaseLost)
		}
	}
	return blocked
}

// isIn reports whether the group is among what the runs have written.
func (g *appendGroup) isIn(now map[task.ID]dbsqlc.RunStatesRow) bool {
	last := g.last()
	r, ok := now[last.Task]
	switch {
	case !ok || fenceOf(r.Attempt, r.ClaimedAt) != last.Fence:
		return false
	case last.Ordinal == AnyOrdinal:
		return !r.Owned && task.State(r.State) == g.end().State
	}
	// An upload that ends the run is not in the log of one that goes on: another upload has used its ordinals.
	return r.Posted == last.Posted && r.RunOrdinal >= last.after() && (!r.Owned || !g.settles())
}

// ends reports whether the group ends a run that another process may execute.
func (g *appendGroup) ends() bool { return g.last().Posted && g.settles() }

// settles reports whether the group ends its run.
func (g *appendGroup) settles() bool {
	end := g.end()
	return end.Waits() || end.Kind == task.EventStatus && end.State.Settled()
}

// committedBefore answers a group that an earlier try has written.
func (s *Store) committedBefore(g *appendGroup, r *dbsqlc.RunStatesRow) {
	first := g.items[0]
	if s.listener != nil {
		s.listener.Advanced(first.Task, task.Seq(r.LastSeq))
	}
	if r.Pushes {
		s.marked(1) // maybe
	}
	s.kin(1) // maybe
	end, now := g.end(), task.State(r.State)
	requeued := (end.State.Parked() || end.Waits()) && !now.Settled()
	g.done(requeued, nil)
	if requeued && s.listener != nil {
		s.listener.Ready(first.Agent)
	}
	if s.listener != nil && g.ends() {
		s.listener.CancelWanted(first.Task)
	}
}
