package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Idempotency names a request so that its repetition finds the first one's task.
type Idempotency struct {
	Key  string // empty for none
	Hash []byte // of the request's meaning
}

// NewTask is a task to be created with its first message.
type NewTask struct {
	Task        task.Task // id, public id, agent, tenant, owner, context, dialect, metadata
	ClientID    bool      // the public id is the client's choice
	Message     *task.Message
	Idempotency Idempotency
	Worker      task.ID          // not zero: claimed by this worker in the same commit, as attempt 1
	Push        *task.PushConfig // set in the same commit, or nil
	Limits      Limits
	// Reopens is the task, which has ended, that gives its client's id to this one, which no
	// worker may have yet. Its public id is then its own. Create fills in Task.StreamBase.
	Reopens *task.Task
}

// Limits may keep a task from being created, exactly and over all replicas. 0 means none.
type Limits struct {
	Live  int // of the owner's tasks with the agent that have not ended
	Queue int // of the agent's tasks that wait for a worker; one that is created with a worker does not
}

// What a create is refused for, as its statement says.
const (
	refusedLive  = 1
	refusedQueue = 2
)

// refusal is the error of a create that would go past a limit.
func (s *Store) refusal(n *NewTask, by int32) error {
	limit, e := LimitQueue, &task.Error{Kind: task.RateLimited, RetryAfter: 2 * time.Second}
	if by == refusedLive {
		limit, e.RetryAfter = LimitLive, 5*time.Second
		e.Msg = fmt.Sprintf("%d of your tasks with this agent have not ended, which is as many as may be", n.Limits.Live)
	} else {
		e.Msg = fmt.Sprintf("%d tasks wait for this agent, which is as many as may be", n.Limits.Queue)
	}
	if s.observe.Limited != nil {
		s.observe.Limited(n.Task.Agent, limit)
	}
	return e
}

// The limits, as Observer.Limited names them.
const (
	LimitLive  = "live_tasks"
	LimitQueue = "queue"
)

type create struct {
	*NewTask
	payload string
	secrets []byte // of the webhook, sealed
	audit   string
	done    chan createResult
}

func newCreate(n *NewTask) *create {
	return &create{
		NewTask: n, done: make(chan createResult, 1),
		payload: EncodePayload(&task.Event{Kind: task.EventMessage, Message: n.Message}),
	}
}

func (c *create) size() int { return len(c.payload) + len(c.Task.Metadata) + len(c.audit) }

type createResult struct {
	at      time.Time
	made    bool
	refused int32 // by which limit; 0: by none
	err     error
}

// ErrTaken says that a create met a client id or an idempotency key that is in use.
var ErrTaken = errors.New("id or key already taken")

