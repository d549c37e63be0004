package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sort"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// FindTask finds a task by its public id and returns its header: no history, no artifacts, and of
// the status only the state. Errors: task.NotFound, both for a missing task and for one that the
// view does not see.
func (v View) FindTask(ctx context.Context, publicID string) (*task.Task, error) {
	// A server-made id is the primary key. A client of 0.1 may have chosen an id that looks
	// like one, so the other index is tried as well.
	if id, err := task.ParseID(publicID); err == nil {
		row, err := v.s.q.TaskFind(ctx, v.db, dbsqlc.TaskFindParams{
			ID: uuid.UUID(id), Tenant: v.by.Tenant, Owner: v.by.Subject, TenantWide: v.sees.TenantWide, Agent: v.sees.Agent,
		})
		if !errors.Is(err, pgx.ErrNoRows) {
			return found(&row, err)
		}
	}
	for last := uuid.Nil; ; {
		named, err := v.taskNamed(ctx, cleanName(publicID))
		if err != nil {
			return nil, translate("find task", err)
		}
		row, err := v.s.q.TaskNamed(ctx, v.db, dbsqlc.TaskNamedParams{
			ID: named, ClientID: cleanName(publicID), Tenant: v.by.Tenant, Owner: v.by.Subject, TenantWide: v.sees.TenantWide, Agent: v.sees.Agent,
		})
		// Another task may take over the name between the two statements.
		if !errors.Is(err, pgx.ErrNoRows) || named == last {
			return found(&row, err)
		}
		last = named
	}
}

func (v View) taskNamed(ctx context.Context, name string) (uuid.UUID, error) {
	if v.sees.TenantWide {
		return v.s.q.NameGetOfTenant(ctx, v.db, dbsqlc.NameGetOfTenantParams{
			Tenant: v.by.Tenant, Owner: v.by.Subject, Agent: v.sees.Agent, ClientID: name,
		})
	}
	return v.s.q.NameGet(ctx, v.db, dbsqlc.NameGetParams{Tenant: v.by.Tenant, Owner: v.by.Subject, Agent: v.sees.Agent, ClientID: name})
}

func found(row *dbsqlc.Task, err error) (*task.Task, error) {
	if err != nil {
		return nil, translate("find task", err)
	}
	return header(row), nil
}

// Header reads a task by its internal id, like FindTask but without a check of the owner.
func (v View) Header(ctx context.Context, id task.ID) (*task.Task, error) {
	row, err := v.s.q.TaskByID(ctx, v.db, uuid.UUID(id))
	return found(&row, err)
}

func header(r *dbsqlc.Task) *task.Task {
	t := &task.Task{
		ID: task.ID(r.ID), Agent: r.Agent, Tenant: r.Tenant, Owner: r.Owner, ContextID: r.ContextID,
		Dialect: r.Dialect, Metadata: rawJSON(r.Metadata), CreatedAt: r.CreatedAt, Direct: r.Direct, Traceparent: r.Traceparent.String,
		StreamBase: task.Seq(r.StreamBase.Int64), LastSeq: task.Seq(r.LastSeq),
		Status: task.Status{State: task.State(r.State), At: r.StatusAt, Seq: task.Seq(r.StatusSeq)},
	}
	if r.RetriedAs != nil {
		t.RetriedAs = task.ID(*r.RetriedAs)
	}
	t.PublicID = t.ID.String()
	if r.ClientID.Valid {
		t.PublicID = r.ClientID.String
	}
	return t
}

