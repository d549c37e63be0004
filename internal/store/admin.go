package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Operator is the store as one operator of the admin API sees it: the tasks of all tenants, or of one. The reads of an operator
// of one tenant run under row-level security. Its actions take tasks that such a read has found.
type Operator struct {
	// View has the actions. The audit log names the operator as their actor.
	View
	sees  View
	bound bool
}

// Operator returns the view of an operator. bound says that it sees only its own tenant.
func (s *Store) Operator(by task.Caller, bound bool) *Operator {
	o := &Operator{View: View{s: s, db: s.api, by: by}, bound: bound}
	if o.sees = o.View; bound {
		o.sees = s.As(by, Visibility{TenantWide: true})
	}
	return o
}

// By returns the operator.
func (o *Operator) By() task.Caller { return o.by }

// Sees reports whether the operator may see a task.
func (o *Operator) Sees(t *task.Task) bool { return !o.bound || t.Tenant == o.by.Tenant }

// Tenant returns the only tenant that the operator sees; nil: all.
func (o *Operator) Tenant() *string {
	if !o.bound {
		return nil
	}
	return &o.by.Tenant
}

// AdminTask is a task as operators see it.
type AdminTask struct {
	Task            *task.Task // header
	Attempt         task.Attempt
	Runs, Turns     int
	Pending         int
	Worker          task.ID // zero: no run
	ClaimedAt       time.Time
	CancelRequested time.Time // zero: no
	HeldAt          time.Time // zero: no hold
	ArtifactBytes   int64
	// Describe reads these.
	Said, Reason string
	Tokens       int64
	Used         []Used
}

// Used is what an event says that a model has used.
type Used struct {
	Model         string // empty: the agent does not say
	Input, Output int64
}

// StatusLine says in one line what a task does or waits for, as view v_status has it.
type StatusLine struct {
	Situation string    `json:"situation"`
	Text      string    `json:"text"`
	Since     time.Time `json:"since,omitzero"`
	Next      string    `json:"next,omitempty"` // what happens next
	NextAt    time.Time `json:"next_at,omitzero"`
	TurnOf    string    `json:"turn_of"` // agent, client, operator or nobody
}

// StatusLines returns the lines of tasks that operators have found, by task. A task that was deleted meanwhile has none.
func (s *Store) StatusLines(ctx context.Context, ids []task.ID) (map[task.ID]*StatusLine, error) {
	if len(ids) == 0 {
		return nil, nil //nolint:nilnil // no task has no line
	}
	all := uuids(ids)
	lowest, highest := span(all)
	rows, err := s.q.AdminStatusLines(ctx, s.api, all, lowest, highest)
	lines := make(map[task.ID]*StatusLine, len(rows))
	for _, r := range rows {
		lines[task.ID(r.Task)] = &StatusLine{r.Situation, r.Text, known(r.Since), r.Next, known(r.NextAt), r.TurnOf}
	}
	return lines, translate("read the status of tasks", err)
}

func adminTask(r *dbsqlc.Task) *AdminTask {
	t := &AdminTask{
		Task: header(r), Attempt: task.Attempt(r.Attempt), Runs: int(r.Runs), Turns: int(r.Turns), Pending: int(r.Pending),
		CancelRequested: r.CancelRequestedAt.Time, HeldAt: r.HeldAt.Time, ArtifactBytes: r.ArtifactBytes,
	}
	if r.WorkerID != nil {
		t.Worker, t.ClaimedAt = task.ID(*r.WorkerID), r.ClaimedAt.Time
	}
	return t
}

// Find finds a task by its UUID or by the id that a client chose. Errors: task.NotFound, also for a task that the operator does
// not see; task.Invalid if several tasks have the id.
func (o *Operator) Find(ctx context.Context, id string) (*AdminTask, error) {
	if u, err := task.ParseID(id); err == nil {
		t, err := o.byID(ctx, uuid.UUID(u))
		if !errors.Is(err, task.NotFound) {
			return t, err
		}
	}
	ids, err := o.s.q.AdminTaskNamed(ctx, o.sees.db, cleanName(id), o.bound, o.by.Tenant)
	switch {
	case err != nil:
		return nil, translate("find task", err)
	case len(ids) == 0:
		return nil, task.NotFound
	case len(ids) > 1:
		msg := "several tasks have this id; name one by its UUID:"
		for _, u := range ids {
			msg += " " + u.String()
		}
		return nil, &task.Error{Kind: task.Invalid, Field: "id", Msg: msg}
	}
	return o.byID(ctx, ids[0])
}

func (o *Operator) byID(ctx context.Context, id uuid.UUID) (*AdminTask, error) {
	row, err := o.s.q.AdminTask(ctx, o.sees.db, id, o.bound, o.by.Tenant)
	if err != nil {
		return nil, translate("find task", err)
	}
	return adminTask(&row), nil
}

// Among selects the values of Is (nil: all) that are not in Not.
type Among struct{ Is, Not []string }

// Only returns the part of a that is v: nothing, if a does not select it.
func (a Among) Only(v string) Among {
	if !a.has(v) {
		return Among{Is: []string{}}
	}
	return Among{Is: []string{v}}
}

