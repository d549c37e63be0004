package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A contention is a lock of another session, and the work that needs it. All other work must go on.
type contention struct {
	name string
	lock string   // $1 is a task
	held []string // the bystanders that the lock holds up, too
	of   string   // what task that is; default: victim
	ends bool     // the end of the victim's run needs the lock
	made *NewTask // its create needs the lock
}

// Tasks that a lock is of.
const (
	victims = ""     // it has a run, a webhook, a name, a key and states
	callers = "kin"  // it waits for the result of a call
	losts   = "lost" // its process is dead
)

// Bystanders, each with tasks of its own.
const (
	streams   = "streams"
	statuses  = "statuses"
	creates   = "creates"
	keys      = "creates with a key"
	names     = "creates with a name"
	messages  = "messages"
	cancels   = "cancels"
	claims    = "claims"
	webhooks  = "webhooks"
	configs   = "webhooks' configurations"
	leases    = "leases"
	processes = "processes"
	reads     = "reads"
	rescues   = "rescues"
	returns   = "runs that are given back"
	timers    = "timers"
	calls     = "calls"
	notices   = "notices"
	values    = "states"
	beats     = "heartbeats"
	duties    = "duties"
	catchUps  = "catch-ups"
)

func contentions() []contention {
	all := []contention{
		{name: "row of tasks", lock: "SELECT FROM holdfast.tasks WHERE id = $1 FOR UPDATE", ends: true},
		{name: "row of tasks, shared", lock: "SELECT FROM holdfast.tasks WHERE id = $1 FOR SHARE", ends: true},
		{name: "row of task_queue", lock: "SELECT FROM holdfast.task_queue WHERE id = $1 FOR UPDATE", ends: true},
		{name: "row of push_cursors", lock: "SELECT FROM holdfast.push_cursors WHERE task = $1 FOR UPDATE", ends: true},
		{name: "row of push_configs", lock: "SELECT FROM holdfast.push_configs WHERE task = $1 FOR UPDATE"},
		{name: "row of idempotency_keys", lock: "SELECT FROM holdfast.idempotency_keys WHERE task = $1 FOR UPDATE"},
		{name: "row of task_names", lock: "SELECT FROM holdfast.task_names WHERE task = $1 FOR UPDATE"},
		{name: "rows of processes", lock: "SELECT FROM holdfast.processes WHERE $1::uuid IS NOT NULL FOR UPDATE"},
		{name: "row of workers", lock: "SELECT FROM holdfast.workers w JOIN holdfast.tasks t ON t.worker_id = w.id WHERE t.id = $1 FOR UPDATE OF w"},
		{name: "row of audit_chains", lock: "SELECT FROM holdfast.audit_chains WHERE chain = 1 AND $1::uuid IS NOT NULL FOR UPDATE"},
		{name: "row of task_states", lock: "SELECT FROM holdfast.task_states WHERE task = $1 FOR UPDATE"},
		{name: "row of context_states", lock: "SELECT FROM holdfast.context_states WHERE task = $1 FOR UPDATE"},
		{name: "row of agent_outages", lock: "SELECT FROM holdfast.agent_outages WHERE agent = 'returns' AND $1::uuid IS NOT NULL FOR UPDATE"},
		{name: "row of cancel_notices", lock: "SELECT FROM holdfast.cancel_notices WHERE agent = 'canceled' AND $1::uuid IS NOT NULL FOR UPDATE"},
		{name: "row of leases", lock: "SELECT FROM holdfast.leases WHERE name = 'victim' AND $1::uuid IS NOT NULL FOR UPDATE"},
		{name: "row of a process that is gone", lock: "SELECT FROM holdfast.workers WHERE lease_until < now() AND $1::uuid IS NOT NULL FOR UPDATE"},
		{name: "row of a caller", lock: "SELECT FROM holdfast.tasks WHERE id = $1 FOR UPDATE", of: callers},
		{name: "queue row of a caller", lock: "SELECT FROM holdfast.task_queue WHERE id = $1 FOR UPDATE", of: callers},
		{name: "row of task_calls", lock: "SELECT FROM holdfast.task_calls WHERE parent = $1 FOR UPDATE", of: callers},
		{name: "row of task_settled", lock: "SELECT FROM holdfast.task_settled s JOIN holdfast.task_calls c ON c.child = s.task WHERE c.parent = $1 FOR UPDATE OF s", of: callers},
		{name: "row of a lost run", lock: "SELECT FROM holdfast.tasks WHERE id = $1 FOR UPDATE", of: losts},
		{name: "queue row of a lost run", lock: "SELECT FROM holdfast.task_queue WHERE id = $1 FOR UPDATE", of: losts},
		{name: "process of a lost run", lock: "SELECT FROM holdfast.workers w JOIN holdfast.tasks t ON t.worker_id = w.id WHERE t.id = $1 FOR UPDATE OF w", of: losts},
		{name: "new event", lock: "INSERT INTO holdfast.task_events (task, seq, kind, attempt) VALUES ($1, 3, 1, 0)", ends: true},
		{
			name: "new name", made: chosen("a", "locked"),
			lock: "INSERT INTO holdfast.task_names (tenant, owner, agent, client_id, task) VALUES ('tenant', 'owner', 'a', 'locked', $1)",
		},
		{
			name: "new key", made: keyed(fresh("a"), "locked", "1"),
			lock: `INSERT INTO holdfast.idempotency_keys (day, tenant, owner, key, request_hash, task)
				SELECT d, 'tenant', 'owner', 'locked', '', $1::uuid FROM holdfast.key_days(now()) AS d`,
		},
		{
			name: "limit", made: limited(fresh("a"), 1000, 0),
			lock: "SELECT holdfast.live_tasks(holdfast.limit_slot('tenant', 'owner', 'a'), 'tenant', 'owner', 'a', 1000) WHERE $1::uuid IS NOT NULL",
		},
	}
	// As CREATE INDEX takes it: readers go on, and writers of the table wait. A statement locks each table that it may
	// write, so every create that is not lean waits for the tables of webhooks, keys, names and the audit log.
	made := slices.Clip([]string{creates, keys, names, cancels, claims, calls, notices})
	for table, held := range map[string][]string{
		"push_configs":     append(made, configs),
		"push_cursors":     append(made, configs, webhooks),
		"push_attempts":    {webhooks},
		"idempotency_keys": append(made, messages),
		"task_names":       made,
		"processes":        {processes, rescues},
		"workers":          {processes, leases, rescues},
		"events_artifacts": {streams},
		"audit_log":        append(made, messages, configs),
	} {
		all = append(all, contention{name: "table " + table, lock: "LOCK TABLE holdfast." + table + " IN SHARE MODE", held: held})
	}
	return all
}

