package a2asdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"

	legacy "github.com/a2aproject/a2a-go/a2a"
	legacysrv "github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"
	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/agent/a2asdk"
	"github.com/holdfast-a2a/holdfast/agent/agenttest"
)

type yield = func(a2a.Event, error) bool

// executor is an executor of the SDK made of functions.
type executor struct {
	execute func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield)
	cancel  func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield)
}

func (e *executor) Execute(ctx context.Context, exec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) { e.execute(ctx, exec, yield) }
}

func (e *executor) Cancel(ctx context.Context, exec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		if e.cancel == nil {
			yield(a2a.NewStatusUpdateEvent(exec, a2a.TaskStateCanceled, nil), nil)
			return
		}
		e.cancel(ctx, exec, yield)
	}
}

// does makes an agent of a function that is called in Execute.
func does(f func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield)) agent.Executor {
	return a2asdk.Wrap(&executor{execute: f})
}

// yields makes an agent that yields events.
func yields(events func(exec *a2asrv.ExecutorContext) []a2a.Event) agent.Executor {
	return does(func(_ context.Context, exec *a2asrv.ExecutorContext, yield yield) {
		for _, e := range events(exec) {
			if !yield(e, nil) {
				return
			}
		}
	})
}

func say(text string) *a2a.Message {
	return a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(text))
}

func status(exec *a2asrv.ExecutorContext, s a2a.TaskState, text string) *a2a.TaskStatusUpdateEvent {
	if text == "" {
		return a2a.NewStatusUpdateEvent(exec, s, nil)
	}
	return a2a.NewStatusUpdateEvent(exec, s, say(text))
}

// The template in the SDK's documentation.
func TestExecutorOfTheDocumentation(t *testing.T) {
	t.Parallel()
	agenttest.New(t, does(func(_ context.Context, exec *a2asrv.ExecutorContext, yield yield) {
		if exec.StoredTask == nil && !yield(a2a.NewSubmittedTask(exec, exec.Message), nil) {
			return
		}
		if !yield(status(exec, a2a.TaskStateWorking, ""), nil) {
			return
		}
		var id a2a.ArtifactID
		for word := range strings.FieldsSeq(exec.Message.Parts[0].Text()) {
			event := a2a.NewArtifactUpdateEvent(exec, id, a2a.NewTextPart(" "+word))
			if id == "" {
				event = a2a.NewArtifactEvent(exec, a2a.NewTextPart(word))
				event.Artifact.Name = "words"
				id = event.Artifact.ID
			}
			event.Artifact.Name = "words"
			if !yield(event, nil) {
				return
			}
		}
		yield(status(exec, a2a.TaskStateCompleted, ""), nil)
	})).Say("to be").Want("working", `artifact words: "to"...`, `artifact words: +" be"...`, "completed")
}

func TestStates(t *testing.T) {
	t.Parallel()
	for state, want := range map[a2a.TaskState]string{
		a2a.TaskStateInputRequired: `input-required: "x"`,
		a2a.TaskStateAuthRequired:  `auth-required: "x"`,
		a2a.TaskStateCompleted:     `completed: "x"`,
		a2a.TaskStateFailed:        `failed: "x"`,
		a2a.TaskStateRejected:      `rejected: "x"`,
		a2a.TaskStateCanceled:      `failed: "x"`, // only a client cancels
	} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			agenttest.New(t, does(func(_ context.Context, exec *a2asrv.ExecutorContext, yield yield) {
				require.True(t, yield(status(exec, a2a.TaskStateSubmitted, "queued"), nil))
				require.True(t, yield(status(exec, a2a.TaskStateWorking, "busy"), nil))
				require.False(t, yield(status(exec, state, "x"), nil), "nothing follows")
			})).Say("hi").Want("working", `working: "queued"`, `working: "busy"`, want)
		})
	}
}

