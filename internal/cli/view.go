package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

// The types that operators read as JSON. This is the program's own format, in snake_case and with the names of the log.
// It does not depend on an A2A version.

type taskView struct {
	shown.Task
	Message   *messageView    `json:"message,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	History   []messageView   `json:"history"`
	Artifacts []artifactView  `json:"artifacts"`
	Waits     *time.Time      `json:"waits_until,omitempty"`
	CalledBy  string          `json:"called_by,omitempty"`
	Calls     []shown.Call    `json:"calls,omitempty"`
	Failure   *failureView    `json:"failure,omitempty"`
}

type messageView struct {
	ID       string          `json:"id"`
	Role     string          `json:"role"`
	Parts    []partView      `json:"parts"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

type artifactView struct {
	ID          string          `json:"id"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Parts       []partView      `json:"parts"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
}

type partView struct {
	Text      *string         `json:"text,omitempty"`
	Raw       []byte          `json:"raw,omitempty"`
	URL       string          `json:"url,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	Filename  string          `json:"filename,omitempty"`
	MediaType string          `json:"media_type,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

type eventView struct {
	Seq      task.Seq        `json:"seq"`
	At       time.Time       `json:"at"`
	Kind     string          `json:"kind"`
	Attempt  task.Attempt    `json:"attempt"`
	State    string          `json:"state,omitempty"`
	Cause    string          `json:"cause,omitempty"`
	Direct   bool            `json:"direct,omitempty"`
	Message  *messageView    `json:"message,omitempty"`
	Artifact *artifactView   `json:"artifact,omitempty"`
	Append   bool            `json:"append,omitempty"`
	Last     bool            `json:"last,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Run      *runView        `json:"run,omitempty"`
}

// tailView is an event with its task, for readers that follow many tasks.
type tailView struct {
	ID        string `json:"id"`
	TaskID    string `json:"task_id"`
	Agent     string `json:"agent"`
	ContextID string `json:"context_id"`
	eventView
}

type runView struct {
	Outcome    string          `json:"outcome"`
	Error      string          `json:"error,omitempty"`
	Worker     string          `json:"worker,omitempty"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`

	Until         *time.Time `json:"until,omitempty"`
	Interruptible bool       `json:"interruptible,omitempty"`

	Calls []notedCallView `json:"calls,omitempty"`
}

type notedCallView struct {
	ID      string       `json:"id"`
	Agent   string       `json:"agent,omitempty"`
	Task    string       `json:"task"`
	Message *messageView `json:"message"`
}

func viewTask(h *shown.Task, t *task.Task, calls *shown.Lineage) taskView {
	v := taskView{
		Task: *h, Message: viewMessage(t.Status.Message), Metadata: t.Metadata, CalledBy: calls.CalledBy, Calls: calls.Calls,
		History: make([]messageView, len(t.History)), Artifacts: make([]artifactView, len(t.Artifacts)),
	}
	if t.Wait != nil && t.Wait.Until.After(time.Now()) {
		until := t.Wait.Until.UTC()
		v.Waits = &until
	}
	for i := range t.History {
		v.History[i] = *viewMessage(&t.History[i])
	}
	for i := range t.Artifacts {
		v.Artifacts[i] = *viewArtifact(&t.Artifacts[i])
	}
	return v
}

func viewEvent(e *task.Event) eventView {
	v := eventView{
		Seq: e.Seq, At: e.At.UTC(), Kind: e.Kind.String(), Attempt: e.Attempt, Direct: e.Direct,
		Message: viewMessage(e.Message), Artifact: viewArtifact(e.Artifact), Append: e.Append, Last: e.Last,
		Metadata: e.Metadata,
	}
	if e.Kind == task.EventStatus {
		v.State, v.Cause = e.State.String(), e.Cause
	}
	if e.Run != nil {
		v.Run = &runView{
			Outcome: e.Run.Outcome, Error: e.Run.Error, Worker: e.Run.Worker, Checkpoint: e.Run.Checkpoint, Interruptible: e.Run.Interruptible,
		}
		if !e.Run.Until.IsZero() {
			until := e.Run.Until.UTC()
			v.Run.Until = &until
		}
		for i := range e.Run.Calls {
			c := &e.Run.Calls[i]
			v.Run.Calls = append(v.Run.Calls, notedCallView{ID: c.ID, Agent: c.Agent, Task: c.Task.String(), Message: viewMessage(c.Message)})
		}
	}
	return v
}

func viewMessage(m *task.Message) *messageView {
	if m == nil {
		return nil
	}
	return &messageView{ID: m.ID, Role: roleName(m.Role), Parts: viewParts(m.Parts), Metadata: m.Metadata}
}

func viewArtifact(a *task.Artifact) *artifactView {
	if a == nil {
		return nil
	}
	return &artifactView{ID: a.ID, Name: a.Name, Description: a.Description, Parts: viewParts(a.Parts), Metadata: a.Metadata}
}

func viewParts(parts []task.Part) []partView {
	views := make([]partView, len(parts))
	for i, p := range parts {
		views[i] = partView{
			Raw: p.Raw, URL: p.URL, Data: p.Data, Filename: p.Filename, MediaType: p.MediaType, Metadata: p.Metadata,
		}
		if p.Kind == task.PartText {
			views[i].Text = &p.Text
		}
	}
	return views
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

func printStoredTask(p *printer, t *task.Task, calls *shown.Lineage, failure *failureView) error {
	p.field("task", t.PublicID)
	if id := t.ID.String(); id != t.PublicID {
		p.field("uuid", id)
	}
	p.field("agent", t.Agent)
	p.field("state", t.Status.State.String()+" since "+stamp(t.Status.At))
	if failure != nil {
		p.field("error", fmt.Sprintf("attempt %d %s: %s", failure.Attempt, failure.Outcome, strings.ReplaceAll(failure.Error, "\n", "\n             ")))
	}
	if !t.RetriedAs.IsZero() {
		p.field("retried as", t.RetriedAs.String())
	}
	if t.Wait != nil && t.Wait.Until.After(time.Now()) {
		p.field("waits until", stamp(t.Wait.Until))
	}
	if t.Wait != nil && len(t.Wait.Calls) > 0 {
		p.field("waits for", "the results of its calls")
	}
	p.field("context", t.ContextID)
	p.field("tenant", t.Tenant)
	p.field("owner", t.Owner)
	p.field("A2A version", t.Dialect)
	p.field("created", stamp(t.CreatedAt))
	p.field("trace", tracing.Context{Parent: t.Traceparent}.TraceID())
	p.field("events", fmt.Sprint(t.LastSeq))
	if calls.CalledBy != "" {
		p.field("called by", fmt.Sprintf("%s (call %s)", calls.CalledBy, calls.CallID))
	}
	for i := range calls.Calls {
		c := &calls.Calls[i]
		switch {
		case c.Error != "":
			p.field("call "+c.ID, fmt.Sprintf("%s: refused, %s", c.Agent, c.Error))
		case c.Result == "":
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
		name := a.Name
		if name == "" {
			name = a.ID
		}
		p.line("artifact %s:", name)
		p.storedParts(a.Parts)
	}
	return p.err
}

func (c *command) printEvents(events []*task.Event, format output) error {
	p := &printer{w: c.Out}
	for _, e := range events {
		if format == outputJSON {
			if err := printLine(c.Out, viewEvent(e)); err != nil {
				return fmt.Errorf("write event %d: %w", e.Seq, err)
			}
			continue
		}
		p.storedEvent(e)
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
