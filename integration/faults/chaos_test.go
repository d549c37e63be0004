package faults

import (
	"context"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
	"github.com/holdfast-a2a/holdfast/internal/test/judgetest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Each fault hits a cluster under load. By default each does so once, and each group has a cluster of its own; with -chaos all
// run on one cluster, again and again. After each, the load stops, and the answers that clients got are compared with the log.

var (
	chaosFor    = flag.Duration("chaos", 0, "run TestChaos for so long, on one cluster, instead of each fault once")
	chaosOnly   = flag.String("chaos.only", "", "only the faults whose names match this regular expression")
	chaosSeed   = flag.Uint64("chaos.seed", 0, "seed of the order and the load; 0 takes one from the clock")
	chaosReport = flag.String("chaos.report", "", "write the table of results to this file, too")
	chaosKeep   = flag.String("chaos.keep", "", "after a failure, write whole logs and a dump of the database to this directory")
)

// chaotic clustertest.Settings allow any number of lost attempts, so only a client's request may end a task.
// Retention deletes a task two minutes after its end, and the judge reads it in the export, whose directory is added.
// The addresses of the agent behind HTTP, of the model and of the server behind the front, and the path of the command, are
// added, too.
const chaotic = `
listen: 127.0.0.1:0
grpc_listen: off
admin_listen: 127.0.0.1:0
limits: {max_block: 20s}
worker: {lease_ttl: 3s, stop_grace: 1s}
store: {pool_size: 4}
retention: {tasks: 2m, export_directory: EXPORTS}
agents:
  - name: demo
    executor: {kind: demo}
    limits: {backoff: 100ms, cancel_grace: 5s, max_attempts: 1000}
  - name: helper
    executor: {kind: demo}
    limits: {backoff: 100ms, max_attempts: 1000}
  - name: remote
    executor: {kind: http, http: {url: "http://AGENT/", cancel_url: "http://AGENT/cancel", header_timeout: 1s}}
    limits: {backoff: 100ms, max_attempts: 1000}
  - name: front
    executor: {kind: a2a, a2a: {url: "http://BEHIND"}}
    limits: {backoff: 100ms, max_attempts: 1000}
  - name: command
    executor: {kind: command, command: {argv: [PROGRAM, '{"type": "complete"}']}}
    limits: {backoff: 100ms, max_attempts: 1000}
  - name: model
    executor: {kind: openai, openai: {base_url: "http://MODEL/v1", model: small, api_key: key}}
    limits: {backoff: 100ms, max_attempts: 1000}
  - name: far
    executor: {kind: worker, worker: {lease: 3s}}
    limits: {backoff: 100ms, cancel_grace: 5s, max_attempts: 1000}
`

// fault is done to a cluster. The function ends it before it returns.
type fault struct {
	name  string
	group string // of faults that have a cluster together in the short form
	do    func(*rig)
}

// wrongClocks needs a server binary of its own.
const wrongClocks = "clocks an hour ahead and behind"

// ofStandbys is the group that needs PostgreSQL's pg_basebackup.
const ofStandbys = "standbys"

var faults = []fault{
	{"kill -9 of each replica in turn", "replicas", (*rig).killReplicas},
	{"kill -9 of all replicas", "replicas", (*rig).killAll},
	{"each replica stopped in turn", "replicas", (*rig).stopReplicas},
	{"a worker frozen past its lease", "replicas", (*rig).freeze},
	{"a replica refused by the database", "replicas", (*rig).refuse},
	{"a replica whose packets are dropped", "replicas", (*rig).stall},
	{"a replica with a slow database", "replicas", (*rig).delay},
	{"listeners terminated in a loop", "database", func(c *rig) { c.terminate("holdfast listener") }},
	{"writers terminated in a loop", "database", func(c *rig) { c.terminate("holdfast") }},
	{"PostgreSQL shut down immediately", "database", (*rig).crashDatabase},
	{"NOTIFY refused", "database", (*rig).refuseNotify},
	{"connections cut in the commit", "database", (*rig).cutCommits},
	{"connections half-closed", "connections", (*rig).halfClose},
	{wrongClocks, "connections", (*rig).wrongClocks},
	{"an agent away", "agents", (*rig).leaveAgent},
	{"a command and a model away", "agents", (*rig).leaveOthers},
	{"the server behind a front killed and cut off", "agents", (*rig).breakBehind},
	{"kill -9 of each remote worker in turn", "workers", (*rig).killRemotes},
	{"remote workers frozen past their leases", "workers", (*rig).freezeRemotes},
	{"remote workers cut off and led to other replicas", "workers", (*rig).cutRemotes},
	{"remote workers replaced", "workers", (*rig).replaceRemotes},
	{"kill -9 of a replica and a remote worker", "workers", (*rig).killBoth},
	{"failover from a primary that dies", ofStandbys, func(c *rig) { c.failover(false) }},
	{"failover from a silent primary", ofStandbys, func(c *rig) { c.failover(true) }},
	{"a name that moves to the standby", ofStandbys, (*rig).moveName},
	{"failover that loses commits", ofStandbys, (*rig).loseCommits},
	{"a backup restored", ofStandbys, (*rig).restore},
}

func TestChaos(t *testing.T) {
	t.Parallel()
	if *chaosFor > 0 {
		_, err := storetest.Basebackup(t.Context())
		unleash(t, rigOptions{clients: 16, standby: err == nil}, slices.Clone(faults))
		return
	}
	for _, group := range []string{"replicas", "database", "connections", "agents", "workers"} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			once(t, group)
		})
	}
}

