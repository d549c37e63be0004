package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// run is one attempt: the executor's goroutine, and a goroutine that watches it.
type run struct {
	pool    *Pool
	agent   *Agent
	claim   *store.Claimed
	ctx     context.Context
	cancel  context.CancelCauseFunc
	out     *emitter
	ended   chan error    // the executor's result
	over    chan struct{} // closed when the run API has ended the run, which it writes
	refused bool          // the database refused an event
	claimed time.Time
	expired error // the task waited too long for the agent, which is away with this error
	started bool  // the executor was called
	span    *tracing.Span

	// Pool.mu guards them.
	starting bool // counts in the agent's breaker
	begun    bool // by the agent
}

func newRun(p *Pool, s *slots, c *store.Claimed) *run {
	r := &run{pool: p, agent: &s.Agent, claim: c, ended: make(chan error, 1), over: make(chan struct{}), claimed: time.Now()}
	// Not derived from the pool's context: when the server stops, runs get their grace.
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.out = newEmitter(r)
	return r
}

func (r *run) interrupt(cause error) { r.cancel(cause) }

// Outcomes of a run for metrics and logs, besides the states in which it can settle the task.
const (
	outcomeParked   = "parked"
	outcomeWaits    = task.RunWaits
	outcomeCalls    = task.RunCalls
	outcomeRetried  = "retried"
	outcomeReturned = "returned"
	outcomeAway     = "away"
	outcomeLost     = "lost"
)

func (r *run) run() {
	start := time.Now()
	outcome, err := r.outcome()
	r.cancel(nil)
	defer r.giveNotice(outcome)
	r.endSpan(outcome, err)
	if r.pool.opt.Observer.Ran != nil {
		r.pool.opt.Observer.Ran(r.agent.Name, outcome, time.Since(start))
	}
	log := r.pool.opt.Log.With("task_id", r.claim.Task.PublicID, "context_id", r.claim.Task.ContextID, "agent", r.agent.Name,
		"attempt", int(r.claim.Attempt), "worker", r.pool.opt.Worker().String(), "outcome", outcome)
	if r.span != nil {
		log = log.With("trace_id", r.span.Context().TraceID())
	}
	switch {
	case outcome == outcomeAway: // the pool logs the outage once
		log.Debug("run ended", "took", time.Since(start), "error", err)
	case err == nil && outcome != outcomeLost && outcome != outcomeReturned:
		log.Debug("run ended", "took", time.Since(start))
	case err != nil:
		log.Warn("run ended", "took", time.Since(start), "error", err)
	default:
		log.Info("run ended", "took", time.Since(start))
	}
}

// outcome runs the executor, records its result, and returns the name of the outcome.
func (r *run) outcome() (string, error) {
	if outcome, err := r.unfit(); outcome != "" {
		return outcome, err
	}
	if !r.agent.DirectReplies {
		if err := r.out.working(r.ctx); err != nil {
			return r.conclude(err)
		}
	}
	r.started = true
	go r.execute()
	return r.conclude(r.watch())
}

// unfit ends a run that must not start, and returns the name of the outcome; "" if it may start.
func (r *run) unfit() (string, error) {
	switch {
	case r.claim.CancelRequested:
		return r.settle(task.StateCanceled, "", nil)
	case r.claim.Unreadable != nil:
		return r.settle(task.StateFailed, "The message or the input could not be read.", r.claim.Unreadable)
	case r.expired != nil:
		return r.unreachable(r.expired)
	case r.try() > r.agent.MaxAttempts:
		attempts := fmt.Sprintf("Gave up after %d attempts", r.claim.Try-1)
		if counted := r.try() - 1; counted < r.claim.Try-1 {
			attempts += fmt.Sprintf(", of which %d count", counted)
		}
		return r.settle(task.StateFailed, attempts+": the worker was lost each time.", nil)
	}
	return "", nil
}

// maxSpared bounds the tries that a message is spared, in case it ends the process late in its runs.
const maxSpared = 10

// try returns the number of the attempt that counts. Tries that were lost with a process and with other
// runs do not count, unless a message may have only one.
func (r *run) try() int {
	if r.agent.MaxAttempts == 1 {
		return r.claim.Try
	}
	return r.claim.Try - min(r.claim.Spared, maxSpared)
}