func (a Among) has(v string) bool {
	return (a.Is == nil || slices.Contains(a.Is, v)) && !slices.Contains(a.Not, v)
}

// AdminFilter selects tasks. An empty field selects all.
type AdminFilter struct {
	States               []task.State
	Agent, Tenant, Owner Among
	ContextID            string
	Since                time.Time // created at or after
	Until                time.Time // created before
	// StatusBefore selects those whose newest status is older.
	StatusBefore time.Time
	// MinDuration and MaxDuration bound the time from the creation to the end, or to now.
	MinDuration, MaxDuration time.Duration
	Retried                  *bool // whether a retry has made another task of it
	// Metadata selects those whose client gave all these members, as text.
	Metadata map[string]string
	// Oldest lists the oldest task first. It selects nothing.
	Oldest bool
}

// Matches reports whether a task is one of the filter.
func (f *AdminFilter) Matches(t *task.Task) bool {
	created, until := partition.TimeOf(t.ID), time.Now()
	if t.Status.State.Terminal() {
		until = t.Status.At
	}
	lasted := until.Sub(created)
	return (len(f.States) == 0 || slices.Contains(f.States, t.Status.State)) &&
		f.Agent.has(t.Agent) && f.Tenant.has(t.Tenant) && f.Owner.has(t.Owner) && (f.ContextID == "" || f.ContextID == t.ContextID) &&
		(f.MinDuration == 0 || lasted >= f.MinDuration) && (f.MaxDuration == 0 || lasted <= f.MaxDuration) && (f.Retried == nil || *f.Retried != t.RetriedAs.IsZero()) &&
		(f.Since.IsZero() || !created.Before(f.Since)) && (f.Until.IsZero() || created.Before(f.Until)) &&
		(f.StatusBefore.IsZero() || t.Status.At.Before(f.StatusBefore)) && f.hasMetadata(t.Metadata)
}

// hasMetadata compares members as the operator ->> of PostgreSQL shows them.
func (f *AdminFilter) hasMetadata(given json.RawMessage) bool {
	if len(f.Metadata) == 0 {
		return true
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(given, &members) != nil {
		return false
	}
	for k, want := range f.Metadata {
		raw := members[k]
		value := string(raw)
		if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &value) != nil || raw == nil || value == "null" && raw[0] != '"' || value != want {
			return false
		}
	}
	return true
}

// AdminPage is a page of tasks, in the order of the filter.
type AdminPage struct {
	Tasks []*AdminTask
	// Next is where the next page begins; zero: this is the last page. A page may be short, or empty, without being the last one.
	Next task.ID
}

// How many tasks a page passes over: windows of windowTasks, up to windows of them.
const (
	windowTasks = 20_000
	windows     = 5
)

// List returns a page of the tasks behind an id in the order of the filter (zero: from the first one on).
func (o *Operator) List(ctx context.Context, f *AdminFilter, from task.ID, limit int) (*AdminPage, error) {
	arg := o.params(f, from)
	page := &AdminPage{}
	for range windows {
		all, last := arg, true
		// The window is between two ids, and what is left lies on one side of it.
		end, left := &arg.Since, &all.Before
		if f.Oldest {
			end, left = &arg.Before, &all.Since
		}
		if f.ContextID == "" {
			var err error
			if *end, last, err = o.window(ctx, &arg, arg.Since); err != nil {
				return nil, err
			}
		}
		*left = *end
		arg.MaxRows = int32(limit-len(page.Tasks)) + 1
		rows, err := o.page(ctx, f, arg)
		if err != nil {
			return nil, translate("list tasks", err)
		}
		for i := range rows {
			if len(page.Tasks) == limit {
				page.Next = page.Tasks[limit-1].Task.ID
				return page, nil
			}
			page.Tasks = append(page.Tasks, adminTask(&rows[i]))
		}
		if last {
			return page, nil
		}
		arg = all
	}
	if page.Next = task.ID(arg.Before); f.Oldest {
		page.Next = task.ID(beside(arg.Since, -1))
	}
	return page, nil
}

// How many tasks a page of a search reads: searchPages pages of searchTasks, and of each the first searchEvents events of its log.
const (
	searchPages  = 4
	searchTasks  = 250
	searchEvents = 500
)

// Search returns the next tasks of a filter of which a message says a text. It reads the messages of a bounded number of tasks. So
// the page may be short, or empty, and have a Next, where the next one continues.
func (o *Operator) Search(ctx context.Context, f *AdminFilter, text string, before task.ID, limit int) (*AdminPage, error) {
	return o.search(ctx, f, before, limit, func(tasks []*AdminTask) ([]uuid.UUID, error) {
		ids := make([]uuid.UUID, len(tasks))
		for i, t := range tasks {
			ids[i] = uuid.UUID(t.Task.ID)
		}
		lowest, highest := span(ids)
		return o.s.q.AdminTasksSaying(ctx, o.sees.db, dbsqlc.AdminTasksSayingParams{
			Ids: ids, Lowest: lowest, Highest: highest, MostSeq: searchEvents, Said: text,
		})
	})
}

