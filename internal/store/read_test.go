package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// ReadTask returns in one statement what FindTask and Snapshot do in two, for every plan that the database may choose.
func TestReadTaskEqualsFindTaskAndSnapshot(t *testing.T) {
	f := parallel(t)
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
	texts := map[task.ID]string{}
	// The first statement reads walkRows events.
	for _, events := range []int{walkRows - 1, walkRows, walkRows + 1, 3 * walkRows, 2 * mostRows} {
		n := fresh("a")
		f.create(n)
		p := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "a", 1)[0]}
		written := []*task.Event{status(task.StateWorking)}
		for len(written) < events-2 {
			text := fmt.Sprint(len(written), " ")
			texts[n.Task.ID] += text
			written = append(written, chunk(text))
		}
		for batch := range slices.Chunk(append(written, status(task.StateCompleted)), 500) {
			p.must(t, batch...)
		}
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
	heap := storetest.Must(Open(t.Context(), Options{URL: f.url + "&enable_indexscan=off", APIConns: 2, RowSecurity: true}))(t)
	t.Cleanup(func() { heap.Close(context.Background()) })

	for _, s := range []*Store{f.replica(nil), heap} {
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
						want := storetest.Must(v.Snapshot(t.Context(), h, artifacts))(t)
						require.Equal(t, artifacts && want.ID != again.Task.ID, len(want.Artifacts) > 0)
						got := storetest.Must(v.ReadTask(t.Context(), id, artifacts))(t)
						require.Empty(t, cmp.Diff(want, got, cmpopts.IgnoreUnexported(task.Task{})))
						if text := texts[got.ID]; text != "" && artifacts {
							require.Equal(t, text, got.Artifacts[0].Parts[0].Text)
						}
						require.NotEmpty(t, got.History)
					}
				}
			}
		}
	}
}

// Events of artifacts are decoded into one, of which the task must keep nothing.
func TestReadTaskEqualsTheFoldOfItsEvents(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	of := func(id string, appends bool, parts ...task.Part) *task.Event {
		return &task.Event{Kind: task.EventArtifact, Append: appends, Artifact: &task.Artifact{ID: id, Parts: parts}}
	}
	told := of("told", false, task.Text("said"))
	told.Artifact.Name, told.Artifact.Description, told.Artifact.Metadata, told.Artifact.Extensions = "name", "description", []byte(`{"a":1}`), []string{"https://x.test/e"}
	told.Metadata = []byte(`{"event":1}`)
	typed := task.Text("typed")
	typed.MediaType = "text/markdown"
	more := of("told", true, task.Text(" more"))
	more.Artifact.Metadata, more.Artifact.Extensions = []byte(`{"b":[2.50],"a":3}`), []string{"https://x.test/f", "https://x.test/e"}
	half, done := status(task.StateWorking), status(task.StateCompleted)
	half.Metadata, done.Metadata = []byte(`{"progress":50,"k":"request"}`), []byte(`{"progress":100,"usage":{"totalTokens":12}}`)
	p.must(t, half,
		of("one", true, task.Text("a")), of("two", true, task.Text("A")), of("one", true, task.Text("b")), of("two", true, task.Text("B")),
		told, of("one", true, task.Text("c"), task.Text("d")), of("one", true, task.Text("e")), more,
		of("two", false, task.Text("replaced")), of("two", true, task.Text(" and continued")), of("data", true, task.Part{Kind: task.PartData, Data: []byte(`[1]`)}),
		of("data", true, typed), of("data", true, typed), of("data", true, task.Text("quoted \"\n")), of("one", true, task.Text("f")), done)
	var log []task.Event
	for _, e := range f.log(p.c.Task.ID) {
		log = append(log, *e)
	}
	cold := owner.of(f.replica(nil))
	h := storetest.Must(cold.FindTask(t.Context(), p.c.Task.ID.String()))(t)
	want := storetest.Must(task.Fold(*Empty(h), log))(t)
	require.Len(t, want.Artifacts, 4)
	require.JSONEq(t, `{"progress":100,"k":"request","usage":{"totalTokens":12}}`, string(want.Metadata))
	at := slices.IndexFunc(want.Artifacts, func(a task.Artifact) bool { return a.ID == "told" })
	require.JSONEq(t, `{"a":3,"b":[2.50]}`, string(want.Artifacts[at].Metadata))
	require.Equal(t, []string{"https://x.test/e", "https://x.test/f"}, want.Artifacts[at].Extensions)
	ignored := cmpopts.IgnoreUnexported(task.Task{})
	got := storetest.Must(cold.ReadTask(t.Context(), h.PublicID, true))(t)
	want.History, got.History = nil, nil // events of a log alone do not know the context of messages
	require.Empty(t, cmp.Diff(want, got, ignored, cmpopts.EquateEmpty()))
	page, _ := must2(cold.List(t.Context(), &Listing{After: Newest, Limit: 50, Artifacts: true}))(t)
	require.Empty(t, cmp.Diff(want.Artifacts, page[0].Artifacts, cmpopts.EquateEmpty()))
	again := storetest.Must(cold.ReadTask(t.Context(), h.PublicID, true))(t) // from memory
	bare, _ := must2(cold.List(t.Context(), &Listing{After: Newest, Limit: 50}))(t)
	for _, shown := range []*task.Task{page[0], again, bare[0]} {
		require.JSONEq(t, string(want.Metadata), string(shown.Metadata))
	}
	require.JSONEq(t, string(want.Metadata), scan[string](f, "SELECT agent_metadata FROM holdfast.v_tasks"))
}