func (r *run) execute() {
	returned := false
	defer func() {
		v := recover()
		switch {
		case v == nil && !returned:
			// runtime.Goexit, such as a test's FailNow in an embedded agent.
			r.ended <- &executor.Failure{Msg: "The agent crashed.", Cause: errors.New("it ended its goroutine (runtime.Goexit)")}
		case v != nil:
			stack := string(debug.Stack())
			r.pool.opt.Log.Error("agent crashed", "task_id", r.claim.Task.PublicID, "agent", r.agent.Name, "panic", v, "stack", stack)
			r.ended <- &executor.Failure{Msg: "The agent crashed.", Cause: fmt.Errorf("panic: %v\n%s", v, stack)}
		}
	}()
	in, err := r.input()
	if err == nil {
		err = r.invoke(in)
	}
	returned = true
	r.ended <- err
}

// execution describes the run to its executor.
func (r *run) execution(in *executor.Input) *executor.Run {
	c := r.claim
	run := &executor.Run{
		ID: c.Task.ID, TaskID: c.Task.PublicID, ContextID: c.Task.ContextID, Agent: c.Task.Agent,
		Tenant: c.Task.Tenant, Owner: c.Task.Owner, Keys: r.pool.opt.Keys.Of(c.Task), Message: c.Message, Metadata: c.Task.Metadata,
		Attempt: c.Attempt, Try: c.Try, Turn: c.Turn, Input: in, Memory: &runMemory{r},
		Buffer:  &buffer{out: r.out},
		Limits:  executor.Limits{Event: r.agent.MaxEvent, State: r.agent.MaxState},
		OnBegin: func() { r.pool.begin(r, false) }, ResumeURL: r.resumeURL(), Forwarded: c.Forwarded,
	}
	if r.pool.opt.RunAPI != nil {
		api := r.pool.opt.RunAPI(c.Task.ID, c.Fence)
		api.HandOver = r.handOver
		run.API = &api
	}
	if q := c.Request; q != nil {
		run.AcceptedOutputModes, run.Extensions, run.Scopes = q.OutputModes, q.Extensions, q.Scopes
		run.Traceparent, run.Tracestate = q.Traceparent, q.Tracestate
		run.ExtensionParams = r.agent.params(q.Extensions)
	}
	switch {
	case c.Wait != nil && !c.Wait.Interrupted: // no request began the turn
	case c.MessageSeq == 1:
		run.TurnMetadata = c.Task.Metadata
	case c.Request != nil:
		run.TurnMetadata = c.Request.Metadata
	}
	if r.span != nil {
		run.In(r.span.Context())
	}
	if r.agent.RunTimeout > 0 {
		run.Deadline = r.claimed.Add(r.agent.RunTimeout)
	}
	return run
}

// input returns what began the turn besides a message.
func (r *run) input() (*executor.Input, error) {
	c := r.claim
	switch {
	case c.Wait == nil:
		return nil, nil
	case c.Wait.Resumed != nil:
		return &executor.Input{Source: executor.SourceResume, Resumed: c.Wait.Resumed}, nil
	case !c.Wait.Calls:
		return &executor.Input{Source: executor.SourceTimer, Until: c.Wait.Until, Interrupted: c.Wait.Interrupted}, nil
	}
	in := &executor.Input{Source: executor.SourceCalls}
	err := r.read(r.ctx, func() (err error) {
		in.Results, err = r.pool.opt.Store.Results(r.ctx, c.Task, c.Wait.Seq, mostResults)
		return err
	})
	return in, err
}

// resumeURL returns the URL that begins the turn after that of the run, or "".
func (r *run) resumeURL() string {
	if r.pool.opt.ResumeURL == nil {
		return ""
	}
	return r.pool.opt.ResumeURL(r.claim.Task.ID, r.claim.Turn)
}

// errAbandoned says that an executor did not return within its grace.
var errAbandoned = errors.New("the executor did not return within cancel_grace")

// watch blocks until the executor returns. It enforces the deadlines and, after an interrupt, the
// grace.
func (r *run) watch() error {
	var timeout, quiet <-chan time.Time
	if d := r.agent.RunTimeout; d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timeout = t.C
	}
	if d := r.agent.InactivityTimeout; d > 0 {
		t := time.NewTicker(max(d/4, time.Millisecond))
		defer t.Stop()
		quiet = t.C
	}
	settled := time.NewTimer(presumed)
	defer settled.Stop()
	for {
		select {
		case err := <-r.ended:
			return err
		case <-settled.C:
			r.pool.begin(r, true)
			if r.claim.Suspect {
				r.clearSuspicion()
			}
		case <-timeout:
			r.interrupt(executor.ErrTimeout)
		case now := <-quiet:
			if now.Sub(r.out.lastEmission()) > r.agent.InactivityTimeout && r.silent() {
				r.interrupt(executor.ErrInactivity)
			}
		case <-r.ctx.Done():
			grace := time.NewTimer(r.agent.CancelGrace)
			defer grace.Stop()
			select {
			case err := <-r.ended:
				return err
			case <-grace.C:
				// The emitter is closed to the executor from here on.
				return errAbandoned
			}
		}
	}
}

