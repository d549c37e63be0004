// Command go-0.3 is a client of a2a-go v0.3: A2A 0.3 over JSON-RPC and gRPC. interop/README.md has the scenarios.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2aclient"
	"github.com/a2aproject/a2a-go/a2aclient/agentcard"
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
func (s *session) clientAt(ctx context.Context, of *a2a.AgentCard, httpURL, grpcAddr string, more ...a2aclient.FactoryOption) (*a2aclient.Client, error) {
	protocol := map[string]a2a.TransportProtocol{
		"jsonrpc": a2a.TransportProtocolJSONRPC, "grpc": a2a.TransportProtocolGRPC,
	}[s.job.Binding]
	from, to := s.job.A, httpURL
	if protocol == a2a.TransportProtocolGRPC {
		from, to = s.job.GRPCA, grpcAddr
	}
	card := *of
	card.PreferredTransport, card.URL, card.AdditionalInterfaces = protocol, "", nil
	for _, i := range of.AdditionalInterfaces {
		if i.Transport == protocol && strings.Contains(i.URL, from) {
			card.URL = strings.Replace(i.URL, from, to, 1)
		}
	}
	if card.URL == "" {
		return nil, fmt.Errorf("the card has no interface for %q at %s", protocol, from)
	}
	more = append(more, a2aclient.WithGRPCTransport(grpc.WithTransportCredentials(insecure.NewCredentials())))
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
	task, err := sendTask(ctx, s.a, &a2a.MessageSendParams{
		Message: says("sleep=300ms"), Config: &a2a.MessageSendConfig{Blocking: new(false)},
	})
	if err != nil {
		return err
	}
	if task.Status.State.Terminal() {
		return fmt.Errorf("the answer is %s already", task.Status.State)
	}
	for !task.Status.State.Terminal() {
		time.Sleep(20 * time.Millisecond)
		if task, err = s.a.GetTask(ctx, &a2a.TaskQueryParams{ID: task.ID}); err != nil {
			return err
		}
	}
	return interop.Want("state", task.Status.State, a2a.TaskStateCompleted)
}