// once does each fault of a group once.
func once(t *testing.T, group string) {
	t.Helper()
	if *chaosFor > 0 {
		t.Skip("they are part of TestChaos")
	}
	if _, err := storetest.Basebackup(t.Context()); group == ofStandbys && err != nil {
		t.Skip(err)
	}
	o := rigOptions{clients: 6, settings: map[string]string{"fsync": "off"}, standby: group == ofStandbys}
	if group == "workers" {
		o.api = "c"
	}
	unleash(t, o, slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return f.group != group }))
}

// seeded logs the seed of a test; 0 stands for a new one.
func seeded(t *testing.T, seed uint64) uint64 {
	t.Helper()
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	return seed
}

// unleash runs those of the faults that this machine can have and that the flag names.
func unleash(t *testing.T, o rigOptions, all []fault) {
	t.Helper()
	only := regexp.MustCompile(*chaosOnly)
	all = slices.DeleteFunc(all, func(f fault) bool { return f.group == ofStandbys && !o.standby || !only.MatchString(f.name) })
	if len(all) == 0 {
		t.Skip("-chaos.only names none of these")
	}
	if slices.ContainsFunc(all, func(f fault) bool { return f.name == wrongClocks }) {
		clustertest.OffClock(t) // builds for a while; no cluster need wait for it
	}
	o.names, o.config, o.seed = []string{"a", "b", "c"}, chaotic, seeded(t, *chaosSeed)
	c := newRig(t, o)
	defer c.keep()
	c.run(all, *chaosFor)
	c.load.end() // before the standbys, which end first, are gone
	t.Log("\n" + c.table())
	if *chaosReport != "" {
		require.NoError(t, os.WriteFile(*chaosReport, []byte(c.table()), 0o644))
	}
}

// run does the faults in random orders: each once, or again and again for a time.
func (c *rig) run(all []fault, long time.Duration, after ...func()) {
	c.t.Helper()
	for began := time.Now(); ; {
		for _, i := range c.rng.Perm(len(all)) {
			c.round(all[i], after...)
			if long > 0 && time.Since(began) > long {
				return
			}
		}
		if long == 0 {
			return
		}
	}
}

