package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// ClaimPush claims up to limit due configurations for a process, none of them of a busy host or
// caller. Of every other host it claims at most Options.PushPerHost, of every other caller at most
// Options.PushPerCaller. No other process delivers for them before lock has passed. next is the
// time until another configuration is due: 0 if there may be more now, negative if no other
// configuration waits.
func (s *Store) ClaimPush(
	ctx context.Context, worker task.ID, limit int, busy *task.PushBusy, lock time.Duration,
) (due []*task.PushDue, next time.Duration, err error) {
	hosts, callers := []string{}, []int64{} // not nil: with a NULL array, = ANY is neither true nor false
	if busy != nil {
		hosts, callers = append(hosts, busy.Hosts...), append(callers, busy.Callers...)
	}
	aside, err := s.pushLanes(ctx, hosts, callers)
	if err != nil {
		return nil, 0, err
	}
	// Several processes may claim at the same time; each skips the rows that another has locked.
	arg := dbsqlc.PushClaimParams{
		WindowRows: int32(8*limit + 64), PerHost: int32(s.pushPerHost), PerCaller: int32(s.pushPerCaller), MaxRows: int32(limit),
		LaneCallers: aside.callers, LaneHosts: aside.hosts, AnyAside: aside.any, BusyHosts: hosts, BusyCallers: callers, Worker: uuid.UUID(worker), Lock: lock,
	}
	if due, err = s.claimPush(ctx, arg); err != nil || len(due) == limit {
		return due, 0, err
	}
	rest, err := s.q.PushNext(ctx, s.hot, dbsqlc.PushNextParams{
		Most: arg.WindowRows - int32(len(due)) + 1, BusyHosts: hosts, BusyCallers: callers,
	})
	next = time.Duration(rest.Seconds * float64(time.Second))
	again := aside.more
	if err == nil && rest.Hidden {
		// The claim did not look at all due configurations. The rest may be of a host or caller
		// that is not busy.
		var n int32
		if n, err = s.putAside(ctx, hosts, callers, due); n > 0 {
			return due, 0, nil
		}
		again = true
	}
	if again && (next < 0 || next > laneTime) {
		next = laneTime
	}
	// The claim is committed, even if the statements after it failed.
	if err != nil && len(due) > 0 {
		return due, 0, nil
	}
	return due, next, translate("claim pushes", err)
}

// putAside parks due webhooks of busy hosts and callers, so that they do not delay others. It
// returns the number of parked webhooks.
func (s *Store) putAside(ctx context.Context, hosts []string, callers []int64, due []*task.PushDue) (int32, error) {
	hosts, callers = s.takeNoMore(hosts, callers, due)
	n, err := s.q.PushAside(ctx, s.hot, dbsqlc.PushAsideParams{WindowRows: asideRows, BusyHosts: hosts, BusyCallers: callers})
	if n > 0 {
		s.laneMu.Lock()
		defer s.laneMu.Unlock()
		s.noneAside = time.Time{}
	}
	return n, err
}

// takeNoMore adds the hosts and callers to the busy ones that reached their limit with this claim.
func (s *Store) takeNoMore(hosts []string, callers []int64, due []*task.PushDue) ([]string, []int64) {
	ofHost, ofCaller := map[string]int{}, map[int64]int{}
	for _, d := range due {
		if ofHost[d.Host]++; ofHost[d.Host] == s.pushPerHost {
			hosts = append(hosts, d.Host)
		}
		if ofCaller[d.Caller]++; ofCaller[d.Caller] == s.pushPerCaller && d.Caller != 0 {
			callers = append(callers, d.Caller)
		}
	}
	return hosts, callers
}

func (s *Store) claimPush(ctx context.Context, arg dbsqlc.PushClaimParams) (due []*task.PushDue, err error) {
	start := time.Now()
	rows, err := s.q.PushClaim(ctx, s.hot, arg)
	if err != nil {
		return nil, translate("claim pushes", err)
	}
	s.flushed("push_claim", len(rows), start)
	for i := range rows {
		r := &rows[i]
		d, err := s.pushDue(ctx, r)
		if err != nil {
			if task.KindOf(err) == task.Unavailable {
				return due, err
			}
			d.Unreadable = fmt.Errorf("its secrets cannot be read: %w", err)
		}
		due = append(due, d)
	}
	s.readAhead(ctx, due)
	return due, nil
}

