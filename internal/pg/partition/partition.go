// Package partition creates and removes the partitions of the tables that grow: one table for each period of time.
//
// The catalog of PostgreSQL is the only record of the partitions. Several processes may call the
// functions at once, and may be killed at any moment: the next call continues the work.
//
// No partitioned table has a default partition. So PostgreSQL can attach and detach a partition
// while other sessions read and write: both take a lock that conflicts with none of their
// statements.
package partition

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Family is a set of tables with the same periods.
type Family struct {
	Name   string
	tables []table
	behind time.Duration          // EnsureAhead also creates the partitions of this time before now
	bound  func(time.Time) string // formats a partition bound like PostgreSQL in UTC
	parse  func(string) (time.Time, error)
}

// table is a partitioned table of a family.
type table struct {
	name   string // in schema holdfast
	prefix string // prefix of its partitions' names, which holdfast.partition_of knows too
}

// The families.
var (
	// Tasks are ended tasks and the logs of all tasks, by the time in the task's id.
	Tasks = Family{Name: "tasks", behind: late, bound: idBound, parse: parseID, tables: []table{
		{name: "tasks_dated", prefix: "tasks"},
		{name: "events_log", prefix: "events"},
		{name: "events_artifacts", prefix: "artifacts"},
	}}
	// Keys are idempotency keys, by the day of their use. Within five minutes of midnight, holdfast.key_days writes a key on
	// both days.
	Keys = Family{Name: "idempotency_keys", behind: 5*time.Minute + late, bound: dayBound, parse: parseDay, tables: []table{
		{name: "idempotency_keys", prefix: "keys"},
	}}
	// Attempts are delivery attempts of webhooks, by their start. An attempt takes up to two minutes and is stored at its end.
	Attempts = Family{Name: "delivery_attempts", behind: 2*time.Minute + late, bound: timeBound, parse: parseTime, tables: []table{
		{name: "push_attempts", prefix: "attempts"},
	}}
	// Audit is the audit log.
	Audit = Family{Name: "audit", behind: late, bound: timeBound, parse: parseTime, tables: []table{
		{name: "audit_log", prefix: "audit"},
	}}
	Families = []Family{Tasks, Keys, Attempts, Audit}
)

