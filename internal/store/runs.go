package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Run is an attempt as a request of the run API finds it.
type Run struct {
	*Claimed       // of a run that is over: only Task, Attempt and CancelRequested
	Owned    bool  // a worker has it; otherwise the run is over
	Posted   bool  // the run API writes its events; otherwise its worker
	Ordinal  int64 // how many events that has written
	Timed    bool  // its task waits for a timer
	Since    time.Time
}

// FindRun returns the newest attempt of a task, with its message if wanted. Errors: task.NotFound.
func (s *Store) FindRun(ctx context.Context, id task.ID, withMessage bool) (*Run, error) {
	row, err := s.q.RunFor(ctx, s.api, withMessage, uuid.UUID(id))
	if err != nil {
		return nil, translate("read run", err)
	}
	r := &Run{
		Owned: row.Owned, Posted: row.Task.Posted, Ordinal: row.Task.RunOrdinal,
		Timed: row.Task.WakesAt.Valid, Since: row.Task.ClaimedAt.Time,
	}
	r.Claimed = s.claimed(ctx, &row.Task, queued{
		row.MessageSeq, row.InputSeq, row.Interrupted, row.Turn, row.Tries, row.Spared, row.Payload, row.Input, "",
	})
	if !withMessage {
		r.Unreadable = nil
	}
	return r, nil
}

