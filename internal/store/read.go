package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Owner scopes every look-up that a caller causes: a task of another tenant,
// subject or agent does not exist for it.
type Owner struct {
	Tenant  string
	Subject string
	Agent   string
	// TenantWide is for agents whose tasks all of a tenant sees. New tasks are the subject's all the same.
	TenantWide bool
}

// FindTask finds a task by its public id and returns its header: no history, no
// artifacts, and of the status only the state. Not there and not the owner's are
// the same task.NotFound.
func (v View) FindTask(ctx context.Context, o Owner, publicID string) (*task.Task, error) {
	// A server-made id is the primary key. A client of 0.1 may have chosen an id that looks
	// like one, so the other index is tried as well.
	if id, err := task.ParseID(publicID); err == nil {
		row, err := v.s.q.TaskFind(ctx, v.db, dbsqlc.TaskFindParams{
			ID: uuid.UUID(id), Tenant: o.Tenant, Owner: o.Subject, TenantWide: o.TenantWide, Agent: o.Agent,
		})
		if !errors.Is(err, pgx.ErrNoRows) {
			return found(&row, err)
		}
	}
	name := cleanName(publicID)
	if o.TenantWide {
		row, err := v.s.q.TaskByClientIDOfTenant(ctx, v.db, dbsqlc.TaskByClientIDOfTenantParams{
			Tenant: o.Tenant, Owner: o.Subject, Agent: o.Agent, ClientID: name,
		})
		return found(&row, err)
	}
	row, err := v.s.q.TaskByClientID(ctx, v.db, dbsqlc.TaskByClientIDParams{
		Tenant: o.Tenant, Owner: o.Subject, Agent: o.Agent, ClientID: name,
	})
	return found(&row, err)
}

func found(row *dbsqlc.Task, err error) (*task.Task, error) {
	if err != nil {
		return nil, translate("find task", err)
	}
	return header(row), nil
}

// Header reads a task by its internal id, like FindTask without asking whose it is.
func (v View) Header(ctx context.Context, id task.ID) (*task.Task, error) {
	row, err := v.s.q.TaskByID(ctx, v.db, uuid.UUID(id))
	return found(&row, err)
}

func header(r *dbsqlc.Task) *task.Task {
	t := &task.Task{
		ID: task.ID(r.ID), Agent: r.Agent, Tenant: r.Tenant, Owner: r.Owner, ContextID: r.ContextID,
		Dialect: r.Dialect, Metadata: rawJSON(r.Metadata), CreatedAt: r.CreatedAt, Direct: r.Direct,
		StreamBase: task.Seq(r.StreamBase.Int64), LastSeq: task.Seq(r.LastSeq),
		Status: task.Status{State: task.State(r.State), At: r.StatusAt, Seq: task.Seq(r.StatusSeq)},
	}
	t.PublicID = t.ID.String()
	if r.ClientID.Valid {
		t.PublicID = r.ClientID.String
	}
	return t
}

// ReadTask finds a task by its public id and folds its log: FindTask and Snapshot, with one statement where the id is one
// that the server has made. Without artifacts their events are not even read.
func (v View) ReadTask(ctx context.Context, o Owner, publicID string, withArtifacts bool) (*task.Task, error) {
	if id, err := task.ParseID(publicID); err == nil {
		rows, err := v.s.q.TaskRead(ctx, v.db, dbsqlc.TaskReadParams{
			ID: uuid.UUID(id), Tenant: o.Tenant, Owner: o.Subject, TenantWide: o.TenantWide, Agent: o.Agent, WithArtifacts: withArtifacts,
		})
		if err != nil {
			return nil, translate("read task", err)
		}
		inOrder(rows, func(r *dbsqlc.TaskReadRow) int64 { return r.Seq })
		if len(rows) > 0 && rows[0].Seq == 1 {
			h, err := headerBeside(&rows[0], o)
			if err != nil {
				return nil, translate("read task", err)
			}
			return fold(h, len(rows), func(i int) dbsqlc.Event {
				r := &rows[i]
				return dbsqlc.Event{
					Task: r.Task, Seq: r.Seq, Kind: r.Kind, State: r.State, Attempt: r.Attempt, Append: r.Append, Last: r.Last,
					ArtifactID: r.ArtifactID, Payload: r.Payload, CreatedAt: r.CreatedAt,
				}
			})
		}
	}
	h, err := v.FindTask(ctx, o, publicID)
	if err != nil {
		return nil, err
	}
	return v.Snapshot(ctx, h, withArtifacts)
}

