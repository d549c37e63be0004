package operators

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
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

// Take waits for n events, and returns the last one.
func (f *follower) Take(n int) (e *followed) {
	f.t.Helper()
	for range n {
		e = waittest.Within(f.t, "an event is printed", f.lines)
		require.NotNil(f.t, e, "the output has ended")
		f.seen = append(f.seen, e)
	}
	return e
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

// perTask are the seqs by task.
func (f *follower) perTask() map[string][]int64 {
	out := map[string][]int64{}
	for _, e := range f.seen {
		out[e.TaskID] = append(out[e.TaskID], e.Seq)
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
	asked := a.Send(a2atest.V03, a2atest.Say("ask:0")).Task()
	before := len(length(clustertest.OpenDB(t, pg.URL), asked))
	tail, all := follow(t, env, "tasks", "tail", asked, "--follow-parked"), follow(t, env, "tasks", "tail")
	all.said("Following the events of all tasks")
	// turn makes events while the database answers, and waits until the verb has printed them.
	turn := func(text, state string) {
		a.WaitReady()
		db := clustertest.OpenDB(t, pg.URL)
		before := len(length(db, asked))
		waittest.Eventually(t, "a turn of the task", func() error {
			_, err := a.TrySend(a2atest.V03, a2atest.Say(text).To(asked))
			return waittest.Unless(err == nil || len(length(db, asked)) > before, "%v", err)
		})
		db.AwaitState(asked, state)
		tail.Take(len(length(db, asked)) - len(tail.seen))
	}
	turn("ask:1", "input-required")
	endSessions := func() {
		clustertest.OpenDB(t, pg.URL).
			Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	}
	for i, outage := range []func(){endSessions, pg.Stop, pg.Crash} {
		outage()
		tail.said("The database does not answer")
		if i > 0 {
			all.said("The database does not answer")
			pg.Start()
			all.said("The database answers again")
		}
		tail.said("The database answers again")
		turn("ask:2", "input-required")
	}

	// A database that stays down is a failure.
	short := follow(t, env, "tasks", "tail", asked, "--follow-parked", "--retry-for", "500ms")
	short.Take(2)
	pg.Stop()
	require.Equal(t, 1, short.end())
	require.Contains(t, short.errs.String(), "has not answered for 500ms")
	pg.Start()

	turn("enough", "completed")
	require.Zero(t, tail.end(), tail.errs)
	require.Equal(t, length(clustertest.OpenDB(t, pg.URL), asked), tail.seqs(), "each event comes once")
	require.Equal(t, "completed", tail.seen[len(tail.seen)-1].State)
	all.Take(len(tail.seen) - before)
	require.NoError(t, all.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 130, all.end())
	require.Equal(t, tail.seqs()[before:], all.seqs())
}

// A replica that the verb follows is killed. The verb connects to another one, and prints each event once. One with a filter prints
// those of its tasks.
func TestTailOfAllTasksSurvivesItsServer(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	replicas := clustertest.Cluster(t, db.URL, "a", "b")
	a, b := replicas[0], replicas[1]
	front := clustertest.NewProxy(t, a2atest.Host(a.Admin))
	env := through("http://" + front.Addr)
	tail := follow(t, env, "tasks", "tail")
	failures := follow(t, env, "tasks", "tail", "--state", "failed", "--agent", "demo")
	for _, f := range []*follower{tail, failures} {
		f.said("Following the events of all tasks")
	}
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
	failures.said("The server answers again")
	third := b.Send(a2atest.V03, a2atest.Say("fail:x")).Task()
	tail.Take(len(length(db, third)))
	require.Equal(t, third, failures.Take(1).TaskID)
	for _, f := range []*follower{tail, failures} {
		require.NoError(t, f.cmd.Process.Signal(syscall.SIGTERM))
		require.Equal(t, 130, f.end())
	}
	require.Len(t, failures.seen, 1)
	require.Len(t, tail.perTask(), 4)
	for _, id := range []string{first, asked, second, third} {
		require.Equal(t, length(db, id), tail.perTask()[id], id)
	}
}
