package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// asking is a status that parks the task with its resume URL valid.
func asking(d time.Duration) *task.Event {
	e := status(task.StateAuthRequired)
	e.Resumable = d
	return e
}

func resumeOf(id task.ID, turn int, text string) *task.ResumeRequest {
	return &task.ResumeRequest{
		ID: NewID(), Task: id, Turn: turn, Agent: "a", Address: "192.0.2.1:80",
		Content: &task.Resumed{Method: "POST", Query: "code=1", ContentType: "text/plain", Body: []byte(text)},
	}
}

// TestTurnsAgainstModel does not show what the agent gets, webhooks, and that what came by the URL is in no table.
func TestResumeBeginsATurn(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	id := p.c.Task.ID
	f.setPush(id, &task.PushConfig{ID: "w", URL: "https://example.com/", Dialect: "0.3"})
	p.must(t, status(task.StateWorking), chunk("x"), asking(time.Hour))
	until := func() *time.Time {
		return scan[*time.Time](f, "SELECT resume_until FROM holdfast.v_tasks WHERE task = $1", id)
	}
	require.NotNil(t, until())
	require.Equal(t, "a", storetest.Must(f.Resumable(t.Context(), id, 1))(t))
	require.NoError(t, f.Resume(t.Context(), resumeOf(id, 1, "the secret")))
	require.Nil(t, until(), "the URL is used")
	require.EqualValues(t, 6, scan[int64](f, "SELECT due_seq FROM holdfast.push_cursors WHERE task = $1", id), "webhooks learn that the task goes on")
	c := f.claim(f.worker(time.Hour), "a", 1)[0]
	require.Equal(t, &Wait{Seq: 5, Resumed: &task.Resumed{Method: "POST", Query: "code=1", ContentType: "text/plain", Body: []byte("the secret")}}, c.Wait)
	require.Len(t, f.before(c), 2, "the message and the artifact; not what came by the URL")
	all := f.everything()
	require.NotContains(t, all, "the secret")
	require.NotContains(t, all, "code=1")
	_, lines := query(t, f.conn(), "SELECT action, agent, method, address FROM holdfast.v_audit WHERE task = '"+id.String()+"' AND action = 'task.resumed'")
	require.Equal(t, [][]string{{"task.resumed", "a", MethodResume, "192.0.2.1:80"}}, lines)
	require.ErrorIs(t, f.Resume(t.Context(), resumeOf(NewID(), 1, "x")), task.NotFound)
}

// A message, resumes and a cancel come at the same moment. At most one resume counts, and each answer says what happened.
func TestResumesRace(t *testing.T) {
	f := parallel(t)
	resumed := 0
	for i := range 60 {
		p := f.running("a")
		id := p.c.Task.ID
		p.must(t, status(task.StateWorking))
		early, cancels := i%2 == 0, i%5 == 0
		if !early {
			p.must(t, asking(time.Hour))
		}
		var g errgroup.Group
		won := make(chan string, 3)
		for j := range 3 {
			g.Go(func() error {
				err := f.Resume(t.Context(), resumeOf(id, 1, fmt.Sprint(j)))
				if err == nil {
					won <- fmt.Sprint("resume ", j)
				} else if !errors.Is(err, task.Terminal) {
					return err
				}
				return nil
			})
		}
		var said error
		g.Go(func() error { _, said = f.say(id, true); return nil })
		if cancels {
			g.Go(func() error { _, err := f.Cancel(t.Context(), p.c.Task, nil); return err })
		}
		if early {
			g.Go(func() error { return waittest.Within(t, "the answer", p.write(asking(time.Hour))).err })
		}
		require.NoError(t, g.Wait())
		require.LessOrEqual(t, len(won), 1, "two resumes of one turn")
		require.True(t, said == nil || cancels && errors.Is(said, task.Terminal), said)
		resumed += len(won)
		won <- "none"
		var turns []string
		for f.state(id) == task.StateSubmitted {
			p = f.next("a")
			turn := "message"
			if p.c.Wait != nil {
				turn = "resume " + string(p.c.Wait.Resumed.Body)
			}
			turns = append(turns, turn)
			p.must(t, status(task.StateWorking), status(task.StateInputRequired))
		}
		if winner := <-won; !cancels {
			require.Subset(t, []string{"message", winner}, turns)
			require.Contains(t, turns, "message")
			require.True(t, early || winner == "none" || turns[0] == winner, turns)
		}
		err := errOf(f.Cancel(t.Context(), p.c.Task, nil))
		require.True(t, err == nil || errors.Is(err, task.NotCancelable))
	}
	require.NotZero(t, resumed, "no resume won")
}

