package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/load"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// storedEnv names the variable with the number of finished tasks. Each has one answer, or chunks of 32 bytes, as many as the second
// variable says.
const (
	storedEnv       = "BENCH_STORED"
	storedChunksEnv = "BENCH_STORED_CHUNKS"
)

// fewTasks is how many tasks the other database has at most. The one with many has them, too, and both have the same partitions and
// tasks of the same content.
const fewTasks = 20_000

// stored compares a database with many finished tasks with one of few, on the same PostgreSQL and with retention on. Turns
// alternate, so both sides meet the same disturbances. Before the many tasks are stored, the same is measured with few in both
// databases: the difference there is the error of the method.
func stored(b *testing.B) {
	b.Helper()
	n := 100_000
	if v := os.Getenv(storedEnv); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			b.Fatalf("%s: %v", storedEnv, err)
		}
	}
	if n == 0 {
		b.Skip(storedEnv + " is 0")
	}
	few := min(n/5, fewTasks)
	subject, control := newSide(b), newSide(b)
	fill(b, subject, few)
	fill(b, control, few)
	for _, phase := range []string{"few", fmt.Sprintf("tasks=%d", n)} {
		if phase != "few" {
			b.Run("fill", func(b *testing.B) {
				if subject.filling == 0 { // go test repeats a quick benchmark
					start := time.Now()
					subject.events = fill(b, subject, n)
					subject.filling = time.Since(start)
				}
				size := one[float64](b, subject.c.db, "SELECT pg_database_size(current_database())::float8")
				metric(b, subject.filling.Seconds(), "s")
				metric(b, size/(1<<20), "MB")
				metric(b, size/float64(n+few), "B/task")
				metric(b, float64(subject.events)/float64(n), "events/task")
			})
		}
		for _, s := range []*side{subject, control} {
			exec1(b, s.c.db, "VACUUM (ANALYZE) holdfast.tasks, holdfast.task_events, holdfast.task_queue")
			s.sample(b)
		}
		settle(b)
		for _, o := range operations {
			b.Run(phase+"/"+o.name, func(b *testing.B) { compare(b, o, subject, control) })
		}
	}
}

// side is one of the two databases.
type side struct {
	b        *testing.B // the present benchmark
	c        *cluster
	store    *store.Store
	newest   *load.Target
	ids      []task.ID // some of its tasks
	contexts []string
	filling  time.Duration
	events   int
}

// keepYear turns retention on. Nothing is due, because no task is that old.
const keepYear = "retention: {tasks: 8760h}\n"

func newSide(b *testing.B) *side {
	b.Helper()
	s := &side{c: newClusterWith(b, config+keepYear, whole, apiOnly)}
	s.newest = newestOf(b, s.c)
	var err error
	if s.store, err = store.Open(context.Background(), store.Options{URL: s.c.dbURL, APIConns: 2, Writers: 1}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.store.Close(context.Background()) })
	return s
}

// sample picks tasks from the whole table.
func (s *side) sample(b *testing.B) {
	b.Helper()
	const some = 2_000
	s.ids = nil
	for _, text := range one[[]string](b, s.c.db, fmt.Sprintf(`SELECT array_agg(id::text)
		FROM (SELECT id FROM holdfast.tasks WHERE artifact_bytes > 0 ORDER BY md5(id::text) LIMIT %d) t`, some)) {
		id, err := task.ParseID(text)
		if err != nil {
			b.Fatal(err)
		}
		s.ids = append(s.ids, id)
	}
	// Reads compare tasks that are in the page cache.
	target := s.c.replicas[0].target
	var next atomic.Int64
	repeat(b, target, 4, len(s.ids), func(conn *load.Conn) error {
		_, err := conn.Call(target.Request("tasks/get", load.TaskQuery(s.ids[next.Add(1)-1].String()), ""))
		return err
	})
	s.contexts = one[[]string](b, s.c.db, "SELECT array_agg(context_id) FROM holdfast.tasks WHERE id = ANY($1::text[]::uuid[])", texts(s.ids))
}

func texts(ids []task.ID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}

// operation is an operation that a long history must not slow down. It works for a while and returns how often it was done, and its
// rate per second.
type operation struct {
	name string
	do   func(s *side) (n int, rate float64)
}

