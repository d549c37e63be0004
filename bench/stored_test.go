package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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

// stored compares a database with many finished tasks with an empty one on the same PostgreSQL. Turns alternate, so
// both sides meet the same disturbances. Before the tasks are stored, the same is measured with both databases empty:
// the difference there is the error of the method.
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
	subject, control := newSide(b), newSide(b)
	for _, phase := range []string{"empty", fmt.Sprintf("tasks=%d", n)} {
		if phase != "empty" {
			b.Run("fill", func(b *testing.B) {
				if subject.filling == 0 { // go test repeats a quick benchmark
					start := time.Now()
					fill(b, subject, n)
					subject.filling = time.Since(start)
				}
				size := one[float64](b, subject.c.db, "SELECT pg_database_size(current_database())::float8")
				events := one[int](b, subject.c.db, "SELECT count(*) FROM holdfast.task_events")
				metric(b, subject.filling.Seconds(), "s")
				metric(b, size/(1<<20), "MB")
				metric(b, size/float64(n), "B/task")
				metric(b, float64(events)/float64(n), "events/task")
			})
		}
		for _, s := range []*side{subject, control} {
			s.sample(b)
			exec1(b, s.c.db, "VACUUM (ANALYZE) holdfast.tasks, holdfast.task_events, holdfast.task_queue")
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
	ids      []task.ID // some of its tasks
	contexts []string
	filling  time.Duration
}

func newSide(b *testing.B) *side {
	b.Helper()
	s := &side{c: newCluster(b, whole, apiOnly)}
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
	const some = " FROM (SELECT * FROM holdfast.tasks ORDER BY md5(id::text) LIMIT 2000) t"
	s.contexts = one[[]string](b, s.c.db, "SELECT array_agg(context_id)"+some)
	s.ids = nil
	for _, text := range one[[]string](b, s.c.db, "SELECT array_agg(id::text)"+some) {
		id, err := task.ParseID(text)
		if err != nil {
			b.Fatal(err)
		}
		s.ids = append(s.ids, id)
	}
}

// operation is an operation that a long history must not slow down. It works for a while and returns its rate per
// second.
type operation struct {
	name string
	rate func(s *side) float64
}

var operations = []operation{
	{"send/inflight=16", func(s *side) float64 { return s.send(0, 16) }},
	{"send/inflight=64", func(s *side) float64 { return s.send(0, 64) }},
	// The second replica runs nothing; the first one claims the tasks that it creates.
	{"claim/inflight=64", func(s *side) float64 { return s.send(1, 64) }},
	{"get", func(s *side) float64 {
		target := s.c.replicas[0].target
		conn := dial(s.b, target)
		return timed(s.b, func() error {
			_, err := conn.Call(target.Request("tasks/get", load.TaskQuery(s.ids[rand.IntN(len(s.ids))].String()), ""))
			return err
		})
	}},
	{"list/newest", func(s *side) float64 { return s.list(store.TaskFilter{Limit: 50}) }},
	{"list/agent", func(s *side) float64 { return s.list(store.TaskFilter{Agent: "demo", Limit: 50}) }},
	{"list/state=completed", func(s *side) float64 {
		return s.list(store.TaskFilter{State: task.StateCompleted, Limit: 50})
	}},
	// These two look for rare rows.
	{"list/state=working", func(s *side) float64 {
		return s.list(store.TaskFilter{State: task.StateWorking, Limit: 50})
	}},
	{"list/context", func(s *side) float64 {
		return s.list(store.TaskFilter{ContextID: s.contexts[rand.IntN(len(s.contexts))], Limit: 50})
	}},
}

func (s *side) send(replica, inFlight int) float64 {
	o := load.Options{Targets: []*load.Target{s.c.replicas[replica].target}, Mode: load.Blocking, Text: "echo:hello", InFlight: inFlight}
	if o.Count = tiny(); o.Count == 0 {
		o.Duration = turn()
	}
	return measure(s.b, o).TasksPerSecond()
}

func (s *side) list(f store.TaskFilter) float64 {
	return timed(s.b, func() error {
		_, err := s.store.ListTasks(s.b.Context(), f)
		return err
	})
}

// turn is how long a side is measured before the other one follows.
func turn() time.Duration { return benchtime() / 3 }

func timed(b *testing.B, do func() error) float64 {
	b.Helper()
	start, n := time.Now(), 0
	for n < max(tiny(), 1) || (tiny() == 0 && time.Since(start) < turn()/2) {
		if err := do(); err != nil {
			b.Fatal(err)
		}
		n++
	}
	return float64(n) / time.Since(start).Seconds()
}

// compare measures an operation on both sides in turns. Each side begins equally often.
func compare(b *testing.B, o operation, subject, control *side) {
	b.Helper()
	subject.b, control.b = b, b
	full, empty, ratios := inTurns(func() float64 { return o.rate(subject) }, func() float64 { return o.rate(control) })
	metric(b, median(empty), "empty/s")
	metric(b, median(full), "stored/s")
	metric(b, 100*(median(ratios)-1), "%slower")
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
// partitions.
func fill(b *testing.B, s *side, n int) {
	b.Helper()
	text := "echo:A pilot boards the ship outside of the harbour, knows its shoals and its currents, and brings it to its berth. " +
		"The master keeps the command and the responsibility; the pilot has the knowledge of the place."
	if chunks := os.Getenv(storedChunksEnv); chunks != "" {
		text = "chunks=" + chunks + " size=32"
	}
	model := newTask(b, s.c.replicas[0].target, text)
	db := connect(b, s.c.dbURL)
	exec1(b, db, "SET synchronous_commit = off") // for this connection only
	to := time.Now().AddDate(0, 0, -1)
	from := to.AddDate(0, -6, 0)
	if err := storetest.Partitions(b.Context(), s.c.dbURL, from, to); err != nil {
		b.Fatal(err)
	}
	// Ids and times grow with the number, and four tasks share a context.
	exec1(b, db, `CREATE FUNCTION pg_temp.made(lo bigint, hi bigint, n bigint, t0 timestamptz, t1 timestamptz)
		RETURNS TABLE (id uuid, context_id text, at timestamptz) LANGUAGE sql AS $$
		SELECT (lpad(to_hex((extract(epoch FROM a.at) * 1000)::bigint), 12, '0') || '7' || substr(h, 1, 3) || '8' || substr(h, 4, 15))::uuid,
		       md5('context' || i / 4)::uuid::text, a.at
		  FROM generate_series(lo, hi) AS i, md5(i::text) AS h, LATERAL (SELECT t0 + (t1 - t0) * (i / n::float8) AS at) a $$`)
	taskColumns, taskValues := copied(b, db, "tasks", "t", map[string]string{"id": "m.id", "context_id": "m.context_id"})
	eventColumns, eventValues := copied(b, db, "task_events", "e", map[string]string{"task": "m.id"})
	const batch = 50_000
	for lo := 0; lo < n; lo += batch {
		args := []any{lo, min(lo+batch, n) - 1, n, from, to, model}
		exec1(b, db, "INSERT INTO holdfast.tasks ("+taskColumns+") SELECT "+taskValues+
			" FROM pg_temp.made($1, $2, $3, $4, $5) m, holdfast.tasks t WHERE t.id = $6::text::uuid", args...)
		exec1(b, db, "INSERT INTO holdfast.task_events ("+eventColumns+") SELECT "+eventValues+
			" FROM pg_temp.made($1, $2, $3, $4, $5) m, holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id"+
			" WHERE t.id = $6::text::uuid ORDER BY m.id, e.seq", args...)
	}
	events := one[int](b, db, "SELECT last_seq FROM holdfast.tasks WHERE id = $1::text::uuid", model)
	if got := one[int](b, db, "SELECT count(*) FROM holdfast.task_events WHERE created_at < $1", to.Add(time.Hour)); got != n*events {
		b.Fatalf("%d events stored of %d tasks", got, n)
	}
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