func (s *session) stream(ctx context.Context) error {
	var seen follower
	for ev, err := range s.a.SendStreamingMessage(ctx, &a2a.MessageSendParams{Message: says("chunks=20 size=64 delay=5ms")}) {
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
	answer := a2a.NewMessageForTask(a2a.MessageRoleUser, task, a2a.TextPart{Text: "that"})
	if _, err := sendTask(ctx, s.a, &a2a.MessageSendParams{Message: answer}); err != nil {
		return err
	}
	whole, err := s.a.GetTask(ctx, &a2a.TaskQueryParams{ID: task.ID})
	if err != nil {
		return err
	}
	one := 1
	short, err := s.a.GetTask(ctx, &a2a.TaskQueryParams{ID: task.ID, HistoryLength: &one})
	if err != nil {
		return err
	}
	var said []string
	for _, m := range whole.History {
		said = append(said, m.Parts[0].(a2a.TextPart).Text)
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
		task, err := sendTask(ctx, s.a, &a2a.MessageSendParams{Message: m})
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
	for id, times := range made {
		if times != 1 {
			return fmt.Errorf("task %s is listed %d times", id, times)
		}
	}
	return errors.Join(interop.Want("tasks", len(made), 3), interop.Want("first page", len(first.Tasks), 2),
		interop.Want("total", first.TotalSize, 3), interop.Want("token after the last page", second.NextPageToken, ""))
}

func (s *session) cancel(ctx context.Context) error {
	task, err := sendTask(ctx, s.a, &a2a.MessageSendParams{
		Message: says("hold"), Config: &a2a.MessageSendConfig{Blocking: new(false)},
	})
	if err != nil {
		return err
	}
	canceled, err := s.a.CancelTask(ctx, &a2a.TaskIDParams{ID: task.ID})
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
	if err := interop.Want("question", task.Status.Message.Parts[0].(a2a.TextPart).Text, "which?"); err != nil {
		return err
	}
	answer := a2a.NewMessageForTask(a2a.MessageRoleUser, task, a2a.TextPart{Text: "the blue one"})
	done, err := sendTask(ctx, s.b, &a2a.MessageSendParams{Message: answer})
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
	for ev, err := range s.through.SendStreamingMessage(ctx, &a2a.MessageSendParams{
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
	for ev, err := range s.b.ResubscribeToTask(ctx, &a2a.TaskIDParams{ID: seen.task}) {
		if err != nil {
			return err
		}
		rest.take(ev)
	}
	task, err := s.b.GetTask(ctx, &a2a.TaskQueryParams{ID: seen.task})
	if err != nil {
		return err
	}
	return errors.Join(interop.Want("state", rest.state, a2a.TaskStateCompleted), interop.InOrder(rest.chunks, chunks),
		interop.InOrder(interop.Chunks(textOf(task)), chunks))
}

func (s *session) parts(ctx context.Context) error {
	sent := []a2a.Part{
		a2a.TextPart{Text: "look"},
		a2a.FilePart{File: a2a.FileBytes{
			FileMeta: a2a.FileMeta{Name: "some.bin", MimeType: "application/octet-stream"},
			Bytes:    base64.StdEncoding.EncodeToString([]byte("\x00\x01\xfe\xff bytes")),
		}},
		a2a.DataPart{
			Data:     map[string]any{"n": 1.5, "list": []any{"x", nil, true}, "o": map[string]any{"k": "ü"}},
			Metadata: map[string]any{"of": "part"},
		},
	}
	task, err := sendTask(ctx, s.a, &a2a.MessageSendParams{Message: a2a.NewMessage(a2a.MessageRoleUser, sent...)})
	if err != nil {
		return err
	}
	got, err := s.a.GetTask(ctx, &a2a.TaskQueryParams{ID: task.ID})
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
	f, _ := file.Artifacts[0].Parts[0].(a2a.FilePart)
	bytes, _ := f.File.(a2a.FileBytes)
	content, err := base64.StdEncoding.DecodeString(bytes.Bytes)
	if err != nil {
		return err
	}
	d, _ := data.Artifacts[0].Parts[0].(a2a.DataPart)
	return errors.Join(
		interop.Same("parts", []a2a.Part(got.History[0].Parts), sent),
		interop.Want("file", string(content), "Hello from Holdfast.\n"), interop.Want("name", bytes.Name, "hello.txt"),
		interop.Want("type", bytes.MimeType, "text/plain"), interop.Want("data", d.Data["greeting"], any("hello")),
	)
}

func (s *session) metadata(ctx context.Context) error {
	m := says("echo:x")
	m.Metadata = map[string]any{
		"plain": "text", "nested": map[string]any{"list": []any{1.0, "two", nil, map[string]any{"deep": true}}, "empty": map[string]any{}},
	}
	task, err := sendTask(ctx, s.a, &a2a.MessageSendParams{Message: m})
	if err != nil {
		return err
	}
	got, err := s.a.GetTask(ctx, &a2a.TaskQueryParams{ID: task.ID})
	if err != nil {
		return err
	}
	return interop.Same("metadata", got.History[0].Metadata, m.Metadata)
}

func (s *session) errorNotFound(ctx context.Context) error {
	_, err := s.a.GetTask(ctx, &a2a.TaskQueryParams{ID: a2a.NewTaskID()})
	return wantError(err, a2a.ErrTaskNotFound)
}

func (s *session) errorTerminal(ctx context.Context) error {
	task, err := sendText(ctx, s.a, "echo:done")
	if err != nil {
		return err
	}
	_, err = s.a.CancelTask(ctx, &a2a.TaskIDParams{ID: task.ID})
	return wantError(err, a2a.ErrTaskNotCancelable)
}

func (s *session) pushConfig(ctx context.Context) error {
	task, err := sendText(ctx, s.a, "ask:which?")
	if err != nil {
		return err
	}
	for _, id := range []string{"one", "two"} {
		hook := s.hook(id)
		set, err := s.a.SetTaskPushConfig(ctx, &a2a.TaskPushConfig{TaskID: task.ID, Config: *hook})
		if err != nil {
			return err
		}
		if err := errors.Join(interop.Want("task", set.TaskID, task.ID), interop.Want("id", set.Config.ID, id), interop.Want("url", set.Config.URL, hook.URL)); err != nil {
			return err
		}
	}
	got, err := s.b.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigParams{TaskID: task.ID, ConfigID: "one"})
	if err != nil {
		return err
	}
	both, err := s.b.ListTaskPushConfig(ctx, &a2a.ListTaskPushConfigParams{TaskID: task.ID})
	if err != nil {
		return err
	}
	for range 2 { // it is gone either way
		if err := s.a.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigParams{TaskID: task.ID, ConfigID: "one"}); err != nil {
			return err
		}
	}
	left, err := s.a.ListTaskPushConfig(ctx, &a2a.ListTaskPushConfigParams{TaskID: task.ID})
	if err != nil {
		return err
	}
	_, err = s.a.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigParams{TaskID: task.ID, ConfigID: "one"})
	return errors.Join(wantError(err, a2a.ErrTaskNotFound),
		interop.Want("task", got.TaskID, task.ID), interop.Want("id", got.Config.ID, "one"), interop.Want("url", got.Config.URL, s.hook("one").URL),
		interop.Want("listed", idsOf(both), []string{"one", "two"}), interop.Want("left", idsOf(left), []string{"two"}))
}

func (s *session) push(ctx context.Context) error {
	task, err := sendTask(ctx, s.a, &a2a.MessageSendParams{
		Message: says("chunks=3 size=64 delay=20ms"),
		Config:  &a2a.MessageSendConfig{Blocking: new(false), PushConfig: s.hook("inline")},
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
		if _, err := s.a.SetTaskPushConfig(ctx, &a2a.TaskPushConfig{TaskID: asked.ID, Config: *s.hook(id)}); err != nil {
			return err
		}
	}
	if err := s.b.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigParams{TaskID: asked.ID, ConfigID: "deleted"}); err != nil {
		return err
	}
	answer := a2a.NewMessageForTask(a2a.MessageRoleUser, asked, a2a.TextPart{Text: "the blue one"})
	if _, err := sendTask(ctx, s.b, &a2a.MessageSendParams{Message: answer}); err != nil {
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
		Auth: &a2a.PushAuthInfo{Schemes: []string{"Bearer"}, Credentials: "credentials-" + id},
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
		var then a2a.Task
		if err := json.Unmarshal([]byte(d.Body), &then); err != nil {
			return fmt.Errorf("%s: %w", d.Body, err)
		}
		made := 0
		if then.Status.State == a2a.TaskStateCompleted {
			made = 1
		}
		if err := errors.Join(interop.Want("task", then.ID, task), interop.Want("artifacts at "+string(then.Status.State), len(then.Artifacts), made),
			interop.Want("token", d.Headers["x-a2a-notification-token"], hook.Token),
			interop.Want("authorization", d.Headers["authorization"], "Bearer "+hook.Auth.Credentials),
			interop.Want("content type", d.Headers["content-type"], "application/json")); err != nil {
			return err
		}
		got = append(got, then.Status.State)
	}
	return interop.Want("states delivered to "+id, got, states)
}

func idsOf(configs []*a2a.TaskPushConfig) []string {
	var ids []string
	for _, c := range configs {
		ids = append(ids, c.Config.ID)
	}
	slices.Sort(ids)
	return ids
}

func (s *session) extendedCard(ctx context.Context) error {
	card, err := s.a.GetAgentCard(ctx)
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
	card, err := agentcard.DefaultResolver.Resolve(ctx, s.job.Locked)
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
		a2aclient.WithInterceptors(&a2aclient.AuthInterceptor{Service: credentials}))
	return card, client, err
}

