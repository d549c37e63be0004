package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

const (
	// noticeSlots bounds the notices of one agent that a process delivers at a time, so that an agent that does not answer
	// delays no other one.
	noticeSlots = 16
	// noticeTimeout bounds one delivery. It is shorter than the claim.
	noticeTimeout = 10 * time.Second
	// lastNotice bounds the notice of a run that ended from outside. The run has its slot until then.
	lastNotice = 5 * time.Second
)

// Results of a notice for Observer.Notice.
const (
	noticeDelivered = "delivered"
	noticeRetried   = "retried"
	noticeFailed    = "failed"
)

// Notices claims the notices of canceled tasks that are due, and starts to deliver them. It does not wait for them. It does
// nothing once the pool drains.
func (p *Pool) Notices(ctx context.Context) error {
	worker := p.opt.Worker()
	p.mu.Lock()
	if p.closing || worker.IsZero() {
		p.mu.Unlock()
		return nil
	}
	p.runs.Add(1)
	defer p.runs.Done()
	var want []store.NoticeDemand
	for name, s := range p.agents {
		if free := noticeSlots - s.notices; free > 0 {
			s.notices += free
			want = append(want, store.NoticeDemand{Agent: name, Slots: free})
		}
	}
	p.mu.Unlock()
	if len(want) == 0 {
		return nil
	}
	claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	claimed, err := p.opt.Store.ClaimNotices(claiming, worker, want)
	cancel()
	won := map[string]int{}
	for i := range claimed {
		won[claimed[i].Agent]++
	}
	p.mu.Lock()
	full := map[string]bool{}
	for _, d := range want {
		p.agents[d.Agent].notices -= d.Slots - won[d.Agent]
		full[d.Agent] = won[d.Agent] == d.Slots
	}
	p.mu.Unlock()
	for i := range claimed {
		n, s := &claimed[i], p.agents[claimed[i].Agent]
		p.runs.Go(func() {
			p.deliver(s, n)
			p.mu.Lock()
			s.notices--
			p.mu.Unlock()
			if full[s.Name] { // there may be more
				if err := p.Notices(p.notices); err != nil {
					p.opt.Log.Debug("could not claim notices of cancels; the next look finds them", "error", err)
				}
			}
		})
	}
	return err
}

// deliver tells an agent that a task was canceled, and records the result. If the record is lost, the agent gets it again
// when the claim ends.
func (p *Pool) deliver(s *slots, n *store.Notice) {
	to, ok := s.Executor.(executor.Canceler)
	if !ok {
		p.record(n, func(ctx context.Context) error { return p.opt.Store.DropNotice(ctx, n.Task) })
		return
	}
	ctx, cancel := context.WithTimeout(p.notices, noticeTimeout)
	defer cancel()
	result := store.NoticeResult{Task: n.Task, Try: n.Try, Delivered: true}
	log := p.opt.Log.With("task", n.Task.String(), "agent", n.Agent, "reason", n.Reason, "try", n.Try)
	outcome := noticeDelivered
	if err := p.giveNotice(ctx, to, n); err != nil {
		result.Delivered, result.Error, outcome = false, err.Error(), noticeRetried
		result.Delay = noticeDelay(err, n.Try)
		if refused(err) || n.Age+result.Delay > s.UnreachableFor {
			result.Failed, outcome = true, noticeFailed
			log.Warn("the agent got no notice of a cancel", "error", err)
		} else {
			log.Info("could not give the agent notice of a cancel; retrying", "after", result.Delay, "error", err)
		}
	}
	if p.opt.Observer.Notice != nil {
		p.opt.Observer.Notice(n.Agent, outcome)
	}
	p.record(n, func(ctx context.Context) error { return p.opt.Store.RecordNotice(ctx, result) })
}

func (p *Pool) record(n *store.Notice, write func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.notices), claimTimeout)
	defer cancel()
	if err := write(ctx); err != nil {
		p.opt.Log.Warn("could not record a notice of a cancel; the agent may get it again", "task", n.Task.String(), "error", err)
	}
}

// giveNotice reads what the agent needs to know of a cancel, and calls its Cancel.
func (p *Pool) giveNotice(ctx context.Context, to executor.Canceler, n *store.Notice) error {
	h, err := p.opt.Store.Header(ctx, n.Task)
	if errors.Is(err, task.NotFound) {
		return nil // deleted since
	}
	if err != nil {
		return err
	}
	facts, err := p.opt.Store.NoticeFacts(ctx, n.Task)
	if err != nil {
		return err
	}
	return p.call(ctx, to, &executor.Cancellation{
		Reason: executor.Reason(n.Reason), Turn: facts.Turn, Attempt: facts.Attempt, Try: n.Try,
		Metadata: facts.Metadata, Checkpoint: facts.Checkpoint,
	}, h)
}

