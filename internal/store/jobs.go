package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Job is an action on all tasks that a filter selects. It goes from the newest task to the oldest.
type Job struct {
	ID       task.ID
	Action   string
	DryRun   bool // it counts the tasks and changes none
	Filter   json.RawMessage
	Options  json.RawMessage
	Actor    task.Caller // with the reason
	Tenant   *string     // the only tenant that the actor sees; nil: all
	Position task.ID     // the tasks from here on are done, or in Batch
	Batch    []task.ID   // the tasks that the job acts on now

	// Matched are all tasks that the job has found. Those that it has acted on are Done, Skipped or Failed.
	Matched, Done, Skipped, Failed int64
	Failures                       []JobFailure // the newest
	Fence                          int64
	Worker                         string // the process that claimed it last
	CreatedAt                      time.Time
	StartedAt                      time.Time
	CanceledAt                     time.Time // zero: it was not canceled
	EndedAt                        time.Time
}

// JobFailure is a task on which a job could not act.
type JobFailure struct {
	Task  string `json:"task"`
	Error string `json:"error"`
}

// jobActor is the stored form of an operator.
type jobActor struct {
	Tenant     string `json:"tenant"`
	Subject    string `json:"subject"`
	Method     string `json:"method"`
	Credential string `json:"credential"`
	Address    string `json:"address"`
}

// jobsKept is how long ended jobs are kept.
const jobsKept = 90 * 24 * time.Hour

// AddJob stores a job of the operator, and deletes those that ended long ago. Only a task created before the job is in it. A worker
// has claimed it for ttl; zero: none has.
func (o *Operator) AddJob(ctx context.Context, j *Job, worker task.ID, ttl time.Duration) (*Job, error) {
	by := o.by
	actor, err := json.Marshal(jobActor{by.Tenant, by.Subject, by.Method, by.Credential, by.Address})
	if err != nil {
		return nil, err
	}
	// The clock of the database makes the ids of tasks, too.
	id := uuid.UUID(o.s.NewTaskID())
	arg := dbsqlc.JobAddParams{
		ID: id, Action: j.Action, DryRun: j.DryRun, Filter: j.Filter, Options: j.Options, Reason: cleanName(by.Reason), Actor: actor, Position: id,
		Ttl: ttl,
	}
	if !worker.IsZero() {
		arg.Worker = (*uuid.UUID)(&worker)
	}
	if o.bound {
		arg.Tenant = pgtype.Text{String: by.Tenant, Valid: true}
	}
	var row dbsqlc.AdminJob
	err = o.record(ctx, auditJobCreated, task.ID{}, id.String()+" "+j.Action, func(tx pgx.Tx) (bool, error) {
		if err := o.s.q.JobsForget(ctx, tx, jobsKept); err != nil {
			return false, err
		}
		row, err = o.s.q.JobAdd(ctx, tx, arg)
		return err == nil, err
	})
	if err != nil {
		return nil, translate("add a job", err)
	}
	return job(&row, "")
}

func job(r *dbsqlc.AdminJob, worker string) (*Job, error) {
	j := &Job{
		ID: task.ID(r.ID), Action: r.Action, DryRun: r.DryRun, Filter: r.Filter, Options: r.Options, Position: task.ID(r.Position),
		Matched: r.Matched, Done: r.Done, Skipped: r.Skipped, Failed: r.Failed, Fence: r.Fence, Worker: worker,
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt.Time, CanceledAt: r.CanceledAt.Time, EndedAt: r.EndedAt.Time,
	}
	if r.Tenant.Valid {
		j.Tenant = &r.Tenant.String
	}
	for _, id := range r.Batch {
		j.Batch = append(j.Batch, task.ID(id))
	}
	var a jobActor
	if err := errors.Join(json.Unmarshal(r.Actor, &a), json.Unmarshal(r.Failures, &j.Failures)); err != nil {
		return nil, translate("read a job", err)
	}
	j.Actor = task.Caller{Tenant: a.Tenant, Subject: a.Subject, Method: a.Method, Credential: a.Credential, Address: a.Address, Reason: r.Reason}
	return j, nil
}

