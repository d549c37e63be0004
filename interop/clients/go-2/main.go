// Command go-2 is a client of a2a-go v2: A2A 1.0 over JSON-RPC, HTTP+JSON and gRPC. interop/README.md has the scenarios.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	interop "github.com/holdfast-a2a/holdfast/interop/clients/go-common"
)

func main() { interop.Main(scenarios) }

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
		{Name: "list", Play: s.list},
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
		{Name: "auth", Play: s.auth},
		{Name: "auth-card", Play: s.authCard},
	}, nil
}

// session has the clients for a scenario: for replica A, for B, and for A through the proxy.
type session struct {
	job           interop.Job
	card          *a2a.AgentCard
	a, b, through *a2aclient.Client
}

func connect(j interop.Job) (*session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), interop.Limit)
	defer cancel()
	card, err := agentcard.DefaultResolver.Resolve(ctx, j.A)
	if err != nil {
		return nil, err
	}
	s := &session{job: j, card: card}
	for _, c := range []struct {
		client **a2aclient.Client
		http   string
		grpc   string
	}{
		{&s.a, j.A, j.GRPCA},
		{&s.b, j.B, j.GRPCB},
		{&s.through, j.Through, j.GRPCThrough},
	} {
		if *c.client, err = s.clientAt(ctx, card, c.http, c.grpc); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// clientAt makes a client from A's card, with another replica's address instead of A's.
func (s *session) clientAt(ctx context.Context, from *a2a.AgentCard, httpURL, grpcAddr string, more ...a2aclient.FactoryOption) (*a2aclient.Client, error) {
	protocol := map[string]a2a.TransportProtocol{
		"jsonrpc": a2a.TransportProtocolJSONRPC, "rest": a2a.TransportProtocolHTTPJSON, "grpc": a2a.TransportProtocolGRPC,
	}[s.job.Binding]
	card := *from
	card.SupportedInterfaces = nil
	for _, i := range from.SupportedInterfaces {
		if i.ProtocolBinding != protocol {
			continue
		}
		from, to := s.job.A, httpURL
		if protocol == a2a.TransportProtocolGRPC {
			from, to = s.job.GRPCA, grpcAddr
		}
		if !strings.Contains(i.URL, from) {
			return nil, fmt.Errorf("the card has %s, which is not at %s", i.URL, from)
		}
		moved := *i
		moved.URL = strings.Replace(i.URL, from, to, 1)
		card.SupportedInterfaces = append(card.SupportedInterfaces, &moved)
	}
	more = append(more, a2agrpc.WithGRPCTransport(grpc.WithTransportCredentials(insecure.NewCredentials())))
	return a2aclient.NewFromCard(ctx, &card, more...)
}

func (s *session) theCard(context.Context) error {
	return interop.Want("name", s.card.Name, "demo")
}

func (s *session) send(ctx context.Context) error {
	task, err := sendText(ctx, s.a, "echo:hello")
	if err != nil {
		return err
	}
	return errors.Join(interop.Want("state", task.Status.State, a2a.TaskStateCompleted), interop.Want("text", textOf(task), "hello"))
}

func (s *session) returnImmediately(ctx context.Context) error {
	task, err := sendTask(ctx, s.a, &a2a.SendMessageRequest{
		Message: says("sleep=300ms"), Config: &a2a.SendMessageConfig{ReturnImmediately: true},
	})
	if err != nil {
		return err
	}
	if task.Status.State.Terminal() {
		return fmt.Errorf("the answer is %s already", task.Status.State)
	}
	for !task.Status.State.Terminal() {
		time.Sleep(20 * time.Millisecond)
		if task, err = s.a.GetTask(ctx, &a2a.GetTaskRequest{ID: task.ID}); err != nil {
			return err
		}
	}
	return interop.Want("state", task.Status.State, a2a.TaskStateCompleted)
}

func (s *session) stream(ctx context.Context) error {
	var seen follower
	for ev, err := range s.a.SendStreamingMessage(ctx, &a2a.SendMessageRequest{Message: says("chunks=20 size=64 delay=5ms")}) {
		if err != nil {
			return err
		}
		seen.take(ev)
	}
	return errors.Join(interop.Want("state", seen.state, a2a.TaskStateCompleted), interop.InOrder(seen.chunks, 20))
}

func (s *session) get(ctx context.Context) error {
	task, err := sendText(ctx, s.a, "ask:what?")
	if err != nil {
		return err
	}
	answer := a2a.NewMessageForTask(a2a.MessageRoleUser, task, a2a.NewTextPart("that"))
	if _, err := sendTask(ctx, s.a, &a2a.SendMessageRequest{Message: answer}); err != nil {
		return err
	}
	whole, err := s.a.GetTask(ctx, &a2a.GetTaskRequest{ID: task.ID})
	if err != nil {
		return err
	}
	one := 1
	short, err := s.a.GetTask(ctx, &a2a.GetTaskRequest{ID: task.ID, HistoryLength: &one})
	if err != nil {
		return err
	}
	var said []string
	for _, m := range whole.History {
		said = append(said, m.Parts[0].Text())
	}
	if len(short.History) != 1 {
		return fmt.Errorf("historyLength 1 returned %d messages", len(short.History))
	}
	return errors.Join(interop.Want("history", said, []string{"ask:what?", "what?", "that"}), interop.Want("artifacts", len(whole.Artifacts), 1),
		interop.Want("the newest message", short.History[0].ID, whole.History[2].ID))
}

func (s *session) list(ctx context.Context) error {
	contextID := a2a.NewContextID()
	made := map[a2a.TaskID]int{}
	for i := range 3 {
		m := says(fmt.Sprint("echo:", i))
		m.ContextID = contextID
		task, err := sendTask(ctx, s.a, &a2a.SendMessageRequest{Message: m})
		if err != nil {
			return err
		}
		made[task.ID] = 0
	}
	first, err := s.a.ListTasks(ctx, &a2a.ListTasksRequest{ContextID: contextID, PageSize: 2})
	if err != nil {
		return err
	}
	second, err := s.a.ListTasks(ctx, &a2a.ListTasksRequest{ContextID: contextID, PageSize: 2, PageToken: first.NextPageToken})
	if err != nil {
		return err
	}
	for _, task := range append(first.Tasks, second.Tasks...) {
		made[task.ID]++
	}
	whole, err := s.a.ListTasks(ctx, &a2a.ListTasksRequest{ContextID: contextID})
	if err != nil {
		return err
	}
	if len(whole.Tasks) != 3 {
		return fmt.Errorf("%d tasks on a page of the server's size", len(whole.Tasks))
	}
	for id, times := range made {
		if times != 1 {
			return fmt.Errorf("task %s is listed %d times", id, times)
		}
	}
	return errors.Join(interop.Want("tasks", len(made), 3), interop.Want("first page", len(first.Tasks), 2),
		interop.Want("total", first.TotalSize, 3), interop.Want("token after the last page", second.NextPageToken, ""))
}

func (s *session) cancel(ctx context.Context) error {
	task, err := sendTask(ctx, s.a, &a2a.SendMessageRequest{
		Message: says("hold"), Config: &a2a.SendMessageConfig{ReturnImmediately: true},
	})
	if err != nil {
		return err
	}
	canceled, err := s.a.CancelTask(ctx, &a2a.CancelTaskRequest{ID: task.ID})
	if err != nil {
		return err
	}
	return interop.Want("state", canceled.Status.State, a2a.TaskStateCanceled)
}

func (s *session) multiTurn(ctx context.Context) error {
	task, err := sendText(ctx, s.a, "ask:which?")
	if err != nil {
		return err
	}
	if err := interop.Want("state", task.Status.State, a2a.TaskStateInputRequired); err != nil {
		return err
	}
	if err := interop.Want("question", task.Status.Message.Parts[0].Text(), "which?"); err != nil {
		return err
	}
	answer := a2a.NewMessageForTask(a2a.MessageRoleUser, task, a2a.NewTextPart("the blue one"))
	done, err := sendTask(ctx, s.b, &a2a.SendMessageRequest{Message: answer})
	if err != nil {
		return err
	}
	if !strings.Contains(textOf(done), "the blue one") {
		return fmt.Errorf("%q does not quote the answer", textOf(done))
	}
	return errors.Join(interop.Want("task", done.ID, task.ID), interop.Want("state", done.Status.State, a2a.TaskStateCompleted))
}

func (s *session) resubscribe(ctx context.Context) error {
	const chunks = 60
	var seen follower
	cut := false
	for ev, err := range s.through.SendStreamingMessage(ctx, &a2a.SendMessageRequest{
		Message: says(fmt.Sprintf("chunks=%d size=64 delay=100ms", chunks)),
	}) {
		if err != nil {
			break // the cut
		}
		seen.take(ev)
		if len(seen.chunks) == 5 && !cut {
			if err := s.job.CutConnections(ctx); err != nil {
				return err
			}
			cut = true
		}
	}
	if !cut || seen.state == a2a.TaskStateCompleted {
		return fmt.Errorf("not cut in the middle: %d chunks, %s", len(seen.chunks), seen.state)
	}
	var rest follower
	for ev, err := range s.b.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: seen.task}) {
		if err != nil {
			return err
		}
		rest.take(ev)
	}
	task, err := s.b.GetTask(ctx, &a2a.GetTaskRequest{ID: seen.task})
	if err != nil {
		return err
	}
	return errors.Join(interop.Want("state", rest.state, a2a.TaskStateCompleted), interop.InOrder(rest.chunks, chunks),
		interop.InOrder(interop.Chunks(textOf(task)), chunks))
}