var operations = []operation{
	{"send/inflight=1", func(s *side) (int, float64) { return s.send(0, 1) }},
	{"send/inflight=16", func(s *side) (int, float64) { return s.send(0, 16) }},
	{"send/inflight=64", func(s *side) (int, float64) { return s.send(0, 64) }},
	{"send/inflight=256", func(s *side) (int, float64) { return s.send(0, 256) }},
	// The second replica runs nothing; the first one claims the tasks that it creates.
	{"claim/inflight=64", func(s *side) (int, float64) { return s.send(1, 64) }},
	{"get", func(s *side) (int, float64) { return s.read("get") }},
	{"resume", func(s *side) (int, float64) { return s.read("resume") }},
	{"list/client", func(s *side) (int, float64) { return s.read("list") }},
	{"list/newest", func(s *side) (int, float64) { return s.list(store.TaskFilter{Limit: 50}) }},
	{"list/agent", func(s *side) (int, float64) { return s.list(store.TaskFilter{Agent: "demo", Limit: 50}) }},
	{"list/state=completed", func(s *side) (int, float64) {
		return s.list(store.TaskFilter{State: task.StateCompleted, Limit: 50})
	}},
	// These two look for rare rows.
	{"list/state=working", func(s *side) (int, float64) {
		return s.list(store.TaskFilter{State: task.StateWorking, Limit: 50})
	}},
	{"list/context", func(s *side) (int, float64) {
		return s.list(store.TaskFilter{ContextID: s.contexts[rand.IntN(len(s.contexts))], Limit: 50})
	}},
	{"stream/streams=64/chunks=1000", func(s *side) (int, float64) {
		r := measure(s.b, forTurn(load.Options{Targets: s.c.targets()[:1], Mode: load.Stream, Text: chunks(1000), InFlight: 64}))
		return r.Chunks, r.ChunksPerSecond()
	}},
	{"emission/other", (*side).emission},
}

// forTurn lets a load last for a turn.
func forTurn(o load.Options) load.Options {
	if o.Count = tiny(); o.Count == 0 {
		o.Duration = turn()
	}
	return o
}

func (s *side) send(replica, inFlight int) (int, float64) {
	r := measure(s.b, forTurn(load.Options{Targets: s.c.targets()[replica : replica+1], Mode: load.Blocking, Text: "echo:hello", InFlight: inFlight}))
	return r.Tasks, r.TasksPerSecond()
}

// read reads tasks in one of the ways of the benchmark Reads.
func (s *side) read(way string) (int, float64) {
	r := readings[slices.IndexFunc(readings, func(r reading) bool { return r.name == way })]
	target := s.c.replicas[0].target
	conn := dial(s.b, target)
	return timed(s.b, func() error {
		_, err := r.call(conn, target, s.newest, s.ids[rand.IntN(len(s.ids))].String())
		return err
	})
}

func (s *side) list(f store.TaskFilter) (int, float64) {
	return timed(s.b, func() error {
		_, err := s.store.ListTasks(s.b.Context(), f)
		return err
	})
}

// emission has 20 runs that emit a chunk every 10 ms, each with a reader on the other replica. Its rate is one over the median
// time from emission to arrival.
func (s *side) emission() (int, float64) {
	const runs, delay = 20, 10 * time.Millisecond
	lags, _ := lagsOf(s.b, s.c, 1, runs, max(100, int(turn()/delay)), delay, 0.5)
	return len(lags), 1 / load.Quantile(lags, 0.5).Seconds()
}

// turn is how long a side is measured before the other one follows.
func turn() time.Duration { return benchtime() / 3 }

func timed(b *testing.B, do func() error) (n int, rate float64) {
	b.Helper()
	start := time.Now()
	for n < max(tiny(), 1) || (tiny() == 0 && time.Since(start) < turn()/2) {
		if err := do(); err != nil {
			b.Fatal(err)
		}
		n++
	}
	return n, float64(n) / time.Since(start).Seconds()
}

// compare measures an operation on both sides in turns. Each side begins equally often.
func compare(b *testing.B, o operation, subject, control *side) {
	b.Helper()
	subject.b, control.b = b, b
	var used [2]cost
	var wal [2]float64
	one := func(i int, s *side) func() float64 {
		return func() float64 {
			before := s.c.lsn(b)
			rate := used[i].of(b, s.c, func() (int, float64) { return o.do(s) })
			wal[i] += s.c.walSince(b, before)
			return rate
		}
	}
	many, few, ratios := inTurns(one(0, subject), one(1, control))
	metric(b, median(few), "few/s")
	metric(b, median(many), "stored/s")
	slices.Sort(ratios)
	metric(b, 100*(median(ratios)-1), "%slower")
	metric(b, 100*(ratios[len(ratios)/4]-1), "%lower-quartile")
	metric(b, 100*(ratios[len(ratios)*3/4]-1), "%upper-quartile")
	if used[0].spent > 0 {
		metric(b, used[1].each(), "few-cpu-µs")
		metric(b, used[0].each(), "stored-cpu-µs")
	}
	metric(b, wal[1]/used[1].done, "few-WAL-B")
	metric(b, wal[0]/used[0].done, "stored-WAL-B")
}

