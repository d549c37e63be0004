package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Claimed is a run that a worker has claimed: the task's header, the message to answer, and the
// fence.
type Claimed struct {
	Task       *task.Task
	Message    *task.Message
	Request    *task.Request // that carried the message; may be nil
	Forwarded  task.Forwarded
	MessageSeq task.Seq
	Wait       *Wait // that this turn follows, or the resume that began it, or nil
	task.Fence
	Worker          task.ID // that Claim gave the run to
	Turn            int
	Try             int
	CancelRequested bool
	Waited          time.Duration // how long the run was available before the claim
	Since           time.Time     // the Demand.Since of further claims for the agent; zero: unknown
	ArtifactBytes   int64         // bytes that earlier runs of the task wrote
	AwayFor         time.Duration // how long the agent has not begun this run; 0: this is the first try at it
	Suspect         bool          // the last run was lost with its process and may have ended it
	Spared          int           // tries that were lost with a process, but probably not the reason
	Unreadable      error         // why the message cannot be decoded; Message is then empty
}

// Wait is the wait of an agent that a turn follows, or the resume that began the turn.
type Wait struct {
	Seq         task.Seq  // the run note with it
	Calls       bool      // it was one for the results of calls
	Until       time.Time // when its timer fired, or would have; zero after calls
	Interrupted bool      // the message of the turn ended it; otherwise the turn has none, and MessageSeq is an earlier one
	Resumed     *task.Resumed
}

// Begins returns the event with which the turn began.
func (c *Claimed) Begins() task.Seq {
	if c.Wait == nil {
		return c.MessageSeq
	}
	return max(c.MessageSeq, c.Wait.Seq)
}

// Said returns the messages that came before the turn: those with a lower seq.
func (c *Claimed) Said() task.Seq {
	if c.Wait == nil || c.Wait.Interrupted {
		return c.MessageSeq
	}
	return c.MessageSeq + 1
}

// Demand is the number of runs of an agent that workers can take.
type Demand struct {
	Agent string
	Slots int // of a worker of this process
	// Workers has the remote worker of each run instead, in the order in which they get one. The run API writes the events of
	// these runs. Their leases last for Lease, and a replica looks at them after Look, at most Lease.
	Workers     []task.ID
	Lease, Look time.Duration
	// Since skips queue rows that became available earlier; zero skips none. An earlier run says it (Claimed).
	Since time.Time
	Older time.Duration // claim only what has been due for so long
	Skip  []task.ID     // not to claim
	// Bytes bounds the large messages of the whole claim, as stored; 0: the default. Further bounds them even
	// for the first one, which otherwise may be larger.
	Bytes   int64
	Further bool
	// NoSuspect claims no run that may have ended its process. Otherwise Claim claims at most one.
	NoSuspect bool
}

// claimBytes bounds the small messages of one claim, and the large ones.
const claimBytes = 32 << 20

// watermarkSlack covers transactions that became visible later than their timestamp.
const watermarkSlack = 2 * time.Second

// sinceOf returns the Since of a run that became available at a time. A claim that took a large message, or none because
// of those that run, may have passed over older ones.
func sinceOf(available time.Time, passed bool) time.Time {
	if passed {
		return time.Time{}
	}
	return available.Add(-watermarkSlack)
}

func fenceOf(attempt int32, at pgtype.Timestamptz) task.Fence {
	return task.Fence{Attempt: task.Attempt(attempt), ClaimedAt: at.Time.UnixMicro()}
}

// FirstFence returns the fence of the run of a task that was created with a worker.
func FirstFence(h *task.Task) task.Fence {
	return task.Fence{Attempt: 1, ClaimedAt: h.CreatedAt.UnixMicro()}
}

func claimedAt(f task.Fence) time.Time { return time.UnixMicro(f.ClaimedAt) }