func (s *session) parts(ctx context.Context) error {
	sent := []*a2a.Part{
		a2a.NewTextPart("look"),
		{Content: a2a.Raw("\x00\x01\xfe\xff bytes"), Filename: "some.bin", MediaType: "application/octet-stream"},
		{
			Content:  a2a.Data{Value: map[string]any{"n": 1.5, "list": []any{"x", nil, true}, "o": map[string]any{"k": "ü"}}},
			Metadata: map[string]any{"of": "part"},
		},
	}
	task, err := sendTask(ctx, s.a, &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, sent...)})
	if err != nil {
		return err
	}
	got, err := s.a.GetTask(ctx, &a2a.GetTaskRequest{ID: task.ID})
	if err != nil {
		return err
	}
	if len(got.History) != 1 {
		return fmt.Errorf("history has %d messages", len(got.History))
	}
	file, err := sendText(ctx, s.a, "file")
	if err != nil {
		return err
	}
	data, err := sendText(ctx, s.a, "data")
	if err != nil {
		return err
	}
	f := file.Artifacts[0].Parts[0]
	object, _ := data.Artifacts[0].Parts[0].Data().(map[string]any)
	return errors.Join(
		interop.Same("parts", []*a2a.Part(got.History[0].Parts), sent),
		interop.Want("file", string(f.Raw()), "Hello from Holdfast.\n"), interop.Want("name", f.Filename, "hello.txt"),
		interop.Want("type", f.MediaType, "text/plain"), interop.Want("data", object["greeting"], any("hello")),
	)
}

