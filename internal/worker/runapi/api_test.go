package runapi_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/runapitest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
	"github.com/holdfast-a2a/holdfast/internal/worker/runapi"
)

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// world has a worker, and the run API on another store, as on another replica that runs nothing.
type world struct {
	t     *testing.T
	url   string
	store *store.Store
	pool  *worker.Pool
	api   string
	stop  func() // of the run API
	runs  chan ran
}

// ran is a run that the executor has begun and handed over.
type ran struct {
	runapitest.Client
	*executor.Run
	ctx   context.Context
	ended chan error // the result of HandOver; the result of the run of a message "answer", which emits itself
}

// newWorld makes a world for a test that runs beside others.
func newWorld(t *testing.T, a worker.Agent) *world {
	t.Helper()
	t.Parallel()
	w := &world{t: t, url: storetest.New(t).URL, runs: make(chan ran, 10)}
	var bus signal.Bus // of both replicas, as the hub connects them
	open := func() *store.Store {
		s := storetest.Must(store.Open(t.Context(), store.Options{URL: w.url, APIConns: 4, Listener: &bus}))(t)
		return s
	}
	w.store = open()
	elsewhere := open()
	keys := storetest.Must(elsewhere.Derive(t.Context(), runapi.Purpose))(t)
	tokens := task.NewTokens(keys)
	self := store.NewID()
	require.NoError(t, w.store.Register(t.Context(), store.Process{ID: self, Name: "test"}, time.Hour))

	a.Name, a.CancelGrace, a.Concurrency, a.MaxAttempts, a.MaxEvent = "a", time.Hour, 10, cmp.Or(a.MaxAttempts, 5), 1<<20
	a.Executor = executor.Func(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		r := ran{runapitest.Client{URL: run.API.URL, Token: run.API.Token}, run, ctx, make(chan error, 1)}
		if p := run.Message.Parts; len(p) > 0 && p[0].Text == "answer" {
			err := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: "own", Parts: []task.Part{task.Text("answered")}}})
			w.runs <- r
			return cmp.Or(err, out.Committed(ctx), <-r.ended)
		}
		w.runs <- r
		err := run.API.HandOver(ctx)
		r.ended <- err
		return err
	})
	options := worker.Options{
		Store: w.store, Agents: []worker.Agent{a}, PollInterval: 100 * time.Millisecond, Worker: func() task.ID { return self },
		RunAPI: func(id task.ID, run task.Fence) executor.API {
			return executor.API{URL: w.api, Token: runapi.TokenPrefix + tokens.Make(id, run.ClaimedAt)}
		},
	}
	w.pool = worker.New(options)
	bus.Queues.Subscribe(w.pool.Wake)
	bus.Cancels.Subscribe(w.pool.CancelHint)
	options.Store = elsewhere
	api := runapi.New(runapi.Options{
		Store: elsewhere, Pool: worker.New(options), Tokens: tokens, Memory: limit.NewBudgets(64 << 20),
		History: map[string]wire.History{"a": {Of: executor.OfTask}},
		Limits:  web.BodyLimits{Size: 2 << 20}, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	})
	server := httptest.NewServer(api)
	w.api, w.stop = server.URL+runapi.Path, api.Stop
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.pool.Run(ctx) }()
	t.Cleanup(func() {
		server.Close()
		stop()
		<-ended
		for _, s := range []*store.Store{w.store, elsewhere} {
			s.Close(context.Background())
		}
		if !t.Failed() {
			require.NoError(t, invarianttest.Check(context.Background(), w.url))
		}
	})
	return w
}

// begin creates a task and waits for its run.
func (w *world) begin(text string) ran {
	w.t.Helper()
	id := store.NewID()
	w.create(id, "ctx", "owner", text)
	return w.next()
}

// begun is a world with a run.
func begun(t *testing.T, a worker.Agent) (*world, ran) {
	t.Helper()
	w := newWorld(t, a)
	return w, w.begin("go")
}

func (w *world) create(id task.ID, inContext, owner, text string) {
	w.t.Helper()
	storetest.Must(w.store.Create(w.t.Context(), &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: "a", ContextID: inContext, Owner: owner, Dialect: "0.3"},
		Message: &task.Message{ID: "m-" + text, Role: task.RoleUser, Parts: []task.Part{task.Text(text)}},
	}))(w.t)
}

func (w *world) next() ran {
	w.t.Helper()
	return waittest.Within(w.t, "a run", w.runs)
}

func (w *world) say(r ran, text string) {
	w.t.Helper()
	h := storetest.Must(w.store.Header(w.t.Context(), r.ID))(w.t)
	storetest.Must(w.store.AddMessage(w.t.Context(), &store.NewMessage{
		Task: h, Enqueue: true, RequestID: store.NewID(),
		Message: &task.Message{ID: "m-" + text, Role: task.RoleUser, Parts: []task.Part{task.Text(text)}},
	}))(w.t)
}