// keep writes what explains a failure.
func (c *rig) keep() {
	dir := *chaosKeep
	if !c.t.Failed() || dir == "" {
		return
	}
	require.NoError(c.t, os.MkdirAll(dir, 0o755))
	write := func(name string, content []byte) {
		require.NoError(c.t, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	for _, r := range c.servers() {
		write(r.Name+".log", []byte(r.Log()))
	}
	for i, r := range c.remotes {
		write(fmt.Sprintf("remote-%d.log", i+1), []byte(r.said()))
	}
	write("database.sql", []byte(c.pg.Shell(`pg_dump --dbname="$DATABASE" --schema=holdfast`, "DATABASE="+c.pg.URL)))
}

// rig is the cluster under test: a PostgreSQL of its own, three replicas with a proxy each, and their clients. An agent of
// the replicas is a front of one more server, which has another database.
type rig struct {
	t        *testing.T
	pg       *storetest.PrivateServer
	db       *pgxpool.Pool        // directly to the database
	proxies  []*pgproxytest.Proxy // one for each replica
	spares   []*pgproxytest.Proxy // to the standby, or to no server
	replicas []*clustertest.Replica
	agent    *agent
	model    *agent
	program  string // of the agent that is a command
	behind   *clustertest.Replica
	behindDB *clustertest.DB
	link     *clustertest.Proxy // to behind
	remotes  []*remote
	load     *load
	exports  string    // directory of the exports of retention
	spared   int       // so many of the replicas and of the remote workers, the first ones, live as long as the rig
	since    time.Time // the judge compares the tasks from then on
	earlier  *era      // the time before; nil for the first one
	rng      *mathrand.Rand
	scraped  map[*clustertest.Replica]counters
	total    counters
	past     counters // of earlier eras, what the ledger and the database have forgotten
	rows     []*results
}

// era is a time whose tasks have a ledger of their own.
type era struct {
	since, until time.Time
	ledger       *judge.Ledger
}

// rigOptions say how to start a rig.
type rigOptions struct {
	names    []string // of the replicas
	config   string
	seed     uint64
	settings map[string]string // of PostgreSQL
	clients  int
	standby  bool   // the cluster may fail over: the replicas' URL has a second host
	spared   int    // see rig
	api      string // a replica that serves clients and runs nothing
	hooks    *hooks // receives webhooks; nil: clients set none
}

// newRig starts a cluster with its clients.
func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	c := &rig{
		t: t, agent: newAgent(t), rng: mathrand.New(mathrand.NewPCG(o.seed, 0)), scraped: map[*clustertest.Replica]counters{},
		spared: o.spared,
	}
	c.use(storetest.Server(t, o.settings))
	c.behindDB = clustertest.NewDB(t)
	c.behind = clustertest.Start(t, clustertest.Options{Name: "behind", DB: c.behindDB.URL, Config: clustertest.Settings})
	c.link = clustertest.NewProxy(t, a2atest.Host(c.behind.URL))
	echo, err := exec.LookPath("echo") // a script that moves while it starts is an agent that fails
	require.NoError(t, err)
	c.model, c.program = newModel(t), filepath.Join(t.TempDir(), "echo")
	require.NoError(t, os.Symlink(echo, c.program))
	exports := t.TempDir()
	config := strings.NewReplacer("EXPORTS", exports, "AGENT", c.agent.addr, "MODEL", c.model.addr, "PROGRAM", c.program, "BEHIND", c.link.Addr).Replace(o.config)
	var all []clustertest.Options
	for _, name := range o.names {
		proxy := pgproxytest.New(t, c.pg.URL)
		c.proxies = append(c.proxies, proxy)
		db := proxy.URL
		if o.standby {
			spare := pgproxytest.New(t, c.pg.URL)
			spare.Refuse(true)
			c.spares = append(c.spares, spare)
			db = storetest.Hosts(proxy.URL, spare.URL)
		}
		env := []string{"HOLDFAST_LOG_LEVEL=info"}
		if name == o.api {
			env = append(env, "HOLDFAST_ROLES=api")
		}
		if o.hooks != nil {
			addr := nettest.Reserve(t)
			env = append(env, "HOLDFAST_GRPC_LISTEN="+addr, "HOLDFAST_PUBLIC_GRPC_ADDRESS="+addr)
		}
		all = append(all, clustertest.Options{Name: name, DB: db, Config: config, Env: env})
	}
	c.replicas = clustertest.Together(t, all...)
	var urls []string
	for _, r := range c.replicas {
		urls = append(urls, r.URL)
	}
	c.agent.urls = urls
	c.remotes = newRemotes(t, c.replicas)
	c.load = newLoad(t, o.seed, urls...)
	c.exports, c.load.agent, c.load.hooks = exports, c.agent, o.hooks
	c.load.start(o.clients)
	return c
}

// round injects a fault, waits for recovery, and checks that nothing was lost. Then, while no client runs, it calls the others.
func (c *rig) round(f fault, after ...func()) {
	c.t.Helper()
	c.t.Logf("%s …", f.name)
	row := c.row(f.name)
	began, before := time.Now(), c.sum()
	c.progress(len(c.replicas))
	f.do(c)
	whole := time.Now()
	for _, r := range c.replicas {
		c.recovered(r)
	}
	row.recovery = max(row.recovery, time.Since(whole))
	c.sql("UPDATE holdfast.cancel_notices SET due_at = now() WHERE due_at > now()") // the pause after some tries is a minute
	resume := c.load.pause()
	defer resume()
	waittest.Eventually(c.t, "what clients have canceled has ended", func() error {
		n := query[int](c, "SELECT count(*) FROM holdfast.task_queue")
		return waittest.Unless(n == 0, "%d tasks wait or run", n)
	})
	c.judge()
	row.times++
	row.took += time.Since(began)
	did := c.sum().minus(before)
	row.counters = row.plus(did)
	c.t.Logf("%s: %.0f s, %+v", f.name, time.Since(began).Seconds(), did)
	for _, also := range after {
		also()
	}
}

// recovered waits until a replica works again without a restart: it is ready, and it answers.
func (c *rig) recovered(r *clustertest.Replica) {
	c.t.Helper()
	if how, ended := r.Ended(); ended {
		require.FailNow(c.t, r.Name+" exited", how)
	}
	r.WaitReady()
	waittest.Eventually(c.t, r.Name+" serves", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		a, err := a2atest.Ask(ctx, r.URL+"/", a2atest.Request("tasks/get", object{"id": "nobody"}))
		if err != nil {
			return err
		}
		return waittest.Unless(a.Error != nil && a.Error.Code == -32001, "%s", a.Body)
	})
}