func (s *session) auth(ctx context.Context) error {
	_, client, err := s.unlock(ctx)
	if err != nil {
		return err
	}
	for _, refused := range []a2aclient.SessionID{"none", "wrong", "wrong token"} {
		as := a2aclient.WithSessionID(ctx, refused)
		_, err := sendText(as, client, "echo:x")
		_, get := client.GetTask(as, &a2a.TaskQueryParams{ID: a2a.NewTaskID()})
		if err := errors.Join(s.wantUnauthenticated(err), s.wantUnauthenticated(get)); err != nil {
			return fmt.Errorf("credential %q: %w", refused, err)
		}
	}
	for _, accepted := range []a2aclient.SessionID{"key", "token"} {
		as := a2aclient.WithSessionID(ctx, accepted)
		task, err := sendText(as, client, "echo:hello")
		if err != nil {
			return fmt.Errorf("credential %q: %w", accepted, err)
		}
		var seen follower
		for ev, err := range client.SendStreamingMessage(as, &a2a.MessageSendParams{Message: says("chunks=3 size=64")}) {
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
		return client.GetAgentCard(a2aclient.WithSessionID(ctx, session))
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
	return a2a.NewMessage(a2a.MessageRoleUser, a2a.TextPart{Text: text})
}

func sendText(ctx context.Context, c *a2aclient.Client, text string) (*a2a.Task, error) {
	return sendTask(ctx, c, &a2a.MessageSendParams{Message: says(text)})
}

func sendTask(ctx context.Context, c *a2aclient.Client, r *a2a.MessageSendParams) (*a2a.Task, error) {
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
			b.WriteString(text(p))
		}
	}
	return b.String()
}

// text is the text of a part, or "".
func text(p a2a.Part) string {
	t, _ := p.(a2a.TextPart)
	return t.Text
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
			f.chunks = append(f.chunks, text(p))
		}
	}
}

func wantError(err, expected error) error {
	if !errors.Is(err, expected) {
		return fmt.Errorf("got %v, want %v", err, expected)
	}
	return nil
}