func (s *session) metadata(ctx context.Context) error {
	m := says("echo:x")
	m.Metadata = map[string]any{
		"plain": "text", "nested": map[string]any{"list": []any{1.0, "two", nil, map[string]any{"deep": true}}, "empty": map[string]any{}},
	}
	task, err := sendTask(ctx, s.a, &a2a.SendMessageRequest{Message: m})
	if err != nil {
		return err
	}
	got, err := s.a.GetTask(ctx, &a2a.GetTaskRequest{ID: task.ID})
	if err != nil {
		return err
	}
	return interop.Same("metadata", got.History[0].Metadata, m.Metadata)
}

func (s *session) errorNotFound(ctx context.Context) error {
	_, err := s.a.GetTask(ctx, &a2a.GetTaskRequest{ID: a2a.NewTaskID()})
	return wantError(err, a2a.ErrTaskNotFound)
}

func (s *session) errorTerminal(ctx context.Context) error {
	task, err := sendText(ctx, s.a, "echo:done")
	if err != nil {
		return err
	}
	_, err = s.a.CancelTask(ctx, &a2a.CancelTaskRequest{ID: task.ID})
	return wantError(err, a2a.ErrTaskNotCancelable)
}

func (s *session) pushConfig(ctx context.Context) error {
	task, err := sendText(ctx, s.a, "ask:which?")
	if err != nil {
		return err
	}
	for _, id := range []string{"one", "two"} {
		hook := s.hook(id)
		hook.TaskID = task.ID
		set, err := s.a.CreateTaskPushConfig(ctx, hook)
		if err != nil {
			return err
		}
		if err := errors.Join(interop.Want("task", set.TaskID, task.ID), interop.Want("id", set.ID, id), interop.Want("url", set.URL, hook.URL)); err != nil {
			return err
		}
	}
	got, err := s.b.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigRequest{TaskID: task.ID, ID: "one"})
	if err != nil {
		return err
	}
	both, err := s.b.ListTaskPushConfigs(ctx, &a2a.ListTaskPushConfigRequest{TaskID: task.ID})
	if err != nil {
		return err
	}
	for range 2 { // it is gone either way
		if err := s.a.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigRequest{TaskID: task.ID, ID: "one"}); err != nil {
			return err
		}
	}
	left, err := s.a.ListTaskPushConfigs(ctx, &a2a.ListTaskPushConfigRequest{TaskID: task.ID})
	if err != nil {
		return err
	}
	_, err = s.a.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigRequest{TaskID: task.ID, ID: "one"})
	return errors.Join(wantError(err, a2a.ErrTaskNotFound),
		interop.Want("task", got.TaskID, task.ID), interop.Want("id", got.ID, "one"), interop.Want("url", got.URL, s.hook("one").URL),
		interop.Want("listed", idsOf(both), []string{"one", "two"}), interop.Want("left", idsOf(left), []string{"two"}))
}

