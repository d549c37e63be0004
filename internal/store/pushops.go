package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// PushFilter selects configurations for operators. Empty members select all.
type PushFilter struct {
	Task         task.ID
	Agent, Owner string
	Host         string // with its port
	Disabled     bool   // only those that are
	Failing      bool   // only those whose last attempt failed
	Due          bool   // only those that have something to deliver and are not disabled
	BeforeTask   task.ID
	BeforeID     string // continue a listing after this configuration
	Limit        int
}

// PushRow is a line of an operator's listing.
type PushRow struct {
	Task          task.ID
	PublicID      string
	Agent         string
	Tenant, Owner string
	Config        task.PushConfig // without secrets
	Host          string
	Next, Upto    task.Seq // first event not delivered; newest that has to be
	DueAt         time.Time
	DueSince      time.Time
	Failures      int
	FailingSince  time.Time
	LastError     string
	LockedUntil   time.Time // of the delivery under way
}

// ListPushes lists configurations of all owners, those of the newest tasks first.
func (s *Store) ListPushes(ctx context.Context, f PushFilter) ([]PushRow, error) {
	arg := dbsqlc.PushListParams{
		BeforeTask: uuid.Max, BeforeID: "", Task: uuid.UUID(f.Task), Agent: f.Agent, Owner: f.Owner, Host: f.Host,
		Disabled: f.Disabled, Failing: f.Failing, Due: f.Due, MaxRows: int32(f.Limit),
	}
	if !f.BeforeTask.IsZero() {
		arg.BeforeTask, arg.BeforeID = uuid.UUID(f.BeforeTask), f.BeforeID
	}
	var rows []dbsqlc.PushListRow
	err := pgx.BeginTxFunc(ctx, s.api, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		// As ListTasks: one plan for all filters would be one for none.
		if _, err = tx.Exec(ctx, "SET LOCAL plan_cache_mode = force_custom_plan"); err != nil {
			return err
		}
		rows, err = s.q.PushList(ctx, tx, arg)
		return err
	})
	if err != nil {
		return nil, translate("list pushes", err)
	}
	out := make([]PushRow, len(rows))
	for i := range rows {
		r, k := &rows[i], &rows[i].PushCursor
		p := &out[i]
		*p = PushRow{
			Task: task.ID(k.Task), PublicID: k.Task.String(), Agent: r.Agent, Tenant: r.Tenant, Owner: r.Owner,
			Host: k.Host, Next: task.Seq(k.NextSeq), Upto: task.Seq(k.DueSeq), DueAt: k.DueAt.Time, DueSince: k.DueSince.Time,
			Failures: int(k.Attempts), FailingSince: k.FailingSince.Time, LastError: k.LastError.String, LockedUntil: k.LockedUntil.Time,
		}
		if r.ClientID.Valid {
			p.PublicID = r.ClientID.String
		}
		if p.Config, err = pushConfig(&r.PushConfig); err != nil {
			return nil, err
		}
		p.Config.Artifacts, p.Config.DisabledAt, p.Config.DisabledFor = k.Artifacts, k.DisabledAt.Time, k.DisabledFor.String
	}
	return out, nil
}

// PushAttempt is what came of one attempt to deliver.
type PushAttempt struct {
	ID         int64
	ConfigID   string
	At         time.Time // it was begun
	From, To   task.Seq
	DeliveryID string
	Attempt    int // of this delivery, from 1
	Class      string
	Status     int // 0: no answer
	Error      string
	Took       time.Duration
	Worker     string // name of the process
}

