package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// jobFilter selects the tasks of a job: it has the parameters of a list of tasks, each with its values.
type jobFilter url.Values

func (f jobFilter) filter() (*store.AdminFilter, error) {
	if len(f) == 0 {
		return nil, web.Invalid("filter", "selects every task; give state, agent, tenant, owner, context, since, until or status_before")
	}
	q := &query{values: url.Values(f), within: "filter."}
	out := q.filter()
	return out, q.done()
}

// spare makes the filter of a purge leave tasks alone that have not ended, unless it says whose or which tasks it selects.
func (f jobFilter) spare() {
	if f["state"] != nil || f["tenant"] != nil || f["owner"] != nil || f["context"] != nil {
		return
	}
	for _, s := range task.States {
		if s.Terminal() {
			f["state"] = append(f["state"], s.String())
		}
	}
}

type jobRequest struct {
	Action string    `json:"action"`
	Reason string    `json:"reason"`
	DryRun bool      `json:"dry_run"`
	Filter jobFilter `json:"filter"`
	options
}

func viewJob(j *store.Job) shown.Job {
	v := shown.Job{
		ID: j.ID, Action: j.Action, DryRun: j.DryRun, Filter: j.Filter, Options: j.Options, Reason: j.Actor.Reason, Tenant: j.Tenant,
		Actor: j.Actor.Subject, Matched: j.Matched, Done: j.Done, Skipped: j.Skipped, Failed: j.Failed, Failures: j.Failures, Worker: j.Worker,
		CreatedAt: j.CreatedAt, StartedAt: j.StartedAt, CanceledAt: j.CanceledAt, EndedAt: j.EndedAt,
	}
	if v.Failures == nil {
		v.Failures = []store.JobFailure{}
	}
	switch {
	case !j.EndedAt.IsZero() && !j.CanceledAt.IsZero():
		v.State = "canceled"
	case !j.EndedAt.IsZero():
		v.State = "done"
	case !j.CanceledAt.IsZero():
		v.State = "canceling"
	case !j.StartedAt.IsZero():
		v.State = "running"
	default:
		v.State = "waiting"
	}
	return v
}

// addJob stores a job. A replica begins it within a second; a local API does it at once.
func (a *API) addJob(x *exchange) error {
	if len(x.r.Header.Values("Idempotency-Key")) > 0 {
		return web.Invalid("Idempotency-Key", "is not for jobs; if an answer is lost, look at /jobs before you repeat the request")
	}
	var body jobRequest
	if err := x.body(&body); err != nil {
		return err
	}
	act, known := actions[body.Action]
	if !known {
		return web.Invalid("action", fmt.Sprintf("%q is not an action; use one of %s", body.Action, strings.Join(slices.Sorted(maps.Keys(actions)), ", ")))
	}
	if x.who.Right < act.right {
		return a.o.Need(act.right)
	}
	if err := body.check(body.Action); err != nil {
		return err
	}
	filtered, err := body.Filter.filter()
	if err != nil {
		return err
	}
	if body.Action == actPurge {
		if filtered.Retried != nil {
			return web.Invalid("filter.retried", "is not for a purge; exports do not say which tasks were retried")
		}
		if filtered.Metadata != nil {
			return web.Invalid("filter.metadata", "is not for a purge; it would not find the tasks in exports")
		}
		body.Filter.spare()
	}
	if err := x.reasoned(body.Reason); err != nil {
		return err
	}
	filter, err := web.Marshal(body.Filter)
	if err != nil {
		return err
	}
	opts, err := web.Marshal(body.options)
	if err != nil {
		return err
	}
	var worker task.ID
	if a.o.Local {
		worker = a.o.Worker()
	}
	j, err := x.op.AddJob(x.ctx, &store.Job{Action: body.Action, DryRun: body.DryRun, Filter: filter, Options: opts}, worker, jobTTL)
	if err == nil && a.o.Local {
		j, err = a.workHere(x, j)
	}
	if err != nil {
		return err
	}
	return x.answer(http.StatusCreated, viewJob(j))
}

// workHere does a whole job. If that is interrupted, a server continues it, and the answer says which job that is.
func (a *API) workHere(x *exchange, j *store.Job) (*store.Job, error) {
	switch err := a.work(x.ctx, j); {
	case errors.Is(err, task.LeaseLost): // a server continues it
	case err != nil && x.ctx.Err() != nil:
		_ = a.giveBack(x.ctx, j) // else its claim ends by itself
		return j, nil            //nolint:nilerr // its reader has left, and learns that the job goes on
	case err != nil:
		_ = a.giveBack(x.ctx, j) // else its claim ends by itself
		return nil, task.Errorf(task.Unavailable, "job %s was interrupted, and goes on when a server runs: %s", j.ID, web.ProblemOf(err).Error())
	}
	return x.op.Job(x.ctx, j.ID)
}