// Executors keep memory under the ids of tasks and contexts. Clients choose those of contexts, and in 0.1 those of tasks.
func TestIDsHaveOneCaller(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"beside", "without a run"} {
		t.Run(ends, func(t *testing.T) {
			t.Parallel()
			canceled, ids := map[a2a.TaskID]bool{}, map[string]bool{}
			wrapped := a2asdk.Wrap(&executor{
				execute: func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield) {
					run, _ := a2asdk.RunFrom(ctx)
					require.Equal(t, []string{"trip-9", "shared", run.TaskKey, run.ContextKey}, []string{run.TaskID, run.ContextID, string(exec.TaskID), exec.ContextID})
					require.Equal(t, exec.ContextID, exec.Message.ContextID)
					ids[string(exec.TaskID)], ids[exec.ContextID] = true, true
					if exec.User.Name != "ada" || ends != "beside" {
						yield(status(exec, a2a.TaskStateInputRequired, "?"), nil)
						return
					}
					require.True(t, yield(status(exec, a2a.TaskStateWorking, "busy"), nil))
					<-ctx.Done()
				},
				cancel: func(_ context.Context, exec *a2asrv.ExecutorContext, yield yield) {
					require.True(t, ids[exec.ContextID])
					canceled[exec.TaskID] = true
					yield(status(exec, a2a.TaskStateCanceled, ""), nil)
				},
			})
			for n, o := range []agenttest.Options{{Owner: "ada"}, {Owner: "bob"}, {Owner: "ada", Tenant: "acme"}, {Owner: "ada", Agent: "other"}} {
				o.TaskID, o.ContextID = "trip-9", "shared"
				task := agenttest.New(t, wrapped, o)
				if turn := task.Start(agent.Say("hi")); o.Owner == "ada" && ends == "beside" {
					turn.Await(`working: "busy"`)
					task.Cancel()
					turn.Wait()
				} else {
					turn.Wait()
					task.Cancel()
				}
				require.Len(t, ids, 2*(n+1))
				require.Len(t, canceled, n+1)
			}
		})
	}
}

func TestContentIsKept(t *testing.T) {
	t.Parallel()
	task := agenttest.New(t, yields(func(exec *a2asrv.ExecutorContext) []a2a.Event {
		got := exec.Message
		require.Equal(t, "text", got.Parts[0].Text())
		require.Equal(t, []byte("bytes"), got.Parts[1].Raw())
		require.Equal(t, "a.txt", got.Parts[1].Filename)
		require.Equal(t, a2a.URL("https://example.com"), got.Parts[2].URL())
		require.Equal(t, map[string]any{"n": 1.0}, got.Parts[3].Data())
		require.Equal(t, map[string]any{"m": "v"}, got.Metadata)
		require.Equal(t, []a2a.TaskID{"other"}, got.ReferenceTasks)
		require.Equal(t, map[string]any{"r": true}, exec.Metadata)
		require.Equal(t, "ada", exec.User.Name)
		require.True(t, exec.User.Authenticated)
		require.Equal(t, "acme", exec.Tenant)
		require.Empty(t, got.TaskID, "the client did not know it")

		event := a2a.NewArtifactEvent(exec, got.Parts...)
		event.Artifact.ID, event.Artifact.Name, event.Artifact.Description = "out", "name", "description"
		event.Artifact.Extensions = []string{"urn:e"}
		event.Artifact.SetMeta("a", 1)
		event.SetMeta("e", 2)
		event.LastChunk = true
		reply := a2a.NewMessage(a2a.MessageRoleAgent, got.Parts...)
		reply.SetMeta("usage", 12)
		reply.Extensions = []string{"urn:m"}
		reply.ReferenceTasks = []a2a.TaskID{"t"}
		return []a2a.Event{event, a2a.NewStatusUpdateEvent(exec, a2a.TaskStateCompleted, reply)}
	}), agenttest.Options{TaskID: "t-1", ContextID: "c-1", Tenant: "acme", Owner: "ada", Metadata: json.RawMessage(`{"r":true}`)})
	turn := task.Send(agent.Message{
		Parts: []agent.Part{
			agent.TextPart("text"), agent.FilePart("a.txt", "text/plain", []byte("bytes")),
			agent.URLPart("https://example.com", "text/html"), agent.DataPart(json.RawMessage(`{"n":1}`)),
		},
		Metadata: json.RawMessage(`{"m":"v"}`), References: []string{"other"},
	})
	const parts = `"text" [file a.txt text/plain 5 bytes] [url https://example.com] [data {"n":1}]`
	turn.Want("working", "artifact name: "+parts, "completed: "+parts)
	a := task.Artifacts()[0]
	require.Equal(t, agent.Artifact{
		ID: "out", Name: "name", Description: "description", Extensions: []string{"urn:e"}, Metadata: json.RawMessage(`{"a":1}`), Parts: a.Parts,
	}, a)
	require.JSONEq(t, `{"e":2}`, string(turn.Events()[1].Metadata))
	require.JSONEq(t, `{"usage":12}`, string(turn.Message().Metadata))
	require.Equal(t, []string{"urn:m"}, turn.Message().Extensions)
	require.Equal(t, []string{"t"}, turn.Message().References)
}

