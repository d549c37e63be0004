package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// sent is a stored message: its task, and a subscription that was registered
// before the commit, if the caller wanted one.
type sent struct {
	header *task.Task
	seq    task.Seq // the last that storing the message wrote; 0 when the request was a repetition
	fresh  bool     // the task is new, and all of its events come through sub
	first  *task.Event
	sub    *hub.Subscription
}

// Send stores a message and returns its task: at once, or with Wait when the task
// has settled or MaxBlock has passed.
func (e *Engine) Send(ctx context.Context, r *SendRequest) (*task.Task, error) {
	s, err := e.deliver(ctx, r, r.Wait)
	if err != nil {
		return nil, err
	}
	if s.sub == nil {
		if s.fresh {
			t := store.Empty(s.header)
			return t, t.Apply(s.first)
		}
		return e.snapshot(ctx, r.Caller, s.header.ID, 0)
	}
	defer s.sub.Close()
	wait, cancel := context.WithTimeout(ctx, e.opt.MaxBlock)
	defer cancel()
	t := store.Empty(s.header)
	if s.fresh {
		s.sub.Start(0)
	} else {
		if t, err = e.snapshot(ctx, r.Caller, s.header.ID, 0); err != nil {
			return nil, err
		}
		s.sub.Start(t.LastSeq)
	}
	return follow(wait, s.sub, t, task.State.Settled)
}

// deliver stores the message: as a new task, or for the one it names.
func (e *Engine) deliver(ctx context.Context, r *SendRequest, subscribe bool) (*sent, error) {
	agent, ok := e.agents[r.Agent]
	if !ok {
		return nil, task.Errorf(task.NotFound, "there is no agent %q", r.Agent)
	}
	if err := agent.negotiate(r); err != nil {
		return nil, err
	}
	if r.Push != nil {
		if err := e.checkPush(ctx, r.Push); err != nil {
			return nil, err
		}
	}
	if len(r.Metadata) > maxMetadata {
		return nil, task.InvalidField("metadata", "must not be longer than %d bytes; what is longer belongs in a part of the message", maxMetadata)
	}
	n := newTask(r, &agent)
	if r.TaskID == "" {
		return e.create(ctx, r, n, subscribe)
	}
	// A server-made id can only be continued. Any other is most likely new, and creating it
	// finds out if it is not; but not if it is that of somebody else whose tasks the caller sees.
	_, notOurs := task.ParseID(r.TaskID)
	if r.MayCreate && notOurs != nil && !e.owner(r.Caller).TenantWide {
		return e.create(ctx, r, n, subscribe)
	}
	h, err := e.Find(ctx, r.Caller, r.TaskID)
	switch {
	case err == nil:
		return e.resume(ctx, r, n, h, agent, subscribe)
	case errors.Is(err, task.NotFound) && r.MayCreate:
		return e.create(ctx, r, n, subscribe)
	}
	return nil, err
}

// maxMetadata bounds a request's metadata, in bytes: it becomes the task's, which lists show of each.
const maxMetadata = 256 << 10

// messageKey begins the keys that stand for messages. No header can hold such a key.
const messageKey = "messageId\x1f"

func newTask(r *SendRequest, agent *Agent) *store.NewTask {
	n := &store.NewTask{
		Task: task.Task{
			ID: store.NewID(), PublicID: r.TaskID, Agent: r.Agent, Tenant: r.Principal.Tenant,
			Owner: r.Principal.Subject, ContextID: r.ContextID, Dialect: r.Dialect, Metadata: r.Metadata,
		},
		ClientID: r.TaskID != "",
		Message:  r.Message,
		Limits:   agent.Limits,
	}
	switch {
	case r.IdempotencyKey != "":
		n.Idempotency = store.Idempotency{Key: r.IdempotencyKey, Hash: requestHash(r)}
	case agent.DedupeMessages && r.Message.ID != "":
		// By all of the request: there are clients that give one id to many messages.
		hash := requestHash(r)
		n.Idempotency = store.Idempotency{Key: messageKey + hex.EncodeToString(hash), Hash: hash}
	}
	if n.Task.PublicID == "" {
		n.Task.PublicID = n.Task.ID.String()
	}
	if n.Task.ContextID == "" {
		n.Task.ContextID = uuid.NewString()
	}
	if n.Message.ID == "" {
		n.Message.ID = uuid.NewString()
	}
	n.Message.TaskID, n.Message.ContextID = n.Task.PublicID, n.Task.ContextID
	return n
}

// requestHash tells a repetition from another request under the same key. It runs
// before the server fills in what the client left out.
func requestHash(r *SendRequest) []byte {
	h := sha256.New()
	for _, part := range []string{
		r.Agent, r.TaskID, r.ContextID, string(r.Metadata),
		store.EncodePayload(&task.Event{Kind: task.EventMessage, Message: r.Message}),
	} {
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0})
	}
	if p := r.Push; p != nil {
		for _, part := range append([]string{p.ID, p.URL, p.Token, p.Credentials}, p.Schemes...) {
			_, _ = h.Write([]byte(part))
			_, _ = h.Write([]byte{0})
		}
	}
	return h.Sum(nil)
}

