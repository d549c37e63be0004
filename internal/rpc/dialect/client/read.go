package client

import (
	"strconv"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/protojson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Update is an answer, or an event of a stream: exactly one of Task, Message and Event. An answer of List has Tasks.
type Update struct {
	Task    *task.Task
	Message *task.Message // a bare message, without a task
	Event   *task.Event   // a status or an artifact
	Tasks   []*task.Task

	TaskID, ContextID string // "" if the server does not say
}

// Answer reads the body of an answer with a 2xx status, or the data of an event of a stream. The error is an *Error if
// the server reports one. Any other error says what is wrong with the answer, and where. maxDepth bounds its nesting. Over gRPC
// the body is a message.
func (w *Wire) Answer(op Op, body []byte, maxDepth int) (*Update, error) {
	body, err := w.asJSON(op, body)
	if err != nil {
		return nil, err
	}
	body, _ = rawjson.Repair(body)
	body, _ = rawjson.WithoutNUL(body)
	if err := rawjson.Check(body, maxDepth); err != nil {
		return nil, err
	}
	r := rawjson.NewReader(body)
	defer r.Close()
	read := reader{w: w, op: op, r: r}
	var u *Update
	if w.Binding == JSONRPC {
		u = read.envelope()
	} else {
		u = read.result()
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	if read.fault != nil {
		return nil, read.fault
	}
	if u == nil {
		return nil, task.InvalidField("result", "is missing")
	}
	return u, nil
}

// asJSON converts a body over gRPC.
func (w *Wire) asJSON(op Op, body []byte) ([]byte, error) {
	if w.service == nil {
		return body, nil
	}
	return w.service.Answer(op, body)
}

// Notification reads the body of a push notification: a task, or what is an event of a stream over HTTP+JSON.
func (w *Wire) Notification(body []byte, maxDepth int) (*Update, error) {
	bare := *w
	bare.Binding, bare.service = HTTPJSON, nil
	return bare.Answer(Stream, body, maxDepth)
}

// Document reads the body of an answer with a 2xx status to op, or an event of a stream, and returns its content as it was
// written, such as a card or a task. Over gRPC that is ProtoJSON. The error is an *Error if the server reports one.
func (w *Wire) Document(op Op, body []byte, maxDepth int) ([]byte, error) {
	body, err := w.asJSON(op, body)
	if err != nil {
		return nil, err
	}
	if err := rawjson.Check(body, maxDepth); err != nil || w.Binding != JSONRPC {
		return body, err
	}
	r := rawjson.NewReader(body)
	defer r.Close()
	read := reader{w: w, op: op, r: r}
	var document []byte
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "result":
			document = r.Raw()
		case "error":
			read.fault = read.rpcError()
		default:
			r.Skip()
		}
	}
	switch {
	case r.Err() != nil:
		return nil, r.Err()
	case read.fault != nil:
		return nil, read.fault
	case document == nil:
		return nil, task.InvalidField("result", "is missing")
	}
	return document, nil
}

// reader reads one answer.
type reader struct {
	w     *Wire
	op    Op
	r     *rawjson.Reader
	fault *Error
}

// envelope reads a response of JSON-RPC.
func (d *reader) envelope() (u *Update) {
	r := d.r
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "result":
			u = d.result()
		case "error":
			d.fault = d.rpcError()
		default:
			r.Skip()
		}
	}
	return u
}

// result reads an answer of any operation. Answers of 1.0 and of HTTP+JSON have a member that names what they contain,
// others have that itself.
func (d *reader) result() *Update {
	r := d.r
	var bare flat
	u := new(Update)
	for r.Object(); r.Next(); {
		switch name := string(protojson.Member(r)); name {
		case "task":
			u.Task = d.task()
		case "message":
			u.Message = d.message()
		case "statusUpdate", "artifactUpdate":
			var inner flat
			d.wrapped(&inner)
			u.Event, u.TaskID, u.ContextID = inner.event(d), inner.taskID, inner.contextID
		case "tasks":
			u.Tasks = []*task.Task{}
			for r.Array(); r.Item(); {
				u.Tasks = append(u.Tasks, d.task())
			}
		case "error": // an event of a stream over HTTP+JSON that reports an error
			d.fault = new(Error)
			d.errorObject(d.fault)
		default:
			d.member(name, &bare)
		}
	}
	switch {
	case u.Task != nil:
		u.TaskID, u.ContextID = u.Task.PublicID, u.Task.ContextID
		return u
	case u.Message != nil:
		u.TaskID, u.ContextID = u.Message.TaskID, u.Message.ContextID
		return u
	case u.Event != nil, u.Tasks != nil, d.fault != nil:
		return u
	case d.op == List && d.w.service != nil: // ProtoJSON omits an empty list
		u.Tasks = []*task.Task{}
		return u
	}
	return bare.update(d)
}

