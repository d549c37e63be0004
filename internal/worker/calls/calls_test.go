package calls_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/calls"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// called is an agent with what callers of it need.
type called struct {
	calls.Agent
	run      executor.Func
	maxCalls int
}

// process is a store with workers and a runner of calls, as in one replica.
type process struct {
	t     *testing.T
	url   string
	store *store.Store
}

// start starts a process on a database; "" makes a new one.
func start(t *testing.T, url string, agents ...called) *process {
	t.Helper()
	p := &process{t: t, url: url}
	if url == "" {
		p.url = storetest.New(t).URL
	}
	bus := &signal.Bus{}
	st, err := store.Open(t.Context(), store.Options{URL: p.url, APIConns: 4, RowSecurity: true, Listener: bus})
	require.NoError(t, err)
	p.store = st
	self := store.NewID()
	require.NoError(t, st.Register(t.Context(), store.Process{ID: self, Name: "test"}, time.Hour))
	var runs []worker.Agent
	var known []calls.Agent
	for _, a := range agents {
		if a.MaxDepth == 0 {
			a.MaxDepth = 8
		}
		runs = append(runs, worker.Agent{Name: a.Name, Executor: a.run, Concurrency: 20, CancelGrace: time.Hour, MaxAttempts: 3, MaxCalls: a.maxCalls})
		known = append(known, a.Agent)
	}
	pool := worker.New(worker.Options{Store: st, Agents: runs, PollInterval: 100 * time.Millisecond, Worker: func() task.ID { return self }})
	runner := calls.New(calls.Options{Store: st, Agents: known})
	bus.Queues.Subscribe(pool.Wake)
	bus.Cancels.Subscribe(pool.CancelHint)
	bus.Calls.Subscribe(func(struct{}) { runner.Hint() })
	ctx, stop := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = pool.Run(ctx) })
	// As package upkeep does: when it is woken, and now and then.
	duty := func(do func(context.Context) (bool, error), wake <-chan struct{}) {
		round := 0
		waittest.Eventually(t, "the end of the test", func() error {
			select {
			case <-wake:
				round = 0
			default:
				round++
			}
			for more := round%10 == 0; more && ctx.Err() == nil; {
				var err error
				if more, err = do(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("the duty failed: %v", err)
				}
			}
			return waittest.Unless(ctx.Err() != nil, "round %d", round)
		})
	}
	parts.Go(func() { duty(runner.Run, runner.Wake()) })
	parts.Go(func() { duty(runner.Relay, nil) })
	t.Cleanup(func() {
		stop()
		parts.Wait()
		st.Close(context.Background())
		if !t.Failed() {
			require.NoError(t, invarianttest.Check(context.Background(), p.url))
		}
	})
	return p
}

// send creates a task of the owner ada.
func (p *process) send(agent, text string, scopes ...string) *task.Task {
	p.t.Helper()
	id := p.store.NewTaskID()
	n := &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: agent, Tenant: "acme", Owner: "ada", ContextID: "ctx", Dialect: "1.0"},
		Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text(text)}},
		Request: &task.Request{Scopes: scopes, Traceparent: "00-1-2-01"},
	}
	_, err := p.store.Create(p.t.Context(), n)
	require.NoError(p.t, err)
	return &n.Task
}

func (p *process) becomes(id task.ID, s task.State) *task.Task {
	p.t.Helper()
	var now *task.Task
	waittest.Eventually(p.t, "the task is "+s.String(), func() error {
		h, err := p.store.Header(p.t.Context(), id)
		if err != nil {
			return err
		}
		if now, err = p.store.Snapshot(p.t.Context(), h, true); err != nil {
			return err
		}
		return waittest.Unless(now.Status.State == s, "it is %s: %s", now.Status.State, now.Status.Message.FirstText())
	})
	return now
}

func says(text string) *task.Message { return &task.Message{Parts: []task.Part{task.Text(text)}} }

// asks is an agent that calls, and completes with a summary of the results.
func asks(name string, first ...executor.Call) called {
	return called{Agent: calls.Agent{Name: name}, run: func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Input == nil {
			return out.Call(ctx, first)
		}
		return out.Status(ctx, task.StateCompleted, says(summary(run.Input.Results)))
	}}
}

func summary(results []executor.Result) string {
	var lines []string
	for i := range results {
		r := &results[i]
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s %s%s", r.ID, r.Agent, r.State, r.Error, r.Message.FirstText())))
	}
	return strings.Join(lines, "; ")
}

func call(agent string) executor.Call {
	return executor.Call{Agent: agent, Message: says("for " + agent)}
}

