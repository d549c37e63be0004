package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

// sent is a stored message with its task. If the caller asked for a subscription, sent has one that
// was registered before the commit.
type sent struct {
	header *task.Task
	seq    task.Seq // last seq that storing the message wrote; 0 for a deduplicated request
	fresh  bool     // the task is new: sub gets all of its events
	first  *task.Event
	sub    *hub.Subscription
}

// Send stores a message and returns its task. With Wait it blocks until the task has settled or
// MaxBlock has passed.
func (v *View) Send(ctx context.Context, r *SendRequest) (*task.Task, error) {
	s, err := v.deliver(ctx, r, r.Wait)
	if err != nil {
		return nil, err
	}
	if s.sub == nil {
		if s.fresh {
			t := store.Empty(s.header)
			return t, t.Apply(s.first)
		}
		return v.snapshot(ctx, s.header.ID, 0)
	}
	defer s.sub.Close()
	wait, cancel := context.WithTimeout(ctx, v.opt.MaxBlock)
	defer cancel()
	t := store.Empty(s.header)
	if s.fresh {
		s.sub.Start(task.Position{})
	} else {
		if t, err = v.snapshot(ctx, s.header.ID, 0); err != nil {
			return nil, err
		}
		s.sub.Start(t.Position())
	}
	return follow(wait, s.sub, t, task.State.Settled)
}

// deliver stores the message, as a new task or for the task that it names.
func (v *View) deliver(ctx context.Context, r *SendRequest, subscribe bool) (*sent, error) {
	agent, ok := v.agents[v.agent]
	if !ok {
		return nil, task.Errorf(task.NotFound, "there is no agent %q", v.agent)
	}
	if current, changed := v.modes.Load(v.agent); changed {
		m := current.(modes)
		agent.InputModes, agent.OutputModes = m.input, m.output
	}
	if err := agent.negotiate(r); err != nil {
		return nil, err
	}
	if r.Push != nil {
		if err := v.checkPush(ctx, r.Push); err != nil {
			return nil, err
		}
	}
	if err := checkMetadata(r.Metadata); err != nil {
		return nil, err
	}
	ctx, span := tracing.Send(ctx, v.agent)
	if span == nil {
		return v.deliverAgain(ctx, r, agent, subscribe)
	}
	defer span.End()
	traced := *r
	traced.Trace = span.Context()
	s, err := v.deliverAgain(ctx, &traced, agent, subscribe)
	if err != nil {
		span.FailWith(err)
		return nil, err
	}
	span.Set(tracing.TaskID.String(s.header.PublicID), tracing.ContextID.String(s.header.ContextID))
	return s, nil
}

func (v *View) deliverAgain(ctx context.Context, r *SendRequest, agent Agent, subscribe bool) (*sent, error) {
	for range 5 {
		s, err := v.deliverOnce(ctx, r, agent, subscribe)
		if err == nil {
			limit.AccountOf(ctx).Stored() // the message is committed, by this request or an earlier one
		}
		if !errors.Is(err, errGone) {
			return s, err
		}
	}
	return nil, task.NotFound
}

// errGone says that a task which the request led to was deleted meanwhile. Its id and its key are
// free again, so the request is tried again.
var errGone = errors.New("the task was deleted meanwhile")

func orGone(s *sent, err error) (*sent, error) {
	if errors.Is(err, task.NotFound) {
		return nil, errGone
	}
	return s, err
}

func (v *View) deliverOnce(ctx context.Context, r *SendRequest, agent Agent, subscribe bool) (*sent, error) {
	n := v.newTask(r, &agent)
	// A task with a server-made id exists already or never will. Any other id is most likely new,
	// and the create fails if the caller has it already. With TenantWide the id may belong to a
	// task of another owner, which a create does not notice.
	_, notOurs := task.ParseID(r.TaskID)
	if r.TaskID != "" && (!r.MayCreate || notOurs == nil || v.sees.TenantWide) {
		h, err := v.Find(ctx, r.TaskID)
		if err == nil {
			return orGone(v.resume(ctx, r, n, h, agent, subscribe))
		}
		if !errors.Is(err, task.NotFound) || !r.MayCreate {
			return nil, err
		}
	}
	return orGone(v.create(ctx, r, n, subscribe))
}

