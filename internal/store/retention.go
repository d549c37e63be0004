package store

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The writes of retention, in small batches. Package retention decides what to delete and when.

// Batch sizes: the number of rows that one statement moves or deletes. Locks last for a few
// milliseconds.
const (
	retainTasks  = 200
	retainEvents = 1000
)

// Span is a range of tasks by the time in their ids: the tasks that are still in a period, or
// (Kept) the tasks that outlived their period.
type Span struct {
	From, To time.Time
	Kept     bool
}

// Everything is the span of all tasks that outlived their period.
var Everything = Span{From: time.Unix(0, 0), To: time.UnixMilli(1<<48 - 1), Kept: true}

func (p Span) ids() (lowest, highest uuid.UUID) {
	return partition.FirstID(p.From), partition.FirstID(p.To)
}

// ParkedAgents lists the agents that have parked tasks.
func (s *Store) ParkedAgents(ctx context.Context) ([]string, error) {
	agents, err := s.q.ParkedAgents(ctx, s.hot)
	return agents, translate("parked agents", err)
}

// ExpireParked cancels tasks of an agent that have been parked for longer than after, with reason
// as their status message. more says that there may be others.
func (s *Store) ExpireParked(ctx context.Context, agent string, after time.Duration, reason string) (n int, more bool, err error) {
	var rows []dbsqlc.ParkedExpireRow
	err = s.again(ctx, "expire", func() (err error) {
		rows, err = s.q.ParkedExpire(ctx, s.hot, dbsqlc.ParkedExpireParams{
			Agent: agent, After: after, Reason: reason, MaxRows: retainTasks, Notice: s.noticed(agent),
		})
		return err
	})
	if err != nil {
		return 0, false, translate("expire parked tasks", err)
	}
	events := make([]*task.Event, len(rows))
	for i, r := range rows {
		events[i] = &task.Event{
			Task: task.ID(r.ID), Seq: task.Seq(r.Seq), Kind: task.EventStatus, At: r.At, State: task.StateCanceled,
			Message: &task.Message{ID: "expired-" + r.ID.String(), Role: task.RoleAgent, Parts: []task.Part{task.Text(reason)}},
		}
	}
	if len(rows) > 0 {
		s.committed(events...)
		s.marked(rows[0].Marked)
		for _, r := range rows {
			s.kin(r.Kin)
		}
	}
	return len(rows), len(rows) == retainTasks, nil
}

// EndedAgents lists the agents of the ended tasks of a span.
func (s *Store) EndedAgents(ctx context.Context, p Span) ([]string, error) {
	lowest, highest := p.ids()
	agents, err := s.q.EndedAgents(ctx, s.hot, p.Kept, lowest, highest)
	return agents, translate("agents of ended tasks", err)
}

// EndedBefore returns a page of an agent's tasks that ended before a time and are not held, the
// oldest first, after a place.
func (s *Store) EndedBefore(ctx context.Context, p Span, agent string, before time.Time, after Place) ([]*task.Task, error) {
	lowest, highest := p.ids()
	rows, err := s.q.EndedBefore(ctx, s.hot, dbsqlc.EndedBeforeParams{
		Kept: p.Kept, Lowest: lowest, Highest: highest, Agent: agent, Before: before,
		AfterAt: after.At, AfterID: uuid.UUID(after.ID), MaxRows: retainTasks,
	})
	if err != nil {
		return nil, translate("ended tasks", err)
	}
	out := make([]*task.Task, len(rows))
	for i := range rows {
		out[i] = header(&rows[i])
	}
	return out, nil
}

// KeepOpen marks the open tasks of a period as kept, so that their new events go outside of it.
// left is the number of locked tasks that it skipped; if it is not 0, call again.
func (s *Store) KeepOpen(ctx context.Context, p Span) (moved, left int64, err error) {
	lowest, highest := p.ids()
	for {
		r, err := s.q.OpenKeep(ctx, s.hot, lowest, highest, retainTasks)
		if err != nil {
			return moved, 0, translate("keep open tasks", err)
		}
		if moved += r.Moved; r.Moved == 0 || r.Remaining == 0 {
			return moved, r.Remaining, nil
		}
	}
}

