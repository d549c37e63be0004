package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// turnModel is what the database has to have of a task and its queue row. The comments of queries/events.sql, queries/queue.sql and
// queries/tasks.sql say why.
type turnModel struct {
	state   task.State
	seq     task.Seq // of the last event
	attempt task.Attempt
	queued  bool
	message task.Seq // that the turn answers, or the last one before it
	input   task.Seq // the run note that the turn follows: a wait or a resume
	turn    int
	tries   int
	delayed bool // the queue row is due later
	timer   bool // it waits for a timer
	yields  bool // to a message

	interrupted, resumed bool // a message that ended a wait, or a resume, began the turn
	canceled             bool // a cancel is asked for
	open, expired        bool // the resume URL is valid, or was

	pending   []task.Seq // messages that wait
	early     task.Seq   // the resume that came before its run has asked
	forwarded map[task.Seq]string
	texts     map[task.Seq]string // of messages and resumes
	runs      []string            // as v_runs shows those that are over: attempt, turn, outcome
	metadata  string              // of the cancel
	noticed   bool
}

// turnsText shows a task and its queue row as String shows the model of them.
const turnsText = `SELECT concat_ws(' ', t.state, 'at', t.last_seq, 'attempt', t.attempt, t.worker_id IS NOT NULL, CASE WHEN t.state < 5 THEN t.cancel_requested END,
	'queue:', (SELECT concat_ws(' ', q.message_seq, coalesce(q.input_seq, 0), q.turn, q.tries, q.available_at > now(), q.wakes_at IS NOT NULL,
		t.turns - t.pending, t.pending, coalesce(t.resumed_seq, 0), coalesce((SELECT string_agg(k, ' ' ORDER BY k::bigint) FROM jsonb_object_keys(q.forwarded) k), '-'))
		FROM holdfast.task_queue q WHERE q.id = t.id),
	'runs:', (SELECT string_agg(concat_ws(' ', attempt, turn, outcome), ', ' ORDER BY run) FROM holdfast.v_runs r WHERE r.task = t.id),
	'notice:', EXISTS (SELECT FROM holdfast.cancel_notices n WHERE n.task = t.id))
	FROM holdfast.tasks t WHERE t.id = $1`

func (m *turnMachine) String() string {
	var queue []string
	if m.queued {
		var kept []string
		for seq := range m.seq + 1 {
			if m.forwarded[seq] != "" {
				kept = append(kept, fmt.Sprint(seq))
			}
		}
		if kept == nil {
			kept = []string{"-"}
		}
		queue = append(queue, fmt.Sprintf("%d %d %d %d %.1s %.1s %d %d %d %s", m.message, m.input, m.turn, m.tries, fmt.Sprint(m.delayed || m.timer),
			fmt.Sprint(m.timer), m.turn, len(m.pending), m.early, strings.Join(kept, " ")))
	}
	runs := m.runs
	if m.run != nil {
		runs = append(slices.Clone(runs), fmt.Sprintf("%d %d running", m.attempt, m.turn))
	}
	parts := []string{fmt.Sprintf("%d at %d attempt %d %.1s", m.state, m.seq, m.attempt, fmt.Sprint(m.run != nil))}
	if !m.state.Terminal() {
		parts = append(parts, fmt.Sprintf("%.1s", fmt.Sprint(m.canceled)))
	}
	parts = append(append(parts, "queue:"), queue...)
	parts = append(parts, "runs:")
	if len(runs) > 0 {
		parts = append(parts, strings.Join(runs, ", "))
	}
	return strings.Join(append(parts, "notice:", fmt.Sprintf("%.1s", fmt.Sprint(m.noticed))), " ")
}

// turnMachine makes one operation after the other on a task, in the store and in the model.
type turnMachine struct {
	*rapid.T
	turnModel
	f      *fixture
	db     *pgx.Conn
	h      *task.Task
	run    *pen
	stale  []*pen // of runs that are over
	stored [2]struct {
		value   string
		version int64
	}
	n int // numbers texts
}