// Claim claims due tasks for a worker or for remote workers (Demand.Workers), and raises their attempt. The oldest come first. If its
// connection dies, the outcome is unknown: Owned then finds the runs of the worker, and the leases of the others end.
func (s *Store) Claim(ctx context.Context, worker task.ID, want []Demand) ([]*Claimed, error) {
	arg := dbsqlc.QueueClaimParams{
		Worker: uuid.UUID(worker), Suspects: 1, Skip: []uuid.UUID{}, WorkerAgents: []string{}, RemoteWorkers: []uuid.UUID{},
		Small: limit.SmallBytes, Bytes: claimBytes, Most: claimBytes, Alone: true,
	}
	for i := range want {
		d := &want[i]
		arg.Agents, arg.Slots = append(arg.Agents, d.Agent), append(arg.Slots, int32(d.Slots+len(d.Workers)))
		arg.Since, arg.Older = append(arg.Since, d.Since), append(arg.Older, d.Older)
		arg.Leases, arg.Looks = append(arg.Leases, d.Lease), append(arg.Looks, d.Look)
		for _, w := range d.Workers {
			arg.WorkerAgents, arg.RemoteWorkers = append(arg.WorkerAgents, d.Agent), append(arg.RemoteWorkers, uuid.UUID(w))
		}
		for _, id := range d.Skip {
			arg.Skip = append(arg.Skip, uuid.UUID(id))
		}
		if d.Bytes > 0 {
			arg.Bytes = min(arg.Bytes, d.Bytes)
		}
		arg.Alone = arg.Alone && !d.Further
		if d.NoSuspect {
			arg.Suspects = 0
		}
	}
	start := time.Now()
	rows, err := s.q.QueueClaim(ctx, s.hot, arg)
	if err != nil {
		return nil, translate("claim", err)
	}
	s.flushed("claim", len(rows), start)
	slices.SortStableFunc(rows, func(a, b dbsqlc.QueueClaimRow) int {
		return cmp.Or(a.AvailableAt.Compare(b.AvailableAt), slices.Compare(a.ID[:], b.ID[:]))
	})
	passed := !arg.Alone
	for i := range rows {
		passed = passed || rows[i].MessageBytes > limit.SmallBytes
	}
	out := make([]*Claimed, len(rows))
	for i := range rows {
		r := &rows[i]
		out[i] = s.claimed(ctx, &dbsqlc.Task{
			ID: r.ID, ClientID: r.ClientID, Agent: r.Agent, Tenant: r.Tenant, Owner: r.Owner,
			ContextID: r.ContextID, State: r.State, LastSeq: r.LastSeq, Dialect: r.Dialect, Attempt: r.Attempt,
			Metadata: r.Metadata, CreatedAt: r.CreatedAt, CancelRequested: r.CancelRequested, ArtifactBytes: r.ArtifactBytes, Traceparent: r.Traceparent,
			ClaimedAt: pgtype.Timestamptz{Time: r.ClaimedAt, Valid: true},
		}, queued{r.MessageSeq, r.InputSeq, r.Interrupted, r.Turn, r.Tries, r.Spared, r.Payload, r.Input, r.Forwarded})
		out[i].Worker = task.ID(r.WorkerID)
		out[i].Waited, out[i].Since, out[i].Suspect = r.ClaimedAt.Sub(r.AvailableAt), sinceOf(r.AvailableAt, passed), r.Suspect
		if r.Away {
			out[i].AwayFor = max(r.AwayFor, 1)
		}
	}
	return out, nil
}

// queued has the columns of the queue row of a run, and the payloads of its message and of the note that began its turn.
type queued struct {
	messageSeq, inputSeq int64
	interrupted          bool
	turn, tries, spared  int32
	payload, input       []byte
	forwarded            string // sealed
}

func (s *Store) claimed(ctx context.Context, r *dbsqlc.Task, of queued) *Claimed {
	t := header(r)
	e := &task.Event{Task: t.ID, Seq: task.Seq(of.messageSeq), Kind: task.EventMessage}
	// The claim is committed, so one unreadable message must not fail the other runs.
	unreadable := decodePayload(e, of.payload, t)
	if e.Message == nil {
		e.Message = &task.Message{}
	}
	c := &Claimed{
		Task: t, Message: e.Message, Request: e.Request, MessageSeq: e.Seq, Fence: fenceOf(r.Attempt, r.ClaimedAt),
		Turn: int(of.turn), Try: int(of.tries), Spared: int(of.spared), CancelRequested: r.CancelRequested,
		ArtifactBytes: r.ArtifactBytes, Unreadable: unreadable,
	}
	var err error
	if c.Forwarded, err = s.openForwarded(ctx, t, of.forwarded); err != nil {
		c.Unreadable = err
	}
	if of.inputSeq > 0 {
		if c.Wait, err = s.waited(ctx, of, t); err != nil {
			c.Unreadable = err
		}
	}
	return c
}

