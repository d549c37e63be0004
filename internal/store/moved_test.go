package store

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A task that ends moves to another partition. In these tests a statement waits for the task's row until it has
// moved: PostgreSQL then rolls the statement back (40001), and the store must retry it.

// afterItEnded runs a write that waits for the commit that completes the task of p, and returns the write's error.
func (f *fixture) afterItEnded(p *pen, kind string, write func() error) error {
	f.t.Helper()
	f.ear.mu.Lock()
	clear(f.ear.repeated)
	f.ear.mu.Unlock()
	commit := f.written(p, status(task.StateCompleted))
	written := make(chan error, 1)
	go func() { written <- write() }()
	if kind == "give_back" { // it does not wait
		f.retries(kind)
	} else {
		f.blocked(1)
	}
	commit()
	err := waittest.Within(f.t, "the write", written)
	f.ear.mu.Lock()
	defer f.ear.mu.Unlock()
	require.NotZero(f.t, f.ear.repeated[kind], "the statement met the move")
	return err
}

func TestStatementsAreRetriedWhenTaskEnds(t *testing.T) {
	t.Parallel()
	hook := &task.PushConfig{ID: "c", URL: "https://hook.example/", Host: "hook.example:443", Dialect: "0.3"}
	message := func(h *task.Task, c *task.PushConfig) *NewMessage {
		return &NewMessage{Task: h, Message: user("late"), Enqueue: true, RequestID: NewID(), Push: c, MostPushes: 5}
	}
	// errorKind is the kind of an error, or nil.
	errorKind := func(err error) error {
		if err == nil {
			return nil
		}
		return task.KindOf(err)
	}
	f := newFixture(t)
	for name, c := range map[string]struct {
		kind  string
		write func(v View, p *pen) error
		want  error // nil: the write succeeds
	}{
		"message": {"message", func(v View, p *pen) error {
			_, err := v.AddMessage(context.Background(), message(p.c.Task, nil))
			return err
		}, task.Terminal},
		"message with a webhook": {"message", func(v View, p *pen) error {
			_, err := v.AddMessage(context.Background(), message(p.c.Task, hook))
			return err
		}, task.Terminal},
		"cancel": {"cancel", func(v View, p *pen) error {
			_, err := v.Cancel(context.Background(), p.c.Task, nil)
			return err
		}, task.NotCancelable},
		"set a webhook": {"push_set", func(v View, p *pen) error {
			return v.SetPush(context.Background(), p.c.Task.ID, hook, 5)
		}, nil},
		"delete a webhook": {"push_delete", func(v View, p *pen) error {
			_, err := v.DeletePush(context.Background(), p.c.Task.ID, "old")
			return err
		}, nil},
		"give back": {"give_back", func(v View, p *pen) error {
			return v.s.GiveBack(context.Background(), Requeue{Task: p.c.Task.ID, Agent: "a", Fence: p.c.Fence})
		}, task.LeaseLost},
		"hurry": {"task.hurried", func(v View, p *pen) error {
			_, _, err := v.s.Hurry(context.Background(), p.c.Task)
			return err
		}, task.NotFound},
	} {
		for _, who := range []string{"server", "caller"} {
			if who == "caller" && (c.kind == "give_back" || c.kind == "task.hurried") {
				continue // callers do not use it
			}
			p := f.running("a")
			require.NoError(t, f.SetPush(t.Context(), p.c.Task.ID, &task.PushConfig{ID: "old", URL: hook.URL, Host: hook.Host, Dialect: "0.3"}, 5))
			v := f.View
			if who == "caller" {
				v = owner.of(f.Store)
			}
			err := f.afterItEnded(p, c.kind, func() error { return c.write(v, p) })
			require.Equal(t, c.want, errorKind(err), "%s by a %s: %v", name, who, err)
			require.Equal(t, task.StateCompleted, f.state(p.c.Task.ID))
			require.Len(t, f.log(p.c.Task.ID), 2)
		}
	}
}

// Other runs in the same statement as the ended task lose nothing.
func TestBatchWithEndedTask(t *testing.T) {
	f := parallel(t)
	p, bystanders := f.running("a"), []*pen{f.running("a"), f.running("a")}
	fenced := make(chan answer, 1)
	batch := []*Append{p.item(fenced, chunk("late"), chunk("late"))}
	var rest []chan answer
	for _, b := range bystanders {
		done := make(chan answer, 1)
		batch, rest = append(batch, b.item(done, status(task.StateWorking), chunk("x"))), append(rest, done)
	}
	for _, a := range batch {
		for _, e := range a.Events {
			a.payloads = append(a.payloads, EncodePayload(e))
		}
	}
	p.ordinal = 0
	commit := f.written(p, status(task.StateCompleted))
	blocked := f.writeAppends(t.Context(), batch)
	require.Equal(t, batch[:1], blocked, "it does not wait for the task")
	commit()
	require.Empty(t, f.writeAppends(t.Context(), blocked))
	require.Equal(t, answer{err: task.LeaseLost}, waittest.Within(t, "the answer", fenced))
	for i, done := range rest {
		require.Equal(t, answer{}, waittest.Within(t, "the answer", done))
		require.Len(t, f.log(bystanders[i].c.Task.ID), 3)
	}
}

// Retention moves a kept task while a client reopens it.
func TestTaskMovesDuringReopening(t *testing.T) {
	f := parallel(t)
	old := chosen("a", "x")
	f.create(old)
	w := f.worker(time.Hour)
	p := &pen{s: f.Store, c: f.claim(w, "a", 1)[0]}
	p.must(t, status(task.StateCompleted))
	h := storetest.Must(f.Header(t.Context(), old.Task.ID))(t)

	tx := storetest.Must(f.conn().Begin(t.Context()))(t)
	for _, sql := range []string{"UPDATE holdfast.tasks SET kept = true WHERE id = $1", "UPDATE holdfast.task_events SET kept = true WHERE task = $1"} {
		f.ok(tx.Exec(t.Context(), sql, old.Task.ID))
	}
	again := chosen("a", "x")
	again.Reopens = h
	made := make(chan error, 1)
	go func() {
		_, err := ownerOf(again).bare(f.Store).Create(context.Background(), again)
		made <- err
	}()
	f.blocked(1)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, waittest.Within(t, "the create", made))
	require.NotZero(t, f.ear.repeated["reopen"])
	found := storetest.Must(ownerOf(again).bare(f.Store).FindTask(t.Context(), "x"))(t)
	require.Equal(t, again.Task.ID, found.ID)
	require.Len(t, f.log(old.Task.ID), 2)
}
