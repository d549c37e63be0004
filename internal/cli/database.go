package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/adminclient"
	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/server"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/upkeep/retention"
)

// openOperator connects to the database for the verbs that read or change it.
func openOperator(ctx context.Context, cfg *config.Config, log *slog.Logger) (Operator, error) {
	db, err := existingDatabase(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	bell := hub.NewDoorbell(db.DirectURL)
	s, err := store.Open(ctx, store.Options{
		URL: db.URL, Pooled: db.URL != db.DirectURL, APIConns: 2, Writers: 1, Listener: bell, SecretKeys: cfg.Push.SealingKeys(), Widths: server.Widths(cfg), By: operatorCaller(ctx), WithoutAudit: !cfg.Audit.Enabled, Tells: server.Tells(cfg), Log: log,
	})
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("database: %w", schema.Explain(err))
	}
	o := &operator{s, bell, db.Close, cfg, log}
	version, err := schema.ReadVersion(ctx, s.Pools()["api"])
	switch {
	case err != nil:
		err = fmt.Errorf("database: %w", schema.Explain(err))
	case !version.Current():
		err = fmt.Errorf("the database has schema version %d, but this program needs version %d; start the server or run holdfast migrate",
			version.Applied, version.Latest)
	default:
		return o, nil
	}
	o.Close()
	return nil, err
}

// reasonKey is the key of --reason in the context of a verb.
type reasonKey struct{}

// operatorCaller returns the caller for the audit log.
func operatorCaller(ctx context.Context) task.Caller {
	c := task.Caller{Method: task.MethodOperator}
	c.Reason, _ = ctx.Value(reasonKey{}).(string)
	c.Subject = nameOf(user.Current())
	c.Address, _ = os.Hostname()
	return c
}

// nameOf returns the name of an account. An image without /etc/passwd knows only its number.
func nameOf(u *user.User, err error) string {
	if err != nil || u.Username == "" {
		return "uid " + strconv.Itoa(os.Getuid())
	}
	return u.Username
}

type operator struct {
	store   *store.Store
	bell    *hub.Doorbell
	closeDB func()
	cfg     *config.Config
	log     *slog.Logger
}

func (o *operator) ListTasks(ctx context.Context, f TaskFilter) ([]TaskRow, error) {
	rows, err := o.store.ListTasks(ctx, store.TaskFilter{
		Agent: f.Agent, ContextID: f.Context, Tenant: f.Tenant, Owner: f.Owner, State: f.State, Limit: f.Limit,
	})
	out := make([]TaskRow, len(rows))
	for i, r := range rows {
		t := r.Task
		out[i] = TaskRow{
			ID: t.ID, PublicID: t.PublicID, Agent: t.Agent, State: t.Status.State, ContextID: t.ContextID,
			Tenant: t.Tenant, Owner: t.Owner, LastSeq: t.LastSeq, StatusAt: t.Status.At, CreatedAt: t.CreatedAt,
		}
	}
	return out, err
}

func (o *operator) Calls(ctx context.Context, t *task.Task) ([]store.CallRow, error) {
	return o.store.Calls(ctx, t.ID)
}

func (o *operator) GetTask(ctx context.Context, id string) (*task.Task, error) {
	h, err := o.store.Resolve(ctx, id)
	if err != nil {
		return nil, err
	}
	return o.store.Snapshot(ctx, h, true)
}

func (o *operator) FindTask(ctx context.Context, id string) (*task.Task, error) {
	return o.store.Resolve(ctx, id)
}

func (o *operator) Events(ctx context.Context, t *task.Task, after task.Seq) ([]*task.Event, error) {
	const page = 500
	return o.store.EventsAfter(ctx, t, task.Position{Seq: after}, page)
}

// watchedAtMost bounds the tasks of one round of a watch.
const watchedAtMost = 10_000

func (o *operator) Watch(f TaskFilter) Watch {
	return &watch{o.store.NewWatch(store.TaskFilter{Agent: f.Agent, ContextID: f.Context, Tenant: f.Tenant, Owner: f.Owner}, watchedAtMost)}
}

type watch struct{ w *store.Watch }

func (w *watch) Next(ctx context.Context) ([]TaskEvent, bool, error) {
	evs, more, err := w.w.Next(ctx)
	out := make([]TaskEvent, len(evs))
	for i, e := range evs {
		out[i] = TaskEvent(e)
	}
	return out, more, err
}

func (w *watch) Dropped() int { return w.w.Dropped }