func (s *Store) waited(ctx context.Context, of queued, t *task.Task) (w *Wait, err error) {
	w = &Wait{Seq: task.Seq(of.inputSeq), Interrupted: of.interrupted}
	// Of a wait the time and the outcome: a note that cannot be read does not stop the run.
	e := &task.Event{Task: t.ID, Seq: w.Seq, Kind: task.EventRun}
	if decodePayload(e, of.input, t) == nil && e.Run != nil {
		w.Until, w.Calls = e.Run.Until, e.Run.Outcome == task.RunCalls
		if e.Run.Outcome == task.RunResume {
			w.Resumed, err = s.openResume(ctx, t.ID, int(of.turn), e.Run.Sealed)
		}
	}
	return w, err
}

// Requeue says why and how an attempt is given back.
type Requeue struct {
	Task  task.ID
	Agent string
	task.Fence
	Note    task.RunNote
	Delay   time.Duration
	Uncount bool // do not count the attempt: it was not the task's fault
	Away    bool // the agent did not begin the run
	InPlace bool // with Away: the agent is away. The task keeps its place, Delay does not apply
	Silent  bool // do not write the note to the log
	Posted  bool // through the run API: another process may execute the run
}

// GiveBack ends an attempt without ending the task. Errors: task.LeaseLost if the run was fenced.
func (s *Store) GiveBack(ctx context.Context, r Requeue) error {
	_, err := s.Requeue(ctx, r)
	return err
}

// Requeue is GiveBack. It returns how long the agent has been away if the run keeps its place.
func (s *Store) Requeue(ctx context.Context, r Requeue) (awayFor time.Duration, err error) {
	ev := &task.Event{Task: r.Task, Kind: task.EventRun, Attempt: r.Attempt, Run: &r.Note}
	var row dbsqlc.RunRequeueRow
	err = s.unlocked(ctx, "give_back", func() (err error) {
		row, err = s.q.RunRequeue(ctx, s.brief(s.hot), dbsqlc.RunRequeueParams{
			ID: uuid.UUID(r.Task), Attempt: int32(r.Attempt), ClaimedAt: claimedAt(r.Fence), Uncount: r.Uncount, Delay: r.Delay,
			Payload: EncodePayload(ev), Away: r.Away, InPlace: r.InPlace, Logged: !r.Silent, Agent: r.Agent, Error: cleanName(r.Note.Error),
		})
		return err
	})
	if err != nil {
		err = translate("give back", err)
		if task.KindOf(err) == task.NotFound {
			return 0, task.LeaseLost
		}
		return 0, err
	}
	if !r.Silent {
		ev.Seq, ev.At = task.Seq(row.Seq), row.At
		s.committed(ev)
	}
	if r.Posted && s.listener != nil {
		s.listener.CancelWanted(r.Task)
	}
	// Nobody is woken for an agent that is away: each worker finds out at its own pace.
	if r.Delay == 0 && !r.InPlace && s.listener != nil {
		s.listener.Ready(r.Agent)
	}
	return row.AwayFor, nil
}

// Began ends the outages of agents that have begun a run. It returns those whose outage another session has locked: the caller
// repeats them later.
func (s *Store) Began(ctx context.Context, agents []string) (locked []string, err error) {
	locked, err = s.q.AgentsBegan(ctx, s.brief(s.hot), agents)
	return locked, translate("end outages", err)
}

// ClearSuspect clears the suspicion that a worker's run ends its process.
func (s *Store) ClearSuspect(ctx context.Context, worker, id task.ID) error {
	return translate("clear a suspect", s.unlocked(ctx, "clear_suspect", func() error {
		return s.q.QueueClearSuspect(ctx, s.brief(s.hot), uuid.UUID(id), uuid.UUID(worker))
	}))
}

