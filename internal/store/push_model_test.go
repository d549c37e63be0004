package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// when is a time, as far as it matters for a cursor.
type when string

const (
	never when = "never"
	now   when = "now" // or before
	later when = "later"
)

// cursorModel is what the database has to have of a webhook. The comments of queries/push.sql say why.
type cursorModel struct {
	id, url             string
	artifacts           bool
	next, upto          task.Seq
	due, lock           when
	since               bool // it is known since when something is due
	failures, attempts  int  // failed ones since a success; logged ones since the webhook was first set
	failing             bool
	lastError, disabled string
	claim               uuid.UUID
	parked, accepted    bool
}

func (c *cursorModel) host() string { return hostOf(c.url) }

func (c *cursorModel) String() string {
	claim := "-"
	if c.claim != uuid.Nil {
		claim = c.claim.String()
	}
	return fmt.Sprintln(c.id, c.url, c.host(), c.artifacts, "events", c.next, c.upto, "due", c.due, c.since, "failed", c.failures, c.failing, c.attempts,
		c.lastError, "disabled", c.disabled, "claim", claim, c.lock, c.parked, c.accepted)
}

const cursorText = `SELECT concat_ws(' ', k.config_id, c.url, k.host, k.artifacts::text, 'events', k.next_seq, k.due_seq,
	'due', CASE WHEN k.due_at IS NULL THEN 'never' WHEN k.due_at <= now() THEN 'now' ELSE 'later' END, (k.due_since IS NOT NULL)::text,
	'failed', k.attempts, (k.failing_since IS NOT NULL)::text,
	(SELECT count(*) FROM holdfast.push_attempts a WHERE a.task = k.task AND a.config_id = k.config_id), coalesce(k.last_error, '-'),
	'disabled', coalesce(k.disabled_for, '-'), 'claim', coalesce(k.claim::text, '-'),
	CASE WHEN k.locked_until IS NULL THEN 'never' WHEN k.locked_until <= now() THEN 'now' ELSE 'later' END, k.parked::text, k.accepted::text) || E'\n'
	FROM holdfast.push_cursors k JOIN holdfast.push_configs c USING (task, config_id) WHERE k.task = $1 ORDER BY k.config_id`

// cursorMachine makes one operation after the other on the webhooks of a task, in the store and in the model.
type cursorMachine struct {
	*rapid.T
	f       *fixture
	db      *pgx.Conn
	id      task.ID
	agent   string
	run     *pen // nil: the task is parked, or has ended
	ended   bool
	log     []*task.Event  // by the model
	told    int32          // how often the dispatchers were told that something is due
	all     []*cursorModel // in the order of their ids
	claims  []*PushDue     // all of this task, also those that have ended
	last    *PushOutcome   // the last record, for a repetition
	logged  map[string]int // attempts; they outlive their webhook
	reasons int
}