func checkMetadata(metadata json.RawMessage) error {
	if len(metadata) > maxMetadata {
		return task.InvalidField("metadata", "must not be longer than %d bytes; put larger data in a part of a message", maxMetadata)
	}
	return nil
}

// maxMetadata bounds a request's metadata, in bytes. It becomes the task's metadata, which lists
// show for each task.
const maxMetadata = 256 << 10

// messageKey is the prefix of idempotency keys made from messages. No header can hold such a key,
// so a client cannot send one.
const messageKey = "messageId\x1f"

func (v *View) newTask(r *SendRequest, agent *Agent) *store.NewTask {
	message := *r.Message
	n := &store.NewTask{
		Task: task.Task{
			ID: v.store.NewTaskID(), PublicID: r.TaskID, Agent: v.agent, Tenant: v.caller.Tenant,
			Owner: v.caller.Subject, ContextID: r.ContextID, Dialect: r.Dialect, Metadata: r.Metadata, Traceparent: r.Trace.Parent,
		},
		ClientID: r.TaskID != "",
		Message:  &message,
		Request: &task.Request{
			OutputModes: r.OutputModes, Extensions: r.Extensions, Scopes: v.caller.Scopes, Traceparent: r.Trace.Parent, Tracestate: r.Trace.State,
		},
		Forwarded: r.Forwarded, Limits: agent.Limits,
	}
	switch {
	case r.IdempotencyKey != "":
		n.Idempotency = store.Idempotency{Key: r.IdempotencyKey, Hash: v.requestHash(r)}
	case agent.DedupeMessages && r.Message.ID != "":
		// The key covers the whole request, because some clients use one id for many messages.
		hash := v.requestHash(r)
		n.Idempotency = store.Idempotency{Key: messageKey + hex.EncodeToString(hash), Hash: hash}
	}
	if n.Task.PublicID == "" {
		n.Task.PublicID = n.Task.ID.String()
	}
	if n.Task.ContextID == "" {
		// In the order of time: all rows of a moment go to one page of the index of contexts, not each to another one.
		n.Task.ContextID = uuid.Must(uuid.NewV7()).String()
	}
	if n.Message.ID == "" {
		n.Message.ID = uuid.NewString()
	}
	n.Message.TaskID, n.Message.ContextID = n.Task.PublicID, n.Task.ContextID
	return n
}

