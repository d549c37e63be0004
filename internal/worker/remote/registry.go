package remote

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	// writtenEvery is the time between two writes about a worker that has not changed.
	writtenEvery = 45 * time.Second
	// forgetAfter is how long a worker is remembered that sends no requests.
	forgetAfter = 2 * time.Minute
	// goneAfter is how long after its connection broke a worker without a new one is gone.
	goneAfter = 3 * time.Second
	// knownFor is how long after a claim the next one may come without a look for runs that the worker has not got.
	knownFor = 5 * time.Second
	// maxWorkers bounds the workers that a replica remembers.
	maxWorkers = 100_000
)

// worker is a worker that this replica has answered lately.
type worker struct {
	id task.ID
	// unsure says that the worker may have runs that it does not know.
	unsure  atomic.Bool
	retired atomic.Bool

	// registry.mu guards them.
	info       store.RemoteWorker
	open       int // requests
	seen       time.Time
	answered   time.Time // the last claim
	written    time.Time
	changed    bool
	broken     bool                            // its last connection broke while a request waited, and no new one has come
	gone       bool                            // it is recorded as gone
	lent       map[store.LentRun]store.Renewal // its runs with their leases, as this replica knows them
	claim      *waiter                         // the one that waits
	replaced   chan struct{}                   // closed when a later claim ends it
	retirement chan struct{}                   // closed when the worker is retired
}

// registry has the workers that this replica has answered lately.
type registry struct {
	mu  sync.Mutex
	all map[task.ID]*worker
}

// beginRequest finds or makes the entry of a worker whose request has arrived. The caller must call endRequest.
func (r *registry) beginRequest(info store.RemoteWorker, claims bool) (*worker, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.all[info.ID]
	if w == nil {
		if len(r.all) >= maxWorkers {
			return nil, false
		}
		w = &worker{id: info.ID, changed: true, retirement: make(chan struct{})}
		w.unsure.Store(true)
		r.all[info.ID] = w
	}
	if !claims {
		info.Agents = w.info.Agents
	}
	same := w.info.Name == info.Name && w.info.Version == info.Version && w.info.SDK == info.SDK && slices.Equal(w.info.Agents, info.Agents)
	w.changed = w.changed || !same || w.gone
	w.info, w.broken, w.gone = info, false, false
	w.open++
	return w, true
}

// lend notes the lease of a run that a worker gets.
func (r *registry) lend(w *worker, n store.Renewal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.lent == nil {
		w.lent = map[store.LentRun]store.Renewal{}
	}
	w.lent[n.LentRun] = n
}

// renewed notes what a heartbeat has renewed. The worker has no runs but those that it names.
func (r *registry) renewed(w *worker, named []store.LentRun, runs []store.Renewal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lent := make(map[store.LentRun]store.Renewal, len(named))
	for _, run := range named {
		if n, ok := w.lent[run]; ok {
			lent[run] = n
		}
	}
	for _, n := range runs {
		if delete(lent, n.LentRun); n.Renewed {
			lent[n.LentRun] = n
		}
	}
	w.lent = lent
}

// recordAgain has those of the workers recorded again that this replica has heard of lately: another one took them for gone, because
// its own connection to them broke.
func (r *registry) recordAgain(gone []task.ID, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range gone {
		if w := r.all[id]; w != nil && !w.gone && !w.broken && (w.open > 0 || now.Sub(w.seen) < goneAfter) {
			w.changed = true
		}
	}
}

// broke notes that connections of workers have broken.
func (r *registry) broke(workers ...*worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range workers {
		w.broken = true
	}
}

// brokeIdle notes that the connections of all workers without a request have broken.
func (r *registry) brokeIdle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.all {
		w.broken = w.broken || w.open == 0
	}
}

// gone returns the workers whose connection has broken before a time, and that have not come back.
func (r *registry) gone(before time.Time) (out []*worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.all {
		if w.broken && w.open == 0 && w.seen.Before(before) {
			out = append(out, w)
		}
	}
	return out
}

// markGone notes that workers are gone. It returns those that the database does not know yet, and the runs that they had.
func (r *registry) markGone(gone []*worker) (ids []task.ID, unknown []store.RemoteWorker, runs []store.Renewal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range gone {
		ids = append(ids, w.id)
		if w.changed {
			unknown = append(unknown, w.info)
		}
		runs = slices.AppendSeq(runs, maps.Values(w.lent))
		w.broken, w.changed, w.gone, w.lent = false, false, true, nil
	}
	return ids, unknown, runs
}