// The executor finds the facts of the request where the SDK's server has them.
func TestFactsOfTheRequest(t *testing.T) {
	t.Parallel()
	cites := &a2a.AgentExtension{URI: "urn:cites"}
	wrapped := does(func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield) {
		run, _ := a2asdk.RunFrom(ctx)
		call, ok := a2asrv.CallContextFrom(ctx)
		require.True(t, ok)
		requested, _ := call.ServiceParams().Get("A2A-Extensions")
		trace, _ := exec.ServiceParams.Get("traceparent")
		extensions, ok := a2asrv.ExtensionsFrom(ctx)
		require.True(t, ok)
		if exec.StoredTask == nil {
			require.Equal(t, map[string]any{"task": 1.0}, exec.Metadata)
			require.Nil(t, exec.User.Attributes)
			require.Empty(t, requested)
			require.Empty(t, trace)
			require.False(t, extensions.Requested(cites))
			require.False(t, extensions.Active(cites))
			yield(status(exec, a2a.TaskStateInputRequired, ""), nil)
			return
		}
		require.Equal(t, map[string]any{"turn": 2.0}, exec.Metadata)
		require.Equal(t, map[string]any{"task": 1.0}, exec.StoredTask.Metadata)
		require.Equal(t, map[string]any{"scopes": []string{"book"}}, exec.User.Attributes)
		require.Equal(t, exec.User, call.User)
		require.Equal(t, []string{"urn:cites"}, requested)
		require.Equal(t, []string{"00-1-2-01"}, trace)
		require.True(t, extensions.Requested(cites))
		require.True(t, extensions.Active(cites))
		require.Equal(t, []string{"text/plain"}, run.AcceptedOutputModes)
		yield(status(exec, a2a.TaskStateCompleted, ""), nil)
	})
	task := agenttest.New(t, wrapped, agenttest.Options{Metadata: json.RawMessage(`{"task":1}`)})
	task.Say("one").Want("working", "input-required")
	task.Send(agent.Say("two"), agenttest.Request{
		Metadata: json.RawMessage(`{"turn":2}`), AcceptedOutputModes: []string{"text/plain"}, Extensions: []string{"urn:cites"},
		Scopes: []string{"book"}, Traceparent: "00-1-2-01",
	}).Want("working", "completed")
}

