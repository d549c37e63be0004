package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

// viewTasks shows tasks, each with what it is about and its line.
func (o *Options) viewTasks(ctx context.Context, tasks ...*store.AdminTask) ([]shown.Task, error) {
	if err := o.Store.Describe(ctx, tasks); err != nil {
		return nil, err
	}
	ids := make([]task.ID, len(tasks))
	for i, t := range tasks {
		ids[i] = t.Task.ID
	}
	lines, err := o.Store.StatusLines(ctx, ids)
	if err != nil {
		return nil, err
	}
	views := make([]shown.Task, len(tasks))
	for i, t := range tasks {
		views[i] = viewTask(t)
		views[i].Line, views[i].Cost = lines[t.Task.ID], o.Prices.ofTask(t)
	}
	return views, nil
}

func viewTask(t *store.AdminTask) shown.Task {
	h := t.Task
	return shown.Task{
		ID: h.ID, TaskID: h.PublicID, Agent: h.Agent, Tenant: h.Tenant, Owner: h.Owner, ContextID: h.ContextID, Dialect: h.Dialect,
		State: h.Status.State, StatusAt: h.Status.At, CreatedAt: h.CreatedAt, LastSeq: h.LastSeq, Direct: h.Direct,
		Attempt: t.Attempt, Runs: t.Runs, Turns: t.Turns, Pending: t.Pending, Worker: t.Worker, ClaimedAt: t.ClaimedAt,
		CancelRequestedAt: t.CancelRequested, HeldAt: t.HeldAt, RetriedAs: h.RetriedAs, ArtifactBytes: t.ArtifactBytes,
		TraceID: tracing.Context{Parent: h.Traceparent}.TraceID(), Said: t.Said, Reason: t.Reason, Tokens: t.Tokens,
	}
}

