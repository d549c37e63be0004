package a2asdk

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Cancel implements agent.Canceler: it calls the executor's Cancel for a task that has no run, such as one that waits for its
// client. The task has ended, so the events have no effect.
func (w *wrapper) Cancel(ctx context.Context, c *agent.Cancellation) error {
	as := keyed(&agent.Run{TaskID: c.TaskID, TaskKey: c.TaskKey, ContextID: c.ContextID, ContextKey: c.ContextKey})
	if c.Reason != agent.ReasonCanceled && c.Reason != agent.ReasonExpired || w.canceled.has(as.TaskID) {
		return nil
	}
	exec := &a2asrv.ExecutorContext{
		TaskID: a2a.TaskID(as.TaskID), ContextID: as.ContextID, Tenant: c.Tenant,
		User: &a2asrv.User{Name: c.Owner, Authenticated: c.Owner != ""}, ServiceParams: a2asrv.NewServiceParams(nil),
		StoredTask: &a2a.Task{
			ID: a2a.TaskID(as.TaskID), ContextID: as.ContextID, Status: a2a.TaskStatus{State: a2a.TaskStateCanceled},
		},
	}
	var err error
	if exec.Metadata, err = fromObject(c.Metadata); err != nil {
		return fmt.Errorf("metadata of the request: %w", err)
	}
	ctx, err = w.begin(ctx, exec)
	if err == nil {
		for _, failed := range w.executor.Cancel(ctx, exec) {
			if err = failed; err != nil {
				break
			}
		}
	}
	if cleaner, ok := w.executor.(a2asrv.AgentExecutionCleaner); ok {
		cleaner.Cleanup(context.WithoutCancel(ctx), exec, exec.StoredTask, err)
	}
	if _, again := executor.IsRetryable(err); err != nil && !again {
		return agent.Failure("The executor did not cancel its work.", err) // as in the SDK, where nobody calls again
	}
	return err
}

// recentTasks are the newest tasks for which this process has called Cancel beside Execute. Executors do not expect a second call.
type recentTasks struct {
	mu    sync.Mutex
	tasks [1000]string
	next  int
}

func (t *recentTasks) add(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tasks[t.next%len(t.tasks)] = id
	t.next++
}

func (t *recentTasks) has(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.tasks[:], id)
}
