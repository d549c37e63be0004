package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

func init() {
	executor.Register(executor.Conversions[Executor, Message, Artifact]{
		Adapt: adapt, ToMessage: toMessage, ToArtifact: toArtifact, FromMessage: fromMessage, FromArtifact: fromArtifact,
	})
}

// adapt makes an Executor that the server can run. Users' code sees only the types of this package, so that the server's own
// types may change.
func adapt(e Executor) executor.Executor {
	adapted := executor.Func(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		return e.Execute(ctx, fromRun(run), &emitter{out: out, turn: run.Turn})
	})
	if to, ok := e.(Canceler); ok {
		return canceler{adapted, to}
	}
	return adapted
}

func fromRun(run *executor.Run) *Run {
	out := &Run{
		TaskID: run.TaskID, TaskKey: run.Keys.Task, ContextID: run.ContextID, ContextKey: run.Keys.Context, Agent: run.Agent, Tenant: run.Tenant, Owner: run.Owner,
		Message: fromMessage(run.Message), Input: fromInput(run.Input), Metadata: run.Metadata,
		TurnMetadata: run.TurnMetadata, AcceptedOutputModes: run.AcceptedOutputModes, Extensions: run.Extensions, ExtensionParams: run.ExtensionParams,
		Scopes: run.Scopes, Traceparent: run.Traceparent, Tracestate: run.Tracestate, Deadline: run.Deadline,
		Turn: run.Turn, Try: run.Try, Attempt: int(run.Attempt),
		ResumeURL: run.ResumeURL, key: run.IdempotencyKey(),
	}
	if run.Memory != nil {
		out.memory = run.Memory
	}
	return out
}

type emitter struct {
	out  executor.Emitter
	turn int
}

func (e *emitter) Working(ctx context.Context, m Message) error {
	return e.status(ctx, task.StateWorking, m)
}

func (e *emitter) AskInput(ctx context.Context, m Message) error {
	return e.status(ctx, task.StateInputRequired, m)
}

func (e *emitter) AskAuth(ctx context.Context, m Message) error {
	return e.status(ctx, task.StateAuthRequired, m)
}

func (e *emitter) Complete(ctx context.Context, m Message) error {
	return e.status(ctx, task.StateCompleted, m)
}

func (e *emitter) Fail(ctx context.Context, m Message) error {
	return e.status(ctx, task.StateFailed, m)
}

func (e *emitter) Reject(ctx context.Context, m Message) error {
	return e.status(ctx, task.StateRejected, m)
}

func (e *emitter) Reply(ctx context.Context, m Message) error {
	msg, err := toMessage(m)
	if err != nil {
		return err
	}
	return e.out.Reply(ctx, msg)
}

// status treats a message without parts as no message.
func (e *emitter) status(ctx context.Context, s task.State, m Message) error {
	if len(m.Parts) == 0 {
		return e.out.StatusAbout(ctx, s, nil, executor.About{Metadata: m.EventMetadata})
	}
	msg, err := toMessage(m)
	if err != nil {
		return err
	}
	return e.out.StatusAbout(ctx, s, msg, executor.About{Metadata: m.EventMetadata})
}

func (e *emitter) Artifact(ctx context.Context, a Artifact) error {
	return e.chunk(ctx, Chunk{Artifact: a, Last: true})
}

func (e *emitter) Chunk(ctx context.Context, c Chunk) error {
	if c.ID == "" {
		return errNoArtifactID
	}
	return e.chunk(ctx, c)
}

// Text has the ids that texts of agents behind HTTP and of other SDKs have.
func (e *emitter) Text(ctx context.Context, name, text string) error {
	name = cmp.Or(name, "text")
	return e.out.Artifact(ctx, executor.Chunk{Grows: true, Artifact: task.Artifact{
		ID: executor.TextID(name, e.turn), Name: name, Parts: []task.Part{task.Text(text)},
	}})
}

func (e *emitter) chunk(ctx context.Context, c Chunk) error {
	a, err := toArtifact(c.Artifact)
	if err != nil {
		return err
	}
	return e.out.Artifact(ctx, executor.Chunk{Artifact: a, Append: c.Append, Last: c.Last, Metadata: c.EventMetadata})
}

func (e *emitter) Checkpoint(ctx context.Context, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the checkpoint: %w", err)
	}
	return e.out.Checkpoint(ctx, data)
}

// fromMessage converts a message of the server.
func fromMessage(m *task.Message) Message {
	out := Message{
		ID: m.ID, Role: User, Parts: fromParts(m.Parts), Metadata: m.Metadata,
		Extensions: m.Extensions, References: m.References,
	}
	if m.Role == task.RoleAgent {
		out.Role = Agent
	}
	return out
}

// fromArtifact converts an artifact of the server.
func fromArtifact(a *task.Artifact) Artifact {
	return Artifact{
		ID: a.ID, Name: a.Name, Description: a.Description, Parts: fromParts(a.Parts),
		Metadata: a.Metadata, Extensions: a.Extensions,
	}
}

func fromParts(parts []task.Part) []Part {
	out := make([]Part, len(parts))
	for i := range parts {
		p := &parts[i]
		out[i] = Part{
			Kind: Kind(p.Kind), Text: p.Text, Bytes: p.Raw, URL: p.URL, Data: p.Data,
			Filename: p.Filename, MediaType: p.MediaType, Metadata: p.Metadata,
		}
	}
	return out
}

func fromSaid(s *executor.Said) Said {
	out := Said{TaskID: s.TaskID, Role: User, Parts: fromParts(s.Parts()), Omitted: s.Left}
	if s.Role() == task.RoleAgent {
		out.Role = Agent
	}
	if a := s.Artifact; a != nil {
		out.ArtifactID, out.Name, out.Metadata = a.ID, a.Name, a.Metadata
		return out
	}
	out.MessageID, out.Metadata = s.Message.ID, s.Message.Metadata
	if s.State != task.StateUnspecified {
		out.State = s.State.String()
	}
	return out
}

// toMessage converts a message for the server. It always sets the agent's role, even if the message was copied from the user.
func toMessage(m Message) (*task.Message, error) {
	parts, err := toParts(m.Parts)
	return &task.Message{
		ID: m.ID, Role: task.RoleAgent, Parts: parts, Metadata: m.Metadata,
		Extensions: m.Extensions, References: m.References,
	}, err
}

// toArtifact converts an artifact for the server.
func toArtifact(a Artifact) (task.Artifact, error) {
	parts, err := toParts(a.Parts)
	return task.Artifact{
		ID: a.ID, Name: a.Name, Description: a.Description, Parts: parts,
		Metadata: a.Metadata, Extensions: a.Extensions,
	}, err
}

func toParts(parts []Part) ([]task.Part, error) {
	if len(parts) == 0 {
		return nil, errNoParts
	}
	out := make([]task.Part, len(parts))
	for i := range parts {
		p := &parts[i]
		if p.Kind < KindText || p.Kind > KindData {
			return nil, fmt.Errorf("agent: parts[%d] has no valid Kind; make it with TextPart, FilePart, URLPart or DataPart", i)
		}
		out[i] = task.Part{
			Kind: task.PartKind(p.Kind), Text: p.Text, Raw: p.Bytes, URL: p.URL, Data: p.Data,
			Filename: p.Filename, MediaType: p.MediaType, Metadata: p.Metadata,
		}
	}
	return out, nil
}
