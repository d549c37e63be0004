package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// OperatorStore is what operators' operations ask of the database.
type OperatorStore interface {
	As(c store.Caller) store.View
	Header(ctx context.Context, id task.ID) (*task.Task, error)
	Snapshot(ctx context.Context, h *task.Task, withArtifacts bool) (*task.Task, error)
	Hurry(ctx context.Context, h *task.Task) (hurried, owned bool, err error)
}

// Operator has the operations that no client calls: on the tasks of every owner and agent.
type Operator struct {
	store OperatorStore
	by    store.Caller
}

// NewOperator makes an operator, whom the audit log names.
func NewOperator(s OperatorStore, by store.Caller) *Operator { return &Operator{s, by} }

// Retry gives a task another try. One that waits for its next attempt gets it now. One
// that failed, was rejected or canceled has ended for good, so a new task is made of it:
// for the same agent and owner, in the same context, with a copy of the message that
// refers to the old task. It returns the task that runs, which tells the two apart by its
// id. task.Busy, task.Terminal and task.Unsupported say why there is nothing to retry.
//
// The message is the first, because that one means something by itself: a new task has no
// history, and "Oslo" is no answer when nobody has asked. With last it is the last one.
func (o *Operator) Retry(ctx context.Context, h *task.Task, last bool) (*task.Task, error) {
	for range 3 {
		switch s := h.Status.State; s {
		case task.StateFailed, task.StateRejected, task.StateCanceled:
			return o.sendAgain(ctx, h, last)
		case task.StateInputRequired, task.StateAuthRequired:
			return nil, task.Errorf(task.Busy, "the task is %s: it goes on when its client sends a message", s)
		case task.StateSubmitted, task.StateWorking:
		default:
			return nil, task.Errorf(task.Terminal, "the task is %s: there is nothing to retry", s)
		}
		hurried, owned, err := o.store.Hurry(ctx, h)
		switch {
		case hurried:
			return h, nil
		case owned:
			return nil, task.Errorf(task.Busy, "the task is %s: a worker runs it", h.Status.State)
		case err == nil:
			return nil, task.Errorf(task.Busy, "the task is %s and due: it waits for a free worker of agent %s", h.Status.State, h.Agent)
		case !errors.Is(err, task.NotFound):
			return nil, err
		}
		// It has parked or ended since the header was read.
		if h, err = o.store.Header(ctx, h.ID); err != nil {
			return nil, err
		}
	}
	return nil, task.Errorf(task.Unavailable, "the task keeps changing")
}

func (o *Operator) sendAgain(ctx context.Context, h *task.Task, last bool) (*task.Task, error) {
	old, err := o.store.Snapshot(ctx, h, false)
	if err != nil {
		return nil, err
	}
	message := firstOf(old.History, last)
	if message == nil {
		return nil, task.Errorf(task.Unsupported, "the log of the task has no message of its client to send again")
	}
	again := *message
	again.ID = ""
	if !slices.Contains(again.References, h.PublicID) {
		again.References = append(slices.Clone(again.References), h.PublicID)
	}
	e := New(Options{Store: As(o.store), Agents: []Agent{{Name: h.Agent}}})
	return e.Send(ctx, &SendRequest{
		Caller: Caller{
			Principal: Principal{Tenant: h.Tenant, Subject: h.Owner, Method: o.by.Method, Credential: o.by.Subject},
			Agent:     h.Agent, Address: o.by.Address,
		},
		Dialect: h.Dialect, ContextID: h.ContextID, Message: &again, Metadata: h.Metadata,
	})
}

// firstOf is the first message of the client in a history, or the last one.
func firstOf(history []task.Message, last bool) *task.Message {
	var found *task.Message
	for i := range history {
		if history[i].Role != task.RoleAgent {
			found = &history[i]
			if !last {
				return found
			}
		}
	}
	return found
}