// create begins with another task.
func (m *turnMachine) create() {
	*m = turnMachine{T: m.T, f: m.f, db: m.db, h: m.f.create(fresh(NewID().String()))}
	m.state, m.seq, m.queued, m.message, m.turn = task.StateSubmitted, 1, true, 1, 1
	m.texts, m.forwarded = map[task.Seq]string{1: "hello"}, map[task.Seq]string{}
}

func (m *turnMachine) text(of string) string {
	m.n++
	return fmt.Sprint(of, "-", m.n)
}

// over notes the end of a run.
func (m *turnMachine) over(outcome string) {
	if outcome != "" {
		m.runs = append(m.runs, fmt.Sprintf("%d %d %s", m.attempt, m.turn, outcome))
	}
	m.stale, m.run = append(m.stale, m.run), nil
}

// left notes that the task is no longer in the queue.
func (m *turnMachine) left(s task.State) {
	m.state, m.queued, m.timer, m.pending, m.early, m.forwarded = s, false, false, nil, 0, map[task.Seq]string{}
}

func (m *turnMachine) claim() {
	won := storetest.Must(m.f.Claim(context.Background(), m.f.worker(time.Hour), []Demand{{Agent: m.h.Agent, Slots: 3}}))(m)
	if !m.queued || m.run != nil || m.delayed || m.timer {
		require.Empty(m, won)
		return
	}
	require.Len(m, won, 1)
	c := won[0]
	m.attempt++
	m.tries++
	require.Equal(m, []any{m.turn, m.tries, m.attempt, m.message, m.canceled}, []any{c.Turn, c.Try, c.Attempt, c.MessageSeq, c.CancelRequested})
	require.Equal(m, m.forwarded[m.message], c.Forwarded["X-Key"])
	require.Equal(m, max(m.input, m.message), c.Begins())
	switch {
	case m.input == 0:
		require.Nil(m, c.Wait)
	case m.resumed:
		require.Equal(m, m.texts[m.input], string(c.Wait.Resumed.Body))
	default:
		require.Equal(m, []any{m.input, m.interrupted, true}, []any{c.Wait.Seq, c.Wait.Interrupted, c.Wait.Resumed == nil})
	}
	if m.input == 0 || m.interrupted {
		require.Equal(m, m.texts[m.message], c.Message.FirstText())
		require.Equal(m, m.message, c.Said())
	} else {
		require.Empty(m, c.Message.Parts)
		require.Equal(m, m.message+1, c.Said(), "its last message was answered before")
	}
	said := storetest.Must(m.f.Conversation(context.Background(), c.Task, c.Said(), c.Begins()))(m)
	said = slices.DeleteFunc(said, func(s task.Message) bool { return s.Role != task.RoleUser })
	require.Len(m, said, len(m.messages(c.Said())), "not what waits")
	m.run = &pen{s: m.f.Store, c: c}
}

// messages are those before an event.
func (m *turnMachine) messages(before task.Seq) (all []task.Seq) {
	for seq, text := range m.texts {
		if seq < before && (seq == 1 || strings.HasPrefix(text, "m-")) {
			all = append(all, seq)
		}
	}
	return all
}

// write appends events of the run. It may repeat that, as after an answer that was lost.
func (m *turnMachine) write(requeued bool, evs ...*task.Event) {
	var again []*task.Event
	for _, e := range evs {
		same := *e
		again = append(again, &same)
	}
	done := make(chan answer, 1)
	first := m.run.item(done, evs...)
	m.f.asOneFlush(first)
	require.Equal(m, answer{requeued: requeued}, <-done)
	if rapid.Bool().Draw(m.T, "again") {
		second := *first
		second.Events = again
		m.f.asOneFlush(&second)
		// A repetition of a wait finds the task without a worker.
		require.Equal(m, answer{requeued: requeued || evs[len(evs)-1].Run != nil}, <-done)
	}
	m.seq += task.Seq(len(evs))
}