// flat has the members of a task, a message or an event, until it is known which of them it is.
type flat struct {
	kind                  string
	id, taskID, contextID string
	status                *status
	final                 bool
	artifact              *chunk
	append, last          bool
	task                  task.Task
	msg                   task.Message
	seen                  struct{ status, artifact, parts bool }
}

// member reads one member of a flat object.
func (d *reader) member(name string, f *flat) {
	r := d.r
	switch name {
	case "kind":
		f.kind = r.String()
	case "id":
		f.id = d.id()
	case "taskId":
		f.taskID = d.id()
	case "contextId", "sessionId":
		f.contextID = d.id()
	case "status":
		f.status, f.seen.status = d.status(), true
	case "artifact":
		f.artifact, f.seen.artifact = d.artifact(), true
	case "append":
		f.append = r.Bool()
	case "lastChunk":
		f.last = r.Bool()
	case "final":
		f.final = r.Bool()
	case "artifacts":
		for r.Array(); r.Item(); {
			f.task.Artifacts = append(f.task.Artifacts, d.artifact().Artifact)
		}
	case "history":
		for r.Array(); r.Item(); {
			if m := d.message(); m != nil {
				f.task.History = append(f.task.History, *m)
			}
		}
	case "metadata":
		f.task.Metadata = r.RawObject()
	case "messageId", "role", "parts", "content", "extensions", "referenceTaskIds":
		f.seen.parts = f.seen.parts || name == "parts" || name == "content"
		d.messageMember(name, &f.msg)
	default:
		r.Skip()
	}
}

// wrapped reads a flat object.
func (d *reader) wrapped(f *flat) {
	for d.r.Object(); d.r.Next(); {
		d.member(string(protojson.Member(d.r)), f)
	}
}

func (f *flat) update(d *reader) *Update {
	kind := f.kind
	if kind == "" {
		switch {
		case f.seen.artifact:
			kind = "artifact-update"
		case f.seen.parts && !f.seen.status:
			kind = "message"
		case f.seen.status && (f.taskID != "" || d.w.clientIDs && d.op.Streams()):
			kind = "status-update"
		case f.seen.status:
			kind = "task"
		}
	}
	switch kind {
	case "task":
		t := f.asTask(d)
		return &Update{Task: t, TaskID: t.PublicID, ContextID: t.ContextID}
	case "message":
		f.msg.Metadata, f.msg.TaskID, f.msg.ContextID = f.task.Metadata, f.taskID, f.contextID
		return &Update{Message: &f.msg, TaskID: f.taskID, ContextID: f.contextID}
	case "status-update", "artifact-update":
		id := f.taskID
		if id == "" {
			id = f.id
		}
		return &Update{Event: f.event(d), TaskID: id, ContextID: f.contextID}
	}
	d.r.FailMember("result", "is no task, message, status update or artifact update")
	return nil
}

func (f *flat) asTask(d *reader) *task.Task {
	t := f.task
	t.PublicID, t.ContextID = f.id, f.contextID
	d.r.Require(t.PublicID != "", "id")
	d.r.Require(f.status != nil, "status")
	if f.status != nil {
		t.Status = task.Status{State: f.status.state, Message: f.status.message}
	}
	return &t
}

func (f *flat) event(d *reader) *task.Event {
	switch {
	case f.status != nil:
		return &task.Event{Kind: task.EventStatus, State: f.status.state, Message: f.status.message, Metadata: f.task.Metadata}
	case f.artifact != nil:
		return &task.Event{
			Kind: task.EventArtifact, Artifact: &f.artifact.Artifact, Metadata: f.task.Metadata,
			Append: f.append || f.artifact.append, Last: f.last || f.artifact.last,
		}
	}
	d.r.Fail("has neither a status nor an artifact")
	return nil
}

func (d *reader) task() *task.Task {
	var f flat
	d.wrapped(&f)
	return f.asTask(d)
}

type status struct {
	state   task.State
	message *task.Message
}

func (d *reader) status() *status {
	r, s := d.r, new(status)
	for r.Object(); r.Next(); {
		switch string(protojson.Member(r)) {
		case "state":
			s.state = d.state()
		case "message", "update": // update is in the younger proto files of 0.3
			s.message = d.message()
		default:
			r.Skip()
		}
	}
	return s
}

// maxID bounds ids, in bytes. Runs keep those of their task in memory.
const maxID = 1024

func (d *reader) id() string {
	id := d.r.String()
	if len(id) > maxID {
		d.r.Fail("is longer than %d bytes", maxID)
	}
	return id
}

// state reads a state. The state unknown of the 0.x versions is unspecified here.
func (d *reader) state() task.State {
	if d.r.IsString() {
		name := d.r.String()
		short := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "TASK_STATE_")), "_", "-")
		switch s, ok := task.ParseState(short); {
		case ok:
			return s
		case short == "unknown", short == "unspecified", short == "":
			return task.StateUnspecified
		}
		d.r.Fail("%q is not a state of a task", cut(name))
		return task.StateUnspecified
	}
	return protojson.State(d.r)
}