// DB begins transactions: a pool or a connection.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Partition is one table of a period.
type Partition struct {
	Table  string    `json:"table"` // without schema
	Parent string    `json:"parent"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	// Detaching says that a detach was interrupted. The rows are no longer visible in the table.
	Detaching bool `json:"detaching,omitempty"`
}

// Ensure creates the missing partitions of a family between from and to, and returns their names. A
// new period ends where the next existing one begins, whatever the width.
func Ensure(ctx context.Context, db DB, f Family, w Width, from, to time.Time) (created []string, err error) {
	return ensure(ctx, db, f, w, from, to, to)
}

// EnsureAhead creates the missing partitions of a family around now and for the time ahead, once
// less than two thirds of that time have partitions. So it creates several at once: each time, all
// sessions plan their statements again.
func EnsureAhead(ctx context.Context, db DB, f Family, w Width, now time.Time) (created []string, err error) {
	return ensure(ctx, db, f, w, now.Add(-f.behind), now.Add(w.Ahead()*2/3), now.Add(w.Ahead()))
}

// late covers clocks that are a little slow, and creates that were delayed.
const late = time.Minute

// ensure creates the missing partitions between from and to if one between from and soon is missing.
func ensure(ctx context.Context, db DB, f Family, w Width, from, soon, to time.Time) (created []string, err error) {
	// Check without the lock first: usually no partition is missing.
	complete := true
	err = begin(ctx, db, func(tx pgx.Tx) error {
		return each(ctx, tx, f, func(_ table, there []Partition) error {
			complete = complete && len(gaps(there, w, from, soon)) == 0
			return nil
		})
	})
	if err != nil || complete {
		return nil, err
	}
	err = begin(ctx, db, func(tx pgx.Tx) error {
		// One process at a time, because ten replicas may start in the same second.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('holdfast.partitions'))"); err != nil {
			return err
		}
		return each(ctx, tx, f, func(t table, there []Partition) error {
			for _, p := range gaps(there, w, from, to) {
				name := t.prefix + "_" + stamp(p.from)
				if err := create(ctx, tx, f, name, p); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				created = append(created, name)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return created, nil
}

// each lists the partitions of each table of a family.
func each(ctx context.Context, tx pgx.Tx, f Family, do func(t table, there []Partition) error) error {
	for _, t := range f.tables {
		there, err := list(ctx, tx, f, t)
		if err == nil {
			err = do(t, there)
		}
		if err != nil {
			return fmt.Errorf("partitions of %s: %w", t.name, err)
		}
	}
	return nil
}

// create adds a partition. A function of the owner does it, because the role of a server may own nothing.
func create(ctx context.Context, tx pgx.Tx, f Family, name string, p period) error {
	_, err := tx.Exec(ctx, "SELECT holdfast.partition_add($1, $2, $3)", name, f.bound(p.from), f.bound(p.to))
	return err
}

// List returns the partitions of all tables of a family, the oldest first.
func List(ctx context.Context, db DB, f Family) (all []Partition, err error) {
	err = begin(ctx, db, func(tx pgx.Tx) error {
		return each(ctx, tx, f, func(_ table, there []Partition) error {
			all = append(all, there...)
			return nil
		})
	})
	slices.SortStableFunc(all, func(a, b Partition) int { return a.From.Compare(b.From) })
	return all, err
}

var bounds = regexp.MustCompile(`^FOR VALUES FROM \('([^']*)'\) TO \('([^']*)'\)$`)

func list(ctx context.Context, tx pgx.Tx, f Family, t table) (there []Partition, err error) {
	const partitions = `SELECT c.relname, pg_get_expr(c.relpartbound, c.oid), i.inhdetachpending
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = $1::regclass`
	rows, err := tx.Query(ctx, partitions, "holdfast."+t.name) //nolint:rowserrcheck // ForEachRow does
	if err != nil {
		return nil, err
	}
	var bound string
	p := Partition{Parent: t.name}
	_, err = pgx.ForEachRow(rows, []any{&p.Table, &bound, &p.Detaching}, func() error {
		m := bounds.FindStringSubmatch(bound)
		if m == nil {
			return fmt.Errorf("partition %s has bounds that Holdfast did not set: %s", p.Table, bound)
		}
		var begins, ends error
		p.From, begins = f.parse(m[1])
		p.To, ends = f.parse(m[2])
		there = append(there, p)
		return errors.Join(begins, ends)
	})
	slices.SortFunc(there, func(a, b Partition) int { return a.From.Compare(b.From) })
	return there, err
}

// Detached returns the detached tables of a family that are not dropped yet.
func Detached(ctx context.Context, db DB, f Family) (names []string, err error) {
	err = begin(ctx, db, func(tx pgx.Tx) error {
		for _, t := range f.tables {
			rows, err := tx.Query(ctx, `SELECT c.relname FROM pg_class c
				WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' AND c.relname ~ $1
				  AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid) ORDER BY 1`, "^"+t.prefix+`_\d{8}(_\d{4,6})?$`)
			if err != nil {
				return err
			}
			found, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return err
			}
			names = append(names, found...)
		}
		return nil
	})
	return names, err
}

// Detach detaches a partition from its table. Its rows are then in a separate table, which no
// statement reads. Detach blocks until the statements that read the partition have ended or ctx
// ends, but no statement waits for it. After an interruption the next call continues. It must run
// outside of a transaction, directly or through a pooler.
//
// Only the owner of the table may do that. For another role, a function of the owner detaches the partition, and
// statements wait for it, for less than their lock_timeout.
func Detach(ctx context.Context, conn *pgx.Conn, p Partition) error {
	var owns bool
	const owner = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = $1::regclass"
	if err := conn.QueryRow(ctx, owner, "holdfast."+p.Parent).Scan(&owns); err != nil {
		return err
	}
	if !owns {
		return detachBriefly(ctx, conn, p)
	}
	if err := spare(ctx, conn, p.Parent); err != nil {
		return err
	}
	how := "CONCURRENTLY"
	if p.Detaching {
		how = "FINALIZE"
	}
	_, err := conn.Exec(ctx, fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s %s", quoted(p.Parent), quoted(p.Table), how))
	return err
}

// The number of tries of detachBriefly, and the pause between them: statements that wait go first.
const (
	briefTries = 20
	briefPause = 200 * time.Millisecond
)

// detachBriefly repeats holdfast.partition_detach while other sessions' locks are in its way.
func detachBriefly(ctx context.Context, conn *pgx.Conn, p Partition) error {
	for try := 1; ; try++ {
		_, err := conn.Exec(ctx, "SELECT holdfast.partition_detach($1)", p.Table)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "55P03" && pg.Code != "40P01" || try == briefTries {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(briefPause):
		}
	}
}

// spare makes sure that the last partition of a table is empty, and is for a time to come. While a
// partition is being detached, PostgreSQL (14 to 18) may leave the last one out of statements that
// choose partitions when they run, such as lists: it numbers the partitions without the detached one in
// the plan, and with it in the execution.
func spare(ctx context.Context, db DB, parent string) error {
	i := slices.IndexFunc(Families, func(f Family) bool {
		return slices.ContainsFunc(f.tables, func(t table) bool { return t.name == parent })
	})
	f := Families[i]
	var last Partition
	var now time.Time
	var used bool
	err := begin(ctx, db, func(tx pgx.Tx) error {
		there, err := list(ctx, tx, f, table{name: parent})
		if err != nil || len(there) == 0 {
			return err
		}
		last = there[len(there)-1]
		return tx.QueryRow(ctx, "SELECT now(), EXISTS (SELECT FROM "+quoted(last.Table)+")").Scan(&now, &used)
	})
	if err != nil || !used && last.From.After(now) {
		return err
	}
	w := Width(last.To.Sub(last.From))
	if Month.Next(last.From).Equal(last.To) {
		w = Month
	}
	from := last.To
	if !from.After(now) {
		from = w.Next(now)
	}
	_, err = Ensure(ctx, db, f, w, from, from.Add(time.Millisecond))
	return err
}

// Drop removes a detached table.
func Drop(ctx context.Context, conn *pgx.Conn, name string) error {
	_, err := conn.Exec(ctx, "SELECT holdfast.partition_drop($1)", name)
	return err
}

// Missing reports whether an INSERT failed because a row's partition is missing, and the time of
// that row. The time is zero if PostgreSQL does not report it.
func Missing(err error) (at time.Time, missing bool) {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "23514" || !strings.HasPrefix(pg.Message, "no partition of relation") {
		return time.Time{}, false
	}
	if m := failing.FindStringSubmatch(pg.Detail); m != nil {
		at, _ = parseID(m[1])
	}
	return at, true
}

var failing = regexp.MustCompile(`\((?:id|task)\) = \(([0-9a-f-]{36})\)`)

// begin runs a transaction that formats bounds in UTC and has a short lock timeout.
func begin(ctx context.Context, db DB, do func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('timezone', 'UTC', true), set_config('datestyle', 'ISO', true), set_config('lock_timeout', '2s', true)"); err != nil {
			return err
		}
		return do(tx)
	})
}

func quoted(name string) string { return pgx.Identifier{"holdfast", name}.Sanitize() }

// stamp formats a time for a name: 20261122, followed by hours and minutes, and seconds, unless
// they are zero.
func stamp(t time.Time) string {
	t = t.UTC()
	layout := "20060102_150405"
	switch {
	case t.Second() != 0:
	case t.Hour() == 0 && t.Minute() == 0:
		layout = "20060102"
	default:
		layout = "20060102_1504"
	}
	return t.Format(layout)
}

// FirstID returns the smallest UUID with the 48-bit millisecond time t. It has no version bits, so
// it is below every id of that time.
func FirstID(t time.Time) (id [16]byte) {
	ms := uint64(max(t.UnixMilli(), 0))
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// TimeOf returns the time in a UUIDv7.
func TimeOf(id [16]byte) time.Time {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms).UTC()
}

func idBound(t time.Time) string {
	id := FirstID(t)
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func parseID(s string) (time.Time, error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(raw) != 16 {
		return time.Time{}, fmt.Errorf("%q is not a UUID", s)
	}
	return TimeOf([16]byte(raw)), nil
}

func dayBound(t time.Time) string          { return t.UTC().Format(time.DateOnly) }
func parseDay(s string) (time.Time, error) { return time.Parse(time.DateOnly, s) }
func timeBound(t time.Time) string         { return t.UTC().Format("2006-01-02 15:04:05.999999+00") }

func parseTime(s string) (time.Time, error) { return time.Parse("2006-01-02 15:04:05.999999Z07", s) }