// inTurns measures two rates in turns, and the ratio of the second to the first. Each begins equally often.
func inTurns(one, other func() float64) (ones, others, ratios []float64) {
	const rounds = 8
	for i := range rounds {
		var x, y float64
		if i%2 == 0 {
			x = one()
			y = other()
		} else {
			y = other()
			x = one()
		}
		ones, others, ratios = append(ones, x), append(others, y), append(ratios, y/x)
	}
	return ones, others, ratios
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// fill writes n finished tasks and their logs, as real tasks left them, spread over the last half year and its
// partitions. It returns the number of their events.
func fill(b *testing.B, s *side, n int) (events int) {
	b.Helper()
	text := "echo:A pilot boards the ship outside of the harbour, knows its shoals and its currents, and brings it to its berth. " +
		"The master keeps the command and the responsibility; the pilot has the knowledge of the place."
	if chunks := os.Getenv(storedChunksEnv); chunks != "" {
		text = "chunks=" + chunks + " size=32"
	}
	model := newTask(b, s.c.replicas[0].target, text)
	to := time.Now().AddDate(0, 0, -1)
	from := to.AddDate(0, -6, 0)
	if err := storetest.Partitions(b.Context(), s.c.dbURL, from, to); err != nil {
		b.Fatal(err)
	}
	const batch, conns = 20_000, 2
	var next, written atomic.Int64
	var wg sync.WaitGroup
	for range conns {
		db := connect(b, s.c.dbURL)
		exec1(b, db, "SET synchronous_commit = off") // for this connection only
		// Ids and times grow with the number, and four tasks share a context.
		exec1(b, db, `CREATE FUNCTION pg_temp.made(lo bigint, hi bigint, n bigint, t0 timestamptz, t1 timestamptz)
			RETURNS TABLE (id uuid, context_id text, at timestamptz) LANGUAGE sql AS $$
			SELECT (lpad(to_hex((extract(epoch FROM a.at) * 1000)::bigint), 12, '0') || '7' || substr(h, 1, 3) || '8' || substr(h, 4, 15))::uuid,
			       md5('context' || i / 4 || '/' || n)::uuid::text, a.at
			  FROM generate_series(lo, hi) AS i, md5(i || '/' || n) AS h, LATERAL (SELECT t0 + (t1 - t0) * (i / n::float8) AS at) a $$`)
		taskColumns, taskValues := copied(b, db, "tasks", "t", map[string]string{"id": "m.id", "context_id": "m.context_id"})
		eventColumns, eventValues := copied(b, db, "task_events", "e", map[string]string{"task": "m.id"})
		const made = " FROM pg_temp.made($1, $2, $3, $4, $5) m, holdfast.tasks t"
		fillTasks := "INSERT INTO holdfast.tasks (" + taskColumns + ") SELECT " + taskValues + made + " WHERE t.id = $6::text::uuid"
		fillEvents := "INSERT INTO holdfast.task_events (" + eventColumns + ") SELECT " + eventValues + made +
			" JOIN holdfast.task_events e ON e.task = t.id WHERE t.id = $6::text::uuid ORDER BY m.id, e.seq"
		wg.Go(func() {
			for {
				lo := int(next.Add(batch)) - batch
				if lo >= n {
					return
				}
				args := []any{lo, min(lo+batch, n) - 1, n, from, to, model}
				_, err := db.Exec(b.Context(), fillTasks, args...)
				if err == nil {
					var tag pgconn.CommandTag
					tag, err = db.Exec(b.Context(), fillEvents, args...)
					written.Add(tag.RowsAffected())
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	events = int(written.Load())
	if each := one[int](b, s.c.db, "SELECT last_seq FROM holdfast.tasks WHERE id = $1::text::uuid", model); events != n*each {
		b.Fatalf("%d events stored of %d tasks", events, n)
	}
	return events
}

// copied lists the columns of a table, and their values in a copy of the row alias. Times keep their distance from
// the creation of the task t; all other values stay the same.
func copied(b *testing.B, db *pgx.Conn, table, alias string, instead map[string]string) (columns, values string) {
	b.Helper()
	var names, exprs []string
	for _, column := range one[[]string](b, db, `SELECT array_agg(attname || ' ' || atttypid::regtype ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = ('holdfast.' || $1)::regclass AND attnum > 0 AND NOT attisdropped`, table) {
		name, kind, _ := strings.Cut(column, " ")
		expr := alias + "." + name
		if kind == "timestamp with time zone" {
			expr = "m.at + (" + expr + " - t.created_at)"
		}
		if other, ok := instead[name]; ok {
			expr = other
		}
		names, exprs = append(names, name), append(exprs, expr)
	}
	return strings.Join(names, ", "), strings.Join(exprs, ", ")
}