// A resume and a message that were committed after the snapshot of the statement that parks are found by it.
func TestParkFindsWhatItsSnapshotLacks(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	id := p.c.Task.ID
	p.must(t, status(task.StateWorking))
	// The function sees what was committed after the snapshot of the statement that calls it.
	c := f.conn()
	f.ok(c.Exec(t.Context(), "BEGIN; DECLARE late CURSOR FOR SELECT holdfast.message_after($$"+id.String()+"$$, 1) FROM generate_series(1, 1)"))
	require.NoError(t, f.Resume(t.Context(), resumeOf(id, 1, "early")))
	said := storetest.Must(f.say(id, true))(t)
	var found task.Seq
	require.NoError(t, c.QueryRow(t.Context(), "FETCH late").Scan(&found))
	require.Equal(t, said, found)
}

// The connection dies around the commit: the sender learns that the resume counts, and it counts once.
func TestResumeOverALostConnection(t *testing.T) {
	f, proxy := proxied(t)
	for what, loss := range losses {
		for _, early := range []bool{false, true} {
			p := f.running("a")
			p.must(t, status(task.StateWorking))
			if !early {
				p.must(t, asking(time.Hour))
			}
			lost := proxy.Lose("TaskResume", loss, 1)
			require.NoError(t, f.Resume(t.Context(), resumeOf(p.c.Task.ID, 1, "x")))
			waittest.Within(t, "the loss", lost)
			if early {
				require.True(t, p.must(t, asking(time.Hour)).requeued)
			}
			require.Equal(t, "x", string(f.claim(f.worker(time.Hour), "a", 1)[0].Wait.Resumed.Body), "%s lost, early %t", what, early)
			require.Equal(t, 1, scan[int](f, "SELECT count(*)::int FROM holdfast.task_events WHERE kind = 4 AND task = $1", p.c.Task.ID))
		}
	}
}

// Anybody writes what comes by a URL. The agent gets the body byte for byte, and headers that its run document can hold.
func TestHostileResumes(t *testing.T) {
	f := parallel(t)
	for _, body := range []string{"", "\n", "{}\n{}", "\x00\xff\n", `{"method":"GET"}` + "\nx", strings.Repeat("\n", 1<<18)} {
		p := f.running("a")
		p.must(t, status(task.StateWorking), asking(time.Hour))
		r := resumeOf(p.c.Task.ID, 1, body)
		r.Content.Query, r.Content.ContentType = "a\xffb\"\n", "\xff"
		require.NoError(t, f.Resume(t.Context(), r))
		c := f.claim(f.worker(time.Hour), "a", 1)[0]
		require.NoError(t, c.Unreadable)
		require.Equal(t, body, string(c.Wait.Resumed.Body))
		require.Equal(t, []string{"POST", "a\uFFFDb\"\n", "\uFFFD"}, []string{c.Wait.Resumed.Method, c.Wait.Resumed.Query, c.Wait.Resumed.ContentType})
		(&pen{s: f.Store, c: c}).must(t, status(task.StateCompleted))
	}
}

// A resume belongs to its turn: copied to another one, it is not read.
func TestResumesCannotBeMoved(t *testing.T) {
	f := parallel(t)
	sealed := storetest.Must(f.sealResume(t.Context(), resumeOf(NewID(), 1, "x")))(t)
	_, err := f.openResume(t.Context(), NewID(), 2, sealed)
	require.ErrorContains(t, err, "what came by the resume URL: not a value that was sealed for this place")

	p := f.running("a")
	p.must(t, status(task.StateWorking), asking(time.Hour))
	require.NoError(t, f.Resume(t.Context(), resumeOf(p.c.Task.ID, 1, "x")))
	f.exec(`UPDATE holdfast.task_events SET payload = '{"outcome":"resume","sealed":"AAAA"}' WHERE kind = 4`)
	c := f.claim(f.worker(time.Hour), "a", 1)[0]
	require.Error(t, c.Unreadable)
}