// giveBack lets another process have a job, also at the end of this one.
func (a *API) giveBack(ctx context.Context, j *store.Job) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return a.o.Store.ReleaseJob(ctx, j)
}

func (a *API) jobs(x *exchange) error {
	before, limit := x.q.id("before"), x.q.limit()
	if err := x.q.done(); err != nil {
		return err
	}
	jobs, err := x.op.Jobs(x.ctx, before, limit+1)
	if err != nil {
		return err
	}
	page := shown.JobsPage{Jobs: []shown.Job{}}
	if len(jobs) > limit {
		jobs = jobs[:limit]
		page.Next = jobs[limit-1].ID.String()
	}
	for _, j := range jobs {
		page.Jobs = append(page.Jobs, viewJob(j))
	}
	return x.ok(page)
}

// jobID returns the job of the path.
func (x *exchange) jobID() (task.ID, error) {
	id, err := task.ParseID(x.r.PathValue("id"))
	if err != nil {
		return id, errNoJob
	}
	return id, nil
}

var errNoJob = task.Errorf(task.NotFound, "no job has this id")

func jobFound(err error) error {
	if task.KindOf(err) == task.NotFound {
		return errNoJob
	}
	return err
}

func (a *API) job(x *exchange) error {
	id, err := x.jobID()
	if err != nil {
		return err
	}
	j, err := x.op.Job(x.ctx, id)
	if err != nil {
		return jobFound(err)
	}
	return x.ok(viewJob(j))
}

func (a *API) cancelJob(x *exchange) error {
	if err := x.reason(); err != nil {
		return err
	}
	id, err := x.jobID()
	if err != nil {
		return err
	}
	j, err := x.op.CancelJob(x.ctx, id)
	if err != nil {
		return jobFound(err)
	}
	return x.ok(viewJob(j))
}

const (
	// jobTTL is how long a process has a job. It renews its claim with each step, and another process takes the job when the
	// claim is over.
	jobTTL = 15 * time.Second
	// jobRenewed is how long a process acts on a batch before it records what it has done, which renews its claim; jobTask is how
	// long it may act on one task, which another session may have locked. Together they are shorter than jobTTL.
	jobRenewed = 3 * time.Second
	jobTask    = 8 * time.Second
	// jobPiece is how long a process works on a job before it lets others have a turn.
	jobPiece = 20 * time.Second
	// jobBatch is how many tasks a job acts on at a time, and jobLook how many it counts at a time in a dry run.
	jobBatch = 50
	jobLook  = 500
	// jobFailures is how many failures a job keeps.
	jobFailures = 20
)

// RunJob does a piece of a job that no process works on: a duty of every process. more says that another piece may be due.
func (a *API) RunJob(ctx context.Context) (more bool, err error) {
	worker := a.o.Worker()
	if worker.IsZero() {
		return false, nil
	}
	j, err := a.o.Store.ClaimJob(ctx, worker, jobTTL)
	if err != nil || j == nil {
		return false, err
	}
	err = a.work(ctx, j)
	switch {
	case errors.Is(err, task.LeaseLost):
		return true, nil // another process continues it
	case ctx.Err() != nil:
		// The process stops, or the time of this piece is over.
		return true, a.giveBack(ctx, j)
	}
	return true, err
}

// work does steps of a job until it ends.
func (a *API) work(ctx context.Context, j *store.Job) error {
	op := a.o.Store.Operator(j.Actor, j.Tenant != nil)
	var f jobFilter
	var opts options
	if err := errors.Join(json.Unmarshal(j.Filter, &f), json.Unmarshal(j.Options, &opts)); err != nil {
		return err
	}
	filter, err := f.filter()
	if err != nil {
		return err
	}
	canceled := !j.CanceledAt.IsZero()
	for begun := time.Now(); ; {
		// A batch that the process before has begun.
		if len(j.Batch) > 0 {
			if canceled, err = a.batch(ctx, op, j, opts); err != nil {
				return err
			}
			j.Batch = nil
		}
		if canceled {
			return a.o.Store.EndJob(ctx, j)
		}
		if time.Since(begun) > jobPiece && !a.o.Local {
			return a.o.Store.ReleaseJob(ctx, j)
		}
		most := jobBatch
		if j.DryRun {
			most = jobLook
		}
		page, err := op.List(ctx, filter, j.Position, most)
		if err != nil {
			return err
		}
		position := page.Next
		if position.IsZero() && len(page.Tasks) > 0 {
			position = page.Tasks[len(page.Tasks)-1].Task.ID
		}
		if len(page.Tasks) == 0 && page.Next.IsZero() {
			if j.Action == actPurge && !j.DryRun {
				if err := a.purgeExports(ctx, op, j, filter); err != nil {
					return err
				}
			}
			return a.o.Store.EndJob(ctx, j)
		}
		matched, batch := 0, []task.ID(nil)
		for _, t := range page.Tasks {
			if j.Action == actRetry && !t.Task.RetriedAs.IsZero() {
				continue // the task that was made of it matches by itself
			}
			matched++
			if !j.DryRun {
				batch = append(batch, t.Task.ID)
			}
		}
		if canceled, err = a.o.Store.PlanJob(ctx, j, batch, position, matched, jobTTL); err != nil {
			return err
		}
		j.Position, j.Batch = position, batch
	}
}