func (r *registry) endRequest(w *worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.open--
	w.seen = time.Now()
}

// beginClaim notes that a claim of a worker begins, and ends an earlier one. looks says that the worker may not know all its runs.
func (r *registry) beginClaim(w *worker) (replaced chan struct{}, earlier *waiter, looks bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	earlier = w.claim
	if w.replaced != nil {
		close(w.replaced)
		looks = true // its answer may be lost
	}
	w.claim, w.replaced = nil, make(chan struct{})
	looks = w.unsure.Swap(false) || looks || time.Since(w.answered) > knownFor
	return w.replaced, earlier, looks
}

// waits notes the claim of a worker that waits. It reports whether no later claim has replaced it.
func (r *registry) waits(w *worker, claim *waiter, replaced chan struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.replaced != replaced {
		return false
	}
	w.claim = claim
	return true
}

// endClaim notes that a claim of a worker ends. With runs, the next claim looks whether the worker has got them.
func (r *registry) endClaim(w *worker, replaced chan struct{}, runs bool) {
	if runs {
		w.unsure.Store(true)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w.answered = time.Now()
	if w.replaced == replaced {
		w.claim, w.replaced = nil, nil
	}
}

// due returns the workers to write about, and forgets those that are gone.
func (r *registry) due(now time.Time) (out []store.RemoteWorker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, w := range r.all {
		if w.open > 0 {
			w.seen = now
		}
		if now.Sub(w.seen) > forgetAfter {
			delete(r.all, id)
			continue
		}
		if w.changed || !w.gone && w.seen.After(w.written) && now.Sub(w.written) > writtenEvery {
			out = append(out, w.info)
		}
	}
	return out
}

// written notes that the database has these workers.
func (r *registry) recorded(workers []store.RemoteWorker, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range workers {
		if w := r.all[workers[i].ID]; w != nil {
			w.written, w.changed = now, false
		}
	}
}

// retire tells workers that they are retired.
func (r *registry) retire(ids []task.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if w := r.all[id]; w != nil && !w.retired.Swap(true) {
			close(w.retirement)
		}
	}
}

// any reports whether this replica has answered a worker lately.
func (r *registry) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all) > 0
}

// beats has the heartbeats that wait for news about their runs.
type beats struct {
	mu sync.Mutex
	of map[task.ID][]*beat
}

// beat is a heartbeat that waits.
type beat struct {
	mu     sync.Mutex
	hinted map[task.ID]bool
	wake   chan struct{}
}

// listen lets a heartbeat hear of hints about runs until stop is called.
func (b *beats) listen(runs []store.LentRun) (h *beat, stop func()) {
	h = &beat{hinted: map[task.ID]bool{}, wake: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range runs {
		b.of[r.Task] = append(b.of[r.Task], h)
	}
	return h, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, r := range runs {
			rest := slices.DeleteFunc(b.of[r.Task], func(x *beat) bool { return x == h })
			if b.of[r.Task] = rest; len(rest) == 0 {
				delete(b.of, r.Task)
			}
		}
	}
}

// hint tells the heartbeats of a run that something may have become of it.
func (b *beats) hint(id task.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.of[id] {
		h.mu.Lock()
		h.hinted[id] = true
		h.mu.Unlock()
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// take returns the runs with hints since the last call.
func (h *beat) take(runs []store.LentRun) (out []store.LentRun) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range runs {
		if h.hinted[r.Task] {
			out = append(out, r)
		}
	}
	clear(h.hinted)
	return out
}

// absence remembers which agents had no worker.
type absence struct {
	away map[string]bool
	next time.Time
}

const absentEvery = 15 * time.Second

// look records the agents that have due tasks and no worker, and ends the outages of those that have one again.
func (a *absence) look(ctx context.Context, s Store, process task.ID, agents []string, expire func(agent string, awayFor time.Duration)) error {
	now := time.Now()
	if now.Before(a.next) {
		return nil
	}
	a.next = now.Add(absentEvery)
	gone, err := s.AbsentRemote(ctx, process, agents)
	if err != nil {
		return err
	}
	var back []string
	for agent := range a.away {
		if _, still := gone[agent]; !still {
			back = append(back, agent)
		}
	}
	for agent, d := range gone {
		a.away[agent] = true
		expire(agent, d)
	}
	if len(back) == 0 {
		return nil
	}
	locked, err := s.Began(ctx, back)
	if err != nil {
		return err
	}
	for _, agent := range back {
		if !slices.Contains(locked, agent) {
			delete(a.away, agent)
		}
	}
	return nil
}
