package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Check is one check of /readyz. Probe returns its state in a few words. It returns an error if the replica should get
// no requests; an error wrapped by Degraded is shown, but the replica stays ready.
type Check struct {
	Name  string
	Probe func(ctx context.Context) (detail string, err error)
}

type degraded struct{ err error }

func (d *degraded) Error() string { return d.err.Error() }
func (d *degraded) Unwrap() error { return d.err }

// Degraded marks an error of a check that does not make the replica unready.
func Degraded(err error) error { return &degraded{err} }

// checkTimeout bounds a probe, so that /readyz answers before its client gives up.
const checkTimeout = 2 * time.Second

// sharedFor is how long a shared result is used.
const sharedFor = time.Second

// Shared returns a check that runs once for all requests at the same time or shortly after. Anybody may request
// /readyz, so requests must not multiply the cost of a check.
func (c Check) Shared() Check {
	var (
		mu     sync.Mutex
		made   time.Time
		detail string
		err    error
	)
	return Check{c.Name, func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if made.IsZero() || time.Since(made) >= sharedFor {
			// The result is for all requests, so it must not end with the first one.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
			defer cancel()
			detail, err = c.Probe(ctx)
			made = time.Now()
		}
		return detail, err
	}}
}

// The statuses of a check and of the whole answer.
const (
	statusOK       = "ok"
	statusDegraded = "degraded"
	statusFailed   = "failed"
)

type checkResult struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
	Error  string `json:"error,omitempty"`
}

type readiness struct {
	Status string        `json:"status"`
	Checks []checkResult `json:"checks,omitzero"`
}

// brief returns the part for everybody: whether the replica is ready.
func (r readiness) brief() readiness {
	if r.Status != statusFailed {
		return readiness{Status: statusOK}
	}
	return readiness{Status: statusFailed}
}

// probe runs all checks at the same time and keeps their order.
func probe(ctx context.Context, checks []Check) readiness {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	answer := readiness{Status: statusOK, Checks: make([]checkResult, len(checks))}
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { answer.Checks[i] = c.run(ctx) })
	}
	wg.Wait()
	for _, r := range answer.Checks {
		switch {
		case r.Status == statusFailed:
			answer.Status = statusFailed
		case r.Status == statusDegraded && answer.Status == statusOK:
			answer.Status = statusDegraded
		}
	}
	return answer
}

func (c Check) run(ctx context.Context) checkResult {
	detail, err := c.Probe(ctx)
	r := checkResult{Name: c.Name, Status: statusOK, Detail: detail}
	if err != nil {
		r.Status, r.Error = statusFailed, err.Error()
		var d *degraded
		if errors.As(err, &d) {
			r.Status = statusDegraded
		}
	}
	return r
}