func (e *Engine) create(ctx context.Context, r *SendRequest, n *store.NewTask, subscribe bool) (*sent, error) {
	s := &sent{header: &n.Task, seq: 1, fresh: true}
	if subscribe {
		s.sub = e.opt.Hub.Subscribe(&n.Task)
	}
	if r.Push != nil {
		n.Push = e.pushFor(&n.Task, r.Push, r.Dialect)
	}
	var slot Slot
	if e.opt.Reserve != nil && n.Reopens == nil {
		if slot = e.opt.Reserve(n.Task.Agent); slot != nil {
			n.Worker = slot.WorkerID()
		}
	}
	ev, err := e.as(r.Caller).Create(ctx, n)
	if err != nil {
		if slot != nil {
			slot.Release()
		}
		if s.sub != nil {
			s.sub.Close()
		}
		if errors.Is(err, store.ErrTaken) {
			return e.taken(ctx, r, n, subscribe)
		}
		return nil, err
	}
	n.Task.CreatedAt, s.first = ev.At, ev
	if slot != nil {
		claimed := n.Task
		claimed.Status.State, claimed.LastSeq = task.StateSubmitted, 1
		slot.Start(&store.Claimed{
			Task: &claimed, Message: n.Message, MessageSeq: 1, Attempt: 1, Turn: 1, Try: 1, AvailableAt: ev.At,
		})
	}
	return s, nil
}

// taken continues with the task that has the id or the key already.
func (e *Engine) taken(ctx context.Context, r *SendRequest, n *store.NewTask, subscribe bool) (*sent, error) {
	h, byKey, err := e.as(r.Caller).Existing(ctx, e.owner(r.Caller), n)
	if err != nil {
		return nil, err
	}
	if byKey {
		return e.again(h, subscribe), nil
	}
	n.Worker = task.ID{}
	if n.Reopens != nil { // another message did before this one
		n.Reopens, n.Message.References = nil, n.Message.References[:len(n.Message.References)-1]
	}
	return e.resume(ctx, r, n, h, e.agents[r.Agent], subscribe)
}

// again answers a repeated request with the task that the first one led to.
func (e *Engine) again(h *task.Task, subscribe bool) *sent {
	s := &sent{header: h}
	if subscribe {
		s.sub = e.opt.Hub.Subscribe(h)
	}
	return s
}

// resume adds the message to an existing task.
func (e *Engine) resume(ctx context.Context, r *SendRequest, n *store.NewTask, h *task.Task, agent Agent, subscribe bool) (*sent, error) {
	if r.ContextID != "" && r.ContextID != h.ContextID {
		return nil, task.InvalidField(cmp.Or(r.ContextMember, "contextId"), "is not that of task %s", h.PublicID)
	}
	if n.Idempotency.Key != "" {
		old, byKey, err := e.as(r.Caller).Existing(ctx, e.owner(r.Caller), n)
		switch {
		case byKey && err != nil:
			return nil, err
		case byKey:
			return e.again(old, subscribe), nil
		}
	}
	if h.Status.State.Terminal() && reopens(r, h) {
		return e.reopen(ctx, r, n, h, subscribe)
	}
	s := &sent{header: h}
	if subscribe {
		s.sub = e.opt.Hub.Subscribe(h)
	}
	n.Message.TaskID, n.Message.ContextID = h.PublicID, h.ContextID
	m := &store.NewMessage{
		Task: h, Sender: r.Principal.Subject, Message: n.Message, Enqueue: !agent.RejectBusy, RequestID: n.Task.ID, Idempotency: n.Idempotency,
	}
	if r.Push != nil {
		m.Push, m.MostPushes = e.pushFor(h, r.Push, r.Dialect), e.opt.Push.MaxPerTask
	}
	seq, err := e.as(r.Caller).AddMessage(ctx, m)
	if err == nil {
		s.seq = seq
		return s, nil
	}
	if s.sub != nil {
		s.sub.Close()
	}
	switch {
	case errors.Is(err, store.ErrTaken):
		old, _, err := e.as(r.Caller).Existing(ctx, e.owner(r.Caller), n)
		if err != nil {
			return nil, err
		}
		return e.again(old, subscribe), nil
	case errors.Is(err, task.Terminal) && reopens(r, h): // it has ended since it was read
		return e.reopen(ctx, r, n, h, subscribe)
	}
	return nil, err
}

// reopens reports whether a message to a task that has ended begins it anew. To one of somebody else, whose tasks the
// caller only sees, it does not.
func reopens(r *SendRequest, h *task.Task) bool {
	return r.MayReopen && h.Owner == r.Principal.Subject && h.Dialect == r.Dialect && h.PublicID != h.ID.String()
}

// reopen begins a task anew: as another one, since what has ended does not change. It has
// the id and the context of the old one, and refers to that by the id that it keeps.
func (e *Engine) reopen(ctx context.Context, r *SendRequest, n *store.NewTask, h *task.Task, subscribe bool) (*sent, error) {
	n.Reopens = h
	n.Task.ContextID = h.ContextID
	if n.Task.Metadata == nil {
		n.Task.Metadata = h.Metadata
	}
	n.Message.TaskID, n.Message.ContextID = h.PublicID, h.ContextID
	n.Message.References = append(slices.Clone(n.Message.References), h.ID.String())
	return e.create(ctx, r, n, subscribe)
}
