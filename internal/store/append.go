package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Append is a write of a run: the next events of its attempt.
type Append struct {
	Task    task.ID
	Agent   string
	Attempt task.Attempt
	Ordinal int64 // number of events that the attempt wrote before
	Events  []*task.Event
	// Done is called once, by a writer, in order for each task. It must not block. The error is
	// task.LeaseLost if the run was fenced; then none of the events were written. requeued says
	// that the run wanted to park, but the task was queued again for a waiting message.
	Done func(requeued bool, err error)

	payloads []string
}

func (a *Append) size() (n int) {
	for _, p := range a.payloads {
		n += len(p)
	}
	return n
}

// Append queues a run's events for the next commit and does not block. The fence is checked in that
// commit: a run with an outdated attempt writes nothing.
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

type runKey struct {
	id      task.ID
	attempt task.Attempt
}

func (s *Store) flushAppends(ctx context.Context, items []*Append) { s.writeAppends(ctx, items, false) }

// writeAppends writes items in one commit. repeated says that an earlier try may have been
// committed.
func (s *Store) writeAppends(ctx context.Context, items []*Append, repeated bool) {
	start := time.Now()
	groups, arg := groupAppends(items)
	for try := 0; ; try++ {
		rows, err := s.q.EventsAppend(ctx, s.hot, arg)
		if err == nil {
			s.flushed("append", len(arg.Tasks), start)
			s.finishAppends(ctx, groups, rows, repeated)
			return
		}
		switch f := classifyTry(err, try); {
		case f == failFinal && len(groups) > 1:
			for _, g := range groups {
				s.writeAppends(ctx, g.items, repeated)
			}
			return
		case f == failFinal || ctx.Err() != nil:
			for _, a := range items {
				a.Done(false, translate("append", err))
			}
			return
		case f == failUnknown:
			repeated = true
		}
		// The run waits while the database is unavailable. If it loses its lease meanwhile, the
		// fence refuses the write when the database is back.
		s.retried(ctx, "append", err, try)
		_ = pause(ctx, try)
	}
}

func groupAppends(items []*Append) ([]*appendGroup, dbsqlc.EventsAppendParams) {
	var groups []*appendGroup
	byRun := make(map[runKey]*appendGroup, len(items))
	n := 0
	for _, a := range items {
		k := runKey{a.Task, a.Attempt}
		g := byRun[k]
		if g == nil {
			g = &appendGroup{}
			byRun[k] = g
			groups = append(groups, g)
		}
		g.items = append(g.items, a)
		g.events += len(a.Events)
		n += len(a.Events)
	}
	arg := dbsqlc.EventsAppendParams{
		Tasks: make([]uuid.UUID, 0, n), Attempts: make([]int32, 0, n), Ordinals: make([]int64, 0, n),
		Kinds: make([]int16, 0, n), States: make([]int16, 0, n), Directs: make([]bool, 0, n),
		Appends: make([]bool, 0, n), Lasts: make([]bool, 0, n),
		ArtifactIds: make([]string, 0, n), Payloads: make([]string, 0, n), ArtifactSizes: make([]int64, 0, n),
	}
	for _, g := range groups {
		for _, a := range g.items {
			for i, e := range a.Events {
				arg.Tasks = append(arg.Tasks, uuid.UUID(a.Task))
				arg.Attempts = append(arg.Attempts, int32(a.Attempt))
				arg.Ordinals = append(arg.Ordinals, g.items[0].Ordinal)
				arg.Kinds = append(arg.Kinds, int16(e.Kind))
				arg.States = append(arg.States, int16(e.State))
				arg.Directs = append(arg.Directs, e.Direct)
				arg.Appends = append(arg.Appends, e.Append)
				arg.Lasts = append(arg.Lasts, e.Last)
				id, size := "", int64(0)
				if e.Artifact != nil {
					id, size = cleanName(e.Artifact.ID), e.Artifact.Size()
				}
				arg.ArtifactIds, arg.ArtifactSizes = append(arg.ArtifactIds, id), append(arg.ArtifactSizes, size)
				arg.Payloads = append(arg.Payloads, a.payloads[i])
			}
		}
	}
	return groups, arg
}

func (s *Store) finishAppends(ctx context.Context, groups []*appendGroup, rows []dbsqlc.EventsAppendRow, repeated bool) {
	wrote := make(map[runKey]*dbsqlc.EventsAppendRow, len(rows))
	for i := range rows {
		r := &rows[i]
		wrote[runKey{task.ID(r.ID), task.Attempt(r.Attempt)}] = r
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
		events = append(events, g.stamp(r)...)
	}
	if len(events) > 0 {
		s.committed(events...)
	}
	if len(rows) > 0 {
		s.marked(rows[0].Marked) // of the whole statement
	}
	for _, g := range groups {
		if r := wrote[runKey{g.items[0].Task, g.items[0].Attempt}]; r != nil {
			g.done(r.Again, nil)
			if r.Again && s.listener != nil {
				s.listener.Ready(g.items[0].Agent)
			}
		}
	}
	if len(missing) > 0 {
		s.finishMissing(ctx, missing, repeated)
	}
}

// stamp sets the seq and the time of the events. Nobody else sees them before.
func (g *appendGroup) stamp(r *dbsqlc.EventsAppendRow) []*task.Event {
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

// finishMissing answers the groups without a row. It tells fenced runs from those whose first try
// was committed before its connection died.
func (s *Store) finishMissing(ctx context.Context, missing []*appendGroup, repeated bool) {
	stands := map[task.ID]dbsqlc.RunStatesRow{}
	if repeated {
		arg := dbsqlc.RunStatesParams{Ids: make([]uuid.UUID, len(missing))}
		for i, g := range missing {
			arg.Ids[i] = uuid.UUID(g.items[0].Task)
		}
		arg.Lowest, arg.Highest = span(arg.Ids)
		for try := 0; ; try++ {
			var rows []dbsqlc.RunStatesRow
			err := s.proven(ctx, s.hot, func(db dbsqlc.DBTX) (err error) {
				rows, err = s.q.RunStates(ctx, db, arg)
				return err
			})
			if err == nil {
				for _, r := range rows {
					stands[task.ID(r.ID)] = r
				}
				break
			}
			if !unavailable(err) || ctx.Err() != nil {
				for _, g := range missing {
					g.done(false, translate("append", err))
				}
				return
			}
			s.retried(ctx, "append", err, try)
			_ = pause(ctx, try)
		}
	}
	for _, g := range missing {
		first := g.items[0]
		r, ok := stands[first.Task]
		if ok && task.Attempt(r.Attempt) == first.Attempt && r.RunOrdinal >= first.Ordinal+int64(g.events) {
			if s.listener != nil {
				s.listener.Advanced(first.Task, task.Seq(r.LastSeq))
			}
			if r.Pushes {
				s.marked(1) // maybe
			}
			last, now := g.items[len(g.items)-1].Events, task.State(r.State)
			requeued := last[len(last)-1].State.Parked() && !now.Settled()
			g.done(requeued, nil)
			if requeued && s.listener != nil {
				s.listener.Ready(first.Agent)
			}
			continue
		}
		if s.observe.Fenced != nil {
			s.observe.Fenced(len(g.items))
		}
		g.done(false, task.LeaseLost)
	}
}
