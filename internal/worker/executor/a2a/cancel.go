package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Cancel implements executor.Canceler: it cancels the agent's task if ours has ended. Otherwise the next run follows it.
func (f *Front) Cancel(ctx context.Context, c *executor.Cancellation) error {
	if !c.Reason.Ended() || c.Reason == executor.ReasonDeleted { // the id of the agent's task was deleted, too
		return nil
	}
	state, err := c.Stored(ctx, executor.OfTask)
	if err != nil {
		return fmt.Errorf("read the agent's task: %w", err)
	}
	var of link
	if state.Value != nil {
		if err := json.Unmarshal(state.Value, &of); err != nil {
			return &executor.Failure{Msg: "the stored task state is not one of an a2a agent", Cause: err}
		}
	}
	if of.Left {
		return nil
	}
	to, err := f.aim(ctx)
	if err != nil {
		return err
	}
	to = to.known(of.Older)
	if of.Task == "" && to.Wire.ChoosesIDs() {
		of.Task = c.ID.String() // a send may have been under way
	}
	if of.Task == "" {
		return nil // the agent has not named its task
	}
	return outcome(f.cancel(ctx, to, &client.Params{TaskID: of.Task, Metadata: c.Metadata}))
}

func (f *Front) cancel(ctx context.Context, to *target, p *client.Params) error {
	_, err := f.call(ctx, to, client.Cancel, p)
	if errors.Is(err, task.NotFound) || errors.Is(err, task.NotCancelable) {
		return nil
	}
	return err
}
