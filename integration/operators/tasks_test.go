package operators

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// follower is a verb that prints events while it runs.
type follower struct {
	t      testing.TB
	cmd    *exec.Cmd
	lines  chan *followed // closed at the end of the output
	errs   *bytes.Buffer
	seen   []*followed
	notice chan string // lines of stderr
}

type followed struct {
	TaskID string `json:"task_id"`
	Seq    int64
	Kind   string
	State  string
	Run    *struct{ Outcome string }
}

func follow(t testing.TB, env []string, args ...string) *follower {
	t.Helper()
	cmd, _, _ := clustertest.Verb(t, t.TempDir(), env, append(args, "-o", "json")...)
	f := &follower{t: t, cmd: cmd, lines: make(chan *followed, 10_000), errs: new(bytes.Buffer), notice: make(chan string, 1000)}
	cmd.Stdout, cmd.Stderr = nil, nil
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	go func() {
		defer close(f.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			e := &followed{}
			if err := json.Unmarshal(in.Bytes(), e); err != nil {
				t.Errorf("not an event: %s", in.Text())
			}
			f.lines <- e
		}
	}()
	go func() {
		defer close(f.notice)
		for in := bufio.NewScanner(said); in.Scan(); {
			f.notice <- in.Text()
		}
	}()
	return f
}

// take waits for n events.
func (f *follower) Take(n int) {
	f.t.Helper()
	for range n {
		e := waittest.Within(f.t, "an event is printed", f.lines)
		require.NotNil(f.t, e, "the output has ended")
		f.seen = append(f.seen, e)
	}
}

// said waits for a line on stderr.
func (f *follower) said(what string) {
	f.t.Helper()
	for line := f.nextNotice(); line != ""; line = f.nextNotice() {
		if strings.Contains(line, what) {
			return
		}
	}
	require.FailNow(f.t, "it did not print "+what, f.errs.String())
}

// nextNotice returns "" at the end of stderr.
func (f *follower) nextNotice() string {
	f.t.Helper()
	line := waittest.Within(f.t, "a notice", f.notice)
	f.errs.WriteString(line + "\n")
	return line
}

// end waits until the verb exits, and returns its exit code.
func (f *follower) end() int {
	f.t.Helper()
	for e := waittest.Within(f.t, "the end of the output", f.lines); e != nil; e = waittest.Within(f.t, "the end of the output", f.lines) {
		f.seen = append(f.seen, e)
	}
	for f.nextNotice() != "" {
	}
	err := f.cmd.Wait()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		require.NoError(f.t, err)
	}
	return f.cmd.ProcessState.ExitCode()
}

func (f *follower) seqs() []int64 {
	out := make([]int64, len(f.seen))
	for i, e := range f.seen {
		out[i] = e.Seq
	}
	return out
}

// length returns all seqs of a task's log.
func length(db *clustertest.DB, taskID string) []int64 {
	db.T.Helper()
	return clustertest.Seq(clustertest.One[int](db, "SELECT last_seq FROM holdfast.tasks WHERE id = $1", taskID))
}

