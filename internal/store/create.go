package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// NewTask is a task to be created with its first message.
type NewTask struct {
	Task        task.Task // id, public id, agent, tenant, owner, context, dialect, metadata, traceparent
	ClientID    bool      // the client chose the public id
	Message     *task.Message
	Request     *task.Request // that carried the message, or nil
	Forwarded   task.Forwarded
	Idempotency Idempotency
	Slot        Slot             // not zero: its worker claims the task in the same commit, as attempt 1
	Push        *task.PushConfig // set in the same commit, or nil
	Limits      Limits
	// Reopens is the ended task whose client-chosen id the new task takes over. Its server-made id
	// then becomes its public id. Slot must be zero. Create fills in Task.StreamBase.
	Reopens *task.Task
	// Called says that an agent has called the task: CallsNew has listed it. Create returns ErrTaken if it exists, or if its
	// caller does not wait for it any more.
	Called bool
}

// Slot is a free place for a run at a worker.
type Slot struct {
	Worker task.ID
	Lease  time.Duration // of a remote worker; 0: the worker is a server process
	Look   time.Duration // until a replica looks at the run, at most Lease
}

// Limits bound the creation of tasks, exactly and over all replicas. 0 means no limit. PostgreSQL
// counts them under an advisory lock: counters would drift, and make creates wait for appends.
type Limits struct {
	Live  int // of the owner's open tasks with the agent
	Queue int // of the agent's queued tasks; a task that is created with a slot does not count
}

// Limits that a create can exceed, as its statement numbers them.
const (
	refusedLive  = 1
	refusedQueue = 2
)

// refusal returns the error of a create that would exceed a limit.
func (s *Store) refusal(n *NewTask, by int32) error {
	limit, e := LimitQueue, &task.Error{Kind: task.RateLimited, RetryAfter: 2 * time.Second}
	if by == refusedLive {
		limit, e.RetryAfter = LimitLive, 5*time.Second
		e.Msg = fmt.Sprintf("%d of your tasks with this agent have not ended, which is the limit", n.Limits.Live)
	} else {
		e.Msg = fmt.Sprintf("%d tasks wait for this agent, which is the limit", n.Limits.Queue)
	}
	if s.observe.Limited != nil {
		s.observe.Limited(n.Task.Agent, limit)
	}
	return e
}

// The names of the limits in Observer.Limited.
const (
	LimitLive    = "live_tasks"
	LimitQueue   = "queue"
	LimitPending = "pending_messages"
)

type create struct {
	*NewTask
	payload   string
	secrets   []byte // sealed secrets of the webhook
	forwarded string // sealed headers
	audit     string
	queued    time.Time
	unknown   bool // an earlier try may have been committed
	done      chan createResult
}

func newCreate(n *NewTask) *create {
	return &create{
		NewTask: n, queued: time.Now(), done: make(chan createResult, 1),
		payload: EncodePayload(&task.Event{Kind: task.EventMessage, Message: n.Message, Request: n.Request}),
	}
}

func (c *create) task() task.ID { return c.Task.ID }

func (c *create) size() int {
	return len(c.payload) + len(c.Task.Metadata) + len(c.audit) + len(c.forwarded)
}

type createResult struct {
	at      time.Time
	made    bool
	refused int32 // the exceeded limit; 0: none
	err     error
}

// ErrTaken says that the client id or the idempotency key of a create is in use.
var ErrTaken = errors.New("id or key already taken")