// KeepEnded moves the tasks of an agent that ended at since or later out of their period.
func (s *Store) KeepEnded(ctx context.Context, p Span, agent string, since time.Time) (int64, error) {
	return s.keepEnded(ctx, p, dbsqlc.EndedKeepParams{Agent: agent, Since: since})
}

// KeepHeld moves held tasks out of their period.
func (s *Store) KeepHeld(ctx context.Context, p Span) (int64, error) {
	return s.keepEnded(ctx, p, dbsqlc.EndedKeepParams{Held: true})
}

func (s *Store) keepEnded(ctx context.Context, p Span, arg dbsqlc.EndedKeepParams) (moved int64, err error) {
	arg.Lowest, arg.Highest = p.ids()
	arg.MaxRows = retainTasks
	for {
		var n int64
		err := s.again(ctx, "keep", func() (err error) { n, err = s.q.EndedKeep(ctx, s.hot, arg); return err })
		if moved += n; err != nil || n < retainTasks {
			return moved, translate("keep ended tasks", err)
		}
	}
}

// KeepEvents moves the events of all kept tasks of a period out of it.
func (s *Store) KeepEvents(ctx context.Context, p Span) (moved int64, err error) {
	lowest, highest := p.ids()
	for {
		ids, err := s.q.KeptUnmoved(ctx, s.hot, lowest, highest, retainTasks)
		if err != nil || len(ids) == 0 {
			return moved, translate("keep events", err)
		}
		for _, id := range ids {
			n, err := s.keepEvents(ctx, id, false)
			if moved += n; err != nil {
				return moved, err
			}
		}
	}
}

// KeepArtifacts moves artifacts out of their period if their tasks, of an agent, ended at since or
// later or are held.
func (s *Store) KeepArtifacts(ctx context.Context, p Span, agent string, since time.Time) (moved int64, err error) {
	lowest, highest := p.ids()
	for {
		ids, err := s.q.ArtifactsUnmoved(ctx, s.hot, dbsqlc.ArtifactsUnmovedParams{
			Lowest: lowest, Highest: highest, Agent: agent, Since: since, MaxRows: retainTasks,
		})
		if err != nil || len(ids) == 0 {
			return moved, translate("keep artifacts", err)
		}
		for _, id := range ids {
			n, err := s.keepEvents(ctx, id, true)
			if moved += n; err != nil {
				return moved, err
			}
		}
	}
}

func (s *Store) keepEvents(ctx context.Context, id uuid.UUID, artifacts bool) (moved int64, err error) {
	for {
		n, err := s.q.EventsKeep(ctx, s.hot, id, artifacts, retainEvents)
		if moved += n; err != nil || n == 0 {
			return moved, translate("keep events", err)
		}
	}
}

// ForgetBeside deletes the names, webhooks, states and calls of tasks that are dropped with their period: neither
// open nor kept.
func (s *Store) ForgetBeside(ctx context.Context, p Span) error {
	lowest, highest := p.ids()
	for {
		names, err := s.q.NamesGone(ctx, s.hot, lowest, highest, retainEvents)
		if err != nil {
			return translate("forget names", err)
		}
		pushes, err := s.q.PushesGone(ctx, s.hot, lowest, highest, retainEvents)
		if err != nil {
			return translate("forget webhooks", err)
		}
		states, err := s.q.TaskStatesGone(ctx, s.hot, lowest, highest, retainEvents)
		if err != nil {
			return translate("forget states", err)
		}
		notices, err := s.q.NoticesGone(ctx, s.hot, lowest, highest, retainEvents)
		if err != nil {
			return translate("forget notices", err)
		}
		calls, err := s.q.CallsGone(ctx, s.hot, lowest, highest, retainEvents)
		if err != nil {
			return translate("forget calls", err)
		}
		if names == 0 && pushes == 0 && states == 0 && notices == 0 && calls == 0 {
			return s.forgetContextStates(ctx, highest)
		}
	}
}

// EraseArtifacts deletes all artifacts of a task.
func (s *Store) EraseArtifacts(ctx context.Context, id task.ID) error {
	for {
		n, err := s.q.ArtifactsErase(ctx, s.hot, uuid.UUID(id), retainEvents)
		s.ended.forget(id)
		if err != nil || n == 0 {
			return translate("delete artifacts", err)
		}
	}
}