// PushAttempts lists the newest attempts of a configuration, or of all of a task.
func (s *Store) PushAttempts(ctx context.Context, id task.ID, configID string, limit int) ([]PushAttempt, error) {
	rows, err := s.q.PushAttempts(ctx, s.api, dbsqlc.PushAttemptsParams{Task: uuid.UUID(id), ConfigID: configID, MaxRows: int32(limit)})
	if err != nil {
		return nil, translate("push attempts", err)
	}
	out := make([]PushAttempt, len(rows))
	for i := range rows {
		r := &rows[i]
		out[i] = PushAttempt{
			ID: r.ID, ConfigID: r.ConfigID, At: r.StartedAt, From: task.Seq(r.FromSeq), To: task.Seq(r.ToSeq),
			DeliveryID: r.DeliveryID, Attempt: int(r.Attempt), Class: r.Class, Status: int(r.Status.Int32), Error: r.Error.String,
			Took: time.Duration(r.Duration.Microseconds) * time.Microsecond, Worker: r.WorkerName,
		}
	}
	return out, nil
}

// DisablePush stops deliveries for a configuration, for a reason that its owner and operators see. Events go on to be marked.
func (s *Store) DisablePush(ctx context.Context, id task.ID, configID, reason string) (found bool, err error) {
	var n int64
	err = s.record(ctx, auditPushStopped, id, configID, func(tx pgx.Tx) (done bool, err error) {
		n, err = s.q.PushDisable(ctx, tx, dbsqlc.PushDisableParams{Task: uuid.UUID(id), ConfigID: configID, Reason: cleanName(reason)})
		return n > 0, err
	})
	return n > 0, translate("disable push", err)
}

// EnablePush lets deliveries for a configuration go on where they stopped, at once also when it waited for its next
// attempt. due says that there is something to deliver. task.NotFound: there is no such configuration.
func (s *Store) EnablePush(ctx context.Context, id task.ID, configID string) (due bool, err error) {
	err = s.record(ctx, auditPushEnabled, id, configID, func(tx pgx.Tx) (done bool, err error) {
		due, err = s.q.PushEnable(ctx, tx, dbsqlc.PushEnableParams{Task: uuid.UUID(id), ConfigID: configID})
		return true, err
	})
	if err == nil && due {
		s.marked(1)
	}
	return due, translate("enable push", err)
}

// Redeliver makes a configuration deliver again from an event on, or, from zero, what it has not delivered yet without
// waiting for its time. It skips nothing: an event that lies ahead is delivered after those before it. One that is disabled
// does so when it is enabled. task.NotFound: there is no such configuration, or no such event.
func (s *Store) Redeliver(ctx context.Context, id task.ID, configID string, from task.Seq) (due, disabled bool, err error) {
	var row dbsqlc.PushRedeliverRow
	err = s.record(ctx, auditRedelivered, id, configID, func(tx pgx.Tx) (done bool, err error) {
		row, err = s.q.PushRedeliver(ctx, tx, dbsqlc.PushRedeliverParams{Task: uuid.UUID(id), ConfigID: configID, FromSeq: int64(from)})
		return true, err
	})
	if err != nil {
		return false, false, translate("redeliver", err)
	}
	if row.Due && !row.Disabled {
		s.marked(1)
	}
	return row.Due, row.Disabled, nil
}

// PushCounts is the state of all webhooks, for metrics.
type PushCounts struct {
	Backlog  int64         // configurations with something to deliver
	Oldest   time.Duration // since when the one that waits longest does
	Disabled int64
}

// CountPushes measures the webhooks.
func (s *Store) CountPushes(ctx context.Context) (PushCounts, error) {
	r, err := s.q.PushCounts(ctx, s.api)
	if err != nil {
		return PushCounts{}, translate("count pushes", err)
	}
	return PushCounts{Backlog: r.Backlog, Oldest: time.Duration(r.OldestSeconds * float64(time.Second)), Disabled: r.Disabled}, nil
}

// pruneRows bounds a deletion, so that it holds its locks for a moment only.
const pruneRows = 5000

// PruneAttempts deletes the oldest of what is known of attempts that are older than keep, so many that it takes a moment.
// more says that there may be others.
func (s *Store) PruneAttempts(ctx context.Context, keep time.Duration) (deleted int64, more bool, err error) {
	n, err := s.q.PushAttemptsPrune(ctx, s.hot, dbsqlc.PushAttemptsPruneParams{Keep: keep, MaxRows: pruneRows})
	return n, n == pruneRows, translate("prune attempts", err)
}