// The SDK's server loads them with its ReferencedTasksLoader.
func TestRelatedTasks(t *testing.T) {
	t.Parallel()
	var contextID string
	wrapped := does(func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield) {
		contextID = exec.ContextID
		switch {
		case exec.Message.Parts[0].Text() == "compare":
			require.Len(t, exec.RelatedTasks, 1)
			trip := exec.RelatedTasks[0]
			require.Equal(t, []any{a2a.TaskID("trip-1"), contextID, a2a.TaskStateInputRequired}, []any{trip.ID, trip.ContextID, trip.Status.State})
			require.Equal(t, "When?", trip.Status.Message.Parts[0].Text())
			var said []string
			for _, m := range trip.History {
				said = append(said, string(m.Role)+" "+m.Parts[0].Text())
			}
			require.Equal(t, []string{"ROLE_USER trip", "ROLE_AGENT Where to?", "ROLE_USER Oslo"}, said)
			require.Len(t, trip.Artifacts, 1, "that without the photo is left out")
			require.Equal(t, "plan", trip.Artifacts[0].Name)
			require.Equal(t, map[string]any{"days": 3.0}, trip.Artifacts[0].Metadata)
		case exec.StoredTask == nil:
			require.Empty(t, exec.RelatedTasks)
			plan, photo := a2a.NewArtifactEvent(exec, a2a.NewTextPart("Oslo")), a2a.NewArtifactEvent(exec, a2a.NewRawPart(make([]byte, 600<<10)))
			plan.Artifact.Name = "plan"
			plan.Artifact.SetMeta("days", 3)
			_ = yield(plan, nil) && yield(photo, nil) && yield(status(exec, a2a.TaskStateInputRequired, "Where to?"), nil)
		default:
			yield(status(exec, a2a.TaskStateInputRequired, "When?"), nil)
		}
	})
	task := agenttest.New(t, wrapped, agenttest.Options{TaskID: "trip-1"})
	task.Say("trip")
	task.Say("Oslo")
	compare := agent.Say("compare")
	compare.References = []string{"trip-1", "unknown"}
	task.Another().Send(compare).Want("working", "completed")
}

func TestMetadataOfStatuses(t *testing.T) {
	t.Parallel()
	step := func(exec *a2asrv.ExecutorContext, state a2a.TaskState, text string, n int) a2a.Event {
		e := status(exec, state, text)
		e.SetMeta("step", n)
		return e
	}
	canceled := make(chan struct{})
	task := agenttest.New(t, a2asdk.Wrap(&executor{
		execute: func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield) {
			if exec.StoredTask == nil {
				_ = yield(step(exec, a2a.TaskStateWorking, "", 1), nil) && yield(step(exec, a2a.TaskStateInputRequired, "What?", 2), nil)
				return
			}
			require.True(t, yield(step(exec, a2a.TaskStateWorking, "busy", 3), nil))
			<-canceled
		},
		cancel: func(_ context.Context, exec *a2asrv.ExecutorContext, yield yield) {
			require.Nil(t, exec.Metadata, "a request to cancel has its own")
			yield(step(exec, a2a.TaskStateCanceled, "", 4), nil)
			close(canceled)
		},
	}), agenttest.Options{Metadata: json.RawMessage(`{"of":"the first request"}`)})
	metadata := func(turn *agenttest.Turn) (of []string) {
		for _, e := range turn.Events() {
			if e.Metadata != nil {
				of = append(of, string(e.State)+" "+string(e.Metadata))
			}
		}
		return of
	}
	require.Equal(t, []string{`working {"step":1}`, `input-required {"step":2}`}, metadata(task.Say("one")))
	turn := task.Start(agent.Say("two")).Await(`working: "busy"`)
	task.Cancel()
	require.Equal(t, []string{`working {"step":3}`, `working {"step":4}`}, metadata(turn.Wait()))
	require.Equal(t, agent.Canceled, task.State())

	agenttest.New(t, does(func(_ context.Context, exec *a2asrv.ExecutorContext, yield yield) {
		odd := status(exec, a2a.TaskStateCompleted, "")
		odd.SetMeta("f", func() {})
		yield(odd, nil)
	})).Say("hi").Want("working", `failed: "The agent failed."`)
}

func TestMessagesAreReplies(t *testing.T) {
	t.Parallel()
	hello := yields(func(*a2asrv.ExecutorContext) []a2a.Event { return []a2a.Event{say("hello"), say("not read")} })
	agenttest.New(t, hello, agenttest.Options{DirectReplies: true}).Say("hi").Want(`reply: "hello"`)
	agenttest.New(t, hello).Say("hi").Want("working", `completed: "hello"`)
}