// running begins a run if the task has no run, and one of another task if this one has ended.
func (m *turnMachine) running() {
	if m.state.Terminal() {
		m.create()
	}
	if m.run == nil && (!m.queued || m.delayed || m.timer) {
		m.Skip("no run")
	}
	if m.run == nil {
		m.claim()
	}
}

func (m *turnMachine) append() {
	m.running()
	evs := []*task.Event{chunk("x")}
	if rapid.Bool().Draw(m.T, "status") {
		evs, m.state = append(evs, says(task.StateWorking, m.text("working"))), task.StateWorking
	}
	m.write(false, evs...)
}

func (m *turnMachine) end() {
	m.running()
	s := rapid.SampledFrom([]task.State{task.StateCompleted, task.StateFailed, task.StateCanceled}).Draw(m.T, "state")
	m.write(false, says(s, m.text("end")))
	m.over(s.String())
	m.left(s)
}

// begins notes the next turn.
func (m *turnMachine) begins(message, input task.Seq) {
	if message != m.message || input != 0 {
		delete(m.forwarded, m.message)
	}
	m.message, m.input, m.interrupted, m.resumed, m.delayed, m.tries = message, input, false, false, false, 0
	m.queued, m.early = true, 0
	m.turn++
}

// works puts the status working before an event that ends a turn, as a worker does.
func (m *turnMachine) works(e *task.Event) []*task.Event {
	if m.state == task.StateSubmitted {
		return []*task.Event{status(task.StateWorking), e}
	}
	return []*task.Event{e}
}

func (m *turnMachine) park() {
	m.running()
	e := says(task.StateInputRequired, m.text("asks"))
	asks := rapid.Bool().Draw(m.T, "resume URL")
	if asks {
		e = asking(time.Hour)
	}
	parked := e.State
	resumes, goesOn := asks && m.early > 0 && !m.canceled, !m.canceled && (asks && m.early > 0 || len(m.pending) > 0)
	m.write(goesOn, m.works(e)...)
	switch {
	case m.canceled:
		require.Equal(m, task.StateCanceled, e.State, "the answer is the stored task")
		m.over("canceled")
		m.left(task.StateCanceled)
	case resumes:
		m.over("continued")
		early := m.early
		m.begins(m.message, early)
		m.state, m.resumed = task.StateSubmitted, true
	case goesOn:
		m.over("continued")
		m.begins(m.pending[0], 0)
		m.state, m.pending = task.StateSubmitted, m.pending[1:]
	default:
		m.over(parked.String())
		m.left(parked)
		m.open, m.expired = asks, false
	}
}

func (m *turnMachine) wait() {
	m.running()
	yields := rapid.Bool().Draw(m.T, "interruptible")
	interrupted := yields && len(m.pending) > 0 && !m.canceled
	m.write(interrupted || m.canceled, m.works(waitNote(time.Hour, yields))...)
	m.state = task.StateWorking
	m.over("waits")
	message := m.message
	if interrupted {
		message, m.pending = m.pending[0], m.pending[1:]
	}
	m.begins(message, m.seq)
	m.interrupted, m.timer, m.yields = interrupted, !interrupted && !m.canceled, yields
}

func (m *turnMachine) pass() {
	if !m.timer {
		m.Skip("no timer")
	}
	m.f.pass(m.h.ID)
	m.timer = false
}

