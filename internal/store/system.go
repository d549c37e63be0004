package store

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// statTasks is how many ended tasks statistics, or a look for failures, pass over, of all agents together. Each agent gets the
// same part, and its newest tasks count.
const statTasks = 20_000

// AgentStat says what ended of an agent in one interval of time.
type AgentStat struct {
	Agent                             string
	Bucket                            int // number of the interval, from 0
	Ended, Failed, Canceled, Rejected int64
	Timed                             int64   // tasks with the duration of a run
	RunP50, RunP95, TookP50, TookP95  float64 // seconds: of the last run of a task, and from its creation to its end
}

// AgentStats has the statistics of agents.
type AgentStats struct {
	Stats []AgentStat
	// Since is how far back the tasks of an agent count, if that is later than the beginning that was asked for.
	Since map[string]time.Time
}

// AgentStats returns what ended in each interval since a time. It reads at most statTasks tasks, whatever the history is.
func (o *Operator) AgentStats(ctx context.Context, agents []string, since time.Time, width time.Duration) (*AgentStats, error) {
	out := &AgentStats{}
	if len(agents) == 0 {
		return out, nil
	}
	froms, later, err := o.agentWindows(ctx, agents, since, width, o.s.statTasks/len(agents))
	if err != nil {
		return nil, err
	}
	arg := dbsqlc.AgentStatsParams{Since: since, Width: width.Seconds(), Agents: agents, Froms: froms, ByTenant: o.bound, Tenant: o.by.Tenant}
	rows, err := o.s.q.AgentStats(ctx, o.sees.db, arg)
	if err != nil {
		return nil, translate("statistics of agents", err)
	}
	out.Since = later
	for _, r := range rows {
		out.Stats = append(out.Stats, AgentStat{
			Agent: r.Agent, Bucket: int(r.Bucket), Ended: r.Ended, Failed: r.Failed, Canceled: r.Canceled, Rejected: r.Rejected,
			Timed: r.Timed, RunP50: r.RunP50, RunP95: r.RunP95, TookP50: r.TookP50, TookP95: r.TookP95,
		})
	}
	return out, nil
}

// agentWindows returns from when on each agent has at most so many ended tasks, and the agents for which that is later than
// since. A later beginning is that of an interval: the time itself would tell an operator of one tenant when a task of another one ended.
func (o *Operator) agentWindows(ctx context.Context, agents []string, since time.Time, width time.Duration, most int) (froms []time.Time, later map[string]time.Time, err error) {
	rows, err := o.s.q.AgentWindows(ctx, o.s.api, agents, since, int32(max(most, 100)))
	if err != nil {
		return nil, nil, translate("statistics of agents", err)
	}
	later = map[string]time.Time{}
	for _, r := range rows {
		later[r.Agent] = since.Add((r.StatusAt.Sub(since)/width + 1) * width)
	}
	for _, agent := range agents {
		from, cut := later[agent]
		if !cut {
			from = since
		}
		froms = append(froms, from)
	}
	return froms, later, nil
}

// FailedTask is a task that failed or was rejected.
type FailedTask struct {
	ID       task.ID
	PublicID string
	State    task.State
	At       time.Time
	Reason   string // its beginning
}

// failureReason bounds the reason of a failure, in characters.
const failureReason = 500

// Failures returns the newest tasks of an agent that failed or were rejected since a time, with their reasons. from is how far back
// it looked: it passes over failureTasks ended tasks.
func (o *Operator) Failures(ctx context.Context, agent string, since time.Time, limit int) (failed []FailedTask, from time.Time, err error) {
	froms, _, err := o.agentWindows(ctx, []string{agent}, since, time.Second, o.s.statTasks)
	if err != nil {
		return nil, since, err
	}
	from = froms[0]
	rows, err := o.s.q.AgentFailed(ctx, o.sees.db, dbsqlc.AgentFailedParams{
		Agent: agent, Since: from, ByTenant: o.bound, Tenant: o.by.Tenant, MaxRows: int32(limit),
	})
	if err != nil || len(rows) == 0 {
		return nil, from, translate("failures of an agent", err)
	}
	arg := dbsqlc.StatusReasonsParams{Most: failureReason}
	at := map[uuid.UUID]int{}
	for i, r := range rows {
		f := FailedTask{ID: task.ID(r.ID), PublicID: r.ID.String(), State: task.State(r.State), At: r.StatusAt}
		if r.ClientID.Valid {
			f.PublicID = r.ClientID.String
		}
		failed, at[r.ID] = append(failed, f), i
		arg.Tasks, arg.Seqs = append(arg.Tasks, r.ID), append(arg.Seqs, r.StatusSeq)
	}
	arg.Lowest, arg.Highest = span(arg.Tasks)
	reasons, err := o.s.q.StatusReasons(ctx, o.s.api, arg)
	for _, r := range reasons {
		failed[at[r.Task]].Reason = r.Reason
	}
	return failed, from, translate("failures of an agent", err)
}