// presumed is how long a run may neither begin nor fail until the next one may start. So an agent whose
// first sign is its result, an hour later, delays no other run.
const presumed = time.Second

// clearSuspicion records that the run has not ended its process, and lets the next such run start.
func (r *run) clearSuspicion() {
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	if err := r.pool.opt.Store.ClearSuspect(ctx, r.pool.opt.Worker(), r.claim.Task.ID); err != nil {
		r.pool.opt.Log.Debug("could not clear the suspicion against a run", "task_id", r.claim.Task.PublicID, "error", err)
	}
	r.pool.survived(r)
}

// conclude ends the attempt according to the executor's result.
func (r *run) conclude(err error) (string, error) {
	if outcome := r.out.endedElsewhere(); outcome != "" {
		return outcome, nil
	}
	if s, ok := r.out.settledIn(); ok {
		// After settling, the executor's result changes nothing. A lost lease does.
		if ferr := r.out.finish(); ferr != nil {
			return r.unrecorded(ferr)
		}
		switch {
		case s.Parked():
			return outcomeParked, nil
		case s == task.StateWorking && r.out.calls:
			return outcomeCalls, nil
		case s == task.StateWorking:
			return outcomeWaits, nil
		}
		return s.String(), nil
	}
	cause := context.Cause(r.ctx)
	switch {
	case errors.Is(cause, executor.ErrLeaseLost), errors.Is(err, task.LeaseLost):
		r.out.close()
		return outcomeLost, nil
	case errors.Is(cause, executor.ErrCanceled):
		return r.settle(task.StateCanceled, "", nil)
	case errors.Is(cause, executor.ErrShutdown) && err != nil:
		return r.giveBack(outcomeReturned, task.RunNote{Outcome: task.RunReturned}, 0, true)
	case errors.Is(cause, executor.ErrTimeout):
		return r.settle(task.StateFailed,
			fmt.Sprintf("The agent did not finish within %s.", r.agent.RunTimeout), err)
	case errors.Is(cause, executor.ErrInactivity):
		return r.settle(task.StateFailed,
			fmt.Sprintf("The agent was silent for more than %s.", r.agent.InactivityTimeout), err)
	case errors.Is(cause, errSpent):
		return r.settle(task.StateFailed,
			fmt.Sprintf("The agent's artifacts exceed the limit of %d bytes for one task.", r.agent.MaxArtifacts), errSpent)
	case err == nil:
		r.pool.begin(r, false)
		return r.settle(task.StateCompleted, "", nil)
	}
	after, again := executor.IsRetryable(err)
	if errors.Is(err, task.Unavailable) {
		again = true // the agent waited for our database for less time than that was away
	}
	if u, ok := errors.AsType[*executor.Unavailable](err); ok {
		whole := *u
		whole.Err = err // with what was said about it on the way here, such as which part of the agent is away
		u = &whole
		if waits := r.wait(u, again); waits != nil {
			return waits()
		}
		after, again = max(after, u.RetryAfter), true
	} else if !again {
		r.pool.begin(r, false)
	}
	if again && r.try() < r.agent.MaxAttempts {
		if after == 0 {
			after = r.backoff()
		}
		return r.giveBack(outcomeRetried, task.RunNote{Outcome: task.RunRetry, Error: r.out.cleanCause(err)}, after, false)
	}
	msg := "The agent failed."
	var f *executor.Failure
	if errors.As(err, &f) {
		msg = f.Msg
	}
	return r.settle(task.StateFailed, msg, err)
}

