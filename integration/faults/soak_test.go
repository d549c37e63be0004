package faults

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/curvetest"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

var (
	soakFor  = flag.Duration("soak", 0, "run TestSoak for so long, and judge its curves; otherwise it takes a few samples")
	soakOnly = flag.String("soak.only", "", "with -soak: only the faults whose names match this regular expression")
	soakOut  = flag.String("soak.out", "", "with -soak: write the curves to this name with .csv, .svg and .md")
	soakSeed = flag.Uint64("soak.seed", 0, "seed of the order and the load; 0 takes one from the clock")
)

// soaking are settings under which all data have a short life. The webhooks get every event.
var soaking = clustertest.Replace(clustertest.Replace(chaotic, "grpc_listen: off\n", ""),
	"retention: {tasks: 2m,", "retention: {tasks: 2m, expire_parked_after: 10m, idempotency_keys: 1m, delivery_attempts: 1m, audit: 5m,") +
	receivertest.Pushing(object{"artifacts": true, "coalesce_after": 0, "timeout": "2s"})

// soakFaults are the faults of chaos that need no second server of PostgreSQL, no hour and no other binary, and one more.
func soakFaults() (all []fault) {
	leave, only := fault{"receivers of webhooks away", "", (*rig).leaveHooks}, regexp.MustCompile(*soakOnly)
	if *soakFor == 0 {
		return []fault{leave, faults[0]}
	}
	for _, f := range append([]fault{leave}, faults...) {
		others := f.group == ofStandbys || f.name == wrongClocks
		if !others && only.MatchString(f.name) {
			all = append(all, f)
		}
	}
	return all
}

// Two replicas work for hours, while faults hit them, their workers, their agents, the database and the receivers of webhooks.
// Nothing is lost, and nothing grows: memory, goroutines and open files of what lives as long as the test, tables and catalogs.
//
// Faults never kill replica a and the first remote worker. They freeze them, and cut them off.
func TestSoak(t *testing.T) {
	t.Parallel()
	o := rigOptions{names: []string{"a", "b"}, config: soaking, seed: seeded(t, *soakSeed), clients: 12, spared: 1, hooks: newHooks(t)}
	// WAL that is recycled within minutes, instead of up to a GiB of it that grows for hours.
	o.settings = map[string]string{"checkpoint_timeout": "60s", "max_wal_size": "256MB"}
	if *soakFor == 0 {
		o.clients, o.settings["fsync"] = 4, "off"
	}
	c := newRig(t, o)
	defer c.keep()
	w := newWatch(c, max(*soakFor/360, 2*time.Second))
	if *soakOut != "" {
		defer w.write(*soakOut) // also if it has failed
	}
	first := c.replicas[0].PID()
	c.run(soakFaults(), *soakFor, w.rest, c.turn)
	w.end()
	c.load.end()
	require.Equal(t, first, c.replicas[0].PID(), "replica a lived all the time")
	t.Logf("\n%s\n%s", c.table(), w.book.Table())
	if *soakFor == 0 {
		w.whole()
		return
	}
	require.NoError(t, w.book.Grown())
}

// turn begins an era: the ledger and the exports forget the tasks of the era before the last one. No client is running.
func (c *rig) turn() {
	c.t.Helper()
	now, n := c.now(), c.sum()
	c.past = counters{tasks: n.tasks, events: n.events, calledBack: n.calledBack}
	c.earlier = &era{since: c.since, until: now, ledger: c.load.ledger}
	c.since, c.load.ledger = now, judge.New()
	const old = ".earlier"
	agents, err := os.ReadDir(c.exports)
	require.NoError(c.t, err)
	for _, agent := range agents {
		if strings.HasSuffix(agent.Name(), old) {
			require.NoError(c.t, os.RemoveAll(filepath.Join(c.exports, agent.Name())))
		}
	}
	files, err := filepath.Glob(filepath.Join(c.exports, "*", "*.ndjson"))
	require.NoError(c.t, err)
	for _, file := range files {
		to := filepath.Dir(file) + old
		require.NoError(c.t, os.MkdirAll(to, 0o700))
		require.NoError(c.t, os.Rename(file, filepath.Join(to, filepath.Base(file))))
	}
}

// watch samples the processes and the database.
type watch struct {
	c     *rig
	book  *curvetest.Book
	began time.Time
	stop  func()
	ended sync.WaitGroup

	admin map[*clustertest.Replica]string // URLs, which stay the same
	pids  map[string]int                  // by the name of a process
	wal   float64                         // of the sample before; 0 for the first one
	walAt time.Time
	gone  error // the last error of the database

	profiles map[string][]byte // of the replica that lives, by the end of the file's name
}

