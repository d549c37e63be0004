package store

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// StateOf names a value that an agent stores: that of a task, or that of the task's context. A context's value belongs to
// the owner and the agent of the task.
type StateOf struct {
	Task    *task.Task // header
	Context bool
}

// AnyVersion lets SetAgentState replace a value whatever its version.
const AnyVersion = -1

// ErrStateChanged says that another value is stored than the one to replace.
var ErrStateChanged = errors.New("the stored state has another version")

// AgentState returns the value that an agent has stored, and its version; or nil and 0.
func (s *Store) AgentState(ctx context.Context, of StateOf) (value json.RawMessage, version int64, err error) {
	var text string
	if of.Context {
		var row dbsqlc.ContextStateGetRow
		row, err = s.q.ContextStateGet(ctx, s.api, dbsqlc.ContextStateGetParams{
			Tenant: of.Task.Tenant, Owner: of.Task.Owner, Agent: of.Task.Agent, ContextID: of.Task.ContextID,
		})
		text, version = row.Value, row.Version
	} else {
		var row dbsqlc.TaskStateGetRow
		row, err = s.q.TaskStateGet(ctx, s.api, uuid.UUID(of.Task.ID))
		text, version = row.Value, row.Version
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, translate("read state", err)
	}
	return json.RawMessage(text), version, nil
}

// NewState is a value to store, in the name of a run.
type NewState struct {
	StateOf
	task.Fence
	Value     json.RawMessage // nil removes what is stored
	Version   int64           // of the value that it replaces; 0: none is stored; AnyVersion
	RequestID task.ID         // makes the write safe to retry
}

// SetAgentState stores or removes a value and returns its new version, 0 for a removed one. It is committed when
// SetAgentState returns. Errors: task.LeaseLost if the run may not write any more, ErrStateChanged, task.Unavailable.
func (s *Store) SetAgentState(ctx context.Context, n NewState) (version int64, err error) {
	arg := dbsqlc.TaskStateSetParams{
		Task: uuid.UUID(n.Task.ID), Attempt: int32(n.Attempt), ClaimedAt: claimedAt(n.Fence), RequestID: uuid.UUID(n.RequestID), Version: n.Version,
		Value: pgtype.Text{String: string(n.Value), Valid: n.Value != nil},
	}
	leave, err := s.turns.enter(ctx, n.Task.ID)
	if err != nil {
		return 0, err
	}
	defer leave()
	var row dbsqlc.TaskStateSetRow
	err = s.View.again(ctx, "state", func() (err error) {
		if n.Context {
			var r dbsqlc.ContextStateSetRow
			r, err = s.q.ContextStateSet(ctx, s.writes(), dbsqlc.ContextStateSetParams(arg))
			row = dbsqlc.TaskStateSetRow(r)
			return err
		}
		row, err = s.q.TaskStateSet(ctx, s.writes(), arg)
		return err
	})
	switch {
	case err != nil:
		return 0, translate("store state", err)
	case !row.Runs:
		return 0, task.LeaseLost
	case row.Put && n.Value != nil:
		return row.Version, nil
	case row.Put, n.Value == nil && n.Version <= 0 && !row.Existed:
		return 0, nil
	}
	return 0, ErrStateChanged
}

// forgetContextStates deletes the states of contexts that have no task left when the periods before an id are dropped.
func (s *Store) forgetContextStates(ctx context.Context, highest uuid.UUID) error {
	var after uuid.UUID
	for {
		page, err := s.q.ContextStatesGone(ctx, s.hot, after, highest, retainEvents)
		if err != nil || len(page) < retainEvents {
			return translate("forget states of contexts", err)
		}
		after = page[len(page)-1]
	}
}