// ReadTask finds a task by its public id and folds its log, like FindTask and Snapshot. For a
// server-made id one statement reads the task and the beginning of its log. Without artifacts it does not read their
// events.
func (v View) ReadTask(ctx context.Context, publicID string, withArtifacts bool) (*task.Task, error) {
	if id, err := task.ParseID(publicID); err == nil {
		if t, err := v.readEnded(ctx, id, withArtifacts); t != nil || err != nil {
			return t, err
		}
		m := &meter{DBTX: v.db, most: pageBytes, account: limit.AccountOf(ctx)}
		rows, err := v.s.q.TaskRead(ctx, m, dbsqlc.TaskReadParams{
			ID: uuid.UUID(id), Tenant: v.by.Tenant, Owner: v.by.Subject, TenantWide: v.sees.TenantWide, Agent: v.sees.Agent, WithArtifacts: withArtifacts, Upto: walkRows,
		})
		if err != nil && !slow(ctx, err) {
			return nil, translate("read task", err)
		}
		if err != nil || m.cut {
			m.account.Unuse(m.read)
			h, err := v.FindTask(ctx, publicID)
			if err != nil {
				return nil, err
			}
			return v.readRest(ctx, h, newFold(h), 0, walkRows/4, 0, withArtifacts)
		}
		inOrder(rows, func(r *dbsqlc.TaskReadRow) int64 { return r.Seq })
		if len(rows) > 0 && rows[0].Seq == 1 {
			h, err := v.headerBeside(id, rows[0].Header)
			if err != nil {
				return nil, translate("read task", err)
			}
			f := newFold(h)
			for i := range rows {
				r := &rows[i]
				if err := f.add(&dbsqlc.EventsOfRow{
					Seq: r.Seq, Kind: r.Kind, State: r.State, Append: r.Append, ArtifactID: r.ArtifactID, Payload: r.Payload, CreatedAt: r.CreatedAt,
				}); err != nil {
					return nil, translate("read task", err)
				}
			}
			return v.readRest(ctx, h, f, walkRows, 2*walkRows, m.read, withArtifacts)
		}
	}
	h, err := v.FindTask(ctx, publicID)
	if err != nil {
		return nil, err
	}
	return v.Snapshot(ctx, h, withArtifacts)
}

// headerBeside decodes the header that TaskRead and TaskWitness return with an event.
func (v View) headerBeside(id task.ID, beside []byte) (*task.Task, error) {
	var h struct {
		Owner, ContextID, Dialect string
		Metadata                  *json.RawMessage // RawMessage alone cannot tell null from absent
		CreatedAt                 time.Time
		StreamBase, LastSeq       task.Seq
	}
	if err := json.Unmarshal(beside, &h); err != nil {
		return nil, err
	}
	t := &task.Task{
		ID: id, PublicID: id.String(), Agent: v.sees.Agent, Tenant: v.by.Tenant, Owner: h.Owner, ContextID: h.ContextID,
		Dialect: h.Dialect, CreatedAt: h.CreatedAt, StreamBase: h.StreamBase, LastSeq: h.LastSeq,
	}
	if h.Metadata != nil {
		t.Metadata = *h.Metadata
	}
	return t, nil
}

// Snapshot folds the log of the task that a header describes, up to the header's last event.
// Without artifacts it does not read their events. Errors: task.TooLarge and task.Unavailable if the
// account of the request has no memory for it.
func (v View) Snapshot(ctx context.Context, h *task.Task, withArtifacts bool) (*task.Task, error) {
	kept, err := v.witnessed(ctx, []*task.Task{h}, true)
	if err != nil {
		return nil, translate("read task", err)
	}
	if f := kept[h.ID]; f != nil {
		if err := f.afford(ctx); err != nil {
			return nil, translate("read task", err)
		}
		return f.shows(h, withArtifacts), nil
	}
	return v.readRest(ctx, h, newFold(h), 0, walkRows, 0, withArtifacts)
}

// readRest adds the events of a log after some event to a fold, and returns its task. It keeps the task in memory if it has
// ended. The first page has at most so many rows; those that were added before had so many bytes.
func (v View) readRest(ctx context.Context, h *task.Task, f *fold, after, rows, read int64, withArtifacts bool) (*task.Task, error) {
	more, err := v.s.walk(ctx, v.db, h, after, rows, withArtifacts, f.add)
	if err != nil {
		return nil, translate("read task", err)
	}
	// The task may have been deleted after its header or a page was read.
	if after < int64(h.LastSeq) && f.task.LastSeq < h.LastSeq {
		if _, err := v.s.Header(ctx, h.ID); err != nil {
			return nil, err
		}
	}
	f.task.LastSeq = h.LastSeq
	if withArtifacts {
		v.s.ended.put(f.task, true, read+more, f.seen)
	}
	return f.task, nil
}

// fold is a task that grows by the events of its log.
type fold struct {
	task *task.Task
	seen fingerprint
	// The task copies what it keeps of an artifact event, so all of them are decoded into one.
	chunk    task.Event
	artifact task.Artifact
	parts    [1]task.Part
}