// headerBeside reads what TaskRead gives of the task beside its first event.
func headerBeside(r *dbsqlc.TaskReadRow, o Owner) (*task.Task, error) {
	var h struct {
		Owner, ContextID, Dialect string
		Metadata                  *json.RawMessage // null and none are different things to RawMessage itself
		CreatedAt                 time.Time
		StreamBase, LastSeq       task.Seq
	}
	if err := json.Unmarshal(r.Header, &h); err != nil {
		return nil, err
	}
	t := &task.Task{
		ID: task.ID(r.Task), PublicID: task.ID(r.Task).String(), Agent: o.Agent, Tenant: o.Tenant, Owner: h.Owner, ContextID: h.ContextID,
		Dialect: h.Dialect, CreatedAt: h.CreatedAt, StreamBase: h.StreamBase, LastSeq: h.LastSeq,
	}
	if h.Metadata != nil {
		t.Metadata = *h.Metadata
	}
	return t, nil
}

// Snapshot folds the log of the task that a header describes, up to the header's
// last event. Without artifacts their events are not even read.
func (v View) Snapshot(ctx context.Context, h *task.Task, withArtifacts bool) (*task.Task, error) {
	rows, err := v.s.eventsOf(ctx, v.db, h, withArtifacts)
	if err != nil {
		return nil, translate("read task", err)
	}
	return fold(h, len(rows), func(i int) dbsqlc.Event { return eventOf(&rows[i]) })
}

func (s *Store) eventsOf(ctx context.Context, db dbsqlc.DBTX, h *task.Task, withArtifacts bool) ([]dbsqlc.EventsOfRow, error) {
	rows, err := s.q.EventsOf(ctx, db, dbsqlc.EventsOfParams{Task: uuid.UUID(h.ID), Upto: int64(h.LastSeq), WithArtifacts: withArtifacts})
	inOrder(rows, func(r *dbsqlc.EventsOfRow) int64 { return r.Seq })
	return rows, err
}

// inOrder sorts events that a statement has given as it came by them, which are most likely in order.
func inOrder[R any](rows []R, seq func(*R) int64) {
	for i := 1; i < len(rows); i++ {
		if seq(&rows[i-1]) > seq(&rows[i]) {
			slices.SortFunc(rows, func(a, b R) int { return cmp.Compare(seq(&a), seq(&b)) })
			return
		}
	}
}

func eventOf(r *dbsqlc.EventsOfRow) dbsqlc.Event {
	return dbsqlc.Event{
		Task: r.Task, Seq: r.Seq, Kind: r.Kind, State: r.State, Attempt: r.Attempt, Append: r.Append, Last: r.Last,
		ArtifactID: r.ArtifactID, Payload: r.Payload, CreatedAt: r.CreatedAt,
	}
}

// fold makes a task of its header and n events of its log.
func fold(h *task.Task, n int, row func(i int) dbsqlc.Event) (*task.Task, error) {
	t := Empty(h)
	for i := range n {
		r := row(i)
		e, err := event(&r, t)
		if err != nil {
			return nil, translate("read task", err)
		}
		// Left-out artifacts leave holes that Apply would refuse.
		t.LastSeq = e.Seq - 1
		if err := t.Apply(e); err != nil {
			return nil, err
		}
	}
	t.LastSeq = h.LastSeq
	return t, nil
}

// Conversation is what was said before a message gets its run: all messages before
// it, and what earlier runs have said since, for it may have waited behind some. Its
// run begins at the last submitted status behind it, if it had to wait.
func (s *Store) Conversation(ctx context.Context, h *task.Task, message task.Seq) ([]task.Message, error) {
	rows, err := s.eventsOf(ctx, s.api, h, false)
	if err != nil {
		return nil, translate("read conversation", err)
	}
	begins := message
	for i := range rows {
		if r := &rows[i]; task.Seq(r.Seq) > message && task.State(r.State.Int16) == task.StateSubmitted {
			begins = task.Seq(r.Seq)
		}
	}
	t := Empty(h)
	for i := range rows {
		r := eventOf(&rows[i])
		e, err := event(&r, t)
		switch {
		case err != nil:
			return nil, translate("read conversation", err)
		case e.Seq > begins, e.Kind == task.EventMessage && e.Seq >= message:
			continue
		}
		t.LastSeq = e.Seq - 1
		if err := t.Apply(e); err != nil {
			return nil, err
		}
	}
	if t.Status.Message != nil {
		return append(t.History, *t.Status.Message), nil
	}
	return t.History, nil
}