// Create stores a task, its first message, its queue row and its idempotency key in one commit, and
// returns the message's event. It blocks until the commit. Errors: ErrTaken if the client's id or
// the key is in use (see Existing), task.RateLimited if it would exceed a limit.
func (v View) Create(ctx context.Context, n *NewTask) (*task.Event, error) {
	c := newCreate(n)
	c.audit = v.auditedNew(n)
	var err error
	if c.forwarded, err = v.s.sealForwarded(ctx, &n.Task, n.Forwarded); err != nil {
		return nil, err
	}
	if n.Push != nil {
		if c.secrets, err = v.s.sealSecrets(ctx, n.Task.ID, n.Push); err != nil {
			return nil, err
		}
	}
	var r createResult
	switch {
	case n.Reopens != nil:
		r = v.s.reopen(ctx, c)
	case v.s.creates[v.s.shard(n.Task.ID)].add(c):
		// Not bounded by ctx: a queued create may be committed at any moment, and its caller must
		// not hear that it failed.
		r = <-c.done
	default:
		return nil, task.Errorf(task.Unavailable, "the server is stopping")
	}
	switch {
	case r.err != nil:
		return nil, r.err
	case r.refused != 0:
		return nil, v.s.refusal(n, r.refused)
	case !r.made:
		// Once the name and the key are free, only another race for the id can make them dangle
		// again.
		key, err := v.forgetKey(ctx, n.Idempotency)
		if err != nil {
			return nil, err
		}
		name, err := v.forgetName(ctx, n)
		if err != nil || !key && !name {
			return nil, orTaken(err)
		}
		return v.Create(ctx, n)
	}
	ev := &task.Event{Task: n.Task.ID, Seq: 1, Kind: task.EventMessage, At: r.at, Message: n.Message}
	v.s.committed(ev)
	if n.Slot.Worker.IsZero() && v.s.listener != nil {
		v.s.listener.Ready(n.Task.Agent)
	}
	return ev, nil
}

func orTaken(err error) error {
	if err != nil {
		return err
	}
	return ErrTaken
}

// forgetName frees a client's id whose task was deleted.
func (v View) forgetName(ctx context.Context, n *NewTask) (freed bool, err error) {
	if !n.ClientID {
		return false, nil
	}
	rows, err := v.s.q.NameForget(ctx, v.writes(), dbsqlc.NameForgetParams{
		Tenant: n.Task.Tenant, Owner: n.Task.Owner, Agent: n.Task.Agent, ClientID: n.Task.PublicID,
	})
	return rows > 0, translate("task name", err)
}

// createPatience bounds how long a create is retried while its outcome is unknown, or another
// session's lock blocks it. Then its caller gets an error.
const createPatience = 8 * time.Second

// writeCreates writes items in one commit. It returns those that another session's lock blocks, for
// example the transaction of a create with the same id elsewhere.
func (s *Store) writeCreates(ctx context.Context, items []*create) (blocked []*create) {
	start := time.Now()
	repeated := slices.ContainsFunc(items, func(c *create) bool { return c.unknown })
	for try := 0; ; try++ {
		began := time.Now()
		done, err := s.createRows(ctx, items)
		if err == nil {
			if !done.at.IsZero() {
				s.clock.learn(done.at, began)
			}
			s.flushed("create", len(items), start)
			s.finishCreates(ctx, items, done)
			return nil
		}
		f := classify(err)
		if f == failUnknown {
			repeated = true
			for _, c := range items {
				c.unknown = true
			}
		}
		if f == failFinal && repeated && duplicate(err) {
			f = failAborted // the earlier try has been committed since TaskAdmit looked for its tasks
		}
		switch {
		case f == failFinal && len(items) > 1:
			// The database refuses one of the items. Written one by one, only that one fails.
			for _, c := range items {
				blocked = append(blocked, s.writeCreates(ctx, []*create{c})...)
			}
			return blocked
		case f == failBlocked && ctx.Err() == nil:
			s.retried(ctx, "create", err, try)
			for _, c := range items {
				if time.Since(c.queued) < s.patience.create {
					blocked = append(blocked, c)
				} else {
					c.done <- createResult{err: translate("create", err)}
				}
			}
			return blocked
		case f == failFinal || f == failCancelled || ctx.Err() != nil,
			// Nothing was written, so let the clients decide when to retry.
			!repeated && try >= 2,
			time.Since(start) > s.patience.create:
			for _, c := range items {
				c.done <- createResult{err: translate("create", err)}
			}
			return nil
		}
		s.retried(ctx, "create", err, try)
		_ = pause(ctx, try)
	}
}

// creation is what became of creates.
type creation struct {
	at      time.Time // of the commit
	made    map[uuid.UUID]bool
	refused map[uuid.UUID]int32 // the exceeded limits
}