// FailedFor returns the next tasks of a filter of failed and rejected tasks that ended for a reason. It reads the reasons of a
// bounded number of tasks, as Search does messages.
func (o *Operator) FailedFor(ctx context.Context, f *AdminFilter, same func(reason string) bool, before task.ID, limit int) (*AdminPage, error) {
	return o.search(ctx, f, before, limit, func(tasks []*AdminTask) (found []uuid.UUID, err error) {
		arg := dbsqlc.StatusReasonsParams{Most: failureReason}
		for _, t := range tasks {
			arg.Tasks, arg.Seqs = append(arg.Tasks, uuid.UUID(t.Task.ID)), append(arg.Seqs, int64(t.Task.Status.Seq))
		}
		if len(arg.Tasks) == 0 {
			return nil, nil
		}
		arg.Lowest, arg.Highest = span(arg.Tasks)
		reasons, err := o.s.q.StatusReasons(ctx, o.s.api, arg)
		for _, r := range reasons {
			if same(r.Reason) {
				found = append(found, r.Task)
			}
		}
		return found, err
	})
}

// Using returns the next tasks of a filter whose last events report from least to most tokens, among a bounded number of tasks.
func (o *Operator) Using(ctx context.Context, f *AdminFilter, least, most int64, before task.ID, limit int) (*AdminPage, error) {
	return o.search(ctx, f, before, limit, func(tasks []*AdminTask) (found []uuid.UUID, err error) {
		if err = o.s.Describe(ctx, tasks); err != nil {
			return nil, err
		}
		for _, t := range tasks {
			if t.Tokens >= least && t.Tokens <= most {
				found = append(found, uuid.UUID(t.Task.ID))
			}
		}
		return found, nil
	})
}

// search returns the next tasks of a filter that pick returns, among a bounded number of tasks.
func (o *Operator) search(ctx context.Context, f *AdminFilter, before task.ID, limit int, pick func([]*AdminTask) ([]uuid.UUID, error)) (*AdminPage, error) {
	page := &AdminPage{Next: before}
	for range searchPages {
		listed, err := o.List(ctx, f, page.Next, searchTasks)
		if err != nil {
			return nil, err
		}
		found, err := pick(listed.Tasks)
		if err != nil {
			return nil, translate("search tasks", err)
		}
		for _, t := range listed.Tasks {
			if !slices.Contains(found, uuid.UUID(t.Task.ID)) {
				continue
			}
			if page.Tasks = append(page.Tasks, t); len(page.Tasks) == limit {
				page.Next = t.Task.ID
				return page, nil
			}
		}
		if page.Next = listed.Next; page.Next.IsZero() {
			break
		}
	}
	return page, nil
}

// SearchedSince returns how far the pages up to this one have searched; zero: all tasks of the filter.
func (p *AdminPage) SearchedSince() time.Time {
	if p.Next.IsZero() {
		return time.Time{}
	}
	return partition.TimeOf(uuid.UUID(p.Next))
}

func (o *Operator) params(f *AdminFilter, from task.ID) dbsqlc.AdminTasksParams {
	tenants := f.Tenant
	if o.bound {
		tenants = tenants.Only(o.by.Tenant)
	}
	arg := dbsqlc.AdminTasksParams{
		Oldest: f.Oldest, Before: uuid.Max, LowestState: int16(task.StateSubmitted), HighestState: int16(task.StateRejected), StatusBefore: Newest.At,
		Agents: f.Agent.Is, NotAgents: f.Agent.Not, Tenants: tenants.Is, NotTenants: tenants.Not, Owners: f.Owner.Is, NotOwners: f.Owner.Not,
		MinDuration: f.MinDuration, MaxDuration: cmp.Or(f.MaxDuration, math.MaxInt64),
	}
	if f.MinDuration == 0 {
		arg.MinDuration = math.MinInt64 // clocks differ
	}
	for k, v := range f.Metadata {
		arg.MetadataKeys, arg.MetadataValues = append(arg.MetadataKeys, k), append(arg.MetadataValues, v)
	}
	if f.Retried != nil {
		arg.Retried = pgtype.Bool{Bool: *f.Retried, Valid: true}
	}
	// Open and ended tasks have partitions of their own, and a window reads only the ones that it needs.
	open, ended := len(f.States) == 0, len(f.States) == 0
	for _, state := range f.States {
		arg.States = append(arg.States, int16(state))
		open, ended = open || !state.Terminal(), ended || state.Terminal()
	}
	if len(f.States) == 0 {
		arg.States = states(&Listing{})
	}
	if !open {
		arg.LowestState = int16(task.StateCompleted)
	}
	if !ended {
		arg.HighestState = int16(task.StateAuthRequired)
	}
	if !f.StatusBefore.IsZero() {
		arg.StatusBefore = f.StatusBefore
		arg.Before = lower(arg.Before, partition.FirstID(f.StatusBefore)) // a task is older than its status
	}
	if !f.Since.IsZero() {
		arg.Since = partition.FirstID(f.Since)
	}
	if !f.Until.IsZero() {
		arg.Before = lower(arg.Before, partition.FirstID(f.Until))
	}
	switch next := beside(uuid.UUID(from), 1); {
	case from.IsZero():
	case !f.Oldest:
		arg.Before = lower(arg.Before, uuid.UUID(from))
	case lower(arg.Since, next) == arg.Since:
		arg.Since = next
	}
	return arg
}

