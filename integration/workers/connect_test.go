package workers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// The example program is a worker.
func TestGoProgramConnects(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, _ := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.Settings + `
  - name: shout
    executor: {kind: worker}
`})
	cmd := exec.Command(clustertest.Program(t, "./examples/go/connect"))
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+a.URL)
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	res := a.Send(a2atest.V03, a2atest.Say("hear me").At("shout"))
	require.Equal(t, "completed", res.State(), res.Said())
	require.Equal(t, "HEAR ME", a2atest.Text(res.Artifacts[0].Parts))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, waittest.Within(t, "the end of the program", ended))

	knows := func(n int) {
		t.Helper()
		waittest.Eventually(t, "the worker is known", func() error {
			known := clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_remote_workers")
			return waittest.Unless(known == n, "%d workers", known)
		})
	}
	knows(1)
	first := clustertest.One[string](db, "SELECT worker::text FROM holdfast.v_remote_workers")
	retired := exec.Command(cmd.Path)
	retired.Env = cmd.Env
	require.NoError(t, retired.Start())
	t.Cleanup(func() { _ = retired.Process.Kill() })
	go func() { ended <- retired.Wait() }()
	knows(2)
	id := clustertest.One[string](db, "SELECT worker::text FROM holdfast.v_remote_workers WHERE worker::text <> $1", first)
	verb := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + db.URL}, "workers", "retire", id)
	require.Zero(t, verb.Code, verb.Err)
	require.NoError(t, waittest.Within(t, "the end of the retired program", ended))
	db.Sound()
}

// known is an agent that tells what it knows.
type known struct{ canceled chan *agent.Cancellation }