func (m *cursorMachine) cursor(id string) *cursorModel {
	for _, c := range m.all {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (m *cursorMachine) pick() *cursorModel {
	if len(m.all) == 0 {
		m.Skip("no webhook")
	}
	var ids []string
	for _, c := range m.all {
		ids = append(ids, c.id)
	}
	return m.cursor(rapid.SampledFrom(ids).Draw(m.T, "webhook"))
}

func (c *cursorModel) wants(e *task.Event) bool {
	return e.Kind == task.EventStatus || e.Kind == task.EventArtifact && c.artifacts
}

// newest is the last event from one on that a webhook wants, or 0.
func (m *cursorMachine) newest(c *cursorModel, from task.Seq) (seq task.Seq) {
	for i, e := range m.log {
		if at := task.Seq(i + 1); at >= from && c.wants(e) {
			seq = at
		}
	}
	return seq
}

// wrote notes events of one commit.
func (m *cursorMachine) wrote(evs ...*task.Event) {
	from := task.Seq(len(m.log) + 1)
	m.log = append(m.log, evs...)
	marked := false
	for _, c := range m.all {
		seq := m.newest(c, from)
		if seq == 0 {
			continue
		}
		marked, c.upto, c.since = true, seq, true
		if c.disabled == "-" && c.due == never {
			c.due = now
		}
	}
	m.tells(marked)
}

func (m *cursorMachine) tells(due bool) {
	if due {
		m.told++
	}
}

func (m *cursorMachine) append() {
	if m.run == nil {
		m.Skip("no run")
	}
	var evs []*task.Event
	for range rapid.IntRange(1, 3).Draw(m.T, "events") {
		if rapid.Bool().Draw(m.T, "status") {
			evs = append(evs, status(task.StateWorking))
		} else {
			evs = append(evs, chunk("x"))
		}
	}
	switch rapid.IntRange(0, 7).Draw(m.T, "ends") {
	case 0:
		evs, m.ended = append(evs, status(task.StateCompleted)), true
	case 1:
		evs = append(evs, status(task.StateInputRequired))
	}
	require.NoError(m, (<-m.run.write(evs...)).err)
	if m.ended || evs[len(evs)-1].State == task.StateInputRequired {
		m.run = nil
	}
	m.wrote(evs...)
}

// resume sends a message to a parked task, or cancels it.
func (m *cursorMachine) resume() {
	if m.run != nil || m.ended {
		m.Skip("not parked")
	}
	ctx := context.Background()
	h := storetest.Must(m.f.Header(ctx, m.id))(m)
	if rapid.IntRange(0, 3).Draw(m.T, "cancel") == 0 {
		m.ended = storetest.Must(m.f.Cancel(ctx, h, nil))(m)
		m.wrote(status(task.StateCanceled))
		return
	}
	storetest.Must(m.f.AddMessage(ctx, &NewMessage{Task: h, Message: user("more"), RequestID: NewID()}))(m)
	m.wrote(&task.Event{Kind: task.EventMessage}, status(task.StateSubmitted))
	m.begin()
}

func (m *cursorMachine) begin() {
	won := storetest.Must(m.f.Claim(context.Background(), NewID(), []Demand{{Agent: m.agent, Slots: 1}}))(m)
	require.Len(m, won, 1)
	m.run = &pen{s: m.f.Store, c: won[0]}
}

func (m *cursorMachine) set() {
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(m.T, "id")
	p := hook(id, rapid.SampledFrom([]string{"one", "two"}).Draw(m.T, "host"))
	p.Artifacts = rapid.Bool().Draw(m.T, "artifacts")
	most := rapid.IntRange(2, 3).Draw(m.T, "most")
	c := m.cursor(id)
	err := m.f.SetPush(context.Background(), m.id, p, most)
	if c == nil && len(m.all) >= most {
		require.ErrorIs(m, err, task.Invalid)
		return
	}
	require.NoError(m, err)
	if c == nil {
		c = &cursorModel{id: id, next: task.Seq(len(m.log) + 1), attempts: m.logged[id]}
		m.all = append(m.all, c)
		slices.SortFunc(m.all, func(a, b *cursorModel) int { return strings.Compare(a.id, b.id) })
	}
	fresh := cursorModel{
		id: id, url: p.URL, artifacts: p.Artifacts, next: c.next, due: never, lock: never, attempts: c.attempts, lastError: "-", disabled: "-",
		accepted: c.accepted && c.url == p.URL,
	}
	if fresh.upto = m.newest(&fresh, c.next); fresh.upto > 0 {
		fresh.due, fresh.since = now, true
	}
	*c = fresh
	m.tells(c.due == now)
}

func (m *cursorMachine) remove() {
	c := m.pick()
	require.True(m, storetest.Must(m.f.DeletePush(context.Background(), m.id, c.id))(m))
	m.all = slices.DeleteFunc(m.all, func(x *cursorModel) bool { return x == c })
	require.False(m, storetest.Must(m.f.DeletePush(context.Background(), m.id, c.id))(m))
}

func (m *cursorMachine) hosts() []string {
	return rapid.SampledFrom([][]string{{}, {"one:80"}, {"two:80"}, {"one:80", "two:80"}}).Draw(m.T, "busy")
}

func (m *cursorMachine) claim() {
	busy := m.hosts()
	m.f.lanes.empty = Pace{} // or it would not look for parked ones again for a moment
	due, _ := must2(m.f.ClaimPush(context.Background(), &PushClaim{
		Worker: NewID(), Limit: 32, PerHost: 8, PerCaller: 32, BusyHosts: busy, Lock: time.Hour,
	}))(m)
	slices.SortFunc(due, func(a, b *PushDue) int { return strings.Compare(a.Config.ID, b.Config.ID) })
	for _, c := range m.all {
		if c.due != now || slices.Contains(busy, c.host()) {
			continue
		}
		require.NotEmpty(m, due, "%s is not claimed", c.id)
		d := due[0]
		due = due[1:]
		require.Equal(m, []any{m.id, c.id, c.url, c.host(), c.next, c.upto, c.failures, c.accepted},
			[]any{d.Task, d.Config.ID, d.Config.URL, d.Config.Host, d.Next, d.Upto, d.Failures, d.Accepted})
		c.claim, c.due, c.lock, c.parked = d.Claim, later, later, false
		m.claims = append(m.claims, d)
		m.reads(c, d)
	}
	require.Empty(m, due, "nothing else is due")
}

// reads checks that a claim reads what its webhook wants.
func (m *cursorMachine) reads(c *cursorModel, d *PushDue) {
	page := storetest.Must(m.f.ReadPush(context.Background(), d, PushRange{From: d.Next, Limit: 4}))(m)
	var want, have []task.Seq
	for i, e := range m.log {
		if seq := task.Seq(i + 1); seq >= c.next && c.wants(e) && len(want) < 4 {
			want = append(want, seq)
		}
	}
	for _, e := range page.Events {
		have = append(have, e.Seq)
	}
	require.Equal(m, want, have)
}

// deliver claims, and records what came of it at once.
func (m *cursorMachine) deliver() {
	m.claim()
	m.record()
}

// record records what came of a claim, which may have ended.
func (m *cursorMachine) record() {
	if len(m.claims) == 0 {
		m.Skip("no claim")
	}
	d := m.claims[len(m.claims)-1-rapid.IntRange(0, min(3, len(m.claims)-1)).Draw(m.T, "claim")]
	from := d.Next
	if c := m.cursor(d.Config.ID); c != nil && c.claim == d.Claim && rapid.IntRange(0, 4).Draw(m.T, "late") > 0 {
		from = c.next // as a process that has recorded the deliveries before
	}
	m.reasons++
	o := &PushOutcome{
		Task: m.id, ConfigID: d.Config.ID, Claim: d.Claim, From: from, To: from, Status: 200, Class: "delivered",
		DueIn: rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(m.T, "delay"), Keep: rapid.Bool().Draw(m.T, "keep"),
	}
	switch rapid.IntRange(0, 3).Draw(m.T, "outcome") {
	case 0, 1:
		o.Delivered, o.To = true, from+task.Seq(rapid.IntRange(0, 3).Draw(m.T, "delivered"))
	case 2:
		o.Failed, o.Error = true, fmt.Sprint("error-", m.reasons)
	}
	if o.To = min(o.To, d.Upto); o.To < o.From {
		o.To = o.From
	}
	if (o.Delivered || o.Failed) && rapid.IntRange(0, 3).Draw(m.T, "no request") > 0 {
		o.DeliveryID = "delivery"
	}
	if !o.Delivered && rapid.IntRange(0, 4).Draw(m.T, "gone") == 0 {
		o.Disable = fmt.Sprint("reason-", m.reasons)
	}
	m.recorded(o)
}

// again sends the last record once more, as after a connection that died during its commit.
func (m *cursorMachine) again() {
	if m.last == nil {
		m.Skip("no record")
	}
	m.recorded(m.last)
}

func (m *cursorMachine) recorded(o *PushOutcome) {
	m.last = o
	ours, more := must2(m.f.RecordPush(context.Background(), o))(m)
	c := m.cursor(o.ConfigID)
	attempted := o.Delivered || o.Failed
	repeated := c != nil && o.Delivered && o.Keep && c.next == o.To+1 && c.next != o.From
	if c == nil || c.claim != o.Claim || attempted && c.next != o.From && !repeated {
		require.False(m, ours, "the claim has ended, or has recorded more since")
		return
	}
	require.True(m, ours)
	if o.DeliveryID != "" && !repeated {
		c.attempts++
		m.logged[c.id] = c.attempts
	}
	if o.Disable != "" && c.disabled == "-" {
		c.disabled = o.Disable
	}
	c.parked, c.accepted = false, c.accepted || o.Delivered && o.DeliveryID != ""
	left := c.disabled == "-"
	switch {
	case o.Delivered:
		left = left && c.upto > o.To
		c.next, c.since, c.failures, c.failing, c.lastError = o.To+1, c.upto > o.To, 0, false, "-"
	case o.Failed:
		c.failures, c.failing, c.lastError = c.failures+1, true, o.Error
	}
	require.Equal(m, left, more)
	keeps := o.Keep && !o.Failed
	switch {
	case !left:
		c.due = never
	case o.Delivered && keeps:
		c.due = c.lock
	case o.DueIn > 0:
		c.due = later
	default:
		c.due = now
	}
	if c.lock = c.due; !left || !keeps {
		c.claim, c.lock = uuid.Nil, never
	}
}

func (m *cursorMachine) disable() {
	c := m.pick()
	m.reasons++
	reason := fmt.Sprint("reason-", m.reasons)
	require.True(m, storetest.Must(m.f.DisablePush(context.Background(), m.id, c.id, reason))(m))
	if c.disabled == "-" {
		c.disabled = reason
	}
	c.due, c.parked = never, false
}

func (m *cursorMachine) enable() {
	c := m.pick()
	due := storetest.Must(m.f.EnablePush(context.Background(), m.id, c.id))(m)
	require.Equal(m, c.upto >= c.next, due)
	c.disabled, c.failures, c.failing, c.parked, c.due = "-", 0, false, false, never
	if due {
		c.due = now
		if c.lock == later {
			c.due = later // no second delivery starts beside the one under way
		}
	}
	m.tells(due)
}

func (m *cursorMachine) redeliver() {
	c := m.pick()
	from := task.Seq(rapid.IntRange(0, len(m.log)+1).Draw(m.T, "from"))
	due, disabled, err := m.f.Redeliver(context.Background(), m.id, c.id, from)
	if int(from) > len(m.log) {
		require.ErrorIs(m, err, task.NotFound)
		return
	}
	require.NoError(m, err)
	if from > 0 {
		c.next = min(c.next, from)
	}
	c.upto = max(c.upto, m.newest(c, c.next))
	c.since, c.due = c.upto >= c.next, never
	require.Equal(m, []bool{c.since, c.disabled != "-"}, []bool{due, disabled})
	if due && !disabled {
		c.due = now
	}
	c.parked, c.failures, c.failing, c.claim, c.lock = false, 0, false, uuid.Nil, never
	m.tells(due && !disabled)
}

// pass lets the claims expire and the retries be due.
func (m *cursorMachine) pass() {
	_, err := m.db.Exec(context.Background(), `UPDATE holdfast.push_cursors SET due_at = now(), locked_until = CASE WHEN locked_until IS NOT NULL THEN now() END
		WHERE task = $1 AND due_at > now()`, m.id)
	require.NoError(m, err)
	for _, c := range m.all {
		if c.due == later {
			c.due = now
			if c.lock == later {
				c.lock = now
			}
		}
	}
}

// park parks what is due for busy hosts, as a claim does if that hides others.
func (m *cursorMachine) park() {
	busy := m.hosts()
	parked := storetest.Must(m.f.park(context.Background(), busy, nil, time.Time{}))(m)
	want := false
	for _, c := range m.all {
		if c.due == now && !c.parked && slices.Contains(busy, c.host()) {
			c.parked, want = true, true
		}
	}
	require.Equal(m, want, parked)
}

func (m *cursorMachine) check() {
	rows, err := m.db.Query(context.Background(), cursorText, m.id)
	require.NoError(m, err)
	have := storetest.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(m)
	var want []string
	var counts PushCounts
	for _, c := range m.all {
		want = append(want, c.String())
		if c.due != never {
			counts.Backlog++
		}
		if c.disabled != "-" {
			counts.Disabled++
		}
	}
	require.Equal(m, strings.Join(want, ""), strings.Join(have, ""))
	require.Equal(m, m.told, m.f.ear.pushes.Load(), "the dispatchers are told of what is due")
	var pushes bool
	require.NoError(m, m.db.QueryRow(context.Background(), "SELECT pushes FROM holdfast.tasks WHERE id = $1", m.id).Scan(&pushes))
	require.Equal(m, len(m.all) > 0, pushes, "until the last one is deleted")
	got := storetest.Must(m.f.CountPushes(context.Background()))(m)
	got.Oldest = 0
	require.Equal(m, counts, got)
}

// Events, claims, their outcomes, also late and repeated ones, and acts of clients and operators move webhooks in any order.
func TestWebhooksAgainstModel(t *testing.T) {
	f := parallel(t)
	db := f.conn()
	rapid.Check(t, func(t *rapid.T) {
		n := fresh(NewID().String())
		f.ok(f.Create(context.Background(), n))
		m := &cursorMachine{
			T: t, f: f, db: db, id: n.Task.ID, agent: n.Task.Agent, log: []*task.Event{{Kind: task.EventMessage}}, told: f.ear.pushes.Load(), logged: map[string]int{},
		}
		m.begin()
		m.set()
		defer func() {
			for _, c := range m.all { // so that the next sequence counts and claims only its own
				f.ok(f.DeletePush(context.Background(), m.id, c.id))
			}
		}()
		act := func(do func()) func(*rapid.T) {
			return func(t *rapid.T) { m.T = t; do() }
		}
		t.Repeat(map[string]func(*rapid.T){
			"": act(m.check), "append": act(m.append), "resume": act(m.resume), "set": act(m.set), "delete": act(m.remove),
			"claim": act(m.claim), "record": act(m.record), "deliver": act(m.deliver), "deliver more": act(m.deliver), "record again": act(m.again),
			"disable": act(m.disable), "enable": act(m.enable), "redeliver": act(m.redeliver), "pass": act(m.pass), "park": act(m.park),
		})
	})
}