// HandOver makes the run API the writer of an attempt, whose events until now must be committed. It may be repeated.
// Errors: task.LeaseLost.
func (s *Store) HandOver(ctx context.Context, id task.ID, run task.Fence) error {
	err := s.unlocked(ctx, "hand_over", func() error {
		_, err := s.q.RunHandOver(ctx, s.brief(s.hot), uuid.UUID(id), int32(run.Attempt), claimedAt(run))
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return task.LeaseLost
	}
	return translate("hand over a run", err)
}

// Beat notes that the agent of an attempt is there, and counts posted events that have no row in the log: those from ordinal
// to after. With a negative ordinal it counts none. It may be
// repeated, and returns whether the run was asked to end. Errors: task.LeaseLost, also if another upload has come between.
func (s *Store) Beat(ctx context.Context, id task.ID, run task.Fence, ordinal, after int64) (canceled bool, err error) {
	leave, err := s.turns.enter(ctx, id)
	if err != nil {
		return false, err
	}
	defer leave()
	err = s.View.again(ctx, "beat", func() (err error) {
		canceled, err = s.q.RunBeat(ctx, s.writes(), dbsqlc.RunBeatParams{ID: uuid.UUID(id), Attempt: int32(run.Attempt), ClaimedAt: claimedAt(run), Ordinal: max(ordinal, -1), After: after})
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, task.LeaseLost
	}
	return canceled, translate("note a sign of life", err)
}

// Silence returns for how long the agent of an attempt has not called the run API; never says that it has not at all.
func (s *Store) Silence(ctx context.Context, id task.ID, run task.Fence) (d time.Duration, never bool, err error) {
	d, err = s.q.RunSilence(ctx, s.hot, uuid.UUID(id), int32(run.Attempt), claimedAt(run))
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, true, nil
	}
	return d, false, translate("read a sign of life", err)
}

// Ending is what became of an attempt that is over.
type Ending struct {
	task.Fence // of the task now
	State      task.State
	Waits      bool // for a timer
}

// Ended returns those of the runs that are over.
func (s *Store) Ended(ctx context.Context, runs map[task.ID]task.Fence) (map[task.ID]Ending, error) {
	arg := dbsqlc.RunsEndedParams{Ids: []uuid.UUID{}, Attempts: []int32{}, Claims: []time.Time{}}
	for id, run := range runs {
		arg.Ids = append(arg.Ids, uuid.UUID(id))
		arg.Attempts, arg.Claims = append(arg.Attempts, int32(run.Attempt)), append(arg.Claims, claimedAt(run))
	}
	if len(arg.Ids) == 0 {
		return nil, nil
	}
	arg.Lowest, arg.Highest = span(arg.Ids)
	rows, err := s.q.RunsEnded(ctx, s.hot, arg)
	if err != nil {
		return nil, translate("ended runs", err)
	}
	out := make(map[task.ID]Ending, len(rows))
	for _, r := range rows {
		out[task.ID(r.ID)] = Ending{fenceOf(r.Attempt, r.ClaimedAt), task.State(r.State), r.Waits}
	}
	return out, nil
}

// Artifact is an entry of the list of a task's artifacts.
type Artifact struct {
	ID, Name string
	Chunks   int
	Bytes    int64 // as stored, where it may be compressed
	Last     bool
	Seq      task.Seq // the event with which it first appeared: its place in the list
}

// Artifacts lists the artifacts of a task, in the order in which they first appeared, after a place.
func (s *Store) Artifacts(ctx context.Context, h *task.Task, after task.Seq, most int) ([]Artifact, error) {
	var all []Artifact
	places := map[string]int{} // in all
	begins := []int64{}        // the first events of their present contents
	err := s.alongLog(ctx, h.ID, func(from, upto int64) error {
		rows, err := s.q.ArtifactsListed(ctx, s.api, uuid.UUID(h.ID), from, upto)
		for _, r := range rows {
			i, known := places[r.ArtifactID]
			if !known {
				i = len(all)
				places[r.ArtifactID] = i
				all, begins = append(all, Artifact{ID: r.ArtifactID, Seq: task.Seq(r.FirstSeq)}), append(begins, r.FirstSeq)
			}
			a := &all[i]
			if r.Begins > 0 {
				a.Chunks, a.Bytes, begins[i] = 0, 0, r.Begins
			}
			a.Chunks, a.Bytes, a.Last = a.Chunks+int(r.Chunks), a.Bytes+r.Size, r.Last
		}
		return err
	})
	if err != nil {
		return nil, translate("list artifacts", err)
	}
	first, _ := slices.BinarySearchFunc(all, after+1, func(a Artifact, seq task.Seq) int { return cmp.Compare(a.Seq, seq) })
	page := all[first:min(first+most, len(all))]
	begins = begins[first : first+len(page)]
	rows, err := s.q.ArtifactNames(ctx, s.api, uuid.UUID(h.ID), begins)
	for _, r := range rows {
		page[slices.Index(begins, r.Seq)].Name = r.Name
	}
	return page, translate("list artifacts", err)
}

// Records returns what durable runs of a task have recorded after a place, oldest first: at least one if there is one, and of at most
// so many bytes. next is the place after which others follow; 0: none do.
func (s *Store) Records(ctx context.Context, h *task.Task, after task.Seq, bytes int64) (records []json.RawMessage, next task.Seq, err error) {
	most := &meter{DBTX: s.api, most: bytes}
	for ; after < h.LastSeq && !most.cut; after += logRange {
		rows, err := s.q.RecordsOf(ctx, most, uuid.UUID(h.ID), int64(after), int64(after+logRange))
		if err != nil {
			return nil, 0, translate("read the records", err)
		}
		for _, r := range rows {
			records, next = append(records, r.Record), task.Seq(r.Seq)
		}
	}
	if !most.cut {
		next = 0
	}
	return records, next, nil
}

// logRange bounds the events that a statement looks at along a log. It takes far less than the time of a statement.
const logRange = 20_000

// alongLog calls do for each part of a log, from the beginning. after is exclusive.
func (s *Store) alongLog(ctx context.Context, id task.ID, do func(after, upto int64) error) error {
	last, err := s.LastSeqs(ctx, []task.ID{id})
	for after := int64(0); err == nil && after < int64(last[id]); after += logRange {
		err = do(after, after+logRange)
	}
	return err
}

// Artifact returns an artifact with its whole content, whose bytes the account of ctx takes. Errors: task.NotFound,
// task.TooLarge, task.Unavailable, task.RateLimited.
func (s *Store) Artifact(ctx context.Context, h *task.Task, id string) (*task.Artifact, error) {
	var u utterance
	err := s.alongLog(ctx, h.ID, func(after, upto int64) error {
		chunks, err := s.q.ArtifactChunks(ctx, s.api, dbsqlc.ArtifactChunksParams{
			Task: uuid.UUID(h.ID), ArtifactID: cleanName(id), After: after, Upto: upto,
		})
		for _, c := range chunks {
			if !c.Append {
				u = utterance{}
			}
			u.seqs, u.size = append(u.seqs, c.Seq), u.size+c.Size
		}
		return err
	})
	if err != nil {
		return nil, translate("read artifact", err)
	}
	slices.Reverse(u.seqs)
	if len(u.seqs) == 0 {
		return nil, task.Errorf(task.NotFound, "the task has no artifact with this id")
	}
	account := limit.AccountOf(ctx)
	if err := account.Reserve(ctx, u.size); err != nil {
		return nil, err
	}
	bySeq := make(map[int64]*dbsqlc.EventsAtRow, len(u.seqs))
	for rest := u.seqs; len(rest) > 0; {
		m := &meter{DBTX: s.api, most: pageBytes, account: account}
		part := rest[:min(len(rest), logRange)]
		rows, err := s.q.EventsAt(ctx, m, uuid.UUID(h.ID), part)
		if err != nil {
			return nil, translate("read artifact", err)
		}
		if m.cut && len(rows) == 0 {
			if err := account.Reserve(ctx, m.row); err != nil {
				return nil, err
			}
			continue
		}
		for i := range rows {
			bySeq[rows[i].Event.Seq] = &rows[i]
		}
		if !m.cut {
			rest = rest[len(part):]
			continue
		}
		left := rest[:0:0]
		for _, seq := range rest {
			if bySeq[seq] == nil {
				left = append(left, seq)
			}
		}
		rest = left
	}
	said, err := entry(h, &u, bySeq)
	if err != nil {
		return nil, translate("read artifact", err)
	}
	if said == nil {
		return nil, task.Errorf(task.NotFound, "the artifact was deleted meanwhile")
	}
	return said.Artifact, nil
}

// Begun reports whether an attempt has written a part of an artifact.
func (s *Store) Begun(ctx context.Context, id task.ID, attempt task.Attempt, artifact string) (bool, error) {
	begun, err := s.q.ArtifactBegun(ctx, s.api, uuid.UUID(id), cleanName(artifact), int32(attempt))
	return begun, translate("read artifact", err)
}

// Sibling finds another task of an owner and an agent in the context of a task by its public id. Errors: task.NotFound.
func (s *Store) Sibling(ctx context.Context, of *task.Task, publicID string) (*task.Task, error) {
	v := s.As(task.Caller{Tenant: of.Tenant, Subject: of.Owner}, Visibility{Agent: of.Agent})
	h, err := v.FindTask(ctx, publicID)
	if err == nil && (h.ContextID != of.ContextID || h.ID == of.ID) {
		err = task.NotFound
	}
	return h, err
}

// Siblings lists the other tasks of an owner and an agent in the context of a task that have ended or are parked, the newest
// first, from before a task on.
func (s *Store) Siblings(ctx context.Context, of *task.Task, before task.ID, most int) ([]*task.Task, error) {
	arg := dbsqlc.ContextTasksParams{
		ContextID: of.ContextID, Tenant: of.Tenant, Owner: of.Owner, Agent: of.Agent,
		Before: uuid.UUID(before), Besides: uuid.UUID(of.ID), MaxRows: int32(most),
	}
	if before.IsZero() {
		arg.Before = uuid.Max
	}
	rows, err := s.q.ContextTasks(ctx, s.api, arg)
	if err != nil {
		return nil, translate("list tasks of the context", err)
	}
	out := make([]*task.Task, len(rows))
	for i := range rows {
		out[i] = header(&rows[i])
	}
	return out, nil
}