// judge compares the ledger with the log. No client is running.
func (c *rig) judge() {
	c.t.Helper()
	require.NoError(c.t, c.load.troubles())
	present := era{since: c.since, ledger: c.load.ledger}
	for _, e := range []*era{c.earlier, &present} {
		if e != nil {
			d := judgetest.Database{URL: c.pg.URL, Exports: c.exports, Since: e.since, Until: e.until}
			require.NoError(c.t, d.CheckAtRest(context.Background(), e.ledger))
		}
	}
	c.behindDB.Sound()
	require.Equal(c.t, c.load.fronted.Load(), clustertest.One[int64](c.behindDB, "SELECT count(*) FROM holdfast.v_tasks"),
		"the server behind the front got each message once")
}

// progress waits until clients have finished n more operations.
func (c *rig) progress(n int) {
	c.t.Helper()
	for range n {
		before := c.load.done.Load()
		waittest.Eventually(c.t, "clients make progress", func() error { return waittest.Unless(c.load.done.Load() > before, "no operation ended") })
	}
}

// servers are the replicas, and the server behind the front.
func (c *rig) servers() []*clustertest.Replica { return append(slices.Clone(c.replicas), c.behind) }

// mortal are the replicas that faults may kill.
func (c *rig) mortal() []*clustertest.Replica { return c.replicas[c.spared:] }

// mortalRemotes are the remote workers that faults may kill.
func (c *rig) mortalRemotes() []*remote { return c.remotes[c.spared:] }

// victim is one of the replicas.
func (c *rig) victim() (*clustertest.Replica, *pgproxytest.Proxy) {
	i := c.rng.IntN(len(c.replicas))
	return c.replicas[i], c.proxies[i]
}

// sql runs a statement on the database, not through a proxy.
func (c *rig) sql(statement string, args ...any) {
	c.t.Helper()
	waittest.Eventually(c.t, statement, func() error {
		_, err := c.db.Exec(context.Background(), statement, args...)
		return err
	})
}

func query[T any](c *rig, statement string, args ...any) (v T) {
	c.t.Helper()
	waittest.Eventually(c.t, statement, func() error {
		return c.db.QueryRow(context.Background(), statement, args...).Scan(&v)
	})
	return v
}

