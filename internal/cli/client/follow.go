package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"
)

// FollowOptions tune Follow.
type FollowOptions struct {
	// Attempts is how many consecutive attempts to resume may fail before Follow gives up.
	Attempts int
	// Wait is the pause before the first attempt; it doubles up to MaxWait.
	Wait, MaxWait time.Duration
	// Cut is called for every break before Follow resumes, with the id of the last event. after is empty if the server
	// sends no ids.
	Cut func(err error, after string)
}

// CutError says that a stream broke and could not be resumed. Events may be missing.
type CutError struct {
	TaskID      string // empty if the stream broke before the task was known
	LastEventID string
	Cause       error
}

func (e *CutError) Error() string {
	return fmt.Sprintf("the stream broke and could not be resumed: %v", e.Cause)
}

func (e *CutError) Unwrap() error { return e.Cause }

// errNotFinal says that the server closed the stream before the task was done. A server that stops does that.
var errNotFinal = errors.New("the server closed the stream before the task settled")

// Follow sends a message and calls each for every event until the final one. If the connection breaks, it resumes after
// the last event. It returns nil only after the final event. If it cannot resume, it returns a *CutError.
func (c *Client) Follow(ctx context.Context, p SendParams, opts FollowOptions, each func(*Event) error) error {
	s, err := c.Stream(ctx, p)
	if err != nil {
		return err // the server may have stored nothing: whether to send again is the user's choice
	}
	f := follower{client: c, opts: opts, each: each}
	for {
		err := f.drain(s)
		if err == nil || !broken(err) {
			return err
		}
		if s, err = f.resume(ctx, err); err != nil {
			return err
		}
	}
}

type follower struct {
	client *Client
	opts   FollowOptions
	each   func(*Event) error

	taskID, lastID string
	failures       int  // consecutive attempts to resume without an event
	settled        bool // the last event was a whole task, and no event will follow
}

// drain reads a stream to its final event, or to an earlier error.
func (f *follower) drain(s *Stream) error {
	defer func() { _ = s.Close() }() // it was only read
	for {
		e, err := s.Next()
		if errors.Is(err, io.EOF) {
			if f.settled {
				return nil
			}
			return errNotFinal
		}
		if err != nil {
			return err
		}
		f.failures = 0
		if e.ID != "" {
			f.lastID = e.ID
		}
		if id := e.TaskID(); id != "" {
			f.taskID = id
		}
		f.settled = e.Task != nil && Settled(e.Task.Status.State)
		if err := f.each(e); err != nil {
			return err
		}
		if e.Final() {
			return nil
		}
	}
}

// resume opens a new stream after cause broke the last one.
func (f *follower) resume(ctx context.Context, cause error) (*Stream, error) {
	for f.taskID != "" && f.failures < f.opts.Attempts {
		f.opts.Cut(cause, f.lastID)
		if err := f.pause(ctx, cause); err != nil {
			cause = err
			break
		}
		f.failures++
		s, err := f.client.Resubscribe(ctx, f.taskID, f.lastID)
		if err == nil {
			return s, nil
		}
		cause = err
		if !broken(err) {
			break
		}
	}
	return nil, &CutError{TaskID: f.taskID, LastEventID: f.lastID, Cause: cause}
}

// pause waits before an attempt: longer after each failure, and at least as long as the server asked for.
func (f *follower) pause(ctx context.Context, cause error) error {
	wait := min(f.opts.Wait<<min(f.failures, 16), f.opts.MaxWait)
	var busy *HTTPError
	if errors.As(cause, &busy) {
		wait = max(wait, busy.RetryAfter)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// broken reports whether err is a connection error, so that a new connection may help.
func broken(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var status *HTTPError
	if errors.As(err, &status) {
		return status.temporary()
	}
	var read *readError
	var transport *url.Error
	return errors.Is(err, errNotFinal) || errors.As(err, &read) || errors.As(err, &transport)
}