// wait returns how the task goes on waiting for an agent that has not begun the run, or nil if the run
// counts as a try.
func (r *run) wait(u *executor.Unavailable, retryable bool) func() (string, error) {
	if r.out.emitted.Load() {
		return nil
	}
	away := r.pool.unavailable(r, u)
	if !away && retryable {
		return nil
	}
	waited := r.claim.AwayFor + time.Since(r.claimed)
	if r.claim.AwayFor > 0 && waited >= r.agent.UnreachableFor {
		return func() (string, error) { return r.unreachable(u.Err) }
	}
	back := store.Requeue{
		Note: task.RunNote{Outcome: task.RunAway, Error: r.out.cleanCause(u.Err)},
		// One note says that the task waits; probing may take an hour.
		Silent:  r.claim.AwayFor > 0,
		Uncount: true, Away: true, InPlace: away,
	}
	if !away {
		back.Delay = max(min(max(waited/4, r.backoff()), maxRetryAfter), u.RetryAfter)
		back.Delay += rand.N(back.Delay/2 + 1)
	}
	return func() (string, error) {
		outcome, err := r.requeue(outcomeAway, back)
		if outcome == outcomeAway {
			err = u.Err
		}
		return outcome, err
	}
}

var errAway = errors.New("the agent is away")

// unreachable fails a task that waited too long for its agent.
func (r *run) unreachable(cause error) (string, error) {
	return r.settle(task.StateFailed, fmt.Sprintf("The agent could not be reached for %s.", r.agent.UnreachableFor), cause)
}

// settle writes the status that ends the run, with a message if there is one. The cause is stored for
// operators unless it says what the client reads.
func (r *run) settle(s task.State, text string, cause error) (string, error) {
	var msg *task.Message
	if text != "" {
		msg = &task.Message{Parts: []task.Part{task.Text(text)}}
	}
	// The run's own context may have ended, but its last status must still be written.
	stored := r.out.cleanCause(cause)
	if stored == text {
		stored = ""
	}
	if err := r.out.settle(context.WithoutCancel(r.ctx), s, msg, stored); err != nil && !errors.Is(err, errSettled) {
		return r.unrecorded(err)
	}
	if err := r.out.finish(); err != nil {
		return r.unrecorded(err)
	}
	return s.String(), cause
}

// unrecorded ends a run with an event that could not be written. If the database refused the event,
// the task fails with that reason, because a retry would fail, too.
func (r *run) unrecorded(err error) (string, error) {
	if refused := r.out.refused(); refused != nil && !r.refused {
		r.refused = true
		return r.settle(task.StateFailed, "The agent's output could not be stored.", refused)
	}
	return r.lostOr(err)
}

func (r *run) lostOr(err error) (string, error) {
	r.pool.lostAnswer() // the run may go on in the database
	if errors.Is(err, task.LeaseLost) {
		return outcomeLost, nil
	}
	return task.StateFailed.String(), err
}

// giveBack returns the task to the queue, for the next claim of any worker.
func (r *run) giveBack(outcome string, note task.RunNote, delay time.Duration, uncount bool) (string, error) {
	return r.requeue(outcome, store.Requeue{Note: note, Delay: delay, Uncount: uncount})
}

func (r *run) requeue(outcome string, back store.Requeue) (string, error) {
	back.Task, back.Agent, back.Fence, back.Posted = r.claim.Task.ID, r.agent.Name, r.claim.Fence, r.out.visit
	r.out.close()
	// The emitted events belong to the attempt and must be in the log before it ends.
	if err := r.out.finish(); err != nil {
		return r.unrecorded(err)
	}
	for try := 0; ; try++ {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		awayFor, err := r.pool.opt.Store.Requeue(ctx, back)
		cancel()
		if err == nil && back.InPlace {
			r.pool.awayFor(r, awayFor)
		}
		if err == nil || !errors.Is(err, task.Unavailable) || try == 20 {
			if err != nil {
				return r.lostOr(err)
			}
			return outcome, nil
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func (r *run) backoff() time.Duration {
	base := cmp.Or(r.agent.Backoff, time.Second)
	d := min(base<<min(max(r.try(), 1)-1, 10), cmp.Or(r.agent.MaxBackoff, 5*time.Minute))
	return d/2 + rand.N(d)
}

// readAgain is the pause before a statement is retried while the database is unavailable.
const readAgain = 250 * time.Millisecond

// read is untilAvailable for a read. In a visit it does not wait: the agent asks again, of any replica.
func (r *run) read(ctx context.Context, do func() error) error {
	if r.out.visit {
		return do()
	}
	return r.untilAvailable(ctx, do)
}

// untilAvailable retries a statement of the run while the database is unavailable. It blocks like the run's
// writes. The wait does not count as inactivity.
func (r *run) untilAvailable(ctx context.Context, do func() error) error {
	defer r.out.hold()()
	for {
		err := do()
		if !errors.Is(err, task.Unavailable) || ctx.Err() != nil || r.ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(readAgain):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
	}
}
