// Command a2a-cli runs the command line of a2a-go v2, `a2a`, which speaks A2A 1.0 over JSON-RPC, HTTP+JSON and gRPC.
// interop/README.md has the scenarios.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	interop "github.com/holdfast-a2a/holdfast/interop/clients/go-common"
)

// noSuchCall ends a scenario.
const noSuchCall = interop.Absent("a2a has no such command")

func main() { interop.Main(scenarios) }

func scenarios(j interop.Job) ([]interop.Scenario, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &session{job: j, program: filepath.Join(filepath.Dir(self), "a2a")}
	// The command picks JSON-RPC by the card. The other bindings have to be named, with the address.
	switch j.Binding {
	case "jsonrpc":
		s.a, s.b, s.through = agent{j.A}, agent{j.B}, agent{j.Through, "--transport=jsonrpc"} // the card names A, not the proxy
	case "rest":
		s.a, s.b, s.through = agent{j.A, "--transport=rest"}, agent{j.B, "--transport=rest"}, agent{j.Through, "--transport=rest"}
	case "grpc":
		s.a, s.b, s.through = agent{j.GRPCA, "--transport=grpc", "--insecure"}, agent{j.GRPCB, "--transport=grpc", "--insecure"},
			agent{j.GRPCThrough, "--transport=grpc", "--insecure"}
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
		{Name: "push-config", Play: noSuchCall.Play},
		{Name: "push", Play: noSuchCall.Play},
		{Name: "extended-card", Play: s.extendedCard},
		{Name: "concurrent", Play: s.concurrent},
	}, nil
}

// agent is the URL of a replica, and the flags to reach it.
type agent []string

type session struct {
	job           interop.Job
	program       string
	a, b, through agent
}

// The members of the printed JSON that the scenarios read.
type (
	part struct {
		Text      string         `json:"text,omitempty"`
		Raw       []byte         `json:"raw,omitempty"`
		Data      any            `json:"data,omitempty"`
		Filename  string         `json:"filename,omitempty"`
		MediaType string         `json:"mediaType,omitempty"`
		Metadata  map[string]any `json:"metadata,omitempty"`
	}
	message struct {
		Role     string         `json:"role"`
		ID       string         `json:"messageId,omitempty"`
		Parts    []part         `json:"parts"`
		Metadata map[string]any `json:"metadata,omitempty"`
	}
	status struct {
		State   string  `json:"state"`
		Message message `json:"message"`
	}
	artifact struct {
		Parts []part `json:"parts"`
	}
	task struct {
		ID        string     `json:"id"`
		ContextID string     `json:"contextId"`
		Status    status     `json:"status"`
		Artifacts []artifact `json:"artifacts"`
		History   []message  `json:"history"`
	}
	event struct {
		Task           *task `json:"task"`
		StatusUpdate   *struct{ Status status }
		ArtifactUpdate *struct{ Artifact artifact }
	}
)

const completed = "TASK_STATE_COMPLETED"

// a2a runs the command to its end, and decodes what it prints.
func (s *session) a2a(ctx context.Context, into any, at agent, verb string, args ...string) error {
	cmd := s.command(ctx, at, verb, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	content, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args[1:], err, &errs)
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args[1:], err, content)
	}
	return nil
}

// command is `a2a VERB URL ARGS`, with the agent's flags.
func (s *session) command(ctx context.Context, at agent, verb string, args ...string) *exec.Cmd {
	line := append(strings.Fields(verb), at[0])
	line = append(line, args...)
	return exec.CommandContext(ctx, s.program, append(append(line, at[1:]...), "--output=json")...)
}

// follow runs a command that prints events. It ends with the command, whose failure it returns.
func (s *session) follow(ctx context.Context, seen *follower, each func() error, at agent, verb string, args ...string) error {
	cmd := s.command(ctx, at, verb, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for d := json.NewDecoder(out); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return err
		}
		seen.take(e)
		if err := each(); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return err
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args[1:], err, &errs)
	}
	return nil
}

func nothing() error { return nil }

func (s *session) theCard(ctx context.Context) error {
	var card struct{ Name string }
	if err := s.a2a(ctx, &card, agent{s.job.A}, "discover"); err != nil {
		return err
	}
	return interop.Want("name", card.Name, "demo")
}

func (s *session) send(ctx context.Context) error {
	t, err := s.sendText(ctx, s.a, "echo:hello")
	if err != nil {
		return err
	}
	return errors.Join(interop.Want("state", t.Status.State, completed), interop.Want("text", textOf(t), "hello"))
}