// A lock holds up only the work that needs it. Each other kind of work finishes again and again while the lock is held.
func TestLockUnderLoadDelaysNoBystander(t *testing.T) {
	t.Parallel()
	for _, c := range contentions() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, 2)
		})
	}
}

// run holds the lock until every bystander has finished n times.
func (c contention) run(t *testing.T, n int64) {
	t.Helper()
	// A statement that waits for the default of the pools, and not for the short time of writers, waits until it fails.
	patience := unhurried
	patience.lock = time.Hour
	f := openPatient(t, storetest.New(t).URL, "", patience)
	named := keyed(chosen("victim", "victim"), "victim", "1")
	named.Push = hook("victim", "victim")
	f.create(named)
	victim := f.next("victim")
	victim.must(t, status(task.StateWorking)) // its webhook is due
	ctx := context.Background()
	for _, context := range []bool{false, true} {
		f.ok(f.SetAgentState(ctx, NewState{StateOf: StateOf{victim.c.Task, context}, Fence: victim.c.Fence, Value: []byte("1"), RequestID: NewID()}))
	}
	away := f.running("returns").c
	require.NoError(t, f.GiveBack(ctx, Requeue{Task: away.Task.ID, Agent: "returns", Fence: away.Fence, Away: true, InPlace: true}))
	canceled := f.running("canceled")
	f.ok(f.Cancel(ctx, canceled.c.Task, nil))
	canceled.must(t, status(task.StateCanceled))
	f.ok(f.Lead(ctx, "victim", f.worker(0), 0))
	kin := f.calling("callee of the victim")
	f.begin()[0].must(t, status(task.StateCompleted))
	lost := f.create(fresh("lost"))
	f.claim(f.worker(0), "lost", 1)
	work := f.bystanders()

	tx := storetest.Must(f.conn().Begin(ctx))(t)
	var args []any
	if strings.Contains(c.lock, "$1") {
		args = append(args, uuid.UUID(map[string]task.ID{victims: victim.c.Task.ID, callers: kin.c.Task.ID, losts: lost.ID}[c.of]))
	}
	require.True(t, storetest.Must(tx.Exec(ctx, c.lock, args...))(t).RowsAffected() > 0 || len(args) == 0, "the lock has no row")

	var all errgroup.Group
	var over atomic.Bool
	done := map[string]*atomic.Int64{}
	for kind, do := range work {
		if kind == rescues && slices.Contains(c.held, kind) {
			continue // it registers processes, and no process registers two at a time: leases have two connections
		}
		count := new(atomic.Int64)
		done[kind] = count
		all.Go(func() error {
			for i := 0; !over.Load(); i++ {
				err := do(i)
				if err != nil && slices.Contains(c.held, kind) {
					continue // refused after some seconds
				}
				if err != nil {
					return fmt.Errorf("%s: %w", kind, err)
				}
				count.Add(1)
			}
			return nil
		})
	}
	written := make(chan error, 1)
	if c.made != nil {
		go func() { written <- errOf(f.Create(ctx, c.made)) }()
	} else {
		evs := []*task.Event{status(task.StateWorking), chunk("x")}
		if c.ends {
			evs = append(evs, status(task.StateCompleted))
		}
		go func() { written <- (<-victim.write(evs...)).err }()
	}
	waittest.Eventually(t, "every bystander finishes", func() error {
		for kind, count := range done {
			if m := count.Load(); m < n && !slices.Contains(c.held, kind) {
				return fmt.Errorf("%s have finished %d times", kind, m)
			}
		}
		return nil
	})
	over.Store(true)
	if c.ends || c.made != nil {
		require.Empty(t, written, "it needs the lock")
	}
	require.NoError(t, tx.Rollback(ctx))
	require.NoError(t, all.Wait())
	require.NoError(t, waittest.Within(t, "the answer", written))
	f.join()
	f.claim(f.worker(time.Hour), "caller", 1)
	must2(f.Rescue(ctx, 0, true))(t)
	require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.task_queue WHERE agent = 'lost' AND worker_id IS NULL"))
}