// Erase deletes tasks, except held ones, and returns the deleted ones. Nobody sees them any more,
// their streams end, and their runs are fenced. With traces it also deletes their idempotency keys
// and delivery attempts, which otherwise have their own retention. said is the entry for the audit
// log.
func (s *Store) Erase(ctx context.Context, ids []task.ID, traces bool, said string) (gone []task.ID, err error) {
	want := uuids(ids)
	lowest, highest := span(want)
	arg := dbsqlc.TasksEraseParams{Lowest: lowest, Highest: highest, WithTraces: traces, Inline: retainEvents / 4, Audit: entries(said)}
	var rows []dbsqlc.TasksEraseRow
	err = s.again(ctx, "erase", func() error {
		return pgx.BeginFunc(ctx, s.hot, func(tx pgx.Tx) (err error) {
			if arg.Ids, err = s.q.TasksLock(ctx, tx, want, lowest, highest); err != nil {
				return err
			}
			if traces {
				if err := s.q.PushCursorsLock(ctx, tx, arg.Ids); err != nil {
					return err
				}
			}
			rows, err = s.q.TasksErase(ctx, tx, arg)
			return err
		})
	})
	if err != nil {
		return nil, translate("delete tasks", err)
	}
	var open []task.ID // no stream follows an ended task
	for _, r := range rows {
		gone = append(gone, task.ID(r.ID))
		s.ended.forget(task.ID(r.ID))
		if r.Open {
			open = append(open, task.ID(r.ID))
		}
	}
	if len(open) > 0 && s.listener != nil {
		s.listener.Gone(open)
	}
	return gone, nil
}

// EraseLogs deletes the logs that Erase has left, and reports whether there may be more.
func (s *Store) EraseLogs(ctx context.Context) (more bool, err error) {
	ids, err := s.q.Erasures(ctx, s.hot, retainTasks)
	for _, id := range ids {
		for n := int64(1); n > 0 && err == nil; {
			n, err = s.q.EventsErase(ctx, s.hot, id, retainEvents)
		}
		if err == nil {
			err = s.q.ErasureDone(ctx, s.hot, id)
		}
		if err != nil {
			break
		}
	}
	return len(ids) == retainTasks, translate("delete logs", err)
}

// AuditPurge returns the audit entry of a purge by an operator: the fact, but no content.
func (v View) AuditPurge(id task.ID) string { return v.audited(auditPurged, id, "", "") }

// Hold holds a task, which exempts it from retention, or ends the hold.
func (v View) Hold(ctx context.Context, id task.ID, held bool) error {
	action := auditReleased
	if held {
		action = auditHeld
	}
	err := v.record(ctx, action, id, "", func(tx pgx.Tx) (bool, error) {
		_, err := v.s.q.TaskHold(ctx, tx, held, uuid.UUID(id))
		return err == nil, err
	})
	return translate("hold", err)
}

// Progress returns the position of a job that goes through ended tasks. The zero Place means that
// it has not begun.
func (s *Store) Progress(ctx context.Context, job string) (Place, error) {
	r, err := s.q.ProgressGet(ctx, s.hot, job)
	if errors.Is(err, pgx.ErrNoRows) {
		return Place{At: time.Unix(0, 0)}, nil
	}
	return Place{At: r.At, ID: task.ID(r.Task)}, translate("progress", err)
}

// SetProgress records the position of a job.
func (s *Store) SetProgress(ctx context.Context, job string, p Place) error {
	return translate("progress", s.q.ProgressSet(ctx, s.hot, job, p.At, uuid.UUID(p.ID)))
}

// ForgetProgress deletes the progress of the jobs of a dropped partition.
func (s *Store) ForgetProgress(ctx context.Context, partition string) error {
	return translate("progress", s.q.ProgressForget(ctx, s.hot, partition))
}

// ForgetKeys deletes a batch of idempotency keys that are older than keep, and reports whether
// there may be more.
func (s *Store) ForgetKeys(ctx context.Context, keep time.Duration) (more bool, err error) {
	n, err := s.q.KeysForget(ctx, s.hot, keep, retainEvents)
	return n == retainEvents, translate("forget keys", err)
}

