package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

const (
	// keepAlive is how long a stream may be silent.
	keepAlive = 15 * time.Second
	// resumable is how old the last id of a live list may be. After that it gets a resync.
	resumable = 15 * time.Minute
	// resumed is how many changed tasks a live list that continues gets at most; with more, it gets a resync.
	resumed = 1000
	// polled is how many open tasks a local API looks at each second.
	polled = 5000
	// streamPage is how many events of a log a stream reads at a time.
	streamPage = 200
)

// The names of events.
const (
	eventReady  = "ready"  // a live list has begun; its id is where it continues
	eventTask   = "task"   // a task has changed
	eventResync = "resync" // changes may be missing: read the list again
	eventLog    = "log"    // an event of a log
	eventEnd    = "end"    // no event will follow: the task has ended, or was deleted
)

// resume reads the id that a client continues after: the header, or for the first request of an EventSource the parameter.
func (x *exchange) resume() (id int64, given bool) {
	text, given := x.q.text("last_event_id")
	if h := x.r.Header.Get("Last-Event-ID"); h != "" {
		text, given = h, true
	}
	if !given {
		return 0, false
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 0 || id > 1<<53 {
		x.q.bad("Last-Event-ID", "%q is not the id of an event of this stream", text)
	}
	return id, true
}

// stream is a stream that is open.
type stream struct {
	*web.EventWriter
	memory *limit.Budgets
	ctx    context.Context //nolint:containedctx // ends when the client leaves or the server stops
}

// place takes a place for a long answer, if there is one. Its context ends when the client leaves, when the credential ends, and
// when the server stops.
func (a *API) place(x *exchange) (_ context.Context, end func(), err error) {
	leave, ok := a.streams.Take(limit.Sender(x.r.RemoteAddr))
	if !ok {
		return nil, nil, &task.Error{Kind: task.RateLimited, Msg: "this replica serves no further stream to your address", RetryAfter: 10 * time.Second}
	}
	ctx, cancel := context.WithCancel(x.r.Context())
	stopped := context.AfterFunc(a.stopping, cancel)
	unwatch := func() {}
	if x.who.Watch != nil {
		unwatch = x.who.Watch(func(error) { cancel() }) // a client that comes again learns why
	}
	return ctx, func() { unwatch(); stopped(); cancel(); leave() }, nil
}

// enter takes a place for a long answer to a request without a body.
func (a *API) enter(x *exchange) (ctx context.Context, end func(), err error) {
	if ctx, end, err = a.place(x); err != nil {
		return nil, nil, err
	}
	// The server's limit for reading a request would end the answer.
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	return ctx, end, nil
}

// open begins a stream, if there is a place for one.
func (a *API) open(x *exchange) (s *stream, end func(), err error) {
	ctx, end, err := a.enter(x)
	if err != nil {
		return nil, nil, err
	}
	s = &stream{web.StartEvents(x.w, writeTimeout), a.o.Memory, ctx}
	return s, end, s.Flush()
}

func (s *stream) event(name string, id int64, doc any) error {
	raw, err := web.Marshal(doc)
	if err != nil {
		return err
	}
	var text []byte
	if id > 0 {
		text = strconv.AppendInt(nil, id, 10)
	}
	s.Name(name)
	s.Event(text, raw[:len(raw)-1]) // without the line break
	if s.Full() {
		return s.Flush()
	}
	return nil
}

type changeView struct {
	// Matches says that the task is in the list, and not only was.
	Matches bool            `json:"matches"`
	Task    json.RawMessage `json:"task"`
}

// tasksStream tells a client which tasks of a filter have changed. A task that has left the filter by its state is told, too.
func (a *API) tasksStream(x *exchange) error {
	filter := x.q.filter()
	after, resuming := x.resume()
	if err := x.q.done(); err != nil {
		return err
	}
	if x.who.Bound {
		filter.Tenant = filter.Tenant.Only(x.who.Caller.Tenant)
	}
	s, end, err := a.open(x)
	if err != nil {
		return err
	}
	defer end()
	a.follow(s, filter, after, resuming) // an error means that the client has left
	return nil
}

func (a *API) follow(s *stream, filter *store.AdminFilter, after int64, resuming bool) {
	// Follow before the database is read: a change is either read or told.
	w := a.feed.follow(filter)
	defer a.feed.leave(w)
	if a.begin(s, w, after, resuming) != nil {
		return
	}
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	for {
		var err error
		select {
		case r, on := <-w.rounds:
			if !on {
				return
			}
			err = s.round(w, r)
			if len(w.rounds) == 0 && w.dropped.Swap(false) {
				err = errors.Join(err, s.event(eventResync, r.at, struct{}{}))
			}
			err = errors.Join(err, s.Flush())
		case <-quiet.C:
			s.KeepAlive()
			err = s.Flush()
		case <-s.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// begin tells a list where it begins, or what has changed since the id that it continues after.
func (a *API) begin(s *stream, w *follower, after int64, resuming bool) error {
	ctx, cancel := context.WithTimeout(s.ctx, requestTimeout)
	defer cancel()
	now, err := a.o.Store.Now(ctx)
	if err != nil {
		return err
	}
	at := now.UnixMicro()
	r := &round{at: at}
	if resuming {
		since := time.UnixMicro(after).Add(-feedOverlap)
		r.resync = now.Sub(since) > resumable
		if !r.resync {
			rows, whole, err := a.changedSince(ctx, since, resumed)
			if err != nil {
				return err
			}
			r.resync = !whole
			rows = slices.DeleteFunc(rows, func(t *store.AdminTask) bool {
				// An open task without a run has changed if its status has.
				state := t.Task.Status.State
				old := !state.Terminal() && state != task.StateWorking && t.Task.Status.At.Before(since)
				return !whole || old || !w.belongs(t)
			})
			if r.tasks, err = a.feed.toldOf(ctx, rows); err != nil {
				return err
			}
		}
	}
	if err := s.round(w, r); err != nil {
		return err
	}
	if err := s.event(eventReady, at, struct{}{}); err != nil {
		return err
	}
	return s.Flush()
}

// changedSince reads the open tasks and those that have ended since a time, most of either; whole says that these are all.
func (a *API) changedSince(ctx context.Context, since time.Time, most int) (rows []*store.AdminTask, whole bool, err error) {
	names := namesOf(a.o.Agents)
	if a.o.Local { // whose configuration may lack agents
		if names, err = a.withEnded(ctx); err != nil {
			return nil, false, err
		}
	}
	return a.o.Store.ChangedSince(ctx, since, names, most)
}

func (s *stream) round(w *follower, r *round) error {
	for i, t := range r.tasks {
		// Only the last event of a round has an id: a client that is cut off before it gets the whole round again.
		id := int64(0)
		if i == len(r.tasks)-1 && !r.resync {
			id = r.at
		}
		if err := s.event(eventTask, id, changeView{w.filter.Matches(t.Task), t.json}); err != nil {
			return err
		}
	}
	if r.resync {
		return s.event(eventResync, r.at, struct{}{})
	}
	return nil
}

type endView struct {
	State string `json:"state"` // deleted: the task is not there any more
}

// logStream follows the log of a task to its end, from any event on. The id of an event is its seq.
func (a *API) logStream(x *exchange) error {
	codec := x.q.codec()
	after, _ := x.resume()
	if err := x.q.done(); err != nil {
		return err
	}
	if a.o.Hub == nil {
		return task.Errorf(task.Unsupported, "this process follows no logs")
	}
	find, cancel := context.WithTimeout(x.ctx, requestTimeout)
	defer cancel()
	t, err := x.op.Find(find, x.r.PathValue("id"))
	if err != nil {
		return err
	}
	s, end, err := a.open(x)
	if err != nil {
		return err
	}
	defer end()
	_ = a.followLog(s, x.op, t, task.Seq(after), codec) // the client has left, or resumes
	return nil
}

func (a *API) followLog(s *stream, op *store.Operator, t *store.AdminTask, after task.Seq, codec dialect.Codec) error {
	// Subscribe before the log is read: an event is either read or announced.
	sub := a.o.Hub.Subscribe(t.Task)
	defer sub.Close()
	t, err := op.Find(s.ctx, t.Task.ID.String())
	if err != nil {
		return err
	}
	sub.Start(task.Position{Seq: t.Task.LastSeq})
	for {
		ended, err := s.pages(op, t, &after, codec)
		if err != nil {
			return err
		}
		if ended {
			return errors.Join(s.event(eventEnd, 0, endView{t.Task.Status.State.String()}), s.Flush())
		}
		switch err := s.next(sub); {
		case errors.Is(err, task.NotFound):
			return errors.Join(s.event(eventEnd, 0, endView{"deleted"}), s.Flush())
		case errors.Is(err, hub.ErrClosed), err != nil:
			return err
		}
		if t, err = op.Find(s.ctx, t.Task.ID.String()); err != nil {
			return err
		}
	}
}

// pages sends the events after a seq. ended says that the task has ended, so no others will follow.
func (s *stream) pages(op *store.Operator, t *store.AdminTask, after *task.Seq, codec dialect.Codec) (ended bool, err error) {
	for more := true; more; {
		if more, err = s.page(op, t, after, codec); err != nil {
			return false, err
		}
	}
	return t.Task.Status.State.Terminal() && *after >= t.Task.LastSeq, nil
}

// page sends the next events. The memory of the server has them until they are sent.
func (s *stream) page(op *store.Operator, t *store.AdminTask, after *task.Seq, codec dialect.Codec) (more bool, err error) {
	account := s.memory.Open(limit.Holder{Operator: true})
	defer account.Close()
	evs, more, err := op.Log(limit.WithAccount(s.ctx, account), t, *after, false, streamPage)
	if err != nil {
		return false, err
	}
	for i := range evs {
		v, err := viewEvent(t, &evs[i], codec)
		if err != nil {
			return false, err
		}
		if err := s.event(eventLog, int64(v.Seq), v); err != nil {
			return false, err
		}
		*after = v.Seq
	}
	return more, s.Flush()
}

// next waits for new events of a task.
func (s *stream) next(sub *hub.Subscription) error {
	for {
		ctx, cancel := context.WithTimeout(s.ctx, keepAlive)
		_, err := sub.Next(ctx)
		cancel()
		if err == nil || s.ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		s.KeepAlive()
		if err := s.Flush(); err != nil {
			return err
		}
	}
}
