package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// taskView is a task with its history and artifacts, in the form of the log.
type taskView struct {
	shown.Task
	Message   json.RawMessage   `json:"message,omitempty"`
	Metadata  json.RawMessage   `json:"metadata,omitempty"`
	History   []json.RawMessage `json:"history"`
	Artifacts []json.RawMessage `json:"artifacts"`
	CalledBy  task.ID           `json:"called_by,omitzero"`
	Calls     []store.CallRow   `json:"calls,omitempty"`
	Failure   *failureView      `json:"failure,omitempty"`
}

// tailView is an event with its task, for readers that follow many tasks.
type tailView struct {
	ID        task.ID `json:"id"`
	TaskID    string  `json:"task_id"`
	Agent     string  `json:"agent"`
	ContextID string  `json:"context_id"`
	*shown.Event
}

func viewTask(d *shown.TaskDetail, t *task.Task, calls *shown.Lineage, failure *failureView) (*taskView, error) {
	v := &taskView{
		Task: d.Task, Message: d.StatusMessage, Metadata: d.Metadata, CalledBy: calls.CalledBy, Calls: calls.Calls, Failure: failure,
		History: []json.RawMessage{}, Artifacts: []json.RawMessage{},
	}
	for i := range t.History {
		v.History = append(v.History, json.RawMessage(store.EncodePayload(&task.Event{Kind: task.EventMessage, Message: &t.History[i]})))
	}
	for i := range t.Artifacts {
		a := &t.Artifacts[i]
		members := map[string]any{"id": a.ID}
		stored := json.NewDecoder(strings.NewReader(store.EncodePayload(&task.Event{Kind: task.EventArtifact, Artifact: a})))
		stored.UseNumber()
		if err := stored.Decode(&members); err != nil {
			return nil, err
		}
		raw, err := json.Marshal(members)
		if err != nil {
			return nil, err
		}
		v.Artifacts = append(v.Artifacts, raw)
	}
	return v, nil
}

func roleName(r task.Role) string {
	switch r {
	case task.RoleUser:
		return "user"
	case task.RoleAgent:
		return "agent"
	default:
		return "unspecified"
	}
}

func (p *printer) storedParts(parts []task.Part) {
	for _, part := range parts {
		p.line("%s", indented(shownStored(part)))
	}
}

func shownStored(part task.Part) string {
	file := "file"
	if part.Filename != "" {
		file += " " + part.Filename
	}
	if part.MediaType != "" {
		file += " (" + part.MediaType + ")"
	}
	switch part.Kind {
	case task.PartRaw:
		return fmt.Sprintf("%s, %d bytes", file, len(part.Raw))
	case task.PartURL:
		return file + " at " + part.URL
	case task.PartData:
		return "data " + string(part.Data)
	default:
		return part.Text
	}
}

func printStoredTask(p *printer, d *shown.TaskDetail, t *task.Task, calls *shown.Lineage, failure *failureView) error {
	p.field("task", t.PublicID)
	if id := t.ID.String(); id != t.PublicID {
		p.field("uuid", id)
	}
	p.field("agent", t.Agent)
	p.field("state", t.Status.State.String()+" since "+stamp(t.Status.At))
	p.field("status", lineText(&d.Task))
	if l := d.Line; l != nil {
		p.field("since", stamp(l.Since))
		p.field("next", strings.TrimSpace(l.Next+" "+stamp(l.NextAt)))
		p.field("turn of", l.TurnOf)
	}
	if failure != nil {
		p.field("error", fmt.Sprintf("attempt %d %s: %s", failure.Attempt, failure.Outcome, strings.ReplaceAll(failure.Error, "\n", "\n             ")))
	}
	if !d.RetriedAs.IsZero() {
		p.field("retried as", d.RetriedAs.String())
	}
	p.field("context", t.ContextID)
	p.field("tenant", t.Tenant)
	p.field("owner", t.Owner)
	p.field("A2A version", t.Dialect)
	p.field("created", stamp(t.CreatedAt))
	p.field("trace", d.TraceID)
	p.field("events", fmt.Sprint(t.LastSeq))
	if !calls.CalledBy.IsZero() {
		p.field("called by", fmt.Sprintf("%s (call %s)", calls.CalledBy, calls.CallID))
	}
	for i := range calls.Calls {
		c := &calls.Calls[i]
		switch {
		case c.Error != "":
			p.field("call "+c.ID, fmt.Sprintf("%s: refused, %s", c.Agent, c.Error))
		case c.Result == task.StateUnspecified:
			p.field("call "+c.ID, strings.TrimPrefix(fmt.Sprintf("%s, task %s", c.Agent, c.Task), ", "))
		default:
			p.field("call "+c.ID, strings.TrimPrefix(fmt.Sprintf("%s, task %s: %s", c.Agent, c.Task, c.Result), ", "))
		}
	}
	for i := range t.History {
		p.line("%s:", roleName(t.History[i].Role))
		p.storedParts(t.History[i].Parts)
	}
	if m := t.Status.Message; m != nil {
		p.line("%s (status):", roleName(m.Role))
		p.storedParts(m.Parts)
	}
	for _, a := range t.Artifacts {
		p.line("artifact %s:", label(&a))
		p.storedParts(a.Parts)
	}
	return p.err
}

func (c *command) printEvents(events []*logged) error {
	p := &printer{w: c.Out}
	for _, e := range events {
		if c.json() {
			if err := printLine(c.Out, e.stored); err != nil {
				return fmt.Errorf("write event %d: %w", e.Seq, err)
			}
			continue
		}
		p.storedEvent(e.Event)
	}
	return p.err
}

func (p *printer) storedEvent(e *task.Event) {
	head := fmt.Sprintf("[%d] %s %s", e.Seq, stamp(e.At), e.Kind)
	switch {
	case e.Kind == task.EventStatus:
		p.line("%s %s", head, e.State)
		if e.Cause != "" {
			p.line("%s", indented(e.Cause))
		}
	case e.Kind == task.EventMessage && e.Message != nil:
		p.line("%s from %s", head, roleName(e.Message.Role))
	case e.Artifact != nil:
		note := ""
		if e.Append {
			note += ", more"
		}
		if e.Last {
			note += ", last"
		}
		p.line("%s %s%s", head, e.Artifact.ID, note)
		p.storedParts(e.Artifact.Parts)
	case e.Run != nil:
		p.line("%s attempt %d %s", head, e.Attempt, e.Run.Outcome)
		if !e.Run.Until.IsZero() {
			p.line("%s", indented("until "+stamp(e.Run.Until)))
		}
		for i := range e.Run.Calls {
			c := &e.Run.Calls[i]
			p.line("%s", indented(fmt.Sprintf("call %s: %s, task %s", c.ID, c.Agent, c.Task)))
			p.storedParts(c.Message.Parts)
		}
		if record := e.Run.Recorded(); record != nil {
			p.line("%s", indented(record.String()))
		}
		if e.Run.Worker != "" {
			p.line("%s", indented("worker "+e.Run.Worker))
		}
		if e.Run.Error != "" {
			p.line("%s", indented(e.Run.Error))
		}
	}
	if e.Message != nil {
		p.storedParts(e.Message.Parts)
	}
}