const (
	// asideRows is how many due webhooks one statement looks at for parking.
	asideRows = 2000
	// laneRows is the number of lanes that one statement reads.
	laneRows = 256
	// laneTime is the time until the next look at the lanes: when there are more of them, or when
	// all were empty.
	laneTime = 100 * time.Millisecond
)

// beforeLanes is the position before the first lane.
var beforeLanes = dbsqlc.PushLanesParams{Caller: math.MinInt64}

// lanes holds some lanes with parked webhooks, which a claim may take. A lane is the queue of one
// caller for one host.
type lanes struct {
	callers []int64
	hosts   []string
	any     bool // webhooks are parked, in these lanes or in others
	more    bool // there may be more lanes
}

// pushLanes finds lanes that are not busy. Each call continues where the previous one ended, so
// every lane gets its turn. Usually nothing is parked, so an empty result is kept for laneTime.
func (s *Store) pushLanes(ctx context.Context, busyHosts []string, busyCallers []int64) (lanes, error) {
	found := lanes{callers: []int64{}, hosts: []string{}}
	s.laneMu.Lock()
	defer s.laneMu.Unlock()
	if time.Since(s.noneAside) < laneTime {
		found.more = true // another process may have parked something
		return found, nil
	}
	arg := s.lane
	arg.BusyHosts, arg.BusyCallers, arg.MaxRows = busyHosts, busyCallers, laneRows
	rows, err := s.q.PushLanes(ctx, s.hot, arg)
	if err != nil {
		return found, translate("claim pushes", err)
	}
	for _, r := range rows {
		if r.Free {
			found.callers, found.hosts = append(found.callers, r.Caller), append(found.hosts, r.Host)
		}
	}
	first := s.lane.Caller == beforeLanes.Caller
	found.any = len(rows) > 0 || !first
	s.lane, found.more = beforeLanes, !first
	if len(rows) == laneRows {
		last := rows[len(rows)-1]
		s.lane.Caller, s.lane.Host, found.more = last.Caller, last.Host, true
	}
	if len(rows) == 0 && first {
		s.noneAside = time.Now()
	}
	return found, nil
}

func (s *Store) pushDue(ctx context.Context, r *dbsqlc.PushClaimRow) (*task.PushDue, error) {
	d := &task.PushDue{
		Task: task.ID(r.Task), PublicID: r.PublicID, Agent: r.Agent, Claim: r.Claim,
		Host: r.Host, Caller: r.Caller, Next: task.Seq(r.NextSeq), Upto: task.Seq(r.DueSeq),
		Failures: int(r.Attempts), FailingSince: r.FailingSince.Time,
	}
	var err error
	d.Config, err = pushConfig(&dbsqlc.PushConfig{
		Task: r.Task, ConfigID: r.ConfigID, Dialect: r.Dialect, CreatedAt: r.CreatedAt, Url: r.Url, Schemes: r.Schemes,
	})
	d.Config.Artifacts = r.Artifacts
	if err == nil {
		err = s.openSecrets(ctx, r.Task, &d.Config, r.Secrets)
	}
	return d, err
}

const (
	// aheadRows is one more than the number of events that are read ahead for each claim. That
	// covers a short task and takes little memory while a claim waits for its turn.
	aheadRows = 8
	// aheadBytes is the maximum size of these events together.
	aheadBytes = 64 << 10
	// aheadTime bounds how long a claim waits for the read: other configurations wait to be
	// claimed.
	aheadTime = 500 * time.Millisecond
)