// A Task is the whole task: what differs from the stored one is emitted.
func TestTasksAreCompared(t *testing.T) {
	t.Parallel()
	task := agenttest.New(t, does(func(_ context.Context, exec *a2asrv.ExecutorContext, yield yield) {
		if exec.StoredTask == nil {
			first := a2a.NewArtifactEvent(exec, a2a.NewTextPart("a"))
			first.Artifact.ID = "x"
			_ = yield(first, nil) && yield(a2a.NewArtifactUpdateEvent(exec, "x", a2a.NewTextPart("b")), nil)
			snapshot := a2a.NewSubmittedTask(exec, exec.Message)
			snapshot.Status = a2a.TaskStatus{State: a2a.TaskStateInputRequired}
			snapshot.Artifacts = []*a2a.Artifact{
				{ID: "x", Parts: a2a.ContentParts{a2a.NewTextPart("ab")}},
				{ID: "y", Parts: a2a.ContentParts{a2a.NewTextPart("c")}},
			}
			yield(snapshot, nil)
			return
		}
		snapshot := exec.StoredTask
		require.Equal(t, snapshot.ID, exec.Message.TaskID)
		require.Equal(t, a2a.TaskStateInputRequired, snapshot.Status.State)
		require.Len(t, snapshot.History, 2)
		require.Equal(t, []string{"1", "2"}, []string{snapshot.History[0].Parts[0].Text(), snapshot.History[1].Parts[0].Text()})
		snapshot.Artifacts[1].Parts = a2a.ContentParts{a2a.NewTextPart("d")}
		snapshot.Status = a2a.TaskStatus{State: a2a.TaskStateCompleted}
		yield(snapshot, nil)
	}))
	task.Say("1").Want("working", `artifact x: "a"...`, `artifact x: +"b"...`, `artifact y: "c"`, "input-required")
	task.Say("2").Want("working", `artifact y: "d"`, "completed")
	require.Equal(t, "abd", task.Text())
}

// A retry replaces what the try before it left, although the SDK makes new random ids.
func TestRetryReplacesArtifacts(t *testing.T) {
	t.Parallel()
	task := agenttest.New(t, does(func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield) {
		run, ok := a2asdk.RunFrom(ctx)
		require.True(t, ok)
		require.NotEmpty(t, run.IdempotencyKey())
		event := func(name, text string) *a2a.TaskArtifactUpdateEvent {
			e := a2a.NewArtifactEvent(exec, a2a.NewTextPart(text))
			e.Artifact.Name = name
			return e
		}
		if run.Turn == 1 {
			_ = yield(event("plan", "old;"), nil) && yield(status(exec, a2a.TaskStateInputRequired, ""), nil)
			return
		}
		var done int
		_, err := run.Checkpoint(ctx, &done)
		require.NoError(t, err)
		require.Equal(t, run.Try-1, done)
		require.Len(t, exec.StoredTask.Artifacts, []int{1, 3}[run.Try-1])
		require.Equal(t, a2a.TaskStateInputRequired, exec.StoredTask.Status.State, "in every try")
		plan := event("plan", "new;")
		more := a2a.NewArtifactUpdateEvent(exec, plan.Artifact.ID, a2a.NewTextPart("more;"))
		more.Artifact.Name = "plan"
		_ = yield(event("log", "a;"), nil) && yield(plan, nil) && yield(more, nil)
		if run.Try == 1 {
			require.NoError(t, a2asdk.Checkpoint(ctx, 1))
			yield(nil, agent.Retryable(errors.New("the model is busy"), 0))
			return
		}
		yield(event("log", "b;"), nil)
	}))
	task.Say("1")
	task.Say("2").Want(
		"working", `artifact log: "a;"...`, `artifact plan: "new;"...`, `artifact plan: +"more;"...`, "checkpoint: 1", "retry: the model is busy",
		`artifact log: "a;"...`, `artifact plan: "new;"...`, `artifact plan: +"more;"...`, `artifact log: "b;"...`, "completed",
	)
	require.Equal(t, "old;a;new;more;b;", task.Text())
	for _, a := range task.Artifacts() {
		require.NoError(t, uuid.Validate(a.ID))
	}
}

