package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// hostOf returns the host and port of a URL, as the check of a webhook does.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Port() != "" {
		return u.Host
	}
	return u.Host + map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
}

// hook is a configuration to be set.
func hook(id, host string) *task.PushConfig {
	to := "http://" + host + "/hook"
	return &task.PushConfig{ID: id, URL: to, Host: hostOf(to), Dialect: "1.0"}
}

func (f *fixture) setPush(id task.ID, c *task.PushConfig) {
	f.t.Helper()
	require.NoError(f.t, f.SetPush(f.t.Context(), id, c, 20))
}

// ended makes a task that has ended, with a webhook for which that is due.
func (f *fixture) ended(n *NewTask, host string) task.ID {
	f.t.Helper()
	n.Push = hook("hook", host)
	h := f.create(n)
	f.ok(f.Cancel(f.t.Context(), h, nil))
	return h.ID
}

// duePushes claims due configurations, within the default bounds.
func (f *fixture) duePushes(limit int, busyHosts ...string) []*PushDue {
	f.t.Helper()
	due, _ := f.claimPushes(PushClaim{Limit: limit, BusyHosts: busyHosts})
	return due
}

// claimPushes makes a claim. Bounds that are missing have their defaults.
func (f *fixture) claimPushes(c PushClaim) (due []*PushDue, next time.Duration) {
	f.t.Helper()
	if c.Worker.IsZero() {
		c.Worker = NewID()
	}
	c.Limit, c.PerHost, c.PerCaller = cmp.Or(c.Limit, 32), cmp.Or(c.PerHost, 8), cmp.Or(c.PerCaller, 32)
	c.Lock = cmp.Or(c.Lock, time.Hour)
	due, next = must2(f.ClaimPush(f.t.Context(), &c))(f.t)
	return due, next
}

// wanted reads the next events that a claimed configuration wants.
func (f *fixture) wanted(d *PushDue, limit int) (*task.Task, []*task.Event) {
	f.t.Helper()
	p := storetest.Must(f.ReadPush(f.t.Context(), d, PushRange{From: d.Next, Limit: limit}))(f.t)
	return p.Header, p.Events
}

func delivered(d *PushDue, to task.Seq) *PushOutcome {
	return &PushOutcome{
		Task: d.Task, ConfigID: d.Config.ID, Claim: d.Claim, From: d.Next, To: to, DeliveryID: fmt.Sprint("j", to), Status: 200,
		Class: "delivered", Took: time.Millisecond, Delivered: true,
	}
}

func failed(d *PushDue, retry time.Duration) *PushOutcome {
	return &PushOutcome{
		Task: d.Task, ConfigID: d.Config.ID, Claim: d.Claim, From: d.Next, To: d.Next, DeliveryID: "j", Status: 500,
		Error: "500 Internal Server Error", Class: "server", Failed: true, DueIn: retry,
	}
}

// held keeps a claim until lock has passed.
func held(d *PushDue, lock time.Duration) *PushOutcome {
	return &PushOutcome{Task: d.Task, ConfigID: d.Config.ID, Claim: d.Claim, Keep: true, DueIn: lock}
}

func (f *fixture) record(o *PushOutcome) (ours, more bool) {
	f.t.Helper()
	ours, more = must2(f.RecordPush(f.t.Context(), o))(f.t)
	return ours, more
}

// cursor returns a configuration as operators see it.
func (f *fixture) cursor(id task.ID, config string) PushRow {
	f.t.Helper()
	rows := storetest.Must(f.ListPushes(f.t.Context(), PushFilter{Task: id, Limit: 100}))(f.t)
	for _, r := range rows {
		if r.Config.ID == config {
			return r
		}
	}
	f.t.Fatalf("there is no configuration %s", config)
	panic("unreachable")
}

// TestWebhooksAgainstModel does not show what clients and operators see of a configuration.
func TestConfigurationsOfATask(t *testing.T) {
	f := parallel(t)
	h := f.create(fresh("a"))
	c := &task.PushConfig{
		ID: "one", URL: "https://Hook.example/x?y", Host: "hook.example:443", Token: "tok", Schemes: []string{"Bearer", "Basic"}, Credentials: "cred", Dialect: "0.3",
	}
	f.setPush(h.ID, c)
	f.setPush(h.ID, hook("two", "b"))
	got := storetest.Must(f.Pushes(t.Context(), h.ID))(t)
	require.Len(t, got, 2)
	want := *c
	want.Token, want.Credentials = "", "" // secrets are not returned
	require.True(t, got[0].CreatedAt.Equal(c.CreatedAt))
	got[0].CreatedAt = want.CreatedAt
	require.Equal(t, want, got[0])
	require.Equal(t, "two", got[1].ID)
	require.Empty(t, storetest.Must(f.Pushes(t.Context(), NewID()))(t))

	again := hook("one", "c")
	f.setPush(h.ID, again)
	require.True(t, again.CreatedAt.Equal(c.CreatedAt), "a configuration that is set again is the same one")
	require.Nil(t, scan[[]byte](f, "SELECT secrets FROM holdfast.push_configs WHERE config_id = 'one'"), "without its old secrets")
	require.ErrorIs(t, f.SetPush(t.Context(), NewID(), hook("one", "d"), 2), task.NotFound)
	require.ErrorIs(t, errOf(f.EnablePush(t.Context(), h.ID, "x")), task.NotFound)
	require.False(t, storetest.Must(f.DisablePush(t.Context(), h.ID, "x", "no"))(t))
}

