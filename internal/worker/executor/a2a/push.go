package a2a

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// push is what a front knows of its agent's notifications.
type push struct {
	target  func(task.ID) (url, token string) // nil: the front asks for none
	refused atomic.Bool                       // by the agent, the last time
	// arrive says that a notification has come, and that no news has come without one since.
	arrive atomic.Bool

	mu      sync.Mutex
	watches map[task.ID]*watch
}

// watch is a run that reads its agent's task, and wants to know when there are news.
type watch struct {
	news   chan struct{} // holds one
	asked  bool          // the agent was asked for notifications
	active bool          // it has agreed
	late   bool          // the last pause relied on notifications, and ended without one
	missed bool          // news has come without one
}

// Push makes the front ask its agent for notifications about the tasks that runs read. target returns where those of a task
// go, and the token that they show. It must be called before the first run. Notified passes them on.
func (f *Front) Push(target func(task.ID) (url, token string)) { f.push.target = target }

// Notified makes the run of a task read its agent's task now, if this process has the run.
func (f *Front) Notified(id task.ID) {
	f.push.mu.Lock()
	w := f.push.watches[id]
	f.push.mu.Unlock()
	if w == nil {
		return
	}
	f.push.arrive.Store(true)
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// watch begins to watch the run's task until stop is called.
func (r *run) watch() (w *watch, stop func()) {
	p := &r.push
	w = &watch{news: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watches == nil {
		p.watches = map[task.ID]*watch{}
	}
	p.watches[r.ID] = w
	return w, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.watches[r.ID] == w { // another run of the task may have begun, if this one has lost its lease
			delete(p.watches, r.ID)
		}
	}
}

// found notes that a read found news. If no notification led to the read, the run does not rely on them any more, and others
// do only after the next one.
func (r *run) found(w *watch) {
	if w.late {
		w.missed = true
		r.push.arrive.Store(false)
	}
}

// subscribe asks the agent for notifications, once, and reports whether it has just agreed: then the task must be read again,
// because it may have changed before that.
func (r *run) subscribe(ctx context.Context, w *watch) bool {
	if w.asked || r.push.target == nil || !r.to.pushes {
		return false
	}
	w.asked = true
	url, token := r.push.target(r.ID)
	err := r.setPush(ctx, &client.Params{TaskID: r.link.Task, Push: client.Push{ID: pushID, URL: url, Token: token}})
	switch {
	case ctx.Err() != nil:
	case err == nil:
		w.active = true
		r.push.refused.Store(false)
	case !r.push.refused.Swap(true):
		text := web.Redactor(nil, nil, token)(err.Error())
		r.opts.Log.Warn("the agent accepts no push notifications, so its tasks are polled", "task_id", r.TaskID, "error", text)
	}
	return w.active
}

// pushID is the id of the configuration, so that a later run replaces that of an earlier one.
const pushID = "holdfast"

func (r *run) setPush(ctx context.Context, p *client.Params) error {
	ctx, cancel := context.WithTimeout(ctx, r.opts.CallTimeout)
	defer cancel()
	_, err := r.document(ctx, r.to, client.SetPush, r.facts(p))
	return err
}

// pause waits until the task should be read again. took is how long the last read took: a large task is read less often. After
// a read that worked, a notification ends the pause, and if the run relies on notifications, the pause is longer.
func (r *run) pause(ctx context.Context, w *watch, pause, took time.Duration, worked bool) error {
	least := max(min(pause, firstPause), 2*took)
	relies := worked && w.active && !w.missed && r.push.arrive.Load()
	if relies {
		pause = max(pause, r.opts.PushInterval)
	}
	pause = max(pause, least)
	pause += rand.N(pause/4 + 1)
	w.late = false
	if !worked {
		least = pause // the agent may have said how long
	}
	if !sleep(ctx, least) {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(pause - least)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.news:
	case <-timer.C:
		w.late = relies
	}
	return nil
}