// Create stores a task, its first message, its queue row and its idempotency key
// in one commit, and returns the message's event. ErrTaken means that the
// client's id or the key is in use; look at Existing. task.RateLimited: it would go
// past one of its limits.
func (v View) Create(ctx context.Context, n *NewTask) (*task.Event, error) {
	c := newCreate(n)
	c.audit = v.auditedNew(n)
	if n.Push != nil {
		var err error
		if c.secrets, err = v.s.sealSecrets(ctx, n.Task.ID, n.Push); err != nil {
			return nil, err
		}
	}
	var r createResult
	switch {
	case n.Reopens != nil:
		r = v.s.reopen(ctx, c)
	case v.s.creates[v.s.shard(n.Task.ID)].add(c):
		// Not bounded by ctx: what was queued may be committed at any moment, and whoever asked
		// must not be told that it was not.
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
		// Once the key is free nothing makes it dangle again but another race for the id.
		if freed, err := v.forgetKey(ctx, n.Task.Tenant, n.Task.Owner, n.Idempotency); err != nil || !freed {
			return nil, orTaken(err)
		}
		return v.Create(ctx, n)
	}
	ev := &task.Event{Task: n.Task.ID, Seq: 1, Kind: task.EventMessage, At: r.at, Message: n.Message}
	v.s.committed(ev)
	if n.Worker.IsZero() && v.s.listener != nil {
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

// forgetKey frees an idempotency key whose task does not exist: another create
// took the task's id at the same moment, or the task is gone.
func (v View) forgetKey(ctx context.Context, tenant, owner string, i Idempotency) (freed bool, err error) {
	if i.Key == "" {
		return false, nil
	}
	n, err := v.s.q.IdempotencyForget(ctx, v.db, dbsqlc.IdempotencyForgetParams{Tenant: tenant, Owner: owner, Key: i.Key})
	return n > 0, translate("idempotency key", err)
}

// createPatience bounds how long a create whose outcome is unknown is repeated
// before its caller is told so.
const createPatience = 8 * time.Second

func (s *Store) flushCreates(ctx context.Context, items []*create) { s.writeCreates(ctx, items, false) }

// writeCreates writes items as one commit. unknown says that an earlier try may have been
// committed.
func (s *Store) writeCreates(ctx context.Context, items []*create, unknown bool) {
	start := time.Now()
	arg := createParams(items)
	for try := 0; ; try++ {
		rows, err := s.q.TaskCreate(ctx, s.hot, arg)
		if err == nil {
			s.flushed("create", len(items), start)
			s.finishCreates(ctx, items, rows, unknown)
			return
		}
		f := classify(err)
		unknown = unknown || f == failUnknown
		switch {
		case f == failFinal && len(items) > 1:
			// One of them is what the database will not have. Alone, it fails alone.
			for _, c := range items {
				s.writeCreates(ctx, []*create{c}, unknown)
			}
			return
		case f == failFinal || f == failCancelled,
			// Nothing has been written: let the clients decide when to come again.
			!unknown && try >= 2,
			time.Since(start) > createPatience:
			for _, c := range items {
				c.done <- createResult{err: translate("create", err)}
			}
			return
		}
		s.retried("create", err, try)
		_ = pause(ctx, try)
	}
}

func createParams(items []*create) dbsqlc.TaskCreateParams {
	n := len(items)
	arg := dbsqlc.TaskCreateParams{
		Ids: make([]uuid.UUID, n), ClientIds: make([]string, n), Agents: make([]string, n),
		Tenants: make([]string, n), Owners: make([]string, n), ContextIds: make([]string, n),
		Dialects: make([]string, n), Metadatas: make([]string, n), Payloads: make([]string, n),
		Keys: make([]string, n), RequestHashes: make([][]byte, n), Workers: make([]uuid.UUID, n),
		Pushes: make([]bool, n), Audits: make([]string, n), LiveLimits: make([]int32, n), QueueLimits: make([]int32, n),
	}
	hooks := 0
	for _, c := range items {
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
		arg.Payloads[i], arg.Audits[i] = c.payload, c.audit
		arg.Keys[i], arg.RequestHashes[i] = c.Idempotency.Key, c.Idempotency.Hash
		if c.Idempotency.Hash == nil {
			arg.RequestHashes[i] = []byte{}
		}
		arg.Workers[i] = uuid.UUID(c.Worker)
		arg.LiveLimits[i], arg.QueueLimits[i] = int32(c.Limits.Live), int32(c.Limits.Queue)
		if p := c.Push; p != nil {
			arg.Pushes[i] = true
			arg.PushTasks = append(arg.PushTasks, uuid.UUID(t.ID))
			arg.PushIds = append(arg.PushIds, p.ID)
			arg.PushDialects = append(arg.PushDialects, p.Dialect)
			arg.PushUrls = append(arg.PushUrls, p.URL)
			arg.PushHosts = append(arg.PushHosts, hostOf(p.URL))
			arg.PushSchemes = append(arg.PushSchemes, encodeSchemes(p.Schemes))
			arg.PushSecrets = append(arg.PushSecrets, c.secrets)
			arg.PushArtifacts = append(arg.PushArtifacts, p.Artifacts)
		}
	}
	return arg
}

// finishCreates answers the callers. After a repetition, a missing row may be the
// first copy's own: then the task is there under the id that only we know.
func (s *Store) finishCreates(ctx context.Context, items []*create, rows []dbsqlc.TaskCreateRow, repeated bool) {
	made, refused := make(map[uuid.UUID]time.Time, len(rows)), map[uuid.UUID]int32{}
	for _, r := range rows {
		if r.Refused != 0 {
			refused[r.ID] = r.Refused
		} else {
			made[r.ID] = r.CreatedAt
		}
	}
	for _, c := range items {
		at, ok := made[uuid.UUID(c.Task.ID)]
		if !ok && repeated {
			row, err := s.q.TaskByID(ctx, s.hot, uuid.UUID(c.Task.ID))
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				c.done <- createResult{err: translate("create", err)}
				continue
			}
			at, ok = row.CreatedAt, err == nil
		}
		r := createResult{at: at, made: ok}
		if !ok {
			r.refused = refused[uuid.UUID(c.Task.ID)]
		}
		c.done <- r
	}
}

// Existing finds the task that an idempotency key or a client's id refers to, in
// that order, as far as an owner sees it. A key that was used for another request is an error.
func (v View) Existing(ctx context.Context, o Owner, n *NewTask) (t *task.Task, byKey bool, err error) {
	if n.Idempotency.Key != "" {
		k, err := v.s.q.IdempotencyGet(ctx, v.db, dbsqlc.IdempotencyGetParams{
			Tenant: o.Tenant, Owner: o.Subject, TenantWide: o.TenantWide, Key: n.Idempotency.Key,
		})
		switch {
		case err == nil && string(k.RequestHash) != string(n.Idempotency.Hash):
			return nil, true, task.Errorf(task.Invalid, "Idempotency-Key: already used for a different request")
		case err == nil:
			t, err := v.Header(ctx, task.ID(k.Task))
			return t, true, err
		case !errors.Is(err, pgx.ErrNoRows):
			return nil, false, translate("idempotency key", err)
		}
	}
	t, err = v.FindTask(ctx, o, n.Task.PublicID)
	return t, false, err
}

// committed publishes events that a writer or a request has just committed.
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

// cleanName makes a value safe for a column of names: no NUL, valid UTF-8.
func cleanName(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}
