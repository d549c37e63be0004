package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Claimed is a run that a worker has won: the task's header, the message to
// answer, and the fence.
type Claimed struct {
	Task            *task.Task
	Message         *task.Message
	MessageSeq      task.Seq
	Attempt         task.Attempt
	Turn            int
	Try             int
	CancelRequested bool
	Waited          time.Duration // since it became available
	AvailableAt     time.Time
	ArtifactBytes   int64 // that earlier runs of the task have written
	Unreadable      error // the message cannot be decoded; Message is empty
}

// Demand is how many runs of an agent a worker has room for.
type Demand struct {
	Agent string
	Slots int
	// Since skips queue rows that became available earlier; zero looks at all.
	Since time.Time
}

// Claim takes due tasks for a worker, raising their attempt. When its connection
// dies the outcome is unknown; Owned finds what was won without anyone hearing.
func (s *Store) Claim(ctx context.Context, worker task.ID, want []Demand) ([]*Claimed, error) {
	arg := dbsqlc.QueueClaimParams{Worker: uuid.UUID(worker)}
	for _, d := range want {
		arg.Agents = append(arg.Agents, d.Agent)
		arg.Slots = append(arg.Slots, int32(d.Slots))
		arg.Since = append(arg.Since, d.Since)
	}
	start := time.Now()
	rows, err := s.q.QueueClaim(ctx, s.hot, arg)
	if err != nil {
		return nil, translate("claim", err)
	}
	s.flushed("claim", len(rows), start)
	out := make([]*Claimed, len(rows))
	for i := range rows {
		r := &rows[i]
		t := header(&dbsqlc.Task{
			ID: r.ID, ClientID: r.ClientID, Agent: r.Agent, Tenant: r.Tenant, Owner: r.Owner,
			ContextID: r.ContextID, State: r.State, LastSeq: r.LastSeq, Dialect: r.Dialect,
			Metadata: r.Metadata, CreatedAt: r.CreatedAt,
		})
		e := &task.Event{Task: t.ID, Seq: task.Seq(r.MessageSeq), Kind: task.EventMessage}
		// The claim is committed: one message that cannot be read must not take the others along.
		unreadable := decodePayload(e, r.Payload, t)
		if e.Message == nil {
			e.Message = &task.Message{}
		}
		out[i] = &Claimed{
			Task: t, Message: e.Message, MessageSeq: e.Seq, Attempt: task.Attempt(r.Attempt),
			Turn: int(r.Turn), Try: int(r.Tries), CancelRequested: r.CancelRequested,
			Waited: r.ClaimedAt.Sub(r.AvailableAt), AvailableAt: r.AvailableAt,
			ArtifactBytes: r.ArtifactBytes,
			Unreadable:    unreadable,
		}
	}
	return out, nil
}

// Requeue is why and how an attempt is given back.
type Requeue struct {
	Task    task.ID
	Agent   string
	Attempt task.Attempt
	Note    task.RunNote
	Delay   time.Duration
	Uncount bool // it was not the task's fault
}

// GiveBack ends an attempt without ending the task. task.LeaseLost: it was no
// longer this attempt's to give.
func (s *Store) GiveBack(ctx context.Context, r Requeue) error {
	ev := &task.Event{Task: r.Task, Kind: task.EventRun, Attempt: r.Attempt, Run: &r.Note}
	row, err := s.q.RunRequeue(ctx, s.hot, dbsqlc.RunRequeueParams{
		ID: uuid.UUID(r.Task), Attempt: int32(r.Attempt), Uncount: r.Uncount, Delay: r.Delay,
		Payload: EncodePayload(ev),
	})
	if err != nil {
		err = translate("give back", err)
		if task.KindOf(err) == task.NotFound {
			return task.LeaseLost
		}
		return err
	}
	ev.Seq, ev.At = task.Seq(row.Seq), row.At
	s.committed(ev)
	if r.Delay == 0 && s.listener != nil {
		s.listener.Ready(r.Agent)
	}
	return nil
}

// Hurry makes a task's next attempt due now that waits for its time. It reports what it
// found: hurried, or a run under way (owned), or, when both are false, a task that was due
// already. task.NotFound: the task wants no run.
func (s *Store) Hurry(ctx context.Context, h *task.Task) (hurried, owned bool, err error) {
	var row dbsqlc.QueueHurryRow
	err = s.record(ctx, auditHurried, h.ID, "", func(tx pgx.Tx) (done bool, err error) {
		row, err = s.q.QueueHurry(ctx, tx, uuid.UUID(h.ID))
		return row.Hurried, err
	})
	if err != nil {
		return false, false, translate("hurry", err)
	}
	if row.Hurried && s.listener != nil {
		s.listener.Ready(h.Agent)
	}
	return row.Hurried, row.Owned, nil
}

// Owned is a run that the database ascribes to a worker.
type Owned struct {
	Task            task.ID
	Attempt         task.Attempt
	CancelRequested bool
}

// Owned lists a worker's runs as the database sees them.
func (s *Store) Owned(ctx context.Context, worker task.ID) ([]Owned, error) {
	rows, err := s.q.RunsOwned(ctx, s.hot, uuid.UUID(worker))
	if err != nil {
		return nil, translate("owned runs", err)
	}
	out := make([]Owned, len(rows))
	for i, r := range rows {
		out[i] = Owned{task.ID(r.ID), task.Attempt(r.Attempt), r.CancelRequested}
	}
	return out, nil
}

// Canceled tells which of some tasks a worker runs and was asked to end, with the attempt.
func (s *Store) Canceled(ctx context.Context, worker task.ID, ids []task.ID) (map[task.ID]task.Attempt, error) {
	arg := dbsqlc.RunsCanceledParams{Worker: uuid.UUID(worker), Ids: make([]uuid.UUID, len(ids))}
	for i, id := range ids {
		arg.Ids[i] = uuid.UUID(id)
	}
	rows, err := s.q.RunsCanceled(ctx, s.hot, arg)
	if err != nil {
		return nil, translate("canceled runs", err)
	}
	out := make(map[task.ID]task.Attempt, len(rows))
	for _, r := range rows {
		out[task.ID(r.ID)] = task.Attempt(r.Attempt)
	}
	return out, nil
}

// QueueDepth is what waits and runs for one agent.
type QueueDepth struct {
	Agent            string
	Waiting, Running int64
	Oldest           time.Duration
}

// QueueDepths measures the queue for metrics.
func (s *Store) QueueDepths(ctx context.Context) ([]QueueDepth, error) {
	rows, err := s.q.QueueDepth(ctx, s.api)
	if err != nil {
		return nil, translate("queue depth", err)
	}
	out := make([]QueueDepth, len(rows))
	for i, r := range rows {
		out[i] = QueueDepth{r.Agent, r.Waiting, r.Running, time.Duration(r.OldestSeconds * float64(time.Second))}
	}
	return out, nil
}