// createRows writes creates. It first admits those that may be refused or taken, in the same transaction.
func (s *Store) createRows(ctx context.Context, items []*create) (done creation, err error) {
	var asked []*create
	for _, c := range items {
		if !c.ordinary() {
			asked = append(asked, c)
		}
	}
	admitted := items
	write := func() (queries []func(db dbsqlc.DBTX) error) {
		if hooks := pushParams(admitted); len(hooks.Tasks) > 0 {
			queries = append(queries, func(db dbsqlc.DBTX) error { return s.q.PushConfigsNew(ctx, db, hooks) })
		}
		arg := createParams(admitted)
		return append(queries, func(db dbsqlc.DBTX) error { return s.created(ctx, db, arg, &done) })
	}
	if len(asked) == 0 {
		err = s.write.together(ctx, write()...)
		return done, err
	}
	admit := admitParams(asked)
	err = s.write.inTwo(ctx, func(db dbsqlc.DBTX) error {
		rows, err := s.q.TaskAdmit(ctx, db, admit)
		if err == nil {
			admitted = done.admit(items, rows)
		}
		return err
	}, write)
	return done, err
}

// admit notes what was refused, and returns the items that become tasks.
func (d *creation) admit(items []*create, rows []dbsqlc.TaskAdmitRow) (admitted []*create) {
	d.refused = map[uuid.UUID]int32{}
	free := map[uuid.UUID]bool{}
	for _, r := range rows {
		if r.Refused != 0 {
			d.refused[r.ID] = r.Refused
		}
		free[r.ID] = r.Refused == 0
	}
	for _, c := range items {
		if c.ordinary() || free[uuid.UUID(c.Task.ID)] {
			admitted = append(admitted, c)
		}
	}
	return admitted
}

// created creates tasks.
func (s *Store) created(ctx context.Context, db dbsqlc.DBTX, arg dbsqlc.TaskCreateParams, done *creation) error {
	rows, err := s.q.TaskCreate(ctx, db, arg)
	done.made = make(map[uuid.UUID]bool, len(rows))
	for _, r := range rows {
		done.at, done.made[r.ID] = r.CreatedAt, true
	}
	return err
}

// ordinary reports whether nothing can prevent the create: TaskAdmit need not look at it.
func (c *create) ordinary() bool {
	return !c.ClientID && c.Idempotency.Key == "" && c.Limits.Live == 0 && c.queueLimit() == 0 && !c.Called && !c.unknown
}

// queueLimit returns the limit of the agent's queue, or 0 for a task that does not wait in it.
func (c *create) queueLimit() int32 {
	if !c.Slot.Worker.IsZero() {
		return 0
	}
	return int32(c.Limits.Queue)
}

func (c *create) clientID() string {
	if !c.ClientID {
		return ""
	}
	return c.Task.PublicID
}

func admitParams(items []*create) (arg dbsqlc.TaskAdmitParams) {
	for _, c := range items {
		t := &c.Task
		arg.Repeated = arg.Repeated || c.unknown
		arg.Ids, arg.ClientIds, arg.Agents = append(arg.Ids, uuid.UUID(t.ID)), append(arg.ClientIds, c.clientID()), append(arg.Agents, t.Agent)
		arg.Tenants, arg.Owners = append(arg.Tenants, t.Tenant), append(arg.Owners, t.Owner)
		arg.Keys, arg.RequestHashes = append(arg.Keys, c.Idempotency.Key), append(arg.RequestHashes, append([]byte{}, c.Idempotency.Hash...))
		arg.Called = append(arg.Called, c.Called)
		arg.LiveLimits, arg.QueueLimits = append(arg.LiveLimits, int32(c.Limits.Live)), append(arg.QueueLimits, c.queueLimit())
	}
	return arg
}

func pushParams(items []*create) (arg dbsqlc.PushConfigsNewParams) {
	for _, c := range items {
		p, t := c.Push, &c.Task
		if p == nil {
			continue
		}
		arg.Tasks, arg.ConfigIds, arg.Agents = append(arg.Tasks, uuid.UUID(t.ID)), append(arg.ConfigIds, p.ID), append(arg.Agents, t.Agent)
		arg.Tenants, arg.Owners, arg.PublicIds = append(arg.Tenants, t.Tenant), append(arg.Owners, t.Owner), append(arg.PublicIds, t.PublicID)
		arg.Dialects, arg.Urls, arg.Hosts = append(arg.Dialects, p.Dialect), append(arg.Urls, p.URL), append(arg.Hosts, p.Host)
		arg.Schemes, arg.Secrets = append(arg.Schemes, encodeSchemes(p.Schemes)), append(arg.Secrets, c.secrets)
		arg.Artifacts = append(arg.Artifacts, p.Artifacts)
	}
	return arg
}