// windowPushes is how many webhooks a window of a list passes over. A list has up to windows of them.
const windowPushes = 10_000

// ListedPushPage is a page of webhooks, those of the newest tasks first.
type ListedPushPage struct {
	Pushes []PushRow
	// NextTask and NextID are the place of the next page; zero: this is the last one. A page may be short, or empty, without being
	// the last one.
	NextTask task.ID
	NextID   string
}

// ListedPushes returns a page of webhooks that the operator sees. It passes over a bounded number of webhooks, however rare the ones
// of the filter are.
func (o *Operator) ListedPushes(ctx context.Context, f PushFilter) (*ListedPushPage, error) {
	limit, page := f.Limit, &ListedPushPage{}
	if o.bound {
		f.Tenant = &o.by.Tenant
	}
	if f.BeforeTask.IsZero() {
		f.BeforeTask, f.BeforeID = task.ID(uuid.Max), ""
	}
	for range windows {
		last := true
		f.SinceTask = task.ID{}
		if f.Task.IsZero() {
			end, err := o.pushWindow(ctx, &f)
			if err != nil {
				return nil, err
			}
			if last = end.IsZero(); !last {
				f.SinceTask = end
			}
		}
		f.Limit = limit - len(page.Pushes) + 1
		rows, err := o.s.ListPushes(ctx, f)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			if len(page.Pushes) == limit {
				end := &page.Pushes[limit-1]
				page.NextTask, page.NextID = end.Task, end.Config.ID
				return page, nil
			}
			page.Pushes = append(page.Pushes, rows[i])
		}
		if last {
			return page, nil
		}
		f.BeforeTask, f.BeforeID = f.SinceTask, ""
	}
	page.NextTask = f.BeforeTask
	return page, nil
}

