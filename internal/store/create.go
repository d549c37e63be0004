package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Idempotency identifies a request, so that a retry finds the task of the first request.
type Idempotency struct {
	Key  string // empty for none
	Hash []byte // of the request's content
}

// NewTask is a task to be created with its first message.
type NewTask struct {
	Task        task.Task // id, public id, agent, tenant, owner, context, dialect, metadata, traceparent
	ClientID    bool      // the client chose the public id
	Message     *task.Message
	Request     *task.Request // that carried the message, or nil
	Forwarded   task.Forwarded
	Idempotency Idempotency
	Seat        Seat             // not zero: its worker claims the task in the same commit, as attempt 1
	Push        *task.PushConfig // set in the same commit, or nil
	Limits      Limits
	// Reopens is the ended task whose client-chosen id the new task takes over. Its server-made id
	// then becomes its public id. Seat must be zero. Create fills in Task.StreamBase.
	Reopens *task.Task
	// Called says that an agent has called the task: CallsNew has listed it. Create returns ErrTaken if it exists, or if its
	// caller does not wait for it any more.
	Called bool
}

// Seat is a place for a run at a worker.
type Seat struct {
	Worker task.ID
	Lease  time.Duration // of a remote worker; 0: the worker is a server process
	Look   time.Duration // until a replica looks at the run, at most Lease
}