// TestWebhooksAgainstModel does not show when the next one is due, and the log of attempts.
func TestNextClaimAndAttempts(t *testing.T) {
	f := parallel(t)
	p, worker := f.running("a"), f.worker(time.Hour)
	id := p.c.Task.ID
	f.setPush(id, hook("c", "h"))
	p.must(t, status(task.StateWorking))
	claim := func() ([]*PushDue, time.Duration) {
		f.lanes.empty = Pace{} // or it would ask again after a moment
		return f.claimPushes(PushClaim{Worker: worker, Limit: 5})
	}
	due, next := claim()
	require.Len(t, due, 1)
	require.Greater(t, next, 59*time.Minute, "the end of the claim")
	f.record(held(due[0], 3*time.Hour))
	_, next = claim()
	require.Greater(t, next, 2*time.Hour)
	f.record(failed(due[0], time.Hour))
	require.Equal(t, "500 Internal Server Error", f.cursor(id, "c").LastError)
	_, next = claim()
	require.Greater(t, next, 59*time.Minute, "the next attempt")
	must2(f.Redeliver(t.Context(), id, "c", 0))(t)
	due, _ = claim()
	f.record(delivered(due[0], 2))

	tries := storetest.Must(f.PushAttempts(t.Context(), id, "c", 10))(t)
	require.Len(t, tries, 2)
	require.Equal(t, []any{200, "delivered", 1, 1.0}, []any{tries[0].Status, tries[0].Class, tries[0].Attempt, tries[0].TookMS})
	require.Equal(t, []any{500, "server", 1, "test"}, []any{tries[1].Status, tries[1].Class, tries[1].Attempt, tries[1].Worker})
	require.Len(t, storetest.Must(f.PushAttempts(t.Context(), id, "", 1))(t), 1)
}