func (s *session) push(ctx context.Context) error {
	task, err := sendTask(ctx, s.a, &a2a.SendMessageRequest{
		Message: says("chunks=3 size=64 delay=20ms"),
		Config:  &a2a.SendMessageConfig{ReturnImmediately: true, PushConfig: s.hook("inline")},
	})
	if err != nil {
		return err
	}
	if err := s.delivered(ctx, "inline", task.ID, a2a.TaskStateWorking, a2a.TaskStateCompleted); err != nil {
		return err
	}
	asked, err := sendText(ctx, s.a, "ask:which?")
	if err != nil {
		return err
	}
	for _, id := range []string{"kept", "deleted"} {
		hook := s.hook(id)
		hook.TaskID = asked.ID
		if _, err := s.a.CreateTaskPushConfig(ctx, hook); err != nil {
			return err
		}
	}
	if err := s.b.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigRequest{TaskID: asked.ID, ID: "deleted"}); err != nil {
		return err
	}
	answer := a2a.NewMessageForTask(a2a.MessageRoleUser, asked, a2a.NewTextPart("the blue one"))
	if _, err := sendTask(ctx, s.b, &a2a.SendMessageRequest{Message: answer}); err != nil {
		return err
	}
	return errors.Join(
		s.delivered(ctx, "kept", asked.ID, a2a.TaskStateSubmitted, a2a.TaskStateWorking, a2a.TaskStateCompleted),
		s.delivered(ctx, "deleted", asked.ID))
}

// hook is a webhook at a path of the receiver.
func (s *session) hook(id string) *a2a.PushConfig {
	return &a2a.PushConfig{
		ID: id, URL: s.job.Receiver + "/" + id, Token: "token of " + id,
		Auth: &a2a.PushAuthInfo{Scheme: "Bearer", Credentials: "credentials-" + id},
	}
}

