package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// PendingMessages is how many messages may wait for the end of their task's run.
const PendingMessages = 100

// NewMessage is a message for a task that exists.
type NewMessage struct {
	Task        *task.Task // header
	Message     *task.Message
	Request     *task.Request // that carried the message, or nil
	Forwarded   task.Forwarded
	Enqueue     bool             // a task that has a run accepts the message and runs again afterwards
	MostPending int              // with Enqueue: how many messages may wait for the run to end; 0: any number
	RequestID   task.ID          // id of the client's call; makes the write safe to retry
	Idempotency Idempotency      // key of the view's caller
	Push        *task.PushConfig // webhook to set with it, or nil
	MostPushes  int              // how many webhooks the task may have
}

// errDuplicate is the SQLSTATE of a unique violation.
const errDuplicate = "23505"

// AddMessage appends a user's message. If the task is parked, it queues the task again. It returns
// the last seq that it wrote: that of the message or of the status after it. Errors: task.Terminal,
// task.Busy, task.RateLimited (too many messages wait), task.NotFound, ErrTaken (the idempotency key is in use), task.Unavailable.
func (v View) AddMessage(ctx context.Context, n *NewMessage) (seq task.Seq, err error) {
	leave, err := v.enter(ctx, n.Task.ID)
	if err != nil {
		return 0, err
	}
	defer leave()
	for range 5 {
		if seq, err = v.addMessage(ctx, n); !errors.Is(err, errChanged) {
			break
		}
	}
	return seq, err
}

// errChanged says that a task changed its state during the write, so that a retry can succeed.
var errChanged = &task.Error{Kind: task.Unavailable, Msg: "the task changed at the same moment; retry", RetryAfter: time.Second}

func (v View) addMessage(ctx context.Context, n *NewMessage) (task.Seq, error) {
	arg := dbsqlc.MessageAppendParams{
		ID: uuid.UUID(n.Task.ID), Enqueue: n.Enqueue, MostPending: int32(n.MostPending), Tenant: v.by.Tenant, Owner: v.by.Subject,
		Key: n.Idempotency.Key, RequestHash: n.Idempotency.Hash, RequestID: uuid.UUID(n.RequestID),
		Payload: EncodePayload(&task.Event{Kind: task.EventMessage, Message: n.Message, Request: n.Request}),
	}
	var err error
	if arg.Forwarded, err = v.s.sealForwarded(ctx, n.Task, n.Forwarded); err != nil {
		return 0, err
	}
	said := []string{v.audited(auditContinued, n.Task.ID, n.Task.Agent, "")}
	if n.Push != nil {
		said = append(said, v.audited(auditPushSet, n.Task.ID, n.Task.Agent, n.Push.ID))
	}
	arg.Audit = entries(said...)
	if arg.RequestHash == nil {
		arg.RequestHash = []byte{}
	}
	var row dbsqlc.MessageAppendRow
	repeated := false
	err = v.again(ctx, "message", func() error {
		var err error
		row, err = v.appendMessage(ctx, n, arg)
		repeated = repeated || err != nil && unavailable(err) && !lockedOut(err)
		return err
	})
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		if repeated {
			// The task may be busy or ended because the first try was committed.
			seq, err := v.writtenBefore(ctx, n)
			if !errors.Is(err, task.NotFound) {
				return seq, err
			}
		}
		taken := v.whyNoMessage(ctx, n)
		if errors.Is(taken, ErrTaken) {
			if freed, err := v.forgetKey(ctx, n.Idempotency); err != nil || !freed {
				return 0, orTaken(err)
			}
			return 0, errChanged
		}
		return 0, taken
	case errors.As(err, &pg) && pg.Code == errDuplicate:
		seq, err := v.writtenBefore(ctx, n)
		if errors.Is(err, task.NotFound) {
			err = errChanged // the first copy is gone again: a failover lost it
		}
		return seq, err
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
	if (row.Parked || row.Interrupted > 0) && v.s.listener != nil {
		v.s.listener.Ready(n.Task.Agent)
	}
	return evs[len(evs)-1].Seq, nil
}

// appendMessage writes the message and its webhook in one commit. The webhook starts before the
// message in the log, so that all events that follow the message are delivered.
func (v View) appendMessage(ctx context.Context, n *NewMessage, arg dbsqlc.MessageAppendParams) (row dbsqlc.MessageAppendRow, err error) {
	if n.Push == nil {
		return v.s.q.MessageAppend(ctx, v.writes(), arg)
	}
	sealed, err := v.s.sealSecrets(ctx, n.Task.ID, n.Push)
	if err != nil {
		return row, err
	}
	err = pgx.BeginFunc(ctx, v.writes(), func(tx pgx.Tx) error {
		if _, err := v.s.setPush(ctx, tx, n.Task.ID, n.Push, sealed, n.MostPushes); err != nil {
			return err
		}
		row, err = v.s.q.MessageAppend(ctx, tx, arg)
		return err
	})
	return row, err
}