func TestTailSurvivesDatabaseOutage(t *testing.T) {
	t.Parallel()
	pg := storetest.Server(t, map[string]string{"fsync": "off"})
	a := clustertest.Cluster(t, pg.URL, "a")[0]
	env := []string{"HOLDFAST_DATABASE_URL=" + pg.URL}
	all := follow(t, env, "tasks", "tail", "--interval", "50ms")
	all.said("Following the events of all tasks")
	s := a.Stream(a2atest.V03, a2atest.Say("chunks=150 size=16 delay=200ms"))
	taskID := s.Take(1)[0].Task()
	tail := follow(t, env, "tasks", "tail", taskID)
	tail.Take(5)
	all.Take(5)

	// End every session of the database, including the tail's.
	db := clustertest.OpenDB(t, pg.URL)
	terminate := func() {
		db.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	}
	terminate()
	tail.said("The database does not answer")
	tail.said("The database answers again")
	tail.Take(10)
	terminate()
	tail.Take(10)
	for _, take := range []func(){pg.Stop, pg.Crash} {
		take()
		tail.said("The database does not answer")
		pg.Start()
		tail.said("The database answers again")
		tail.Take(1)
	}
	require.Zero(t, tail.end(), tail.errs)
	want := length(clustertest.OpenDB(t, pg.URL), taskID)
	require.Equal(t, want, tail.seqs(), "each event comes once")
	require.Equal(t, "completed", tail.seen[len(tail.seen)-1].State)

	for len(all.seen) < len(want) {
		all.Take(1)
	}
	require.NoError(t, all.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, 130, all.end())
	require.Equal(t, want, all.seqs())

	// A database that stays down is a failure.
	s = a.Stream(a2atest.V03, a2atest.Say("hold"))
	tail = follow(t, env, "tasks", "tail", s.UntilState("working").Task(), "--retry-for", "500ms")
	tail.Take(2)
	pg.Stop()
	require.Equal(t, 1, tail.end())
	require.Contains(t, tail.errs.String(), "has not answered for 500ms")
	pg.Start()
}

func TestTailSurvivesReplica(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	replicas := clustertest.Cluster(t, db.URL, "a", "b")
	env := db.Env()
	taskID := replicas[0].Stream(a2atest.V03, a2atest.Say("chunks=60 size=16 delay=200ms")).Take(1)[0].Task()
	tail := follow(t, env, "tasks", "tail", taskID)
	tail.Take(5)
	runs, others := clustertest.Running(db, taskID, replicas)
	runs.Kill()
	require.Zero(t, tail.end(), tail.errs)
	require.Equal(t, length(db, taskID), tail.seqs())
	lost := 0
	for _, e := range tail.seen {
		if e.Kind == "run" && e.Run.Outcome == "lost" {
			lost++
		}
	}
	require.Equal(t, 1, lost, "operators see the lost attempt")

	// The other ways to end.
	b := others[0]
	for text, code := range map[string]int{"fail:x": 3, "reject:x": 3, "ask:x": 4, "auth": 4, "echo:x": 0} {
		id := b.Send(a2atest.V03, a2atest.Say(text)).Task()
		res := clustertest.Command(t, t.TempDir(), env, "tasks", "tail", id)
		require.Equal(t, code, res.Code, "%s: %s", text, res.Err)
	}
	asked := b.Send(a2atest.V03, a2atest.Say("ask:where?")).Task()
	tail = follow(t, env, "tasks", "tail", asked, "--follow-parked")
	tail.Take(len(length(db, asked)))
	require.Equal(t, "input-required", tail.seen[len(tail.seen)-1].State)
	b.Send(a2atest.V03, a2atest.Say("here").To(asked))
	require.Zero(t, tail.end(), tail.errs)
	require.Equal(t, length(db, asked), tail.seqs())
}

// The events of all tasks come from the database, or from the live list of a server.
func TestTailOfAllTasksFilters(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"database", "server"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			db := clustertest.NewDB(t)
			a := clustertest.Cluster(t, db.URL, "a")[0]
			env := db.Env()
			if from == "server" {
				env = through(a.Admin)
			}
			tailsAll(t, db, a, env)
		})
	}
}

// through is the environment of a verb that reaches a server, and no database.
func through(admin string) []string {
	return []string{"HOLDFAST_SERVER=" + admin, "HOLDFAST_DATABASE_URL=postgres://nobody@127.0.0.1:1/none"}
}