// Many requests at once do not exceed the limit.
func TestManySetAtOnceKeepTheLimit(t *testing.T) {
	f := parallel(t)
	h := f.create(fresh("a"))
	var g errgroup.Group
	var set atomic.Int32
	for i := range 12 {
		g.Go(func() error {
			err := f.SetPush(t.Context(), h.ID, hook(fmt.Sprint("c", i), "h"), 5)
			if err == nil {
				set.Add(1)
			} else if task.KindOf(err) != task.Invalid {
				return err
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.EqualValues(t, 5, set.Load())
	require.Equal(t, 5, scan[int](f, "SELECT count(*) FROM holdfast.push_configs"))
}

// keyRing opens stores of one database with the given keys.
func keyRing(t *testing.T) func(keys ...byte) *fixture {
	t.Helper()
	url := storetest.New(t).URL
	return func(keys ...byte) *fixture {
		var raw [][]byte
		for _, k := range keys {
			raw = append(raw, bytes.Repeat([]byte{k}, 32))
		}
		return &fixture{Store: open(t, Options{URL: url, SecretKeys: raw}), t: t, url: url, ear: newEar()}
	}
}

func TestSecretsAreSealed(t *testing.T) {
	t.Parallel()
	with := keyRing(t)
	secret := func(id string) *task.PushConfig {
		c := hook(id, "h")
		c.Token, c.Credentials = "token-"+id, "credentials-"+id
		return c
	}
	claim := func(f *fixture, n int) map[string]string {
		f.exec("UPDATE holdfast.push_cursors SET due_at = now(), claim = NULL, worker_id = NULL, locked_until = NULL WHERE due_at IS NOT NULL")
		out := map[string]string{}
		for _, d := range f.duePushes(10) {
			if d.Unreadable != nil {
				require.Empty(t, d.Config.Token+d.Config.Credentials)
				continue
			}
			require.Equal(t, "token-"+d.Config.ID, d.Config.Token)
			out[d.Config.ID] = d.Config.Credentials
		}
		require.Len(t, out, n)
		return out
	}
	plain := with()
	h := plain.create(fresh("a"))
	plain.setPush(h.ID, secret("database")) // sealed with the key of the database
	one := with(1)
	one.setPush(h.ID, secret("one"))
	two := with(2, 1)
	two.setPush(h.ID, secret("two"))
	storetest.Must(plain.Cancel(t.Context(), h, nil))(t)
	for _, word := range []string{"token", "credentials"} {
		require.Zero(t, scan[int](plain, "SELECT count(*) FROM holdfast.push_configs WHERE position($1::bytea in secrets) > 0", []byte(word)))
	}
	require.Equal(t, map[string]string{"database": "credentials-database", "one": "credentials-one", "two": "credentials-two"}, claim(two, 3))
	require.Equal(t, 2, storetest.Must(two.Reseal(t.Context()))(t))
	require.Equal(t, "2", scan[string](two, "SELECT object FROM holdfast.v_audit WHERE action = 'push.rekeyed'"))
	require.Zero(t, storetest.Must(two.Reseal(t.Context()))(t))
	require.Equal(t, 1, scan[int](two, "SELECT count(*) FROM holdfast.v_audit WHERE action = 'push.rekeyed'"), "without a change there is no audit entry")
	claim(with(2), 3)
	claim(with(1, 2), 3) // a replica that seals with the old key while others have the next one

	// Without its key a configuration cannot be delivered, and delays no other. A process with the key can deliver it.
	require.ErrorContains(t, errOf(one.Reseal(t.Context())), "two")
	require.Empty(t, claim(one, 0))
	claim(two, 3)

	// Secrets that were sealed for one configuration do not open in another.
	two.exec("UPDATE holdfast.push_configs SET secrets = (SELECT secrets FROM holdfast.push_configs WHERE config_id = 'one') WHERE config_id = 'two'")
	require.NotContains(t, claim(two, 2), "two")
}

func TestAWebhookThatComesWithTheMessage(t *testing.T) {
	f := parallel(t)
	n := fresh("a")
	n.Push = hook("c", "h")
	n.Push.Token, n.Push.Schemes = "tok", []string{"Bearer"}
	n.Slot.Worker = f.worker(time.Hour)
	without := fresh("a")
	var g errgroup.Group
	for _, x := range []*NewTask{n, without} {
		g.Go(func() error { _, err := f.Create(t.Context(), x); return err })
	}
	require.NoError(t, g.Wait())
	require.False(t, scan[bool](f, "SELECT pushes FROM holdfast.tasks WHERE id = $1", uuid.UUID(without.Task.ID)))
	h := storetest.Must(f.Header(t.Context(), n.Task.ID))(t)
	p := &pen{s: f.Store, c: &Claimed{Task: h, Fence: FirstFence(h)}}
	p.must(t, status(task.StateInputRequired))
	due := f.duePushes(10)
	require.Len(t, due, 1)
	require.EqualValues(t, 1, due[0].Next)
	require.EqualValues(t, 2, due[0].Upto)
	require.Equal(t, "tok", due[0].Config.Token)
	require.Equal(t, []string{"Bearer"}, due[0].Config.Schemes)

	add := func(c *task.PushConfig, most int) error {
		_, err := f.AddMessage(t.Context(), &NewMessage{
			Task: h, Message: user("more"), Enqueue: true, RequestID: NewID(), Push: c, MostPushes: most,
		})
		return err
	}
	require.ErrorIs(t, add(hook("d", "h"), 1), task.Invalid)
	require.Equal(t, task.StateInputRequired, f.state(n.Task.ID), "neither the webhook nor the message was written")
	require.NoError(t, add(hook("d", "h"), 2))
	require.EqualValues(t, 3, f.cursor(n.Task.ID, "d").Next, "the first event is its message")
	require.EqualValues(t, 4, f.cursor(n.Task.ID, "d").Upto)
	require.EqualValues(t, 4, f.cursor(n.Task.ID, "c").Upto)
	f.ok(f.Cancel(t.Context(), h, nil))
	require.ErrorIs(t, add(hook("e", "h"), 20), task.Terminal)
	require.Len(t, storetest.Must(f.Pushes(t.Context(), n.Task.ID))(t), 2, "the message was refused, and its webhook with it")
}

// Claims take what is due of hosts and callers that are not busy, parked or not: within their bounds, the oldest first, and all.
func TestClaimsAgainstModel(t *testing.T) {
	f := parallel(t)
	const hosts, owners, hooks = 3, 4, 36
	var ids []task.ID
	callerOf, hostOf := map[task.ID]int64{}, map[task.ID]string{}
	for i := range hooks {
		n := fresh("a")
		n.Task.Tenant, n.Task.Owner = []string{"", "t", "", "t"}[i%owners], []string{"", "", "t", "o"}[i%owners]
		ids = append(ids, f.ended(n, fmt.Sprint("h", i/owners%hosts)))
	}
	callers := []int64{} // in the order of ids
	for _, id := range ids {
		callerOf[id] = scan[int64](f, "SELECT caller FROM holdfast.push_cursors WHERE task = $1", id)
		hostOf[id] = scan[string](f, "SELECT host FROM holdfast.push_cursors WHERE task = $1", id)
		callers = append(callers, callerOf[id])
	}
	require.Zero(t, callers[0], "nobody")
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(callers))), owners)
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.Permutation(ids).Draw(t, "oldest first")
		due := rapid.SliceOfN(rapid.Bool(), hooks, hooks).Draw(t, "due")
		parked := rapid.SliceOfN(rapid.Bool(), hooks, hooks).Draw(t, "parked")
		f.exec(`UPDATE holdfast.push_cursors k SET claim = NULL, worker_id = NULL, locked_until = NULL, parked = x.due AND x.parked,
			due_at = now() + CASE WHEN x.due THEN (x.nth - 100) * interval '1 ms' ELSE interval '1 hour' END
			FROM unnest($1::uuid[], $2::boolean[], $3::boolean[]) WITH ORDINALITY x (id, due, parked, nth) WHERE k.task = x.id`, order, due, parked)
		c := PushClaim{
			Limit: rapid.IntRange(1, 20).Draw(t, "limit"), PerHost: rapid.IntRange(1, 5).Draw(t, "per host"),
			PerCaller:   rapid.SampledFrom([]int{1, 2, 3, hooks}).Draw(t, "per caller"),
			BusyHosts:   rapid.SampledFrom([][]string{{}, {}, {"h1:80"}, {"h0:80", "h2:80"}}).Draw(t, "busy hosts"),
			BusyCallers: rapid.SampledFrom([][]int64{{}, {}, {callers[1]}, {callers[1], callers[3]}}).Draw(t, "busy callers"),
		}
		left := map[string][]task.ID{} // of each host
		for i, id := range order {
			if due[i] && !slices.Contains(c.BusyHosts, hostOf[id]) && !slices.Contains(c.BusyCallers, callerOf[id]) {
				left[hostOf[id]] = append(left[hostOf[id]], id)
			}
		}
		for {
			f.lanes.empty = Pace{} // or it would not look for parked ones again for a moment
			won, next := f.claimPushes(c)
			require.LessOrEqual(t, len(won), c.Limit)
			of, ofCaller := map[string][]task.ID{}, map[int64]int{}
			for _, d := range won {
				of[d.Config.Host] = append(of[d.Config.Host], d.Task)
				require.Equal(t, callerOf[d.Task], d.Caller)
				ofCaller[d.Caller]++
				require.True(t, d.Caller == 0 || ofCaller[d.Caller] <= c.PerCaller)
			}
			for host, won := range of {
				require.LessOrEqual(t, len(won), c.PerHost)
				if c.PerCaller == hooks {
					require.ElementsMatch(t, left[host][:len(won)], won, "the oldest")
				}
				require.Subset(t, left[host], won)
				left[host] = slices.DeleteFunc(left[host], func(id task.ID) bool { return slices.Contains(won, id) })
			}
			if len(won) == c.Limit {
				require.Zero(t, next, "there may be more")
			} else if len(won) == 0 && next > 0 {
				break
			}
		}
		for host, ids := range left {
			require.Empty(t, ids, host)
		}
	})
	f.exec("UPDATE holdfast.push_cursors SET due_at = now(), claim = NULL, worker_id = NULL, locked_until = NULL")
}

