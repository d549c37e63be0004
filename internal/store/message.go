package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/store/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// NewMessage is a message for a task that exists.
type NewMessage struct {
	Task        *task.Task // header
	Sender      string     // the subject that sends it, whose Idempotency is
	Message     *task.Message
	Enqueue     bool    // a task that has a run takes the message and runs again afterwards
	RequestID   task.ID // of the client's call; makes the write safe to repeat
	Idempotency Idempotency
	Push        *task.PushConfig // that came with it, or nil
	MostPushes  int              // how many the task may have
}

// errDuplicate is the SQLSTATE of a unique violation.
const errDuplicate = "23505"

// AddMessage appends a user's message and, when the task is parked, queues it
// again. It returns the last seq that it wrote: the message's, or that of the
// status behind it. Errors: task.Terminal, task.Busy,
// task.NotFound, ErrTaken (the idempotency key is in use), task.Unavailable.
func (v View) AddMessage(ctx context.Context, n *NewMessage) (seq task.Seq, err error) {
	for range 5 {
		if seq, err = v.addMessage(ctx, n); !errors.Is(err, errChanged) {
			break
		}
	}
	return seq, err
}

// errChanged says that a task was not in the state for the write, and is now.
var errChanged = &task.Error{Kind: task.Unavailable, Msg: "the task changed at the same moment", RetryAfter: time.Second}

func (v View) addMessage(ctx context.Context, n *NewMessage) (task.Seq, error) {
	arg := dbsqlc.MessageAppendParams{
		ID: uuid.UUID(n.Task.ID), Enqueue: n.Enqueue, Tenant: n.Task.Tenant, Owner: n.Sender,
		Key: n.Idempotency.Key, RequestHash: n.Idempotency.Hash, RequestID: uuid.UUID(n.RequestID),
		Payload: EncodePayload(&task.Event{Kind: task.EventMessage, Message: n.Message}),
	}
	said := []string{v.audited(auditContinued, n.Task.ID, n.Task.Agent, "")}
	if n.Push != nil {
		said = append(said, v.audited(auditPushSet, n.Task.ID, n.Task.Agent, n.Push.ID))
	}
	arg.Audit = entries(said...)
	if arg.RequestHash == nil {
		arg.RequestHash = []byte{}
	}
	row, err := v.appendMessage(ctx, n, arg)
	repeated := false
	for try := 0; err != nil && unavailable(err) && try < 5; try++ {
		repeated = true
		v.s.retried("message", err, try)
		if pause(ctx, try) != nil {
			break
		}
		row, err = v.appendMessage(ctx, n, arg)
	}
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		if repeated {
			// The task is busy or has ended perhaps because of the first copy.
			seq, err := v.writtenBefore(ctx, n)
			if !errors.Is(err, task.NotFound) {
				return seq, err
			}
		}
		taken := v.whyNoMessage(ctx, n)
		if errors.Is(taken, ErrTaken) {
			if freed, err := v.forgetKey(ctx, n.Task.Tenant, n.Sender, n.Idempotency); err != nil || !freed {
				return 0, orTaken(err)
			}
			return 0, errChanged
		}
		return 0, taken
	case errors.As(err, &pg) && pg.Code == errDuplicate:
		return v.writtenBefore(ctx, n)
	case err != nil:
		return 0, translate("add message", err)
	}
	seq := task.Seq(row.Seq)
	evs := []*task.Event{{Task: n.Task.ID, Seq: seq, Kind: task.EventMessage, At: row.At, Message: n.Message}}
	if row.Parked {
		evs = append(evs, &task.Event{Task: n.Task.ID, Seq: seq + 1, Kind: task.EventStatus, At: row.At, State: task.StateSubmitted})
	}
	v.s.committed(evs...)
	v.s.marked(row.Marked)
	if row.Parked && v.s.listener != nil {
		v.s.listener.Ready(n.Task.Agent)
	}
	return evs[len(evs)-1].Seq, nil
}