func (m *turnMachine) say() {
	enqueue, most, secret := rapid.Bool().Draw(m.T, "enqueue"), rapid.SampledFrom([]int{0, 2}).Draw(m.T, "most"), ""
	n := &NewMessage{Task: m.h, Message: user(m.text("m")), Enqueue: enqueue, MostPending: most, RequestID: NewID()}
	if rapid.Bool().Draw(m.T, "forwards") {
		secret = m.text("secret")
		n.Forwarded = headersOf(secret)
	}
	seq, err := m.f.AddMessage(context.Background(), n)
	interrupts := m.timer && m.yields
	switch {
	case m.state.Terminal():
		require.ErrorIs(m, err, task.Terminal)
		return
	case m.queued && !interrupts && !enqueue:
		require.ErrorIs(m, err, task.Busy)
		return
	case m.queued && !interrupts && most > 0 && len(m.pending) >= most:
		require.Equal(m, task.RateLimited, task.KindOf(err))
		require.ErrorContains(m, err, strconv.Itoa(len(m.pending))+" messages of this task wait for its agent") // more than a lower limit
		require.Contains(m, m.f.ear.limited, m.h.Agent+" pending_messages")
		return
	}
	require.NoError(m, err)
	m.seq++
	m.texts[m.seq] = n.Message.FirstText()
	said := m.seq
	switch {
	case !m.queued:
		m.seq++
		m.begins(said, 0)
		m.state, m.canceled, m.open = task.StateSubmitted, false, false
	case interrupts:
		m.message, m.interrupted, m.timer = said, true, false
	default:
		m.pending = append(m.pending, said)
	}
	if secret != "" {
		m.forwarded[said] = secret
	}
	require.Equal(m, m.seq, seq)
	if enqueue && most == 0 {
		require.Equal(m, seq, storetest.Must(m.f.AddMessage(context.Background(), n))(m, "the same request again"))
	}
}

func (m *turnMachine) cancel() {
	metadata := rapid.SampledFrom([]string{"", `{"n":1}`, `{"n":2}`}).Draw(m.T, "metadata")
	ended, err := m.f.Cancel(context.Background(), m.h, json.RawMessage(metadata))
	if m.state.Terminal() {
		require.ErrorIs(m, err, task.NotCancelable)
		return
	}
	require.NoError(m, err)
	require.Equal(m, m.run == nil, ended)
	m.noticed = m.noticed || m.attempt > 0
	if ended || metadata != "" && !m.canceled {
		m.seq++
		if metadata != "" {
			m.metadata = metadata
		}
	}
	m.canceled = true
	if ended {
		m.left(task.StateCanceled)
	} else {
		require.Contains(m, m.f.ear.cancels, m.h.ID, "the worker is told")
	}
}

func (m *turnMachine) resume() {
	turn := m.turn + rapid.SampledFrom([]int{0, 0, 0, -1, 1}).Draw(m.T, "turn")
	r := resumeOf(m.h.ID, turn, m.text("resume"))
	err := m.f.Resume(context.Background(), r)
	parked := !m.queued
	dead := ""
	switch {
	case m.state.Terminal():
		dead = "The task has ended."
	case turn != m.turn, !parked && m.early > 0:
		dead = "used already, or the task went on without it"
	case parked && m.expired:
		dead = "expired"
	case parked && !m.open:
		dead = "does not wait for this link"
	}
	if dead != "" {
		require.ErrorIs(m, err, task.Terminal)
		require.ErrorContains(m, err, dead)
		return
	}
	require.NoError(m, err)
	m.seq++
	m.texts[m.seq] = string(r.Content.Body)
	if !parked {
		m.early = m.seq
		return
	}
	m.begins(slices.Max(m.messages(m.seq)), m.seq)
	m.seq++
	m.state, m.resumed, m.open = task.StateSubmitted, true, false
}

// expire lets the resume URL expire.
func (m *turnMachine) expire() {
	if !m.open {
		m.Skip("it is not valid")
	}
	m.f.exec("UPDATE holdfast.tasks SET resume_until = now() WHERE id = $1", m.h.ID)
	m.open, m.expired = false, true
	m.resume()
}

func (m *turnMachine) giveBack() {
	m.running()
	q := Requeue{Task: m.h.ID, Agent: m.h.Agent, Fence: m.run.c.Fence, Note: task.RunNote{Outcome: task.RunRetry, Error: "why"}}
	if outcome := rapid.SampledFrom([]string{task.RunRetry, task.RunReturned, task.RunAway}).Draw(m.T, "outcome"); outcome != task.RunRetry {
		q.Uncount, q.Away, q.Note = true, outcome == task.RunAway, task.RunNote{Outcome: outcome}
		m.tries--
	}
	q.Delay = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(m.T, "delay")
	require.NoError(m, m.f.GiveBack(context.Background(), q))
	m.seq++
	m.over(q.Note.Outcome)
	m.delayed = q.Delay > 0 && !m.canceled
}