// backlog makes n due webhooks, until clear. They have no task, and cannot be claimed.
func (f *fixture) backlog(n int, host, caller, due string) {
	f.exec(`INSERT INTO holdfast.push_cursors (task, config_id, host, caller, artifacts, due_seq, due_at, due_since)
		SELECT gen_random_uuid(), 'backlog', ` + host + `, ` + caller + `, false, 2, ` + due + `, now()
		  FROM generate_series(1, ` + strconv.Itoa(n) + `) i`)
	f.exec("ANALYZE holdfast.push_cursors")
}

func (f *fixture) clear() { f.exec("DELETE FROM holdfast.push_cursors WHERE config_id = 'backlog'") }

// The age is that of what a replica could deliver: a client whose receiver fails, hangs or is at its limit alerts nobody.
func TestOldestPush(t *testing.T) {
	f := parallel(t)
	f.backlog(1, "'h:80'", "0", "now()")
	defer f.clear()
	for set, hours := range map[string]time.Duration{
		"due_since = now() - interval '3 hours'":                                                      3,
		"due_since = now() - interval '3 hours', attempts = 1, due_at = now() + interval '5 minutes'": 0,
		"due_since = now() - interval '3 hours', attempts = 1, due_at = now() - interval '2 hours'":   2,
		"due_since = now() - interval '3 hours', parked = true":                                       0,
	} {
		f.exec("UPDATE holdfast.push_cursors SET attempts = 0, parked = false, due_at = now()")
		f.exec("UPDATE holdfast.push_cursors SET " + set)
		require.Equal(t, hours, storetest.Must(f.CountPushes(t.Context()))(t).Oldest/time.Hour, set)
	}
}

// Webhooks of busy hosts and callers are parked: others are found behind them, and claims do not read them again.
func TestABacklogHidesNobody(t *testing.T) {
	f := parallel(t)
	var others []string
	for i := range 5 {
		f.ended(fresh("a"), fmt.Sprint("good", i))
		others = append(others, fmt.Sprintf("good%d:80", i))
	}
	const busyHost, busyCaller = 10_000, 2000
	f.parksByPlace()
	f.backlog(busyHost, "'dead:80'", "0", "now() - i * interval '1 ms'")
	f.backlog(busyCaller, "'dead' || i || ':80'", "7", "now() - i * interval '1 ms'")
	f.parksByPlace()
	f.exec("UPDATE holdfast.push_cursors SET due_at = now() - interval '1 s' WHERE host LIKE 'good%'")
	busy := PushClaim{BusyHosts: []string{"dead:80"}, BusyCallers: []int64{7}}
	looks := func() (found []string, n int, last time.Duration) {
		for n = 1; ; n++ {
			due, next := f.claimPushes(busy)
			for _, d := range due {
				found = append(found, d.Config.Host)
			}
			if next != 0 {
				return found, n, next
			}
		}
	}
	found, n, next := looks()
	require.ElementsMatch(t, others, found)
	require.Positive(t, next)
	require.LessOrEqual(t, n, (busyHost+busyCaller)/parkRows+1, "each claim parked some")
	require.Less(t, scan[int](f, "SELECT count(*) FROM holdfast.push_cursors WHERE NOT parked"), 8*32+64+len(others)+1, "the rest hides nobody")

	// The next claim reads few pages of 8 KiB.
	f.exec("VACUUM holdfast.push_cursors")
	f.exec("UPDATE holdfast.push_cursors SET due_at = now(), claim = NULL, worker_id = NULL, locked_until = NULL WHERE host LIKE 'good%'")
	x := &explained{f: f}
	look := beforeLanes
	look.BusyHosts, look.BusyCallers, look.MaxRows = busy.BusyHosts, busy.BusyCallers, laneRows
	lanes := storetest.Must(f.q.PushLanes(t.Context(), x, look))(t)
	require.Equal(t, []dbsqlc.PushLanesRow{{Caller: 0, Host: "dead:80"}, {Caller: 7, Host: lanes[1].Host}}, lanes, "all lanes of a busy caller are one look")
	rows := storetest.Must(f.q.PushClaim(t.Context(), x, dbsqlc.PushClaimParams{
		WindowRows: 320, PerHost: 8, PerCaller: 32, MaxRows: 32, LaneCallers: []int64{}, LaneHosts: []string{}, AnyParked: true,
		BusyHosts: busy.BusyHosts, BusyCallers: busy.BusyCallers, Worker: uuid.New(), Lock: time.Hour,
	}))(t)
	require.Len(t, rows, len(others))
	require.Less(t, x.pages, 500)
	f.clear()
}

// parksByPlace checks that parking takes one step for each row, whatever statistics the planner has.
func (f *fixture) parksByPlace() {
	f.t.Helper()
	update := scan[string](f, "SELECT substring(prosrc FROM 'UPDATE[^;]*') FROM pg_proc WHERE oid = 'holdfast.push_park'::regproc")
	for name, param := range map[string]string{"window_rows": "$1::integer", "busy_hosts": "$2::text[]", "busy_callers": "$3::bigint[]", "since": "$4::timestamptz"} {
		require.Contains(f.t, update, name)
		update = strings.ReplaceAll(update, name, param)
	}
	c := f.conn()
	storetest.Must(c.Exec(f.t.Context(), "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan", pgx.QueryExecModeSimpleProtocol))(f.t)
	plan := explain(f.t, c, "push_park", update)
	scans := regexp.MustCompile(`\w+ Scan\b.*? on push_\w+ \w+`).FindAllString(strings.Join(plan, "\n"), -1)
	require.Equal(f.t, []string{"Index Scan using push_cursors_due on push_cursors d", "Tid Scan on push_cursors h", "Tid Scan on push_cursors k"}, scans)
}