// requestHash hashes a request, to tell a retry from a different request with the same key.
func (v *View) requestHash(r *SendRequest) []byte {
	h := sha256.New()
	for _, part := range []string{
		v.agent, r.TaskID, r.ContextID, string(r.Metadata),
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

func (v *View) create(ctx context.Context, r *SendRequest, n *store.NewTask, subscribe bool) (*sent, error) {
	s := v.begin(&n.Task, subscribe)
	s.seq, s.fresh = 1, true
	if r.Push != nil {
		n.Push = v.pushFor(&n.Task, r.Push, r.Dialect)
	}
	var slot Slot
	if v.opt.Reserve != nil && n.Reopens == nil {
		if slot = v.opt.Reserve(n.Task.Agent); slot != nil {
			n.Slot = slot.Claimer()
		}
	}
	ev, err := v.store.Create(ctx, n)
	if err != nil {
		if slot != nil {
			slot.Release(err)
		}
		if s.sub != nil {
			s.sub.Close()
		}
		if errors.Is(err, store.ErrTaken) {
			return v.taken(ctx, r, n, subscribe)
		}
		return nil, err
	}
	n.Task.CreatedAt, s.first = ev.At, ev
	if slot != nil {
		claimed := n.Task
		claimed.Status.State, claimed.LastSeq = task.StateSubmitted, 1
		slot.Start(&store.Claimed{
			Task: &claimed, Message: n.Message, Request: n.Request, Forwarded: n.Forwarded, MessageSeq: 1, Turn: 1, Try: 1,
			Fence: store.FirstFence(&claimed),
		})
	}
	return s, nil
}

// taken continues with the task that already has the id or the key.
func (v *View) taken(ctx context.Context, r *SendRequest, n *store.NewTask, subscribe bool) (*sent, error) {
	h, byKey, err := v.store.Existing(ctx, n)
	if err != nil {
		return nil, err
	}
	if byKey {
		return v.begin(h, subscribe), nil
	}
	n.Slot = store.Slot{}
	if n.Reopens != nil { // another message reopened it first
		n.Reopens, n.Message.References = nil, n.Message.References[:len(n.Message.References)-1]
	}
	return v.resume(ctx, r, n, h, v.agents[v.agent], subscribe)
}

// begin returns the answer for a task; of a retry, that is the task of the first request.
func (v *View) begin(h *task.Task, subscribe bool) *sent {
	s := &sent{header: h}
	if subscribe {
		s.sub = v.opt.Hub.Subscribe(h)
	}
	return s
}

// resume adds the message to an existing task.
func (v *View) resume(ctx context.Context, r *SendRequest, n *store.NewTask, h *task.Task, agent Agent, subscribe bool) (*sent, error) {
	if r.ContextID != "" && r.ContextID != h.ContextID {
		return nil, task.InvalidField(cmp.Or(r.ContextMember, "contextId"), "is not the context of task %s; omit it or send the task's own", h.PublicID)
	}
	if n.Idempotency.Key != "" {
		old, byKey, err := v.store.Existing(ctx, n)
		switch {
		case byKey && err != nil:
			return nil, err
		case byKey:
			return v.begin(old, subscribe), nil
		}
	}
	if r.Answers && !h.Status.State.Parked() {
		return nil, task.Errorf(task.Busy, "the task is %s: only a task that is input-required or auth-required waits for an answer", h.Status.State)
	}
	if h.Status.State.Terminal() && v.reopens(r, h) {
		return v.reopen(ctx, r, n, h, subscribe)
	}
	s := v.begin(h, subscribe)
	n.Message.TaskID, n.Message.ContextID = h.PublicID, h.ContextID
	request := *n.Request
	request.Metadata = r.Metadata // that of the first request is the task's
	m := &store.NewMessage{
		Task: h, Message: n.Message, Request: &request, Forwarded: n.Forwarded, Enqueue: !agent.RejectBusy, MostPending: store.PendingMessages, RequestID: n.Task.ID, Idempotency: n.Idempotency,
	}
	if r.Push != nil {
		m.Push, m.MostPushes = v.pushFor(h, r.Push, r.Dialect), v.opt.Push.MaxPerTask
	}
	seq, err := v.store.AddMessage(ctx, m)
	if err == nil {
		s.seq = seq
		return s, nil
	}
	if s.sub != nil {
		s.sub.Close()
	}
	switch {
	case errors.Is(err, store.ErrTaken):
		old, _, err := v.store.Existing(ctx, n)
		if err != nil {
			return nil, err
		}
		return v.begin(old, subscribe), nil
	case errors.Is(err, task.Terminal) && v.reopens(r, h): // it ended after it was read
		return v.reopen(ctx, r, n, h, subscribe)
	}
	return nil, err
}

// reopens reports whether a message to an ended task reopens it. Only a message of the task's owner
// does; other callers that may see the task cannot reopen it.
func (v *View) reopens(r *SendRequest, h *task.Task) bool {
	return r.MayReopen && h.Owner == v.caller.Subject && h.Dialect == r.Dialect && h.PublicID != h.ID.String()
}

// reopen creates a new task instead of changing the ended one, because an ended task does not
// change. The new task takes over the client's id and the context. Its message refers to the old
// task by the server-made id, which the old task keeps.
func (v *View) reopen(ctx context.Context, r *SendRequest, n *store.NewTask, h *task.Task, subscribe bool) (*sent, error) {
	n.Reopens = h
	n.Task.ContextID = h.ContextID
	if n.Task.Metadata == nil {
		n.Task.Metadata = h.Metadata
	}
	n.Message.TaskID, n.Message.ContextID = h.PublicID, h.ContextID
	n.Message.References = append(slices.Clone(n.Message.References), h.ID.String())
	return v.create(ctx, r, n, subscribe)
}