// does is an agent that completes with what it was told.
func does(name string) called {
	return called{Agent: calls.Agent{Name: name}, run: func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		return out.Status(ctx, task.StateCompleted, says("did "+run.Message.FirstText()))
	}}
}

func TestCalledAgentKnowsItsCaller(t *testing.T) {
	t.Parallel()
	runs := make(chan *executor.Run, 1)
	b := called{Agent: calls.Agent{Name: "b"}, run: func(_ context.Context, run *executor.Run, _ executor.Emitter) error {
		runs <- run
		return nil
	}}
	c := call("b")
	c.Metadata = []byte(`{"k":1.0}`)
	p := start(t, "", asks("a", c), b)
	h := p.send("a", "hi", "x", "y")
	require.Equal(t, "1 b completed", p.becomes(h.ID, task.StateCompleted).Status.Message.FirstText())
	run := <-runs
	require.Equal(t, []any{"acme", "ada", "ctx", "b", "for b", `{"k":1.0}`, []string{"x", "y"}, "00-1-2-01", task.RoleUser}, []any{
		run.Tenant, run.Owner, run.ContextID, run.Agent, run.Message.FirstText(), string(run.Metadata), run.Scopes, run.Traceparent, run.Message.Role,
	})
}

func TestHundredCalls(t *testing.T) {
	t.Parallel()
	a, b := asks("a", slices.Repeat([]executor.Call{call("b")}, 100)...), does("b")
	p := start(t, "", a, b)
	start(t, p.url, a, b) // another process
	said := p.becomes(p.send("a", "hi").ID, task.StateCompleted).Status.Message.FirstText()
	require.Equal(t, 100, strings.Count(said, "b completed did for b"))
	require.True(t, strings.HasPrefix(said, "1 b completed did for b; 2 b"), said)
}

func TestCallsThatAreRefused(t *testing.T) {
	t.Parallel()
	none := called{Agent: calls.Agent{Name: "none"}}
	for name, c := range map[string]struct {
		agents []called
		scopes []string
		want   string
	}{
		"unknown":   {[]called{asks("a", call("b"), call("nobody")), does("b")}, nil, `1 b completed did for b; 2 nobody rejected there is no agent "nobody"`},
		"itself":    {[]called{asks("a", call("a"))}, nil, `1 a rejected agent "a" is the caller or a caller of it`},
		"a circle":  {[]called{asks("a", call("b")), asks("b", call("c")), asks("c", call("a"))}, nil, `1 b completed 1 c completed 1 a rejected agent "a" is the caller or a caller of it`},
		"too deep":  {[]called{asks("a", call("b")), with(asks("b", call("c")), func(a *calls.Agent) { a.MaxDepth = 1 }), does("c")}, nil, `1 b completed 1 c rejected the call has the depth 2; the limit is 1`},
		"a scope":   {[]called{keyed(asks("a", call("b"), call("c")), ""), keyed(does("b"), "s"), keyed(does("c"), "t")}, []string{"s"}, `1 b completed did for b; 2 c rejected agent "c" needs the scope t`},
		"anonymous": {[]called{asks("a", call("b")), keyed(does("b"), "")}, []string{"s"}, `1 b rejected agent "b" needs a credential, and the client has shown none`},
		"open":      {[]called{keyed(asks("a", call("b")), ""), does("b")}, nil, `1 b completed did for b`},
		"schemes": {
			[]called{with(asks("a", call("b")), func(a *calls.Agent) { a.Schemes = []string{"key", "jwt"} }), keyed(does("b"), "")},
			nil,
			`1 b rejected agent "b" does not accept all credentials that agent "a" accepts`,
		},
		"recursion": {
			[]called{with(asks("a", call("a")), func(a *calls.Agent) { a.Recursive, a.MaxDepth = true, 3 })},
			nil,
			"1 a completed 1 a completed 1 a completed 1 a rejected the call has the depth 4; the limit is 3",
		},
		"a limit": {
			[]called{asks("a", call("b"), call("b")), with(blocks("b"), func(a *calls.Agent) { a.Limits.Live = 1 })}, nil, "",
		},
		"a stranger's task": {
			[]called{asks("a", executor.Call{TaskID: task.ID{1}.String(), Message: says("hi")}), none},
			nil,
			`1  rejected task 01000000-0000-0000-0000-000000000000 was not called by this task`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, "", c.agents...)
			h := p.send("a", "hi", c.scopes...)
			if c.want != "" {
				require.Equal(t, c.want, p.becomes(h.ID, task.StateCompleted).Status.Message.FirstText())
				return
			}
			// One of the two is refused; the other one runs until its caller is canceled.
			waittest.Eventually(t, "a call is refused", func() error {
				made, err := p.store.Calls(t.Context(), h.ID)
				refused := slices.ContainsFunc(made, func(c store.CallRow) bool { return strings.Contains(c.Error, "1 of your tasks with this agent") })
				return errors.Join(err, waittest.Unless(refused, "%v", made))
			})
			_, err := p.store.Cancel(t.Context(), h, nil)
			require.NoError(t, err)
			p.allEnd()
		})
	}
}

