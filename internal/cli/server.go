package cli

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/admin/adminclient"
	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/server"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/upkeep/retention"
)

// source is what the verbs of operators use: a server, or the database.
func (c *command) source() string {
	if c.serverURL() != "" {
		return "server"
	}
	return "database"
}

// serverURL is the admin address of --server, of the profile, or of HOLDFAST_SERVER.
func (c *command) serverURL() string {
	return cmp.Or(c.server, c.profile.Server, c.env("HOLDFAST_SERVER"))
}

// openServer returns the operator that acts through the admin API of a server; nil: none is given.
func (c *command) openServer(ctx context.Context, verb, database string) (*serverOperator, error) {
	server := c.serverURL()
	switch {
	case c.server == "" && c.profileErr != nil:
		return nil, c.profileErr
	case server == "":
		return nil, nil //nolint:nilnil // the verb uses the database
	case !isURL(server):
		return nil, usage("%q is not a URL; write the admin address of a server, such as http://127.0.0.1:9090", server)
	case database != "":
		return nil, usage("--database-url and a server (--server, --profile, HOLDFAST_SERVER) exclude each other; remove one")
	}
	credential, err := c.serverCredential(ctx, server)
	if err != nil {
		return nil, err
	}
	api := adminclient.New(server, credential)
	if c.profile.CAFile != "" && server == c.profile.Server {
		pem, err := os.ReadFile(c.profile.CAFile)
		authorities := x509.NewCertPool()
		if err == nil && !authorities.AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%s has no certificate in PEM", c.profile.CAFile)
		}
		if err != nil {
			return nil, usage("ca_file of the profile: %w", err)
		}
		api.Trust(authorities)
	}
	return &serverOperator{api, cmp.Or(c.reason, verb)}, nil
}

// serverCredential returns the API key or token for a server, or "". That of a profile goes to the profile's server only.
func (c *command) serverCredential(ctx context.Context, server string) (string, error) {
	from, name := secrets.Text(c.env("HOLDFAST_SERVER_CREDENTIAL")), "HOLDFAST_SERVER_CREDENTIAL"
	if file := c.env("HOLDFAST_SERVER_CREDENTIAL_FILE"); file != "" {
		if from != nil {
			return "", usage("HOLDFAST_SERVER_CREDENTIAL and HOLDFAST_SERVER_CREDENTIAL_FILE exclude each other; remove one")
		}
		from, name = secrets.File(file), "HOLDFAST_SERVER_CREDENTIAL_FILE"
	}
	if server == c.profile.Server {
		from, name = c.profile.credential()
	}
	text, err := from.Read(ctx)
	if err != nil {
		return "", usage("%s: %w", name, err)
	}
	return strings.TrimSpace(text), nil
}

// serverOperator is the Operator that uses the admin API of a server.
type serverOperator struct {
	api    *adminclient.Client
	reason string // of its acts, for the audit log
}

var _ Operator = (*serverOperator)(nil)

// errDatabase is the error of a verb that needs more than the admin API gives.
func errDatabase(what string) error {
	return usage("%s needs the database; run it without --server, --profile and HOLDFAST_SERVER, where the database can be reached", what)
}

func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// withTenant adds the parameter tenant to a query. "" is the tenant of callers without one.
func withTenant(q url.Values, tenant *string) url.Values {
	if tenant != nil {
		q.Set("tenant", *tenant)
	}
	return q
}

// page is how many items a request asks for.
const page = 500

// ListTasks implements Operator.
func (o *serverOperator) ListTasks(ctx context.Context, f TaskFilter) (out []TaskRow, err error) {
	q := withTenant(query("agent", f.Agent, "context", f.Context, "owner", f.Owner), f.Tenant)
	if f.State != task.StateUnspecified {
		q.Set("state", f.State.String())
	}
	for len(out) < f.Limit {
		q.Set("limit", strconv.Itoa(min(page, f.Limit-len(out))))
		var got adminclient.TasksPage
		if err := o.api.Get(ctx, "/tasks", q, &got); err != nil {
			return nil, err
		}
		for i := range got.Tasks {
			h, err := headerOf(&got.Tasks[i], nil)
			if err != nil {
				return nil, err
			}
			out = append(out, TaskRow{
				ID: h.ID, PublicID: h.PublicID, Agent: h.Agent, State: h.Status.State, ContextID: h.ContextID, Tenant: h.Tenant, Owner: h.Owner,
				LastSeq: h.LastSeq, StatusAt: h.Status.At, CreatedAt: h.CreatedAt,
			})
		}
		if got.Next == "" {
			break
		}
		q.Set("before", got.Next)
	}
	return out, nil
}