// A claim that fills the share of a host parks the rest, if it hides others.
func TestAClaimParksTheRestOfAFullShare(t *testing.T) {
	f := parallel(t)
	for range 3 {
		f.ended(fresh("a"), "slow")
	}
	f.backlog(1000, "'slow:80'", "0", "now()")
	f.exec("UPDATE holdfast.push_cursors SET due_at = now() - interval '1 minute' WHERE config_id = 'hook'")
	c := PushClaim{PerHost: 2, Busy: func(won []*PushDue) (hosts []string, callers []int64) {
		require.Len(t, won, 2)
		return []string{won[0].Config.Host}, nil
	}}
	due, next := f.claimPushes(c)
	require.Len(t, due, 2)
	require.Zero(t, next)
	require.Equal(t, 1001, scan[int](f, "SELECT count(*) FROM holdfast.push_cursors WHERE parked"))
	f.clear()
}

// This holds even with more lanes than one look reads, when it is never the turn of this lane while its host is free.
func TestNothingOvertakesAParkedWebhook(t *testing.T) {
	f := parallel(t)
	claim := func(busy ...string) []*PushDue {
		due, _ := f.claimPushes(PushClaim{PerHost: 1, BusyHosts: busy})
		return due
	}
	ended := func() task.ID {
		n := fresh("a")
		n.Task.Tenant, n.Task.Owner = "", ""
		return f.ended(n, "zhost")
	}
	old := ended()
	var busy []string
	for i := range laneRows + 10 {
		busy = append(busy, fmt.Sprintf("dead%d:80", i+1))
	}
	f.backlog(laneRows+10, "'dead' || i || ':80'", "0", "now()")
	f.exec("UPDATE holdfast.push_cursors SET parked = true, due_at = now() - interval '1 hour'")
	newer := ended()
	due := claim(busy...)
	require.Len(t, due, 1)
	require.Equal(t, old, due[0].Task)
	require.Empty(t, claim(append(busy, "zhost:80")...))
	due = claim(busy...)
	require.Len(t, due, 1)
	require.Equal(t, newer, due[0].Task)
	f.clear()
}

// A process finds webhooks that another one parks, although nothing was parked at its last look.
func TestWebhooksParkedByAnotherProcessAreFound(t *testing.T) {
	f := parallel(t)
	f.ended(fresh("a"), "host")
	require.Empty(t, f.duePushes(1, "host:80"))
	f.lanes.empty.until = time.Now().Add(time.Hour) // the look is as good as now
	require.Equal(t, 1, scan[int](f, "SELECT holdfast.push_park(2000, '{host:80}', '{}')"))
	due, next := f.claimPushes(PushClaim{})
	require.Empty(t, due)
	require.Equal(t, laneTime, next)
	f.lanes.empty.until = time.Now().Add(-laneTime)
	require.Len(t, f.duePushes(32), 1)
}

// All deliveries read at the same time, so each read is bounded in bytes, by the length of what the process keeps.
func TestReadsAreBoundedInBytes(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	f.setPush(p.c.Task.ID, hook("hook", "host"))
	text := strings.Repeat("a", pushBytes/3)
	for _, text := range []string{text, text, text, strings.Repeat(text, 12), "b", "c"} {
		e := status(task.StateWorking)
		e.Message = &task.Message{ID: "m", Role: task.RoleAgent, Parts: []task.Part{task.Text(text)}}
		p.must(t, e)
	}
	d := f.duePushes(1)[0]
	require.Nil(t, d.ahead)
	for _, everything := range []bool{false, true} {
		var seqs []task.Seq
		var pages []int
		for from := task.Seq(2); from <= 7; {
			page := storetest.Must(f.ReadPush(t.Context(), d, PushRange{From: from, Everything: everything, Limit: 4}))(t)
			require.Equal(t, int(min(4, 8-from)), page.Found, "of the range, and not only of the page")
			pages = append(pages, len(page.Events))
			for _, e := range page.Events {
				seqs = append(seqs, e.Seq)
				from = e.Seq + 1
			}
		}
		require.Equal(t, []task.Seq{2, 3, 4, 5, 6, 7}, seqs)
		require.Equal(t, []int{2, 1, 1, 2}, pages)
	}
	// An event that is too large is read without its content.
	r := PushRange{From: 5, MaxEvent: int64(len(text)) + 1000}
	page := storetest.Must(f.ReadPush(t.Context(), d, r))(t)
	require.True(t, page.Large)
	require.Len(t, page.Events, 1)
	require.Equal(t, task.StateWorking, page.Events[0].State)
	require.Nil(t, page.Events[0].Message)
	r.From = 2
	page = storetest.Must(f.ReadPush(t.Context(), d, r))(t)
	require.False(t, page.Large)
	require.Len(t, page.Events, 1, "no page has more than an event may have")
	require.NotNil(t, page.Events[0].Message)
}

// An event that is too large has what it adds to its task, if that fits.
func TestLargeStatusesHaveTheirMetadata(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	f.setPush(p.c.Task.ID, hook("hook", "host"))
	e := status(task.StateCompleted)
	e.Message, e.Direct, e.Metadata = user(strings.Repeat("x", 2000)), true, []byte(`{"n":1.0,"x":"`+strings.Repeat("x", 900)+`"}`)
	p.must(t, e)
	d := f.duePushes(1)[0]
	d.ahead = nil
	for most, has := range map[int64]bool{1000: true, 800: false} {
		page := storetest.Must(f.ReadPush(t.Context(), d, PushRange{From: d.Next, MaxEvent: most}))(t)
		got := page.Events[0]
		require.True(t, page.Large)
		require.Equal(t, has, !page.Bare)
		require.Equal(t, has, got.Direct)
		require.Nil(t, got.Message)
		if has {
			require.Equal(t, string(e.Metadata), string(got.Metadata))
		}
	}
}

