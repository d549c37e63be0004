package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Process describes a server process to its peers and to operators.
type Process struct {
	ID      task.ID
	Name    string
	Version string
	Roles   string
	Agents  map[string]ServedAgent // those of its configuration
}

// ServedAgent says how a process runs an agent.
type ServedAgent struct {
	Tries int `json:"tries"`           // of a message
	Slots int `json:"slots,omitempty"` // runs at once; 0: remote workers run it
}

// Register adds a process with a lease of ttl, by the database's clock.
func (s *Store) Register(ctx context.Context, p Process, ttl time.Duration) error {
	agents := []byte("{}")
	if len(p.Agents) > 0 {
		var err error
		if agents, err = json.Marshal(p.Agents); err != nil {
			return err
		}
	}
	_, err := s.q.WorkerRegister(ctx, s.lease, dbsqlc.WorkerRegisterParams{
		ID: uuid.UUID(p.ID), Name: p.Name, Version: p.Version, Roles: p.Roles, Agents: agents, Ttl: ttl,
	})
	s.moves.renewal(err)
	return translate("register", err)
}

// Renew extends a process's lease to ttl from now. Errors: task.LeaseLost if the process was
// declared dead.
func (s *Store) Renew(ctx context.Context, id task.ID, ttl time.Duration) error {
	began := time.Now()
	_, err := s.q.WorkerRenew(ctx, s.lease, ttl, uuid.UUID(id))
	lost := errors.Is(err, pgx.ErrNoRows)
	if lost {
		err = nil // the primary has answered
	}
	s.moves.renewal(err)
	if err != nil {
		return translate("renew lease", err)
	}
	s.moves.trust(began.Add(ttl))
	if lost {
		return task.LeaseLost
	}
	return nil
}

// Unregister ends a process's lease. Nobody renews it any more, and what is still to be written is written.
func (s *Store) Unregister(ctx context.Context, id task.ID) error {
	s.moves.trust(time.Time{})
	return translate("unregister", s.q.WorkerRemove(ctx, s.lease, uuid.UUID(id)))
}

// Processes returns the number of processes with a lease.
func (s *Store) Processes(ctx context.Context) (int, error) {
	n, err := s.q.WorkerCount(ctx, s.lease)
	return int(n), translate("count processes", err)
}

// Rescued is a run that was freed from a dead process.
type Rescued struct {
	Task  task.ID
	Agent string
}

// Rescue declares dead the processes whose lease expired more than grace ago, and frees their runs.
// It raises the attempt of each run, which fences a worker that still executes it. Any number of
// processes may call it at once. Without scan it looks for runs only if it has declared a process
// dead: the scan reads all rows that vacuum has not yet removed from the queue.
func (s *Store) Rescue(ctx context.Context, grace time.Duration, scan bool) (dead []string, runs []Rescued, err error) {
	gone, err := s.q.WorkersReap(ctx, s.brief(s.hot), grace)
	if err != nil {
		return nil, nil, translate("reap", err)
	}
	for _, w := range gone {
		dead = append(dead, w.Name)
	}
	if len(dead) == 0 && !scan {
		return nil, nil, nil
	}
	var rows []dbsqlc.RunsRescueRow
	err = s.rolledBack(ctx, "rescue", func() (err error) {
		rows, err = s.q.RunsRescue(ctx, s.brief(s.hot))
		return err
	})
	if err != nil {
		return dead, nil, translate("rescue", err)
	}
	for _, r := range rows {
		runs = append(runs, Rescued{task.ID(r.ID), r.Agent})
		if s.listener != nil {
			s.listener.Advanced(task.ID(r.ID), task.Seq(r.Seq))
			s.listener.Ready(r.Agent)
		}
	}
	return dead, runs, nil
}

// Lead acquires or renews the lease of a duty that one process runs at a time. It returns false if
// another process holds the lease.
func (s *Store) Lead(ctx context.Context, duty string, holder task.ID, ttl time.Duration) (bool, error) {
	_, err := s.q.LeaseAcquire(ctx, s.brief(s.hot), duty, uuid.UUID(holder), ttl)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, translate("lead", err)
}

// Resign gives up the lease of a duty.
func (s *Store) Resign(ctx context.Context, duty string, holder task.ID) error {
	return translate("resign", s.q.LeaseRelease(ctx, s.brief(s.hot), duty, uuid.UUID(holder)))
}