func newFold(h *task.Task) *fold { return &fold{task: Empty(h)} }

func (f *fold) add(r *dbsqlc.EventsOfRow) error {
	f.seen.add(r.Kind, r.Seq, r.CreatedAt)
	e := &f.chunk
	if task.EventKind(r.Kind) == task.EventArtifact {
		f.artifact = task.Artifact{Parts: f.parts[:0]}
		*e = task.Event{Artifact: &f.artifact}
	} else {
		e = &task.Event{}
	}
	if err := decode(e, eventOf(r), f.task); err != nil {
		return err
	}
	// Left-out artifacts leave holes that Apply would refuse.
	f.task.LastSeq = e.Seq - 1
	return f.task.Apply(e)
}

// walkRows is how many events the first statement for a log reads, and mostRows the most of a further
// one.
const (
	walkRows = 512
	mostRows = 4096
)

// walk visits the events of a log after some event in order, up to the header's last event. It reads them in pages of
// pageBytes, the first one of so many rows, for which it takes bytes from the account of the request, and returns the bytes
// of all.
func (s *Store) walk(ctx context.Context, db dbsqlc.DBTX, h *task.Task, after, step int64, withArtifacts bool, visit func(*dbsqlc.EventsOfRow) error) (read int64, err error) {
	account := limit.AccountOf(ctx)
	defer account.Trim()
	for after < int64(h.LastSeq) {
		m := &meter{DBTX: db, most: pageBytes, account: account}
		rows, err := s.q.EventsOf(ctx, m, dbsqlc.EventsOfParams{
			Task: uuid.UUID(h.ID), After: after, Upto: min(after+step, int64(h.LastSeq)), WithArtifacts: withArtifacts,
		})
		if err != nil && (step == 1 || !slow(ctx, err)) {
			return read, err
		}
		if err != nil || m.cut {
			// The rows come in any order, so those before the cut are of no use.
			account.Unuse(m.read)
			step = max(step/4, 1)
			if err := account.Reserve(ctx, max(m.read, m.row)); err != nil {
				return read, err
			}
			continue
		}
		inOrder(rows, func(r *dbsqlc.EventsOfRow) int64 { return r.Seq })
		for i := range rows {
			if err := visit(&rows[i]); err != nil {
				return read, err
			}
		}
		read += m.read
		if after += step; m.read < pageBytes/4 {
			step = min(step*2, mostRows)
		}
	}
	return read, nil
}

// inOrder sorts the rows of a statement without ORDER BY. They are a few runs in order, of a partition each, which a stable
// sort merges.
func inOrder[R any](rows []R, seq func(*R) int64) {
	sort.SliceStable(rows, func(i, j int) bool { return seq(&rows[i]) < seq(&rows[j]) }) // slices would copy both rows to the heap
}

// eventOf is the part of an event that a task shows: not its attempt, nor whether it ends an artifact.
func eventOf(r *dbsqlc.EventsOfRow) *dbsqlc.Event {
	return &dbsqlc.Event{
		Seq: r.Seq, Kind: r.Kind, State: r.State, Append: r.Append, ArtifactID: r.ArtifactID, Payload: r.Payload, CreatedAt: r.CreatedAt,
	}
}

// Conversation returns the history before a turn: the client's messages before the event said, and what
// earlier runs wrote, also while the turn's message was queued. The turn begins at the event begins or, if
// its message was queued, at the last submitted status after that.
func (s *Store) Conversation(ctx context.Context, h *task.Task, said, begins task.Seq) ([]task.Message, error) {
	var rows []dbsqlc.EventsOfRow
	_, err := s.walk(ctx, s.api, h, 0, walkRows, false, func(r *dbsqlc.EventsOfRow) error { rows = append(rows, *r); return nil })
	if err != nil {
		return nil, translate("read conversation", err)
	}
	for i := range rows {
		if r := &rows[i]; task.Seq(r.Seq) > begins && task.State(r.State.Int16) == task.StateSubmitted {
			begins = task.Seq(r.Seq)
		}
	}
	f := newFold(h)
	for i := range rows {
		if r := &rows[i]; task.Seq(r.Seq) > begins || task.EventKind(r.Kind) == task.EventMessage && task.Seq(r.Seq) >= said {
			continue
		}
		if err := f.add(&rows[i]); err != nil {
			return nil, translate("read conversation", err)
		}
	}
	if t := f.task; t.Status.Message != nil {
		return append(t.History, *t.Status.Message), nil
	}
	return f.task.History, nil
}