// call calls Cancel about a task.
func (p *Pool) call(ctx context.Context, to executor.Canceler, c *executor.Cancellation, of *task.Task) (err error) {
	c.ID, c.TaskID, c.ContextID, c.Agent, c.Tenant, c.Owner = of.ID, of.PublicID, of.ContextID, of.Agent, of.Tenant, of.Owner
	c.Keys = p.opt.Keys.Of(of)
	c.Stored = func(ctx context.Context, scope executor.Scope) (s executor.State, err error) {
		s.Value, s.Version, err = p.opt.Store.AgentState(ctx, store.StateOf{Task: of, Context: scope == executor.OfContext})
		return s, err
	}
	defer func() {
		if v := recover(); v != nil {
			p.opt.Log.Error("the agent's Cancel crashed", "task_id", of.PublicID, "agent", of.Agent, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return to.Cancel(ctx, c)
}

// refused reports whether an agent wants no further notice.
func refused(err error) bool {
	if _, again := executor.IsRetryable(err); again {
		return false
	}
	_, failed := errors.AsType[*executor.Failure](err)
	_, away := errors.AsType[*executor.Unavailable](err)
	return failed && !away
}

// noticeDelay returns how long to wait after a try: at least for as long as the agent asks.
func noticeDelay(err error, try int) time.Duration {
	after, _ := executor.IsRetryable(err)
	if u, ok := errors.AsType[*executor.Unavailable](err); ok {
		after = max(after, u.RetryAfter)
	}
	backoff := min(time.Second<<min(try-1, 10), 5*time.Minute)
	return max(after, backoff/2+rand.N(backoff))
}

// giveNotice tells the agent why something else than itself has ended its run. A cancel has a notice in the database, which this
// only hurries. For the other reasons it tries once.
func (r *run) giveNotice(outcome string) {
	to, ok := r.agent.Executor.(executor.Canceler)
	if !ok {
		return
	}
	reason := r.reason(outcome)
	log := r.pool.opt.Log.With("task_id", r.claim.Task.PublicID, "agent", r.agent.Name, "reason", string(reason))
	switch {
	case reason == executor.ReasonCanceled:
		if err := r.pool.Notices(r.pool.notices); err != nil {
			log.Debug("could not claim notices of cancels; the next look finds them", "error", err)
		}
		return
	case reason == "", !r.started:
		return
	}
	// Not the pool's context for notices, which a stop ends.
	ctx, cancel := context.WithTimeout(context.Background(), lastNotice)
	defer cancel()
	result := noticeDelivered
	if err := r.lastNotice(ctx, to, reason); err != nil {
		log.Warn("the agent got no notice of the end of its run", "error", err)
		result = noticeFailed
	}
	if r.pool.opt.Observer.Notice != nil {
		r.pool.opt.Observer.Notice(r.agent.Name, result)
	}
}

func (r *run) lastNotice(ctx context.Context, to executor.Canceler, reason executor.Reason) error {
	var checkpoint json.RawMessage
	if reason != executor.ReasonDeleted {
		facts, err := r.pool.opt.Store.NoticeFacts(ctx, r.claim.Task.ID)
		if err != nil {
			return err
		}
		checkpoint = facts.Checkpoint
	}
	return r.pool.call(ctx, to, &executor.Cancellation{
		Reason: reason, Turn: r.claim.Turn, Attempt: r.claim.Attempt, Try: 1, Checkpoint: checkpoint,
	}, r.claim.Task)
}

// reason returns why something else than the agent has ended the run, or "".
func (r *run) reason(outcome string) executor.Reason {
	cause := context.Cause(r.ctx)
	failed := outcome == task.StateFailed.String()
	switch {
	case outcome == task.StateCanceled.String():
		return executor.ReasonCanceled
	case outcome == outcomeReturned:
		return executor.ReasonStopping
	case outcome == outcomeLost && errors.Is(cause, errDeleted):
		return executor.ReasonDeleted
	case outcome == outcomeLost:
		return executor.ReasonLeaseLost
	case failed && errors.Is(cause, executor.ErrTimeout):
		return executor.ReasonTimedOut
	case failed && errors.Is(cause, executor.ErrInactivity):
		return executor.ReasonInactive
	case failed && errors.Is(cause, errSpent):
		return executor.ReasonLimit
	}
	return ""
}