func createParams(items []*create) dbsqlc.TaskCreateParams {
	n := len(items)
	arg := dbsqlc.TaskCreateParams{
		Ids: make([]uuid.UUID, n), ClientIds: make([]string, n), Agents: make([]string, n), Tenants: make([]string, n),
		Owners: make([]string, n), ContextIds: make([]string, n), Dialects: make([]string, n), Metadatas: make([]string, n),
		Traceparents: make([]string, n), Pushes: make([]bool, n), Called: make([]bool, n), StreamBases: make([]int64, n),
		Workers: make([]uuid.UUID, n), Leases: make([]time.Duration, n), Looks: make([]time.Duration, n),
		Payloads: make([]string, n), MessageBytes: make([]int32, n), Forwarded: make([]string, n),
	}
	audits := make([]string, n)
	for i, c := range items {
		t := &c.Task
		arg.Ids[i], arg.ClientIds[i], arg.Agents[i], arg.Tenants[i], arg.Owners[i] = uuid.UUID(t.ID), c.clientID(), t.Agent, t.Tenant, t.Owner
		arg.ContextIds[i], arg.Dialects[i], arg.Metadatas[i], arg.Traceparents[i] = t.ContextID, t.Dialect, string(t.Metadata), t.Traceparent
		arg.Pushes[i], arg.Called[i], arg.StreamBases[i] = c.Push != nil, c.Called, int64(t.StreamBase)
		arg.Workers[i], arg.Leases[i], arg.Looks[i] = uuid.UUID(c.Slot.Worker), c.Slot.Lease, c.Slot.Look
		arg.Payloads[i], arg.MessageBytes[i], arg.Forwarded[i], audits[i] = c.payload, int32(len(c.payload)), c.forwarded, c.audit
	}
	arg.Audits = entries(audits...)
	return arg
}

// finishCreates answers the callers. After a retry, a row may be missing because the first try was
// committed. Then the task exists under its id, which only this process knows.
func (s *Store) finishCreates(ctx context.Context, items []*create, done creation) {
	before := map[uuid.UUID]time.Time{}
	var lost error // why it is not known whether the first try was committed
	if slices.ContainsFunc(items, func(c *create) bool { return c.unknown && !done.made[uuid.UUID(c.Task.ID)] }) {
		before, lost = s.madeBefore(ctx, items, done.made)
	}
	for _, c := range items {
		id := uuid.UUID(c.Task.ID)
		at, earlier := before[id]
		switch {
		case done.made[id]:
			c.done <- createResult{at: done.at, made: true}
		case earlier:
			c.done <- createResult{at: at, made: true}
		case c.unknown && lost != nil:
			c.done <- createResult{err: translate("create", lost)}
		default:
			c.done <- createResult{refused: done.refused[id]}
		}
	}
}

// madeBefore returns the tasks that an earlier try has created, and when.
func (s *Store) madeBefore(ctx context.Context, items []*create, made map[uuid.UUID]bool) (before map[uuid.UUID]time.Time, err error) {
	before = map[uuid.UUID]time.Time{}
	err = s.proven(ctx, s.write, func(db dbsqlc.DBTX) error {
		for _, c := range items {
			id := uuid.UUID(c.Task.ID)
			if made[id] || !c.unknown {
				continue
			}
			row, err := s.q.TaskByID(ctx, db, id)
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			if err == nil {
				before[id] = row.CreatedAt
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return before, nil
}

// committed announces events that a writer or a request has just committed.
func (s *Store) committed(evs ...*task.Event) {
	if s.observe.Event != nil {
		for _, e := range evs {
			s.observe.Event(e.Kind)
		}
	}
	if s.listener != nil {
		s.listener.Committed(evs)
	}
}

// cleanName returns a value that a text column can store: no NUL, valid UTF-8.
func cleanName(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}