// Hurry makes the next attempt of a task due now instead of after its backoff. hurried says that it
// did, and owned that a worker runs the task. If both are false, the task was due already. Errors:
// task.NotFound if the task is not queued, task.Busy if its agent waits.
func (v View) Hurry(ctx context.Context, h *task.Task) (hurried, owned bool, err error) {
	leave, err := v.s.turns.enter(ctx, h.ID)
	if err != nil {
		return false, false, err
	}
	defer leave()
	var row dbsqlc.QueueHurryRow
	err = v.record(ctx, auditHurried, h.ID, "", func(tx pgx.Tx) (done bool, err error) {
		row, err = v.s.q.QueueHurry(ctx, tx, uuid.UUID(h.ID))
		return row.Hurried, err
	})
	if err != nil {
		return false, false, translate("hurry", err)
	}
	if row.WakesAt.Valid && row.WakesAt.InfinityModifier == pgtype.Infinity && !row.Owned {
		return false, false, task.Errorf(task.Busy, "the agent waits for the tasks that it has called")
	}
	if row.Waits && !row.Owned && !row.Hurried {
		return false, false, task.Errorf(task.Busy, "the agent waits until %s", row.WakesAt.Time.UTC().Format(time.RFC3339))
	}
	if row.Hurried && v.s.listener != nil {
		v.s.listener.Ready(h.Agent)
	}
	return row.Hurried, row.Owned, nil
}

// Owned is a run that the database assigns to a worker.
type Owned struct {
	Task task.ID
	task.Fence
	CancelRequested bool
}

// Owned lists the runs that the database assigns to a worker. Beside an old snapshot it reads all that the worker has run
// since: see Pace.
func (s *Store) Owned(ctx context.Context, worker task.ID) ([]Owned, error) {
	rows, err := s.q.RunsOwned(ctx, s.hot, uuid.UUID(worker))
	if err != nil {
		return nil, translate("owned runs", err)
	}
	out := make([]Owned, len(rows))
	for i, r := range rows {
		out[i] = Owned{task.ID(r.ID), fenceOf(r.Attempt, r.ClaimedAt), r.CancelRequested}
	}
	return out, nil
}

// Held is Owned for the given tasks alone.
func (s *Store) Held(ctx context.Context, worker task.ID, ids []task.ID) ([]Owned, error) {
	rows, err := s.q.RunsHeld(ctx, s.hot, uuids(ids), uuid.UUID(worker))
	if err != nil {
		return nil, translate("held runs", err)
	}
	out := make([]Owned, len(rows))
	for i, r := range rows {
		out[i] = Owned{task.ID(r.ID), fenceOf(r.Attempt, r.ClaimedAt), r.CancelRequested}
	}
	return out, nil
}

// QueueDepth counts the queued and running tasks of one agent.
type QueueDepth struct {
	Agent         string  `json:"-"`
	Waiting       int64   `json:"waiting"`
	Running       int64   `json:"running"`
	Timers        int64   `json:"timers"` // tasks whose agent waits for a time
	Calls         int64   `json:"calls"`  // tasks whose agent waits for tasks that it has called
	Parked        int64   `json:"parked"` // tasks that wait for their client, as Parked counts them
	OldestSeconds float64 `json:"oldest_seconds"`
	AwaySeconds   float64 `json:"-"` // how long the agent has been away; 0: it is not known to be away
}

// maxParked bounds the tasks that Parked counts.
const maxParked = 10_000

// Parked counts the tasks of agents that wait for their client, up to 10,000 for each agent.
func (s *Store) Parked(ctx context.Context, agents []string) (map[string]int64, error) {
	rows, err := s.q.TasksParked(ctx, s.api, agents, maxParked)
	if err != nil {
		return nil, translate("parked tasks", err)
	}
	out := make(map[string]int64, len(rows))
	for _, r := range rows {
		out[r.Agent] = r.Tasks
	}
	return out, nil
}

// QueueDepths measures the queue for metrics.
func (s *Store) QueueDepths(ctx context.Context) ([]QueueDepth, error) {
	rows, err := s.q.QueueDepth(ctx, s.api)
	if err != nil {
		return nil, translate("queue depth", err)
	}
	out := make([]QueueDepth, len(rows))
	for i, r := range rows {
		out[i] = QueueDepth{
			Agent: r.Agent, Waiting: r.Waiting, Running: r.Running, Timers: r.Timers, Calls: r.Calls,
			OldestSeconds: r.OldestSeconds, AwaySeconds: r.AwaySeconds,
		}
	}
	return out, nil
}