// Execute answers one message.
func (k known) Execute(ctx context.Context, run *agent.Run, out agent.Emitter) error {
	say := func(format string, args ...any) error {
		return out.Artifact(ctx, agent.Text("said", fmt.Sprintf(format, args...)))
	}
	if run.Input != nil {
		switch run.Input.Source {
		case agent.Calls:
			r := run.Input.Results[0]
			return say("%s %s %s", r.ID, r.State, r.Artifacts[0].Parts[0].Text)
		case agent.Timer:
			return say("timer in turn %d", run.Turn)
		}
	}
	switch verb, rest, _ := strings.Cut(run.Text(), " "); verb {
	case "ask":
		if _, err := run.SetState(ctx, agent.OfContext, map[string]int{"n": 1}, 0); err != nil {
			return err
		}
		return errors.Join(say("before"), out.AskInput(ctx, agent.Say("Name?")))
	case "reply":
		if err := out.Reply(ctx, agent.Say("bare")); !errors.Is(err, agent.ErrReply) {
			return fmt.Errorf("not refused: %w", err)
		}
		return say("the run goes on")
	case "call":
		return out.Call(ctx, agent.Call{ID: "c", Agent: rest, Message: agent.Say("echo:hi")})
	case "wait":
		return out.Wait(ctx, agent.Wait{For: time.Millisecond})
	case "fail":
		return agent.Failure("Out of paper.", errors.New("secret"))
	case "crash":
		return errors.New("secret")
	case "panic":
		panic("secret")
	case "again":
		if run.Try == 1 {
			return errors.Join(out.Checkpoint(ctx, "half"), agent.Retryable(errors.New("busy"), time.Millisecond))
		}
		var c string
		found, err := run.Checkpoint(ctx, &c)
		return errors.Join(err, say("%t %s in try %d", found, c, run.Try))
	case "hold":
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return k.remember(ctx, run, say)
}

func (known) remember(ctx context.Context, run *agent.Run, say func(string, ...any) error) error {
	before, err := run.Task(ctx)
	if err != nil {
		return err
	}
	history, err := run.History(ctx)
	if err != nil {
		return err
	}
	said, err := run.Dialogue(ctx, agent.DialogueOptions{Of: agent.OfContext, Entries: 2})
	if err != nil {
		return err
	}
	var s struct{ N int }
	version, err := run.State(ctx, agent.OfContext, &s)
	if err != nil {
		return err
	}
	if _, err := run.SetState(ctx, agent.OfContext, s, version+1); !errors.Is(err, agent.ErrStateChanged) {
		return fmt.Errorf("a wrong version: %w", err)
	}
	return say("%s %s; %d artifacts, %d earlier; %d messages; %d said, the last %q; n=%d in version %d; %d", before.State, before.Status.Text(),
		len(before.Artifacts), len(before.Earlier), len(history), len(said), said[len(said)-1].Text(), s.N, version, len(run.IdempotencyKey()))
}

// Cancel hands over what it is told.
func (k known) Cancel(_ context.Context, c *agent.Cancellation) error {
	k.canceled <- c
	return nil
}

// An executor sees and does as a worker what it does in the server.
func TestConnectedExecutor(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: settings + "limits: {max_block: 1h}\n"})
	k := known{make(chan *agent.Cancellation, 1)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Connect(ctx, a.URL, map[string]agent.Executor{"gpu": k}, agent.ConnectOptions{Name: "test"})
	}()
	said := func(res *a2atest.Result) string {
		t.Helper()
		require.Equal(t, "completed", res.State(), res.Said())
		return a2atest.Text(res.Artifacts[len(res.Artifacts)-1].Parts)
	}
	say := func(text string) *a2atest.Result { return b.Send(a2atest.V03, a2atest.Say(text).At("gpu")) }

	asked := say("ask me")
	require.Equal(t, "input-required", asked.State(), asked.Said())
	answered := b.Send(a2atest.V03, a2atest.Say("Ada").At("gpu").To(asked.Task()))
	require.Equal(t, `input-required Name?; 1 artifacts, 0 earlier; 2 messages; 2 said, the last "Name?"; n=1 in version 1; 38`, said(answered))
	require.Equal(t, "the run goes on", said(say("reply")))
	require.Equal(t, "c completed hi", said(say("call demo")))
	require.Equal(t, "timer in turn 2", said(say("wait")))
	require.Equal(t, "true half in try 2", said(say("again")))
	for text, want := range map[string]string{"fail": "Out of paper.", "crash": "The agent failed.", "panic": "The agent failed."} {
		res := say(text)
		require.Equal(t, "failed", res.State())
		require.Equal(t, want, res.Said())
	}

	id := begin(b, "hold")
	db.AwaitState(id, "working")
	res := b.Under("/agents/gpu").Call("tasks/cancel", a2atest.Object{"id": id, "metadata": a2atest.Object{"why": "late"}})
	require.Equal(t, "canceled", res.State())
	c := waittest.Within(t, "the agent is told", k.canceled)
	require.Equal(t, agent.ReasonCanceled, c.Reason)
	require.JSONEq(t, `{"why":"late"}`, string(c.Metadata))

	left := begin(b, "hold")
	db.AwaitState(left, "working")
	stop()
	waiting := begin(a, "wait")
	b.Under("/agents/gpu").Call("tasks/cancel", a2atest.Object{"id": left})
	require.NoError(t, waittest.Within(t, "the end of the worker", ended))
	db.AwaitState(waiting, "submitted")
	db.Sound()
}

// A worker of another version of the protocol, or without an address, says so.
func TestConnectRefusesNonsense(t *testing.T) {
	t.Parallel()
	k := map[string]agent.Executor{"gpu": known{}}
	for want, connect := range map[string]func() error{
		`"localhost:8080" is not the address of a server`: func() error { return agent.Connect(t.Context(), "localhost:8080", k, agent.ConnectOptions{}) },
		"needs at least one agent":                        func() error { return agent.Connect(t.Context(), "http://x", nil, agent.ConnectOptions{}) },
		"Concurrency: -1 is less than 1": func() error {
			return agent.Connect(t.Context(), "http://x", k, agent.ConnectOptions{Concurrency: -1})
		},
		`"gpu" has no Executor`: func() error {
			return agent.Connect(t.Context(), "http://x", map[string]agent.Executor{"gpu": nil}, agent.ConnectOptions{})
		},
	} {
		require.ErrorContains(t, connect(), want)
	}
}
