package agenttest

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// convert has the conversions that package agent does not export.
var convert = executor.Registered[agent.Executor, agent.Message, agent.Artifact]()

// server has the tasks of one context: a database, and a worker that stands for a process.
type server struct {
	t       testing.TB
	options Options
	agent   worker.Agent
	store   *store.Store
	self    atomic.Pointer[task.ID] // the worker's process; zero: it has no lease, and claims nothing
	others  task.ID                 // a process for the agents that the agent calls

	session sync.Mutex
	conn    *pgx.Conn

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when the log has grown
	pool    *worker.Pool
	stop    func() // stops the pool and waits for its end
}

// The test's end must not end these.
var background = context.Background()

// serve starts a server for an agent.
func serve(t testing.TB, e agent.Executor, o Options) *server {
	t.Helper()
	k := &server{
		t: t, options: o, changed: make(chan struct{}), others: store.NewID(),
		agent: worker.Agent{
			Name: o.Agent, Executor: convert.Adapt(e),
			// The run that loses its lease may go on while the next one starts.
			Concurrency: 100,
			MaxAttempts: cmp.Or(o.MaxAttempts, 3), RunTimeout: o.RunTimeout, InactivityTimeout: o.InactivityTimeout,
			CancelGrace: cmp.Or(o.CancelGrace, 10*time.Second), MaxArtifacts: o.MaxArtifacts, MaxState: o.MaxState,
			DirectReplies: o.DirectReplies,
		},
	}
	url := storetest.New(t).URL
	k.conn = storetest.Connect(t, url)
	storetest.AtOnce(t, k.conn)
	bus := &signal.Bus{}
	bus.Events.Subscribe(k.committed)
	bus.Growth.Subscribe(func(signal.Growth) { k.grown() })
	bus.Queues.Subscribe(func(name string) { k.worker().Wake(name) })
	bus.Cancels.Subscribe(func(id task.ID) { k.worker().CancelHint(id) })
	_, canceler := k.agent.Executor.(executor.Canceler)
	var err error
	k.store, err = store.Open(background, store.Options{URL: url, Listener: bus, Tells: func(string) bool { return canceler }})
	k.must(err)
	t.Cleanup(func() { k.store.Close(background) })
	_, err = k.store.Now(background) // ids of tasks have the time of the database, also in a bubble
	k.must(err)
	k.must(k.store.Register(background, store.Process{ID: k.others, Name: "others"}, forever))
	k.start()
	t.Cleanup(func() { k.stop() })
	return k
}

// forever is longer than any test.
const forever = 365 * 24 * time.Hour

// register makes the worker a process.
func (k *server) register() {
	k.t.Helper()
	id := store.NewID()
	k.must(k.store.Register(background, store.Process{ID: id, Name: "agenttest"}, forever))
	k.self.Store(&id)
}

// rescue declares the worker's process dead, and returns how many runs it has lost. The worker claims nothing until register.
func (k *server) rescue() int {
	k.t.Helper()
	old := k.self.Swap(&task.ID{})
	k.must(k.store.Unregister(background, *old))
	_, runs, err := k.store.Rescue(background, 0, true)
	k.must(err)
	return len(runs)
}

// start starts a worker, as a process does.
func (k *server) start() {
	k.t.Helper()
	k.register()
	pool := worker.New(worker.Options{
		Store: k.store, Agents: []worker.Agent{k.agent}, StopGrace: k.options.StopGrace,
		PollInterval: 10 * time.Second, // every commit wakes it
		Worker:       func() task.ID { return *k.self.Load() },
		ResumeURL: func(id task.ID, turn int) string {
			return fmt.Sprintf("https://holdfast.example/resume/%s/%d", id, turn)
		},
	})
	ctx, cancel := context.WithCancel(background)
	ended := make(chan struct{})
	k.mu.Lock()
	k.pool = pool
	k.stop = func() {
		cancel()
		<-ended
	}
	k.mu.Unlock()
	go func() {
		defer close(ended)
		_ = pool.Run(ctx)
	}()
}

func (k *server) worker() *worker.Pool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pool
}

func (k *server) committed(evs []*task.Event) {
	k.grown()
	for _, e := range evs {
		if e.Kind != task.EventArtifact {
			k.worker().Wake("") // for a retry, which is due at once, or for a row that this write had locked
		}
	}
}

func (k *server) grown() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.changed)
	k.changed = make(chan struct{})
}

// await waits until a condition holds that changes of the log may make true, or time: then it looks again after a pause.
func (k *Task) await(what string, pause time.Duration, holds func() bool) {
	k.t.Helper()
	timeout := time.NewTimer(k.options.Patience)
	defer timeout.Stop()
	for {
		k.mu.Lock()
		changed := k.changed
		k.mu.Unlock()
		if holds() {
			return
		}
		var again <-chan time.Time
		if pause > 0 {
			again = time.After(pause)
		}
		select {
		case <-changed:
		case <-again:
		case <-timeout.C:
			k.t.Fatalf("waited %v for %s; the log of the task:\n%s", k.options.Patience, what, k.log())
		}
	}
}

// events reads the log.
func (k *Task) events() []*task.Event {
	k.t.Helper()
	for {
		more, err := k.store.EventsAfter(background, &k.header, task.Position{Seq: task.Seq(len(k.read))}, 1000)
		k.must(err)
		if len(more) == 0 {
			return k.read
		}
		k.read = append(k.read, more...)
	}
}

// row is a row of tasks.
type row struct {
	turns, pending int
	state          task.State
	attempt        task.Attempt
	running        bool
	yields         bool // the agent waits, and a message begins its next turn
}

// turn is the one that runs, waits, or has parked or ended the task.
func (r row) turn() int { return r.turns - r.pending }

func (k *Task) row() (r row) {
	k.t.Helper()
	k.query([]any{&r.turns, &r.pending, &r.state, &r.attempt, &r.running, &r.yields}, `SELECT turns, pending, state, attempt, worker_id IS NOT NULL,
		coalesce(interruptible AND wakes_at > now(), false) FROM holdfast.tasks WHERE id = $1`)
	return r
}

// query runs a statement about the task, with a row.
func (k *Task) query(into []any, sql string) {
	k.t.Helper()
	k.session.Lock()
	err := k.conn.QueryRow(background, sql, k.header.ID.String()).Scan(into...)
	k.session.Unlock()
	k.must(err)
}

func (k *server) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatalf("agenttest: %v", err)
	}
}
