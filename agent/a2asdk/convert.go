package a2asdk

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/holdfast-a2a/holdfast/agent"
)

// keyed is the run as executors see it. They keep memory under the ids of tasks and contexts, which must be those of one caller.
func keyed(run *agent.Run) *agent.Run {
	as := *run
	as.TaskID, as.ContextID = cmp.Or(run.TaskKey, run.TaskID), cmp.Or(run.ContextKey, run.ContextID)
	return &as
}

// newContext makes what the SDK's server passes to Execute.
func newContext(run *agent.Run, stored *agent.Task) (*a2asrv.ExecutorContext, error) {
	run = keyed(run)
	exec := &a2asrv.ExecutorContext{
		TaskID: a2a.TaskID(run.TaskID), ContextID: run.ContextID, Tenant: run.Tenant,
		User: &a2asrv.User{Name: run.Owner, Authenticated: run.Owner != ""}, ServiceParams: serviceParams(run),
	}
	if run.Scopes != nil {
		exec.User.Attributes = map[string]any{"scopes": run.Scopes}
	}
	var err error
	if exec.Metadata, err = fromObject(run.TurnMetadata); err != nil {
		return nil, fmt.Errorf("metadata of the request: %w", err)
	}
	if exec.Message, err = fromMessage(run, &run.Message); err != nil {
		return nil, err
	}
	if run.Turn == 1 {
		exec.Message.TaskID = "" // the client did not know it
	}
	if stored == nil {
		return exec, nil
	}
	if exec.StoredTask, err = fromTask(run, stored); err != nil {
		return nil, err
	}
	if exec.StoredTask.Metadata, err = fromObject(run.Metadata); err != nil {
		return nil, fmt.Errorf("metadata of the task: %w", err)
	}
	exec.StoredTask.History = append(exec.StoredTask.History, exec.Message)
	return exec, nil
}

// serviceParams has what Holdfast keeps of the headers.
func serviceParams(run *agent.Run) *a2asrv.ServiceParams {
	params := map[string][]string{}
	if len(run.Extensions) > 0 {
		params[a2a.SvcParamExtensions] = run.Extensions
	}
	if run.Traceparent != "" {
		params["traceparent"] = []string{run.Traceparent}
	}
	if run.Tracestate != "" {
		params["tracestate"] = []string{run.Tracestate}
	}
	return a2asrv.NewServiceParams(params)
}

// relatedTasks returns the tasks that the message refers to, as the SDK's ReferencedTasksLoader does.
func relatedTasks(ctx context.Context, run *agent.Run) ([]*a2a.Task, error) {
	refs, err := run.References(ctx)
	if err != nil {
		return nil, err
	}
	as := keyed(run)
	var out []*a2a.Task
	for i := range refs {
		if refs[i].ContextID == run.ContextID {
			refs[i].ContextID = as.ContextID
		}
		t, err := fromReference(&refs[i])
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", refs[i].TaskID, err)
		}
		out = append(out, t)
	}
	return out, nil
}

// fromReference leaves out contents that are too large: an executor does not expect a message or artifact without parts.
func fromReference(ref *agent.Reference) (*a2a.Task, error) {
	of := agent.Run{TaskID: ref.TaskID, ContextID: ref.ContextID}
	t := agent.Task{State: agent.TaskState(ref.State)}
	for i := range ref.Said {
		s := &ref.Said[i]
		switch {
		case s.Omitted > 0:
		case s.ArtifactID != "":
			t.Artifacts = append(t.Artifacts, agent.Artifact{ID: s.ArtifactID, Name: s.Name, Parts: s.Parts, Metadata: s.Metadata})
		default:
			t.History = append(t.History, agent.Message{ID: s.MessageID, Role: s.Role, Parts: s.Parts, Metadata: s.Metadata})
			t.Status = nil
			if s.State == ref.State {
				t.Status = &t.History[len(t.History)-1]
			}
		}
	}
	if t.Status != nil {
		t.History = t.History[:len(t.History)-1]
	}
	return fromTask(&of, &t)
}

func fromTask(run *agent.Run, t *agent.Task) (*a2a.Task, error) {
	out := &a2a.Task{ID: a2a.TaskID(run.TaskID), ContextID: run.ContextID, Status: a2a.TaskStatus{State: states[t.State]}}
	if run.Turn > 1 && t.State == agent.Submitted {
		// The message was there before the question to which it is now the answer.
		out.Status.State = a2a.TaskStateInputRequired
	}
	var err error
	if t.Status != nil {
		if out.Status.Message, err = fromMessage(run, t.Status); err != nil {
			return nil, err
		}
	}
	for i := range t.History {
		m, err := fromMessage(run, &t.History[i])
		if err != nil {
			return nil, err
		}
		out.History = append(out.History, m)
	}
	for _, all := range [][]agent.Artifact{t.Artifacts, t.Earlier} {
		for i := range all {
			a, err := fromArtifact(&all[i])
			if err != nil {
				return nil, err
			}
			out.Artifacts = append(out.Artifacts, a)
		}
	}
	return out, nil
}

var states = map[agent.TaskState]a2a.TaskState{
	agent.Submitted:     a2a.TaskStateSubmitted,
	agent.Working:       a2a.TaskStateWorking,
	agent.InputRequired: a2a.TaskStateInputRequired,
	agent.AuthRequired:  a2a.TaskStateAuthRequired,
	agent.Completed:     a2a.TaskStateCompleted,
	agent.Failed:        a2a.TaskStateFailed,
	agent.Canceled:      a2a.TaskStateCanceled,
	agent.Rejected:      a2a.TaskStateRejected,
}