// Empty returns the task of a header before its first event, ready to apply events.
func Empty(h *task.Task) *task.Task {
	return &task.Task{
		ID: h.ID, PublicID: h.PublicID, Agent: h.Agent, Tenant: h.Tenant, Owner: h.Owner,
		ContextID: h.ContextID, Dialect: h.Dialect, Metadata: h.Metadata, CreatedAt: h.CreatedAt,
		StreamBase: h.StreamBase, Traceparent: h.Traceparent,
	}
}

// readBytes is how much EventsAfter reads, unless one event alone is larger.
const readBytes = 1 << 20

// ErrReplaced says that a log has another event at the reader's position than the one that the reader saw: the database
// has lost that one.
var ErrReplaced = errors.New("the database has lost the event of this position")

// EventsAfter reads the next events of a log, at most limit, and fewer if they are large. owner supplies the members that
// messages do not repeat. Errors: ErrReplaced.
func (s *Store) EventsAfter(ctx context.Context, owner *task.Task, after task.Position, limit int) ([]*task.Event, error) {
	rows, err := s.q.EventsAfter(ctx, &meter{DBTX: s.api, most: readBytes}, int64(after.Seq), uuid.UUID(owner.ID), int32(limit))
	if err != nil {
		return nil, translate("read events", err)
	}
	if len(rows) > 0 && replaced(after, rows[0].BeforeAt) {
		return nil, ErrReplaced
	}
	out := make([]*task.Event, len(rows))
	for i := range rows {
		if out[i], err = event(&rows[i].Event, owner); err != nil {
			return nil, translate("read events", err)
		}
	}
	return out, nil
}

// Unchanged reports whether a log still has events that were read before. Errors: ErrReplaced, as of EventsAfter.
func (s *Store) Unchanged(ctx context.Context, id task.ID, after task.Position, events []*task.Event) (bool, error) {
	arg := dbsqlc.EventsWitnessParams{Lowest: uuid.UUID(id), Highest: uuid.UUID(id)}
	ask := func(seq task.Seq) {
		arg.Tasks, arg.Seqs = append(arg.Tasks, uuid.UUID(id)), append(arg.Seqs, int64(seq))
	}
	at := make(map[int64]time.Time, len(events))
	for _, e := range events {
		ask(e.Seq)
		at[int64(e.Seq)] = e.At
	}
	if after.Seq > 0 {
		ask(after.Seq)
	}
	rows, err := s.q.EventsWitness(ctx, s.api, arg)
	if err != nil {
		return false, translate("read events", err)
	}
	same := 0
	for i := range rows {
		r := &rows[i]
		if r.Seq == int64(after.Seq) && replaced(after, r.CreatedAt.UnixMicro()) {
			return false, ErrReplaced
		}
		if was, wanted := at[r.Seq]; wanted && was.Equal(r.CreatedAt) {
			same++
		}
	}
	return same == len(at), nil
}

// replaced reports whether the event at a position was committed at another time than the one that the reader saw.
func replaced(after task.Position, micros int64) bool {
	return micros != 0 && !after.Mark.Fits(task.MarkAt(time.UnixMicro(micros)))
}

// Holds reports whether the log of a task still has the event of a position. Retention may have deleted it: then nothing
// has replaced it.
func (v View) Holds(ctx context.Context, h *task.Task, p task.Position) (bool, error) {
	at, err := v.s.q.EventAt(ctx, v.db, uuid.UUID(h.ID), int64(p.Seq))
	if errors.Is(err, pgx.ErrNoRows) {
		return true, nil
	}
	return p.Mark.Fits(task.MarkAt(at)), translate("read event", err)
}

// Position is the position of a reader in one log.
type Position struct {
	Owner *task.Task
	After task.Position
}