func (m *turnMachine) hurry() {
	hints := m.f.ear.hints(m.h.Agent)
	hurried, owned, err := m.f.Hurry(context.Background(), m.h)
	switch {
	case !m.queued:
		require.ErrorIs(m, err, task.NotFound)
	case m.timer:
		require.ErrorIs(m, err, task.Busy)
	default:
		require.NoError(m, err)
		require.Equal(m, []bool{m.delayed, m.run != nil}, []bool{hurried, owned})
		require.True(m, !m.delayed || m.f.ear.hints(m.h.Agent) > hints, "the replicas get a hint")
		m.delayed = false
	}
}

// die ends the lease of the worker.
func (m *turnMachine) die() {
	m.running()
	m.f.exec("DELETE FROM holdfast.workers")
	_, runs := must2(m.f.Rescue(context.Background(), 0, true))(m)
	require.Contains(m, runs, Rescued{m.h.ID, m.h.Agent})
	m.seq++
	m.over("lost")
	m.attempt++
}

// lose takes the database back to before the claim of a run that has written nothing, as a failover to a standby that lags does.
func (m *turnMachine) lose() {
	m.running()
	if m.run.ordinal > 0 {
		m.Skip("it has written")
	}
	m.f.exec(`UPDATE holdfast.tasks t SET attempt = attempt - 1, runs = runs - 1, worker_id = NULL, claimed_at = NULL,
		run_ordinal = (SELECT count(*) FROM holdfast.task_events e WHERE e.task = t.id AND e.attempt = t.attempt - 1 AND e.attempt > 0
			AND (e.kind <> 4 OR e.payload ->> 'outcome' NOT IN ('lost', 'retry', 'returned', 'away'))) WHERE id = $1`, m.h.ID)
	m.f.exec("UPDATE holdfast.task_queue SET worker_id = NULL, tries = tries - 1 WHERE id = $1", m.h.ID)
	m.over("")
	m.attempt--
	m.tries--
}

// late lets a run write that is over, or another ordinal than the next one: alone, and beside the present run.
func (m *turnMachine) late() {
	if len(m.stale) == 0 {
		m.Skip("no run is over")
	}
	p := *m.stale[len(m.stale)-1-rapid.IntRange(0, min(1, len(m.stale)-1)).Draw(m.T, "run")]
	gap := m.run != nil && rapid.Bool().Draw(m.T, "gap")
	if gap {
		p = *m.run
		p.ordinal++
	} else {
		require.ErrorIs(m, m.f.GiveBack(context.Background(), Requeue{Task: m.h.ID, Agent: m.h.Agent, Fence: p.c.Fence}), task.LeaseLost)
		require.ErrorIs(m, errOf(m.f.Beat(context.Background(), m.h.ID, p.c.Fence, -1, 0)), task.LeaseLost)
		require.ErrorIs(m, errOf(p.setState(context.Background(), rapid.Bool().Draw(m.T, "in context"), "1", AnyVersion)), task.LeaseLost)
	}
	late, done := make(chan answer, 1), make(chan answer, 1)
	items := []*Append{p.item(late, chunk("late"))}
	if m.run != nil && !gap && rapid.Bool().Draw(m.T, "beside") {
		items = append(items, m.run.item(done, chunk("x")))
		if rapid.Bool().Draw(m.T, "first") {
			slices.Reverse(items)
		}
		m.seq++
	}
	m.f.asOneFlush(items...)
	require.Equal(m, answer{err: task.LeaseLost}, <-late)
	if len(items) > 1 {
		require.Equal(m, answer{}, <-done)
	}
}