// headerOf returns a task without its messages and artifacts.
func headerOf(t *adminclient.Task, metadata []byte) (*task.Task, error) {
	id, err := task.ParseID(t.ID)
	if err != nil {
		return nil, fmt.Errorf("the server sent a task with the id %q", t.ID)
	}
	h := &task.Task{
		ID: id, PublicID: t.TaskID, Agent: t.Agent, Tenant: t.Tenant, Owner: t.Owner, ContextID: t.ContextID, Dialect: t.Dialect,
		Metadata: metadata, CreatedAt: t.CreatedAt, LastSeq: t.LastSeq, Direct: t.Direct,
		Status: task.Status{State: stateOf(t.State), At: t.StatusAt},
	}
	h.RetriedAs, _ = task.ParseID(t.RetriedAs)
	if t.TraceID != "" {
		h.Traceparent = "00-" + t.TraceID + "-0000000000000001-00"
	}
	return h, nil
}

// FindTask implements Operator.
func (o *serverOperator) FindTask(ctx context.Context, id string) (*task.Task, error) {
	var t adminclient.TaskDetail
	if err := o.api.Get(ctx, adminclient.OfTask(id), nil, &t); err != nil {
		return nil, err
	}
	return headerOf(&t.Task, t.Metadata)
}

// GetTask implements Operator. It folds the log as the server does.
func (o *serverOperator) GetTask(ctx context.Context, id string) (*task.Task, error) {
	h, err := o.FindTask(ctx, id)
	if err != nil {
		return nil, err
	}
	t := store.Empty(h)
	for after := task.Seq(0); after < h.LastSeq; {
		evs, err := o.Events(ctx, h, after)
		switch {
		case err != nil:
			return nil, err
		case len(evs) == 0:
			return nil, fmt.Errorf("the log of %s was deleted meanwhile", h.PublicID)
		}
		for _, e := range evs {
			if after = e.Seq; e.Seq > h.LastSeq {
				break
			}
			if err := t.Apply(e); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// Events implements Operator.
func (o *serverOperator) Events(ctx context.Context, t *task.Task, after task.Seq) ([]*task.Event, error) {
	var got adminclient.LogPage
	q := query("after", strconv.FormatInt(int64(after), 10), "limit", strconv.Itoa(page))
	if err := o.api.Get(ctx, adminclient.OfTask(t.ID.String(), "log"), q, &got); err != nil {
		if errors.Is(err, task.NotFound) {
			return nil, nil // as a deleted log in the database
		}
		return nil, err
	}
	of := &store.AdminTask{Task: t}
	out := make([]*task.Event, 0, len(got.Events))
	for i := range got.Events {
		e := &got.Events[i]
		i := slices.IndexFunc(eventKinds, func(k task.EventKind) bool { return k.String() == e.Kind })
		if i < 0 {
			return nil, fmt.Errorf("the server sent an event of the kind %q; is it newer than this program?", e.Kind)
		}
		decoded, err := of.Decoded(&store.AdminEvent{
			Seq: e.Seq, Kind: eventKinds[i], At: e.At, Attempt: task.Attempt(e.Attempt), State: stateOf(e.State), ArtifactID: e.ArtifactID,
			Append: e.Append, Last: e.Last, Payload: e.Payload,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, decoded)
	}
	return out, nil
}

var eventKinds = []task.EventKind{task.EventMessage, task.EventStatus, task.EventArtifact, task.EventRun}

// Calls implements Operator.
func (o *serverOperator) Calls(ctx context.Context, t *task.Task) ([]store.CallRow, error) {
	var got adminclient.Lineage
	if err := o.api.Get(ctx, adminclient.OfTask(t.ID.String(), "lineage"), nil, &got); err != nil {
		return nil, err
	}
	var out []store.CallRow
	if got.CalledBy != "" {
		parent, err := task.ParseID(got.CalledBy)
		if err != nil {
			return nil, err
		}
		out = append(out, store.CallRow{ID: got.CallID, Parent: parent, Task: t.ID})
	}
	for _, c := range got.Calls {
		called, err := task.ParseID(c.Task)
		if err != nil {
			return nil, err
		}
		out = append(out, store.CallRow{ID: c.ID, Agent: c.Agent, Parent: t.ID, Task: called, Result: stateOf(c.Result), Error: c.Error, CalledAt: c.CalledAt})
	}
	return out, nil
}

// act posts an action on a task.
func (o *serverOperator) act(ctx context.Context, id task.ID, body map[string]any, parts ...string) (*adminclient.Acted, error) {
	if body == nil {
		body = map[string]any{}
	}
	if body["reason"] == nil {
		body["reason"] = o.reason
	}
	did := &adminclient.Acted{}
	return did, o.api.Post(ctx, adminclient.OfTask(id.String(), parts...), body, did)
}

// Cancel implements Operator.
func (o *serverOperator) Cancel(ctx context.Context, t *task.Task) (ended bool, err error) {
	did, err := o.act(ctx, t.ID, nil, "cancel")
	if err == nil && did.Outcome == outcomeEnded {
		return false, task.NotCancelable
	}
	return did.Outcome == outcomeCanceled, err
}

// Retry implements Operator.
func (o *serverOperator) Retry(ctx context.Context, t *task.Task, last bool) (*task.Task, error) {
	body := map[string]any{}
	if last {
		body["last"] = true
	}
	did, err := o.act(ctx, t.ID, body, "retry")
	if err != nil {
		return nil, err
	}
	return o.FindTask(ctx, cmp.Or(did.NewTask, t.ID.String()))
}

// Hold implements RetentionOperator.
func (o *serverOperator) Hold(ctx context.Context, t *task.Task, held bool) error {
	verb := "release"
	if held {
		verb = "hold"
	}
	_, err := o.act(ctx, t.ID, nil, verb)
	return err
}

// Purge implements RetentionOperator. A filter is a job of the server, for whose end it waits.
func (o *serverOperator) Purge(ctx context.Context, f *store.PurgeFilter) (done retention.Purged, err error) {
	if !f.Task.IsZero() && f.Tenant == nil && f.Owner == nil && f.ContextID == "" && f.Agent == "" && f.OlderThan == 0 {
		did, err := o.act(ctx, f.Task, nil, "purge")
		switch {
		case err != nil:
			return done, err
		case did.Outcome == "held":
			return retention.Purged{Held: 1}, nil
		}
		return retention.Purged{Tasks: 1, Exported: did.ExportedLines}, nil
	}
	if !f.Task.IsZero() || f.OlderThan > 0 {
		return done, errDatabase("tasks purge with --older-than, or with --task and another filter,")
	}
	filter := map[string]any{}
	for name, value := range map[string]*string{"tenant": f.Tenant, "owner": f.Owner} {
		if value != nil {
			filter[name] = *value
		}
	}
	for name, value := range map[string]string{"context": f.ContextID, "agent": f.Agent} {
		if value != "" {
			filter[name] = value
		}
	}
	if len(filter) == 1 && f.Agent != "" { // as in the database: an agent alone selects tasks that have ended
		var states []string
		for _, s := range task.States {
			if s.Terminal() {
				states = append(states, s.String())
			}
		}
		filter["states"] = states
	}
	j, err := o.runJob(ctx, map[string]any{"action": "purge", "filter": filter})
	if err != nil {
		return done, err
	}
	done = retention.Purged{Tasks: j.Done, Held: j.Skipped, Exported: unknownExports}
	if j.Failed > 0 || j.State != "done" {
		return done, fmt.Errorf("job %s: %s; %d tasks were purged, %d failed", j.ID, j.State, j.Done, j.Failed)
	}
	return done, nil
}

// unknownExports says that nobody counted the lines that were deleted from exports.
const unknownExports = -1

// PlanRetention implements RetentionOperator.
func (o *serverOperator) PlanRetention(ctx context.Context) ([]retention.Step, error) {
	var got adminclient.Plan
	err := o.api.Get(ctx, "/retention/plan", nil, &got)
	out := make([]retention.Step, len(got.Steps))
	for i, s := range got.Steps {
		if s.From.IsZero() {
			s.From, s.To = store.Everything.From, store.Everything.To
		}
		out[i] = retention.Step(s)
	}
	return out, err
}

// ListPushes implements PushOperator.
func (o *serverOperator) ListPushes(ctx context.Context, f store.PushFilter) (out []store.PushRow, err error) {
	path, q := "/webhooks", withTenant(query("agent", f.Agent, "owner", f.Owner, "host", f.Host), f.Tenant)
	for name, on := range map[string]bool{"disabled": f.Disabled, "failing": f.Failing, "due": f.Due} {
		if on {
			q.Set(name, "true")
		}
	}
	if !f.Task.IsZero() {
		if len(q) > 0 {
			return nil, errDatabase("push list with --task and another filter")
		}
		path = adminclient.OfTask(f.Task.String(), "webhooks")
	}
	for len(out) < f.Limit {
		q.Set("limit", strconv.Itoa(min(page, f.Limit-len(out))))
		var got adminclient.WebhooksPage
		if err := o.api.Get(ctx, path, q, &got); err != nil {
			return nil, err
		}
		for i := range got.Webhooks {
			row, err := pushRow(&got.Webhooks[i])
			if err != nil {
				return nil, err
			}
			out = append(out, row)
		}
		if got.Next == "" {
			break
		}
		q.Set("before", got.Next)
	}
	return out, nil
}

// pushRow is the reverse of shown.OfPush.
func pushRow(v *shown.Push) (store.PushRow, error) {
	id, err := task.ParseID(v.ID)
	r := store.PushRow{
		Task: id, PublicID: v.TaskID, Agent: v.Agent, Tenant: v.Tenant, Owner: v.Owner, Next: v.DeliveredSeq + 1, Upto: v.DeliveredSeq + v.Behind,
		DueAt: v.DueAt, DueSince: v.DueSince, Failures: v.Failures, FailingSince: v.FailingSince, LastError: v.LastError,
		Config: task.PushConfig{
			ID: v.ConfigID, URL: v.URL, Host: v.Host, Dialect: v.Dialect, Artifacts: v.Artifacts, CreatedAt: v.CreatedAt,
			DisabledAt: v.DisabledAt, DisabledFor: v.DisabledFor,
		},
	}
	if v.State == shown.PushDelivering {
		r.LockedUntil = time.Now().Add(time.Hour)
	}
	return r, err
}

// PushAttempts implements PushOperator.
func (o *serverOperator) PushAttempts(ctx context.Context, id task.ID, configID string, limit int) ([]store.PushAttempt, error) {
	var got adminclient.Attempts
	if limit > page {
		return nil, usage("--limit must be at most %d with a server", page)
	}
	err := o.api.Get(ctx, adminclient.OfTask(id.String(), "attempts"), query("config", configID, "limit", strconv.Itoa(limit)), &got)
	out := make([]store.PushAttempt, len(got.Attempts))
	for i, a := range got.Attempts {
		out[i] = store.PushAttempt{
			ConfigID: a.ConfigID, At: a.At, From: a.FromSeq, To: a.ToSeq, DeliveryID: a.DeliveryID, Attempt: a.Attempt, Class: a.Class,
			Status: a.Status, Error: a.Error, Took: time.Duration(a.TookMS * float64(time.Millisecond)), Worker: a.Worker,
		}
	}
	return out, err
}

// Redeliver implements PushOperator.
func (o *serverOperator) Redeliver(ctx context.Context, id task.ID, configID string, from task.Seq) (due, disabled bool, err error) {
	body := map[string]any{}
	if from != 0 {
		body["from"] = from
	}
	did, err := o.act(ctx, id, body, "webhooks", configID, "redeliver")
	return did.Outcome == shown.Due, did.Outcome == shown.Disabled, err
}

// EnablePush implements PushOperator.
func (o *serverOperator) EnablePush(ctx context.Context, id task.ID, configID string) (due bool, err error) {
	did, err := o.act(ctx, id, nil, "webhooks", configID, "enable")
	return did.Outcome == shown.Due, err
}

// DisablePush implements PushOperator.
func (o *serverOperator) DisablePush(ctx context.Context, id task.ID, configID, reason string) error {
	_, err := o.act(ctx, id, map[string]any{"reason": cmp.Or(reason, o.reason)}, "webhooks", configID, "disable")
	return err
}

// TryPush implements PushOperator.
func (o *serverOperator) TryPush(context.Context, *task.PushConfig, server.TrialOf) (*server.Trial, error) {
	return nil, errDatabase("push test")
}

// Reseal implements PushOperator.
func (o *serverOperator) Reseal(context.Context) (int, error) {
	return 0, errDatabase("secret-keys reseal")
}

// CreateKey implements Operator.
func (o *serverOperator) CreateKey(ctx context.Context, k *Key, lifetime time.Duration) (secret string, made *Key, err error) {
	scopes := k.Scopes
	if scopes == nil {
		scopes = []string{}
	}
	var got shown.Key
	err = o.api.Post(ctx, "/keys", map[string]any{
		"reason": o.reason, "name": k.Name, "tenant": k.Tenant, "subject": k.Subject, "scopes": scopes, "expires_in_seconds": int64(lifetime.Seconds()),
	}, &got)
	return got.Key, keyFrom(&got), err
}

// RevokeKey implements Operator.
func (o *serverOperator) RevokeKey(ctx context.Context, id string) (*Key, error) {
	var got shown.Key
	err := o.api.Post(ctx, "/keys/"+url.PathEscape(id)+"/revoke", map[string]any{"reason": o.reason}, &got)
	return keyFrom(&got), err
}

func keyFrom(k *shown.Key) *Key {
	made := &Key{ID: k.ID, Name: k.Name, Tenant: k.Tenant, Subject: k.Subject, Scopes: k.Scopes, CreatedAt: k.CreatedAt}
	for at, v := range map[*time.Time]*time.Time{&made.ExpiresAt: k.ExpiresAt, &made.RevokedAt: k.RevokedAt, &made.LastUsedAt: k.LastUsedAt} {
		if v != nil {
			*at = *v
		}
	}
	return made
}

// Keys implements Operator.
func (o *serverOperator) Keys(ctx context.Context) (out []*Key, err error) {
	for q := query("limit", strconv.Itoa(page)); ; {
		var got adminclient.KeysPage
		if err := o.api.Get(ctx, "/keys", q, &got); err != nil {
			return nil, err
		}
		for i := range got.Keys {
			out = append(out, keyFrom(&got.Keys[i]))
		}
		if got.Next == "" {
			return out, nil
		}
		q.Set("before", got.Next)
	}
}

// Workers implements WorkersOperator.
func (o *serverOperator) Workers(ctx context.Context, most int) (out []store.RemoteWorker, err error) {
	if most > page {
		return nil, usage("--limit must be at most %d with a server", page)
	}
	var got struct {
		Workers []shown.Worker `json:"workers"`
	}
	err = o.api.Get(ctx, "/workers", query("limit", strconv.Itoa(most)), &got)
	for _, v := range got.Workers {
		id, err := uuid.Parse(v.ID)
		if err != nil {
			return nil, err
		}
		w := store.RemoteWorker{
			ID: task.ID(id), Name: v.Name, Version: v.Version, SDK: v.SDK, Replica: v.Replica, Agents: v.Agents, FirstSeen: v.FirstSeen,
			LastSeen: v.LastSeen, Connected: v.State != "gone", Running: v.Running, RetiredAt: v.RetiredAt,
		}
		out = append(out, w)
	}
	return out, err
}

// RetireWorkers implements WorkersOperator.
func (o *serverOperator) RetireWorkers(ctx context.Context, id task.ID, version string) ([]store.RemoteWorker, error) {
	ids := []task.ID{id}
	if version != "" {
		all, err := o.Workers(ctx, page)
		if err != nil {
			return nil, err
		}
		ids = nil
		for i := range all {
			if w := &all[i]; w.Connected && w.RetiredAt.IsZero() && w.Version == version {
				ids = append(ids, w.ID)
			}
		}
	}
	var out []store.RemoteWorker
	for _, id := range ids {
		var did struct{}
		err := o.api.Post(ctx, "/workers/"+id.String()+"/retire", map[string]string{"reason": o.reason}, &did)
		if errors.Is(err, task.NotFound) {
			continue
		}
		if err != nil {
			return out, err
		}
		out = append(out, store.RemoteWorker{ID: id})
	}
	if len(out) == 0 {
		return nil, task.Errorf(task.NotFound, "no such worker is connected; see holdfast workers list")
	}
	return out, nil
}

// Agents implements AgentsOperator.
func (o *serverOperator) Agents(ctx context.Context) ([]adminclient.Agent, error) {
	var got adminclient.Agents
	err := o.api.Get(ctx, "/agents", nil, &got)
	for i := range got.Agents {
		got.Agents[i].Signature = nil // the database does not have it; Agent has
	}
	return got.Agents, err
}

// Agent implements AgentsOperator.
func (o *serverOperator) Agent(ctx context.Context, name string) (*adminclient.AgentDetail, error) {
	got := &adminclient.AgentDetail{}
	return got, o.api.Get(ctx, "/agents/"+url.PathEscape(name), nil, got)
}

// VerifyAudit implements Operator.
func (o *serverOperator) VerifyAudit(context.Context, []store.AuditHead) ([]store.AuditChain, error) {
	return nil, errDatabase("audit verify")
}

// Audit implements Operator.
func (o *serverOperator) Audit(ctx context.Context, f *store.AuditFilter, since time.Time, limit int) (out []store.AuditRow, err error) {
	q := withTenant(query("action", f.Action, "task", f.Task, "agent", f.Agent, "subject", f.Subject), f.Tenant)
	if !since.IsZero() {
		q.Set("since", since.UTC().Format(time.RFC3339Nano))
	}
	for len(out) < limit {
		q.Set("limit", strconv.Itoa(min(page, limit-len(out))))
		var got adminclient.AuditPage
		if err := o.api.Get(ctx, "/audit", q, &got); err != nil {
			return nil, err
		}
		for _, r := range got.Rows {
			out = append(out, store.AuditRow{AuditPlace: store.AuditPlace{At: r.At, Chain: r.Chain, N: r.N}, Login: r.Login, Entries: r.Entries})
		}
		if got.Next == "" {
			break
		}
		q.Set("before", got.Next)
	}
	return out, nil
}

// examine makes the checks of doctor in the server's process.
func (o *serverOperator) examine(ctx context.Context, report func(doctor.Finding)) error {
	var got adminclient.Findings
	if err := o.api.Get(ctx, "/doctor", nil, &got); err != nil {
		return err
	}
	for _, f := range got.Checks {
		report(f)
	}
	return nil
}

// Close implements Operator.
func (o *serverOperator) Close() {}

// Watch implements Operator.
func (o *serverOperator) Watch(f TaskFilter) Watch {
	return &serverWatch{o: o, filter: f, seen: map[task.ID]task.Seq{}}
}

// serverWatch follows the tasks that the live list of the server names, and reads their logs.
type serverWatch struct {
	o       *serverOperator
	filter  TaskFilter
	seen    map[task.ID]task.Seq // how far each task is printed
	begun   time.Time            // by the server's clock: tasks that are created later are printed whole
	changed chan *task.Task
	failed  chan error
	last    string // id of the newest event of the live list
	pending *task.Task
}

// Dropped implements Watch. The live list has no bound of its own.
func (w *serverWatch) Dropped() int { return 0 }

// Next implements Watch.
func (w *serverWatch) Next(ctx context.Context) (out []TaskEvent, more bool, err error) {
	if w.changed == nil {
		return nil, false, w.begin(ctx)
	}
	h := w.pending
	for h == nil {
		select {
		case h = <-w.changed:
		case err := <-w.failed:
			w.changed = nil // the next call connects again, and continues
			return nil, false, err
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	w.pending = h
	after, known := w.seen[h.ID]
	if !known && !h.CreatedAt.After(w.begun) {
		after = h.LastSeq - 1 // it had ended before, or is new to this list: its newest event changed it
	}
	for after < h.LastSeq {
		evs, err := w.o.Events(ctx, h, after)
		if err != nil {
			return nil, false, err
		}
		if len(evs) == 0 {
			break // deleted
		}
		for _, e := range evs {
			out = append(out, TaskEvent{h, e})
			after = e.Seq
		}
	}
	w.seen[h.ID], w.pending = after, nil
	return out, true, nil
}

// begin opens the live list. At the first time it also notes how far the open tasks are.
func (w *serverWatch) begin(ctx context.Context) error {
	q := withTenant(query("agent", w.filter.Agent, "context", w.filter.Context, "owner", w.filter.Owner, "last_event_id", w.last), w.filter.Tenant)
	ready := make(chan struct{})
	changed, failed := make(chan *task.Task, page), make(chan error, 1)
	go func() {
		failed <- w.o.api.Stream(ctx, "/tasks/stream", q, func(name, id string, data []byte) error {
			if id != "" {
				w.last = id
			}
			switch name {
			case "ready":
				if ready != nil {
					close(ready)
					ready = nil
				}
			case "task", "resync":
				return w.hear(ctx, name, data, changed)
			}
			return nil
		})
	}()
	opened := ready
	select {
	case <-opened:
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	if w.begun.IsZero() {
		if err := w.note(ctx); err != nil {
			return err
		}
	}
	w.changed, w.failed = changed, failed
	return nil
}

// hear passes on what the live list says. After a resync changes may be missing: all open tasks, and the newest ones, may have news.
func (w *serverWatch) hear(ctx context.Context, name string, data []byte, changed chan<- *task.Task) error {
	if name == "task" {
		var c adminclient.Changed
		if err := json.Unmarshal(data, &c); err != nil {
			return err
		}
		h, err := headerOf(&c.Task, nil)
		if err != nil {
			return err
		}
		return put(ctx, changed, h)
	}
	_, err := w.each(ctx, func(h *task.Task) error { return put(ctx, changed, h) })
	return err
}

func put(ctx context.Context, changed chan<- *task.Task, h *task.Task) error {
	select {
	case changed <- h:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note records how far the tasks are that may change, so that only later events are printed.
func (w *serverWatch) note(ctx context.Context) error {
	newest, err := w.each(ctx, func(h *task.Task) error {
		w.seen[h.ID] = h.LastSeq
		return nil
	})
	if w.begun = newest; newest.IsZero() {
		w.begun = time.Unix(1, 0)
	}
	return err
}

// each visits the newest tasks of the filter, and those that are open. It returns when the newest one was created.
func (w *serverWatch) each(ctx context.Context, visit func(*task.Task) error) (newest time.Time, err error) {
	filter := w.filter
	for _, state := range append([]task.State{task.StateUnspecified}, task.States...) {
		if state.Terminal() {
			continue
		}
		filter.State, filter.Limit = state, watchedAtMost
		if state == task.StateUnspecified {
			filter.Limit = page
		}
		rows, err := w.o.ListTasks(ctx, filter)
		if err != nil {
			return newest, err
		}
		for i := range rows {
			r := &rows[i]
			if r.CreatedAt.After(newest) {
				newest = r.CreatedAt
			}
			h := &task.Task{ID: r.ID, PublicID: r.PublicID, Agent: r.Agent, ContextID: r.ContextID, Owner: r.Owner, LastSeq: r.LastSeq, CreatedAt: r.CreatedAt}
			if err := visit(h); err != nil {
				return newest, err
			}
		}
	}
	return newest, nil
}
