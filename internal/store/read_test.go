package store

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// ReadTask in one statement returns the same as FindTask and Snapshot in two, for every plan that the database may
// choose.
func TestReadTaskEqualsFindTaskAndSnapshot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	bare, told, named := fresh("a"), fresh("a"), chosen("a", "t")
	told.Task.Metadata = []byte(`{"a":null,"b":"\u00fc"}`)
	named.Task.Owner, named.Task.Dialect = "owner", "0.1"
	var all []*NewTask
	for _, n := range []*NewTask{bare, told, named} {
		f.create(n)
		p := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "a", 1)[0]}
		p.must(t, status(task.StateWorking), chunk("x"), chunk("y"), chunk("z"), status(task.StateCompleted))
		all = append(all, n)
	}
	again := chosen("a", "t")
	again.Reopens = &named.Task
	f.create(again)
	all = append(all, again)
	// One event of each log is moved to the end of the heap: a scan of the heap finds it last.
	f.exec("CREATE TABLE moved AS SELECT * FROM holdfast.task_events WHERE seq = 2")
	f.exec("DELETE FROM holdfast.task_events WHERE seq = 2")
	f.exec("INSERT INTO holdfast.task_events SELECT * FROM moved")
	heap, err := Open(t.Context(), Options{URL: f.url + "&enable_indexscan=off", APIConns: 2, RowSecurity: true})
	require.NoError(t, err)
	t.Cleanup(func() { heap.Close(context.Background()) })

	for _, s := range []*Store{f.Store, heap} {
		for _, n := range all {
			for _, o := range []asker{ownerOf(n), {Tenant: n.Task.Tenant, Subject: "another", Agent: "a", TenantWide: true}} {
				for _, id := range []string{n.Task.PublicID, n.Task.ID.String()} {
					for _, artifacts := range []bool{true, false} {
						v := o.of(s)
						h, err := v.FindTask(t.Context(), id)
						if id != n.Task.PublicID && n != named { // named keeps its name beside the UUID
							require.Equal(t, task.NotFound, err)
							_, err = v.ReadTask(t.Context(), id, artifacts)
							require.Equal(t, task.NotFound, err)
							continue
						}
						require.NoError(t, err)
						want, err := v.Snapshot(t.Context(), h, artifacts)
						require.NoError(t, err)
						require.Equal(t, artifacts && want.ID != again.Task.ID, len(want.Artifacts) > 0)
						got, err := v.ReadTask(t.Context(), id, artifacts)
						require.NoError(t, err)
						require.Empty(t, cmp.Diff(want, got, cmpopts.IgnoreUnexported(task.Task{})))
						require.NotEmpty(t, got.History)
					}
				}
			}
		}
	}
}