// The charts. Their bounds are what a third of a soak may add: for at least an hour, less is noise.
var (
	chartMemory   = &curvetest.Chart{Name: "resident memory", Unit: curvetest.Bytes, Part: 0.1, Most: 8 << 20}
	chartHeap     = &curvetest.Chart{Name: "live memory of Go at rest", Unit: curvetest.Bytes, Part: 0.05, Most: 1 << 20}
	chartThreads  = &curvetest.Chart{Name: "goroutines under load", Unit: curvetest.Count, Part: 0.15, Most: 20}
	chartAtRest   = &curvetest.Chart{Name: "goroutines at rest", Unit: curvetest.Count, Part: 0.03, Most: 3}
	chartFiles    = &curvetest.Chart{Name: "open files at rest", Unit: curvetest.Count, Part: 0.05, Most: 3}
	chartTables   = &curvetest.Chart{Name: "tables with indexes", Unit: curvetest.Bytes, Part: 0.25, Most: 4 << 20}
	chartCatalogs = &curvetest.Chart{Name: "catalogs of PostgreSQL", Unit: curvetest.Bytes, Part: 0.1, Most: 1 << 20}
	chartDead     = &curvetest.Chart{Name: "dead rows", Unit: curvetest.Count, Part: 0.5, Most: 5000}
	chartParts    = &curvetest.Chart{Name: "partitions", Unit: curvetest.Count, Part: 0.1, Most: 5}
	chartSessions = &curvetest.Chart{Name: "connections of the database", Unit: curvetest.Count, Part: 0.2, Most: 3}
	chartBackends = &curvetest.Chart{Name: "memory of connections", Unit: curvetest.Bytes, Part: 0.15, Most: 4 << 20}
	chartWAL      = &curvetest.Chart{Name: "WAL that PostgreSQL keeps", Unit: curvetest.Bytes, Part: 0.25, Most: 64 << 20}
	chartWritten  = &curvetest.Chart{Name: "WAL written each second", Unit: curvetest.Bytes, Part: 0.5, Most: 1 << 20}
)

const mortal = "faults kill it"