// timesOut is a statement that fails as one for which the database needs too long.
const timesOut = "DO $$ BEGIN RAISE EXCEPTION 'as by statement_timeout' USING ERRCODE = '57014'; END $$"

// slowReads is a database that needs too long for more than some rows.
type slowReads struct {
	dbsqlc.DBTX
	rows  int32
	tried []int32
}

func (s *slowReads) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows := args[6].(int32) // as PushLog binds it
	s.tried = append(s.tried, rows)
	if rows > s.rows {
		return s.DBTX.Query(ctx, timesOut) //nolint:rowserrcheck // the reader of the rows checks it
	}
	return s.DBTX.Query(ctx, sql, args...) //nolint:rowserrcheck // as above
}

// A page that takes too long would take too long at each retry, too.
func TestReadsThatTakeTooLongBecomeSmaller(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	f.setPush(p.c.Task.ID, hook("hook", "host"))
	p.must(t, status(task.StateWorking), status(task.StateWorking))
	d := f.duePushes(1)[0]
	c := f.conn()
	row := storetest.Must(f.q.TaskByID(t.Context(), c, uuid.UUID(d.Task)))(t)
	d.knows(&row)
	arg := dbsqlc.PushLogParams{Task: uuid.UUID(d.Task), FromSeq: 2, Upto: 3, MaxRows: 64, MaxBytes: pushBytes, MaxFirst: pushBytes}
	slow := &slowReads{DBTX: c, rows: 5}
	page := storetest.Must(f.pushPage(t.Context(), slow, d, arg))(t)
	require.Equal(t, []int32{64, 4}, slow.tried)
	require.Len(t, page.Events, 2)

	slow = &slowReads{DBTX: c}
	_, err := f.pushPage(t.Context(), slow, d, arg)
	require.Equal(t, []int32{64, 4, 1}, slow.tried)
	require.Equal(t, task.Internal, task.KindOf(err), "a failure of the webhook: it must not wait for ever")
	require.ErrorContains(t, err, "event 2 takes too long")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.pushPage(ctx, slow, d, arg)
	require.Equal(t, task.Unavailable, task.KindOf(err), "the server stops")
}

// Events that are read with a claim stay in memory until its turn, so large ones are not.
func TestLargeEventsAreNotReadAhead(t *testing.T) {
	f := parallel(t)
	random := make([]byte, aheadBytes)
	_, _ = rand.Read(random)
	for _, of := range []struct {
		name, text string
		ahead      bool
	}{
		{"small", "text", true},
		{"stored small", strings.Repeat("x", aheadBytes), false},
		{"stored large", base64.StdEncoding.EncodeToString(random), false},
	} {
		p := f.running(of.name)
		f.setPush(p.c.Task.ID, hook("hook", "host"))
		e := status(task.StateWorking)
		e.Message = user(of.text)
		p.must(t, e)
		due := f.duePushes(10)
		require.Len(t, due, 1, of.name)
		if of.ahead {
			waittest.Eventually(t, "a read ahead is in time", func() error {
				if due[0].ahead == nil {
					f.exec("UPDATE holdfast.push_cursors SET due_at = now(), claim = NULL, worker_id = NULL, locked_until = NULL")
					due = f.duePushes(10)
				}
				return waittest.Unless(due[0].ahead != nil, "too late")
			})
		}
		require.Equal(t, of.ahead, due[0].ahead != nil, of.name)
		_, events := f.wanted(due[0], 10)
		require.Len(t, events, 1, of.name)
		require.Equal(t, of.text, events[0].Message.FirstText(), of.name)
	}
}

// Claims do not wait for clients that have all connections.
func TestClaimsDoNotWaitForReadsAhead(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	f.setPush(p.c.Task.ID, hook("hook", "host"))
	p.must(t, status(task.StateWorking))
	for range f.api.Config().MaxConns {
		c := storetest.Must(f.api.Acquire(t.Context()))(t)
		defer c.Release()
	}
	due, _ := must2(f.ClaimPush(waittest.Context(t), &PushClaim{Worker: NewID(), Limit: 10, PerHost: 8, PerCaller: 32, Lock: time.Hour}))(t)
	require.Len(t, due, 1)
	require.Nil(t, due[0].ahead)
}

// There may be more lanes than one look reads. The next look continues behind them.
func TestLanesAreReadInTurn(t *testing.T) {
	f := parallel(t)
	n := fresh("a")
	n.Task.Tenant, n.Task.Owner = "", ""
	f.ended(n, "last")
	var busy []string
	for i := range 2 * laneRows {
		busy = append(busy, fmt.Sprintf("failing%d:80", i+1))
	}
	f.backlog(2*laneRows, "'failing' || i || ':80'", "0", "now()")
	f.exec("UPDATE holdfast.push_cursors SET parked = true")
	for range 2 {
		for range 2 {
			due, next := f.claimPushes(PushClaim{BusyHosts: busy})
			require.Empty(t, due)
			require.Equal(t, laneTime, next)
		}
		due, next := f.claimPushes(PushClaim{BusyHosts: busy})
		require.Len(t, due, 1)
		require.Equal(t, laneTime, next)
		f.exec("UPDATE holdfast.push_cursors SET parked = true, due_at = now(), claim = NULL, worker_id = NULL, locked_until = NULL WHERE config_id = 'hook'")
	}
	f.clear()
}

