package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// OperatorStore is the part of the store that operators' operations need.
type OperatorStore interface {
	viewer
	Header(ctx context.Context, id task.ID) (*task.Task, error)
	Snapshot(ctx context.Context, h *task.Task, withArtifacts bool) (*task.Task, error)
	Hurry(ctx context.Context, h *task.Task) (hurried, owned bool, err error)
	Retried(ctx context.Context, old, again task.ID) error
}

// Operator has the operations that only operators call. They work on the tasks of every owner and
// agent.
type Operator struct {
	store OperatorStore
	by    task.Caller
}

// NewOperator returns the operations for operator by. The audit log names by as the actor.
func NewOperator(s OperatorStore, by task.Caller) *Operator { return &Operator{s, by} }

// Retry retries a task. A task that waits for its next attempt becomes due now. A task that failed,
// was rejected or was canceled cannot run again, so Retry creates a new one. The new task has the
// same agent, owner and context, and a copy of the message that refers to the old task. Retry
// returns the task that runs; a new id means a new task. Errors: task.Busy, task.Terminal and
// task.Unsupported if there is nothing to retry.
//
// Retry copies the client's first message, because it makes sense without history; "Oslo" alone,
// the answer to a question, does not. With last it copies the last message.
//
// A key makes a repeated call find the task that the first one has created. A call without a key also finds it, at the same moment, or
// if the first one failed before it had noted the new task.
func (o *Operator) Retry(ctx context.Context, h *task.Task, last bool, key string) (*task.Task, error) {
	for range 3 {
		switch s := h.Status.State; s {
		case task.StateFailed, task.StateRejected, task.StateCanceled:
			return o.sendAgain(ctx, h, last, key)
		case task.StateInputRequired, task.StateAuthRequired:
			return nil, task.Errorf(task.Busy, "the task is %s: it continues when its client sends a message", s)
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
			return nil, task.Errorf(task.Busy, "the task is %s and due: its status line says what it waits for", h.Status.State)
		case !errors.Is(err, task.NotFound):
			return nil, err
		}
		// The task was parked or ended after the header was read.
		if h, err = o.store.Header(ctx, h.ID); err != nil {
			return nil, err
		}
	}
	return nil, task.Errorf(task.Unavailable, "the task kept changing; try again")
}

func (o *Operator) sendAgain(ctx context.Context, h *task.Task, last bool, key string) (*task.Task, error) {
	old, err := o.store.Snapshot(ctx, h, false)
	if err != nil {
		return nil, err
	}
	message := firstOf(old.History, last)
	if message == nil {
		return nil, task.Errorf(task.Unsupported, "the task's log has no message of its client to send again")
	}
	again := *message
	again.ID = ""
	if !slices.Contains(again.References, h.PublicID) {
		again.References = append(slices.Clone(again.References), h.PublicID)
	}
	if key == "" {
		key = fmt.Sprintf("%sretry\x1f%s\x1f%s\x1f%t", OperatorKeys, h.ID, h.RetriedAs, last)
	}
	made, err := o.owner(h).Send(ctx, &SendRequest{
		Dialect: h.Dialect, ContextID: h.ContextID, Message: &again, Metadata: h.Metadata, IdempotencyKey: key,
	})
	if err != nil {
		return nil, err
	}
	return made, o.store.Retried(ctx, h.ID, made.ID)
}

// Answer sends a message in the name of its owner to a task that waits for its client.
func (o *Operator) Answer(ctx context.Context, h *task.Task, m *task.Message, key string) error {
	_, err := o.owner(h).Send(ctx, &SendRequest{Dialect: h.Dialect, TaskID: h.PublicID, Message: m, IdempotencyKey: key, Answers: true})
	return err
}

// owner returns the view of a task's owner. It needs no configuration of the agent, which only processes with the role api have.
func (o *Operator) owner(h *task.Task) *View {
	e := New(Options{Store: As(o.store), Agents: []Agent{{Name: h.Agent}}})
	return e.As(task.Caller{
		Tenant: h.Tenant, Subject: h.Owner, Method: task.MethodOperator, Credential: o.by.Subject, Address: o.by.Address, Reason: o.by.Reason,
	}, h.Agent)
}

// OperatorKeys begins the idempotency keys of operators. A client cannot have the same one, because no header can hold it.
const OperatorKeys = "operator\x1f"

// firstOf returns the client's first message in a history, or with last the last one. It returns
// nil if the client sent no message.
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