// span returns the lowest and the highest of ids. Statements about many tasks use them to prune
// partitions.
func span(ids []uuid.UUID) (lowest, highest uuid.UUID) {
	for i, id := range ids {
		if i == 0 || bytes.Compare(id[:], lowest[:]) < 0 {
			lowest = id
		}
		if bytes.Compare(id[:], highest[:]) > 0 {
			highest = id
		}
	}
	return lowest, highest
}

// CatchUp reads the new events of many logs with one query, at most limit events of each.
func (s *Store) CatchUp(ctx context.Context, at []Position, limit int) (*CaughtUp, error) {
	arg := dbsqlc.EventsCatchUpParams{MaxRows: int32(limit)}
	from := make(map[uuid.UUID]*Position, len(at))
	for i := range at {
		p := &at[i]
		id := uuid.UUID(p.Owner.ID)
		arg.Tasks = append(arg.Tasks, id)
		arg.Afters = append(arg.Afters, int64(p.After.Seq))
		from[id] = p
	}
	arg.Lowest, arg.Highest = span(arg.Tasks)
	m := &meter{DBTX: s.hot, most: pageBytes}
	rows, err := s.q.EventsCatchUp(ctx, m, arg)
	if err != nil {
		return nil, translate("catch up", err)
	}
	out := &CaughtUp{Events: make([]*task.Event, 0, len(rows)), Cut: m.cut, Unreadable: map[task.ID]error{}}
	for i := range rows {
		r := &rows[i]
		id := task.ID(r.Task)
		if out.Unreadable[id] != nil {
			continue
		}
		p := from[r.Task]
		if replaced(p.After, r.BeforeAt) {
			out.Unreadable[id] = ErrReplaced
			continue
		}
		e, err := event(&dbsqlc.Event{
			Task: r.Task, Seq: r.Seq, Kind: r.Kind, State: r.State, Attempt: r.Attempt, Append: r.Append, Last: r.Last,
			ArtifactID: r.ArtifactID, Payload: r.Payload, CreatedAt: r.CreatedAt,
		}, p.Owner)
		if err != nil {
			out.Unreadable[id] = translate("catch up", err)
			continue
		}
		out.Events = append(out.Events, e)
	}
	return out, nil
}

// CaughtUp is what CatchUp has read.
type CaughtUp struct {
	Events     []*task.Event
	Cut        bool              // logs have more events, which did not fit
	Unreadable map[task.ID]error // logs with an event that cannot be decoded, which is left out with those after it; or ErrReplaced
}

// LastSeqs returns the last seq of many logs. The poll that finds lost hints uses it.
func (s *Store) LastSeqs(ctx context.Context, ids []task.ID) (map[task.ID]task.Seq, error) {
	all := uuids(ids)
	lowest, highest := span(all)
	rows, err := s.q.TaskSeqs(ctx, s.hot, all, lowest, highest)
	if err != nil {
		return nil, translate("poll", err)
	}
	out := make(map[task.ID]task.Seq, len(rows))
	for _, r := range rows {
		out[task.ID(r.ID)] = task.Seq(r.LastSeq)
	}
	return out, nil
}

// ArtifactIDs lists the artifacts of an open task in the order of their first appearance. An artifact
// may be listed twice.
func (s *Store) ArtifactIDs(ctx context.Context, id task.ID) ([]string, error) {
	ids, err := s.q.ArtifactIDs(ctx, s.api, uuid.UUID(id))
	return ids, translate("read artifacts", err)
}

// event decodes the row of an event of the owner's log.
func event(r *dbsqlc.Event, owner *task.Task) (*task.Event, error) {
	e := &task.Event{}
	return e, decode(e, r, owner)
}

// decode fills an event. It uses the artifact of the event if that has one.
func decode(e *task.Event, r *dbsqlc.Event, owner *task.Task) error {
	e.Task, e.Seq, e.Kind, e.Attempt, e.At = owner.ID, task.Seq(r.Seq), task.EventKind(r.Kind), task.Attempt(r.Attempt), r.CreatedAt
	e.State, e.Append, e.Last = task.State(r.State.Int16), r.Append, r.Last
	if e.Kind == task.EventArtifact {
		if e.Artifact == nil {
			e.Artifact = &task.Artifact{}
		}
		e.Artifact.ID = r.ArtifactID.String
	}
	return decodePayload(e, r.Payload, owner)
}

func rawJSON(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