// A write that waits for the task while a configuration is set began before the configuration existed.
func TestNoEventFallsBetweenASetAndAnAppend(t *testing.T) {
	f := parallel(t)
	for name, write := range map[string]func(p *pen){
		"append": func(p *pen) { p.must(t, status(task.StateWorking)) },
		"cancel": func(p *pen) {
			require.True(t, storetest.Must(f.Cancel(t.Context(), p.c.Task, nil))(t))
		},
		"message": func(p *pen) {
			f.ok(f.AddMessage(t.Context(), &NewMessage{Task: p.c.Task, Message: user("x"), Enqueue: true, RequestID: NewID()}))
		},
	} {
		p := f.running(name)
		id := p.c.Task.ID
		if name != "append" {
			p.must(t, status(task.StateInputRequired))
		}
		tx := storetest.Must(f.conn().Begin(t.Context()))(t)
		f.ok(f.Store.setPush(t.Context(), tx, id, hook("c", "h"), nil, 20))
		done := make(chan struct{})
		go func() {
			defer close(done)
			write(p)
		}()
		if name == "append" {
			f.retries("append")
		} else {
			f.blocked(1)
		}
		require.NoError(t, tx.Commit(t.Context()))
		waittest.Within(t, "the answer", done)
		k := f.cursor(id, "c")
		require.False(t, k.DueAt.IsZero(), name)
		h := storetest.Must(f.Header(t.Context(), id))(t)
		require.Equal(t, h.Status.Seq, k.Upto, name)
		f.exec("DELETE FROM holdfast.push_cursors; DELETE FROM holdfast.push_configs; UPDATE holdfast.tasks SET pushes = false")
	}
}

// The later one of a mark and a record sees the other.
func TestNoMarkIsLostToARecord(t *testing.T) {
	f := parallel(t)
	for _, first := range []string{"mark", "record"} {
		p := f.running(first)
		id := p.c.Task.ID
		f.setPush(id, hook("c", "h"))
		p.must(t, status(task.StateWorking))
		due := f.duePushes(5)
		require.Len(t, due, 1)

		// Both wait for the same row, in this order.
		tx := storetest.Must(f.conn().Begin(t.Context()))(t)
		f.ok(tx.Exec(t.Context(), "SELECT FROM holdfast.push_cursors WHERE task = $1 FOR UPDATE", uuid.UUID(id)))
		var wg sync.WaitGroup
		mark := func() { p.must(t, status(task.StateWorking)) }
		record := func() {
			ours, _ := must2(f.RecordPush(t.Context(), delivered(due[0], 2)))(t)
			require.True(t, ours)
		}
		order := []func(){mark, record}
		if first == "record" {
			order = []func(){record, mark}
		}
		for i, do := range order {
			wg.Go(do)
			f.blocked(i + 1)
		}
		require.NoError(t, tx.Rollback(t.Context()))
		wg.Wait()
		due = f.duePushes(5)
		require.Len(t, due, 1, first)
		require.EqualValues(t, 3, due[0].Next)
		require.EqualValues(t, 3, due[0].Upto)
	}
}

// Records lock several cursors in the order of their keys. Marks do so, too, or they would wait for each other.
func TestMarksLockInTheOrderOfKeys(t *testing.T) {
	f := parallel(t)
	var ids []uuid.UUID
	for range 3 {
		ids = append(ids, uuid.UUID(f.create(fresh("a")).ID))
	}
	// In the table they are in the opposite order.
	for _, id := range slices.Backward(ids) {
		for _, c := range []string{"y", "x"} {
			f.setPush(task.ID(id), hook(c, "h"))
		}
	}
	f.exec("ANALYZE holdfast.push_cursors") // it is small: read as it lies, were it for the planner
	tx := storetest.Must(f.conn().Begin(t.Context()))(t)
	f.ok(tx.Exec(t.Context(), "SELECT FROM holdfast.push_cursors WHERE task = $1 AND config_id = 'x' FOR UPDATE", ids[0]))
	marking, done := f.conn(), make(chan error)
	go func() {
		var n int
		err := marking.QueryRow(t.Context(), "SELECT holdfast.push_mark($1, $2, $2)", ids, []int64{7, 8, 9}).Scan(&n)
		if err == nil && n != 6 {
			err = fmt.Errorf("%d are marked", n)
		}
		done <- err
	}()
	f.blocked(1)
	require.Equal(t, 5, scan[int](f, "SELECT count(*) FROM (SELECT FROM holdfast.push_cursors FOR UPDATE SKIP LOCKED) k"), "the mark has locked no other row")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, waittest.Within(t, "the answer", done))
	require.Equal(t, "7,7,8,8,9,9", scan[string](f, "SELECT string_agg(due_seq::text, ',' ORDER BY task, config_id) FROM holdfast.push_cursors"))
	f.exec("UPDATE holdfast.push_cursors SET due_seq = 0, due_at = NULL, due_since = NULL")
}

