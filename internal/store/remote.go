package store

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// LentRun names a run of a remote worker: its task, and when it was claimed (task.Fence).
type LentRun struct {
	Task      task.ID
	ClaimedAt int64
}

// Renewal is the result of a heartbeat about one run.
type Renewal struct {
	LentRun
	Owned    bool // the worker has the run
	Canceled bool
	Over     bool // not owned: the run has ended. Otherwise another worker may have it
	Renewed  bool // owned: the lease is renewed. Otherwise another session has locked the row
	Until    time.Time
	Lease    time.Duration
}

// RenewRemote renews the leases of a worker's runs. leases has the agents that the caller may serve. It waits for no lock.
func (s *Store) RenewRemote(ctx context.Context, worker task.ID, runs []LentRun, leases map[string]time.Duration) ([]Renewal, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	arg := dbsqlc.RemoteRenewParams{Worker: uuid.UUID(worker)}
	for _, r := range runs {
		arg.Ids, arg.Claims = append(arg.Ids, uuid.UUID(r.Task)), append(arg.Claims, time.UnixMicro(r.ClaimedAt))
	}
	arg.Lowest, arg.Highest = span(arg.Ids)
	for agent, lease := range leases {
		arg.Agents, arg.Leases = append(arg.Agents, agent), append(arg.Leases, lease)
	}
	var rows []dbsqlc.RemoteRenewRow
	err := s.rolledBack(ctx, "renew", func() (err error) {
		rows, err = s.q.RemoteRenew(ctx, s.brief(s.hot), arg)
		return err
	})
	if err != nil {
		return nil, translate("renew leases of remote workers", err)
	}
	found := make(map[uuid.UUID]*dbsqlc.RemoteRenewRow, len(rows))
	for i := range rows {
		found[rows[i].ID] = &rows[i]
	}
	out := make([]Renewal, 0, len(runs))
	for _, r := range runs {
		if row := found[uuid.UUID(r.Task)]; row != nil {
			out = append(out, Renewal{r, row.Owned, row.Canceled, row.Over, row.Renewed, row.LeaseUntil, row.Lease})
		}
	}
	return out, nil
}

// Lent lists the runs of these agents that a remote worker has.
func (s *Store) Lent(ctx context.Context, worker task.ID, agents []string) ([]LentRun, error) {
	rows, err := s.q.RemoteLent(ctx, s.hot, uuid.UUID(worker), agents)
	if err != nil {
		return nil, translate("runs of a remote worker", err)
	}
	out := make([]LentRun, len(rows))
	for i, r := range rows {
		out[i] = LentRun{task.ID(r.ID), r.ClaimedAt.Time.UnixMicro()}
	}
	return out, nil
}

// ExpireRemote frees the runs of these agents whose lease has expired, as Rescue does. With others it also frees those of other
// agents.
func (s *Store) ExpireRemote(ctx context.Context, agents []string, others bool) (runs []Rescued, err error) {
	return s.expire(ctx, dbsqlc.RemoteExpireParams{AllAgents: others, Agents: agents})
}

// PartRemote records that workers are gone whose last requests this replica has answered. It frees their runs, with the leases
// that their last heartbeats renewed, unless another replica has heard of them since.
func (s *Store) PartRemote(ctx context.Context, replica string, workers []task.ID, runs []Renewal) ([]Rescued, error) {
	if err := s.q.RemoteLeft(ctx, s.brief(s.hot), uuids(workers), cleanName(replica)); err != nil {
		return nil, translate("part from remote workers", err)
	}
	if len(runs) == 0 {
		return nil, nil
	}
	left := dbsqlc.RemoteExpireParams{Agents: []string{}}
	for _, r := range runs {
		left.Left, left.Renewed = append(left.Left, uuid.UUID(r.Task)), append(left.Renewed, r.Until)
	}
	return s.expire(ctx, left)
}

func (s *Store) expire(ctx context.Context, arg dbsqlc.RemoteExpireParams) (runs []Rescued, err error) {
	var rows []dbsqlc.RemoteExpireRow
	err = s.rolledBack(ctx, "expire", func() (err error) {
		rows, err = s.q.RemoteExpire(ctx, s.brief(s.hot), arg)
		return err
	})
	if err != nil {
		return nil, translate("expire leases of remote workers", err)
	}
	for _, r := range rows {
		runs = append(runs, Rescued{task.ID(r.ID), r.Agent})
		if s.listener != nil {
			s.listener.Advanced(task.ID(r.ID), task.Seq(r.Seq))
			s.listener.Ready(r.Agent)
			s.listener.CancelWanted(task.ID(r.ID)) // a heartbeat of the worker may wait
		}
	}
	return runs, nil
}

// RemoteLimits are the limits of an agent's runs. 0: none, except for Grace.
type RemoteLimits struct{ Grace, Timeout, Inactivity time.Duration }