func (s *session) returnImmediately(ctx context.Context) error {
	t, err := s.sendText(ctx, s.a, "sleep=300ms", "--immediate")
	if err != nil {
		return err
	}
	if t.Status.State == completed {
		return errors.New("the answer is completed already")
	}
	for t.Status.State != completed {
		time.Sleep(20 * time.Millisecond)
		if t, err = s.getTask(ctx, s.a, t.ID); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) stream(ctx context.Context) error {
	var seen follower
	if err := s.follow(ctx, &seen, nothing, s.a, "send", "chunks=20 size=64 delay=5ms", "--stream"); err != nil {
		return err
	}
	return errors.Join(interop.Want("state", seen.state, completed), interop.InOrder(seen.chunks, 20))
}

func (s *session) get(ctx context.Context) error {
	t, err := s.sendText(ctx, s.a, "ask:what?")
	if err != nil {
		return err
	}
	if _, err := s.sendText(ctx, s.a, "that", "--task="+t.ID); err != nil {
		return err
	}
	whole, err := s.getTask(ctx, s.a, t.ID)
	if err != nil {
		return err
	}
	short, err := s.getTask(ctx, s.a, t.ID, "--history=1")
	if err != nil {
		return err
	}
	var said []string
	for _, m := range whole.History {
		said = append(said, m.Parts[0].Text)
	}
	if len(short.History) != 1 {
		return fmt.Errorf("--history=1 returned %d messages", len(short.History))
	}
	return errors.Join(interop.Want("history", said, []string{"ask:what?", "what?", "that"}), interop.Want("artifacts", len(whole.Artifacts), 1),
		interop.Want("the newest message", short.History[0].ID, whole.History[2].ID))
}

func (s *session) list(ctx context.Context) error {
	first, err := s.sendText(ctx, s.a, "echo:0")
	if err != nil {
		return err
	}
	made := map[string]int{first.ID: 0}
	for i := range 2 {
		t, err := s.sendText(ctx, s.a, fmt.Sprint("echo:", i+1), "--context="+first.ContextID)
		if err != nil {
			return err
		}
		made[t.ID] = 0
	}
	type page struct {
		Tasks         []task
		NextPageToken string
		TotalSize     int
	}
	var pages [2]page
	if err := s.a2a(ctx, &pages[0], s.a, "list tasks", "--context="+first.ContextID, "--limit=2"); err != nil {
		return err
	}
	if err := s.a2a(ctx, &pages[1], s.a, "list tasks", "--context="+first.ContextID, "--limit=2",
		"--page-token="+pages[0].NextPageToken); err != nil {
		return err
	}
	for _, t := range append(pages[0].Tasks, pages[1].Tasks...) {
		made[t.ID]++
	}
	for id, times := range made {
		if times != 1 {
			return fmt.Errorf("task %s is listed %d times", id, times)
		}
	}
	return errors.Join(interop.Want("tasks", len(made), 3), interop.Want("first page", len(pages[0].Tasks), 2),
		interop.Want("total", pages[0].TotalSize, 3), interop.Want("token after the last page", pages[1].NextPageToken, ""))
}

func (s *session) cancel(ctx context.Context) error {
	t, err := s.sendText(ctx, s.a, "hold", "--immediate")
	if err != nil {
		return err
	}
	var canceled task
	if err := s.a2a(ctx, &canceled, s.a, "cancel", t.ID); err != nil {
		return err
	}
	return interop.Want("state", canceled.Status.State, "TASK_STATE_CANCELED")
}

func (s *session) multiTurn(ctx context.Context) error {
	t, err := s.sendText(ctx, s.a, "ask:which?")
	if err != nil {
		return err
	}
	if err := interop.Want("state", t.Status.State, "TASK_STATE_INPUT_REQUIRED"); err != nil {
		return err
	}
	if err := interop.Want("question", t.Status.Message.Parts[0].Text, "which?"); err != nil {
		return err
	}
	done, err := s.sendText(ctx, s.b, "the blue one", "--task="+t.ID)
	if err != nil {
		return err
	}
	if !strings.Contains(textOf(done), "the blue one") {
		return fmt.Errorf("%q does not quote the answer", textOf(done))
	}
	return errors.Join(interop.Want("task", done.ID, t.ID), interop.Want("state", done.Status.State, completed))
}

func (s *session) resubscribe(ctx context.Context) error {
	const chunks = 60
	var seen follower
	cut := false
	err := s.follow(ctx, &seen, func() error {
		if len(seen.chunks) != 5 || cut {
			return nil
		}
		cut = true
		return s.job.CutConnections(ctx)
	}, s.through, "send", fmt.Sprintf("chunks=%d size=64 delay=100ms", chunks), "--stream")
	if err == nil || !cut || seen.state == completed {
		return fmt.Errorf("not cut in the middle: %d chunks, %s: %w", len(seen.chunks), seen.state, err)
	}
	var rest follower
	if err := s.follow(ctx, &rest, nothing, s.b, "subscribe", seen.task); err != nil {
		return err
	}
	t, err := s.getTask(ctx, s.b, seen.task)
	if err != nil {
		return err
	}
	return errors.Join(interop.Want("state", rest.state, completed), interop.InOrder(rest.chunks, chunks), interop.InOrder(interop.Chunks(textOf(t)), chunks))
}

func (s *session) parts(ctx context.Context) error {
	sent := []part{
		{Text: "look"},
		{Raw: []byte("\x00\x01\xfe\xff bytes"), Filename: "some.bin", MediaType: "application/octet-stream"},
		{
			Data:     map[string]any{"n": 1.5, "list": []any{"x", nil, true}, "o": map[string]any{"k": "ü"}},
			Metadata: map[string]any{"of": "part"},
		},
	}
	content, err := json.Marshal(sent)
	if err != nil {
		return err
	}
	var t task
	if err := s.a2a(ctx, &t, s.a, "send", "--parts="+string(content)); err != nil {
		return err
	}
	got, err := s.getTask(ctx, s.a, t.ID)
	if err != nil {
		return err
	}
	if len(got.History) != 1 {
		return fmt.Errorf("history has %d messages", len(got.History))
	}
	file, err := s.sendText(ctx, s.a, "file")
	if err != nil {
		return err
	}
	data, err := s.sendText(ctx, s.a, "data")
	if err != nil {
		return err
	}
	object, _ := data.Artifacts[0].Parts[0].Data.(map[string]any)
	return errors.Join(
		interop.Want("parts", got.History[0].Parts, sent),
		interop.Want("file", file.Artifacts[0].Parts[0],
			part{Raw: []byte("Hello from Holdfast.\n"), Filename: "hello.txt", MediaType: "text/plain"}),
		interop.Want("data", object["greeting"], any("hello")),
	)
}

func (s *session) metadata(ctx context.Context) error {
	m := message{Role: "ROLE_USER", Parts: []part{{Text: "echo:x"}}, Metadata: map[string]any{
		"plain": "text", "nested": map[string]any{"list": []any{1.0, "two", nil, map[string]any{"deep": true}}, "empty": map[string]any{}},
	}}
	content, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var t task
	if err := s.a2a(ctx, &t, s.a, "send", "--json="+string(content)); err != nil {
		return err
	}
	got, err := s.getTask(ctx, s.a, t.ID)
	if err != nil {
		return err
	}
	return interop.Want("metadata", got.History[0].Metadata, m.Metadata)
}

func (s *session) errorNotFound(ctx context.Context) error {
	_, err := s.getTask(ctx, s.a, "no-such-task")
	return wantError(err, "Task not found")
}

func (s *session) errorTerminal(ctx context.Context) error {
	t, err := s.sendText(ctx, s.a, "echo:done")
	if err != nil {
		return err
	}
	return wantError(s.a2a(ctx, &t, s.a, "cancel", t.ID), "Task cannot be canceled")
}

func (s *session) extendedCard(ctx context.Context) error {
	var card struct{ Name string }
	if err := s.a2a(ctx, &card, s.a, "discover", "--extended"); err != nil {
		return err
	}
	return interop.Want("name", card.Name, "demo")
}

func (s *session) concurrent(ctx context.Context) error {
	const sends = 20
	tasks, errs := make([]task, sends), make([]error, sends)
	var all sync.WaitGroup
	for i := range sends {
		all.Go(func() { tasks[i], errs[i] = s.sendText(ctx, s.a, fmt.Sprint("echo:", i)) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	ids := map[string]bool{}
	for i, t := range tasks {
		ids[t.ID] = true
		if err := errors.Join(interop.Want("state", t.Status.State, completed), interop.Want("text", textOf(t), fmt.Sprint(i))); err != nil {
			return err
		}
	}
	return interop.Want("tasks", len(ids), sends)
}

func (s *session) sendText(ctx context.Context, at agent, text string, flags ...string) (t task, err error) {
	return t, s.a2a(ctx, &t, at, "send", append([]string{text}, flags...)...)
}

func (s *session) getTask(ctx context.Context, at agent, id string, flags ...string) (t task, err error) {
	return t, s.a2a(ctx, &t, at, "get task", append([]string{id}, flags...)...)
}

// textOf is the text of a task's artifacts.
func textOf(t task) string {
	var b strings.Builder
	for _, a := range t.Artifacts {
		for _, p := range a.Parts {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// follower assembles the events of a stream.
type follower struct {
	task   string
	state  string
	chunks []string
}

func (f *follower) take(e event) {
	switch {
	case e.Task != nil:
		f.task, f.state, f.chunks = e.Task.ID, e.Task.Status.State, interop.Chunks(textOf(*e.Task))
	case e.StatusUpdate != nil:
		f.state = e.StatusUpdate.Status.State
	case e.ArtifactUpdate != nil:
		for _, p := range e.ArtifactUpdate.Artifact.Parts {
			f.chunks = append(f.chunks, p.Text)
		}
	}
}

// wantError holds if the command failed and says why.
func wantError(err error, why string) error {
	if err == nil || !strings.Contains(err.Error(), why) {
		return fmt.Errorf("got %v, want %s", err, why)
	}
	return nil
}
