package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// FollowOptions tune Follow.
type FollowOptions struct {
	// Attempts is how many consecutive attempts to resume may fail before Follow gives up.
	Attempts int
	// Wait is the pause before the first attempt; it doubles up to MaxWait.
	Wait, MaxWait time.Duration
	// Cut is called for every break before Follow resumes. With an id, the stream continues after that event. With none, the
	// server has no ids, and Follow reads the task until it settles.
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

// Follow sends a message and calls each for every event until the task settles. It returns nil only then. If the connection
// breaks, it resumes after the last event, if the server has ids for events. Otherwise it reads the task until it settles, and
// calls each with the whole task when it has changed. If it cannot do that either, it returns a *CutError.
func (c *Client) Follow(ctx context.Context, m *Message, opts FollowOptions, each func(*Event) error) error {
	f := &follower{client: c, opts: opts, each: each, taskID: m.TaskID}
	if c.card != nil && !c.card.Capabilities.Streaming {
		quick := *m
		quick.Return = true
		e, err := c.Send(ctx, &quick)
		if err != nil {
			return err
		}
		return f.rest(ctx, e)
	}
	p := c.params(m)
	if c.target.Wire.ChoosesIDs() {
		f.taskID = p.TaskID
	}
	s, err := c.open(ctx, client.Stream, p)
	if err != nil {
		return err // the server may have stored nothing: whether to send again is the user's choice
	}
	return f.run(ctx, s)
}

// rest follows a task whose first answer was not a stream.
func (f *follower) rest(ctx context.Context, e *Event) error {
	f.note(e)
	f.polled = e.Raw
	if err := f.each(e); err != nil || e.Message != nil || e.State().Settled() {
		return err
	}
	return f.poll(ctx)
}

// Join follows a task that exists, from the event after on. Without an id, and with a server that has none, it begins with
// the task as it is.
func (c *Client) Join(ctx context.Context, taskID, after string, opts FollowOptions, each func(*Event) error) error {
	f := &follower{client: c, opts: opts, each: each, taskID: taskID, lastID: after, resumed: true}
	if !numbered(after) {
		return f.poll(ctx)
	}
	s, err := c.Subscribe(ctx, taskID, after)
	if err != nil {
		return err
	}
	err = f.run(ctx, s)
	var cut *CutError
	if errors.As(err, &cut) && !f.began {
		return cut.Cause
	}
	return err
}

// Await reads a task until it settles, and calls each when it has changed.
func (c *Client) Await(ctx context.Context, answer *Event, opts FollowOptions, each func(*Event) error) error {
	f := &follower{client: c, opts: opts, each: each}
	return f.rest(ctx, answer)
}

// Subscribe returns a stream of a task. With after, the id of an event, it continues after that event, if the server can do
// that: see Resumes. Close it.
func (c *Client) Subscribe(ctx context.Context, taskID, after string) (*Stream, error) {
	return c.open(ctx, client.Subscribe, &client.Params{TaskID: taskID, After: after})
}

// Resumes reports whether the card says that streams of the server can be resumed after any event.
func (c *Client) Resumes() bool { return c.Extends(resumeURI) }

// numbered reports whether a server that sends such an id continues a stream after it. The ids of others say nothing.
func numbered(id string) bool {
	_, err := task.ParsePosition(id)
	return err == nil
}

type follower struct {
	client *Client
	opts   FollowOptions
	each   func(*Event) error

	taskID, lastID string
	failures       int             // consecutive attempts to resume without an event
	began          bool            // an event has come
	settled        bool            // the last event was a whole task, and no event may follow
	resumed        bool            // this is not the stream that answers the message
	polled         json.RawMessage // the task that the caller saw last
	state          task.State      // that the caller saw last
}

// run reads a stream to its end, over all breaks.
func (f *follower) run(ctx context.Context, s *Stream) error {
	for {
		err := f.drain(ctx, s)
		if f.resumed && errors.Is(err, task.Unsupported) {
			err = f.ended(ctx) // 1.0 refuses to subscribe to a task that has ended
		}
		switch {
		case err == nil:
			return nil
		case f.resumed && errors.As(err, new(*client.Error)):
			return &CutError{TaskID: f.taskID, LastEventID: f.lastID, Cause: err}
		case !broken(err):
			return err
		}
		if f.taskID != "" && !numbered(f.lastID) && f.began {
			f.opts.Cut(err, "")
			if err = f.poll(ctx); err != nil && broken(err) {
				err = &CutError{TaskID: f.taskID, Cause: err}
			}
			return err
		}
		if s, err = f.resume(ctx, err); err != nil {
			return err
		}
	}
}

// note remembers what an event says about its task.
func (f *follower) note(e *Event) {
	f.failures, f.began = 0, true
	if e.ID != "" {
		f.lastID = e.ID
	}
	if e.TaskID != "" {
		f.taskID = e.TaskID
	}
	if s := e.State(); s != task.StateUnspecified {
		f.state = s
	}
}

// drain reads a stream to its final event, or to an earlier error.
func (f *follower) drain(ctx context.Context, s *Stream) error {
	defer s.Close()
	for {
		e, err := s.Next()
		if errors.Is(err, io.EOF) {
			if f.settled {
				return nil
			}
			return f.ended(ctx)
		}
		if err != nil {
			return err
		}
		f.note(e)
		state := e.State()
		f.settled = e.Task != nil && state.Settled()
		if err := f.each(e); err != nil {
			return err
		}
		switch {
		case e.Message != nil, state.Terminal():
			return nil
		case state.Settled() && f.resumed:
			// A resumed stream repeats questions that were answered since, and may stay open after the last one.
			if now, err := f.client.Get(ctx, f.taskID); err != nil {
				return err
			} else if now.State() == state {
				return nil
			}
		case state.Settled() && e.Task == nil:
			return nil
		}
	}
}

// ended decides about a stream that ended before its final event. A stream that was resumed after the last event has none.
func (f *follower) ended(ctx context.Context) error {
	if !f.resumed {
		return errNotFinal
	}
	now, err := f.client.Get(ctx, f.taskID)
	switch {
	case err != nil:
		return err
	case !now.State().Settled():
		return errNotFinal
	case now.State() == f.state:
		return nil
	}
	return f.each(now)
}

// resume opens a new stream after cause broke the last one.
func (f *follower) resume(ctx context.Context, cause error) (*Stream, error) {
	f.resumed = true
	for f.taskID != "" && f.lastID != "" && f.failures < f.opts.Attempts {
		f.opts.Cut(cause, f.lastID)
		if err := f.pause(ctx, cause); err != nil {
			cause = err
			break
		}
		f.failures++
		s, err := f.client.Subscribe(ctx, f.taskID, f.lastID)
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

// maxPoll is the longest pause between two reads of a task.
const maxPoll = time.Second

// poll reads the task until it settles.
func (f *follower) poll(ctx context.Context) error {
	for looks := 0; ; looks++ {
		e, err := f.client.Get(ctx, f.taskID)
		switch {
		case err != nil && (!broken(err) || f.failures >= f.opts.Attempts):
			return err
		case err != nil:
			if err := f.pause(ctx, err); err != nil {
				return err
			}
			f.failures++
			continue
		}
		f.failures = 0
		if !bytes.Equal(e.Raw, f.polled) {
			looks, f.polled = 0, e.Raw
			f.note(e)
			if err := f.each(e); err != nil {
				return err
			}
		}
		if e.State().Settled() {
			return nil
		}
		if err := sleep(ctx, min(f.opts.Wait<<min(looks, 8), maxPoll)); err != nil {
			return err
		}
	}
}

// pause waits before an attempt: longer after each failure, and at least as long as the server asked for.
func (f *follower) pause(ctx context.Context, cause error) error {
	wait := min(f.opts.Wait<<min(f.failures, 16), f.opts.MaxWait)
	var busy *CallError
	if errors.As(cause, &busy) {
		wait = max(wait, busy.After)
	}
	return sleep(ctx, wait)
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

// broken reports whether err is a connection error, so that a new connection may help.
func broken(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var call *CallError
	return errors.Is(err, errNotFinal) || errors.As(err, &call) && call.Temporary()
}