// idText is empty for the zero id.
func idText(id task.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

const mostTokens = 1<<53 - 1 // that JavaScript can write

func (a *API) tasks(x *exchange) error {
	f, id, text, limit := x.q.filter(), x.q.word("id"), x.q.word("text"), x.q.limit()
	var from task.ID
	if f.Oldest = !x.q.newestFirst(true); f.Oldest {
		from = x.q.id("after")
	} else {
		from = x.q.id("before")
	}
	reason, failed := x.q.reason(f)
	least, most := x.q.number("min_tokens", 0, 1, mostTokens), x.q.number("max_tokens", mostTokens, 0, mostTokens)
	using := x.q.values["min_tokens"] != nil || x.q.values["max_tokens"] != nil
	if id != "" && text != "" {
		x.q.bad("text", "cannot be combined with id")
	}
	if failed && (id != "" || text != "") {
		x.q.bad("reason", "cannot be combined with id or text")
	}
	if using && (id != "" || text != "" || failed) {
		x.q.bad("min_tokens", "and max_tokens cannot be combined with id, text or reason")
	}
	if err := x.q.done(); err != nil {
		return err
	}
	found := &store.AdminPage{}
	var err error
	switch {
	case id != "":
		var t *store.AdminTask
		if t, err = x.op.Find(x.ctx, id); err == nil && f.Matches(t.Task) {
			found.Tasks = append(found.Tasks, t)
		} else if task.KindOf(err) == task.NotFound {
			err = nil
		}
	case failed:
		found, err = x.op.FailedFor(x.ctx, f, sameReason(reason), from, limit)
	case using:
		found, err = x.op.Using(x.ctx, f, least, most, from, limit)
	case text != "":
		found, err = x.op.Search(x.ctx, f, text, from, limit)
	default:
		found, err = x.op.List(x.ctx, f, from, limit)
	}
	if err != nil {
		return err
	}
	page := shown.TasksPage{Next: idText(found.Next)}
	if failed || using || text != "" {
		page.SearchedSince = found.SearchedSince()
	}
	if page.Tasks, err = a.o.viewTasks(x.ctx, found.Tasks...); err != nil {
		return err
	}
	return x.ok(page)
}

type countsView struct {
	Counts map[string]int64 `json:"counts"`
	Agents map[string]int64 `json:"agents"`
	// CountedSince is how far back the tasks were counted; absent: all of them.
	CountedSince time.Time `json:"counted_since,omitzero"`
	// Created has, by state, the numbers of tasks created in each interval since Begins.
	Created      map[task.State][]int64 `json:"created"`
	Begins       time.Time              `json:"begins"`
	WidthSeconds float64                `json:"width_seconds"`
}

func (a *API) counts(x *exchange) error {
	f := x.q.filter()
	if err := x.q.done(); err != nil {
		return err
	}
	counted, err := x.op.Count(x.ctx, f)
	if err != nil {
		return err
	}
	view := countsView{
		Counts: map[string]int64{}, Agents: counted.ByAgent, CountedSince: counted.Since, Created: counted.Created, Begins: counted.Begins.UTC(), WidthSeconds: counted.Width.Seconds(),
	}
	for _, state := range task.States {
		view.Counts[state.String()] = counted.ByState[state]
	}
	return x.ok(view)
}

func (a *API) task(x *exchange) error {
	t, err := x.found()
	if err != nil {
		return err
	}
	views, err := a.o.viewTasks(x.ctx, t)
	if err != nil {
		return err
	}
	d := shown.TaskDetail{Task: views[0], Metadata: t.Task.Metadata}
	if d.StatusMessage, err = statusMessage(x.ctx, x.op, t); err != nil {
		return err
	}
	return x.ok(d)
}

// inbox lists the tasks that wait for people, with what their agents ask.
func (a *API) inbox(x *exchange) error {
	f := &store.AdminFilter{
		States: []task.State{task.StateInputRequired, task.StateAuthRequired},
		Agent:  store.Among{Is: x.q.texts("agent")}, Tenant: store.Among{Is: x.q.texts("tenant")}, Owner: store.Among{Is: x.q.texts("owner")},
	}
	before, limit := x.q.id("before"), x.q.limit()
	if err := x.q.done(); err != nil {
		return err
	}
	found, err := x.op.List(x.ctx, f, before, limit)
	if err != nil {
		return err
	}
	views, err := a.o.viewTasks(x.ctx, found.Tasks...)
	if err != nil {
		return err
	}
	page := shown.Inbox{Tasks: []shown.TaskDetail{}, Next: idText(found.Next)}
	for i, t := range found.Tasks {
		d := shown.TaskDetail{Task: views[i], Metadata: t.Task.Metadata}
		if d.StatusMessage, err = statusMessage(x.ctx, x.op, t); err != nil {
			return err
		}
		page.Tasks = append(page.Tasks, d)
	}
	return x.ok(page)
}

// statusMessage returns the message of the current status, as it is stored.
func statusMessage(ctx context.Context, op *store.Operator, t *store.AdminTask) (json.RawMessage, error) {
	evs, _, err := op.Log(ctx, t, t.Task.Status.Seq-1, false, 1)
	if err != nil || len(evs) == 0 || evs[0].Kind != task.EventStatus || evs[0].Payload == nil {
		return nil, err
	}
	var payload struct {
		Message json.RawMessage `json:"message"`
	}
	err = json.Unmarshal(evs[0].Payload, &payload)
	return payload.Message, err
}

// viewEvent shows an event as it is stored, and with a codec also as clients see it.
func viewEvent(t *store.AdminTask, e *store.AdminEvent, codec dialect.Codec) (shown.Event, error) {
	v := shown.Event{AdminEvent: *e}
	if codec == nil || e.Kind != task.EventStatus && e.Kind != task.EventArtifact {
		return v, nil
	}
	decoded, err := t.Decoded(e)
	if err != nil {
		return v, err
	}
	if decoded.Direct {
		v.A2A, err = codec.Direct(t.Task, decoded)
	} else {
		v.A2A, err = codec.Event(t.Task, decoded, false)
	}
	return v, err
}

// codec reads the parameter that chooses a version of A2A.
func (q *query) codec() dialect.Codec {
	name := q.word("version")
	if name == "" {
		return nil
	}
	c := registry.ByVersion(name)
	if c == nil {
		q.bad("version", "%q is not a version that this server speaks; use one of %s", name, fmt.Sprint(registry.Versions()))
	}
	return c
}

// kinds reads the parameter that selects kinds of events.
func (q *query) kinds() (out []task.EventKind) {
	q.read = append(q.read, "kind")
	for _, name := range q.values["kind"] {
		var kind task.EventKind
		if kind.UnmarshalText([]byte(name)) != nil {
			q.bad("kind", "%q is not a kind of event; use message, status, artifact or run", name)
		} else if !slices.Contains(out, kind) {
			out = append(out, kind)
		}
	}
	return out
}

func (a *API) log(x *exchange) error {
	const most = 1<<53 - 1
	codec, limit, back := x.q.codec(), x.q.limit(), x.q.newestFirst(false)
	var at task.Seq
	if back {
		at = task.Seq(x.q.number("before", 0, 1, most))
	} else {
		at = task.Seq(x.q.number("after", 0, 0, most))
	}
	kinds := x.q.kinds()
	if err := x.q.done(); err != nil {
		return err
	}
	t, err := x.found()
	if err != nil {
		return err
	}
	evs, more, err := x.op.Log(x.ctx, t, at, back, limit, kinds...)
	if err != nil {
		return err
	}
	page := shown.LogPage{Events: make([]shown.Event, len(evs))}
	for i := range evs {
		if page.Events[i], err = viewEvent(t, &evs[i], codec); err != nil {
			return err
		}
	}
	if more {
		page.Next = evs[len(evs)-1].Seq
	}
	return x.ok(page)
}

type runsView struct {
	Runs []store.AdminRun `json:"runs"`
	// More says that the task has more runs than are shown.
	More bool `json:"more,omitempty"`
}

func (a *API) runs(x *exchange) error {
	t, err := x.found()
	if err != nil {
		return err
	}
	runs, more, err := x.op.Runs(x.ctx, t)
	if err != nil {
		return err
	}
	for i := range runs {
		runs[i].Error = bounded(runs[i].Error)
	}
	return x.ok(runsView{runs, more})
}

// maxText bounds an error message of an answer, in bytes. The log has the whole message.
const maxText = 16 << 10

func bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for end > 0 && s[end]&0xc0 == 0x80 {
		end--
	}
	return s[:end] + "…"
}