// writtenBefore finds the message of a first try that was committed before its connection died. It
// returns the same seq as AddMessage.
func (v View) writtenBefore(ctx context.Context, n *NewMessage) (task.Seq, error) {
	var seq int64
	err := v.s.proven(ctx, v.db, func(db dbsqlc.DBTX) (err error) {
		seq, err = v.s.q.MessageFind(ctx, db, uuid.UUID(n.Task.ID), uuid.UUID(n.RequestID))
		return err
	})
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
	// Check first whether this is a retry. The task may be busy or ended because of the first
	// request, which was not committed yet when the caller looked for the key.
	if n.Idempotency.Key != "" {
		wide := v
		wide.sees.TenantWide = true // the caller has already found the task
		_, _, err := wide.ofKey(ctx, n.Idempotency.Key)
		if err == nil {
			return ErrTaken
		}
		if !errors.Is(err, task.NotFound) {
			return err
		}
	}
	t, err := v.Header(ctx, n.Task.ID)
	switch {
	case err != nil:
		return err
	case t.Status.State.Terminal():
		return task.Errorf(task.Terminal, "the task is %s and accepts no more messages; start a new one", t.Status.State)
	case !t.Status.State.Parked() && !n.Enqueue && v.interruptible(ctx, n.Task.ID):
		return errChanged // the agent began to wait at the same moment
	case !t.Status.State.Parked() && !n.Enqueue:
		return task.Errorf(task.Busy, "the task is %s and its agent accepts one message at a time; send it again after the agent's answer", t.Status.State)
	case n.Idempotency.Key != "":
		return ErrTaken
	case n.MostPending > 0 && !t.Status.State.Parked():
		row, err := v.s.q.TaskByID(ctx, v.db, uuid.UUID(n.Task.ID))
		if err != nil {
			return translate("count waiting messages", err)
		}
		if int(row.Pending) >= n.MostPending {
			if v.s.observe.Limited != nil {
				v.s.observe.Limited(n.Task.Agent, LimitPending)
			}
			return &task.Error{
				Kind: task.RateLimited, RetryAfter: 5 * time.Second,
				Msg: fmt.Sprintf("%d messages of this task wait for its agent, which is the limit", row.Pending),
			}
		}
	}
	return errChanged
}

// interruptible reports whether a message would end the wait of a task's agent.
func (v View) interruptible(ctx context.Context, id task.ID) bool {
	yields, err := v.s.q.TaskYields(ctx, v.db, uuid.UUID(id))
	return err == nil && yields
}

// noticed reports whether an agent is told about cancels.
func (s *Store) noticed(agent string) bool { return s.tells != nil && s.tells(agent) }

// Cancel ends a task without a run at once. For a running task it asks the worker to end it. ended
// tells which. metadata is that of the request, a JSON object or nil. Errors: task.NotCancelable,
// task.NotFound, task.Unavailable.
func (v View) Cancel(ctx context.Context, h *task.Task, metadata json.RawMessage) (ended bool, err error) {
	leave, err := v.enter(ctx, h.ID)
	if err != nil {
		return false, err
	}
	defer leave()
	arg := dbsqlc.TaskCancelParams{
		ID: uuid.UUID(h.ID), Metadata: string(metadata), Notice: v.s.noticed(h.Agent),
		Audit: entries(v.audited(auditCanceled, h.ID, h.Agent, "")),
	}
	var row dbsqlc.TaskCancelRow
	repeated, before := false, false
	err = v.again(ctx, "cancel", func() error {
		// Safe to retry: at worst it finds the task that it has canceled itself.
		row, err = v.s.q.TaskCancel(ctx, v.writes(), arg)
		if !errors.Is(err, pgx.ErrNoRows) {
			repeated = repeated || err != nil
			return err
		}
		t, err := v.Header(ctx, h.ID)
		if err == nil && repeated && t.Status.State == task.StateCanceled {
			err = v.s.proven(ctx, v.db, func(db dbsqlc.DBTX) error {
				row, err := v.s.q.TaskByID(ctx, db, uuid.UUID(h.ID))
				t, err = found(&row, err)
				return err
			})
		}
		switch {
		case err != nil:
			return err
		case !t.Status.State.Terminal():
			return errChanged // a claim is taking the task from the queue
		case repeated && t.Status.State == task.StateCanceled:
			row.Seq, before = int64(t.LastSeq), true
			return nil
		}
		return task.Errorf(task.NotCancelable, "the task is already %s", t.Status.State)
	})
	if err != nil {
		return false, translate("cancel", err)
	}
	switch {
	case before:
		if v.s.listener != nil {
			v.s.listener.Advanced(h.ID, task.Seq(row.Seq))
		}
	case row.Ended:
		v.s.committed(&task.Event{Task: h.ID, Seq: task.Seq(row.Seq), Kind: task.EventStatus, At: row.At, State: task.StateCanceled})
		v.s.marked(row.Marked)
		v.s.kin(row.Kin)
		v.s.canceled(h.Agent, row.CancelSeconds) // a run that a first cancel wanted to end was lost
	default:
		if row.Logged {
			v.s.committed(&task.Event{
				Task: h.ID, Seq: task.Seq(row.Seq), Kind: task.EventRun, At: row.At, Run: &task.RunNote{Outcome: task.RunCancel},
			})
		}
		if v.s.listener != nil {
			v.s.listener.CancelWanted(h.ID)
		}
	}
	return before || row.Ended, nil
}
