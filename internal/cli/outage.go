package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// outage waits through times when the database, or the server of --server, does not answer.
type outage struct {
	c     *command
	limit time.Duration // how long an outage may last; 0: forever
	began time.Time     // zero while it answers
}

// over handles the result of a call. If again is true, repeat the call; over has already waited. An error is final.
func (o *outage) over(ctx context.Context, err error) (again bool, final error) {
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err == nil:
		if !o.began.IsZero() {
			o.c.note("The %s answers again.", o.c.source())
			o.began = time.Time{}
		}
		return false, nil
	case !errors.Is(err, task.Unavailable):
		return false, err
	case o.began.IsZero():
		o.began = time.Now()
		o.c.note("The %s does not answer (%s); retrying.", o.c.source(), plain(err))
	case o.limit > 0 && time.Since(o.began) > o.limit:
		return false, fmt.Errorf("the %s has not answered for %s: %w", o.c.source(), o.limit, err)
	}
	return true, sleep(ctx, min(max(time.Since(o.began)/4, 100*time.Millisecond), 2*time.Second))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