func newWatch(c *rig, every time.Duration) *watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{c: c, book: &curvetest.Book{}, began: time.Now(), stop: cancel, pids: map[string]int{}, admin: map[*clustertest.Replica]string{}, profiles: map[string][]byte{}}
	for _, r := range c.servers() {
		w.admin[r] = r.Admin
	}
	w.ended.Go(func() {
		for tick := time.NewTicker(every); ; {
			w.sample(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	})
	c.t.Cleanup(w.end)
	return w
}

func (w *watch) end() {
	w.stop()
	w.ended.Wait()
}

// process is one that is watched.
type process struct {
	name, why string // as in curvetest.Curve
	pid       int
	admin     string // URL; "" of workers
}

// processes are those of the rig. Replicas and workers that faults may kill are drawn, but not judged.
func (w *watch) processes() (all []process) {
	for i, r := range w.c.replicas {
		all = append(all, process{"replica " + r.Name, whyNot(i, w.c.spared), r.PID(), w.admin[r]})
	}
	for i, r := range w.c.remotes {
		all = append(all, process{fmt.Sprint("worker ", i+1), whyNot(i, w.c.spared), r.pid(), ""})
	}
	return append(all, process{"server behind", mortal, w.c.behind.PID(), w.admin[w.c.behind]})
}

func whyNot(i, spared int) string {
	if i < spared {
		return ""
	}
	return mortal
}

// sample takes samples under load. During a fault it leaves out what it cannot read.
func (w *watch) sample(ctx context.Context) {
	at := time.Since(w.began)
	for _, p := range w.processes() {
		if w.pids[p.name] != 0 && w.pids[p.name] != p.pid {
			w.book.Add(chartMemory, p.name, p.why, at, math.NaN())
			if p.admin != "" {
				w.book.Add(chartThreads, p.name, p.why, at, math.NaN())
			}
		}
		w.pids[p.name] = p.pid
		if bytes, err := memoryOf(p.pid, "VmRSS"); err == nil {
			w.book.Add(chartMemory, p.name, p.why, at, bytes)
		}
		if p.admin == "" {
			continue
		}
		if all, err := clustertest.Scrape(p.admin, time.Second); err == nil {
			w.book.Add(chartThreads, p.name, p.why, at, all["go_goroutines"])
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := w.database(ctx, at); err != nil && ctx.Err() == nil {
		w.gone = err // PostgreSQL is down, which is a fault
	}
}

// rest takes samples while no client runs, when nothing but the server itself holds anything.
func (w *watch) rest() {
	w.c.t.Helper()
	w.c.load.http.CloseIdleConnections()
	time.Sleep(time.Second) // a server closes what its clients have closed
	at := time.Since(w.began)
	for _, p := range w.processes() {
		if files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid)); err == nil {
			w.book.Add(chartFiles, p.name, p.why, at, float64(len(files)))
		}
		if p.admin == "" {
			continue
		}
		all := atRest(w.c.t, p.admin)
		w.book.Add(chartAtRest, p.name, p.why, at, all["go_goroutines"])
		w.book.Add(chartHeap, p.name, p.why, at, all["go_memstats_heap_alloc_bytes"])
	}
	if at > *soakFor/3 && len(w.profiles) == 0 {
		w.profile("-warm")
	}
}

// profile keeps profiles of the replica that lives: the difference of two says what has grown.
func (w *watch) profile(when string) {
	admin := w.c.replicas[0].Admin
	w.profiles[when+"-goroutines.txt"] = profile(w.c.t, admin, "goroutine?debug=1")
	w.profiles[when+"-heap.pprof"] = profile(w.c.t, admin, "heap?gc=1")
}

// atRest are the samples of a replica after two collections: a pool loses its content in the second one.
func atRest(t testing.TB, admin string) (all map[string]float64) {
	t.Helper()
	for range 2 {
		profile(t, admin, "heap?gc=1")
	}
	all, err := clustertest.Scrape(admin, waittest.Patience)
	require.NoError(t, err)
	return all
}

func profile(t testing.TB, admin, of string) []byte {
	t.Helper()
	resp, err := http.Get(admin + "/debug/pprof/" + of)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return raw
}

// memoryOf reads a line of /proc/…/status.
func memoryOf(pid int, line string) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for text := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(text, line+":"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("no %s of %d", line, pid)
}

// sizes are groups of tables: those of a parent with all its partitions, detached ones too, and the catalogs that partitions fill.
const sizes = `
	SELECT CASE WHEN c.relnamespace = 'pg_catalog'::regnamespace THEN 'catalog' ELSE 'table' END,
	       CASE WHEN c.relname ~ '^(tasks|events|artifacts|keys|attempts|audit)_\d{8}' THEN split_part(c.relname, '_', 1) ELSE c.relname END,
	       sum(pg_total_relation_size(c.oid))::bigint, sum(coalesce(pg_stat_get_dead_tuples(c.oid), 0))::bigint,
	       count(*) FILTER (WHERE c.relname ~ '_\d{8}')
	  FROM pg_class c
	 WHERE c.relkind = 'r' AND (c.relnamespace = 'holdfast'::regnamespace
	    OR c.relnamespace = 'pg_catalog'::regnamespace AND c.relname IN ('pg_class', 'pg_attribute', 'pg_inherits', 'pg_statistic', 'pg_depend',
	       'pg_index', 'pg_constraint', 'pg_type', 'pg_trigger', 'pg_attrdef', 'pg_description', 'pg_shdepend'))
	 GROUP BY 1, 2`

// shown are the tables with curves of their own; the others are added up.
var shown = []string{"tasks", "events", "artifacts", "task_queue", "keys", "audit", "attempts", "pg_class", "pg_attribute", "pg_depend", "pg_statistic"}

func (w *watch) database(ctx context.Context, at time.Duration) error {
	db := w.c.db
	rows, err := db.Query(ctx, sizes) //nolint:rowserrcheck // ForEachRow does
	if err != nil {
		return err
	}
	bytes, dead, partitions := map[string]float64{}, map[string]float64{}, map[string]float64{}
	catalogs := map[string]bool{}
	var kind, name string
	var size, gone, parts int64
	_, err = pgx.ForEachRow(rows, []any{&kind, &name, &size, &gone, &parts}, func() error {
		if !slices.Contains(shown, name) {
			name = map[string]string{"catalog": "other catalogs", "table": "other tables"}[kind]
		}
		if parts > 0 {
			partitions[name] += float64(parts)
		}
		bytes[name] += float64(size)
		dead[kind] += float64(gone)
		catalogs[name] = kind == "catalog"
		return nil
	})
	if err != nil {
		return err
	}
	for name, n := range bytes {
		chart := chartTables
		if catalogs[name] {
			chart = chartCatalogs
		}
		w.book.Add(chart, name, "", at, n)
	}
	for _, kind := range []string{"table", "catalog"} {
		w.book.Add(chartDead, kind+"s", "", at, dead[kind])
	}
	for name, n := range partitions {
		w.book.Add(chartParts, name, "", at, n)
	}
	if err := w.sessions(ctx, at); err != nil {
		return err
	}
	var written, kept float64
	if err := db.QueryRow(ctx, "SELECT pg_current_wal_lsn() - '0/0', (SELECT sum(size) FROM pg_ls_waldir())").Scan(&written, &kept); err != nil {
		return err
	}
	now := time.Now()
	if w.wal > 0 {
		w.book.Add(chartWritten, "PostgreSQL", "", at, (written-w.wal)/now.Sub(w.walAt).Seconds())
	}
	w.wal, w.walAt = written, now
	w.book.Add(chartWAL, "pg_wal", "", at, kept)
	return nil
}

// sessions samples the backends of PostgreSQL: their number, and the memory that they do not share.
func (w *watch) sessions(ctx context.Context, at time.Duration) error {
	rows, err := w.c.db.Query(ctx, `SELECT pid, application_name FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`) //nolint:rowserrcheck // ForEachRow does
	if err != nil {
		return err
	}
	count, sum, most := map[string]float64{}, 0.0, 0.0
	var pid int
	var name string
	_, err = pgx.ForEachRow(rows, []any{&pid, &name}, func() error {
		if !strings.HasPrefix(name, "holdfast") {
			return nil
		}
		count[name]++
		if bytes, err := memoryOf(pid, "RssAnon"); err == nil {
			sum += bytes
			most = max(most, bytes)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"holdfast", "holdfast listener"} {
		w.book.Add(chartSessions, name, "", at, count[name])
	}
	w.book.Add(chartBackends, "all", "", at, sum)
	w.book.Add(chartBackends, "the largest", "", at, most)
	return nil
}

// write writes the samples and the profiles to files.
func (w *watch) write(name string) {
	t := w.c.t
	t.Helper()
	w.end()
	title := fmt.Sprintf("Two replicas under faults, for %.0f minutes: %d operations of clients", time.Since(w.began).Minutes(), w.c.load.done.Load())
	var csv strings.Builder
	require.NoError(t, w.book.CSV(&csv))
	w.profile("-end")
	files := map[string]string{".csv": csv.String(), ".svg": w.book.Picture(title), ".md": w.c.table() + "\n" + w.book.Table()}
	for suffix, raw := range w.profiles {
		files[suffix] = string(raw)
	}
	for suffix, content := range files {
		require.NoError(t, os.WriteFile(name+suffix, []byte(content), 0o644))
	}
}

// whole checks that all that a soak judges has samples.
func (w *watch) whole() {
	t := w.c.t
	t.Helper()
	require.NoError(t, w.gone)
	have := map[string]int{}
	for _, c := range w.book.Curves {
		if c.Why == "" {
			have[c.Chart.Name+" of "+c.Name] = len(c.Points)
		}
		for _, p := range c.Points {
			if !math.IsNaN(p.Value) {
				require.GreaterOrEqual(t, p.Value, 0.0, "%s of %s", c.Chart.Name, c.Name)
			}
		}
	}
	for _, name := range []string{
		"resident memory of replica a", "resident memory of worker 1", "goroutines under load of replica a", "tables with indexes of tasks",
		"tables with indexes of events", "tables with indexes of attempts", "tables with indexes of audit", "tables with indexes of other tables", "catalogs of PostgreSQL of pg_class",
		"catalogs of PostgreSQL of pg_attribute", "dead rows of catalogs", "partitions of tasks", "partitions of attempts", "partitions of audit",
		"connections of the database of holdfast", "memory of connections of all", "WAL that PostgreSQL keeps of pg_wal",
	} {
		require.Greater(t, have[name], 2, "samples of %s: %v", name, have)
	}
	for _, name := range []string{"live memory of Go at rest of replica a", "goroutines at rest of replica a", "open files at rest of replica a", "open files at rest of worker 1"} {
		require.Equal(t, 2, have[name], "samples of %s, one for each round", name)
	}
}
