package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// State implements executor.Memory.
func (m *runMemory) State(ctx context.Context, of executor.Scope) (s executor.State, err error) {
	err = m.r.read(ctx, func() (err error) {
		s.Value, s.Version, err = m.r.pool.opt.Store.AgentState(ctx, m.stateOf(of))
		return err
	})
	return s, err
}

// SetState implements executor.Memory.
func (m *runMemory) SetState(ctx context.Context, of executor.Scope, value json.RawMessage, version int64) (int64, error) {
	out := m.r.out
	out.began()
	if err := out.open(); err != nil {
		return 0, err
	}
	value, err := out.cleanJSON("state", value)
	if err != nil {
		return 0, &executor.Failure{Msg: "The agent's state is not valid JSON."}
	}
	if string(value) == "null" {
		value = nil
	}
	if most := m.r.agent.MaxState; most > 0 && int64(len(value)) > most {
		return 0, &executor.Failure{Msg: fmt.Sprintf("The agent's state for the %s has %d bytes; the limit is %d (limits.max_state).", of, len(value), most)}
	}
	in, err := out.admit(ctx, int64(len(value)))
	if err != nil {
		return 0, err
	}
	defer out.leave(in)
	write := store.NewState{StateOf: m.stateOf(of), Fence: m.r.claim.Fence, Value: value, Version: version, RequestID: out.request()}
	err = m.r.untilAvailable(ctx, func() (err error) { // also in a visit: a repetition of the request would find another version
		version, err = m.r.pool.opt.Store.SetAgentState(ctx, write)
		return err
	})
	switch {
	case errors.Is(err, store.ErrStateChanged):
		return 0, executor.ErrStateChanged
	case errors.Is(err, task.LeaseLost):
		m.r.interrupt(executor.ErrLeaseLost)
	}
	return version, err
}

func (m *runMemory) stateOf(of executor.Scope) store.StateOf {
	return store.StateOf{Task: m.r.claim.Task, Context: of == executor.OfContext}
}

// open returns why the run may not write any more, or nil.
func (e *emitter) open() error {
	if e.spent.Load() {
		return errSpent
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	if e.settled != task.StateUnspecified || e.closed {
		return errSettled
	}
	return nil
}