// task folds the log of a run's task.
func (w *world) task(r ran) *task.Task {
	w.t.Helper()
	h := storetest.Must(w.store.Header(w.t.Context(), r.ID))(w.t)
	got := storetest.Must(w.store.Snapshot(w.t.Context(), h, true))(w.t)
	return got
}

// ends waits until the worker has noticed the end of a run. It may first claim the next attempt, which the first one has to
// make room for.
func (w *world) ends(r ran) {
	w.t.Helper()
	if err := waittest.Within(w.t, "the worker notices the end of the run", r.ended); err != nil {
		require.ErrorIs(w.t, err, executor.ErrLeaseLost)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	storetest.Must(storetest.Connect(w.t, w.url).Exec(w.t.Context(), sql, args...))(w.t)
}

func (w *world) becomes(r ran, s task.State) {
	w.t.Helper()
	waittest.Eventually(w.t, "the task is "+s.String(), func() error {
		return waittest.Unless(w.task(r).Status.State == s, "it is %s", w.task(r).Status.State)
	})
}

func textOf(a *task.Artifact) (text string) {
	for _, p := range a.Parts {
		text += p.Text
	}
	return text
}

func TestPostedEvents(t *testing.T) {
	w, r := begun(t, worker.Agent{})
	a := r.Post(t, 0, `{"type":"status","message":"on it"}`, `{"type":"text","text":"one "}`)
	require.Equal(t, 200, a.Status, "%s", a.Body)
	require.JSONEq(t, `{"next":2,"ended":false}`, string(a.Body))
	// Repeated, and longer. The text continues that of the first upload.
	a = r.Post(t, 0, `{"type":"status","message":"on it"}`, `{"type":"text","text":"one "}`, `{"type":"status"}`, `{"type":"text","text":"two"}`)
	require.JSONEq(t, `{"next":4,"ended":false}`, string(a.Body))
	a = r.Do(t, "POST", "/events?from=4", `{"events":[{"type":"artifact","artifact":{"artifactId":"doc","parts":[{"text":"x"}]}},{"type":"complete","message":"done"}]}`)
	require.JSONEq(t, `{"next":6,"ended":true}`, string(a.Body))
	w.ends(r)
	got := w.task(r)
	require.Equal(t, task.StateCompleted, got.Status.State)
	require.Len(t, got.Artifacts, 2)
	require.Equal(t, "one two", textOf(&got.Artifacts[0]))
	require.Equal(t, "done", got.Status.Message.Parts[0].Text)

	a = r.Post(t, 4, `{"type":"text","text":"x"}`, `{"type":"complete"}`)
	require.JSONEq(t, `{"next":6,"ended":true}`, string(a.Body), "a repetition of the last upload")
	a = r.Post(t, 6, `{"type":"text","text":"late"}`)
	require.Equal(t, 410, a.Status)
	require.Equal(t, "over", a.Reason)
	for _, path := range []string{"", "/history", "/artifacts", "/artifacts/doc", "/tasks", "/tasks/x", "/state/task"} {
		require.Equal(t, 410, r.Do(t, "GET", path, "").Status, path)
	}
	require.Equal(t, 410, r.Do(t, "PUT", "/state/task", "1").Status)
	require.Equal(t, 410, r.Do(t, "POST", "/heartbeat", "").Status)
	require.Contains(t, a.Detail, "completed")
}

// An agent whose answer has events is the writer of its run.
func TestAnswersExcludePosts(t *testing.T) {
	w := newWorld(t, worker.Agent{})
	r := w.begin("answer")
	a := r.Post(t, 0, `{"type":"text","text":"posted"}`)
	require.Equal(t, 409, a.Status, "%s", a.Body)
	require.Equal(t, "answering", a.Reason)
	require.Contains(t, a.Detail, "answer 202 and post all events, or answer with them")
	require.JSONEq(t, `{"next":0}`, string(r.Do(t, "POST", "/heartbeat", "").Body))
	require.JSONEq(t, `{"version":1}`, string(r.Do(t, "PUT", "/state/task", `7`).Body))
	r.ended <- nil
	w.becomes(r, task.StateCompleted)
	require.Equal(t, 410, r.Post(t, 0, `{"type":"text","text":"posted"}`).Status)
	require.Len(t, w.task(r).Artifacts, 1)
}

func TestEventsOutOfOrder(t *testing.T) {
	w, r := begun(t, worker.Agent{})
	a := r.Post(t, 2, `{"type":"text","text":"x"}`)
	require.Equal(t, 409, a.Status)
	require.Equal(t, "ordinal", a.Reason)
	require.Equal(t, "0", string(a.Next))

	// The same upload twice at a time: nothing doubles.
	var events []string
	for i := range 50 {
		events = append(events, fmt.Sprintf(`{"type":"text","text":"%d "}`, i))
	}
	var all errgroup.Group
	for range 4 {
		all.Go(func() error {
			for {
				a, err := r.Client.Try(t.Context(), "POST", "/events?from=0", strings.NewReader(strings.Join(events, "\n")), "Content-Type", "application/x-ndjson")
				switch {
				case err != nil:
					return err
				case a.Status == 409:
					continue
				case string(a.Next) != "50":
					return fmt.Errorf("%d %s", a.Status, a.Body)
				}
				return nil
			}
		})
	}
	require.NoError(t, all.Wait())
	want := ""
	for i := range 50 {
		want += fmt.Sprint(i, " ")
	}
	got := w.task(r)
	require.Equal(t, want, textOf(&got.Artifacts[0]))
}

// Each end of a run works from elsewhere.
func TestTriesGoOnAtTheCheckpoint(t *testing.T) {
	w, r := begun(t, worker.Agent{Backoff: time.Millisecond})
	text := func(s string) string { return fmt.Sprintf(`{"type":"text","text":%q}`, s) }
	file := func(s string) string { return fmt.Sprintf(`{"type":"artifact","artifact":{"parts":[{"text":%q}]}}`, s) }
	r.Post(t, 0, text("one "), file("first"))
	r.Post(t, 2, text("two "), `{"type":"checkpoint","data":2}`, text("lost "), file("lost"), file("lost"), `{"type":"retry"}`)
	w.ends(r)
	second := w.next()
	second.Post(t, 0, text("three "), file("second"))
	second.Post(t, 2, text("four"), file("third"), `{"type":"complete"}`)
	w.ends(second)
	var got []string
	for _, a := range w.task(second).Artifacts {
		got = append(got, a.ID+": "+textOf(&a))
	}
	require.Equal(t, []string{"text-1: one two three four", "artifact-1-1: first", "artifact-1-2: second", "artifact-1-3: third"}, got)
}

// A later turn reads what the turns before it recorded, in pages.
func TestRecords(t *testing.T) {
	w, r := begun(t, worker.Agent{})
	record := func(nth int, data string) string {
		return fmt.Sprintf(`{"type":"record","kind":"step","name":"a","nth":%d,"data":%q}`, nth, data)
	}
	require.JSONEq(t, `{"records":[]}`, string(r.Do(t, "GET", "/records", "").Body))
	large := strings.Repeat("x", 600<<10)
	r.Post(t, 0, record(1, large), record(2, large), record(3, "c"), `{"type":"ask","message":"what?"}`)
	w.ends(r)
	w.say(r, "that")
	second := w.next()
	var doc struct {
		Records page `json:"records"`
	}
	require.NoError(t, json.Unmarshal(second.Do(t, "GET", "", "").Body, &doc))
	require.Equal(t, []int{1}, doc.Records.nths())
	var rest page
	require.NoError(t, json.Unmarshal(second.Do(t, "GET", fmt.Sprint("/records?after=", doc.Records.Next), "").Body, &rest))
	require.Equal(t, []int{2, 3}, rest.nths())
	require.Zero(t, rest.Next)
	require.Equal(t, 400, second.Do(t, "GET", "/records?after=x", "").Status)
	require.True(t, second.Post(t, 0, `{"type":"record","kind":"step","name":"pay","nth":1,"error":{"type":"KeyError"},"tries":3,"took":1.5}`,
		`{"type":"complete"}`).Ended)
	var steps string
	require.NoError(t, storetest.Connect(t, w.url).QueryRow(t.Context(), `
		SELECT string_agg(format('%s %s %s by attempt %s in %s, tries %s: %s%s', kind, name, nth, attempt, took, tries, length(data::text), error), '; ' ORDER BY seq)
		  FROM holdfast.v_steps WHERE task = $1`, second.Run.ID).Scan(&steps))
	require.Equal(t, "step a 1 by attempt 1 in , tries 1: 614402; step a 2 by attempt 1 in , tries 1: 614402; step a 3 by attempt 1 in , tries 1: 3; "+
		"step pay 1 by attempt 2 in 00:00:01.5, tries 3: KeyError", steps)
}

// page is a page of records.
type page struct {
	Records []struct{ Nth int }
	Next    int64
}

func (p page) nths() (all []int) {
	for _, r := range p.Records {
		all = append(all, r.Nth)
	}
	return all
}

func TestEndsOfARun(t *testing.T) {
	w, r := begun(t, worker.Agent{MaxAttempts: 2, Backoff: time.Millisecond})
	require.JSONEq(t, `{"next":1,"ended":true}`, string(r.Post(t, 0, `{"type":"ask","message":"what?"}`).Body))
	w.ends(r)
	require.Equal(t, task.StateInputRequired, w.task(r).Status.State)
	w.say(r, "that")
	second := w.next()
	require.Equal(t, 410, r.Do(t, "POST", "/heartbeat", "").Status, "the token of the turn before")
	require.Equal(t, 410, r.Post(t, 0, `{"type":"text","text":"x"}`).Status)

	require.JSONEq(t, `{"next":1,"ended":true}`, string(second.Post(t, 0, `{"type":"wait","for":3600}`).Body))
	w.ends(second)
	w.exec("UPDATE holdfast.task_queue SET wakes_at = now(), available_at = now()")
	storetest.Must(w.store.FireTimers(t.Context()))(t)
	third := w.next()
	require.Equal(t, executor.SourceTimer, third.Input.Source)

	a := third.Post(t, 0, `{"type":"checkpoint","data":7}`, `{"type":"retry","reason":"busy"}`)
	require.Equal(t, 200, a.Status, "%s", a.Body)
	require.True(t, a.Ended)
	w.ends(third)
	fourth := w.next()
	require.Equal(t, 2, fourth.Run.Try)
	doc := fourth.Do(t, "GET", "", "")
	require.Contains(t, string(doc.Body), `"checkpoint":7`)
	require.True(t, fourth.Post(t, 0, `{"type":"retry"}`).Ended)
	w.becomes(fourth, task.StateFailed)
}

func TestReads(t *testing.T) {
	w := newWorld(t, worker.Agent{})
	earlier := w.begin("earlier")
	require.True(t, earlier.Post(t, 0, `{"type":"text","text":"an earlier answer"}`, `{"type":"complete"}`).Ended)
	w.ends(earlier)
	stranger := store.NewID()
	w.create(stranger, "ctx", "somebody else", "secret")
	other := w.next()
	require.True(t, other.Post(t, 0, `{"type":"complete"}`).Ended)
	another := store.NewID()
	w.create(another, "another context", "owner", "elsewhere")
	other = w.next()
	require.True(t, other.Post(t, 0, `{"type":"complete"}`).Ended)

	r := w.begin("first")
	long := strings.Repeat("long ", 2000)
	require.Equal(t, 200, r.Post(t, 0, `{"type":"artifact","artifact":{"artifactId":"a/b ?","name":"big","parts":[{"text":"`+long+`"}]}}`, `{"type":"text","text":"hi"}`, `{"type":"ask","message":"what?"}`).Status)
	w.ends(r)
	w.say(r, "second")
	r = w.next()

	doc := r.Do(t, "GET", "", "")
	require.Equal(t, 200, doc.Status)
	require.Equal(t, int(r.Attempt), doc.Attempt)
	require.Contains(t, string(doc.Body), r.Token)
	require.Contains(t, string(doc.Body), `"second"`)
	require.Len(t, doc.Entry, 4)

	h := r.Do(t, "GET", "/history?bytes=8000", "")
	require.Len(t, h.Entry, 4)
	require.Positive(t, h.Entry[1].Omitted)
	require.Empty(t, h.Entry[1].Parts)
	var texts []string
	for place := ""; ; {
		h := r.Do(t, "GET", "/history?scope=context&count=2&before="+place, "")
		require.Equal(t, 200, h.Status, "%s", h.Body)
		for i := len(h.Entry) - 1; i >= 0; i-- {
			texts = append(texts, h.Entry[i].Parts[0].Text)
		}
		if place = h.Place(); place == "" {
			break
		}
	}
	require.Equal(t, []string{"what?", "hi", long, "first", "an earlier answer", "earlier"}, texts)

	list := r.Do(t, "GET", "/artifacts?count=1", "")
	require.Equal(t, "a/b ?", list.Listed[0].ArtifactID)
	require.Equal(t, "big", list.Listed[0].Name)
	list = r.Do(t, "GET", "/artifacts?count=1&after="+list.Place(), "")
	require.Equal(t, "text-1", list.Listed[0].ArtifactID)
	require.Empty(t, r.Do(t, "GET", "/artifacts?after="+list.Place(), "").Listed)
	require.Equal(t, long, r.Do(t, "GET", "/artifacts/"+url.PathEscape("a/b ?"), "").Parts[0].Text)
	require.Equal(t, 404, r.Do(t, "GET", "/artifacts/none", "").Status)

	tasks := r.Do(t, "GET", "/tasks", "")
	require.Equal(t, []runapitest.Task{{ID: earlier.TaskID, State: "completed"}}, tasks.Tasks)
	one := r.Do(t, "GET", "/tasks/"+earlier.TaskID, "")
	require.Equal(t, 200, one.Status)
	require.Equal(t, "an earlier answer", one.Entry[1].Parts[0].Text)
	running := w.begin("beside")
	require.Equal(t, 200, running.Post(t, 0, `{"type":"text","text":"half an answer"}`).Status)
	one = r.Do(t, "GET", "/tasks/"+running.TaskID, "")
	require.Equal(t, 200, one.Status, "%s", one.Body)
	require.Contains(t, string(one.Body), `"state":"working"`)
	require.Empty(t, one.Entry)
	require.True(t, running.Post(t, 1, `{"type":"complete"}`).Ended)
	for _, hidden := range []string{stranger.String(), another.String(), r.TaskID, "none", store.NewID().String()} {
		a := r.Do(t, "GET", "/tasks/"+hidden, "")
		require.Equal(t, 404, a.Status, hidden)
		require.Equal(t, string(r.Do(t, "GET", "/tasks/nobody", "").Body), string(a.Body))
	}
	// The place of a stranger's task opens nothing.
	forged := r.Do(t, "GET", "/history?scope=context", "").Place()
	require.NotEmpty(t, forged)
	for _, path := range []string{
		"/history?count=0", "/history?count=1001", "/history?bytes=x", "/history?scope=owner", "/history?progress=1", "/history?before=x",
		"/history?what=1", "/history?count=1&count=2", "/artifacts?count=101", "/tasks?before=!", "/artifacts/", "/state/owner",
	} {
		a := r.Do(t, "GET", path, "")
		require.Contains(t, []int{400, 404}, a.Status, path)
		require.NotEmpty(t, a.Reason, path)
	}
}

func TestStates(t *testing.T) {
	_, r := begun(t, worker.Agent{MaxState: 200})
	require.Contains(t, string(r.Do(t, "GET", "", "").Body), `"limits":{"event":1048576,"state":200}`)
	for _, scope := range []string{"task", "context"} {
		path := "/state/" + scope
		require.Equal(t, 404, r.Do(t, "GET", path, "").Status)
		require.Equal(t, 204, r.Do(t, "DELETE", path, "").Status)
		a := r.Do(t, "PUT", path, ` {"n": 1.0} `, "If-None-Match", "*")
		require.JSONEq(t, `{"version":1}`, string(a.Body))
		require.Equal(t, `"1"`, a.Header.Get("ETag"))
		a = r.Do(t, "PUT", path, `2`, "If-None-Match", "*")
		require.Equal(t, 412, a.Status)
		require.Equal(t, "If-None-Match", a.Field)
		a = r.Do(t, "GET", path, "")
		require.Equal(t, `{"n":1.0}`, string(a.Data), "as it was written")
		require.Equal(t, `"1"`, a.Header.Get("ETag"))
		require.Equal(t, 412, r.Do(t, "DELETE", path, "", "If-Match", `"7"`).Status)
		require.Equal(t, 412, r.Do(t, "PUT", path, `2`, "If-Match", `"7"`).Status)
		require.Equal(t, 2, r.Do(t, "PUT", path, `2`, "If-Match", `"1"`).Version)
		require.Equal(t, 204, r.Do(t, "DELETE", path, "", "If-Match", `"2"`).Status)
		require.Equal(t, 404, r.Do(t, "GET", path, "").Status)
		require.Equal(t, 200, r.Do(t, "PUT", path, "0").Status, "for any version")
	}
	for _, bad := range []struct {
		status  int
		value   string
		headers []string
	}{
		{413, `"` + strings.Repeat("x", 200) + `"`, nil},
		{413, strings.Repeat(" ", 500) + "1", nil},
		{400, `{`, nil},
		{400, ``, nil},
		{400, `1 2`, nil},
		{400, strings.Repeat("[", 101) + strings.Repeat("]", 101), nil},
		{400, `1`, []string{"If-Match", "3"}},
		{400, `1`, []string{"If-Match", "*"}},
		{400, `1`, []string{"If-None-Match", `"3"`}},
		{400, `1`, []string{"If-None-Match", `*`, "If-Match", `"1"`}},
		{415, `1`, []string{"Content-Type", "text/plain"}},
	} {
		a := r.Do(t, "PUT", "/state/task", bad.value, bad.headers...)
		require.Equal(t, bad.status, a.Status, "%.40s %v: %s", bad.value, bad.headers, a.Body)
	}

	// State events: a repetition writes nothing, although the value has changed since.
	upload := []string{`{"type":"state","data":1}`, `{"type":"state","data":2,"version":99}`}
	a := r.Post(t, 0, upload...)
	require.Equal(t, 409, a.Status)
	require.Equal(t, "state_changed", a.Reason)
	require.Equal(t, 2, a.Line)
	require.Equal(t, "1", string(a.Next))
	version := r.Do(t, "GET", "/state/task", "").Version
	require.JSONEq(t, `{"next":2,"ended":false}`, string(r.Post(t, 0, upload[0], fmt.Sprintf(`{"type":"state","data":2,"version":%d}`, version)).Body))
	require.JSONEq(t, `{"next":2,"ended":false}`, string(r.Post(t, 0, upload...).Body))
	require.Equal(t, "2", string(r.Do(t, "GET", "/state/task", "").Data))
}

// The API refuses an invalid event of an upload with its place. The events before it stay, and the run goes on.
func TestHostileUploads(t *testing.T) {
	w, r := begun(t, worker.Agent{MaxState: 100})
	for _, bad := range []struct {
		status       int
		field, event string
	}{
		{400, "type", `{}`},
		{400, "", `[]`},
		{400, "", `{"type":"text"`},
		{400, "type", `{"type":"explode"}`},
		{400, "extra", `{"type":"text","text":"x","extra":1}`},
		{400, "artifact.parts[0]", `{"type":"artifact","artifact":{"parts":[{}]}}`},
		{400, "", strings.Repeat("[", 200)},
		{400, "until", `{"type":"wait","until":"9999-01-01T00:00:00Z"}`},
		{413, "", `{"type":"text","text":"` + strings.Repeat("x", 1<<20) + `"}`},
		{422, "", `{"type":"state","data":"` + strings.Repeat("x", 200) + `"}`},
		{422, "", `{"type":"reply","message":"x"}`},
		{409, "version", `{"type":"state","data":1,"version":9}`},
	} {
		next := r.Do(t, "POST", "/heartbeat", "").Ordinal()
		a := r.Post(t, next, `{"type":"status","message":"before"}`, "", bad.event, `{"type":"complete"}`)
		require.Equal(t, bad.status, a.Status, "%.60s: %s", bad.event, a.Body)
		require.Equal(t, bad.field, a.Field, "%.60s", bad.event)
		require.Equal(t, 3, a.Line, "%.60s", bad.event)
		require.Equal(t, fmt.Sprint(next+1), string(a.Next), "%.60s", bad.event)

		whole := r.Do(t, "POST", fmt.Sprintf("/events?from=%d", next+1), `{"events":[{"type":"status","message":"before"},`+bad.event+`]}`)
		if bad.status == 400 || bad.status == 413 {
			require.Equal(t, bad.status, whole.Status, "%.60s: %s", bad.event, whole.Body)
			require.Equal(t, fmt.Sprint(next+1), string(whole.Next), "nothing of it is stored")
		}
	}
	next := r.Do(t, "POST", "/heartbeat", "").Ordinal()
	for query, field := range map[string]string{"": "from", "?from=": "from", "?from=-1": "from", "?from=x": "from", "?from=0&from=1": "from", "?from=0&to=1": "to"} {
		a := r.Do(t, "POST", "/events"+query, `{"type":"complete"}`)
		require.Equal(t, 400, a.Status, query)
		require.Equal(t, field, a.Field, query)
	}
	require.Equal(t, 415, r.Do(t, "POST", "/events?from=0", `{"type":"complete"}`, "Content-Type", "text/plain").Status)
	require.Equal(t, 404, r.Do(t, "GET", "/nothing", "").Status)
	require.Equal(t, 405, r.Do(t, "DELETE", "/history", "").Status)
	require.True(t, r.Post(t, next, `{"type":"complete"}`, `not read any more`).Ended)
	w.ends(r)
}

func TestDocumentedOperationsExist(t *testing.T) {
	w := newWorld(t, worker.Agent{})
	all := storetest.Must(runapitest.Operations())(t)
	require.Len(t, all, 12)
	stranger := runapitest.Client{URL: w.api}
	for _, o := range all {
		require.Equal(t, 401, stranger.Do(t, o.Method, o.Path, "").Status, "%s %s", o.Method, o.Path)
	}
}

// A failover that loses a claim lets the next claim draw the same attempt. The token of the lost one is of no use for it.
func TestATokenEndsWithItsClaim(t *testing.T) {
	w := newWorld(t, worker.Agent{})
	old := w.begin("go")
	conn := storetest.Connect(t, w.url)
	tx := storetest.Must(conn.Begin(t.Context()))(t)
	for _, sql := range []string{
		"SELECT FROM holdfast.tasks WHERE id = $1 FOR UPDATE", // the worker may be writing that it has begun
		"DELETE FROM holdfast.task_events WHERE task = $1 AND seq > 1",
		"UPDATE holdfast.task_queue SET worker_id = NULL, tries = 0 WHERE id = $1",
		`UPDATE holdfast.tasks SET state = 1, last_seq = 1, status_seq = 1, attempt = 0, runs = 0, run_ordinal = 0, worker_id = NULL, claimed_at = NULL
			WHERE id = $1`,
	} {
		storetest.Must(tx.Exec(t.Context(), sql, old.ID.String()))(t)
	}
	require.NoError(t, tx.Commit(t.Context()))
	next := w.next()
	require.Equal(t, old.Attempt, next.Attempt)
	for range 2 { // before and after the next run has posted as many events
		a := old.Post(t, 0, `{"type":"text","text":"old"}`)
		require.Equal(t, 410, a.Status, "%s", a.Body)
		require.Equal(t, "over", a.Reason)
		require.Contains(t, a.Detail, "another attempt")
		a = next.Post(t, 0, `{"type":"text","text":"next"}`)
		require.Equal(t, 200, a.Status, "%s", a.Body)
	}
	require.Equal(t, 200, next.Post(t, 1, `{"type":"complete"}`).Status)
	w.ends(next)
	got := w.task(next)
	require.Len(t, got.Artifacts, 1)
	require.Equal(t, "next", textOf(&got.Artifacts[0]))
}

func TestTokens(t *testing.T) {
	w, r := begun(t, worker.Agent{})
	other := w.begin("another task")
	strange := task.NewTokens([][]byte{[]byte(rand.Text())})
	forged := []byte(r.Token)
	forged[len(forged)-3] ^= 1
	for name, token := range map[string]string{
		"none": "", "garbage": "x", "prefix": "hfrun_", "of other keys": runapi.TokenPrefix + strange.Make(r.ID, time.Now().UnixMicro()), "no prefix": strings.TrimPrefix(r.Token, runapi.TokenPrefix), "changed": string(forged),
		"long": r.Token + "AAAA", "padded": r.Token + "=", "cut": r.Token[:20], "of a task's id": r.ID.String(),
	} {
		c := runapitest.Client{URL: r.URL, Token: token}
		a := c.Do(t, "GET", "", "")
		require.Equal(t, 401, a.Status, name)
		require.Equal(t, "Bearer", a.Header.Get("WWW-Authenticate"))
		require.Equal(t, 401, c.Post(t, 0, `{"type":"complete"}`).Status, name)
		if len(token) > 30 {
			require.NotContains(t, string(a.Body), token[10:30])
		}
	}
	require.Equal(t, 401, r.Do(t, "GET", "", "", "Authorization", "Basic "+r.Token).Status)
	require.Contains(t, string(other.Do(t, "GET", "", "").Body), other.TaskID)
	require.NotContains(t, string(other.Do(t, "GET", "", "").Body), r.TaskID)

	waittest.Eventually(t, "the task is deleted", func() error { // a locked one is left
		gone := storetest.Must(w.store.Erase(t.Context(), []task.ID{r.ID}, false, ""))(t)
		return waittest.Unless(len(gone) == 1, "it is locked")
	})
	require.Equal(t, 410, r.Do(t, "GET", "", "").Status)
}

// upload begins an upload that stays open, with one event, and waits until that is stored. The answer is nil if the
// connection broke.
func (w *world) upload(r ran) (write func(event string) error, answered <-chan *runapitest.Answer) {
	w.t.Helper()
	in, out := io.Pipe()
	result := make(chan *runapitest.Answer, 1)
	go func() {
		a, err := r.Client.Try(context.Background(), "POST", "/events?from=0", in, "Content-Type", "application/x-ndjson")
		_ = in.Close()
		if err != nil {
			w.t.Log(err)
			a = nil
		}
		result <- a
	}()
	write = func(event string) error {
		_, err := io.WriteString(out, event+"\n")
		return err
	}
	require.NoError(w.t, write(`{"type":"text","text":"begun"}`))
	waittest.Eventually(w.t, "the text is stored", func() error {
		return waittest.Unless(len(w.task(r).Artifacts) == 1, "not yet")
	})
	return write, result
}

// The answer comes although the agent has not ended its upload.
func TestUploadsEndWithTheRun(t *testing.T) {
	w, r := begun(t, worker.Agent{})
	write, answered := w.upload(r)
	require.NoError(t, write(`{"type":"complete"}`))
	a := waittest.Within(t, "the upload is answered", answered)
	require.NotNil(t, a)
	require.JSONEq(t, `{"next":2,"ended":true}`, string(a.Body))
	w.ends(r)

	// Neither does a refusal wait for the end of a body.
	open, _ := io.Pipe()
	a, err := r.Client.Try(t.Context(), "POST", "/events?from=2", open, "Content-Type", "application/x-ndjson")
	_ = open.Close()
	require.NoError(t, err)
	require.Equal(t, 410, a.Status)
}

func TestUploadsEndWithTheServer(t *testing.T) {
	w, r := begun(t, worker.Agent{})
	_, answered := w.upload(r)
	w.stop()
	a := <-answered
	require.NotNil(t, a)
	require.Equal(t, 503, a.Status, "%s", a.Body)
	require.Equal(t, "1", string(a.Next))
	require.Equal(t, "1", a.Header.Get("Retry-After"))
}

// The body has arrived, and the server stops while it stores an event. The agent must not take that for a refusal of the event.
func TestTheServerStopsWhileItStoresAnEvent(t *testing.T) {
	w, r := begun(t, worker.Agent{})
	require.JSONEq(t, `{"next":1,"ended":false}`, string(r.Post(t, 0, `{"type":"state","data":{"n":1}}`).Body))
	conn := storetest.Connect(t, w.url)
	storetest.Must(conn.Exec(t.Context(), "BEGIN; SELECT FROM holdfast.task_states FOR UPDATE", pgx.QueryExecModeSimpleProtocol))(t)
	answered := make(chan *runapitest.Answer, 1)
	go func() {
		answered <- r.Post(t, 1, `{"type":"state","data":{"n":2}}`, `{"type":"complete"}`)
	}()
	waittest.Eventually(t, "the state waits for its row", func() error {
		var n int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'").Scan(&n)
		return errors.Join(err, waittest.Unless(n > 0, "it does not"))
	})
	w.stop()
	a := waittest.Within(t, "the upload is answered", answered)
	require.Equal(t, 503, a.Status, "%s", a.Body)
	require.Equal(t, "1", string(a.Next), "%s", a.Body)
	storetest.Must(conn.Exec(t.Context(), "ROLLBACK"))(t)
}

func TestCancelWhileAnAgentPosts(t *testing.T) {
	w, r := begun(t, worker.Agent{})
	write, answered := w.upload(r)
	h := storetest.Must(w.store.Header(t.Context(), r.ID))(t)
	storetest.Must(w.store.Cancel(t.Context(), h, nil))(t)
	w.becomes(r, task.StateCanceled)
	for write(`{"type":"text","text":"after the end"}`) == nil { // until the server answers
	}
	if a := <-answered; a != nil { // else the server has closed the connection, whose request was not read to its end
		require.Equal(t, 410, a.Status, "%s", a.Body)
	}
	require.Equal(t, 410, r.Do(t, "POST", "/heartbeat", "").Status)
	got := w.task(r)
	require.Equal(t, "begun", textOf(&got.Artifacts[0]))
}

// An agent that reads while the database is unavailable is told to come again.
func TestReadsDoNotWaitForTheDatabase(t *testing.T) {
	w, r := begun(t, worker.Agent{})
	require.JSONEq(t, `{"next":1,"ended":true}`, string(r.Post(t, 0, `{"type":"call","calls":[{"agent":"gone","message":"hi"}]}`).Body))
	calls := storetest.Must(w.store.NewCalls(t.Context(), 0, store.NewCall{}, 1))(t)
	require.Len(t, calls, 1)
	require.NoError(t, w.store.RefuseCall(t.Context(), calls[0], "there is no such agent"))
	r = w.next()
	require.Contains(t, string(r.Do(t, "GET", "", "").Body), `"there is no such agent"`)

	conn := storetest.Connect(t, w.url)
	_, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE holdfast.task_calls, holdfast.task_states IN ACCESS EXCLUSIVE MODE", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	var all errgroup.Group
	for _, path := range []string{"", "/state/task"} { // the results of the calls, and a state
		all.Go(func() error {
			a, err := r.Client.Try(t.Context(), "GET", path, nil)
			if err != nil {
				return err
			}
			// A request that runs out of its own time has another detail.
			return waittest.Unless(a.Status == 503 && a.Reason == "unavailable" && a.Detail == "another session has locked what the request needs" && a.Header.Get("Retry-After") != "",
				"%s: %d %s", path, a.Status, a.Body)
		})
	}
	require.NoError(t, all.Wait())
	storetest.Must(conn.Exec(t.Context(), "ROLLBACK"))(t)
	require.Equal(t, 200, r.Do(t, "GET", "", "").Status)
}

// A heartbeat is a sign of life, and tells of a cancel.
func TestHeartbeats(t *testing.T) {
	w, r := begun(t, worker.Agent{InactivityTimeout: time.Hour})
	found := storetest.Must(w.store.FindRun(t.Context(), r.ID, false))(t)
	silent := func() (d time.Duration, never bool) {
		d, never, err := w.store.Silence(t.Context(), r.ID, found.Fence)
		require.NoError(t, err)
		return d, never
	}
	_, never := silent()
	require.True(t, never)
	require.JSONEq(t, `{"next":0}`, string(r.Do(t, "POST", "/heartbeat", "").Body))
	_, never = silent()
	require.False(t, never)
	w.exec("UPDATE holdfast.tasks SET heard_at = heard_at - interval '2 hours', cancel_requested = true") // the worker does not know yet
	before, _ := silent()
	require.JSONEq(t, `{"next":0,"stop":"canceled"}`, string(r.Do(t, "POST", "/heartbeat", "").Body))
	now, _ := silent()
	require.Greater(t, before-now, time.Hour)
}

func TestArtifactsBeyondTheirLimit(t *testing.T) {
	w, r := begun(t, worker.Agent{MaxArtifacts: 1000})
	half := `{"type":"text","text":"` + strings.Repeat("x", 600) + `"}`
	require.Equal(t, 200, r.Post(t, 0, half).Status)
	a := r.Post(t, 1, half)
	require.Equal(t, 413, a.Status, "%s", a.Body)
	w.ends(r)
	require.Equal(t, task.StateFailed, w.task(r).Status.State)
	require.JSONEq(t, `{"next":2,"ended":true}`, string(r.Post(t, 1, half).Body), "the second one has ended the run")
	require.Equal(t, 410, r.Post(t, 2, half).Status)
}

// The worker ends a run while the agent posts: the first commit wins, and nothing comes after the end.
func TestBothEndARun(t *testing.T) {
	w := newWorld(t, worker.Agent{})
	for range 10 {
		r := w.begin("go")
		var all errgroup.Group
		var a *runapitest.Answer
		all.Go(func() error {
			_, err := w.store.Cancel(t.Context(), storetest.Must(w.store.Header(t.Context(), r.ID))(t), nil)
			if errors.Is(err, task.NotCancelable) { // the agent was first
				return nil
			}
			return err
		})
		all.Go(func() (err error) {
			a, err = r.Client.Try(t.Context(), "POST", "/events?from=0", strings.NewReader(`{"events":[{"type":"text","text":"x"},{"type":"complete"}]}`))
			return err
		})
		require.NoError(t, all.Wait())
		waittest.Eventually(t, "the run is over", func() error {
			return waittest.Unless(w.task(r).Status.State.Settled(), "not yet")
		})
		if w.task(r).Status.State == task.StateCompleted {
			require.True(t, a.Ended, "%s", a.Body)
		} else {
			require.Equal(t, 410, a.Status, "%s", a.Body)
		}
	}
}
