package engine

import (
	"context"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Entry is an event on a stream, with its encodings.
type Entry = hub.Entry

// ErrClosed ends a stream when the replica stops, is cut off from the database, or has shown events
// that the database has lost. The client resumes.
var ErrClosed = hub.ErrClosed

// Stream is a task's events from some point on. The caller must call Close.
type Stream struct {
	// Task is the task at the start of the stream, to show first. It is nil when the client
	// resumes. Header always has the task's identity.
	Task   *task.Task
	Header *task.Task
	// Hold asks to show nothing before the first event: the agent may answer with a bare Message,
	// and then the client must see no task.
	Hold bool
	// Over says that the client has seen all events of the stream.
	Over bool

	sub    *hub.Subscription
	status task.Seq // current status at the start of the stream
}

// Stream stores a message and follows its task.
func (v *View) Stream(ctx context.Context, r *SendRequest) (*Stream, error) {
	s, err := v.deliver(ctx, r, true)
	if err != nil {
		return nil, err
	}
	st := &Stream{Header: s.header, sub: s.sub}
	switch {
	case s.fresh:
		st.Task = store.Empty(s.header)
		err = st.Task.Apply(s.first)
		st.Hold = v.agents[v.agent].DirectReplies
	case s.seq == 0:
		st.Task, err = v.snapshot(ctx, s.header.ID, 0)
	default:
		// The snapshot ends at the message. The run's writes since then follow as events.
		st.Task, err = v.snapshot(ctx, s.header.ID, s.seq)
	}
	if err != nil {
		s.sub.Close()
		return nil, err
	}
	st.status = st.Task.Status.Seq
	st.sub.Start(st.Task.Position())
	return st, nil
}

// Subscribe follows a task from a snapshot, or from the event after r.After. If the log does not
// have that event, the client gets a snapshot. This happens when the database lost its newest
// commits, or when the position belongs to an earlier task with the same id. Errors: task.Terminal
// if r.Live is set and the task has ended.
func (v *View) Subscribe(ctx context.Context, r *SubscribeRequest) (*Stream, error) {
	h, err := v.Find(ctx, r.TaskID)
	if err != nil {
		return nil, err
	}
	st := &Stream{Header: h, sub: v.opt.Hub.Subscribe(h)}
	// Read again: no hint tells of a commit between the first read and the registration.
	if h, err = v.store.Header(ctx, h.ID); err == nil {
		st.status = h.Status.Seq
		after := task.Position{Seq: r.After.Seq - h.StreamBase, Mark: r.After.Mark}
		holds := r.Resume && after.Seq >= 0 && after.Seq <= h.LastSeq
		if holds && after.Seq > 0 && after.Mark != 0 {
			if holds, err = v.store.Holds(ctx, h, after); err != nil {
				st.Close()
				return nil, err
			}
		}
		if holds {
			// Only notes that no stream shows can follow the settling status.
			st.Over = after.Seq >= h.Status.Seq && (h.Status.State.Terminal() || h.Status.State.Parked() && !r.Live)
			st.sub.Resume(after, h.Position())
			return st, nil
		}
		if r.Live && h.Status.State.Terminal() {
			err = task.Errorf(task.Terminal, "the task is already %s", h.Status.State)
		} else if st.Task, err = v.store.Snapshot(ctx, h, true); err == nil {
			st.sub.Start(st.Task.Position())
			return st, nil
		}
	}
	st.Close()
	return nil, err
}

// Next blocks until there are events and returns them in order, without a gap.
func (s *Stream) Next(ctx context.Context) ([]*Entry, error) { return s.sub.Next(ctx) }

// ID returns the position on streams for one in the log, as SubscribeRequest.After uses it.
func (s *Stream) ID(p task.Position) task.Position {
	p.Seq += s.Header.StreamBase
	return p
}

// Superseded reports whether ev is a parking status that a later status has replaced. A resumed
// stream skips it.
func (s *Stream) Superseded(ev *task.Event) bool {
	return ev.Kind == task.EventStatus && ev.State.Parked() && ev.Seq < s.status
}

// Close ends the subscription.
func (s *Stream) Close() { s.sub.Close() }