// batch acts on the tasks of a job's batch. It may repeat what a process before has done since it last recorded.
func (a *API) batch(ctx context.Context, op *store.Operator, j *store.Job, opts options) (canceled bool, err error) {
	done, skipped, failed, renewed := 0, 0, 0, time.Now()
	fail := func(id task.ID, err error) {
		if web.ProblemOf(err).Status == http.StatusInternalServerError {
			a.o.Log.Warn("a job failed for a task", "task", id.String(), "error", err)
		}
		failed++
		j.Failures = append(j.Failures, store.JobFailure{Task: id.String(), Error: bounded(web.ProblemOf(err).Error())})
		j.Failures = j.Failures[max(0, len(j.Failures)-jobFailures):]
	}
	for all, i := j.Batch, 0; i < len(all); i++ {
		id := all[i]
		did, err := a.onOne(ctx, op, j, id, opts)
		switch kind := task.KindOf(err); {
		case err == nil && !did.skipped:
			done++
		case err == nil:
			skipped++
		case ctx.Err() != nil:
			return false, err
		case kind == task.NotFound, kind == task.Terminal, kind == task.Busy, kind == task.Unsupported, kind == task.NotCancelable:
			skipped++ // it has changed meanwhile, or the action is not for such a task
		default:
			if _, away := a.o.Store.Now(ctx); away != nil {
				return false, away // all others would fail, too
			}
			fail(id, err)
		}
		rest := all[i+1:]
		if len(rest) > 0 && time.Since(renewed) < jobRenewed {
			continue
		}
		if canceled, err = a.o.Store.RecordJob(ctx, j, rest, done, skipped, failed, j.Failures, jobTTL); err != nil {
			return false, err
		}
		j.Batch, done, skipped, failed, renewed = rest, 0, 0, 0, time.Now()
	}
	return canceled, nil
}

// purgeExports deletes the tasks of a purge from the exports, also those that retention has deleted from the database. It keeps the job
// meanwhile, because the files may be large.
func (a *API) purgeExports(ctx context.Context, op *store.Operator, j *store.Job, filter *store.AdminFilter) error {
	base := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := a.o.Retention.PurgeExports(ctx, func(t *task.Task) bool { return op.Sees(t) && filter.Matches(t) })
		ended <- err
	}()
	renew := time.NewTicker(jobRenewed)
	defer renew.Stop()
	for {
		select {
		case err := <-ended:
			if err == nil || base.Err() != nil {
				return err
			}
			a.o.Log.Warn("a purge could not delete its tasks from the exports", "job", j.ID.String(), "error", err)
			j.Failures = append(j.Failures, store.JobFailure{Task: j.Position.String(), Error: bounded("the exports of this and the other tasks: " + err.Error())})
			_, err = a.o.Store.RecordJob(base, j, nil, 0, 0, 1, j.Failures, jobTTL)
			return err
		case <-renew.C:
			if _, err := a.o.Store.PlanJob(ctx, j, nil, j.Position, 0, jobTTL); err != nil {
				cancel()
				return errors.Join(err, <-ended)
			}
		}
	}
}

var errSlow = task.Errorf(task.Unavailable, "the action did not end within %s, and may still take effect; another session may have locked the task", jobTask)

func (a *API) onOne(ctx context.Context, op *store.Operator, j *store.Job, id task.ID, opts options) (did *outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, jobTask)
	defer cancel()
	defer func() {
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errSlow
		}
	}()
	t, err := op.Find(ctx, id.String())
	if err != nil {
		if j.Action == actPurge && task.KindOf(err) == task.NotFound {
			return &outcome{Outcome: outcomePurged}, nil // by the process before
		}
		return nil, err
	}
	return actions[j.Action].do(a, ctx, &act{op: op, task: t, options: opts, key: engine.OperatorKeys + "job " + j.ID.String() + " " + id.String(), job: true})
}