func cut(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

func (d *reader) message() *task.Message {
	m := new(task.Message)
	for d.r.Object(); d.r.Next(); {
		d.messageMember(string(protojson.Member(d.r)), m)
	}
	return m
}

func (d *reader) messageMember(name string, m *task.Message) {
	r := d.r
	switch name {
	case "messageId":
		m.ID = d.id()
	case "role":
		m.Role = d.role()
	case "parts", "content":
		m.Parts = d.parts()
	case "taskId":
		m.TaskID = d.id()
	case "contextId":
		m.ContextID = d.id()
	case "metadata":
		m.Metadata = r.RawObject()
	case "extensions":
		m.Extensions = r.Strings()
	case "referenceTaskIds":
		m.References = r.Strings()
	default:
		r.Skip()
	}
}

// role reads the role of a message's author. An unknown one is the agent, which sends all that is read here.
func (d *reader) role() task.Role {
	if d.r.IsNumber() {
		if task.Role(d.r.Count()) == task.RoleUser {
			return task.RoleUser
		}
		return task.RoleAgent
	}
	if strings.EqualFold(strings.TrimPrefix(d.r.String(), "ROLE_"), "user") {
		return task.RoleUser
	}
	return task.RoleAgent
}

// chunk is an artifact with the marks that 0.1 has in it.
type chunk struct {
	task.Artifact
	append, last bool
}

func (d *reader) artifact() *chunk {
	r, c := d.r, new(chunk)
	for r.Object(); r.Next(); {
		switch string(protojson.Member(r)) {
		case "artifactId":
			c.ID = d.id()
		case "index":
			c.Index = r.Count()
		case "name":
			c.Name = r.String()
		case "description":
			c.Description = r.String()
		case "parts", "content":
			c.Parts = d.parts()
		case "metadata":
			c.Metadata = r.RawObject()
		case "extensions":
			c.Extensions = r.Strings()
		case "append":
			c.append = r.Bool()
		case "lastChunk":
			c.last = r.Bool()
		default:
			r.Skip()
		}
	}
	if c.ID == "" && d.w.clientIDs { // 0.1 has only the index
		c.ID = "artifact-" + strconv.Itoa(c.Index)
	}
	r.Require(c.ID != "", "artifactId")
	return c
}

func (d *reader) parts() []task.Part {
	r, parts := d.r, []task.Part{}
	for r.Array(); r.Item(); {
		if len(parts) >= rawjson.MaxParts {
			r.Skip()
			r.Fail("has more than %d parts", rawjson.MaxParts)
			continue
		}
		parts = append(parts, d.part())
	}
	return parts
}

// part reads a part of any version. Exactly one member contains the content.
func (d *reader) part() task.Part {
	r := d.r
	var p task.Part
	contents, kind := 0, ""
	has := func(k task.PartKind) { p.Kind = k; contents++ }
	for r.Object(); r.NextOr("data"); {
		switch string(protojson.Member(r)) {
		case "kind", "type":
			kind = r.String()
		case "text":
			has(task.PartText)
			p.Text = r.String()
		case "raw":
			has(task.PartRaw)
			p.Raw = r.Bytes()
		case "url":
			has(task.PartURL)
			p.URL = r.String()
		case "data":
			has(task.PartData)
			p.Data = r.Raw()
		case "file":
			contents++
			d.file(&p)
		case "filename":
			p.Filename = r.String()
		case "mediaType":
			p.MediaType = r.String()
		case "metadata":
			p.Metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	switch {
	case contents != 1:
		r.Fail("must have one of text, raw, url, data and file")
	case p.Kind == task.PartData && d.w.data && kind == "":
		if inner, ok := rawjson.Lookup(object(p.Data), "data"); ok && rawjson.Without(p.Data, "data") == nil {
			p.Data = inner
		}
		return v0.Unwrap(p)
	case p.Kind == task.PartData && !d.w.modern:
		return v0.Unwrap(p)
	}
	return p
}

// object returns raw if it is an object, otherwise nil.
func object(raw []byte) []byte {
	if len(raw) > 0 && raw[0] == '{' {
		return raw
	}
	return nil
}

// file reads the file of a part of the 0.x versions.
func (d *reader) file(p *task.Part) {
	r := d.r
	var raw []byte
	for r.Object(); r.Next(); {
		switch string(protojson.Member(r)) {
		case "bytes", "data", "fileWithBytes":
			raw = r.Bytes()
		case "uri", "fileWithUri":
			p.URL = r.String()
		case "name":
			p.Filename = r.String()
		case "mimeType":
			p.MediaType = r.String()
		default:
			r.Skip()
		}
	}
	if !v0.SetFile(p, raw) {
		r.Fail("must have only one of bytes and uri")
	}
}