func (o *operator) Cancel(ctx context.Context, t *task.Task) (ended bool, err error) {
	ended, err = o.store.Cancel(ctx, t, nil)
	o.ring(ctx)
	return ended, err
}

func (o *operator) Retry(ctx context.Context, t *task.Task, last bool) (*task.Task, error) {
	again, err := engine.NewOperator(o.store, operatorCaller(ctx)).Retry(ctx, t, last)
	o.ring(ctx)
	return again, err
}

func (o *operator) CreateKey(ctx context.Context, k *Key, lifetime time.Duration) (secret string, made *Key, err error) {
	if err := auth.CheckSubject(k.Tenant, k.Subject); err != nil {
		return "", nil, task.InvalidField("key", "%s", err)
	}
	secret, id, hash := auth.NewAPIKey()
	stored, err := o.store.AddAPIKey(ctx, &store.APIKey{
		ID: id, Hash: hash, Name: k.Name, Tenant: k.Tenant, Subject: k.Subject, Scopes: k.Scopes,
	}, lifetime)
	if err != nil {
		return "", nil, err
	}
	return secret, keyOf(stored), nil
}

func (o *operator) Keys(ctx context.Context) ([]*Key, error) {
	stored, err := o.store.APIKeys(ctx)
	out := make([]*Key, len(stored))
	for i, k := range stored {
		out[i] = keyOf(k)
	}
	return out, err
}

func (o *operator) RevokeKey(ctx context.Context, id string) (*Key, error) {
	k, err := o.store.RevokeAPIKey(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case k == nil:
		return nil, task.Errorf(task.NotFound, "no key has this id; see holdfast api-keys list")
	}
	o.ring(ctx)
	return keyOf(k), nil
}