// slowFirst is a database in which the first page of a log takes too long.
type slowFirst struct {
	querier
	tried []int64 // rows of the further statements
}

func (s *slowFirst) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	switch {
	case strings.Contains(sql, "name: TaskRead "):
		return s.querier.Query(ctx, timesOut) //nolint:rowserrcheck // the reader of the rows checks it
	case strings.Contains(sql, "name: EventsOf "):
		s.tried = append(s.tried, args[2].(int64)-args[1].(int64)) // as EventsOf binds them
	}
	return s.querier.Query(ctx, sql, args...) //nolint:rowserrcheck // as above
}

func TestFirstPagesThatTakeTooLongBecomeSmaller(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	var chunks []*task.Event
	for range walkRows {
		chunks = append(chunks, chunk("x"))
	}
	p.must(t, chunks...)
	v := owner.of(f.replica(nil))
	slow := &slowFirst{querier: v.db}
	v.db = slow
	got := storetest.Must(v.ReadTask(t.Context(), p.c.Task.ID.String(), true))(t)
	require.Equal(t, strings.Repeat("x", walkRows), got.Artifacts[0].Parts[0].Text)
	require.EqualValues(t, walkRows/4, slow.tried[0])
}

// deletedMeanwhile is a database in which a task is deleted before a statement reads a page of its log.
type deletedMeanwhile struct {
	querier
	f     *fixture
	pages int // before that
}

func (d *deletedMeanwhile) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if strings.Contains(sql, "name: EventsOf ") {
		if d.pages--; d.pages < 0 {
			for _, table := range []string{"task_queue", "task_events", "tasks"} {
				d.f.exec("DELETE FROM holdfast." + table)
			}
		}
	}
	return d.querier.Query(ctx, sql, args...) //nolint:rowserrcheck // the reader of the rows checks it
}

func TestReadOfATaskThatIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events, pages int
		slow          bool // its first statement, so that the task's header is read alone
	}{
		"after the first page":               {events: walkRows},
		"after the header":                   {events: 1, slow: true},
		"after the header and smaller pages": {events: walkRows / 2, slow: true, pages: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p := f.running("a")
			var chunks []*task.Event
			for range c.events {
				chunks = append(chunks, chunk("x"))
			}
			p.must(t, chunks...)
			v := owner.of(f.replica(nil))
			v.db = &deletedMeanwhile{querier: v.db, f: f, pages: c.pages}
			if c.slow {
				v.db = &slowFirst{querier: v.db}
			}
			require.ErrorIs(t, errOf(v.ReadTask(t.Context(), p.c.Task.ID.String(), true)), task.NotFound)
		})
	}
}

// chunkOf starts or continues an artifact.
func chunkOf(id string) *task.Event {
	return &task.Event{Kind: task.EventArtifact, Append: true, Artifact: &task.Artifact{ID: id, Parts: []task.Part{task.Text(id)}}}
}

// parked is the status of a run that parks its task and lists the artifacts; without ids, that of a run that does not
// know them, or of an older server.
func parked(ids ...string) *task.Event {
	return &task.Event{Kind: task.EventStatus, State: task.StateInputRequired, Artifacts: ids}
}