func (a *API) lineage(x *exchange) error {
	t, err := x.found()
	if err != nil {
		return err
	}
	calls, err := a.o.Store.Calls(x.ctx, t.Task.ID)
	if err != nil {
		return err
	}
	view := shown.Lineage{Calls: []store.CallRow{}}
	for _, c := range calls {
		if c.Parent == t.Task.ID {
			view.Calls = append(view.Calls, c)
		} else {
			view.CalledBy, view.CallID = c.Parent, c.ID
		}
	}
	return x.ok(view)
}

func (a *API) webhooksOfTask(x *exchange) error {
	before, limit := x.q.place(), x.q.limit()
	if err := x.q.done(); err != nil {
		return err
	}
	t, err := x.found()
	if err != nil {
		return err
	}
	return x.pushes(store.PushFilter{Task: t.Task.ID, Limit: limit}, before)
}

func (a *API) webhooks(x *exchange) error {
	f := store.PushFilter{
		Task: x.q.id("task"), Agent: x.q.word("agent"), Owner: x.q.word("owner"), Tenant: x.q.optional("tenant"), Host: x.q.word("host"),
		Disabled: x.q.flag("disabled"), Failing: x.q.flag("failing"), Due: x.q.flag("due"), Limit: x.q.limit(),
	}
	before := x.q.place()
	if err := x.q.done(); err != nil {
		return err
	}
	if x.who.Bound && f.Tenant != nil && *f.Tenant != x.who.Caller.Tenant {
		return x.ok(shown.WebhooksPage{Webhooks: []shown.Push{}})
	}
	return x.pushes(f, before)
}

// pushPlace is the place of a webhook in a list.
type pushPlace struct {
	task task.ID
	id   string
}

// place reads the parameter before of a list of webhooks: the id of a task, a slash, and the id of a webhook.
func (q *query) place() (p pushPlace) {
	v := q.word("before")
	if v == "" {
		return p
	}
	if len(v) < 37 || v[36] != '/' {
		q.bad("before", "give the next of the page before")
		return p
	}
	var err error
	if p.task, err = task.ParseID(v[:36]); err != nil {
		q.bad("before", "give the next of the page before")
	}
	p.id = v[37:]
	return p
}

func (x *exchange) pushes(f store.PushFilter, before pushPlace) error {
	f.BeforeTask, f.BeforeID = before.task, before.id
	found, err := x.op.ListedPushes(x.ctx, f)
	if err != nil {
		return err
	}
	page := shown.WebhooksPage{Webhooks: []shown.Push{}}
	if !found.NextTask.IsZero() {
		page.Next = found.NextTask.String() + "/" + found.NextID
	}
	for i := range found.Pushes {
		v := shown.OfPush(&found.Pushes[i])
		v.LastError = bounded(v.LastError)
		page.Webhooks = append(page.Webhooks, v)
	}
	return x.ok(page)
}

// maxAttempts bounds the attempts of one answer.
const maxAttempts = 10_000

func (a *API) attempts(x *exchange) error {
	config, limit := x.q.word("config"), x.q.upto(maxAttempts)
	if err := x.q.done(); err != nil {
		return err
	}
	t, err := x.found()
	if err != nil {
		return err
	}
	rows, err := a.o.Store.PushAttempts(x.ctx, t.Task.ID, config, limit)
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].Error = bounded(rows[i].Error)
	}
	return x.ok(shown.Attempts{Attempts: rows})
}

type meView struct {
	Subject    string `json:"subject"`
	Tenant     string `json:"tenant"`
	Right      string `json:"right"`
	AllTenants bool   `json:"all_tenants"`
	ReadOnly   string `json:"read_only,omitempty"`
	Version    string `json:"version"`
	// ReasonNeeded says that each action needs a reason.
	ReasonNeeded bool `json:"reason_needed"`
	// Session is that of the browser; absent: another credential, or none.
	Session *BrowserSession `json:"session,omitempty"`
	// Dialects are the versions of A2A in which this server shows events.
	Dialects []string `json:"a2a_versions"`
	// TraceURL is the address of a trace, with {trace_id} in the place of its id.
	TraceURL string `json:"trace_url,omitempty"`
	// Documents says that they are at /docs/.
	Documents bool `json:"documents"`
	// Currency is that of costs; empty: the prices name none.
	Currency string `json:"currency,omitempty"`
}

func (a *API) me(x *exchange) error {
	c := x.who.Caller
	return x.ok(meView{
		Subject: c.Subject, Tenant: c.Tenant, Right: x.who.Right.String(), ReasonNeeded: x.reasonNeeded(), AllTenants: !x.who.Bound, ReadOnly: x.who.ReadOnly, Version: a.o.Version,
		Session:  x.who.Session,
		Dialects: registry.Versions(),
		TraceURL: a.o.TraceURL, Currency: a.o.Currency, Documents: a.o.Documents,
	})
}