// allEnd waits until no task is open.
func (p *process) allEnd() {
	p.t.Helper()
	waittest.Eventually(p.t, "all tasks have ended", func() error {
		all, err := p.store.Operator(task.Caller{}, false).Count(p.t.Context(), &store.AdminFilter{})
		if err != nil {
			return err
		}
		for state, n := range all.ByState {
			err = errors.Join(err, waittest.Unless(n == 0 || state.Terminal(), "%d are %s", n, state))
		}
		return err
	})
}

func with(c called, do func(*calls.Agent)) called {
	do(&c.Agent)
	return c
}

// keyed lets only callers with a key use an agent.
func keyed(c called, scope string) called {
	c.Schemes, c.Scope = []string{"key"}, scope
	return c
}

// blocks is an agent that runs until it is canceled.
func blocks(name string) called {
	return called{Agent: calls.Agent{Name: name}, run: func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}
}

func TestTooManyCallsFailTheRun(t *testing.T) {
	t.Parallel()
	a := called{Agent: calls.Agent{Name: "a"}, maxCalls: 2, run: func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		err := out.Call(ctx, []executor.Call{call("b"), call("b"), call("b")})
		require.ErrorContains(t, err, "calls: has 3 calls; the agent's limit is 2")
		return err
	}}
	p := start(t, "", a, does("b"))
	require.Equal(t, "The agent's calls are wrong.", p.becomes(p.send("a", "hi").ID, task.StateFailed).Status.Message.FirstText())
}

// A called agent asks, the caller answers, twice, and gets the result.
func TestCallerAnswersAQuestion(t *testing.T) {
	t.Parallel()
	a := called{Agent: calls.Agent{Name: "a"}, run: func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Input == nil {
			return out.Call(ctx, []executor.Call{call("b")})
		}
		if r := run.Input.Results[0]; r.State == task.StateInputRequired {
			return out.Call(ctx, []executor.Call{{TaskID: r.TaskID, Message: says("to " + r.Message.FirstText()), Metadata: []byte(`{"turn":1}`)}})
		}
		return out.Status(ctx, task.StateCompleted, says(summary(run.Input.Results)))
	}}
	b := called{Agent: calls.Agent{Name: "b"}, run: func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Turn < 3 {
			return out.Status(ctx, task.StateInputRequired, says(fmt.Sprintf("question %d", run.Turn)))
		}
		return out.Status(ctx, task.StateCompleted, says("heard "+run.Message.FirstText()+string(run.TurnMetadata)))
	}}
	p := start(t, "", a, b)
	start(t, p.url, a, b)
	require.Equal(t, `1 b completed heard to question 2{"turn":1}`, p.becomes(p.send("a", "hi").ID, task.StateCompleted).Status.Message.FirstText())
}

// A caller that goes on without an answer ends, and what it has called ends with it.
func TestEndOfACallerEndsItsTree(t *testing.T) {
	t.Parallel()
	question := called{Agent: calls.Agent{Name: "c"}, run: func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		return out.Status(ctx, task.StateInputRequired, says("?"))
	}}
	p := start(t, "", asks("a", call("c")), question)
	require.Equal(t, "1 c input-required ?", p.becomes(p.send("a", "hi").ID, task.StateCompleted).Status.Message.FirstText())
	p.allEnd()

	p = start(t, "", asks("a", call("b"), call("d")), asks("b", call("d"), call("d")), blocks("d"))
	h := p.send("a", "hi")
	waittest.Eventually(t, "all agents run", func() error {
		d, err := p.store.Operator(task.Caller{}, false).List(t.Context(), &store.AdminFilter{Agent: store.Among{Is: []string{"d"}}}, task.ID{}, 100)
		if err != nil {
			return err
		}
		return waittest.Unless(len(d.Tasks) == 3, "%d run", len(d.Tasks))
	})
	_, err := p.store.Cancel(t.Context(), h, nil)
	require.NoError(t, err)
	p.allEnd()
}

// steps is an agent that reports each text as its progress, and completes when there are no more.
func steps(name string, texts <-chan string) called {
	return called{Agent: calls.Agent{Name: name}, run: func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		for text := range texts {
			if err := out.Status(ctx, task.StateWorking, says(text)); err != nil {
				return err
			}
		}
		return nil
	}}
}