// Limits bound the creation of tasks, exactly and over all replicas. 0 means no limit.
type Limits struct {
	Live  int // of the owner's open tasks with the agent
	Queue int // of the agent's queued tasks; a task that is created with a seat does not count
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
	if n.Seat.Worker.IsZero() && v.s.listener != nil {
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

// forgetKey frees an idempotency key whose task does not exist: another create took the task's id
// at the same moment, or the task was deleted.
func (v View) forgetKey(ctx context.Context, i Idempotency) (freed bool, err error) {
	if i.Key == "" {
		return false, nil
	}
	n, err := v.s.q.IdempotencyForget(ctx, v.writes(), dbsqlc.IdempotencyForgetParams{Tenant: v.by.Tenant, Owner: v.by.Subject, Key: i.Key})
	return n > 0, translate("idempotency key", err)
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
		rows, err := s.createRows(ctx, s.write, items)
		if err == nil {
			if len(rows) > 0 && rows[0].Refused == 0 {
				s.clock.learn(rows[0].CreatedAt, began)
			}
			s.flushed("create", len(items), start)
			s.finishCreates(ctx, items, rows)
			return nil
		}
		f := classify(err)
		if f == failUnknown {
			repeated = true
			for _, c := range items {
				c.unknown = true
			}
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

// createRows executes the statement that creates items: the lean one if all of them are ordinary.
func (s *Store) createRows(ctx context.Context, db dbsqlc.DBTX, items []*create) ([]dbsqlc.TaskCreateRow, error) {
	if slices.ContainsFunc(items, func(c *create) bool { return !c.ordinary() }) {
		return s.q.TaskCreate(ctx, db, createParams(items))
	}
	lean, err := s.q.TaskCreateLean(ctx, db, leanCreateParams(items))
	rows := make([]dbsqlc.TaskCreateRow, len(lean))
	for i, r := range lean {
		rows[i] = dbsqlc.TaskCreateRow(r)
	}
	return rows, err
}

// ordinary reports whether the create has only what TaskCreateLean can write.
func (c *create) ordinary() bool {
	return !c.ClientID && c.Idempotency.Key == "" && c.Limits == Limits{} && c.Push == nil && c.forwarded == "" && !c.Called && !c.unknown
}

func leanCreateParams(items []*create) dbsqlc.TaskCreateLeanParams {
	n := len(items)
	arg := dbsqlc.TaskCreateLeanParams{
		Ids: make([]uuid.UUID, n), Agents: make([]string, n), Tenants: make([]string, n), Owners: make([]string, n),
		ContextIds: make([]string, n), Dialects: make([]string, n), Metadatas: make([]string, n), Traceparents: make([]string, n),
		Workers: make([]uuid.UUID, n), Leases: make([]time.Duration, n), Looks: make([]time.Duration, n),
		Payloads: make([]string, n), MessageBytes: make([]int32, n),
	}
	said := make([]string, n)
	for i, c := range items {
		t := &c.Task
		arg.Ids[i], arg.Agents[i], arg.Tenants[i], arg.Owners[i] = uuid.UUID(t.ID), t.Agent, t.Tenant, t.Owner
		arg.ContextIds[i], arg.Dialects[i], arg.Metadatas[i], arg.Traceparents[i] = t.ContextID, t.Dialect, string(t.Metadata), t.Traceparent
		arg.Workers[i], arg.Leases[i], arg.Looks[i] = uuid.UUID(c.Seat.Worker), c.Seat.Lease, c.Seat.Look
		arg.Payloads[i], arg.MessageBytes[i], said[i] = c.payload, int32(len(c.payload)), c.audit
	}
	arg.Audits = entries(said...)
	return arg
}

func createParams(items []*create) dbsqlc.TaskCreateParams {
	n := len(items)
	arg := dbsqlc.TaskCreateParams{
		Ids: make([]uuid.UUID, n), ClientIds: make([]string, n), Agents: make([]string, n),
		Tenants: make([]string, n), Owners: make([]string, n), ContextIds: make([]string, n),
		Dialects: make([]string, n), Metadatas: make([]string, n), Payloads: make([]string, n),
		Keys: make([]string, n), RequestHashes: make([][]byte, n), Workers: make([]uuid.UUID, n),
		Leases: make([]time.Duration, n), Looks: make([]time.Duration, n),
		Pushes: make([]bool, n), Called: make([]bool, n), Audits: make([]string, n), Forwarded: make([]string, n), Traceparents: make([]string, n), LiveLimits: make([]int32, n), QueueLimits: make([]int32, n),
	}
	hooks := 0
	for _, c := range items {
		arg.Repeated = arg.Repeated || c.unknown
		if c.Push != nil {
			hooks++
		}
	}
	arg.PushTasks, arg.PushIds, arg.PushDialects = make([]uuid.UUID, 0, hooks), make([]string, 0, hooks), make([]string, 0, hooks)
	arg.PushUrls, arg.PushHosts, arg.PushSchemes = make([]string, 0, hooks), make([]string, 0, hooks), make([]string, 0, hooks)
	arg.PushSecrets, arg.PushArtifacts = make([][]byte, 0, hooks), make([]bool, 0, hooks)
	for i, c := range items {
		t := &c.Task
		arg.Ids[i], arg.Agents[i], arg.Tenants[i], arg.Owners[i] = uuid.UUID(t.ID), t.Agent, t.Tenant, t.Owner
		arg.ContextIds[i], arg.Dialects[i], arg.Metadatas[i] = t.ContextID, t.Dialect, string(t.Metadata)
		if c.ClientID {
			arg.ClientIds[i] = t.PublicID
		}
		arg.Payloads[i], arg.Audits[i], arg.Forwarded[i], arg.Traceparents[i] = c.payload, c.audit, c.forwarded, t.Traceparent
		arg.Keys[i], arg.RequestHashes[i] = c.Idempotency.Key, c.Idempotency.Hash
		if c.Idempotency.Hash == nil {
			arg.RequestHashes[i] = []byte{}
		}
		arg.Workers[i], arg.Leases[i], arg.Looks[i], arg.Called[i] = uuid.UUID(c.Seat.Worker), c.Seat.Lease, c.Seat.Look, c.Called
		arg.LiveLimits[i], arg.QueueLimits[i] = int32(c.Limits.Live), int32(c.Limits.Queue)
		if p := c.Push; p != nil {
			arg.Pushes[i] = true
			arg.PushTasks = append(arg.PushTasks, uuid.UUID(t.ID))
			arg.PushIds = append(arg.PushIds, p.ID)
			arg.PushDialects = append(arg.PushDialects, p.Dialect)
			arg.PushUrls = append(arg.PushUrls, p.URL)
			arg.PushHosts = append(arg.PushHosts, p.Host)
			arg.PushSchemes = append(arg.PushSchemes, encodeSchemes(p.Schemes))
			arg.PushSecrets = append(arg.PushSecrets, c.secrets)
			arg.PushArtifacts = append(arg.PushArtifacts, p.Artifacts)
		}
	}
	return arg
}

// finishCreates answers the callers. After a retry, a row may be missing because the first try was
// committed. Then the task exists under its id, which only this process knows.
func (s *Store) finishCreates(ctx context.Context, items []*create, rows []dbsqlc.TaskCreateRow) {
	made, refused := make(map[uuid.UUID]time.Time, len(rows)), map[uuid.UUID]int32{}
	for _, r := range rows {
		if r.Refused != 0 {
			refused[r.ID] = r.Refused
		} else {
			made[r.ID] = r.CreatedAt
		}
	}
	var lost error // why it is not known whether the first try was committed
	if slices.ContainsFunc(items, func(c *create) bool { return c.unknown && made[uuid.UUID(c.Task.ID)].IsZero() }) {
		lost = s.madeBefore(ctx, items, made)
	}
	for _, c := range items {
		at, ok := made[uuid.UUID(c.Task.ID)]
		if !ok && c.unknown && lost != nil {
			c.done <- createResult{err: translate("create", lost)}
			continue
		}
		r := createResult{at: at, made: ok}
		if !ok {
			r.refused = refused[uuid.UUID(c.Task.ID)]
		}
		c.done <- r
	}
}

// madeBefore adds to made the tasks that an earlier try has created.
func (s *Store) madeBefore(ctx context.Context, items []*create, made map[uuid.UUID]time.Time) error {
	before := map[uuid.UUID]time.Time{}
	err := s.proven(ctx, s.write, func(db dbsqlc.DBTX) error {
		for _, c := range items {
			id := uuid.UUID(c.Task.ID)
			if _, ok := made[id]; ok || !c.unknown {
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
	if err == nil {
		maps.Copy(made, before)
	}
	return err
}

// Existing finds the task that an idempotency key or else a client's id refers to, if the view sees
// it. Errors: task.Invalid if the key was used for a different request, task.NotFound.
func (v View) Existing(ctx context.Context, n *NewTask) (t *task.Task, byKey bool, err error) {
	if n.Idempotency.Key != "" {
		t, hash, err := v.ofKey(ctx, n.Idempotency.Key)
		switch {
		case err == nil && string(hash) != string(n.Idempotency.Hash):
			return nil, true, task.Errorf(task.Invalid, "Idempotency-Key: already used for a different request; use a new key")
		case err == nil:
			// The answer acknowledges the first request, whose own outcome may have been unknown.
			err = v.s.proven(ctx, v.db, func(db dbsqlc.DBTX) error {
				t, _, err = v.ofKeyIn(ctx, db, n.Idempotency.Key)
				return err
			})
			if !errors.Is(err, task.NotFound) {
				return t, true, translate("idempotency key", err)
			}
		case !errors.Is(err, task.NotFound):
			return t, true, err
		}
	}
	t, err = v.FindTask(ctx, n.Task.PublicID)
	return t, false, err
}

// ofKey finds the task of an idempotency key of the view's caller, and the hash of the request that
// used the key. Errors: task.NotFound if the key is free, or its task was deleted or is no longer
// visible.
func (v View) ofKey(ctx context.Context, key string) (*task.Task, []byte, error) {
	return v.ofKeyIn(ctx, v.db, key)
}

func (v View) ofKeyIn(ctx context.Context, db dbsqlc.DBTX, key string) (*task.Task, []byte, error) {
	rows, err := v.s.q.IdempotencyGet(ctx, db, dbsqlc.IdempotencyGetParams{Tenant: v.by.Tenant, Owner: v.by.Subject, Key: key})
	if err != nil {
		return nil, nil, translate("idempotency key", err)
	}
	for _, r := range rows {
		row, err := v.s.q.TaskSeen(ctx, db, dbsqlc.TaskSeenParams{
			ID: r.Task, Tenant: v.by.Tenant, Owner: v.by.Subject, TenantWide: v.sees.TenantWide,
		})
		if !errors.Is(err, pgx.ErrNoRows) {
			t, err := found(&row, err)
			return t, r.RequestHash, err
		}
	}
	return nil, nil, task.NotFound
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
