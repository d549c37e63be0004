package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

// life is a task whose agent is killed now and then: at the place in its log that kill names.
type life struct {
	t      *testing.T
	kill   int // 0: never
	killed bool
	log    []task.Event
	again  int // attempts
	err    error
}

// dying loses the lease before an event.
type dying struct {
	*executortest.Recorder
	l      *life
	cancel context.CancelCauseFunc
}

func (d *dying) dies() error {
	if d.l.kill == 0 || d.l.killed || len(d.l.log)+len(d.Events()) < d.l.kill-1 {
		return nil
	}
	d.l.killed = true
	d.Refuse(executor.ErrLeaseLost)
	d.cancel(executor.ErrLeaseLost)
	return executor.ErrLeaseLost
}

func (d *dying) Record(ctx context.Context, record json.RawMessage) error {
	return errors.Join(d.dies(), d.Recorder.Record(ctx, record))
}

func (d *dying) Artifact(ctx context.Context, c executor.Chunk) error {
	return errors.Join(d.dies(), d.Recorder.Artifact(ctx, c))
}

func (d *dying) StatusAbout(ctx context.Context, s task.State, m *task.Message, a executor.About) error {
	return errors.Join(d.dies(), d.Recorder.StatusAbout(ctx, s, m, a))
}

func (d *dying) Ask(ctx context.Context, a executor.Ask) error {
	return errors.Join(d.dies(), d.Recorder.Ask(ctx, a))
}

func (d *dying) Wait(ctx context.Context, w executor.Wait) error {
	return errors.Join(d.dies(), d.Recorder.Wait(ctx, w))
}

func (d *dying) Call(ctx context.Context, calls []executor.Call) error {
	return errors.Join(d.dies(), d.Recorder.Call(ctx, calls))
}

// live runs an agent to the end of its task. Questions are answered by the answers in turn; calls by the text of their message; a wait is over at once.
func (l *life) live(e Executor, answers ...Message) {
	l.t.Helper()
	run := Run{Turn: 1, TaskKey: "key", Message: Say("order 7")}
	for range 100 {
		l.again++
		run.Attempt = l.again
		run.memory = &executortest.Memory{Events: l.log}
		ctx, cancel := context.WithCancelCause(l.t.Context())
		out := &dying{executortest.NewRecorder(), l, cancel}
		before := l.killed
		inner := run
		l.err = e.Execute(ctx, &inner, &emitter{out: out, turn: run.Turn})
		cancel(nil)
		if l.err == nil && l.killed == before && !ends(out.Events()) {
			require.NoError(l.t, out.Status(l.t.Context(), task.StateCompleted, nil))
		}
		for _, ev := range out.Events() {
			ev.Seq, ev.Attempt = task.Seq(len(l.log)+1), task.Attempt(l.again)
			l.log = append(l.log, ev)
		}
		if l.killed != before {
			continue
		}
		if l.err != nil {
			return
		}
		last := l.log[len(l.log)-1]
		run.Turn++
		run.Message, run.Input = Message{}, nil
		switch {
		case last.State.Terminal():
			return
		case last.State.Parked():
			require.NotEmpty(l.t, answers, "a question too many")
			run.Message, answers = answers[0], answers[1:]
		case last.Run.Outcome == task.RunWaits:
			run.Input = &Input{Source: Timer, Until: last.Run.Until}
		default:
			run.Input = &Input{Source: Calls}
			for _, c := range last.Run.Calls {
				m := fromMessage(c.Message)
				run.Input.Results = append(run.Input.Results, Result{ID: c.ID, Agent: c.Agent, State: Completed, Artifacts: []Artifact{Text("", c.Agent+" of "+m.Text())}})
			}
		}
	}
	for _, e := range l.log {
		if e.Run != nil {
			l.t.Log(e.Seq, e.Attempt, e.Run.Outcome, string(e.Run.Checkpoint), e.Run.Until)
		} else {
			l.t.Log(e.Seq, e.Attempt, e.State, e.Artifact, e.Message)
		}
	}
	l.t.Fatal("the task does not end")
}

func ends(evs []task.Event) bool {
	return len(evs) > 0 && (evs[len(evs)-1].State.Settled() || evs[len(evs)-1].Waits())
}