// appendMessage writes the message, and in the same commit the webhook that came with it, which is placed before the
// message so that what this leads to is delivered.
func (v View) appendMessage(ctx context.Context, n *NewMessage, arg dbsqlc.MessageAppendParams) (row dbsqlc.MessageAppendRow, err error) {
	if n.Push == nil {
		return v.s.q.MessageAppend(ctx, v.db, arg)
	}
	sealed, err := v.s.sealSecrets(ctx, n.Task.ID, n.Push)
	if err != nil {
		return row, err
	}
	err = pgx.BeginFunc(ctx, v.db, func(tx pgx.Tx) error {
		if _, err := v.s.setPush(ctx, tx, n.Task.ID, n.Push, sealed, n.MostPushes); err != nil {
			return err
		}
		row, err = v.s.q.MessageAppend(ctx, tx, arg)
		return err
	})
	return row, err
}

// writtenBefore finds the message whose first copy had been committed when its
// connection died, and returns what AddMessage would have.
func (v View) writtenBefore(ctx context.Context, n *NewMessage) (task.Seq, error) {
	seq, err := v.s.q.MessageFind(ctx, v.db, dbsqlc.MessageFindParams{Task: uuid.UUID(n.Task.ID), RequestID: uuid.UUID(n.RequestID)})
	if err != nil {
		return 0, translate("find message", err)
	}
	if v.s.listener != nil {
		v.s.listener.Advanced(n.Task.ID, task.Seq(seq))
		v.s.listener.Ready(n.Task.Agent)
	}
	return task.Seq(seq), nil
}

func (v View) whyNoMessage(ctx context.Context, n *NewMessage) error {
	// First, whether this is a repetition: the task may be busy or have ended because of the first try, which was
	// still on its way when the caller looked for the key.
	if n.Idempotency.Key != "" {
		_, err := v.s.q.IdempotencyGet(ctx, v.db, dbsqlc.IdempotencyGetParams{
			Tenant: n.Task.Tenant, Owner: n.Sender, TenantWide: true, Key: n.Idempotency.Key, // a task that the sender has found
		})
		if err == nil {
			return ErrTaken
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return translate("idempotency key", err)
		}
	}
	t, err := v.Header(ctx, n.Task.ID)
	switch {
	case err != nil:
		return err
	case t.Status.State.Terminal():
		return task.Errorf(task.Terminal, "the task is %s and takes no more messages", t.Status.State)
	case !t.Status.State.Parked() && !n.Enqueue:
		return task.Errorf(task.Busy, "the task is %s and this agent takes one message at a time", t.Status.State)
	case n.Idempotency.Key != "":
		return ErrTaken
	}
	return errChanged
}

// Cancel ends a task that has no run at once, and asks the worker of one that
// has. ended tells which. Errors: task.NotCancelable, task.NotFound.
func (v View) Cancel(ctx context.Context, h *task.Task) (ended bool, err error) {
	repeated := false
	arg := dbsqlc.TaskCancelParams{ID: uuid.UUID(h.ID), Audit: entries(v.audited(auditCanceled, h.ID, h.Agent, ""))}
	row, err := v.s.q.TaskCancel(ctx, v.db, arg)
	for try := 0; try < 5; try++ {
		if err == nil && (row.Ended || !row.Unowned) || err != nil && !unavailable(err) {
			break
		}
		if err != nil {
			// Harmless to repeat: at worst it finds the task canceled, by itself.
			repeated = true
			v.s.retried("cancel", err, try)
			if pause(ctx, try) != nil {
				break
			}
		}
		row, err = v.s.q.TaskCancel(ctx, v.db, arg)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		t, err := v.Header(ctx, h.ID)
		if err != nil {
			return false, err
		}
		if repeated && t.Status.State == task.StateCanceled {
			if v.s.listener != nil {
				v.s.listener.Advanced(h.ID, t.LastSeq)
			}
			return true, nil
		}
		return false, task.Errorf(task.NotCancelable, "the task is already %s", t.Status.State)
	}
	if err != nil {
		return false, translate("cancel", err)
	}
	if row.Ended {
		v.s.committed(&task.Event{Task: h.ID, Seq: task.Seq(row.Seq), Kind: task.EventStatus, At: row.At, State: task.StateCanceled})
		v.s.marked(row.Marked)
	} else if v.s.listener != nil {
		v.s.listener.CancelWanted(h.ID)
	}
	return row.Ended, nil
}