func TestInvalidEventsNameTheMistake(t *testing.T) {
	t.Parallel()
	type exec = a2asrv.ExecutorContext
	other := a2a.TaskInfo{TaskID: "other", ContextID: "context"}
	for want, event := range map[string]func(e *exec) a2a.Event{
		"the event is a <nil>":                        func(*exec) a2a.Event { return nil },
		"the message is nil":                          func(*exec) a2a.Event { return (*a2a.Message)(nil) },
		"the status update is nil":                    func(*exec) a2a.Event { return (*a2a.TaskStatusUpdateEvent)(nil) },
		"the task is nil":                             func(*exec) a2a.Event { return (*a2a.Task)(nil) },
		"the artifact update has no artifact":         func(*exec) a2a.Event { return &a2a.TaskArtifactUpdateEvent{} },
		`the event is for task "other"`:               func(*exec) a2a.Event { return a2a.NewStatusUpdateEvent(other, a2a.TaskStateWorking, nil) },
		`the event is for context "elsewhere"`:        func(e *exec) a2a.Event { return &a2a.Task{ID: e.TaskID, ContextID: "elsewhere"} },
		`artifact "x": parts: must hold at least one`: func(e *exec) a2a.Event { return a2a.NewArtifactUpdateEvent(e, "x") },
		`status.state: "TASK_STATE_ODD" is not a`:     func(e *exec) a2a.Event { return status(e, "TASK_STATE_ODD", "") },
		`status.state: "TASK_STATE_UNSPECIFIED"`:      func(e *exec) a2a.Event { return status(e, "", "") },
		"parts[0] has no content":                     func(e *exec) a2a.Event { return a2a.NewArtifactEvent(e, &a2a.Part{}) },
		"parts[1] has no content":                     func(e *exec) a2a.Event { return a2a.NewArtifactEvent(e, a2a.NewTextPart("x"), nil) },
		"parts[0].data: json: unsupported":            func(e *exec) a2a.Event { return a2a.NewArtifactEvent(e, a2a.NewDataPart(func() {})) },
		"task.artifacts[0].parts: must hold": func(e *exec) a2a.Event {
			return &a2a.Task{ID: e.TaskID, ContextID: e.ContextID, Artifacts: []*a2a.Artifact{nil}}
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			turn := agenttest.New(t, yields(func(e *exec) []a2a.Event { return []a2a.Event{event(e)} })).Say("hi")
			turn.Want("working", `failed: "The agent failed."`)
			require.Contains(t, turn.Err(), want)
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	fails := func(err error) *agenttest.Turn {
		return agenttest.New(t, does(func(_ context.Context, _ *a2asrv.ExecutorContext, yield yield) { yield(nil, err) })).Say("hi")
	}
	fails(errors.New("secret")).Want("working", `failed: "The agent failed."`)
	fails(a2a.NewError(a2a.ErrInvalidParams, "Say more.")).Want("working", `failed: "Say more."`)
	fails(agent.Failure("No.", nil)).Want("working", `failed: "No."`)
	agenttest.New(t, does(func(context.Context, *a2asrv.ExecutorContext, yield) { panic("oh") })).
		Say("hi").Want("working", `failed: "The agent crashed."`)
}

func TestCancelIsCalledBesideExecute(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cancel func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield)
		want   []string
	}{
		"with a message": {func(_ context.Context, exec *a2asrv.ExecutorContext, yield yield) {
			yield(status(exec, a2a.TaskStateCanceled, "stopped"), nil)
		}, []string{`working: "stopped"`, "canceled"}},
		"with an artifact": {func(_ context.Context, exec *a2asrv.ExecutorContext, yield yield) {
			event := a2a.NewArtifactEvent(exec, a2a.NewTextPart("so far"))
			event.Artifact.ID, event.LastChunk = "rest", true
			_ = yield(event, nil) && yield(status(exec, a2a.TaskStateCanceled, ""), nil)
		}, []string{`artifact rest: "so far"`, "canceled"}},
		"completing": {func(_ context.Context, exec *a2asrv.ExecutorContext, yield yield) {
			yield(status(exec, a2a.TaskStateCompleted, "too late"), nil)
		}, []string{`completed: "too late"`}},
		"with an error": {func(_ context.Context, _ *a2asrv.ExecutorContext, yield yield) {
			yield(nil, errors.New("cannot"))
		}, []string{"canceled"}},
		"with a panic": {func(context.Context, *a2asrv.ExecutorContext, yield) { panic("oh") }, []string{"canceled"}},
		"as a snapshot": {func(_ context.Context, exec *a2asrv.ExecutorContext, yield yield) {
			exec.StoredTask.Status = a2a.TaskStatus{State: a2a.TaskStateCanceled}
			yield(exec.StoredTask, nil)
		}, []string{"canceled"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			canceled := make(chan struct{})
			task := agenttest.New(t, a2asdk.Wrap(&executor{
				execute: func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield) {
					require.True(t, yield(status(exec, a2a.TaskStateWorking, "busy"), nil))
					<-canceled // an executor may not look at its context
					yield(status(exec, a2a.TaskStateCanceled, ""), nil)
				},
				cancel: func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield) {
					defer close(canceled)
					require.NoError(t, ctx.Err())
					require.Nil(t, exec.Message)
					require.NotNil(t, exec.StoredTask)
					c.cancel(ctx, exec, yield)
				},
			}))
			turn := task.Start(agent.Say("hi")).Await(`working: "busy"`)
			task.Cancel()
			turn.Wait().Want(append([]string{"working", `working: "busy"`}, c.want...)...)
		})
	}
}