// Job reads a job. Errors: task.NotFound.
func (o *Operator) Job(ctx context.Context, id task.ID) (*Job, error) {
	r, err := o.s.q.JobGet(ctx, o.s.api, uuid.UUID(id), o.bound, o.by.Tenant)
	if err != nil {
		return nil, translate("read a job", err)
	}
	return job(&r.AdminJob, r.WorkerName)
}

// Jobs lists the jobs before one (zero: from the newest on), the newest first.
func (o *Operator) Jobs(ctx context.Context, before task.ID, limit int) ([]*Job, error) {
	arg := dbsqlc.JobsParams{Before: uuid.Max, Bound: o.bound, Tenant: o.by.Tenant, MaxRows: int32(limit)}
	if !before.IsZero() {
		arg.Before = uuid.UUID(before)
	}
	rows, err := o.s.q.Jobs(ctx, o.s.api, arg)
	if err != nil {
		return nil, translate("list jobs", err)
	}
	out := make([]*Job, len(rows))
	for i := range rows {
		if out[i], err = job(&rows[i].AdminJob, rows[i].WorkerName); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// CancelJob asks the process that works on a job to end it after its batch. A job that has ended stays as it is. Errors:
// task.NotFound.
func (o *Operator) CancelJob(ctx context.Context, id task.ID) (*Job, error) {
	err := o.record(ctx, auditJobCanceled, task.ID{}, id.String(), func(tx pgx.Tx) (bool, error) {
		_, err := o.s.q.JobCancel(ctx, tx, uuid.UUID(id), o.bound, o.by.Tenant)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, translate("cancel a job", err)
	}
	return o.Job(ctx, id)
}

// ClaimJob claims a job that no process works on, for ttl, in turns; nil: no job waits.
func (s *Store) ClaimJob(ctx context.Context, worker task.ID, ttl time.Duration) (*Job, error) {
	by := uuid.UUID(worker)
	r, err := s.q.JobClaim(ctx, s.hot, ttl, &by)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // absence is an answer here and no failure
	}
	if err != nil {
		return nil, translate("claim a job", err)
	}
	return job(&r, "")
}

// PlanJob stores the next batch of a job before the process acts on it, and counts its tasks, which matched. Errors: task.LeaseLost
// if another process has claimed the job.
func (s *Store) PlanJob(ctx context.Context, j *Job, batch []task.ID, position task.ID, matched int, ttl time.Duration) (canceled bool, err error) {
	canceled, err = s.q.JobPlan(ctx, s.hot, dbsqlc.JobPlanParams{
		Batch: uuids(batch), Position: uuid.UUID(position), Matched: int64(matched), Ttl: ttl, ID: uuid.UUID(j.ID), Fence: j.Fence,
	})
	return canceled, jobLost("plan a job", err)
}

func uuids(of []task.ID) []uuid.UUID {
	ids := make([]uuid.UUID, len(of))
	for i, id := range of {
		ids[i] = uuid.UUID(id)
	}
	return ids
}

// RecordJob counts what the job has done with its batch; rest is what it still has to do of it. Errors: as PlanJob.
func (s *Store) RecordJob(ctx context.Context, j *Job, rest []task.ID, done, skipped, failed int, failures []JobFailure, ttl time.Duration) (canceled bool, err error) {
	if failures == nil {
		failures = []JobFailure{}
	}
	text, err := json.Marshal(failures)
	if err != nil {
		return false, err
	}
	canceled, err = s.q.JobRecord(ctx, s.hot, dbsqlc.JobRecordParams{
		Batch: uuids(rest), Done: int64(done), Skipped: int64(skipped), Failed: int64(failed), Failures: text, Ttl: ttl, ID: uuid.UUID(j.ID), Fence: j.Fence,
	})
	return canceled, jobLost("record a job", err)
}

// EndJob ends a job. It changes nothing if another process has claimed the job.
func (s *Store) EndJob(ctx context.Context, j *Job) error {
	_, err := s.q.JobEnd(ctx, s.hot, uuid.UUID(j.ID), j.Fence)
	return translate("end a job", err)
}

// ReleaseJob lets a process claim the job at once, after the others that wait.
func (s *Store) ReleaseJob(ctx context.Context, j *Job) error {
	return translate("release a job", s.q.JobRelease(ctx, s.hot, uuid.UUID(j.ID), j.Fence))
}

func jobLost(doing string, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return task.LeaseLost
	}
	return translate(doing, err)
}