// shown is what clients have at the end: texts by artifact, and the statuses with a message.
func (l *life) shown() string {
	texts, statuses := map[string]string{}, []string{}
	kept, own := map[string]string{}, map[string]bool{} // own: the attempt has written them
	of := task.Attempt(0)
	for _, e := range l.log {
		if e.Attempt != of {
			if !l.ended(of) {
				maps.Copy(texts, kept) // the next attempt replaces what no record keeps
			}
			of = e.Attempt
			clear(own)
		}
		switch {
		case e.Artifact != nil:
			id := e.Artifact.ID
			own[id] = true
			if e.Append || kept[id] != "" {
				texts[id] += e.Artifact.Parts[0].Text
			} else {
				texts[id] = e.Artifact.Parts[0].Text
			}
		case e.Kind == task.EventRun && e.Run.Outcome == task.RunRecord:
			open := e.Run.Recorded().Open
			for id := range own {
				if !slices.Contains(open, id) {
					kept[id] = texts[id]
				}
			}
		case e.Message != nil:
			statuses = append(statuses, e.State.String()+": "+fromMessage(e.Message).Text())
		}
	}
	var out []string
	for _, id := range slices.Sorted(maps.Keys(texts)) {
		out = append(out, id+": "+texts[id])
	}
	return strings.Join(append(out, statuses...), "\n")
}

func (l *life) ended(a task.Attempt) bool {
	var of []task.Event
	for _, e := range l.log {
		if e.Attempt == a {
			of = append(of, e)
		}
	}
	return ends(of)
}

// effects counts what steps have done.
type effects struct {
	mu sync.Mutex
	n  map[string]int
}

func (e *effects) of(name string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n == nil {
		e.n = map[string]int{}
	}
	e.n[name]++
	return e.n[name]
}

type approval struct{ Approved bool }

func refund(did *effects) Executor {
	return Durable(func(ctx context.Context, run *DurableRun) error {
		if err := run.Text(ctx, "", "Looking. "); err != nil {
			return err
		}
		order, err := Step(ctx, run, "look up", func(ctx context.Context) (string, error) {
			did.of("look up")
			for _, piece := range []string{"Found ", "it. "} {
				if err := run.Text(ctx, "", piece); err != nil {
					return "", err
				}
			}
			return run.Message.Text() + " " + run.IdempotencyKey(ctx), nil
		})
		if err != nil {
			return err
		}
		var answer approval
		if err := run.AskForm(ctx, "approve", Say("Refund "+order+"?"), json.RawMessage(`{"type":"object"}`), &answer); err != nil {
			return err
		}
		if !answer.Approved {
			return run.Text(ctx, "", "Nothing was refunded.")
		}
		if err := run.Text(ctx, "", "Paying. "); err != nil {
			return err
		}
		receipt, err := Step(ctx, run, "refund", func(context.Context) (string, error) {
			if did.of("refund")%2 == 1 {
				return "", errors.New("busy")
			}
			return "r-7", nil
		}, StepOptions{Retries: 5})
		if err != nil {
			return err
		}
		if err := run.Sleep(ctx, "settle", 72*time.Hour); err != nil {
			return err
		}
		results := make([]Result, 2)
		err = run.All(ctx, func(ctx context.Context) (err error) {
			results[0], err = run.Call(ctx, "feedback", Call{Agent: "feedback", Message: Say(order)})
			return err
		}, func(ctx context.Context) (err error) {
			results[1], err = run.Call(ctx, "survey", Call{Agent: "survey", Message: Say(order)})
			return err
		})
		if err != nil {
			return err
		}
		return run.Text(ctx, "", "Refunded "+receipt+". "+results[0].Artifacts[0].Parts[0].Text+", "+results[1].Agent+".")
	})
}

// Whatever event a crash prevents, the task ends the same, and what was recorded has run once.
func TestDurableRunsSurviveCrashesAtEveryEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		yes := Message{Parts: []Part{DataPart(json.RawMessage(`{"approved":true}`))}}
		whole := &life{t: t}
		var did effects
		whole.live(refund(&did), yes)
		require.NoError(t, whole.err)
		require.Equal(t, map[string]int{"look up": 1, "refund": 2}, did.n)
		want := whole.shown()
		require.Equal(t, "text-1: Looking. Found it. \ntext-2: Paying. \ntext-4: Refunded r-7. feedback of order 7 key/look up#1, survey.\n"+
			"input-required: Refund order 7 key/look up#1?", want)
		for kill := 1; kill < len(whole.log); kill++ { // the last event is the server's
			l, did := &life{t: t, kill: kill}, effects{}
			l.live(refund(&did), yes, yes)
			require.NoError(t, l.err, "killed at event %d", kill)
			require.True(t, l.killed)
			require.Equal(t, want, l.shown(), "killed at event %d", kill)
			require.LessOrEqual(t, did.n["look up"], 2)
			records := map[string]int{}
			for _, e := range l.log {
				if e.Run != nil && e.Run.Recorded() != nil {
					r := e.Run.Recorded()
					records[fmt.Sprint(r.Kind, r.Name, r.Nth)]++
				}
			}
			for what, n := range records {
				require.Equal(t, 1, n, "%s, killed at event %d", what, kill)
			}
		}
	})
}