// store stores or removes a state in the name of the run. It may repeat that.
func (m *turnMachine) store() {
	m.running()
	i := rapid.IntRange(0, 1).Draw(m.T, "in context")
	have := &m.stored[i]
	present := int64(0)
	if have.value != "" {
		present = have.version
	}
	value := rapid.SampledFrom([]string{"", `{"b":1.0,"u":"\u00e9"}`, "2"}).Draw(m.T, "value")
	n := NewState{StateOf: StateOf{m.h, i == 1}, Fence: m.run.c.Fence, RequestID: NewID()}
	if n.Version = rapid.SampledFrom([]int64{AnyVersion, 0, present, present + 1}).Draw(m.T, "version"); value != "" {
		n.Value = json.RawMessage(value)
	}
	fits := n.Version == AnyVersion || n.Version == present
	if fits && (value != "" || have.version > 0) {
		have.value = value
		have.version++
	}
	for range rapid.IntRange(1, 2).Draw(m.T, "writes") {
		v, err := m.f.SetAgentState(context.Background(), n)
		if !fits {
			require.ErrorIs(m, err, ErrStateChanged)
			continue
		}
		require.NoError(m, err)
		if value == "" {
			require.Zero(m, v)
		} else {
			require.Equal(m, have.version, v)
		}
	}
}

func (m *turnMachine) check() {
	var have string
	require.NoError(m, m.db.QueryRow(context.Background(), turnsText, m.h.ID).Scan(&have))
	require.Equal(m, m.String(), have)
	facts := storetest.Must(m.f.NoticeFacts(context.Background(), m.h.ID))(m)
	newest := fmt.Sprintf("%d %d ", facts.Attempt, facts.Turn)
	begun := slices.DeleteFunc(slices.Concat([]string{"1 1 "}, m.runs), func(run string) bool { return strings.HasSuffix(run, task.RunAway) })
	require.True(m, strings.HasPrefix(begun[len(begun)-1], newest), "%s: %q", newest, m.runs)
	require.Equal(m, m.metadata, string(facts.Metadata))
	for i, stored := range m.stored {
		value, version := must2(m.f.AgentState(context.Background(), StateOf{m.h, i == 1}))(m)
		require.Equal(m, stored.value, string(value))
		require.True(m, version == stored.version || version == 0 && stored.value == "")
	}

	h := storetest.Must(m.f.Header(context.Background(), m.h.ID))(m)
	shown := storetest.Must(m.f.Snapshot(context.Background(), h, false))(m)
	want := []string{}
	for _, said := range shown.History {
		want = append(want, said.ID)
	}
	if shown.Status.Message != nil {
		want = append(want, "now "+shown.Status.Message.ID)
	}
	slices.Sort(want)
	var history []string
	require.NoError(m, m.db.QueryRow(context.Background(), `SELECT array_agg(x ORDER BY x COLLATE "C") FROM (
		SELECT CASE WHEN in_status THEN 'now ' ELSE '' END || message_id AS x FROM holdfast.v_history WHERE task = $1) y`, m.h.ID).Scan(&history))
	require.Equal(m, want, history)
}

// Messages, cancels, resume URLs, timers and ends of runs begin turns in any order. Runs that are over or lost change nothing.
func TestTurnsAgainstModel(t *testing.T) {
	f := parallel(t)
	db := f.conn()
	rapid.Check(t, func(t *rapid.T) {
		m := &turnMachine{T: t, f: f, db: db}
		m.create()
		act := func(do func()) func(*rapid.T) {
			return func(t *rapid.T) { m.T = t; do() }
		}
		t.Repeat(map[string]func(*rapid.T){
			"": act(m.check), "claim": act(m.claim), "claim again": act(m.claim), "append": act(m.append), "end": act(m.end), "park": act(m.park),
			"park again": act(m.park), "wait": act(m.wait), "pass": act(m.pass), "say": act(m.say), "say more": act(m.say), "cancel": act(m.cancel),
			"resume": act(m.resume), "expire": act(m.expire), "give back": act(m.giveBack), "hurry": act(m.hurry), "die": act(m.die), "lose": act(m.lose),
			"lose again": act(m.lose), "late": act(m.late), "late again": act(m.late), "store": act(m.store),
		})
	})
}