func tailsAll(t *testing.T, db *clustertest.DB, a *clustertest.Replica, env []string) {
	t.Helper()
	before := a.Send(a2atest.V03, a2atest.Say("ask:before"))
	failures := follow(t, env, "tasks", "tail", "--state", "failed", "--agent", "demo", "--interval", "20ms")
	nobody := follow(t, env, "tasks", "tail", "--owner", "nobody", "--interval", "20ms")
	all := follow(t, env, "tasks", "tail", "--interval", "20ms")
	for _, f := range []*follower{failures, nobody, all} {
		f.said("Following the events of all tasks")
	}
	a.Send(a2atest.V03, a2atest.Say("echo:x"))
	failed := a.Send(a2atest.V03, a2atest.Say("fail:x")).Task()
	require.Equal(t, "completed", a.Send(a2atest.V03, a2atest.Say("now").To(before.Task())).State())
	failures.Take(1)
	require.Equal(t, failed, failures.seen[0].TaskID)
	require.Equal(t, "failed", failures.seen[0].State)
	total := clustertest.One[int](db, "SELECT count(*) FROM holdfast.task_events") -
		clustertest.One[int](db, "SELECT max(seq) FROM holdfast.task_events WHERE task = $1 AND state = 3", before.Task())
	all.Take(total)
	counts := map[string][]int64{}
	for _, e := range all.seen {
		counts[e.TaskID] = append(counts[e.TaskID], e.Seq)
	}
	require.Len(t, counts, 3)
	for id, seqs := range counts {
		have := length(db, id)
		require.Equal(t, have[len(have)-len(seqs):], seqs, id)
	}
	for _, f := range []*follower{failures, nobody, all} {
		require.NoError(t, f.cmd.Process.Signal(syscall.SIGTERM))
		require.Equal(t, 130, f.end())
	}
	require.Len(t, failures.seen, 1)
	require.Empty(t, nobody.seen)
	require.Len(t, all.seen, total)
}

// A replica that the verb follows is killed. The verb connects to another one, and prints each event once.
func TestTailOfAllTasksSurvivesItsServer(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	replicas := clustertest.Cluster(t, db.URL, "a", "b")
	a, b := replicas[0], replicas[1]
	front := clustertest.NewProxy(t, a2atest.Host(a.Admin))
	tail := follow(t, through("http://"+front.Addr), "tasks", "tail", "--interval", "20ms")
	tail.said("Following the events of all tasks")
	first := b.Send(a2atest.V03, a2atest.Say("chunks=3 size=12")).Task()
	asked := b.Send(a2atest.V03, a2atest.Say("ask:where?")).Task()
	before := len(length(db, first)) + len(length(db, asked))
	tail.Take(before)

	// It ends no task while no server answers.
	front.Lead("127.0.0.1:1")
	a.Kill()
	second := b.Send(a2atest.V03, a2atest.Say("chunks=3 size=12")).Task()
	require.Equal(t, "completed", b.Send(a2atest.V03, a2atest.Say("here").To(asked)).State())
	tail.said("The server does not answer")
	front.Lead(a2atest.Host(b.Admin))
	total := len(length(db, first)) + len(length(db, asked)) + len(length(db, second))
	tail.Take(total - before)
	third := b.Send(a2atest.V03, a2atest.Say("echo:x")).Task()
	tail.Take(len(length(db, third)))
	require.NoError(t, tail.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 130, tail.end())
	got := map[string][]int64{}
	for _, e := range tail.seen {
		got[e.TaskID] = append(got[e.TaskID], e.Seq)
	}
	for _, id := range []string{first, asked, second, third} {
		require.Equal(t, length(db, id), got[id], id)
	}
	require.Len(t, got, 4)
}

