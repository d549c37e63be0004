package store

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// PushDue is a claimed configuration. One process delivers for it until the claim expires or its
// outcome is recorded.
type PushDue struct {
	Task     task.ID
	PublicID string          // id of the task that the receiver knows
	Caller   int64           // caller who owns the task; deliveries per caller are bounded; 0: none
	Config   task.PushConfig // with its secrets
	Claim    [16]byte        // the fence
	Next     task.Seq        // first undelivered event
	Upto     task.Seq        // last event to deliver

	Unreadable error // why the secrets cannot be opened; Config then lacks them. Another process may have the key

	Failures     int // failed attempts since the last success
	FailingSince time.Time
	Accepted     bool // the receiver has accepted a delivery at this URL

	header *task.Task    // nil: not read yet
	ahead  []*task.Event // the first events to deliver, read with the claim; nil: none were read
}

// PushClaim says which due configurations a process may claim.
type PushClaim struct {
	Worker             task.ID
	Limit              int
	PerHost, PerCaller int      // the most of one host, and of one caller
	BusyHosts          []string // none of these hosts
	BusyCallers        []int64  // none of these callers
	// Busy returns the hosts and callers that are busy once the process has won these, too. nil: BusyHosts and
	// BusyCallers.
	Busy func(won []*PushDue) (hosts []string, callers []int64)
	Lock time.Duration // until other processes may claim them
	// Ahead is how far to look for the next one; 0: without a limit.
	Ahead time.Duration
}