// A task without a run has ended when its agent is told.
func TestCancelIsCalledWithoutRun(t *testing.T) {
	t.Parallel()
	busy := agent.Retryable(errors.New("busy"), 0)
	for name, errs := range map[string][]error{"": {nil}, "with an error": {errors.New("gone")}, "again": {busy, busy, nil}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			c := &cleaned{results: make(chan a2a.SendMessageResult, 4), errs: make(chan error, 4)}
			c.execute = func(_ context.Context, exec *a2asrv.ExecutorContext, yield yield) {
				yield(status(exec, a2a.TaskStateInputRequired, "Where to?"), nil)
			}
			c.cancel = func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield) {
				require.Equal(t, true, ctx.Value(intercepted{}))
				require.Nil(t, exec.Message)
				require.Equal(t, a2a.TaskStateCanceled, exec.StoredTask.Status.State)
				require.Equal(t, exec.TaskID, exec.StoredTask.ID)
				require.Equal(t, map[string]any{"why": "x"}, exec.Metadata)
				require.Equal(t, "ada", exec.User.Name)
				_, ok := a2asdk.RunFrom(ctx)
				require.False(t, ok)
				calls++
				_ = yield(status(exec, a2a.TaskStateCanceled, "not shown"), nil) && yield(nil, errs[calls-1])
			}
			task := agenttest.New(t, a2asdk.Wrap(c, a2asdk.WithInterceptors(interceptor{})), agenttest.Options{Owner: "ada"})
			turn := task.Say("hi")
			<-c.results
			require.NoError(t, <-c.errs)
			task.CancelWith(json.RawMessage(`{"why":"x"}`))
			require.Equal(t, len(errs), calls)
			for _, err := range errs {
				require.ErrorIs(t, <-c.errs, err)
			}
			turn.Want("working", `input-required: "Where to?"`, "canceled")
		})
	}
}

// Only a client cancels: at other ends the context says why.
func TestCancelIsNotCalledWithoutClient(t *testing.T) {
	t.Parallel()
	task := agenttest.New(t, a2asdk.Wrap(&executor{
		execute: func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield) {
			run, _ := a2asdk.RunFrom(ctx)
			if run.Try > 1 {
				return
			}
			require.True(t, yield(status(exec, a2a.TaskStateWorking, "busy"), nil))
			<-ctx.Done()
			yield(nil, context.Cause(ctx))
		},
		cancel: func(context.Context, *a2asrv.ExecutorContext, yield) { t.Error("Cancel was called") },
	}))
	turn := task.Start(agent.Say("hi")).Await(`working: "busy"`)
	task.LoseLease()
	turn.Wait().Want("working", `working: "busy"`, "lost", "completed")
}