// delivered holds if a webhook gets these states of a task, each once and in this order.
func (s *session) delivered(ctx context.Context, id string, task a2a.TaskID, states ...a2a.TaskState) error {
	hook := s.hook(id)
	arrived, err := s.job.Arrived(ctx, id, len(states))
	if err != nil {
		return err
	}
	var got []a2a.TaskState
	for _, d := range arrived {
		var body a2a.StreamResponse
		if err := json.Unmarshal([]byte(d.Body), &body); err != nil {
			return fmt.Errorf("%s: %w", d.Body, err)
		}
		update, ok := body.Event.(*a2a.TaskStatusUpdateEvent)
		if !ok {
			return fmt.Errorf("delivered was a %T", body.Event)
		}
		if err := errors.Join(interop.Want("task", update.TaskID, task),
			interop.Want("token", d.Headers["a2a-notification-token"], hook.Token),
			interop.Want("token in the header of 0.3", d.Headers["x-a2a-notification-token"], hook.Token),
			interop.Want("authorization", d.Headers["authorization"], "Bearer "+hook.Auth.Credentials),
			interop.Want("content type", d.Headers["content-type"], "application/a2a+json")); err != nil {
			return err
		}
		got = append(got, update.Status.State)
	}
	return interop.Want("states delivered to "+id, got, states)
}

