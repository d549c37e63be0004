// Command trpc is a client of trpc-a2a-go: A2A 0.3 over JSON-RPC. interop/README.md has the scenarios.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"trpc.group/trpc-go/trpc-a2a-go/client"
	"trpc.group/trpc-go/trpc-a2a-go/log"
	"trpc.group/trpc-go/trpc-a2a-go/protocol"
	"trpc.group/trpc-go/trpc-a2a-go/server"

	interop "github.com/holdfast-a2a/holdfast/interop/clients/go-common"
)

// noSuchCall ends a scenario.
const noSuchCall = interop.Absent("A2AClient has no such call")

func main() {
	log.Default = zap.Must(zap.NewProduction()).Sugar() // to stderr: stdout has the results
	interop.Main(scenarios)
}

func scenarios(j interop.Job) ([]interop.Scenario, error) {
	s, err := connect(j)
	if err != nil {
		return nil, err
	}
	return []interop.Scenario{
		{Name: "card", Play: s.theCard},
		{Name: "send", Play: s.send},
		{Name: "return-immediately", Play: s.returnImmediately},
		{Name: "stream", Play: s.stream},
		{Name: "get", Play: s.get},
		{Name: "list", Play: noSuchCall.Play},
		{Name: "cancel", Play: s.cancel},
		{Name: "multi-turn", Play: s.multiTurn},
		{Name: "resubscribe", Play: s.resubscribe},
		{Name: "parts", Play: s.parts},
		{Name: "metadata", Play: s.metadata},
		{Name: "error-not-found", Play: s.errorNotFound},
		{Name: "error-terminal", Play: s.errorTerminal},
		{Name: "push-config", Play: s.pushConfig},
		{Name: "push", Play: s.push},
		{Name: "extended-card", Play: s.extendedCard},
		{Name: "concurrent", Play: s.concurrent},
	}, nil
}

// session has the clients for a scenario: for replica A, for B, and for A through the proxy.
type session struct {
	job           interop.Job
	card          *server.AgentCard
	a, b, through *client.A2AClient
}

