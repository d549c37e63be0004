package engine

import (
	"context"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Entry is an event on a stream, with its encodings.
type Entry = hub.Entry

// ErrClosed ends a stream when the replica stops: the client resumes on another one.
var ErrClosed = hub.ErrClosed

// Stream is a task's events from some point on. Close must be called.
type Stream struct {
	// Task is the task as the stream begins: to be shown first. Nil when the client
	// resumes and has seen it. Its identity is always in Header.
	Task   *task.Task
	Header *task.Task
	// Hold asks to show nothing before the first event: the agent may answer with a bare
	// Message, and then there is no task to show.
	Hold bool
	// Over says that nothing follows what the client has seen.
	Over bool

	sub    *hub.Subscription
	status task.Seq // the status that was current when the stream began
}

// Stream stores a message and follows its task.
func (e *Engine) Stream(ctx context.Context, r *SendRequest) (*Stream, error) {
	s, err := e.deliver(ctx, r, true)
	if err != nil {
		return nil, err
	}
	st := &Stream{Header: s.header, sub: s.sub}
	switch {
	case s.fresh:
		st.Task = store.Empty(s.header)
		err = st.Task.Apply(s.first)
		st.Hold = e.agents[r.Agent].DirectReplies
	case s.seq == 0:
		st.Task, err = e.snapshot(ctx, r.Caller, s.header.ID, 0)
	default:
		// As it stood when the message was stored: what the run did since comes as events.
		st.Task, err = e.snapshot(ctx, r.Caller, s.header.ID, s.seq)
	}
	if err != nil {
		s.sub.Close()
		return nil, err
	}
	st.status = st.Task.Status.Seq
	st.sub.Start(st.Task.LastSeq)
	return st, nil
}

// Subscribe follows a task from a snapshot, or from the event after r.After. A
// position that the log does not know (the database lost its newest commits, or it is of
// an earlier task of the same id) is void: the client gets a snapshot. task.Terminal: r.Live, and there is nothing to follow.
func (e *Engine) Subscribe(ctx context.Context, r *SubscribeRequest) (*Stream, error) {
	h, err := e.Find(ctx, r.Caller, r.TaskID)
	if err != nil {
		return nil, err
	}
	v := e.as(r.Caller)
	st := &Stream{Header: h, sub: e.opt.Hub.Subscribe(h)}
	// Read again: what was committed between the first read and the registration has no hint.
	if h, err = v.Header(ctx, h.ID); err == nil {
		st.status = h.Status.Seq
		after := r.After - h.StreamBase
		if r.Resume && after >= 0 && after <= h.LastSeq {
			// What may stand behind the settling status are notes that no stream shows.
			st.Over = after >= h.Status.Seq && (h.Status.State.Terminal() || h.Status.State.Parked() && !r.Live)
			st.sub.Resume(after, h.LastSeq)
			return st, nil
		}
		if r.Live && h.Status.State.Terminal() {
			err = task.Errorf(task.Terminal, "the task is already %s", h.Status.State)
		} else if st.Task, err = v.Snapshot(ctx, h, true); err == nil {
			st.sub.Start(st.Task.LastSeq)
			return st, nil
		}
	}
	st.Close()
	return nil, err
}

// Next waits for events, in order and without a gap.
func (s *Stream) Next(ctx context.Context) ([]*Entry, error) { return s.sub.Next(ctx) }

// ID is the id of an event on streams: what SubscribeRequest.After counts in.
func (s *Stream) ID(seq task.Seq) int64 { return int64(s.Header.StreamBase + seq) }

// Superseded reports whether a parking status lies so far back that the task has
// moved on since: a resumed stream passes over it.
func (s *Stream) Superseded(ev *task.Event) bool {
	return ev.Kind == task.EventStatus && ev.State.Parked() && ev.Seq < s.status
}

// Close ends the subscription.
func (s *Stream) Close() { s.sub.Close() }
