package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/telemetry"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

// The parts measure themselves by functions; here these meet the metrics.

func (s *server) hubObserver() hub.Observer {
	m := s.metrics
	return hub.Observer{Delivered: m.Delivered, PollFound: m.PollFound, Listening: m.Listening, Reread: m.Reread}
}

func (s *server) storeObserver() store.Observer {
	m := s.metrics
	return store.Observer{Flushed: m.Flushed, Fenced: m.Fenced, Retried: m.Retried, Event: m.Event, Limited: m.Limited}
}

func (s *server) workerObserver() worker.Observer {
	m := s.metrics
	return worker.Observer{Claimed: m.Claimed, Ran: m.Ran, Running: m.Running, Limited: m.Limited}
}

func (s *server) rpcObserver() operation.Observer {
	m := s.metrics
	return operation.Observer{Request: m.Request, StreamOpened: m.StreamOpened, Resumed: m.Resumed, Limited: m.Limited}
}

func (s *server) queueDepths(ctx context.Context) ([]telemetry.QueueDepth, error) {
	rows, err := s.store.QueueDepths(ctx)
	out := make([]telemetry.QueueDepth, len(rows))
	for i, r := range rows {
		out[i] = telemetry.QueueDepth{Agent: r.Agent, Waiting: r.Waiting, Running: r.Running, Oldest: r.Oldest}
	}
	return out, err
}

func (s *server) pushCounts(ctx context.Context) (telemetry.Pushes, error) {
	n, err := s.store.CountPushes(ctx)
	return telemetry.Pushes{Backlog: n.Backlog, Oldest: n.Oldest, Disabled: n.Disabled}, err
}

// checks are what /readyz looks at.
func (s *server) checks() []telemetry.Check {
	return []telemetry.Check{
		{Name: "serving", Probe: func(context.Context) (string, error) {
			// A balancer should send the next request elsewhere while this process finishes its runs.
			if s.stopping.Load() {
				return "", errors.New("stopping")
			}
			return "", nil
		}},
		// It takes a connection from those who serve clients. The others cost nothing, and tell at once.
		telemetry.Check{Name: "database", Probe: func(ctx context.Context) (string, error) {
			start := time.Now()
			if err := s.store.Ping(ctx); err != nil {
				return "", err
			}
			return fmt.Sprintf("answered in %s", time.Since(start).Round(10*time.Microsecond)), nil
		}}.Shared(),
		{Name: "lease", Probe: func(context.Context) (string, error) {
			if !s.keeper.Healthy() {
				return "", errors.New("the lease is not being renewed")
			}
			return s.keeper.ID().String(), nil
		}},
		{Name: "listener", Probe: func(context.Context) (string, error) {
			detail, degraded := s.hub.Health()
			if degraded {
				return "", telemetry.Degraded(errors.New(detail))
			}
			return detail, nil
		}},
	}
}