// beside returns the id after (1) or before (-1) another.
func beside(id uuid.UUID, by int8) uuid.UUID {
	for i := len(id) - 1; i >= 0; i-- {
		was := id[i]
		if id[i] += byte(by); (id[i] > was) == (by > 0) {
			break
		}
	}
	return id
}

func lower(a, b uuid.UUID) uuid.UUID {
	if bytes.Compare(a[:], b[:]) < 0 {
		return a
	}
	return b
}

// window returns where a page ends that passes over windowTasks tasks, in the order of arg, and whether it is the last one. The
// end is the beginning of a millisecond: the id of a task would tell an operator about another tenant's.
func (o *Operator) window(ctx context.Context, arg *dbsqlc.AdminTasksParams, since uuid.UUID) (end uuid.UUID, last bool, err error) {
	at, err := o.s.q.AdminWindow(ctx, o.s.api, dbsqlc.AdminWindowParams{
		Oldest: arg.Oldest, Before: arg.Before, Since: since, LowestState: arg.LowestState, HighestState: arg.HighestState, MaxRows: o.s.windowTasks,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		if arg.Oldest {
			since = arg.Before
		}
		return since, true, nil
	}
	if err != nil {
		return end, false, translate("list tasks", err)
	}
	if arg.Oldest {
		end = partition.FirstID(partition.TimeOf(at).Add(time.Millisecond))
		return lower(end, arg.Before), bytes.Compare(end[:], arg.Before[:]) >= 0, nil
	}
	end = partition.FirstID(partition.TimeOf(at))
	return end, bytes.Compare(end[:], since[:]) <= 0, nil
}

func (o *Operator) page(ctx context.Context, f *AdminFilter, arg dbsqlc.AdminTasksParams) ([]dbsqlc.Task, error) {
	if f.ContextID == "" {
		return o.s.q.AdminTasks(ctx, o.sees.db, arg)
	}
	return o.s.q.AdminTasksOfContext(ctx, o.sees.db, dbsqlc.AdminTasksOfContextParams{
		Oldest: arg.Oldest, ContextID: cleanName(f.ContextID), Before: arg.Before, Since: arg.Since, LowestState: arg.LowestState, HighestState: arg.HighestState,
		States: arg.States, StatusBefore: arg.StatusBefore, Agents: arg.Agents, NotAgents: arg.NotAgents, Tenants: arg.Tenants, NotTenants: arg.NotTenants,
		Owners: arg.Owners, NotOwners: arg.NotOwners, Retried: arg.Retried, MetadataKeys: arg.MetadataKeys, MetadataValues: arg.MetadataValues,
		MinDuration: arg.MinDuration, MaxDuration: arg.MaxDuration, MaxRows: arg.MaxRows,
	})
}

// AdminCounts has the numbers of tasks by state and by agent.
type AdminCounts struct {
	ByState map[task.State]int64
	ByAgent map[string]int64
	// Since is how far back the tasks were counted; zero: all of the filter's.
	Since time.Time
	// Begins is where the first of the intervals of Width begins, and Created has for each the numbers of tasks created in it.
	Begins  time.Time
	Width   time.Duration
	Created map[task.State][]int64
}

// countIntervals is how many intervals of creation counts have, up to now or the end of the filter.
const countIntervals = 60

// spans sets the intervals of counts: of the time of the filter, and without one of a day.
func (c *AdminCounts) spans(f *AdminFilter, now time.Time) {
	end := now
	if !f.Until.IsZero() && f.Until.Before(now) {
		end = f.Until
	}
	if c.Begins = f.Since; f.Since.IsZero() || !f.Since.Before(end) {
		c.Begins = end.Add(-24 * time.Hour)
	}
	c.Width = max(time.Second, end.Sub(c.Begins)/countIntervals)
	c.Created = map[task.State][]int64{}
}

func (c *AdminCounts) add(rows []dbsqlc.AdminCountsRow) {
	for _, r := range rows {
		state := task.State(r.State)
		c.ByState[state] += r.Tasks
		c.ByAgent[r.Agent] += r.Tasks
		if r.Bucket >= 0 {
			if c.Created[state] == nil {
				c.Created[state] = make([]int64, countIntervals)
			}
			c.Created[state][min(r.Bucket, countIntervals-1)] += r.Tasks
		}
	}
}

// Count counts the tasks of a filter, the newest first, among a bounded number of tasks.
func (o *Operator) Count(ctx context.Context, f *AdminFilter) (*AdminCounts, error) {
	now, err := o.s.Now(ctx)
	if err != nil {
		return nil, err
	}
	arg, c := o.params(f, task.ID{}), &AdminCounts{ByState: map[task.State]int64{}, ByAgent: map[string]int64{}}
	c.spans(f, now)
	of := dbsqlc.AdminCountsOfContextParams{
		Begins: c.Begins, Width: c.Width.Seconds(), ContextID: cleanName(f.ContextID), Before: arg.Before, Since: arg.Since,
		LowestState: arg.LowestState, HighestState: arg.HighestState, States: arg.States, StatusBefore: arg.StatusBefore,
		Agents: arg.Agents, NotAgents: arg.NotAgents, Tenants: arg.Tenants, NotTenants: arg.NotTenants, Owners: arg.Owners, NotOwners: arg.NotOwners,
		Retried: arg.Retried, MetadataKeys: arg.MetadataKeys, MetadataValues: arg.MetadataValues, MinDuration: arg.MinDuration, MaxDuration: arg.MaxDuration,
	}
	if f.ContextID != "" {
		rows, err := o.s.q.AdminCountsOfContext(ctx, o.sees.db, of)
		for _, r := range rows {
			c.add([]dbsqlc.AdminCountsRow{dbsqlc.AdminCountsRow(r)})
		}
		return c, translate("count tasks", err)
	}
	for range windows {
		end, last, err := o.window(ctx, &arg, arg.Since)
		if err != nil {
			return nil, err
		}
		rows, err := o.s.q.AdminCounts(ctx, o.sees.db, dbsqlc.AdminCountsParams{
			Begins: of.Begins, Width: of.Width, Before: arg.Before, Since: end, LowestState: arg.LowestState, HighestState: arg.HighestState,
			States: arg.States, StatusBefore: arg.StatusBefore, Agents: arg.Agents, NotAgents: arg.NotAgents, Tenants: arg.Tenants,
			NotTenants: arg.NotTenants, Owners: arg.Owners, NotOwners: arg.NotOwners, Retried: arg.Retried,
			MetadataKeys: arg.MetadataKeys, MetadataValues: arg.MetadataValues, MinDuration: arg.MinDuration, MaxDuration: arg.MaxDuration,
		})
		if err != nil {
			return nil, translate("count tasks", err)
		}
		if c.add(rows); last {
			return c, nil
		}
		arg.Before = end
	}
	c.Since = partition.TimeOf(arg.Before)
	return c, nil
}

// saidMost bounds what lists say of why a task failed, in characters.
const saidMost = 200

// Describe reads what lists say of tasks that a view has found: the beginning of the client's first message, why they failed, and the
// tokens that their last events report.
func (s *Store) Describe(ctx context.Context, tasks []*AdminTask) error {
	if len(tasks) == 0 {
		return nil
	}
	words, why := dbsqlc.TaskWordsParams{}, dbsqlc.StatusReasonsParams{Most: saidMost}
	by := map[uuid.UUID]*AdminTask{}
	for _, t := range tasks {
		id := uuid.UUID(t.Task.ID)
		by[id], words.Tasks, words.Seqs = t, append(words.Tasks, id), append(words.Seqs, int64(t.Task.LastSeq))
		if st := t.Task.Status; st.State == task.StateFailed || st.State == task.StateRejected {
			why.Tasks, why.Seqs = append(why.Tasks, id), append(why.Seqs, int64(st.Seq))
		}
	}
	words.Lowest, words.Highest = span(words.Tasks)
	rows, err := s.q.TaskWords(ctx, s.api, words)
	if err != nil {
		return translate("read what tasks are about", err)
	}
	for _, r := range rows {
		t := by[r.Task]
		t.Said, t.Tokens, t.Used = r.Said, r.Tokens, nil
		for i, model := range r.Models {
			t.Used = append(t.Used, Used{model, r.Inputs[i], r.Outputs[i]})
		}
	}
	if len(why.Tasks) == 0 {
		return nil
	}
	why.Lowest, why.Highest = span(why.Tasks)
	reasons, err := s.q.StatusReasons(ctx, s.api, why)
	for _, r := range reasons {
		by[r.Task].Reason = r.Reason
	}
	return translate("read why tasks failed", err)
}

// AdminEvent is an event of a log as it is stored.
type AdminEvent struct {
	Seq        task.Seq        `json:"seq"`
	Kind       task.EventKind  `json:"kind"`
	At         time.Time       `json:"at"`
	Attempt    task.Attempt    `json:"attempt"`
	State      task.State      `json:"state,omitzero"`
	ArtifactID string          `json:"artifact_id,omitempty"`
	Append     bool            `json:"append,omitempty"`
	Last       bool            `json:"last,omitempty"`
	Payload    json.RawMessage `json:"payload,omitempty"`
}

// logBytes is how much a page of a log reads, unless one event alone is larger.
const logBytes = 4 << 20

// Log returns the events of a task with a seq above at, or with back those below it, the newest first (0: from the end). A page
// is shorter than most if its events are large; more says that others follow. Without kinds it has all kinds of events.
func (o *Operator) Log(ctx context.Context, t *AdminTask, at task.Seq, back bool, most int, kinds ...task.EventKind) (evs []AdminEvent, more bool, err error) {
	m := &meter{DBTX: o.sees.db, most: logBytes, account: limit.AccountOf(ctx)}
	id := uuid.UUID(t.Task.ID)
	if len(kinds) == 0 {
		kinds = task.EventKinds
	}
	of := make([]int16, len(kinds))
	for i, k := range kinds {
		of[i] = int16(k)
	}
	var rows []dbsqlc.AdminLogRow
	if back {
		if at == 0 {
			at = t.Task.LastSeq + 1
		}
		var found []dbsqlc.AdminLogBackRow
		found, err = o.s.q.AdminLogBack(ctx, m, dbsqlc.AdminLogBackParams{Task: id, Before: int64(at), Kinds: of, MaxRows: int32(most) + 1})
		for _, r := range found {
			rows = append(rows, dbsqlc.AdminLogRow(r))
		}
	} else {
		rows, err = o.s.q.AdminLog(ctx, m, dbsqlc.AdminLogParams{Task: id, After: int64(at), Kinds: of, MaxRows: int32(most) + 1})
	}
	if err != nil {
		return nil, false, translate("read the log", err)
	}
	return adminEvents(m, rows, most)
}

// adminEvents returns what a page has read. more says that others follow.
func adminEvents(m *meter, rows []dbsqlc.AdminLogRow, most int) (evs []AdminEvent, more bool, err error) {
	if m.cut && len(rows) == 0 {
		return nil, false, task.Errorf(task.Unavailable, "the server has no memory for the event now; try again")
	}
	if more = m.cut; len(rows) > most {
		rows, more = rows[:most], true
	}
	evs = make([]AdminEvent, len(rows))
	for i := range rows {
		r := &rows[i]
		evs[i] = AdminEvent{
			Seq: task.Seq(r.Seq), Kind: task.EventKind(r.Kind), At: r.CreatedAt, Attempt: task.Attempt(r.Attempt), State: task.State(r.State.Int16),
			ArtifactID: r.ArtifactID.String, Append: r.Append, Last: r.Last, Payload: rawJSON(r.Payload),
		}
	}
	return evs, more, nil
}

// AdminArtifact is what the keys of the log say about an artifact.
type AdminArtifact struct {
	ID     string   `json:"id"`
	First  task.Seq `json:"first_seq"`
	Base   task.Seq `json:"base_seq"` // of the chunk that all later ones are appended to
	Newest task.Seq `json:"seq"`
	Chunks int64    `json:"chunks"`
	Last   bool     `json:"complete,omitempty"` // the newest event says that none follows
}

// Artifacts returns the first artifacts of a task, or with an id only this one; more says that there are others.
func (o *Operator) Artifacts(ctx context.Context, t *AdminTask, id string, limit int) (out []AdminArtifact, more bool, err error) {
	rows, err := o.s.q.AdminArtifacts(ctx, o.sees.db, uuid.UUID(t.Task.ID), id, int32(limit)+1)
	if err != nil {
		return nil, false, translate("read artifacts", err)
	}
	if more = len(rows) > limit; more {
		rows = rows[:limit]
	}
	for _, r := range rows {
		out = append(out, AdminArtifact{
			ID: r.ArtifactID.String, First: task.Seq(r.FirstSeq), Base: task.Seq(r.BaseSeq), Newest: task.Seq(r.Seq), Chunks: r.Chunks, Last: r.Last,
		})
	}
	return out, more, nil
}

// chunkPage is how many chunks of an artifact one statement reads.
const chunkPage = 500

// Chunks returns the next chunks of an artifact after a seq, up to its newest; more says that others follow. The account of ctx
// takes their bytes.
func (o *Operator) Chunks(ctx context.Context, t *AdminTask, a *AdminArtifact, after task.Seq) (evs []AdminEvent, more bool, err error) {
	// The statement reads and sorts all chunks of its range, whatever its limit. So a range has few, and where other artifacts fill
	// it the next one is longer.
	for window := task.Seq(chunkPage); ; window = min(2*window, mostRows) {
		upto := min(after+window, a.Newest)
		m := &meter{DBTX: o.sees.db, most: logBytes, account: limit.AccountOf(ctx)}
		found, err := o.s.q.AdminChunks(ctx, m, dbsqlc.AdminChunksParams{
			Task: uuid.UUID(t.Task.ID), Artifact: a.ID, After: int64(after), Upto: int64(upto), MaxRows: chunkPage + 1,
		})
		if err != nil {
			return nil, false, translate("read an artifact", err)
		}
		if after = upto; len(found) == 0 && !m.cut && upto < a.Newest {
			continue
		}
		rows := make([]dbsqlc.AdminLogRow, len(found))
		for i, r := range found {
			rows[i] = dbsqlc.AdminLogRow(r)
		}
		evs, more, err = adminEvents(m, rows, chunkPage)
		return evs, more || upto < a.Newest, err
	}
}

// AdminUsage is what agents say that a model has used. The counts are decimal numbers.
type AdminUsage struct {
	Model   string      `json:"model,omitempty"` // empty: the agent does not say
	Reports int64       `json:"reports"`
	Input   json.Number `json:"input_tokens"`
	Output  json.Number `json:"output_tokens"`
	Total   json.Number `json:"total_tokens"`
}

// maxModels bounds the models of one answer.
const maxModels = 100

// Usage returns the tokens that agents report for a task, by model.
func (o *Operator) Usage(ctx context.Context, t *AdminTask) ([]AdminUsage, error) {
	rows, err := o.s.q.AdminUsage(ctx, o.s.api, uuid.UUID(t.Task.ID), maxModels)
	if err != nil {
		return nil, translate("read the usage", err)
	}
	out := make([]AdminUsage, len(rows))
	for i, r := range rows {
		out[i] = AdminUsage{r.Model, r.Reports, json.Number(r.InputTokens), json.Number(r.OutputTokens), json.Number(r.TotalTokens)}
	}
	return out, nil
}

// Decoded decodes a stored event, for a reader that renders it.
func (t *AdminTask) Decoded(e *AdminEvent) (*task.Event, error) {
	out := &task.Event{
		Task: t.Task.ID, Seq: e.Seq, Kind: e.Kind, Attempt: e.Attempt, At: e.At, State: e.State, Append: e.Append, Last: e.Last,
	}
	if e.Kind == task.EventArtifact {
		out.Artifact = &task.Artifact{ID: e.ArtifactID}
	}
	return out, decodePayload(out, e.Payload, t.Task)
}

// AdminRun is a run that has ended, or the one under way.
type AdminRun struct {
	Run       int          `json:"run"`
	Turn      int          `json:"turn"`
	Attempt   task.Attempt `json:"attempt"`
	Worker    task.ID      `json:"worker,omitzero"`
	Name      string       `json:"worker_name,omitempty"` // of the worker's process
	StartedAt time.Time    `json:"started_at,omitzero"`
	EndedAt   time.Time    `json:"ended_at,omitzero"` // zero: it runs
	Outcome   string       `json:"outcome"`           // as in view v_runs
	Error     string       `json:"error,omitempty"`
	Seq       task.Seq     `json:"seq,omitempty"` // of the event that ended it
}

// maxRuns bounds the runs of one answer. A task has few.
const maxRuns = 1000

// Runs returns the runs of a task, the oldest first, as view v_runs has them; more says that there are more than maxRuns.
func (o *Operator) Runs(ctx context.Context, t *AdminTask) (runs []AdminRun, more bool, err error) {
	rows, err := o.s.q.AdminRuns(ctx, o.s.api, uuid.UUID(t.Task.ID), 0, maxRuns+1)
	if err != nil {
		return nil, false, translate("read runs", err)
	}
	if len(rows) > maxRuns {
		rows, more = rows[:maxRuns], true
	}
	runs = make([]AdminRun, 0, len(rows)+1)
	turn := 1
	for i, r := range rows {
		run := AdminRun{
			Run: i + 1, Turn: turn, Attempt: task.Attempt(r.Attempt), Name: r.WorkerName, StartedAt: r.ClaimedAt.Time, EndedAt: r.CreatedAt,
			Outcome: r.Outcome, Error: r.Error, Seq: task.Seq(r.Seq),
		}
		if r.WorkerID != nil {
			run.Worker = task.ID(*r.WorkerID)
		}
		switch r.Outcome {
		case "lost", "retry", "returned", "away": // the same turn goes on
		default:
			turn++
		}
		runs = append(runs, run)
	}
	if !more && !t.Worker.IsZero() {
		runs = append(runs, AdminRun{
			Run: len(runs) + 1, Turn: turn, Attempt: t.Attempt, Worker: t.Worker, StartedAt: t.ClaimedAt, Outcome: "running",
		})
	}
	return runs, more, nil
}

// Pushes lists webhooks that the operator sees, those of the newest tasks first.
func (o *Operator) Pushes(ctx context.Context, f PushFilter) ([]PushRow, error) {
	if o.bound {
		f.Tenant = &o.by.Tenant
	}
	return o.s.ListPushes(ctx, f)
}

// AdminProcess is a registered process.
type AdminProcess struct {
	ID         task.ID   `json:"id"`
	Name       string    `json:"name"`
	Version    string    `json:"version"`
	Roles      string    `json:"roles"`
	StartedAt  time.Time `json:"started_at"`
	LeaseUntil time.Time `json:"lease_until"`
	Alive      bool      `json:"alive"`
	Running    int64     `json:"running"`
	Duties     []string  `json:"duties"`
}

// maxProcesses bounds the processes of one answer.
const maxProcesses = 1000

// Registered lists the registered processes.
func (s *Store) Registered(ctx context.Context) ([]AdminProcess, error) {
	rows, err := s.q.AdminProcesses(ctx, s.api, maxProcesses)
	out := make([]AdminProcess, len(rows))
	for i, r := range rows {
		out[i] = AdminProcess{
			ID: task.ID(r.ID), Name: r.Name, Version: r.Version, Roles: r.Roles, StartedAt: r.StartedAt, LeaseUntil: r.LeaseUntil,
			Alive: r.Alive, Running: r.Running, Duties: r.Duties,
		}
	}
	return out, translate("read processes", err)
}

// known returns the zero time for the epoch, which stands for a time that is not known.
func known(at time.Time) time.Time {
	if at.Unix() == 0 {
		return time.Time{}
	}
	return at.UTC()
}

// AgentHealth says whether the runs of an agent begin and end well, as view v_agents has it.
type AgentHealth struct {
	Agent   string    `json:"-"`
	Health  string    `json:"health"`
	Since   time.Time `json:"health_since,omitzero"`
	Reason  string    `json:"health_reason,omitempty"`
	Workers *int64    `json:"workers,omitempty"` // connected remote workers that may claim, of an agent that has them
}

// The healths of agents.
const (
	HealthUnknown  = "unknown"
	HealthHealthy  = "healthy"
	HealthFailing  = "failing"
	HealthAway     = "away"
	HealthNoWorker = "no worker"
	HealthDraining = "draining"
)

// AgentHealths returns the health of agents, in their order. Of an operator of one tenant only its own tasks are evidence.
func (o *Operator) AgentHealths(ctx context.Context, agents []string) ([]AgentHealth, error) {
	rows, err := o.s.q.AgentHealth(ctx, o.s.api, agents, o.bound, o.by.Tenant)
	out := make([]AgentHealth, len(rows))
	for i, r := range rows {
		out[i] = AgentHealth{Agent: r.Agent, Health: r.Health, Since: known(r.Since), Reason: r.Reason}
		if r.Workers >= 0 {
			out[i].Workers = &r.Workers
		}
	}
	return out, translate("read the health of agents", err)
}

// AgentsServed returns the agents that live processes have in their configuration; remote ones are run by workers.
func (s *Store) AgentsServed(ctx context.Context) (remote map[string]bool, err error) {
	rows, err := s.q.AgentsServed(ctx, s.api)
	remote = make(map[string]bool, len(rows))
	for _, r := range rows {
		remote[r.Agent] = r.Remote
	}
	return remote, translate("read the agents", err)
}

// AuditPlace is a place in the audit log.
type AuditPlace struct {
	At    time.Time `json:"at"`
	Chain int       `json:"chain"`
	N     int64     `json:"n"`
}

// AuditRow is a row of the audit log.
type AuditRow struct {
	AuditPlace
	Login   string          `json:"login"`
	Entries json.RawMessage `json:"entries"` // an array
}

// Audit returns the rows of the audit log before a place (zero: from the newest on), the newest first, but none before since.
func (s *Store) Audit(ctx context.Context, before AuditPlace, since time.Time, limit int) ([]AuditRow, error) {
	if before.At.IsZero() {
		before.At = Newest.At
	}
	if since.IsZero() {
		since = time.Unix(0, 0)
	}
	rows, err := s.q.AdminAudit(ctx, s.api, dbsqlc.AdminAuditParams{
		BeforeAt: before.At, BeforeChain: int16(before.Chain), BeforeN: before.N, Since: since, MaxRows: int32(limit),
	})
	out := make([]AuditRow, len(rows))
	for i, r := range rows {
		out[i] = AuditRow{AuditPlace{r.At, int(r.Chain), r.N}, r.Login, r.Entries}
	}
	return out, translate("read the audit log", err)
}

// TasksByID reads the current rows of tasks, for the live lists of a replica.
func (s *Store) TasksByID(ctx context.Context, ids []task.ID) ([]*AdminTask, error) {
	all := uuids(ids)
	lowest, highest := span(all)
	rows, err := s.q.AdminTasksByID(ctx, s.hot, all, lowest, highest)
	return adminTasks(rows), translate("read changed tasks", err)
}

// CreatedSince reads the tasks created after a task, the oldest first.
func (s *Store) CreatedSince(ctx context.Context, after task.ID, limit int) ([]*AdminTask, error) {
	rows, err := s.q.AdminTasksSince(ctx, s.hot, uuid.UUID(after), int32(limit))
	return adminTasks(rows), translate("read new tasks", err)
}

// ChangedSince reads the tasks that may have changed since a time: the open ones, and those of the given agents that have ended since
// then. ok is false if it has read limit open or ended tasks, so there may be more.
func (s *Store) ChangedSince(ctx context.Context, since time.Time, agents []string, limit int) (tasks []*AdminTask, ok bool, err error) {
	rows, err := s.q.AdminChanged(ctx, s.api, int32(limit), agents, since)
	if err != nil {
		return nil, false, translate("read changed tasks", err)
	}
	ended := 0
	for i := range rows {
		if task.State(rows[i].State).Terminal() {
			ended++
		}
	}
	return adminTasks(rows), len(rows)-ended < limit && ended < limit, nil
}

func adminTasks(rows []dbsqlc.Task) []*AdminTask {
	out := make([]*AdminTask, len(rows))
	for i := range rows {
		out[i] = adminTask(&rows[i])
	}
	return out
}

// Retried notes the task that a retry has made of another.
func (s *Store) Retried(ctx context.Context, old, again task.ID) error {
	err := s.q.TaskRetried(ctx, s.hot, uuid.UUID(again), uuid.UUID(old))
	return translate("note a retry", err)
}

// As returns the same view for another name of the operator, who acts for a reason. It must have the same tenant.
func (o *Operator) As(by task.Caller) *Operator { return o.s.Operator(by, o.bound) }