// readAhead reads the events to deliver for all claims together. A claim with more events, with a
// failed read, or with the same task as another claim reads its own later.
func (s *Store) readAhead(ctx context.Context, due []*task.PushDue) {
	ctx, cancel := context.WithTimeout(ctx, aheadTime)
	defer cancel()
	claims := make(map[uuid.UUID]*task.PushDue, len(due))
	arg := dbsqlc.PushAheadParams{MaxRows: aheadRows, MaxStored: aheadBytes}
	for _, d := range due {
		id := uuid.UUID(d.Task)
		if d.Unreadable != nil || claims[id] != nil {
			continue
		}
		claims[id] = d
		arg.Tasks, arg.NextSeqs, arg.Artifacts = append(arg.Tasks, id), append(arg.NextSeqs, int64(d.Next)), append(arg.Artifacts, d.Config.Artifacts)
	}
	if len(claims) == 0 {
		return
	}
	arg.Lowest, arg.Highest = span(arg.Tasks)
	headers, err := s.q.PushTasks(ctx, s.api, dbsqlc.PushTasksParams{Ids: arg.Tasks, Lowest: arg.Lowest, Highest: arg.Highest})
	if err != nil {
		return
	}
	rows, err := s.q.PushAhead(ctx, s.api, arg)
	if err != nil {
		return
	}
	for i := range headers {
		d := claims[headers[i].ID]
		d.Ahead = &task.PushAhead{Header: header(&headers[i])}
		d.Ahead.Header.PublicID = d.PublicID
	}
	size := make(map[*task.PushDue]int, len(due))
	for i := range rows {
		d := claims[rows[i].Task]
		if d.Ahead == nil {
			continue
		}
		size[d] += len(rows[i].Payload)
		e, err := event(&rows[i], d.Ahead.Header)
		if err != nil || len(d.Ahead.Events) == aheadRows-1 || size[d] > aheadBytes {
			d.Ahead = nil
			continue
		}
		d.Ahead.Events = append(d.Ahead.Events, e)
	}
	for _, d := range claims {
		if d.Ahead != nil && len(d.Ahead.Events) == 0 {
			d.Ahead = nil // too large, or no events
		}
	}
}

// PushBatch reads the next events to deliver for a claimed configuration, at most limit, and the
// header of their task. The first call returns the events that were read with the claim, if any.
func (s *Store) PushBatch(ctx context.Context, due *task.PushDue, limit int) (header *task.Task, events []*task.Event, err error) {
	if a := due.Ahead; a != nil {
		due.Ahead = nil
		if len(a.Events) <= limit {
			return a.Header, a.Events, nil
		}
	}
	h, err := s.pushed(ctx, due)
	if err != nil {
		return nil, nil, err
	}
	rows, err := s.q.PushBatch(ctx, s.api, dbsqlc.PushBatchParams{
		Task: uuid.UUID(due.Task), NextSeq: int64(due.Next), Artifacts: due.Config.Artifacts, MaxRows: int32(limit),
	})
	if err != nil {
		return nil, nil, translate("read pushes", err)
	}
	events = make([]*task.Event, len(rows))
	for i := range rows {
		if events[i], err = event(&rows[i], h); err != nil {
			return nil, nil, translate("read pushes", err)
		}
	}
	return h, events, nil
}

// pushed returns the header of a configuration's task, with the id that the receiver knows.
func (s *Store) pushed(ctx context.Context, due *task.PushDue) (*task.Task, error) {
	h, err := s.Header(ctx, due.Task)
	if err != nil {
		return nil, err
	}
	h.PublicID = due.PublicID
	return h, nil
}

// TaskAsOf folds the log of a claimed configuration's task up to an event. A call for a later event
// continues from the earlier result, so each event is read once for all deliveries of a claim.
func (s *Store) TaskAsOf(ctx context.Context, due *task.PushDue, seq task.Seq) (*task.Task, error) {
	t := due.Told
	due.Told = nil // in case this fails halfway
	if t == nil || t.LastSeq > seq {
		h, err := s.pushed(ctx, due)
		if err != nil {
			return nil, err
		}
		t = Empty(h)
	}
	rows, err := s.q.PushLog(ctx, s.api, dbsqlc.PushLogParams{Task: uuid.UUID(due.Task), After: int64(t.LastSeq), Upto: int64(seq)})
	if err != nil {
		return nil, translate("read task", err)
	}
	for i := range rows {
		e, err := event(&rows[i], t)
		if err != nil {
			return nil, translate("read task", err)
		}
		if err := t.Apply(e); err != nil {
			return nil, err
		}
	}
	due.Told = t
	return t, nil
}