// ForgetProcesses deletes a batch of names of ended processes that started longer ago than keep.
func (s *Store) ForgetProcesses(ctx context.Context, keep time.Duration) (more bool, err error) {
	n, err := s.q.ProcessesForget(ctx, s.hot, keep, retainEvents)
	return n == retainEvents, translate("forget processes", err)
}

// Partitions lists the partitions of a family, the oldest first.
func (s *Store) Partitions(ctx context.Context, f partition.Family) ([]partition.Partition, error) {
	all, err := partition.List(ctx, s.hot, f)
	return all, translate("partitions", err)
}

// RemoveAudit records in each chain that the rows of a period are removed, so that the chain stays
// verifiable without them.
func (s *Store) RemoveAudit(ctx context.Context, p partition.Partition) error {
	for chain := range auditChains {
		_, err := s.q.AuditRemoved(ctx, s.hot, int16(chain+1), p.From, p.To)
		if err != nil {
			return translate("remove audit entries", err)
		}
	}
	return nil
}

// Detach detaches a partition from its table. On its own connection it waits a few seconds for
// statements that read the partition. Errors: task.Unavailable if they have not ended; the next
// call continues.
func (s *Store) Detach(ctx context.Context, p partition.Partition) error {
	err := s.onOwnConn(ctx, func(c *pgx.Conn) error { return partition.Detach(ctx, c, p) })
	return translate("detach "+p.Table, err)
}

// Detached lists the tables of a family that are detached and not dropped yet.
func (s *Store) Detached(ctx context.Context, f partition.Family) ([]string, error) {
	names, err := partition.Detached(ctx, s.hot, f)
	return names, translate("detached partitions", err)
}

// Drop removes a detached table.
func (s *Store) Drop(ctx context.Context, name string) error {
	err := s.onOwnConn(ctx, func(c *pgx.Conn) error { return partition.Drop(ctx, c, name) })
	return translate("drop "+name, err)
}

// onOwnConn runs do, which may take long, on a connection of its own.
func (s *Store) onOwnConn(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgurl.ConnectAs(ctx, s.hot.Config())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return do(conn)
}

// Return copies rows of a detached table back that became protected just before the detach. These
// are tasks that are held or, by since, still within their retention, and the events of existing
// tasks. Usually it copies nothing.
func (s *Store) Return(ctx context.Context, table string, since map[string]time.Time, otherwise time.Time) (returned int64, err error) {
	err = s.onOwnConn(ctx, func(c *pgx.Conn) error {
		name := pgx.Identifier{"holdfast", table}.Sanitize()
		columns, err := columnsOf(ctx, c, table)
		if err != nil {
			return err
		}
		var into, which string
		var args []any
		if strings.HasPrefix(table, "tasks_") {
			into = "tasks"
			which = `x.held_at IS NOT NULL OR x.status_at >= coalesce((SELECT a.since FROM unnest($1::text[], $2::timestamptz[]) AS a (agent, since)
				WHERE a.agent = x.agent), $3)`
			agents, times := []string{}, []time.Time{}
			for agent, at := range since {
				agents, times = append(agents, agent), append(times, at)
			}
			args = []any{agents, times, otherwise}
		} else {
			into = "task_events"
			which = `x.task = ANY(ARRAY(SELECT t.id FROM holdfast.tasks t
				 WHERE t.id >= (SELECT task FROM ` + name + ` ORDER BY task LIMIT 1) AND t.id <= (SELECT task FROM ` + name + ` ORDER BY task DESC LIMIT 1)
				   AND (t.state < 5 OR t.kept OR t.held_at IS NOT NULL)))`
		}
		tag, err := c.Exec(ctx, fmt.Sprintf("INSERT INTO holdfast.%s (%s, kept) SELECT %s, true FROM %s x WHERE %s ON CONFLICT DO NOTHING",
			into, columns, columns, name, which), args...)
		returned = tag.RowsAffected()
		return err
	})
	return returned, translate("return from "+table, err)
}