// use makes a server that of the rig.
func (c *rig) use(s *storetest.PrivateServer) {
	c.t.Helper()
	db, err := pgxpool.New(context.Background(), s.URL) // which connects again when it has lost a connection
	require.NoError(c.t, err)
	c.t.Cleanup(db.Close)
	c.pg, c.db = s, db
}

// outcomes counts the runs of a process with an outcome, since a moment. On a stalled machine, any replica may lose some.
// Retention deletes older ones.
func (c *rig) outcomes(pid int, outcome string, since time.Time) int {
	c.t.Helper()
	return query[int](c, `SELECT count(*) FROM holdfast.task_events e JOIN holdfast.processes p ON p.id = e.worker_id
		WHERE e.kind = 4 AND e.payload ->> 'outcome' = $3 AND e.created_at >= $1 AND p.name LIKE '%/' || $2::text`,
		since, strconv.Itoa(pid), outcome)
}

// rescued waits until others have taken the runs of a replica.
func (c *rig) rescued(r *clustertest.Replica, since time.Time) {
	c.t.Helper()
	waittest.Eventually(c.t, "other workers rescue the runs of "+r.Name, func() error {
		return waittest.Unless(c.outcomes(r.PID(), "lost", since) > 0, "no run was lost")
	})
}

// now is the time of the database.
func (c *rig) now() time.Time { c.t.Helper(); return query[time.Time](c, "SELECT now()") }

// The faults.

// killReplicas kills each replica, and starts it again when clients have made progress without it.
func (c *rig) killReplicas() {
	for _, r := range c.mortal() {
		c.kill(r)
		c.progress(len(c.replicas)) // while it is down
		r.Run()
	}
}

// killAll kills all replicas at once: timers, calls, cancels and runs outlive every process.
func (c *rig) killAll() {
	for _, r := range c.mortal() {
		c.kill(r)
	}
	for _, r := range c.mortal() {
		r.Options.Async = true
		r.Run()
		r.Options.Async = false
	}
	for _, r := range c.mortal() {
		r.WaitServing()
	}
}

// kill kills a replica, whose counters die with it.
func (c *rig) kill(r *clustertest.Replica) {
	c.scrape(r)
	delete(c.scraped, r)
	r.Kill()
}

// stopReplicas stops each replica as an operator would, in the middle of runs that take longer than its grace. It returns these,
// and ends their streams and its lease. A stalled machine may take the runs before, so there is more than one try.
func (c *rig) stopReplicas() {
	for _, r := range c.mortal() {
		for try, returned := 1, 0; returned == 0; try++ {
			require.Less(c.t, try, 5, "%s returned no run", r.Name)
			reading, pid, began := c.devoted(r), r.PID(), c.now()
			c.restart(r, r.Options)
			require.Zero(c.t, query[int](c, "SELECT count(*) FROM holdfast.workers WHERE name LIKE '%/' || $1::text", strconv.Itoa(pid)), "leases")
			returned = c.outcomes(pid, "returned", began)
			c.finish(r, reading)
		}
	}
}