func TestDurableQuestionsBesideEachOther(t *testing.T) {
	t.Parallel()
	l := &life{t: t}
	l.live(Durable(func(ctx context.Context, run *DurableRun) error {
		var seat string
		var bags int
		return errors.Join(run.All(ctx, func(ctx context.Context) error {
			return run.AskForm(ctx, "seat", Say("Which seat?"), json.RawMessage(`{"enum":["aisle"]}`), &seat)
		}, func(ctx context.Context) error {
			return run.AskForm(ctx, "bags", Say("How many bags?"), json.RawMessage(`{"type":"integer"}`), &bags)
		}), run.Text(ctx, "", fmt.Sprint(seat, bags)))
	}), Message{Parts: []Part{DataPart(json.RawMessage(`{"seat":"aisle","bags":2}`))}})
	require.NoError(t, l.err)
	require.Contains(t, l.shown(), "text-2: aisle2")
	i := slices.IndexFunc(l.log, func(e task.Event) bool { return e.State.Parked() })
	require.JSONEq(t, `{"requestedSchema":{"type":"object","required":["seat","bags"],"properties":{"seat":{"enum":["aisle"]},"bags":{"type":"integer"}}}}`,
		string(l.log[i].Message.Parts[2].Data))
}

// A line of text answers each question; any other text answers the first.
func TestDurableQuestionsAnsweredInWords(t *testing.T) {
	t.Parallel()
	program := Durable(func(ctx context.Context, run *DurableRun) error {
		var answers [2]string
		ask := func(i int) func(context.Context) error {
			return func(ctx context.Context) error {
				m, err := run.Ask(ctx, fmt.Sprint("q", i), Say("?"))
				answers[i] = m.Text()
				return err
			}
		}
		return errors.Join(run.All(ctx, ask(0), ask(1)), run.Text(ctx, "", answers[0]+" and "+answers[1]))
	})
	for want, answers := range map[string][]Message{
		"one and two":   {Say("one\n\ntwo\n")},
		"all and rest":  {Say("all"), Say("rest")},
		"data and 2":    {{Parts: []Part{DataPart(json.RawMessage(`{"q0":"data","q1":2}`))}}},
		"some and else": {{Parts: []Part{DataPart(json.RawMessage(`{"q1":"else"}`))}}, Say("some")},
	} {
		l := &life{t: t}
		l.live(program, answers...)
		require.NoError(t, l.err)
		require.Contains(t, l.shown(), ": "+want+"\n")
	}
}

// Steps beside each other stream into artifacts of their own; one that a crash cut begins again.
func TestDurableStepsBesideEachOther(t *testing.T) {
	t.Parallel()
	program := func() Executor {
		return Durable(func(ctx context.Context, run *DurableRun) error {
			first, second := make(chan struct{}), make(chan struct{})
			close(first)
			step := func(name string, wait <-chan struct{}, tell func()) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := Step(ctx, run, name, func(ctx context.Context) (string, error) {
						<-wait
						err := errors.Join(run.Text(ctx, "", name+" one "), run.Text(ctx, "", name+" two"))
						tell()
						return "", err
					})
					tell() // a replay does not run the step
					return err
				}
			}
			return run.All(ctx, step("a", first, sync.OnceFunc(func() { close(second) })), step("b", second, func() {}))
		})
	}
	for kill := range 12 {
		l := &life{t: t, kill: kill}
		l.live(program())
		require.NoError(t, l.err)
		got := l.shown()
		require.Equal(t, 1, strings.Count(got, "a one a two"), got)
		require.Equal(t, 1, strings.Count(got, "b one b two"), got)
		require.Equal(t, 4, strings.Count(got, "one")+strings.Count(got, "two"), got)
	}
}