// Overdue is a run of a remote worker that a replica must end.
type Overdue struct {
	LentRun
	Canceled bool // its grace is over, or its worker is gone
	TimedOut bool // otherwise it was silent for too long
}

// LookRemote looks at the runs of these agents that are due for a look, at most 500. It returns those to end.
func (s *Store) LookRemote(ctx context.Context, agents map[string]RemoteLimits) ([]Overdue, error) {
	arg := dbsqlc.RemoteLookParams{Most: 500}
	for agent, l := range agents {
		arg.Agents, arg.Graces = append(arg.Agents, agent), append(arg.Graces, l.Grace)
		arg.Timeouts, arg.Inactivities = append(arg.Timeouts, l.Timeout), append(arg.Inactivities, l.Inactivity)
	}
	var rows []dbsqlc.RemoteLookRow
	err := s.rolledBack(ctx, "look", func() (err error) {
		rows, err = s.q.RemoteLook(ctx, s.brief(s.hot), arg)
		return err
	})
	if err != nil {
		return nil, translate("look at runs of remote workers", err)
	}
	out := make([]Overdue, len(rows))
	for i, r := range rows {
		out[i] = Overdue{LentRun{task.ID(r.ID), r.ClaimedAt.Time.UnixMicro()}, r.CancelRequested, r.TimedOut}
	}
	return out, nil
}

// RemoteWorker is a process that connects to claim runs.
type RemoteWorker struct {
	ID        task.ID   `json:"id"`
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	SDK       string    `json:"sdk"`
	Replica   string    `json:"replica"`
	Agents    []string  `json:"agents"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	State     string    `json:"state"`               // connected, retired (connected, and told to claim no more) or gone
	RetiredAt time.Time `json:"retired_at,omitzero"` // zero: it may claim
	Running   int       `json:"running"`
}

// SeenRemote records that a replica has answered these workers, and returns those of them that are retired.
func (s *Store) SeenRemote(ctx context.Context, replica string, workers []RemoteWorker) (retired []task.ID, err error) {
	arg := dbsqlc.RemoteSeenParams{Replica: cleanName(replica)}
	for i := range workers {
		w := &workers[i]
		arg.Ids, arg.Names, arg.Versions = append(arg.Ids, uuid.UUID(w.ID)), append(arg.Names, cleanName(w.Name)), append(arg.Versions, cleanName(w.Version))
		arg.Sdks, arg.Agents = append(arg.Sdks, cleanName(w.SDK)), append(arg.Agents, strings.Join(w.Agents, ","))
	}
	if len(arg.Ids) == 0 {
		return nil, nil
	}
	rows, err := s.q.RemoteSeen(ctx, s.brief(s.hot), arg)
	for _, r := range rows {
		if r.Retired {
			retired = append(retired, task.ID(r.ID))
		}
	}
	return retired, translate("record remote workers", err)
}

// RetiredRemote returns the workers that an operator has retired within this time, and those that a replica took for gone.
func (s *Store) RetiredRemote(ctx context.Context, within time.Duration) (retired, gone []task.ID, err error) {
	rows, err := s.q.RemoteRetired(ctx, s.hot, within, within+2*time.Minute)
	for _, r := range rows {
		if r.Retired {
			retired = append(retired, task.ID(r.ID))
		} else {
			gone = append(gone, task.ID(r.ID))
		}
	}
	return retired, gone, translate("retired workers", err)
}

// RetireRemote tells a worker to claim no more. Errors: task.NotFound.
func (v View) RetireRemote(ctx context.Context, id task.ID) error {
	var n int64
	err := v.record(ctx, auditWorkerRetired, task.ID{}, id.String(), func(tx pgx.Tx) (done bool, err error) {
		n, err = v.s.q.RemoteRetire(ctx, tx, uuid.UUID(id))
		return n > 0, err
	})
	if err == nil && n == 0 {
		return task.NotFound
	}
	return translate("retire a remote worker", err)
}

// ForgetRemote deletes workers that were last seen longer ago than age. more says that there may be further ones.
func (s *Store) ForgetRemote(ctx context.Context, age time.Duration) (more bool, err error) {
	const most = 1000
	n, err := s.q.RemoteForget(ctx, s.brief(s.hot), age, most)
	return n == most, translate("forget remote workers", err)
}

// AbsentRemote returns those of the agents that have due tasks and no connected worker, and for how long that is known. It
// records their outages, which a process observes.
func (s *Store) AbsentRemote(ctx context.Context, process task.ID, agents []string) (map[string]time.Duration, error) {
	rows, err := s.q.RemoteAbsent(ctx, s.brief(s.hot), agents, "no worker of the agent is connected", uuid.UUID(process))
	if err != nil {
		return nil, translate("look for agents without workers", err)
	}
	out := map[string]time.Duration{}
	for _, r := range rows {
		out[r.Agent] = r.AwayFor
	}
	return out, nil
}