type cleaned struct {
	executor
	results chan a2a.SendMessageResult
	errs    chan error
}

func (c *cleaned) Cleanup(_ context.Context, _ *a2asrv.ExecutorContext, result a2a.SendMessageResult, err error) {
	c.results <- result
	c.errs <- err
}

type interceptor struct{}

type intercepted struct{}

func (interceptor) Intercept(ctx context.Context, exec *a2asrv.ExecutorContext) (context.Context, error) {
	if exec.Message != nil && exec.Message.Parts[0].Text() == "refuse" {
		return ctx, a2a.NewError(a2a.ErrUnauthorized, "Refused.")
	}
	return context.WithValue(ctx, intercepted{}, true), nil
}

func TestInterceptorsAndCleanup(t *testing.T) {
	t.Parallel()
	c := &cleaned{results: make(chan a2a.SendMessageResult, 1), errs: make(chan error, 1)}
	c.execute = func(ctx context.Context, exec *a2asrv.ExecutorContext, yield yield) {
		require.Equal(t, true, ctx.Value(intercepted{}))
		call, ok := a2asrv.CallContextFrom(ctx)
		require.True(t, ok)
		require.Equal(t, exec.User, call.User)
		yield(status(exec, a2a.TaskStateCompleted, "done"), nil)
	}
	wrapped := a2asdk.Wrap(c, a2asdk.WithInterceptors(interceptor{}))
	agenttest.New(t, wrapped).Say("hi").Want("working", `completed: "done"`)
	require.Equal(t, a2a.TaskStateCompleted, (<-c.results).(*a2a.Task).Status.State)
	require.NoError(t, <-c.errs)

	agenttest.New(t, wrapped).Say("refuse").Want("working", `failed: "Refused."`)
	require.Nil(t, <-c.results)
	require.ErrorIs(t, <-c.errs, a2a.ErrUnauthorized)
}

func TestContextsOfOthersHaveNoRun(t *testing.T) {
	t.Parallel()
	_, ok := a2asdk.RunFrom(t.Context())
	require.False(t, ok)
	require.ErrorContains(t, a2asdk.Checkpoint(t.Context(), 1), "not that of Execute")
}

// old is an executor of the 0.3 line.
type old struct{}

func (old) Execute(ctx context.Context, req *legacysrv.RequestContext, queue eventqueue.Queue) error {
	if req.StoredTask == nil {
		if err := queue.Write(ctx, legacy.NewStatusUpdateEvent(req, legacy.TaskStateSubmitted, nil)); err != nil {
			return err
		}
		ask := legacy.NewStatusUpdateEvent(req, legacy.TaskStateInputRequired, legacy.NewMessage(legacy.MessageRoleAgent, legacy.TextPart{Text: "Where to?"}))
		ask.Final = true
		return queue.Write(ctx, ask)
	}
	if req.StoredTask.Status.State != legacy.TaskStateInputRequired {
		return errors.New("not asked")
	}
	event := legacy.NewArtifactEvent(req, legacy.TextPart{Text: req.Message.Parts[0].(legacy.TextPart).Text}, legacy.DataPart{Data: map[string]any{"n": 1}})
	event.Artifact.Name = "trip"
	if err := queue.Write(ctx, event); err != nil {
		return err
	}
	done := legacy.NewStatusUpdateEvent(req, legacy.TaskStateCompleted, nil)
	done.Final = true
	return queue.Write(ctx, done)
}

func (old) Cancel(ctx context.Context, req *legacysrv.RequestContext, queue eventqueue.Queue) error {
	return queue.Write(ctx, legacy.NewStatusUpdateEvent(req, legacy.TaskStateCanceled, nil))
}

func TestExecutorOfThe03Line(t *testing.T) {
	t.Parallel()
	task := agenttest.New(t, a2asdk.Wrap(a2av0.NewAgentExecutor(old{})))
	task.Say("trip").Want("working", `input-required: "Where to?"`)
	task.Say("Oslo").Want("working", `artifact trip: "Oslo" [data {"n":1}]...`, "completed")
}