// bystanders are kinds of work. Each is done by one goroutine.
func (f *fixture) bystanders() map[string]func(i int) error {
	ctx := context.Background()
	stream, steps, hooked := f.running("stream"), f.running("statuses"), f.running("webhooks")
	configured, read := f.create(fresh("configs")), f.create(fresh("reads"))
	parked := f.running("messages")
	parked.must(f.t, status(task.StateInputRequired))
	f.setPush(hooked.c.Task.ID, hook("c", "h"))
	worker := f.worker(time.Hour)
	create := func(n *NewTask) error {
		_, err := ownerOf(n).bare(f.Store).Create(ctx, n)
		return err
	}
	win := func(agent string) (*pen, error) {
		won, err := f.Claim(ctx, worker, []Demand{{Agent: agent, Slots: 1}})
		if err == nil && len(won) != 1 {
			err = fmt.Errorf("%d claims of %s", len(won), agent)
		}
		if err != nil {
			return nil, err
		}
		return &pen{s: f.Store, c: won[0]}, nil
	}
	f.create(fresh("rescues"))
	f.create(fresh("returns"))
	f.create(fresh("timers"))
	due := func(agent string) (n int, err error) {
		err = f.api.QueryRow(ctx, "SELECT count(*) FROM holdfast.task_queue WHERE agent = $1 AND wakes_at IS NULL AND worker_id IS NULL", agent).Scan(&n)
		return n, err
	}
	untilDue := func(agent string, do func() error) error {
		for {
			if err := do(); err != nil {
				return err
			}
			if n, err := due(agent); n > 0 || err != nil {
				return err
			}
		}
	}
	return map[string]func(int) error{
		streams:  func(int) error { return (<-stream.write(chunk("x"))).err },
		statuses: func(int) error { return (<-steps.write(status(task.StateWorking))).err },
		creates:  func(int) error { return create(fresh("creates")) },
		keys:     func(i int) error { return create(keyed(fresh("keys"), fmt.Sprint("key ", i), "1")) },
		names:    func(i int) error { return create(chosen("names", fmt.Sprint("name ", i))) },
		claims: func(int) error {
			if err := create(fresh("claims")); err != nil {
				return err
			}
			p, err := win("claims")
			if err == nil {
				err = (<-p.write(status(task.StateCompleted))).err
			}
			return err
		},
		messages: func(int) error {
			_, err := f.AddMessage(ctx, &NewMessage{Task: parked.c.Task, Message: user("more"), Enqueue: true, RequestID: NewID()})
			if err != nil {
				return err
			}
			p, err := win("messages")
			if err == nil {
				err = (<-p.write(status(task.StateInputRequired))).err
			}
			return err
		},
		cancels: func(int) error {
			n := fresh("cancels")
			if err := create(n); err != nil {
				return err
			}
			h, err := f.Header(ctx, n.Task.ID)
			if err == nil {
				_, err = f.Cancel(ctx, h, nil)
			}
			return err
		},
		webhooks: func(int) error {
			if err := (<-hooked.write(status(task.StateWorking))).err; err != nil {
				return err
			}
			due, _, err := f.ClaimPush(ctx, &PushClaim{Worker: worker, Limit: 32, PerHost: 8, PerCaller: 32, Lock: time.Hour})
			for _, d := range due {
				if d.Task == hooked.c.Task.ID && err == nil {
					_, _, err = f.RecordPush(ctx, delivered(d, d.Upto))
				}
			}
			return err
		},
		configs: func(i int) error { return f.SetPush(ctx, configured.ID, hook("c", fmt.Sprint("h", i)), 20) },
		leases:  func(int) error { return f.Renew(ctx, worker, time.Hour) },
		processes: func(int) error {
			return f.Register(ctx, Process{ID: NewID(), Name: "test", Version: "1", Roles: "worker"}, time.Hour)
		},
		reads: func(int) error { _, err := f.Header(ctx, read.ID); return err },
		rescues: func(int) error {
			gone := NewID()
			if err := f.Register(ctx, Process{ID: gone, Name: "gone", Version: "1", Roles: "worker"}, 0); err != nil {
				return err
			}
			won, err := f.Claim(ctx, gone, []Demand{{Agent: "rescues", Slots: 1}})
			if err != nil || len(won) != 1 {
				return fmt.Errorf("%d claims: %w", len(won), err)
			}
			// The queue shows a rescue whose answer was lost.
			return untilDue("rescues", func() error {
				return patiently(func() error { _, _, err := f.Rescue(ctx, 0, true); return err })
			})
		},
		returns: func(i int) error {
			p, err := win("returns")
			if err != nil {
				return err
			}
			err = f.GiveBack(ctx, Requeue{Task: p.c.Task.ID, Agent: "returns", Fence: p.c.Fence, Uncount: true, Away: i%2 == 0, InPlace: i%2 == 0})
			if err == nil {
				_, err = f.Began(ctx, []string{"returns"})
			}
			return err
		},
		timers: func(int) error {
			p, err := win("timers")
			if err == nil {
				err = (<-p.write(status(task.StateWorking), waitNote(time.Millisecond, false))).err
			}
			if err != nil {
				return err
			}
			return untilDue("timers", func() error { _, err := f.FireTimers(ctx); return err })
		},
		calls: func(int) error {
			if err := create(fresh("calls")); err != nil {
				return err
			}
			p, err := win("calls")
			if err == nil {
				err = (<-p.write(status(task.StateWorking), f.callNote("callee"))).err
			}
			if err != nil {
				return err
			}
			found, err := f.NewCalls(ctx, 0, NewCall{}, 10)
			if err != nil || len(found) != 1 {
				return fmt.Errorf("%d calls: %w", len(found), err)
			}
			note, err := f.CallNote(ctx, p.c.Task.ID, found[0].Note)
			if err == nil {
				err = create(called(note, found[0]))
			}
			if err == nil {
				p, err = win("callee")
			}
			if err == nil {
				err = (<-p.write(status(task.StateCompleted))).err
			}
			for err == nil {
				if _, err = f.JoinCalls(ctx, Joined{}); err != nil {
					return err
				}
				won, err := f.Claim(ctx, worker, []Demand{{Agent: "calls", Slots: 1}})
				if err != nil {
					return err
				}
				if len(won) == 1 {
					return (<-(&pen{s: f.Store, c: won[0]}).write(status(task.StateCompleted))).err
				}
			}
			return err
		},
		notices: func(int) error {
			n := fresh("notices")
			err := create(n)
			if err != nil {
				return err
			}
			p, err := win("notices")
			if err == nil {
				_, err = f.Cancel(ctx, p.c.Task, nil)
			}
			if err == nil {
				err = (<-p.write(status(task.StateCanceled))).err
			}
			if err != nil {
				return err
			}
			told, err := f.ClaimNotices(ctx, worker, []NoticeDemand{{"notices", 1}})
			if err != nil || len(told) != 1 {
				return fmt.Errorf("%d notices: %w", len(told), err)
			}
			return f.RecordNotice(ctx, NoticeResult{Task: told[0].Task, Try: told[0].Try, Delivered: true})
		},
		values: func(i int) error {
			_, err := f.SetAgentState(ctx, NewState{
				StateOf: StateOf{stream.c.Task, i%2 == 0}, Fence: stream.c.Fence, Value: []byte("1"), Version: AnyVersion, RequestID: NewID(),
			})
			return err
		},
		beats:  func(int) error { _, err := f.Beat(ctx, steps.c.Task.ID, steps.c.Fence, -1, 0); return err },
		duties: func(int) error { _, err := f.Lead(ctx, "duty", worker, time.Hour); return err },
		catchUps: func(int) error {
			_, err := f.LastSeqs(ctx, []task.ID{read.ID})
			return err
		},
	}
}