// A claim skips a configuration that is set again between its look and its lock: it would deliver to the old URL.
func TestAClaimSkipsAConfigurationThatIsSetAgain(t *testing.T) {
	f := parallel(t)
	h := f.create(fresh("a"))
	f.setPush(h.ID, hook("c", "old"))
	f.ok(f.Cancel(t.Context(), h, nil))
	held := func(sql string, args ...any) pgx.Tx {
		tx := storetest.Must(f.conn().Begin(t.Context()))(t)
		f.ok(tx.Exec(t.Context(), sql, args...))
		return tx
	}
	// SetPush begins before the claim, so the new configuration is due by then, too.
	begun, looked := held("SELECT FROM holdfast.tasks FOR UPDATE"), held("SELECT pg_advisory_xact_lock(1)")
	set, done := make(chan error, 1), make(chan error, 1)
	go func() { set <- f.SetPush(t.Context(), h.ID, hook("c", "new"), 20) }()
	f.blocked(1)
	claimed, claims := 0, f.conn() // without the limits of the pools
	go func() {
		rows, err := f.q.PushClaim(t.Context(), betweenLookAndLock{claims}, dbsqlc.PushClaimParams{
			WindowRows: 10, PerHost: 8, PerCaller: 32, MaxRows: 10, LaneCallers: []int64{}, LaneHosts: []string{},
			BusyHosts: []string{}, BusyCallers: []int64{}, Worker: uuid.New(), Lock: time.Hour,
		})
		claimed = len(rows)
		done <- err
	}()
	f.blocked(2)
	require.NoError(t, begun.Rollback(t.Context()))
	require.NoError(t, waittest.Within(t, "the set", set))
	require.NoError(t, looked.Rollback(t.Context()))
	require.NoError(t, waittest.Within(t, "the answer", done))
	require.Zero(t, claimed)
	due := f.duePushes(1)
	require.Len(t, due, 1)
	require.Equal(t, "new:80", due[0].Config.Host)
	require.Equal(t, "http://new/hook", due[0].Config.URL)
}

// betweenLookAndLock makes a claim wait there for an advisory lock.
type betweenLookAndLock struct{ dbsqlc.DBTX }

func (b betweenLookAndLock) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	const mine, ready = "), mine AS MATERIALIZED (", "FROM ready\n             WHERE "
	if strings.Count(sql, mine) != 1 || strings.Count(sql, ready) != 1 {
		return nil, fmt.Errorf("a claim looks different: %s", sql)
	}
	sql = strings.Replace(sql, mine, "), held AS MATERIALIZED (SELECT pg_advisory_xact_lock(1) FROM ready"+mine, 1)
	return b.DBTX.Query(ctx, strings.Replace(sql, ready, ready+"(SELECT count(*) FROM held) > 0 AND ", 1), args...) //nolint:rowserrcheck // who asks does
}

// Processes that claim at the same time win each webhook once.
func TestClaimsOfManyProcesses(t *testing.T) {
	f := parallel(t)
	const hooks = 60
	for range hooks {
		f.ended(fresh("a"), "host")
	}
	var mu sync.Mutex
	won := map[task.ID]int{}
	var g errgroup.Group
	for range 4 {
		s := open(t, Options{URL: f.url, APIConns: 3})
		g.Go(func() error {
			for left := true; left; {
				due, _, err := s.ClaimPush(t.Context(), &PushClaim{Worker: NewID(), Limit: 4, PerHost: 8, PerCaller: 32, Lock: time.Hour})
				if err != nil {
					return err
				}
				mu.Lock()
				for _, d := range due {
					won[d.Task]++
				}
				left = len(won) < hooks
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	for id, n := range won {
		require.Equal(t, 1, n, id)
	}
}

// Webhooks of an id go to its new task, and still get the events of the old one that were due.
func TestWebhooksGoWithAnIDThatIsReopened(t *testing.T) {
	f := parallel(t)
	old := chosen("a", "t")
	old.Push = hook("t", "replaced")
	f.create(old)
	kept := hook("kept", "kept")
	kept.Token = "secret"
	f.setPush(old.Task.ID, kept)
	f.setPush(old.Task.ID, hook("dead", "dead"))
	f.exec("UPDATE holdfast.push_cursors SET disabled_at = now(), disabled_for = 'gone', due_at = NULL WHERE config_id = 'dead'")
	require.True(t, storetest.Must(f.Cancel(t.Context(), &old.Task, nil))(t))

	fresh := chosen("a", "t")
	fresh.Reopens, fresh.Push = &old.Task, hook("t", "new")
	fresh.Push.Token = "another secret"
	f.create(fresh)
	require.True(t, storetest.Must(f.Cancel(t.Context(), &fresh.Task, nil))(t))
	told := map[string]string{}
	for _, d := range f.duePushes(10) {
		told[d.Task.String()+" "+d.Config.URL] = d.Config.Token
		require.Equal(t, "t", d.PublicID, "the receiver knows no other id")
		require.Equal(t, hostOf(d.Config.URL), d.Config.Host)
		h, evs := f.wanted(d, 10)
		require.NotEmpty(t, evs)
		require.Equal(t, "t", h.PublicID)
		p := storetest.Must(f.ReadPush(t.Context(), d, PushRange{Upto: d.Upto, Everything: true}))(t)
		require.Equal(t, "t", p.Header.PublicID)
		require.Equal(t, "t", p.Events[0].Message.TaskID)
	}
	require.Equal(t, map[string]string{
		old.Task.ID.String() + " http://replaced/hook": "", old.Task.ID.String() + " http://kept/hook": "secret",
		fresh.Task.ID.String() + " http://new/hook": "another secret", fresh.Task.ID.String() + " http://kept/hook": "secret",
	}, told)

	again := chosen("a", "t")
	again.Reopens = &fresh.Task
	f.create(again)
	require.Len(t, storetest.Must(f.Pushes(t.Context(), again.Task.ID))(t), 2, "also without one in the message")

	// A webhook that is set for the old task afterwards knows it by its UUID.
	f.setPush(old.Task.ID, hook("kept", "kept"))
	f.setPush(old.Task.ID, hook("late", "late"))
	for _, id := range []string{"kept", "late"} {
		must2(f.Redeliver(t.Context(), old.Task.ID, id, 1))(t)
	}
	for _, d := range f.duePushes(10) {
		require.Equal(t, old.Task.ID.String(), d.PublicID, d.Config.ID)
		require.Contains(t, []string{"kept", "late"}, d.Config.ID)
	}
}