func relayed(agent string) executor.Call {
	c := call(agent)
	c.Relay = true
	return c
}

// shows waits until a task works with a message.
func (p *process) shows(id task.ID, text string) {
	p.t.Helper()
	waittest.Eventually(p.t, "the caller shows "+text, func() error {
		h, err := p.store.Header(p.t.Context(), id)
		if err != nil {
			return err
		}
		now, err := p.store.Snapshot(p.t.Context(), h, false)
		if err != nil {
			return err
		}
		return waittest.Unless(now.Status.State == task.StateWorking && now.Status.Message.FirstText() == text, "it is %s: %q", now.Status.State, now.Status.Message.FirstText())
	})
}

// said are the texts of the messages in the history of a task.
func said(of *task.Task) (texts []string) {
	for i := range of.History {
		texts = append(texts, of.History[i].FirstText())
	}
	return texts
}

// The first caller shows the progress of the last agent, if all callers between ask for it. Two processes relay.
func TestProgressOfCalledAgents(t *testing.T) {
	t.Parallel()
	texts, quiet := make(chan string), make(chan string)
	agents := []called{asks("a", relayed("b"), call("d")), asks("b", relayed("c")), steps("c", texts), steps("d", quiet)}
	p := start(t, "", agents...)
	start(t, p.url, agents...)
	h := p.send("a", "hi")
	quiet <- "not asked for"
	for _, text := range []string{"one", "two", "three"} {
		texts <- text
		p.shows(h.ID, text)
	}
	close(texts)
	close(quiet)
	require.Equal(t, []string{"hi", "one", "two", "three"}, said(p.becomes(h.ID, task.StateCompleted)))
}

// A caller whose tasks the whole tenant sees does not show tasks that only their owner sees.
func TestProgressKeepsVisibility(t *testing.T) {
	t.Parallel()
	owned, shared := make(chan string), make(chan string)
	visible := func(a *calls.Agent) { a.TenantVisible = true }
	p := start(t, "", with(asks("a", relayed("b"), relayed("c")), visible), steps("b", owned), with(steps("c", shared), visible))
	h := p.send("a", "hi")
	owned <- "secret"
	for _, text := range []string{"one", "two"} { // the look that finds two would find the other status, too
		shared <- text
		p.shows(h.ID, text)
	}
	close(owned)
	close(shared)
	require.Equal(t, []string{"hi", "one", "two"}, said(p.becomes(h.ID, task.StateCompleted)))
}

// lock locks a task in another session until the returned function is called.
func (p *process) lock(id task.ID) (release func()) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.url)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(p.t.Context())
	require.NoError(p.t, err)
	tag, err := tx.Exec(p.t.Context(), "SELECT FROM holdfast.tasks WHERE id = $1 FOR UPDATE", id)
	require.NoError(p.t, err)
	require.EqualValues(p.t, 1, tag.RowsAffected())
	return func() { require.NoError(p.t, tx.Rollback(p.t.Context())) }
}

// A lock that an answer needs, or the end of what an ended task has called, delays no other calls.
func TestLockDelaysOnlyItsCalls(t *testing.T) {
	t.Parallel()
	asking := called{Agent: calls.Agent{Name: "asking"}, run: func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Turn == 1 {
			return out.Status(ctx, task.StateInputRequired, says("what?"))
		}
		return out.Status(ctx, task.StateCompleted, says("thanks"))
	}}
	for name, cancel := range map[string]bool{"answer": false, "end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, goOn := make(chan task.ID, 1), make(chan struct{})
			a := called{Agent: calls.Agent{Name: "a"}, run: func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
				if run.Input == nil {
					return out.Call(ctx, []executor.Call{call("asking")})
				}
				r := run.Input.Results[0]
				if r.State == task.StateCompleted {
					return out.Status(ctx, task.StateCompleted, says(r.Message.FirstText()))
				}
				id, err := task.ParseID(r.TaskID)
				if err != nil {
					return err
				}
				asked <- id
				select {
				case <-goOn:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				return out.Call(ctx, []executor.Call{{TaskID: r.TaskID, Message: says("this")}})
			}}
			p := start(t, "", a, asking, asks("beside", call("does")), does("does"))
			caller := p.send("a", "hi")
			release := p.lock(<-asked)
			if cancel {
				_, err := p.store.Cancel(t.Context(), caller, nil)
				require.NoError(t, err)
			} else {
				close(goOn)
			}
			for range 5 {
				p.becomes(p.send("beside", "hi").ID, task.StateCompleted)
			}
			release()
			p.allEnd()
		})
	}
}