// Agents implements AgentsOperator.
func (o *operator) Agents(ctx context.Context) ([]adminclient.Agent, error) {
	var all []adminclient.Agent
	for i := range o.cfg.Agents {
		a := &o.cfg.Agents[i]
		all = append(all, adminclient.Agent{
			Name: a.Name, Default: a.Default, Kind: string(a.Executor.Kind), Concurrency: a.Slots(), MaxAttempts: a.Limits.MaxAttempts,
			Queue: &adminclient.Depths{},
		})
	}
	// Others are of another configuration: they have tasks in the queue or a worker, or are away. Without a configuration, all that have
	// a task.
	of := func(name string) *adminclient.Agent {
		i := slices.IndexFunc(all, func(a adminclient.Agent) bool { return a.Name == name })
		if i < 0 {
			i, all = len(all), append(all, adminclient.Agent{Name: name, Queue: &adminclient.Depths{}})
		}
		return &all[i]
	}
	if len(o.cfg.Agents) == 0 {
		for _, read := range []func() ([]string, error){
			func() ([]string, error) { return o.store.ParkedAgents(ctx) },
			func() ([]string, error) { return o.store.EndedAgents(ctx, store.Everything) },
			func() ([]string, error) {
				dated := store.Everything
				dated.Kept = false
				return o.store.EndedAgents(ctx, dated)
			},
		} {
			names, err := read()
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				of(name)
			}
		}
	}
	outages, err := o.store.Outages(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range outages {
		of(x.Agent).Away = &adminclient.Away{Since: x.Since.UTC(), LastAt: x.LastAt.UTC(), Error: x.Error}
	}
	depths, err := o.store.QueueDepths(ctx)
	if err != nil {
		return nil, err
	}
	for i := range depths {
		d := &depths[i]
		q := of(d.Agent).Queue
		q.Waiting, q.Running, q.Timers, q.Calls, q.OldestSeconds = d.Waiting, d.Running, d.Timers, d.Calls, d.Oldest.Seconds()
	}
	workers, err := o.store.RemoteWorkersOf(ctx, "", true, maxWorkers)
	if err != nil {
		return nil, err
	}
	for i := range workers {
		for _, name := range workers[i].Agents {
			if a := of(name); a.Kind == "" {
				a.Kind = string(config.ExecutorWorker)
			}
		}
	}
	if len(o.cfg.Agents) == 0 {
		slices.SortFunc(all, func(a, b adminclient.Agent) int { return strings.Compare(a.Name, b.Name) })
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	parked, err := o.store.Parked(ctx, names)
	if err != nil {
		return nil, err
	}
	for i := range all {
		a := &all[i]
		a.Queue.Parked = parked[a.Name]
		if a.Kind == string(config.ExecutorWorker) {
			n := 0
			for j := range workers {
				if workers[j].RetiredAt.IsZero() && slices.Contains(workers[j].Agents, a.Name) {
					n++
				}
			}
			a.Workers = &n
		}
	}
	return all, nil
}

// maxWorkers bounds the connected workers that are counted.
const maxWorkers = 10_000

// Agent implements AgentsOperator.
func (o *operator) Agent(ctx context.Context, name string) (*adminclient.AgentDetail, error) {
	all, err := o.Agents(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == name {
			return &adminclient.AgentDetail{Agent: all[i]}, nil
		}
	}
	return nil, task.Errorf(task.NotFound, "no agent of the configuration has this name")
}

// Workers implements WorkersOperator.
func (o *operator) Workers(ctx context.Context, most int) ([]store.RemoteWorker, error) {
	return o.store.RemoteWorkers(ctx, most)
}

// RetireWorkers implements WorkersOperator.
func (o *operator) RetireWorkers(ctx context.Context, id task.ID, version string) ([]store.RemoteWorker, error) {
	retired, err := o.store.RetireRemote(ctx, id, version)
	if errors.Is(err, task.NotFound) {
		err = task.Errorf(task.NotFound, "no such worker is connected; see holdfast workers list")
	}
	return retired, err
}

func keyOf(k *store.APIKey) *Key {
	return &Key{
		ID: k.ID, Name: k.Name, Tenant: k.Tenant, Subject: k.Subject, Scopes: k.Scopes,
		CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, LastUsedAt: k.LastUsedAt,
	}
}

func (o *operator) ListPushes(ctx context.Context, f store.PushFilter) ([]store.PushRow, error) {
	return o.store.ListPushes(ctx, f)
}

func (o *operator) PushAttempts(ctx context.Context, id task.ID, configID string, limit int) ([]store.PushAttempt, error) {
	return o.store.PushAttempts(ctx, id, configID, limit)
}

func (o *operator) Redeliver(ctx context.Context, id task.ID, configID string, from task.Seq) (due, disabled bool, err error) {
	due, disabled, err = o.store.Redeliver(ctx, id, configID, from)
	o.ring(ctx)
	return due, disabled, err
}

func (o *operator) EnablePush(ctx context.Context, id task.ID, configID string) (due bool, err error) {
	due, err = o.store.EnablePush(ctx, id, configID)
	o.ring(ctx)
	return due, err
}

func (o *operator) DisablePush(ctx context.Context, id task.ID, configID, reason string) error {
	found, err := o.store.DisablePush(ctx, id, configID, reason)
	if err == nil && !found {
		return task.NotFound
	}
	return err
}

func (o *operator) TryPush(ctx context.Context, p *task.PushConfig, of server.TrialOf) (*server.Trial, error) {
	return server.TryWebhook(ctx, o.cfg, o.store, p, of, Version(), o.log)
}

func (o *operator) PlanRetention(ctx context.Context) ([]retention.Step, error) {
	return server.NewRetention(o.cfg, o.store, o.log).Plan(ctx)
}

func (o *operator) Purge(ctx context.Context, f *store.PurgeFilter) (retention.Purged, error) {
	done, err := server.NewRetention(o.cfg, o.store, o.log).Purge(ctx, f)
	o.ring(ctx)
	return done, err
}

func (o *operator) Hold(ctx context.Context, t *task.Task, held bool) error {
	return o.store.Hold(ctx, t.ID, held)
}

func (o *operator) Reseal(ctx context.Context) (int, error) { return o.store.Reseal(ctx) }

// ring sends the replicas a hint. Without the hint they find the change in their next round.
func (o *operator) ring(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := o.bell.Ring(ctx); err != nil {
		o.log.Debug("hint to the replicas not sent", "error", err)
	}
}

func (o *operator) VerifyAudit(ctx context.Context, noted []store.AuditHead) ([]store.AuditChain, error) {
	return o.store.VerifyAudit(ctx, noted)
}

// Audit implements Operator.
func (o *operator) Audit(ctx context.Context, f *store.AuditFilter, since time.Time, limit int) (out []store.AuditRow, err error) {
	const batch = 500
	for before := (store.AuditPlace{}); ; {
		rows, err := o.store.Audit(ctx, before, since, batch)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if before = r.AuditPlace; f.Matches(r.Entries) {
				out = append(out, r)
			}
			if len(out) == limit {
				return out, nil
			}
		}
		if len(rows) < batch {
			return out, nil
		}
	}
}

func (o *operator) Close() {
	o.store.Close(context.Background())
	o.closeDB()
}