// firstSeen are the ids without repetitions, as a run numbers them.
func firstSeen(ids []string) (out []string) {
	for _, id := range ids {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// A run that continues a task learns its artifacts from the status that parked it, and reads only later chunks.
func TestArtifactIDsReadOnlyChunksAfterTheListing(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	id := p.c.Task.ID
	read := func() ([]string, int) {
		x := &explained{f: f}
		ids := storetest.Must(f.q.ArtifactIDs(t.Context(), x, uuid.UUID(id)))(t)
		return ids, x.pages
	}
	p.must(t, status(task.StateWorking), chunkOf("z"))
	for range 10 {
		evs := make([]*task.Event, 500)
		for i := range evs {
			evs[i] = chunkOf("b")
		}
		p.must(t, evs...)
	}
	p.must(t, chunkOf("a"), parked("z", "b", "a"))
	ids, pages := read()
	require.Equal(t, []string{"z", "b", "a"}, ids)
	require.Less(t, pages, 25)

	// Without the listing it is as for a task that an older server parked.
	f.exec("UPDATE holdfast.tasks SET artifacts_seq = NULL")
	ids, without := read()
	require.Equal(t, []string{"z", "b", "a"}, ids)
	require.Greater(t, without, 4*pages)
	f.exec("UPDATE holdfast.tasks SET artifacts_seq = status_seq")

	p = f.answer(p.c.Task, "more")
	p.must(t, chunkOf("b"), chunkOf("c"))
	ids, pages = read()
	require.Equal(t, []string{"z", "b", "a", "c"}, firstSeen(ids))
	require.Less(t, pages, 25)
	t.Logf("%d pages, without the listing %d", pages, without)
}

// Runs may crash, and older servers may park the task: the ids are those of all chunks in their order.
func TestArtifactIDsAfterCrashesAndOlderServers(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	id := p.c.Task.ID
	want := func(want ...string) {
		t.Helper()
		ids := storetest.Must(f.ArtifactIDs(t.Context(), id))(t)
		require.Equal(t, want, firstSeen(ids))
	}
	crash := func() {
		t.Helper()
		f.exec("DELETE FROM holdfast.workers")
		_, runs := must2(f.Rescue(t.Context(), 0, true))(t)
		require.Len(t, runs, 1)
	}
	want()
	p.must(t, status(task.StateWorking), chunkOf("b"))
	crash()
	want("b")
	zombie := p
	p = f.next(p.c.Task.Agent)
	p.must(t, chunkOf("a"), parked("b", "a"))
	require.ErrorIs(t, waittest.Within(t, "the answer", zombie.write(parked("b"))).err, task.LeaseLost)
	want("b", "a")

	p = f.answer(p.c.Task, "more")
	p.must(t, status(task.StateWorking), chunkOf("d"), chunkOf("a"))
	crash()
	want("b", "a", "d")
	p = f.next(p.c.Task.Agent)
	p.must(t, chunkOf("c"), parked()) // by a server that writes no listing
	want("b", "a", "d", "c")
	p = f.answer(p.c.Task, "more")
	p.must(t, status(task.StateWorking), chunkOf("e"))
	want("b", "a", "d", "c", "e")

	// A run that would park while a message waits states the artifacts, too.
	f.ok(f.AddMessage(t.Context(), &NewMessage{Task: p.c.Task, Message: user("meanwhile"), Enqueue: true, RequestID: NewID()}))
	require.True(t, p.must(t, parked("b", "a", "d", "c", "e")).requeued)
	require.Equal(t, scan[int64](f, "SELECT last_seq FROM holdfast.tasks"), scan[int64](f, "SELECT artifacts_seq FROM holdfast.tasks"))
	want("b", "a", "d", "c", "e")
	p = f.next(p.c.Task.Agent)
	p.must(t, status(task.StateWorking), chunkOf("f"), parked("b", "a", "d", "c", "e", "f"))
	want("b", "a", "d", "c", "e", "f")

	// The listing of a task that outlives its period moves with its log.
	f.exec("UPDATE holdfast.tasks SET kept = true")
	f.exec("UPDATE holdfast.task_events SET kept = true")
	want("b", "a", "d", "c", "e", "f")
}

func TestRequestsThatAreAbandoned(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"dialogue":     errOf(f.Dialogue(ctx, DialogueOf{Task: p.c.Task, Said: 1, Begins: 1, Bounds: task.Bounds{Count: 1, Bytes: 1}})),
		"conversation": errOf(f.Conversation(ctx, p.c.Task, 2, 2)),
		"resume":       errOf(f.Resumable(ctx, p.c.Task.ID, 1)),
		"find":         errOf(owner.of(f.Store).FindTask(ctx, p.c.Task.PublicID)),
		"webhook":      owner.of(f.Store).SetPush(ctx, p.c.Task.ID, hook("c", "h"), 2),
	} {
		require.ErrorIs(t, err, context.Canceled, name)
	}
}