func TestDurableErrors(t *testing.T) {
	t.Parallel()
	var did effects
	l := &life{t: t, kill: 3}
	l.live(Durable(func(ctx context.Context, run *DurableRun) error {
		_, err := Step(ctx, run, "pay", func(context.Context) (string, error) {
			did.of("pay")
			return "", errors.New("no money")
		}, StepOptions{Retries: 3, Final: func(error) bool { return true }})
		var failed *StepError
		if !errors.As(err, &failed) {
			return errors.New("no error of a step")
		}
		return run.Text(ctx, "", failed.Error())
	}))
	require.NoError(t, l.err)
	require.Equal(t, "text-1: pay: no money", l.shown())
	require.Equal(t, 1, did.n["pay"])
}

func TestCodeThatChanged(t *testing.T) {
	t.Parallel()
	name := "look up"
	changing := Durable(func(ctx context.Context, run *DurableRun) error {
		of := name
		name = "search"
		if _, err := Step(ctx, run, of, func(context.Context) (int, error) { return 1, nil }); err != nil {
			return err
		}
		_, err := run.Ask(ctx, "go on", Say("Go on?"))
		return err
	})
	l := &life{t: t}
	l.live(changing, Say("yes"))
	var changed *CodeChanged
	require.ErrorAs(t, l.err, &changed)
	require.Equal(t, "step look up", changed.Recorded)
	require.Equal(t, "step search", changed.Met)
	require.Contains(t, changed.Line, "durable_test.go:")
}

// Changed code branches: a task that began with the old code ends with it.
func TestDurableVersions(t *testing.T) {
	t.Parallel()
	old := true
	program := Durable(func(ctx context.Context, run *DurableRun) error {
		of := "look up"
		if !old {
			newer, err := run.Version(ctx, "search")
			if err != nil {
				return err
			}
			if newer {
				of = "search"
			}
		}
		got, err := Step(ctx, run, of, func(context.Context) (string, error) { return of, nil })
		old = false
		if err != nil {
			return err
		}
		_, err = run.Ask(ctx, "go on", Say("Go on?"))
		return errors.Join(err, run.Text(ctx, "", got))
	})
	began, begins := &life{t: t}, &life{t: t}
	began.live(program, Say("yes"))
	require.NoError(t, began.err)
	require.Contains(t, began.shown(), "text-2: look up")
	begins.live(program, Say("yes"))
	require.NoError(t, begins.err)
	require.Contains(t, begins.shown(), "text-2: search")
}

func TestDurableValuesAndManySteps(t *testing.T) {
	t.Parallel()
	var seen []string
	did := 0
	l := &life{t: t}
	l.live(Durable(func(ctx context.Context, run *DurableRun) error {
		now, err := run.Now(ctx)
		random, err2 := run.Random(ctx)
		seen = append(seen, now.String()+random)
		for i := range 1000 {
			n, err := Step(ctx, run, "count", func(context.Context) (int, error) { did++; return i, nil })
			if err != nil || n != i {
				return fmt.Errorf("step %d returned %d, %w", i, n, err)
			}
		}
		_, err3 := run.Ask(ctx, "go on", Say("Go on?"))
		return errors.Join(err, err2, err3)
	}), Say("yes"))
	require.NoError(t, l.err)
	require.Len(t, seen, 2)
	require.Equal(t, seen[0], seen[1])
	require.Equal(t, 1000, did)
}

func TestDurableRunsEndWhenCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	undone := false
	e := Durable(func(ctx context.Context, run *DurableRun) error {
		return run.All(ctx, func(ctx context.Context) error {
			_, err := run.Ask(ctx, "never", Say("?"))
			undone = errors.Is(err, ErrCanceled)
			return err
		}, func(ctx context.Context) error {
			_, err := Step(ctx, run, "long", func(ctx context.Context) (int, error) {
				cancel(ErrCanceled)
				<-ctx.Done()
				return 0, context.Cause(ctx)
			})
			return err
		})
	})
	out := executortest.NewRecorder()
	err := e.Execute(ctx, &Run{Turn: 1, Attempt: 1, Message: Say("go")}, &emitter{out: out, turn: 1})
	require.ErrorIs(t, err, ErrCanceled)
	require.True(t, undone)
}

func TestPanicsOfDurableRunsReachTheServer(t *testing.T) {
	t.Parallel()
	e := Durable(func(ctx context.Context, run *DurableRun) error {
		return run.All(ctx, func(context.Context) error { panic("oh") })
	})
	require.Panics(t, func() {
		_ = e.Execute(t.Context(), &Run{Turn: 1, Attempt: 1, Message: Say("go")}, &emitter{out: executortest.NewRecorder(), turn: 1})
	})
}