// ExtendPush extends a claim to lock from now. Errors: task.LeaseLost if the process no longer
// holds it.
func (s *Store) ExtendPush(ctx context.Context, id task.ID, configID string, claim [16]byte, lock time.Duration) error {
	n, err := s.q.PushExtend(ctx, s.hot, dbsqlc.PushExtendParams{
		Task: uuid.UUID(id), ConfigID: configID, Claim: claim, Lock: lock,
	})
	if err == nil && n == 0 {
		return task.LeaseLost
	}
	return translate("extend push", err)
}

// record is a queued outcome.
type record struct {
	*task.PushOutcome
	done chan recorded
}

func (r *record) size() int { return len(r.Error) + 128 }

type recorded struct {
	ours, more bool
	err        error
}

// RecordPush writes the outcome of a delivery attempt, in one commit with those of others. ours
// reports whether the process still held the claim. If not, nothing was written: the configuration
// was deleted, replaced, redelivered or claimed by another process. more reports whether there is
// more to deliver. It blocks while the database is unavailable.
//
// An outcome without a DeliveryID made no request: its events are skipped.
func (s *Store) RecordPush(ctx context.Context, o *task.PushOutcome) (ours, more bool, err error) {
	r := &record{o, make(chan recorded, 1)}
	if !s.records.add(r) {
		return false, false, task.Errorf(task.Unavailable, "the server is stopping")
	}
	select {
	case got := <-r.done:
		return got.ours, got.more, got.err
	case <-ctx.Done():
		return false, false, translate("record push", ctx.Err())
	}
}

func (s *Store) flushRecords(ctx context.Context, items []*record) {
	start := time.Now()
	arg := recordParams(items)
	for try := 0; ; try++ {
		rows, err := s.q.PushRecord(ctx, s.hot, arg)
		if err == nil {
			s.flushed("push_record", len(items), start)
			more := make(map[uuid.UUID]bool, len(rows))
			for _, r := range rows {
				more[r.Claim] = r.More
			}
			for _, r := range items {
				m, ours := more[r.Claim]
				r.done <- recorded{ours: ours, more: m}
			}
			return
		}
		switch f := classify(err); {
		case f == failFinal && len(items) > 1:
			for _, r := range items {
				s.flushRecords(ctx, []*record{r})
			}
			return
		case f == failFinal || ctx.Err() != nil:
			for _, r := range items {
				r.done <- recorded{err: translate("record push", err)}
			}
			return
		}
		s.retried(ctx, "push_record", err, try)
		_ = pause(ctx, try)
	}
}

func recordParams(items []*record) dbsqlc.PushRecordParams {
	var arg dbsqlc.PushRecordParams
	for _, r := range items {
		arg.Tasks = append(arg.Tasks, uuid.UUID(r.Task))
		arg.ConfigIds = append(arg.ConfigIds, r.ConfigID)
		arg.Claims = append(arg.Claims, r.Claim)
		arg.FromSeqs = append(arg.FromSeqs, int64(r.From))
		arg.ToSeqs = append(arg.ToSeqs, int64(r.To))
		arg.DeliveryIds = append(arg.DeliveryIds, r.DeliveryID)
		arg.Statuses = append(arg.Statuses, int32(r.Status))
		arg.Errors = append(arg.Errors, cleanName(r.Error))
		arg.Classes = append(arg.Classes, r.Class)
		arg.Tooks = append(arg.Tooks, r.Took)
		arg.Delivereds = append(arg.Delivereds, r.Delivered)
		arg.Keeps = append(arg.Keeps, r.Keep)
		arg.Delays = append(arg.Delays, r.RetryIn)
		arg.Disables = append(arg.Disables, cleanName(r.Disable))
	}
	return arg
}