// terminate ends the sessions of a kind, again and again.
func (c *rig) terminate(application string) {
	ended, began := 0, time.Now()
	for want := c.load.done.Load() + 20; c.load.done.Load() < want || ended < 20; {
		ended += query[int](c, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE application_name = $1 AND datname = current_database()`, application)
		// They reconnect meanwhile. On a busy machine a transaction may take longer than the first pauses, and none would ever end.
		time.Sleep(time.Duration(20+c.rng.IntN(300))*time.Millisecond + time.Since(began)/10)
	}
}

func (c *rig) crashDatabase() {
	c.pg.Crash()
	time.Sleep(time.Duration(c.rng.IntN(2000)) * time.Millisecond) // clients get errors
	c.pg.Start()
}

// freeze stops a process past its lease, while clients stay connected. Its late writes must be refused and counted,
// and its streams must continue with the events of other workers.
func (c *rig) freeze() {
	r, _ := c.victim()
	reading := c.devoted(r)
	fenced, began := c.scrape(r).fenced, c.now()
	r.Freeze()
	thawed := false
	defer func() {
		if !thawed {
			r.Thaw()
		}
	}()
	c.rescued(r, began)
	c.progress(len(c.replicas)) // while it is frozen
	r.Thaw()
	thawed = true
	c.finish(r, reading)
	waittest.Eventually(c.t, "fenced writes are counted", func() error {
		return waittest.Unless(c.scrape(r).fenced > fenced, "no write was fenced")
	})
}

// devoted starts streams of clients that stay with one replica and one connection: at least two, and until its own
// worker runs one of the tasks. The channels receive their results.
func (c *rig) devoted(r *clustertest.Replica) (ends []chan error) {
	c.t.Helper()
	running := func() int {
		return query[int](c, `SELECT count(*) FROM holdfast.task_queue q JOIN holdfast.workers w ON w.id = q.worker_id
			JOIN holdfast.tasks t ON t.id = q.id WHERE w.name LIKE '%/' || $1::text AND t.context_id LIKE 'devoted-%'`,
			strconv.Itoa(r.PID()))
	}
	for len(ends) < 2 || running() == 0 {
		began, end := make(chan struct{}), make(chan error, 1)
		go func() { end <- c.load.devoted(r.URL, began) }()
		waittest.Within(c.t, "a stream of "+r.Name+" begins", began)
		ends = append(ends, end)
	}
	return ends
}

// finish waits until devoted streams have ended or given up.
func (c *rig) finish(r *clustertest.Replica, reading []chan error) {
	c.t.Helper()
	for _, end := range reading {
		require.NoError(c.t, <-end, "a stream of %s", r.Name)
	}
}

// refuse keeps a replica from connecting, past its lease.
func (c *rig) refuse() {
	r, proxy := c.victim()
	reading := c.devoted(r)
	proxy.Refuse(true)
	defer proxy.Refuse(false)
	proxy.CutAll()
	c.cutOff(r, reading, func() { proxy.Refuse(false) })
}

// stall drops all packets between a replica and the database, past its lease.
func (c *rig) stall() {
	r, proxy := c.victim()
	reading := c.devoted(r)
	proxy.Stall(true)
	defer proxy.Stall(false)
	c.cutOff(r, reading, func() { proxy.Stall(false) })
}

// cutOff waits until a replica that cannot reach the database has lost its runs, while the others make progress, and
// reconnects it. Its clients stay connected and get the rest.
func (c *rig) cutOff(r *clustertest.Replica, reading []chan error, heal func()) {
	began := c.now()
	waittest.Eventually(c.t, r.Name+" says that it is not ready", func() error {
		status, body := r.Ready()
		return waittest.Unless(status == http.StatusServiceUnavailable, "%d %s", status, body)
	})
	c.rescued(r, began)
	c.progress(len(c.replicas))
	heal()
	c.finish(r, reading)
}

// delay makes every answer late.
func (c *rig) delay() {
	_, proxy := c.victim()
	proxy.Delay(time.Duration(50+c.rng.IntN(200)) * time.Millisecond)
	defer proxy.Delay(0)
	c.progress(10 * len(c.replicas))
}

// halfClose closes only one end of each connection: first the server's, then the replica's.
func (c *rig) halfClose() {
	for _, told := range []pgproxytest.Side{pgproxytest.Client, pgproxytest.Server} {
		r, proxy := c.victim()
		reading := c.devoted(r)
		proxy.HalfClose(told)
		c.progress(2 * len(c.replicas))
		c.finish(r, reading)
		proxy.CutAll()
	}
}

// wrongClocks sets the clock of one replica, and then of another one as well, an hour ahead or behind.
func (c *rig) wrongClocks() {
	server := clustertest.OffClock(c.t)
	which := c.rng.Perm(len(c.replicas))
	for i, off := range []time.Duration{time.Hour, -time.Hour} {
		r := c.replicas[which[i]]
		right := r.Options
		wrong := right
		wrong.Binary = server
		wrong.Env = append([]string{clustertest.ClockEnv + "=" + strconv.Itoa(int(off/time.Second))}, right.Env...)
		c.restart(r, wrong)
		defer c.restart(r, right)
		reading := c.devoted(r)
		c.progress(5 * len(c.replicas))
		c.finish(r, reading)
	}
	// The time in an id decides how long the task is kept.
	require.Zero(c.t, query[int](c, `SELECT count(*) FROM holdfast.tasks WHERE id NOT BETWEEN
		holdfast.uuid_at(created_at - interval '10 min') AND holdfast.uuid_at(created_at + interval '10 min')`), "tasks have the database's time")
}

// restart stops a replica as an operator would, and starts it with other options.
func (c *rig) restart(r *clustertest.Replica, o clustertest.Options) {
	c.scrape(r) // the counters end with the process
	delete(c.scraped, r)
	r.Stop()
	r.Options = o
	r.Run()
}

// refuseNotify answers NOTIFY like a server whose queue is full.
func (c *rig) refuseNotify() {
	for _, p := range c.proxies {
		defer p.Fail("NotifySend", "54000", "too many notifications in the NOTIFY queue")()
	}
	c.withoutHints()
}

// cutCommits cuts the connection after a COMMIT was sent: before it reaches the server, or before the whole answer is
// back. It does so for every kind of write.
func (c *rig) cutCommits() {
	for _, loss := range []pgproxytest.Loss{pgproxytest.Request, pgproxytest.Answer, pgproxytest.End} {
		var lost []<-chan struct{}
		for _, p := range c.proxies {
			for _, statement := range []string{"EventsAppend", "TaskCreate", "MessageAppend", "TaskCancel", "QueueClaim"} {
				lost = append(lost, p.Lose(statement, loss, 1+c.rng.IntN(3)))
			}
		}
		for _, l := range lost {
			waittest.Eventually(c.t, "a commit is cut", func() error { // few operations are cancels
				select {
				case <-l:
					return nil
				default:
					return fmt.Errorf("%d operations have ended", c.load.done.Load())
				}
			})
		}
	}
}

// leaveAgent keeps the agent behind HTTP from beginning runs, in each way.
func (c *rig) leaveAgent() {
	a := c.agent
	defer a.answer()
	c.leave("remote", func() { a.away(0) }, a.answer, false) // the message of a run may be why it got no answer
	c.leave("remote", func() { a.away(http.StatusServiceUnavailable) }, a.answer, true)
	c.leave("remote", func() { a.away(http.StatusTooManyRequests) }, a.answer, true)
	c.leave("remote", a.refuse, a.listen, true)
}

// leaveOthers takes away the program of one agent, and the model of another.
func (c *rig) leaveOthers() {
	defer c.model.answer()
	moved := c.program + ".moved"
	c.leave("command", func() { require.NoError(c.t, os.Rename(c.program, moved)) }, func() { require.NoError(c.t, os.Rename(moved, c.program)) }, true)
	c.leave("model", func() { c.model.away(http.StatusTooManyRequests) }, c.model.answer, true)
	c.leave("model", c.model.refuse, c.model.listen, true)
}

// leave keeps an agent away until its tasks have waited for seconds. Operators see it, the tasks go on after its return, and if
// never, a run that was claimed while it was surely away is no try.
func (c *rig) leave(agent string, leave, back func(), never bool) {
	leave()
	left := c.now()
	calls := c.load.together(4, greets(agent))
	waittest.Eventually(c.t, "tasks wait for the agent, for seconds", func() error {
		n := query[int](c, "SELECT count(*) FROM holdfast.v_outages WHERE agent = $1 AND waiting >= $2 AND last_at > since + interval '2s'", agent, cap(calls)-len(c.replicas))
		return waittest.Unless(n == 1, "not yet")
	})
	waittest.Eventually(c.t, "the metrics say that it is away", func() error {
		samples, err := clustertest.Figures(c.replicas...)
		if err != nil {
			return err
		}
		return waittest.Unless(samples[fmt.Sprintf("holdfast_agent_away_seconds{agent=%q}", agent)] > 0, "not yet")
	})
	if never {
		tries := query[[]string](c, "SELECT array_agg(started_at - $1 || ': ' || error) FROM holdfast.v_runs WHERE agent = $2 AND outcome = 'retry' AND started_at > $1", left, agent)
		require.Empty(c.t, tries, "runs that an absent agent did not begin used up tries")
	}
	back()
	c.succeed(calls)
}

// succeed waits until operations of clients have succeeded.
func (c *rig) succeed(ends chan error) {
	c.t.Helper()
	for range cap(ends) {
		require.NoError(c.t, <-ends)
	}
}

// breakBehind cuts the connections between the front and the server behind it, and kills that server.
func (c *rig) breakBehind() {
	for range 3 {
		ends := c.load.together(4, streams("front"))
		for range 3 {
			c.link.Cut()
			c.progress(len(c.replicas))
		}
		c.behind.Kill()
		c.progress(len(c.replicas)) // while it is down
		c.behind.Run()
		c.succeed(ends)
	}
}

// withoutHints waits while clients make progress with events that only the polls find.
func (c *rig) withoutHints() {
	c.t.Helper()
	before := c.sum().polled
	c.progress(10 * len(c.replicas))
	waittest.Eventually(c.t, "the polls find events", func() error {
		return waittest.Unless(c.sum().polled > before, "the polls found no events")
	})
}

// Counters.

// counters tell how a fault affected replicas and clients.
type counters struct {
	fenced, rescued, polled                         int // of the replicas
	done, tries, resumes, tasks, events, calledBack int // of the clients
}

func (a counters) minus(b counters) counters {
	return counters{
		a.fenced - b.fenced, a.rescued - b.rescued, a.polled - b.polled,
		a.done - b.done, a.tries - b.tries, a.resumes - b.resumes, a.tasks - b.tasks, a.events - b.events, a.calledBack - b.calledBack,
	}
}

func (a counters) plus(b counters) counters { return a.minus(counters{}.minus(b)) }

// scrape reads a replica's counters, and adds their growth to the total.
func (c *rig) scrape(r *clustertest.Replica) counters {
	c.t.Helper()
	var now counters
	waittest.Eventually(c.t, r.Name+" serves its metrics", func() error {
		all, err := r.Samples()
		now = counters{
			fenced: int(all["holdfast_fenced_writes_total"]), rescued: int(all["holdfast_rescues_total"]), polled: int(all["holdfast_hub_poll_found_total"]),
		}
		return err
	})
	c.total = c.total.plus(now.minus(c.scraped[r]))
	c.scraped[r] = now
	return now
}

// sum is everything counted so far.
func (c *rig) sum() counters {
	c.t.Helper()
	for _, r := range c.replicas {
		c.scrape(r)
	}
	l := c.load
	n := c.total.plus(c.past)
	n.done, n.tries, n.resumes = int(l.done.Load()), int(l.tries.Load()), int(l.resumes.Load())
	count := l.ledger.Count()
	n.events, n.calledBack = n.events+count.Events, n.calledBack+count.Accepted
	n.tasks += query[int](c, "SELECT count(*) FROM holdfast.v_audit WHERE action = 'task.created' AND at >= $1", c.since) // retention deletes tasks
	return n
}

// results are the results of one fault, over all of its rounds.
type results struct {
	name     string
	times    int
	took     time.Duration
	recovery time.Duration // the longest
	counters
}

func (c *rig) row(name string) *results {
	for _, row := range c.rows {
		if row.name == name {
			return row
		}
	}
	row := &results{name: name}
	c.rows = append(c.rows, row)
	return row
}

// table is written for results.md.
func (c *rig) table() string {
	var b strings.Builder
	b.WriteString("| fault | rounds | seconds | tasks | events read | streams resumed | requests repeated | runs rescued | late writes refused | longest recovery |\n")
	b.WriteString("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	all := &results{name: "all"}
	for _, r := range c.rows {
		all.times, all.took, all.recovery = all.times+r.times, all.took+r.took, max(all.recovery, r.recovery)
		all.counters = all.plus(r.counters)
	}
	for _, r := range append(c.rows, all) {
		fmt.Fprintf(&b, "| %s | %d | %.0f | %d | %d | %d | %d | %d | %d | %.1f s |\n", r.name, r.times, r.took.Seconds(),
			r.tasks, r.events, r.resumes, r.tries, r.rescued, r.fenced, r.recovery.Seconds())
	}
	return b.String()
}