func columnsOf(ctx context.Context, c *pgx.Conn, table string) (columns string, err error) {
	err = c.QueryRow(ctx, `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'kept'`, "holdfast."+table).Scan(&columns)
	return columns, err
}

// SizeOf returns the size of a partition on disk, with its indexes, in bytes.
func (s *Store) SizeOf(ctx context.Context, table string) (bytes int64, err error) {
	err = s.api.QueryRow(ctx, "SELECT coalesce(pg_total_relation_size(to_regclass($1)), 0)", "holdfast."+table).Scan(&bytes)
	return bytes, translate("size of "+table, err)
}

// Counts says how much data an agent has in a span.
type Counts struct {
	Tasks, Events, ArtifactBytes, Held int64
}

// CountEnded counts an agent's tasks of a span that ended before a time.
func (s *Store) CountEnded(ctx context.Context, p Span, agent string, before time.Time) (Counts, error) {
	lowest, highest := p.ids()
	var r dbsqlc.RetentionCountsRow
	// A plan for any ids takes a whole period for a few tasks, and reads all of them.
	err := s.planned(ctx, func(tx pgx.Tx) (err error) {
		r, err = s.q.RetentionCounts(ctx, tx, dbsqlc.RetentionCountsParams{Kept: p.Kept, Lowest: lowest, Highest: highest, Agent: agent, Before: before})
		return err
	})
	return Counts(r), translate("count ended tasks", err)
}

// exported is a line of an export: a task and its log, with payloads as they are stored.
type exported struct {
	Task      string          `json:"task"`
	TaskID    string          `json:"task_id"`
	Agent     string          `json:"agent"`
	Tenant    string          `json:"tenant"`
	Owner     string          `json:"owner"`
	ContextID string          `json:"context_id"`
	State     string          `json:"state"`
	CreatedAt time.Time       `json:"created_at"`
	EndedAt   time.Time       `json:"ended_at"`
	Dialect   string          `json:"dialect"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

type exportedEvent struct {
	Seq        int64           `json:"seq"`
	Kind       string          `json:"kind"`
	State      string          `json:"state,omitempty"`
	At         time.Time       `json:"at"`
	Attempt    int32           `json:"attempt,omitempty"`
	ArtifactID string          `json:"artifact_id,omitempty"`
	Append     bool            `json:"append,omitempty"`
	Last       bool            `json:"last,omitempty"`
	Payload    json.RawMessage `json:"payload,omitempty"`
}

// Export writes a task and its log as one line of JSON.
func (s *Store) Export(ctx context.Context, w io.Writer, t *task.Task) error {
	out := bufio.NewWriter(w)
	head, err := json.Marshal(exported{
		Task: t.ID.String(), TaskID: t.PublicID, Agent: t.Agent, Tenant: t.Tenant, Owner: t.Owner, ContextID: t.ContextID,
		State: t.Status.State.String(), CreatedAt: t.CreatedAt, EndedAt: t.Status.At, Dialect: t.Dialect, Metadata: t.Metadata,
	})
	if err != nil {
		return fmt.Errorf("export task %s: %w", t.ID, err)
	}
	_, _ = out.Write(head[:len(head)-1])
	_, _ = out.WriteString(`,"events":[`)
	for after := int64(0); ; {
		rows, err := s.q.EventsAfter(ctx, s.hot, after, uuid.UUID(t.ID), retainTasks)
		if err != nil {
			return translate("export", err)
		}
		for i := range rows {
			r := &rows[i].Event
			e := exportedEvent{
				Seq: r.Seq, Kind: task.EventKind(r.Kind).String(), At: r.CreatedAt, Attempt: r.Attempt,
				ArtifactID: r.ArtifactID.String, Append: r.Append, Last: r.Last, Payload: r.Payload,
			}
			if r.State.Valid {
				e.State = task.State(r.State.Int16).String()
			}
			line, err := json.Marshal(e)
			if err != nil {
				return fmt.Errorf("export task %s: event %d: %w", t.ID, r.Seq, err)
			}
			if after > 0 {
				_ = out.WriteByte(',')
			}
			_, _ = out.Write(line)
			after = r.Seq
		}
		if len(rows) < retainTasks {
			break
		}
	}
	_, _ = out.WriteString("]}\n")
	return out.Flush()
}
