package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

func (p *pen) setState(ctx context.Context, inContext bool, value string, version int64) (int64, error) {
	n := NewState{StateOf: StateOf{p.c.Task, inContext}, Fence: p.c.Fence, Version: version, RequestID: NewID()}
	if value != "" {
		n.Value = json.RawMessage(value)
	}
	return p.s.SetAgentState(ctx, n)
}

func (f *fixture) hasState(h *task.Task, inContext bool, value string, version int64) {
	f.t.Helper()
	got, v := must2(f.AgentState(f.t.Context(), StateOf{h, inContext}))(f.t)
	require.Equal(f.t, value, string(got))
	require.Equal(f.t, version, v)
}

// The end of a run waits for a state that is being written, and the state for an end: neither is lost.
func TestStateRacesWithEndOfRun(t *testing.T) {
	f := parallel(t)
	for range 30 {
		p := f.running("a")
		var wg sync.WaitGroup
		var stored error
		wg.Go(func() { _, stored = p.setState(t.Context(), false, `1`, 0) })
		p.must(t, status(task.StateCompleted))
		wg.Wait()
		if stored != nil {
			require.ErrorIs(t, stored, task.LeaseLost)
			f.hasState(p.c.Task, false, "", 0)
		} else {
			f.hasState(p.c.Task, false, `1`, 1)
		}
	}
}

// Tasks of one context count together: each increment is one compare-and-set that won.
func TestTasksShareStateOfContext(t *testing.T) {
	f := parallel(t)
	const writers, each = 4, 10
	var wg sync.WaitGroup
	var pens []*pen
	for range writers {
		pens = append(pens, f.running("a"))
	}
	for _, p := range pens {
		wg.Go(func() {
			for n := 0; n < each; {
				value, version, err := f.AgentState(t.Context(), StateOf{p.c.Task, true})
				if err != nil {
					t.Error(err)
					return
				}
				have := 0
				if value != nil {
					_ = json.Unmarshal(value, &have)
				}
				_, err = p.setState(t.Context(), true, fmt.Sprint(have+1), version)
				switch {
				case err == nil:
					n++
				case !errors.Is(err, ErrStateChanged):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	f.hasState(pens[0].c.Task, true, fmt.Sprint(writers*each), writers*each)
}

func TestStateOfContextBelongsToItsOwnerAndAgent(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	storetest.Must(p.setState(t.Context(), true, `"secret"`, 0))(t)
	for name, change := range map[string]func(*task.Task){
		"tenant":  func(h *task.Task) { h.Tenant = "other" },
		"owner":   func(h *task.Task) { h.Owner = "other" },
		"agent":   func(h *task.Task) { h.Agent = "other" },
		"context": func(h *task.Task) { h.ContextID = "other" },
	} {
		h := *p.c.Task
		change(&h)
		value, _ := must2(f.AgentState(t.Context(), StateOf{&h, true}))(t)
		require.Nil(t, value, name)
	}
	// A write takes them from the task's row, not from the header.
	h := *p.c.Task
	h.Tenant, h.Owner, h.Agent, h.ContextID = "other", "other", "other", "other"
	f.ok(f.SetAgentState(t.Context(), NewState{StateOf: StateOf{&h, true}, Fence: p.c.Fence, Value: json.RawMessage(`1`), Version: 1, RequestID: NewID()}))
	f.hasState(p.c.Task, true, `1`, 2)
}

// States lie in no table that a caller's role can read.
func TestCallersReadNoStates(t *testing.T) {
	f := parallel(t)
	for _, table := range []string{"task_states", "context_states", "v_states"} {
		require.False(t, scan[bool](f, "SELECT has_table_privilege(holdfast.api_role(), 'holdfast."+table+"', 'SELECT')"), table)
	}
	require.Equal(t, 2, scan[int](f, "SELECT count(*) FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relname IN ('task_states', 'context_states') AND relrowsecurity"))
}

func TestStatesEndWithTheirTasks(t *testing.T) {
	f := parallel(t)
	one, two := f.running("a"), f.running("a")
	for _, p := range []*pen{one, two} {
		for _, inContext := range []bool{false, true} {
			f.ok(p.setState(t.Context(), inContext, `"kept"`, AnyVersion))
		}
	}
	states := func() string {
		return scan[string](f, "SELECT format('%s %s', (SELECT count(*) FROM holdfast.task_states), (SELECT count(*) FROM holdfast.context_states))")
	}
	require.Equal(t, "2 1", states())
	erase := func(ids ...task.ID) {
		require.Len(t, storetest.Must(f.Erase(t.Context(), ids, false, ""))(t), len(ids))
	}
	erase(two.c.Task.ID)
	require.Equal(t, "1 1", states(), "the context has another task")
	erase(one.c.Task.ID)
	require.Equal(t, "0 0", states())

	both := []*pen{f.running("a"), f.running("a")}
	for _, p := range both {
		f.ok(p.setState(t.Context(), true, `"kept"`, AnyVersion))
	}
	erase(both[0].c.Task.ID, both[1].c.Task.ID)
	require.Equal(t, "0 0", states(), "both tasks in one statement")
}

// Before a period is dropped, its states go, except those of contexts with a task that stays.
func TestStatesEndWithTheirPeriod(t *testing.T) {
	f := parallel(t)
	old := time.Now().Add(-60 * 24 * time.Hour)
	highest := partition.FirstID(old.Add(24 * time.Hour))
	f.exec(`INSERT INTO holdfast.context_states (tenant, owner, agent, context_id, task, version, value, request_id)
		SELECT 'tenant', 'owner', 'a', c, $1, 1, '1', gen_random_uuid() FROM unnest(ARRAY['dropped', 'context']) AS c`,
		partition.FirstID(old))
	f.exec(`INSERT INTO holdfast.task_states (task, version, value, request_id) VALUES ($1, 1, '1', gen_random_uuid())`, partition.FirstID(old))
	h := f.create(fresh("a"))
	require.Equal(t, "context", h.ContextID)
	require.NoError(t, f.ForgetBeside(t.Context(), Span{From: old.Add(-time.Hour), To: old.Add(24 * time.Hour)}))
	require.Zero(t, scan[int](f, "SELECT count(*) FROM holdfast.task_states WHERE task < $1", highest))
	require.Equal(t, "context", scan[string](f, "SELECT string_agg(context_id, ' ') FROM holdfast.context_states"))
}