func fromMessage(run *agent.Run, m *agent.Message) (*a2a.Message, error) {
	out := &a2a.Message{
		ID: m.ID, Role: a2a.MessageRoleUser, Extensions: m.Extensions,
		TaskID: a2a.TaskID(run.TaskID), ContextID: run.ContextID,
	}
	if m.Role == agent.Agent {
		out.Role = a2a.MessageRoleAgent
	}
	for _, id := range m.References {
		out.ReferenceTasks = append(out.ReferenceTasks, a2a.TaskID(id))
	}
	var err error
	if out.Metadata, err = fromObject(m.Metadata); err != nil {
		return nil, fmt.Errorf("message %s: metadata: %w", m.ID, err)
	}
	if out.Parts, err = fromParts(m.Parts); err != nil {
		return nil, fmt.Errorf("message %s: %w", m.ID, err)
	}
	return out, nil
}

func fromArtifact(a *agent.Artifact) (*a2a.Artifact, error) {
	out := &a2a.Artifact{ID: a2a.ArtifactID(a.ID), Name: a.Name, Description: a.Description, Extensions: a.Extensions}
	var err error
	if out.Metadata, err = fromObject(a.Metadata); err != nil {
		return nil, fmt.Errorf("artifact %s: metadata: %w", a.ID, err)
	}
	if out.Parts, err = fromParts(a.Parts); err != nil {
		return nil, fmt.Errorf("artifact %s: %w", a.ID, err)
	}
	return out, nil
}

func fromParts(parts []agent.Part) (a2a.ContentParts, error) {
	out := make(a2a.ContentParts, len(parts))
	for i := range parts {
		p := &parts[i]
		metadata, err := fromObject(p.Metadata)
		if err != nil {
			return nil, fmt.Errorf("parts[%d].metadata: %w", i, err)
		}
		out[i] = &a2a.Part{Filename: p.Filename, MediaType: p.MediaType, Metadata: metadata}
		switch p.Kind {
		case agent.KindText:
			out[i].Content = a2a.Text(p.Text)
		case agent.KindFile:
			out[i].Content = a2a.Raw(p.Bytes)
		case agent.KindURL:
			out[i].Content = a2a.URL(p.URL)
		case agent.KindData:
			var v any
			if err := json.Unmarshal(p.Data, &v); err != nil {
				return nil, fmt.Errorf("parts[%d].data: %w", i, err)
			}
			out[i].Content = a2a.Data{Value: v}
		}
	}
	return out, nil
}

func fromObject(data json.RawMessage) (map[string]any, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var out map[string]any
	return out, json.Unmarshal(data, &out)
}

func toMessage(m *a2a.Message) (agent.Message, error) {
	out := agent.Message{ID: m.ID, Role: agent.Agent, Extensions: m.Extensions}
	for _, id := range m.ReferenceTasks {
		out.References = append(out.References, string(id))
	}
	var err error
	if out.Metadata, err = toObject(m.Metadata); err != nil {
		return out, fmt.Errorf("message %s: metadata: %w", m.ID, err)
	}
	if out.Parts, err = toParts(m.Parts); err != nil {
		return out, fmt.Errorf("message %s: %w", m.ID, err)
	}
	return out, nil
}

func toArtifact(a *a2a.Artifact) (agent.Artifact, error) {
	out := agent.Artifact{ID: string(a.ID), Name: a.Name, Description: a.Description, Extensions: a.Extensions}
	var err error
	if out.Metadata, err = toObject(a.Metadata); err != nil {
		return out, fmt.Errorf("artifact %s: metadata: %w", a.ID, err)
	}
	if out.Parts, err = toParts(a.Parts); err != nil {
		return out, fmt.Errorf("artifact %s: %w", a.ID, err)
	}
	return out, nil
}

func toParts(parts a2a.ContentParts) ([]agent.Part, error) {
	out := make([]agent.Part, len(parts))
	for i, p := range parts {
		if p == nil || p.Content == nil {
			return nil, fmt.Errorf("%w: parts[%d] has no content", a2a.ErrInvalidAgentResponse, i)
		}
		out[i] = agent.Part{Filename: p.Filename, MediaType: p.MediaType}
		var err error
		if out[i].Metadata, err = toObject(p.Metadata); err != nil {
			return nil, fmt.Errorf("parts[%d].metadata: %w", i, err)
		}
		switch v := p.Content.(type) {
		case a2a.Text:
			out[i].Kind, out[i].Text = agent.KindText, string(v)
		case a2a.Raw:
			out[i].Kind, out[i].Bytes = agent.KindFile, v
		case a2a.URL:
			out[i].Kind, out[i].URL = agent.KindURL, string(v)
		case a2a.Data:
			out[i].Kind = agent.KindData
			if out[i].Data, err = json.Marshal(v.Value); err != nil {
				return nil, fmt.Errorf("parts[%d].data: %w", i, err)
			}
		}
	}
	return out, nil
}

func toObject(metadata map[string]any) (json.RawMessage, error) {
	if len(metadata) == 0 {
		return nil, nil
	}
	return json.Marshal(metadata)
}