// ClaimPush claims due configurations. next is the time until another one is due: 0 if there may be
// more now, negative if no other one waits, or none within c.Ahead. If due configurations of busy
// hosts and callers hide the others, it parks them.
func (s *Store) ClaimPush(ctx context.Context, c *PushClaim) (due []*PushDue, next time.Duration, err error) {
	// Not nil: with a NULL array, = ANY is neither true nor false.
	hosts, callers := append([]string{}, c.BusyHosts...), append([]int64{}, c.BusyCallers...)
	lanes, err := s.lanes.next(ctx, s, hosts, callers)
	if err != nil {
		return nil, 0, translate("claim pushes", err)
	}
	since, looked := s.front.begin()
	// Several processes may claim at the same time; each skips the rows that another has locked.
	arg := dbsqlc.PushClaimParams{
		Since:      since,
		WindowRows: int32(8*c.Limit + 64), PerHost: int32(c.PerHost), PerCaller: int32(c.PerCaller), MaxRows: int32(c.Limit),
		LaneCallers: lanes.callers, LaneHosts: lanes.hosts, AnyParked: lanes.any, BusyHosts: hosts, BusyCallers: callers,
		Worker: uuid.UUID(c.Worker), Lock: c.Lock,
	}
	due, oldest, err := s.claimPush(ctx, arg)
	if err != nil {
		return due, 0, err
	}
	looked(oldest)
	if len(due) == c.Limit {
		return due, 0, nil
	}
	rest, err := s.q.PushNext(ctx, s.hot, dbsqlc.PushNextParams{
		Most: arg.WindowRows - int32(len(due)) + 1, BusyHosts: hosts, BusyCallers: callers, Since: since, Ahead: cmp.Or(c.Ahead, farAhead),
	})
	looked(rest.Oldest)
	next = time.Duration(rest.Seconds * float64(time.Second))
	again := lanes.more
	if err == nil && rest.Hidden {
		// The claim did not look at all due configurations. The rest may be of a host or caller
		// that is not busy.
		if c.Busy != nil {
			hosts, callers = c.Busy(due)
		}
		var parked bool
		if parked, err = s.park(ctx, hosts, callers, since); parked {
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

// park parks due configurations of these hosts and callers.
func (s *Store) park(ctx context.Context, hosts []string, callers []int64, since time.Time) (parked bool, err error) {
	if len(hosts)+len(callers) == 0 {
		return false, nil
	}
	n, err := s.q.PushPark(ctx, s.hot, dbsqlc.PushParkParams{WindowRows: parkRows, BusyHosts: hosts, BusyCallers: callers, Since: since})
	if n > 0 {
		s.lanes.filled()
	}
	return n > 0, err
}

// claimPush makes a claim. oldest is when the first of the due configurations that it saw became due;
// zero if it won none.
func (s *Store) claimPush(ctx context.Context, arg dbsqlc.PushClaimParams) (due []*PushDue, oldest time.Time, err error) {
	start := time.Now()
	rows, err := s.q.PushClaim(ctx, s.hot, arg)
	if err != nil {
		return nil, oldest, translate("claim pushes", err)
	}
	s.flushed("push_claim", len(rows), start)
	for i := range rows {
		r := &rows[i]
		d, err := s.pushDue(ctx, r)
		if err != nil {
			d.Unreadable = fmt.Errorf("its secrets cannot be read: %w", err)
		}
		due, oldest = append(due, d), r.Oldest
	}
	s.readAhead(ctx, due)
	return due, oldest, nil
}

// front is where claims begin to look for due configurations: a little before the oldest one that the
// last claim saw, so that they do not read dead entries (see Pace). It is safe for concurrent use.
type front struct {
	mu    sync.Mutex
	since time.Time
	paces [len(looksBack)]Pace
}

// frontSlack covers most marks that become visible later than their due time, which is when the marking
// transaction began.
const frontSlack = 2 * time.Second

// looksBack are the looks that find the others. The farther back one looks, the more dead entries it may
// read, and the rarer it is.
var looksBack = [...]struct{ back, every time.Duration }{
	{math.MaxInt64, 15 * time.Minute}, // from the first entry: the database's clock was set back, as by a failover
	{15 * time.Minute, time.Minute},   // commits that waited for a standby
	{time.Minute, 5 * time.Second},    // transactions as long as PostgreSQL allows (statement_timeout)
}

// farAhead is a limit that does not limit.
const farAhead = 100 * 365 * 24 * time.Hour

// begin returns where a claim begins to look. The claim calls looked with what each of its statements
// found to be the oldest.
func (f *front) begin() (since time.Time, looked func(oldest time.Time)) {
	begun := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	due := slices.IndexFunc(f.paces[:], func(r Pace) bool { return r.Due(begun) })
	switch due {
	case 0: // since is zero
	case -1:
		due, since = len(looksBack), f.since
	default:
		since = f.since.Add(-looksBack[due].back)
	}
	return since, func(oldest time.Time) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := due; i < len(looksBack); i++ {
			f.paces[i].Looked(begun, looksBack[i].every)
		}
		if !oldest.IsZero() {
			f.since = oldest.Add(-frontSlack)
		}
	}
}

const (
	// parkRows is how many due configurations one statement looks at for parking.
	parkRows = 2000
	// laneRows is the number of lanes that one statement reads.
	laneRows = 256
	// laneTime is the time until the next look at the lanes: when there are more of them, or when
	// all were empty.
	laneTime = 100 * time.Millisecond
)

// lanes walks through the lanes of parked configurations. A lane is the queue of one caller for one
// host. It is safe for concurrent use.
type lanes struct {
	mu    sync.Mutex
	after dbsqlc.PushLanesParams // where the next look begins
	empty Pace                   // until it is due, they count as empty
}

// beforeLanes is the position before the first lane.
var beforeLanes = dbsqlc.PushLanesParams{Caller: math.MinInt64}

// openLanes are some lanes from which a claim may take.
type openLanes struct {
	callers []int64
	hosts   []string
	any     bool // configurations are parked, in these lanes or in others
	more    bool // there may be more lanes
}

// next finds lanes that are not busy. Each call continues where the previous one ended, so every
// lane gets its turn. Usually nothing is parked, so an empty result is kept for laneTime, or for longer
// if the look took long.
func (l *lanes) next(ctx context.Context, s *Store, busyHosts []string, busyCallers []int64) (openLanes, error) {
	open := openLanes{callers: []int64{}, hosts: []string{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	begun := time.Now()
	if !l.empty.Due(begun) {
		open.more = true // another process may have parked something
		return open, nil
	}
	arg := l.after
	arg.BusyHosts, arg.BusyCallers, arg.MaxRows = busyHosts, busyCallers, laneRows
	rows, err := s.q.PushLanes(ctx, s.hot, arg)
	if err != nil {
		return open, err
	}
	for _, r := range rows {
		if r.Free {
			open.callers, open.hosts = append(open.callers, r.Caller), append(open.hosts, r.Host)
		}
	}
	first := l.after.Caller == beforeLanes.Caller
	open.any = len(rows) > 0 || !first
	l.after, open.more = beforeLanes, !first
	if len(rows) == laneRows {
		last := rows[len(rows)-1]
		l.after.Caller, l.after.Host, open.more = last.Caller, last.Host, true
	}
	if !open.any {
		l.empty.Looked(begun, laneTime)
	}
	return open, nil
}

// filled says that the lanes are not empty any more.
func (l *lanes) filled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.empty = Pace{}
}

func (s *Store) pushDue(ctx context.Context, r *dbsqlc.PushClaimRow) (*PushDue, error) {
	d := &PushDue{
		Task: task.ID(r.Task), PublicID: r.PublicID, Claim: r.Claim, Caller: r.Caller, Next: task.Seq(r.NextSeq), Upto: task.Seq(r.DueSeq),
		Failures: int(r.Attempts), FailingSince: r.FailingSince.Time,
		Accepted: r.Accepted,
	}
	var err error
	d.Config, err = pushConfig(&dbsqlc.PushConfig{
		Task: r.Task, ConfigID: r.ConfigID, Dialect: r.Dialect, CreatedAt: r.CreatedAt, Url: r.Url, Schemes: r.Schemes,
	}, r.Host, r.Artifacts)
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
func (s *Store) readAhead(ctx context.Context, due []*PushDue) {
	ctx, cancel := context.WithTimeout(ctx, aheadTime)
	defer cancel()
	claims := make(map[uuid.UUID]*PushDue, len(due))
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
	headers, err := s.q.PushTasks(ctx, s.api, arg.Tasks, arg.Lowest, arg.Highest)
	if err != nil {
		return
	}
	// Text that compresses well may be a hundred times as long. Then each claim reads its own.
	m := &meter{DBTX: s.api, most: pageBytes}
	rows, err := s.q.PushAhead(ctx, m, arg)
	if err != nil || m.cut {
		return
	}
	for i := range headers {
		claims[headers[i].ID].knows(&headers[i])
	}
	size := make(map[*PushDue]int, len(due))
	for i := range rows {
		d := claims[rows[i].Task]
		if d.header == nil {
			continue
		}
		size[d] += len(rows[i].Payload)
		e, err := event(&rows[i], d.header)
		if err != nil || len(d.ahead) == aheadRows-1 || size[d] > aheadBytes {
			d.header, d.ahead = nil, nil
			continue
		}
		d.ahead = append(d.ahead, e)
	}
}

// knows keeps the header of the configuration's task, with the id that the receiver knows.
func (d *PushDue) knows(row *dbsqlc.Task) {
	d.header = header(row)
	d.header.PublicID = d.PublicID
}

// PushRange selects events of a claimed configuration's task.
type PushRange struct {
	From, Upto task.Seq // Upto 0: up to the newest
	Everything bool     // also the events that the configuration does not want
	Limit      int      // 0: as many as a page may have
	MaxEvent   int64    // bytes; an event with more is read without its content; 0: no limit
}

// PushPage is what one read returns: the first events of a range.
type PushPage struct {
	Header *task.Task
	Events []*task.Event // at least one, if there is one; more only if they are small
	Found  int           // how many events the range has, at most its Limit
	Large  bool          // the only event has more than MaxEvent bytes, and lacks its content; a status has its metadata
	Bare   bool          // Large, and no status, or one whose metadata alone has more than MaxEvent bytes
}

const (
	// pushRows and pushBytes bound a page, because all deliveries of a process read at the same time. One event may
	// be larger.
	pushRows  = 256
	pushBytes = 128 << 10
	// pushShrink is how much smaller the next page is after one that timed out.
	pushShrink = 16
)

// ReadPush reads the first events of a range in the log of a claimed configuration's task, and the header of the task.
// The header is from the first call, or from a later one without Everything. The first read of the events to deliver
// returns those that were read with the claim, if any.
//
// If the database needs too long for a page, ReadPush tries smaller ones. If even one event takes too long, the error is
// task.Internal: it counts as a failure of the webhook, because waiting would not help.
func (s *Store) ReadPush(ctx context.Context, d *PushDue, r PushRange) (*PushPage, error) {
	limit := cmp.Or(r.Limit, pushRows)
	if !r.Everything && d.ahead != nil {
		events := d.ahead
		d.ahead = nil
		if len(events) <= limit && r.From == d.Next {
			return &PushPage{Header: d.header, Events: events, Found: len(events)}, nil
		}
	}
	if !r.Everything || d.header == nil {
		row, err := s.q.TaskByID(ctx, s.api, uuid.UUID(d.Task))
		if err != nil {
			return nil, translate("find task", err)
		}
		d.knows(&row)
	}
	maxEvent := cmp.Or(r.MaxEvent, math.MaxInt64)
	return s.pushPage(ctx, s.api, d, dbsqlc.PushLogParams{
		Task: uuid.UUID(d.Task), FromSeq: int64(r.From), Upto: cmp.Or(int64(r.Upto), math.MaxInt64), Everything: r.Everything,
		Artifacts: d.Config.Artifacts, MaxRows: int32(limit), MaxBytes: min(pushBytes, maxEvent), MaxFirst: maxEvent,
	})
}

func (s *Store) pushPage(ctx context.Context, db dbsqlc.DBTX, d *PushDue, arg dbsqlc.PushLogParams) (*PushPage, error) {
	rows, err := s.q.PushLog(ctx, db, arg)
	for ; tooSlow(ctx, err) && arg.MaxRows > 1; rows, err = s.q.PushLog(ctx, db, arg) {
		arg.MaxRows, arg.MaxBytes = max(1, arg.MaxRows/pushShrink), arg.MaxBytes/pushShrink
	}
	if tooSlow(ctx, err) {
		return nil, &task.Error{Kind: task.Internal, Cause: fmt.Errorf("read pushes: event %d takes too long: %w", arg.FromSeq, err)}
	}
	if err != nil {
		return nil, translate("read pushes", err)
	}
	p := &PushPage{Header: d.header, Events: make([]*task.Event, len(rows))}
	p.Large = len(rows) > 0 && rows[0].Bytes > arg.MaxFirst
	p.Bare = p.Large && rows[0].Payload == nil
	for i := range rows {
		p.Found = int(rows[i].Found)
		e := eventOfPush(&rows[i])
		if p.Events[i], err = event(&e, d.header); err != nil {
			return nil, translate("read pushes", err)
		}
	}
	return p, nil
}

func eventOfPush(r *dbsqlc.PushLogRow) dbsqlc.Event {
	return dbsqlc.Event{
		Task: r.Task, Seq: r.Seq, Kind: r.Kind, Kept: r.Kept, State: r.State, Attempt: r.Attempt, Append: r.Append, Last: r.Last,
		ArtifactID: r.ArtifactID, Payload: r.Payload, RequestID: r.RequestID, CreatedAt: r.CreatedAt, WorkerID: r.WorkerID,
		ClaimedAt: r.ClaimedAt,
	}
}

// PushOutcome is what became of a claim, or of one delivery under it.
type PushOutcome struct {
	Task       task.ID
	ConfigID   string
	Claim      [16]byte
	From, To   task.Seq // range of events that the delivery covers
	DeliveryID string   // the same for each attempt of one delivery; empty: nothing was sent
	Status     int      // HTTP status; 0: no response
	Error      string
	Class      string // class of the outcome, for metrics
	Took       time.Duration

	Delivered bool          // the events are done; with an empty DeliveryID they are skipped
	Failed    bool          // the attempt failed; if it neither failed nor delivered, only the claim changes
	Keep      bool          // keep the claim, unless the attempt failed or nothing is left to deliver
	DueIn     time.Duration // delay until the configuration is due again; of a claim that is only kept, its new end
	Disable   string        // reason to disable the configuration; empty: keep it enabled
}

// record is a queued outcome.
type record struct {
	*PushOutcome
	ctx  context.Context //nolint:containedctx // of the caller, who may stop waiting
	done chan recorded
}

// abandoned reports whether an outcome would extend a claim for a caller who has stopped waiting.
func (r *record) abandoned() bool { return r.Keep && !r.Delivered && !r.Failed && r.ctx.Err() != nil }

func (r *record) task() task.ID { return r.Task }

func (r *record) size() int { return len(r.Error) + 128 }

type recorded struct {
	ours, more bool
	err        error
}

// RecordPush writes an outcome, in one commit with those of others. ours reports whether the process
// still held the claim. If not, nothing was written: the configuration was deleted, replaced,
// redelivered or claimed by another process. An outcome that only keeps the claim is not written once
// ctx has ended. more reports whether there is more to deliver; if not,
// the claim has ended. It blocks while the database is unavailable.
func (s *Store) RecordPush(ctx context.Context, o *PushOutcome) (ours, more bool, err error) {
	r := &record{o, ctx, make(chan recorded, 1)}
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

// writeRecords writes items in one commit. It returns those whose rows another session has locked.
func (s *Store) writeRecords(ctx context.Context, items []*record) (blocked []*record) {
	start := time.Now()
	for try := 0; ; try++ {
		if items = slices.DeleteFunc(items, (*record).abandoned); len(items) == 0 {
			return nil
		}
		rows, err := s.q.PushRecord(ctx, s.write, recordParams(items))
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
			return nil
		}
		switch f := classifyTry(err, try); {
		case f == failFinal && len(items) > 1:
			for _, r := range items {
				blocked = append(blocked, s.writeRecords(ctx, []*record{r})...)
			}
			return blocked
		case f == failFinal || ctx.Err() != nil:
			for _, r := range items {
				r.done <- recorded{err: translate("record push", err)}
			}
			return nil
		case f == failBlocked:
			s.retried(ctx, "push_record", err, try)
			return items
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
		arg.Faileds = append(arg.Faileds, r.Failed)
		arg.Delays = append(arg.Delays, r.DueIn)
		arg.Disables = append(arg.Disables, cleanName(r.Disable))
	}
	return arg
}