// pushWindow returns the first id of the window before a place; zero: it is the last one. As with tasks, it is the beginning of a
// millisecond.
func (o *Operator) pushWindow(ctx context.Context, f *PushFilter) (end task.ID, err error) {
	arg := dbsqlc.PushWindowParams{
		BeforeTask: uuid.UUID(f.BeforeTask), BeforeID: f.BeforeID, Failing: f.Failing, Disabled: f.Disabled, MaxRows: o.s.windowPushes,
	}
	// A generic plan could not use the partial indexes.
	err = o.s.planned(ctx, func(tx pgx.Tx) error {
		at, err := o.s.q.PushWindow(ctx, tx, arg)
		if err == nil {
			first := partition.FirstID(partition.TimeOf(task.ID(at)))
			if bytes.Compare(first[:], f.BeforeTask[:]) < 0 {
				end = task.ID(first)
			}
		}
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return end, translate("list webhooks", err)
}

// PushLagBound is up to how many webhooks PushLags counts.
const PushLagBound = 10_000

// PushLags says how many webhooks lag, each number up to PushLagBound.
type PushLags struct {
	Due           int64           `json:"due"`
	Failing       int64           `json:"failing"` // and not disabled
	Disabled      int64           `json:"disabled"`
	OldestSeconds float64         `json:"oldest_seconds"` // how long the oldest delivery that is due has waited
	Hosts         []PushLagOfHost `json:"hosts"`
}

// PushLagOfHost says how many webhooks of one receiver fail.
type PushLagOfHost struct {
	Host     string    `json:"host"`
	Failing  int64     `json:"failing"` // and not disabled
	Disabled int64     `json:"disabled"`
	Since    time.Time `json:"since"`
	Error    string    `json:"error,omitempty"` // of one of them
}

// PushLags measures the webhooks of all tenants.
func (s *Store) PushLags(ctx context.Context) (*PushLags, error) {
	r, err := s.q.PushLags(ctx, s.api, PushLagBound)
	if err != nil {
		return nil, translate("measure webhooks", err)
	}
	out := &PushLags{Due: r.Due, Failing: r.Failing, Disabled: r.Disabled, OldestSeconds: r.OldestSeconds, Hosts: []PushLagOfHost{}}
	hosts, err := s.q.PushLagsOfHosts(ctx, s.api, PushLagBound, 10)
	for _, h := range hosts {
		out.Hosts = append(out.Hosts, PushLagOfHost(h))
	}
	return out, translate("measure webhooks", err)
}

// ListAPIKeys returns the keys before one ("": from the newest on) that the operator sees, the newest first. Errors: task.NotFound if
// there is no such key.
func (o *Operator) ListAPIKeys(ctx context.Context, before string, limit int) ([]*APIKey, error) {
	arg := dbsqlc.APIKeysPageParams{BeforeAt: Newest.At, ByTenant: o.bound, Tenant: o.by.Tenant, MaxRows: int32(limit)}
	if before != "" {
		at, err := o.s.q.APIKeyPlace(ctx, o.s.api, cleanName(before), o.bound, o.by.Tenant)
		if err != nil {
			return nil, translate("list API keys", err)
		}
		arg.BeforeAt, arg.BeforeID = at, cleanName(before)
	}
	rows, err := o.s.q.APIKeysPage(ctx, o.s.api, arg)
	out := make([]*APIKey, len(rows))
	for i := range rows {
		out[i] = apiKey(&rows[i])
	}
	return out, translate("list API keys", err)
}

// Duty is a duty and the process that has it.
type Duty struct {
	Name   string    `json:"name"`
	Holder string    `json:"holder,omitempty"` // the name of the process; "": it is gone
	Until  time.Time `json:"until"`
	Held   bool      `json:"held"`
}

// Duties lists the duties that processes have or had.
func (s *Store) Duties(ctx context.Context) ([]Duty, error) {
	rows, err := s.q.Duties(ctx, s.api)
	out := make([]Duty, len(rows))
	for i, r := range rows {
		out[i] = Duty{Name: r.Name, Holder: r.Holder, Until: r.Until, Held: r.Held}
	}
	return out, translate("read duties", err)
}

// TableSize is the size of a table on disk, with its indexes.
type TableSize struct {
	Name  string
	Bytes int64
	Rows  int64 // as PostgreSQL estimates them; -1: not known
}

// TableSizes measures the tables.
func (s *Store) TableSizes(ctx context.Context) ([]TableSize, error) {
	rows, err := s.q.TableSizes(ctx, s.api)
	out := make([]TableSize, len(rows))
	for i, r := range rows {
		out[i] = TableSize{r.Name, r.Bytes, r.EstimatedRows}
	}
	return out, translate("measure tables", err)
}

// DatabaseFacts describes the database.
type DatabaseFacts struct {
	Bytes          int64     `json:"bytes"`
	Version        string    `json:"version"`     // of PostgreSQL
	Contract       string    `json:"contract"`    // of the views
	Connections    int64     `json:"connections"` // of the whole PostgreSQL
	MaxConnections int64     `json:"max_connections"`
	StartedAt      time.Time `json:"started_at"`
	// Oldest is when the oldest task was created; zero: no task exists.
	Oldest time.Time `json:"oldest_task,omitzero"`
}

// Database describes the database.
func (s *Store) Database(ctx context.Context) (*DatabaseFacts, error) {
	r, err := s.q.DatabaseFacts(ctx, s.api)
	if err != nil {
		return nil, translate("describe the database", err)
	}
	out := &DatabaseFacts{
		Bytes: r.Bytes, Version: r.Version, Contract: r.Contract, Connections: r.Connections, MaxConnections: r.MaxConnections, StartedAt: r.StartedAt,
	}
	oldest, err := s.q.OldestTask(ctx, s.api)
	if len(oldest) > 0 {
		out.Oldest = partition.TimeOf(oldest[0])
	}
	return out, translate("describe the database", err)
}

// RemoteWorkersOf lists the workers of an agent ("": of all), those that were seen last first.
func (s *Store) RemoteWorkersOf(ctx context.Context, agent string, connected bool, limit int) ([]RemoteWorker, error) {
	rows, err := s.q.RemoteWorkersOf(ctx, s.api, agent, connected, int32(limit))
	out := make([]RemoteWorker, len(rows))
	for i, r := range rows {
		out[i] = RemoteWorker{
			ID: task.ID(r.Worker), Name: r.Name, Version: r.Version, SDK: r.Sdk, Replica: r.Replica, Agents: r.Agents, State: "connected",
			FirstSeen: r.FirstSeen, LastSeen: r.LastSeen, RetiredAt: r.RetiredAt.Time, Running: int(r.Running),
		}
		switch {
		case !r.Connected:
			out[i].State = "gone"
		case r.RetiredAt.Valid:
			out[i].State = "retired"
		}
	}
	return out, translate("list remote workers", err)
}