func idsOf(configs []*a2a.PushConfig) []string {
	var ids []string
	for _, c := range configs {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return ids
}

func (s *session) extendedCard(ctx context.Context) error {
	card, err := s.a.GetExtendedAgentCard(ctx, &a2a.GetExtendedAgentCardRequest{})
	if err != nil {
		return err
	}
	return interop.Want("name", card.Name, "demo")
}

func (s *session) concurrent(ctx context.Context) error {
	const sends = 20
	tasks, errs := make([]*a2a.Task, sends), make([]error, sends)
	var all sync.WaitGroup
	for i := range sends {
		all.Go(func() { tasks[i], errs[i] = sendText(ctx, s.a, fmt.Sprint("echo:", i)) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	ids := map[a2a.TaskID]bool{}
	for i, task := range tasks {
		ids[task.ID] = true
		if err := errors.Join(interop.Want("state", task.Status.State, a2a.TaskStateCompleted), interop.Want("text", textOf(task), fmt.Sprint(i))); err != nil {
			return err
		}
	}
	return interop.Want("tasks", len(ids), sends)
}

// unlock makes a client of the server that requires credentials. The SDK adds the credential of a session, by the schemes of
// the card.
func (s *session) unlock(ctx context.Context) (*a2a.AgentCard, *a2aclient.Client, error) {
	card, err := (&agentcard.Resolver{CardParser: readCard}).Resolve(ctx, s.job.Locked)
	if err != nil {
		return nil, nil, err
	}
	credentials := a2aclient.NewInMemoryCredentialsStore()
	credentials.Set("wrong", "keys", "hfk_wrong")
	credentials.Set("wrong token", "sso", "not.a.token")
	credentials.Set("key", "keys", a2aclient.AuthCredential(s.job.APIKey))
	credentials.Set("token", "sso", a2aclient.AuthCredential(s.job.Token))
	locked := &session{job: s.job}
	locked.job.A, locked.job.GRPCA = s.job.Locked, s.job.GRPCLocked
	client, err := locked.clientAt(ctx, card, s.job.Locked, s.job.GRPCLocked,
		a2aclient.WithCallInterceptors(&a2aclient.AuthInterceptor{Service: credentials}))
	return card, client, err
}

func (s *session) auth(ctx context.Context) error {
	_, client, err := s.unlock(ctx)
	if err != nil {
		return err
	}
	for _, refused := range []a2aclient.SessionID{"none", "wrong", "wrong token"} {
		as := a2aclient.AttachSessionID(ctx, refused)
		_, err := sendText(as, client, "echo:x")
		_, get := client.GetTask(as, &a2a.GetTaskRequest{ID: a2a.NewTaskID()})
		if err := errors.Join(s.wantUnauthenticated(err), s.wantUnauthenticated(get)); err != nil {
			return fmt.Errorf("credential %q: %w", refused, err)
		}
	}
	for _, accepted := range []a2aclient.SessionID{"key", "token"} {
		as := a2aclient.AttachSessionID(ctx, accepted)
		task, err := sendText(as, client, "echo:hello")
		if err != nil {
			return fmt.Errorf("credential %q: %w", accepted, err)
		}
		var seen follower
		for ev, err := range client.SendStreamingMessage(as, &a2a.SendMessageRequest{Message: says("chunks=3 size=64")}) {
			if err != nil {
				return fmt.Errorf("credential %q: %w", accepted, err)
			}
			seen.take(ev)
		}
		if err := errors.Join(interop.Want("text", textOf(task), "hello"), interop.InOrder(seen.chunks, 3)); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) authCard(ctx context.Context) error {
	card, client, err := s.unlock(ctx)
	if err != nil {
		return err
	}
	get := func(session a2aclient.SessionID) (*a2a.AgentCard, error) {
		return client.GetExtendedAgentCard(a2aclient.AttachSessionID(ctx, session), &a2a.GetExtendedAgentCardRequest{})
	}
	_, err = get("wrong")
	if err := s.wantUnauthenticated(err); err != nil {
		return err
	}
	extended, err := get("key")
	if err != nil {
		return err
	}
	return errors.Join(interop.Want("public skills", skills(card), []string{"open"}), interop.Want("skills", skills(extended), []string{"open", "hidden"}))
}

// readCard reads a card as DefaultCardParser does. The SDK reads the scopes of a scheme as a list, and not as the object with a
// list that 1.0 has there (https://github.com/a2aproject/a2a-go/issues/430).
func readCard(document []byte) (*a2a.AgentCard, error) {
	var card map[string]any
	if err := json.Unmarshal(document, &card); err != nil {
		return nil, err
	}
	requirements, _ := card["securityRequirements"].([]any)
	for _, r := range requirements {
		schemes, _ := r.(map[string]any)["schemes"].(map[string]any)
		for name, scopes := range schemes {
			if wrapped, ok := scopes.(map[string]any); ok {
				schemes[name] = wrapped["list"]
			}
		}
	}
	flat, err := json.Marshal(card)
	if err != nil {
		return nil, err
	}
	return agentcard.DefaultCardParser(flat)
}

// wantUnauthenticated holds for the error of a request without a valid credential. Over JSON-RPC the SDK does not read
// errors of another HTTP status than 200.
func (s *session) wantUnauthenticated(err error) error {
	if s.job.Binding == "jsonrpc" {
		if err == nil || !strings.Contains(err.Error(), "401 Unauthorized") {
			return fmt.Errorf("got %v, want 401 Unauthorized", err)
		}
		return nil
	}
	return wantError(err, a2a.ErrUnauthenticated)
}

func skills(card *a2a.AgentCard) []string {
	var ids []string
	for _, skill := range card.Skills {
		ids = append(ids, skill.ID)
	}
	return ids
}

func says(text string) *a2a.Message {
	return a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))
}

func sendText(ctx context.Context, c *a2aclient.Client, text string) (*a2a.Task, error) {
	return sendTask(ctx, c, &a2a.SendMessageRequest{Message: says(text)})
}

func sendTask(ctx context.Context, c *a2aclient.Client, r *a2a.SendMessageRequest) (*a2a.Task, error) {
	res, err := c.SendMessage(ctx, r)
	if err != nil {
		return nil, err
	}
	task, ok := res.(*a2a.Task)
	if !ok {
		return nil, fmt.Errorf("the answer is a %T", res)
	}
	return task, nil
}

// textOf is the text of a task's first artifact.
func textOf(task *a2a.Task) string {
	var b strings.Builder
	for _, artifact := range task.Artifacts {
		for _, p := range artifact.Parts {
			b.WriteString(p.Text())
		}
	}
	return b.String()
}

// follower assembles the events of a stream.
type follower struct {
	task   a2a.TaskID
	state  a2a.TaskState
	chunks []string
}

func (f *follower) take(ev a2a.Event) {
	f.task = ev.TaskInfo().TaskID
	switch e := ev.(type) {
	case *a2a.Task:
		f.state = e.Status.State
		f.chunks = interop.Chunks(textOf(e))
	case *a2a.TaskStatusUpdateEvent:
		f.state = e.Status.State
	case *a2a.TaskArtifactUpdateEvent:
		for _, p := range e.Artifact.Parts {
			f.chunks = append(f.chunks, p.Text())
		}
	}
}

func wantError(err, expected error) error {
	if !errors.Is(err, expected) {
		return fmt.Errorf("got %v, want %v", err, expected)
	}
	return nil
}