// connect reads the card from A, and makes clients for the URL in it, with the address of each replica.
func connect(j interop.Job) (*session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), interop.Limit)
	defer cancel()
	finder, err := client.NewA2AClient(j.A)
	if err != nil {
		return nil, err
	}
	card, err := finder.GetAgentCard(ctx, "")
	if err != nil {
		return nil, err
	}
	if !strings.Contains(card.URL, j.A) {
		return nil, fmt.Errorf("the card has %s, which is not at %s", card.URL, j.A)
	}
	s := &session{job: j, card: card}
	for _, c := range []struct {
		client **client.A2AClient
		at     string
	}{{&s.a, j.A}, {&s.b, j.B}, {&s.through, j.Through}} {
		if *c.client, err = client.NewA2AClient(strings.Replace(card.URL, j.A, c.at, 1)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *session) theCard(context.Context) error {
	return interop.Want("name", s.card.Name, "demo")
}

func (s *session) send(ctx context.Context) error {
	task, err := sendText(ctx, s.a, "echo:hello")
	if err != nil {
		return err
	}
	return errors.Join(interop.Want("state", task.Status.State, protocol.TaskStateCompleted), interop.Want("text", textOf(task), "hello"))
}

func (s *session) returnImmediately(ctx context.Context) error {
	task, err := sendTask(ctx, s.a, says("sleep=300ms"), &protocol.SendMessageConfiguration{Blocking: new(false)})
	if err != nil {
		return err
	}
	if task.Status.State == protocol.TaskStateCompleted {
		return fmt.Errorf("the answer is %s already", task.Status.State)
	}
	for task.Status.State != protocol.TaskStateCompleted {
		time.Sleep(20 * time.Millisecond)
		if task, err = s.a.GetTasks(ctx, protocol.TaskQueryParams{ID: task.ID}); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) stream(ctx context.Context) error {
	events, err := s.a.StreamMessage(ctx, protocol.SendMessageParams{Message: says("chunks=20 size=64 delay=5ms")})
	if err != nil {
		return err
	}
	var seen follower
	for ev := range events {
		seen.take(ev)
	}
	return errors.Join(interop.Want("state", seen.state, protocol.TaskStateCompleted), interop.InOrder(seen.chunks, 20))
}

func (s *session) get(ctx context.Context) error {
	task, err := sendText(ctx, s.a, "ask:what?")
	if err != nil {
		return err
	}
	if _, err := sendTask(ctx, s.a, answer(task, "that"), nil); err != nil {
		return err
	}
	whole, err := s.a.GetTasks(ctx, protocol.TaskQueryParams{ID: task.ID})
	if err != nil {
		return err
	}
	short, err := s.a.GetTasks(ctx, protocol.TaskQueryParams{ID: task.ID, HistoryLength: new(1)})
	if err != nil {
		return err
	}
	var said []string
	for _, m := range whole.History {
		said = append(said, text(m.Parts[0]))
	}
	if len(short.History) != 1 {
		return fmt.Errorf("historyLength 1 returned %d messages", len(short.History))
	}
	return errors.Join(interop.Want("history", said, []string{"ask:what?", "what?", "that"}), interop.Want("artifacts", len(whole.Artifacts), 1),
		interop.Want("the newest message", short.History[0].MessageID, whole.History[2].MessageID))
}

func (s *session) cancel(ctx context.Context) error {
	task, err := sendTask(ctx, s.a, says("hold"), &protocol.SendMessageConfiguration{Blocking: new(false)})
	if err != nil {
		return err
	}
	canceled, err := s.a.CancelTasks(ctx, protocol.TaskIDParams{ID: task.ID})
	if err != nil {
		return err
	}
	return interop.Want("state", canceled.Status.State, protocol.TaskStateCanceled)
}

func (s *session) multiTurn(ctx context.Context) error {
	task, err := sendText(ctx, s.a, "ask:which?")
	if err != nil {
		return err
	}
	if err := interop.Want("state", task.Status.State, protocol.TaskStateInputRequired); err != nil {
		return err
	}
	if err := interop.Want("question", text(task.Status.Message.Parts[0]), "which?"); err != nil {
		return err
	}
	done, err := sendTask(ctx, s.b, answer(task, "the blue one"), nil)
	if err != nil {
		return err
	}
	if !strings.Contains(textOf(done), "the blue one") {
		return fmt.Errorf("%q does not quote the answer", textOf(done))
	}
	return errors.Join(interop.Want("task", done.ID, task.ID), interop.Want("state", done.Status.State, protocol.TaskStateCompleted))
}

func (s *session) resubscribe(ctx context.Context) error {
	const chunks = 60
	events, err := s.through.StreamMessage(ctx, protocol.SendMessageParams{
		Message: says(fmt.Sprintf("chunks=%d size=64 delay=100ms", chunks)),
	})
	if err != nil {
		return err
	}
	var seen follower
	cut := false
	for ev := range events { // until the cut
		seen.take(ev)
		if len(seen.chunks) == 5 && !cut {
			if err := s.job.CutConnections(ctx); err != nil {
				return err
			}
			cut = true
		}
	}
	if !cut || seen.state == protocol.TaskStateCompleted {
		return fmt.Errorf("not cut in the middle: %d chunks, %s", len(seen.chunks), seen.state)
	}
	if events, err = s.b.ResubscribeTask(ctx, protocol.TaskIDParams{ID: seen.task}); err != nil {
		return err
	}
	var rest follower
	for ev := range events {
		rest.take(ev)
	}
	task, err := s.b.GetTasks(ctx, protocol.TaskQueryParams{ID: seen.task})
	if err != nil {
		return err
	}
	return errors.Join(interop.Want("state", rest.state, protocol.TaskStateCompleted), interop.InOrder(rest.chunks, chunks),
		interop.InOrder(interop.Chunks(textOf(task)), chunks))
}

func (s *session) parts(ctx context.Context) error {
	text, file, data := protocol.NewTextPart("look"),
		protocol.NewFilePartWithBytes("some.bin", "application/octet-stream", base64.StdEncoding.EncodeToString([]byte("\x00\x01\xfe\xff bytes"))),
		protocol.NewDataPart(map[string]any{"n": 1.5, "list": []any{"x", nil, true}, "o": map[string]any{"k": "ü"}})
	data.Metadata = map[string]any{"of": "part"}
	sent := []protocol.Part{&text, &file, &data}
	task, err := sendTask(ctx, s.a, protocol.NewMessage(protocol.MessageRoleUser, sent), nil)
	if err != nil {
		return err
	}
	got, err := s.a.GetTasks(ctx, protocol.TaskQueryParams{ID: task.ID})
	if err != nil {
		return err
	}
	if len(got.History) != 1 {
		return fmt.Errorf("history has %d messages", len(got.History))
	}
	withFile, err := sendText(ctx, s.a, "file")
	if err != nil {
		return err
	}
	withData, err := sendText(ctx, s.a, "data")
	if err != nil {
		return err
	}
	f, ok := withFile.Artifacts[0].Parts[0].(*protocol.FilePart)
	if !ok {
		return fmt.Errorf("the file is a %T", withFile.Artifacts[0].Parts[0])
	}
	d, ok := withData.Artifacts[0].Parts[0].(*protocol.DataPart)
	if !ok {
		return fmt.Errorf("the data is a %T", withData.Artifacts[0].Parts[0])
	}
	object, _ := d.Data.(map[string]any)
	return errors.Join(
		same("parts", got.History[0].Parts, sent),
		same("file", f.File, map[string]string{
			"name": "hello.txt", "mimeType": "text/plain", "bytes": base64.StdEncoding.EncodeToString([]byte("Hello from Holdfast.\n")),
		}),
		interop.Want("data", object["greeting"], any("hello")),
	)
}

func (s *session) metadata(ctx context.Context) error {
	m := says("echo:x")
	m.Metadata = map[string]any{
		"plain": "text", "nested": map[string]any{"list": []any{1.0, "two", nil, map[string]any{"deep": true}}, "empty": map[string]any{}},
	}
	task, err := sendTask(ctx, s.a, m, nil)
	if err != nil {
		return err
	}
	got, err := s.a.GetTasks(ctx, protocol.TaskQueryParams{ID: task.ID})
	if err != nil {
		return err
	}
	return same("metadata", got.History[0].Metadata, m.Metadata)
}

func (s *session) errorNotFound(ctx context.Context) error {
	_, err := s.a.GetTasks(ctx, protocol.TaskQueryParams{ID: protocol.GenerateTaskID()})
	return wantCode(err, -32001)
}

func (s *session) errorTerminal(ctx context.Context) error {
	task, err := sendText(ctx, s.a, "echo:done")
	if err != nil {
		return err
	}
	_, err = s.a.CancelTasks(ctx, protocol.TaskIDParams{ID: task.ID})
	return wantCode(err, -32002)
}

// pushConfig has no calls to list and delete, and none that names the id of a webhook.
func (s *session) pushConfig(ctx context.Context) error {
	task, err := sendText(ctx, s.a, "ask:which?")
	if err != nil {
		return err
	}
	_, err = s.a.GetPushNotification(ctx, protocol.TaskIDParams{ID: task.ID})
	if err := wantCode(err, -32001); err != nil {
		return err
	}
	hook := s.hook("one")
	set, err := s.a.SetPushNotification(ctx, protocol.TaskPushNotificationConfig{TaskID: task.ID, PushNotificationConfig: hook})
	if err != nil {
		return err
	}
	got, err := s.b.GetPushNotification(ctx, protocol.TaskIDParams{ID: task.ID})
	if err != nil {
		return err
	}
	for _, config := range []*protocol.TaskPushNotificationConfig{set, got} {
		if err := errors.Join(interop.Want("task", config.TaskID, task.ID), interop.Want("id", config.PushNotificationConfig.ID, "one"),
			interop.Want("url", config.PushNotificationConfig.URL, hook.URL)); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) push(ctx context.Context) error {
	hook := s.hook("inline")
	task, err := sendTask(ctx, s.a, says("chunks=3 size=64 delay=20ms"),
		&protocol.SendMessageConfiguration{Blocking: new(false), PushNotificationConfig: &hook})
	if err != nil {
		return err
	}
	if err := s.delivered(ctx, "inline", task.ID, protocol.TaskStateWorking, protocol.TaskStateCompleted); err != nil {
		return err
	}
	asked, err := sendText(ctx, s.a, "ask:which?")
	if err != nil {
		return err
	}
	if _, err := s.a.SetPushNotification(ctx, protocol.TaskPushNotificationConfig{
		TaskID: asked.ID, PushNotificationConfig: s.hook("later"),
	}); err != nil {
		return err
	}
	if _, err := sendTask(ctx, s.b, answer(asked, "the blue one"), nil); err != nil {
		return err
	}
	return s.delivered(ctx, "later", asked.ID,
		protocol.TaskStateSubmitted, protocol.TaskStateWorking, protocol.TaskStateCompleted)
}

// hook is a webhook at a path of the receiver.
func (s *session) hook(id string) protocol.PushNotificationConfig {
	return protocol.PushNotificationConfig{
		ID: id, URL: s.job.Receiver + "/" + id, Token: "token of " + id,
		Authentication: &protocol.AuthenticationInfo{Schemes: []string{"Bearer"}, Credentials: new("credentials-" + id)},
	}
}

// delivered holds if a webhook gets these states of a task, each once and in this order.
func (s *session) delivered(ctx context.Context, id, task string, states ...protocol.TaskState) error {
	arrived, err := s.job.Arrived(ctx, id, len(states))
	if err != nil {
		return err
	}
	var got []protocol.TaskState
	for _, d := range arrived {
		var then protocol.Task
		if err := json.Unmarshal([]byte(d.Body), &then); err != nil {
			return fmt.Errorf("%s: %w", d.Body, err)
		}
		made := 0
		if then.Status.State == protocol.TaskStateCompleted {
			made = 1
		}
		if err := errors.Join(interop.Want("task", then.ID, task), interop.Want("artifacts at "+string(then.Status.State), len(then.Artifacts), made),
			interop.Want("token", d.Headers["x-a2a-notification-token"], "token of "+id),
			interop.Want("authorization", d.Headers["authorization"], "Bearer credentials-"+id),
			interop.Want("content type", d.Headers["content-type"], "application/json")); err != nil {
			return err
		}
		got = append(got, then.Status.State)
	}
	return interop.Want("states delivered to "+id, got, states)
}

func (s *session) extendedCard(ctx context.Context) error {
	card, err := s.a.GetAuthenticatedExtendedCard(ctx)
	if err != nil {
		return err
	}
	return interop.Want("name", card.Name, "demo")
}

func (s *session) concurrent(ctx context.Context) error {
	const sends = 20
	tasks, errs := make([]*protocol.Task, sends), make([]error, sends)
	var all sync.WaitGroup
	for i := range sends {
		all.Go(func() { tasks[i], errs[i] = sendText(ctx, s.a, fmt.Sprint("echo:", i)) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	ids := map[string]bool{}
	for i, task := range tasks {
		ids[task.ID] = true
		if err := errors.Join(interop.Want("state", task.Status.State, protocol.TaskStateCompleted), interop.Want("text", textOf(task), fmt.Sprint(i))); err != nil {
			return err
		}
	}
	return interop.Want("tasks", len(ids), sends)
}

func says(text string) protocol.Message {
	return protocol.NewMessage(protocol.MessageRoleUser, []protocol.Part{protocol.NewTextPart(text)})
}

// answer is a message that continues a task.
func answer(task *protocol.Task, text string) protocol.Message {
	return protocol.NewMessageWithContext(protocol.MessageRoleUser, []protocol.Part{protocol.NewTextPart(text)}, &task.ID, &task.ContextID)
}

func sendText(ctx context.Context, c *client.A2AClient, text string) (*protocol.Task, error) {
	return sendTask(ctx, c, says(text), nil)
}

func sendTask(
	ctx context.Context, c *client.A2AClient, m protocol.Message, config *protocol.SendMessageConfiguration,
) (*protocol.Task, error) {
	res, err := c.SendMessage(ctx, protocol.SendMessageParams{RPCID: protocol.GenerateRPCID(), Message: m, Configuration: config})
	if err != nil {
		return nil, err
	}
	task, ok := res.Result.(*protocol.Task)
	if !ok {
		return nil, fmt.Errorf("the answer is a %T", res.Result)
	}
	return task, nil
}

// textOf is the text of a task's artifacts.
func textOf(task *protocol.Task) string {
	var b strings.Builder
	for _, artifact := range task.Artifacts {
		for _, p := range artifact.Parts {
			b.WriteString(text(p))
		}
	}
	return b.String()
}

// text is the text of a part, or "".
func text(p protocol.Part) string {
	t, ok := p.(*protocol.TextPart)
	if !ok {
		return ""
	}
	return t.Text
}

// follower assembles the events of a stream.
type follower struct {
	task   string
	state  protocol.TaskState
	chunks []string
}

func (f *follower) take(ev protocol.StreamingMessageEvent) {
	switch e := ev.Result.(type) {
	case *protocol.Task:
		f.task, f.state, f.chunks = e.ID, e.Status.State, interop.Chunks(textOf(e))
	case *protocol.TaskStatusUpdateEvent:
		f.task, f.state = e.TaskID, e.Status.State
	case *protocol.TaskArtifactUpdateEvent:
		f.task = e.TaskID
		for _, p := range e.Artifact.Parts {
			f.chunks = append(f.chunks, text(p))
		}
	}
}

// same compares values as JSON, whatever the order of members.
func same(what string, got, expected any) error {
	var plain [2]any
	for i, v := range []any{got, expected} {
		content, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(content, &plain[i]); err != nil {
			return err
		}
	}
	return interop.Want(what, plain[0], plain[1])
}

// wantCode holds if an error has a code of A2A. The client's type of errors is internal; only its text is public.
func wantCode(err error, code int) error {
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(code)) {
		return fmt.Errorf("got %v, want %d", err, code)
	}
	return nil
}
