package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// PushFilter selects configurations for operators. An empty field selects all.
type PushFilter struct {
	Task         task.ID
	Agent, Owner string
	Tenant       *string // not nil: only of this tenant
	Host         string  // with its port
	Disabled     bool    // only disabled ones
	Failing      bool    // only those whose last attempt failed
	Due          bool    // only those that have something to deliver and are not disabled
	BeforeTask   task.ID
	BeforeID     string // continue a listing after this configuration
	SinceTask    task.ID
	Limit        int
}

// PushRow is a line of an operator's listing.
type PushRow struct {
	Task          task.ID
	PublicID      string
	Agent         string
	Tenant, Owner string
	Config        task.PushConfig // without secrets
	Next, Upto    task.Seq        // first undelivered event; last event to deliver
	DueAt         time.Time
	DueSince      time.Time
	Failures      int
	FailingSince  time.Time
	LastError     string
	LockedUntil   time.Time // end of the current claim
}

// planned runs a statement that PostgreSQL plans for its arguments, in a transaction that only reads.
func (s *Store) planned(ctx context.Context, read func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.api, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL plan_cache_mode = force_custom_plan"); err != nil {
			return err
		}
		return read(tx)
	})
}

// ListPushes lists configurations of all owners, those of the newest tasks first.
func (s *Store) ListPushes(ctx context.Context, f PushFilter) ([]PushRow, error) {
	arg := dbsqlc.PushListParams{
		BeforeTask: uuid.Max, BeforeID: "", SinceTask: uuid.UUID(f.SinceTask), Task: uuid.UUID(f.Task), Agent: f.Agent, Owner: f.Owner, Host: f.Host,
		Disabled: f.Disabled, Failing: f.Failing, Due: f.Due, MaxRows: int32(f.Limit),
	}
	if f.Tenant != nil {
		arg.ByTenant, arg.Tenant = true, *f.Tenant
	}
	if !f.BeforeTask.IsZero() {
		arg.BeforeTask, arg.BeforeID = uuid.UUID(f.BeforeTask), f.BeforeID
	}
	var rows []dbsqlc.PushListRow
	err := s.planned(ctx, func(tx pgx.Tx) (err error) { // a generic plan would be bad for every filter
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
			Next: task.Seq(k.NextSeq), Upto: task.Seq(k.DueSeq), DueAt: k.DueAt.Time, DueSince: k.DueSince.Time,
			Failures: int(k.Attempts), FailingSince: k.FailingSince.Time, LastError: k.LastError.String, LockedUntil: k.LockedUntil.Time,
		}
		if r.ClientID.Valid {
			p.PublicID = r.ClientID.String
		}
		if p.Config, err = pushConfig(&r.PushConfig, k.Host, k.Artifacts); err != nil {
			return nil, err
		}
		p.Config.DisabledAt, p.Config.DisabledFor = k.DisabledAt.Time, k.DisabledFor.String
	}
	return out, nil
}

// PushAttempt is one recorded delivery attempt.
type PushAttempt struct {
	ID         int64     `json:"-"`
	ConfigID   string    `json:"config_id"`
	At         time.Time `json:"at"` // it was begun
	From       task.Seq  `json:"from_seq"`
	To         task.Seq  `json:"to_seq"`
	DeliveryID string    `json:"delivery_id"`
	Attempt    int       `json:"attempt"` // of this delivery, from 1
	Class      string    `json:"class"`
	Status     int       `json:"status,omitempty"` // 0: no answer
	Error      string    `json:"error,omitempty"`
	TookMS     float64   `json:"took_ms"`
	Worker     string    `json:"worker,omitempty"` // name of the process
}

// PushAttempts lists the newest attempts of a configuration, or of all configurations of a task.
func (s *Store) PushAttempts(ctx context.Context, id task.ID, configID string, limit int) ([]PushAttempt, error) {
	rows, err := s.q.PushAttempts(ctx, s.api, int32(limit), uuid.UUID(id), configID)
	if err != nil {
		return nil, translate("push attempts", err)
	}
	out := make([]PushAttempt, len(rows))
	for i := range rows {
		r := &rows[i]
		out[i] = PushAttempt{
			ID: r.ID, ConfigID: r.ConfigID, At: r.StartedAt, From: task.Seq(r.FromSeq), To: task.Seq(r.ToSeq),
			DeliveryID: r.DeliveryID, Attempt: int(r.Attempt), Class: r.Class, Status: int(r.Status.Int32), Error: r.Error.String,
			TookMS: float64(r.Duration.Microseconds) / 1000, Worker: r.WorkerName,
		}
	}
	return out, nil
}

// DisablePush stops deliveries for a configuration. Its owner and operators see the reason. New
// events are still marked for delivery.
func (v View) DisablePush(ctx context.Context, id task.ID, configID, reason string) (found bool, err error) {
	var n int64
	err = v.record(ctx, auditPushStopped, id, configID, func(tx pgx.Tx) (done bool, err error) {
		n, err = v.s.q.PushDisable(ctx, tx, cleanName(reason), uuid.UUID(id), configID)
		return n > 0, err
	})
	return n > 0, translate("disable push", err)
}

// EnablePush resumes deliveries for a configuration where they stopped, without waiting for a
// pending backoff. due says that there is something to deliver. Errors: task.NotFound.
func (v View) EnablePush(ctx context.Context, id task.ID, configID string) (due bool, err error) {
	err = v.record(ctx, auditPushEnabled, id, configID, func(tx pgx.Tx) (done bool, err error) {
		due, err = v.s.q.PushEnable(ctx, tx, uuid.UUID(id), configID)
		return true, err
	})
	if err == nil && due {
		v.s.marked(1)
	}
	return due, translate("enable push", err)
}

// Redeliver makes a configuration deliver again, starting at event from. With 0 it retries the
// undelivered events now, without waiting for a pending backoff. It skips nothing: an event ahead
// is delivered after those before it. A disabled configuration redelivers after it is enabled.
// Errors: task.NotFound if there is no such configuration or event.
func (v View) Redeliver(ctx context.Context, id task.ID, configID string, from task.Seq) (due, disabled bool, err error) {
	var row dbsqlc.PushRedeliverRow
	err = v.record(ctx, auditRedelivered, id, configID, func(tx pgx.Tx) (done bool, err error) {
		row, err = v.s.q.PushRedeliver(ctx, tx, uuid.UUID(id), configID, int64(from))
		return true, err
	})
	if err != nil {
		return false, false, translate("redeliver", err)
	}
	if row.Due && !row.Disabled {
		v.s.marked(1)
	}
	return row.Due, row.Disabled, nil
}

// PushCounts is the state of all webhooks, for metrics.
type PushCounts struct {
	Backlog  int64         // configurations with something to deliver
	Oldest   time.Duration // how long the longest overdue one has waited for an attempt; see query PushCounts
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