// Empty is the task of a header before its first event, ready to be folded.
func Empty(h *task.Task) *task.Task {
	return &task.Task{
		ID: h.ID, PublicID: h.PublicID, Agent: h.Agent, Tenant: h.Tenant, Owner: h.Owner,
		ContextID: h.ContextID, Dialect: h.Dialect, Metadata: h.Metadata, CreatedAt: h.CreatedAt,
		StreamBase: h.StreamBase,
	}
}

// EventsAfter reads the next events of a log, at most limit. owner fills in what
// messages do not repeat.
func (s *Store) EventsAfter(ctx context.Context, owner *task.Task, after task.Seq, limit int) ([]*task.Event, error) {
	rows, err := s.q.EventsAfter(ctx, s.api, dbsqlc.EventsAfterParams{
		Task: uuid.UUID(owner.ID), After: int64(after), MaxRows: int32(limit),
	})
	if err != nil {
		return nil, translate("read events", err)
	}
	out := make([]*task.Event, len(rows))
	for i := range rows {
		if out[i], err = event(&rows[i], owner); err != nil {
			return nil, translate("read events", err)
		}
	}
	return out, nil
}

// Position is how far a reader has come in one log.
type Position struct {
	Owner *task.Task
	After task.Seq
}

// span is the lowest and the highest of ids, by which statements about many tasks pass over partitions.
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

// CatchUp reads what is new in many logs with one query, at most limit events of each.
func (s *Store) CatchUp(ctx context.Context, at []Position, limit int) ([]*task.Event, error) {
	arg := dbsqlc.EventsCatchUpParams{MaxRows: int32(limit)}
	owners := make(map[uuid.UUID]*task.Task, len(at))
	for _, p := range at {
		id := uuid.UUID(p.Owner.ID)
		arg.Tasks = append(arg.Tasks, id)
		arg.Afters = append(arg.Afters, int64(p.After))
		owners[id] = p.Owner
	}
	arg.Lowest, arg.Highest = span(arg.Tasks)
	rows, err := s.q.EventsCatchUp(ctx, s.hot, arg)
	if err != nil {
		return nil, translate("catch up", err)
	}
	out := make([]*task.Event, 0, len(rows))
	for i := range rows {
		e, err := event(&rows[i], owners[rows[i].Task])
		if err != nil {
			return nil, translate("catch up", err)
		}
		out = append(out, e)
	}
	return out, nil
}

// LastSeqs tells how long many logs are: the poll behind the hints.
func (s *Store) LastSeqs(ctx context.Context, ids []task.ID) (map[task.ID]task.Seq, error) {
	arg := make([]uuid.UUID, len(ids))
	for i, id := range ids {
		arg[i] = uuid.UUID(id)
	}
	rows, err := s.q.TaskSeqs(ctx, s.hot, arg)
	if err != nil {
		return nil, translate("poll", err)
	}
	out := make(map[task.ID]task.Seq, len(rows))
	for _, r := range rows {
		out[task.ID(r.ID)] = task.Seq(r.LastSeq)
	}
	return out, nil
}

// ArtifactIDs lists the artifacts of a task in the order of their first appearance.
func (s *Store) ArtifactIDs(ctx context.Context, id task.ID) ([]string, error) {
	rows, err := s.q.ArtifactIDs(ctx, s.api, uuid.UUID(id))
	if err != nil {
		return nil, translate("read artifacts", err)
	}
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = r.ArtifactID
	}
	return out, nil
}

func event(r *dbsqlc.Event, owner *task.Task) (*task.Event, error) {
	e := &task.Event{
		Task: task.ID(r.Task), Seq: task.Seq(r.Seq), Kind: task.EventKind(r.Kind),
		Attempt: task.Attempt(r.Attempt), At: r.CreatedAt,
		State: task.State(r.State.Int16), Append: r.Append, Last: r.Last,
	}
	if e.Kind == task.EventArtifact {
		e.Artifact = &task.Artifact{ID: r.ArtifactID.String}
	}
	return e, decodePayload(e, r.Payload, owner)
}

func rawJSON(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