func TestOperatorCancels(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	replicas := clustertest.Cluster(t, db.URL, "a", "b")
	env := db.Env()
	holdfast := func(args ...string) clustertest.Finished { return clustertest.Command(t, t.TempDir(), env, args...) }
	var held []string
	for _, r := range replicas {
		held = append(held, r.Stream(a2atest.V03, a2atest.Say("hold")).UntilState("working").Task())
	}
	held = append(held, replicas[0].Send(a2atest.V03, a2atest.Say("ask:x")).Task())
	res := holdfast(append([]string{"tasks", "cancel", "-o", "json"}, held...)...)
	require.Zero(t, res.Code, res.Err)
	require.Equal(t, 3, strings.Count(res.Out, `"outcome": "canceled"`), res.Out)
	for _, id := range held {
		require.Equal(t, "canceled", replicas[1].Get(id).State())
	}
	require.Zero(t, holdfast("tasks", "cancel", held[0]).Code, "the task is canceled already, as requested")

	done := replicas[0].Send(a2atest.V03, a2atest.Say("echo:x")).Task()
	res = holdfast("tasks", "cancel", done)
	require.Equal(t, 3, res.Code, res.Err)
	require.Contains(t, res.Out, "ended")
	res = holdfast("tasks", "cancel", done, "nobody")
	require.Equal(t, 1, res.Code)
	require.Contains(t, res.Err, "task nobody: task not found")

	s := replicas[0].Stream(a2atest.V03, a2atest.Say("hold"))
	id := s.UntilState("working").Task()
	res = holdfast("tasks", "cancel", "--no-wait", id)
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "requested")
	require.Equal(t, "canceled", a2atest.Last(s.Rest()).State(), "the worker of a task without waiting clients is told, too")
}

func TestOperatorRetries(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	ready := filepath.Join(t.TempDir(), "ready")
	config := clustertest.Settings + fmt.Sprintf(`
  - name: moody
    executor: {kind: command, command: {argv: [sh, -c, "test -e '%s' || exit 75"]}}
    limits: {backoff: 1h}
`, ready)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config})
	env := db.Env()
	holdfast := func(args ...string) clustertest.Finished { return clustertest.Command(t, t.TempDir(), env, args...) }
	type retried struct {
		Outcome   string
		NewTaskID string `json:"new_task_id"`
		State     string
	}
	retry := func(code int, args ...string) retried {
		t.Helper()
		res := holdfast(append([]string{"tasks", "retry", "-o", "json"}, args...)...)
		require.Equal(t, code, res.Code, res.Err)
		var out []retried
		require.NoError(t, json.Unmarshal([]byte(res.Out), &out))
		require.Len(t, out, 1)
		return out[0]
	}

	// A failed task is sent again, and fails again.
	old := a.Send(a2atest.V03, a2atest.Say("fail:no luck"))
	got := retry(3, old.Task(), "--wait")
	require.Equal(t, retried{"sent", got.NewTaskID, "failed"}, got)
	require.NotEqual(t, old.Task(), got.NewTaskID)
	fresh := a.Call("tasks/get", a2atest.Object{"id": got.NewTaskID, "historyLength": 10})
	require.Equal(t, old.ContextID, fresh.ContextID)
	require.Equal(t, "fail:no luck", a2atest.Text(fresh.History[0].Parts))
	require.Equal(t, "failed", a.Get(old.Task()).State())

	// A canceled task starts over, and asks again.
	asked := a.Send(a2atest.V03, a2atest.Say("ask:where?")).Task()
	require.Equal(t, "failed", retry(1, asked).Outcome, "the task is parked")
	require.Zero(t, holdfast("tasks", "cancel", asked).Code)
	got = retry(4, asked, "--wait")
	require.Equal(t, "completed", a.Send(a2atest.V03, a2atest.Say("here").To(got.NewTaskID)).State())
	require.Equal(t, "failed", retry(1, got.NewTaskID).Outcome, "there is nothing to retry")

	// A task that waits for its next attempt gets it at once.
	moody := a.Stream(a2atest.V03, a2atest.Say("hello").At("moody"))
	taskID := moody.Take(1)[0].Task()
	waittest.Eventually(t, "the attempt has failed", func() error {
		return waittest.Unless(clustertest.One[bool](db, `SELECT worker_id IS NULL AND available_at > now() + interval '1 min'
			FROM holdfast.task_queue WHERE id = $1`, taskID), "not yet")
	})
	require.NoError(t, os.WriteFile(ready, nil, 0o600))
	require.Equal(t, retried{Outcome: "hurried", State: "completed"}, retry(0, taskID, "--wait"))
	require.Equal(t, "completed", a2atest.Last(moody.Rest()).State(), "it is the same task")
}
