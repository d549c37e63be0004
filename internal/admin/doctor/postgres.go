package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/store"
)

// These checks look at PostgreSQL's background work, and at what blocks it.

func (d *database) vacuum(ctx context.Context) ([]Finding, error) {
	var on, counts bool
	err := d.pool.QueryRow(ctx, "SELECT current_setting('autovacuum')::bool, current_setting('track_counts')::bool").Scan(&on, &counts)
	if err != nil {
		return nil, err
	}
	if !on || !counts {
		return warns("autovacuum is off (or track_counts, which it needs): the queue becomes slow within hours").
			advise("set autovacuum = on and track_counts = on in postgresql.conf"), nil
	}
	var found findings
	var table string
	var live, dead int64
	var never, off bool
	err = d.forEach(ctx, `SELECT s.relname, s.n_live_tup, s.n_dead_tup,
		s.last_analyze IS NULL AND s.last_autoanalyze IS NULL,
		coalesce('autovacuum_enabled=false' = ANY(c.reloptions) OR 'autovacuum_enabled=off' = ANY(c.reloptions), false)
		FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid WHERE s.schemaname = 'holdfast' ORDER BY s.relname`, []any{&table, &live, &dead, &never, &off}, func() {
		switch {
		case off:
			found = append(found, warns("autovacuum is off for %s", table).advise("run ALTER TABLE holdfast.%s RESET (autovacuum_enabled)", table)...)
		case dead > 50_000 && dead > live/2:
			found = append(found, warns("%s has %d dead rows and %d live ones", table, dead, live).
				advise("find out what blocks vacuum (see transactions and replication), then run VACUUM holdfast.%s", table)...)
		case never && live > 50_000:
			found = append(found, warns("%s has about %d rows and was never analyzed", table, live).advise("run ANALYZE holdfast.%s", table)...)
		}
	})
	if err != nil {
		return nil, err
	}
	return found.orOK("on, and the tables are in order"), nil
}

func (d *database) wraparound(ctx context.Context) ([]Finding, error) {
	var name string
	var age, members, freeze int64
	err := d.pool.QueryRow(ctx, `SELECT datname, age(datfrozenxid)::bigint, mxid_age(datminmxid)::bigint,
		current_setting('autovacuum_freeze_max_age')::bigint
		FROM pg_database ORDER BY greatest(age(datfrozenxid), mxid_age(datminmxid)) DESC LIMIT 1`).Scan(&name, &age, &members, &freeze)
	if err != nil {
		return nil, err
	}
	const stops = 2_100_000_000 // near this age PostgreSQL refuses writes
	worst := max(age, members)
	detail := fmt.Sprintf("the oldest transaction id is %d million old (database %s); PostgreSQL stops at about %d million", worst/1_000_000, name, stops/1_000_000)
	advice := "run VACUUM (FREEZE) in that database, and find out what blocked it: a transaction, a slot or autovacuum"
	switch {
	case worst > 1_500_000_000:
		return fails("%s", detail).advise("%s", advice), nil
	case worst > max(2*freeze, 500_000_000):
		return warns("%s", detail).advise("%s", advice), nil
	}
	return oks("%s", detail), nil
}

func (d *database) transactions(ctx context.Context) ([]Finding, error) {
	var sees bool
	if err := d.pool.QueryRow(ctx, "SELECT pg_has_role('pg_read_all_stats', 'USAGE')").Scan(&sees); err != nil {
		return nil, err
	}
	found, blockers, err := d.blockers(ctx)
	if err != nil {
		return nil, err
	}
	var pid int
	var role, program, state string
	var age float64
	err = d.forEach(ctx, `SELECT pid, coalesce(usename, ''), coalesce(application_name, ''), coalesce(state, ''),
		extract(epoch FROM clock_timestamp() - xact_start)::float8
		FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
		 AND (xact_start < now() - interval '5 min' OR state LIKE 'idle in transaction%' AND state_change < now() - interval '1 min')
		ORDER BY xact_start LIMIT 5`, []any{&pid, &role, &program, &state, &age}, func() {
		if slices.Contains(blockers, pid) {
			return
		}
		found = append(found, warns("process %d of role %s (%s) is %s in a transaction that is %s old", pid, role, program, state, seconds(age)).
			advise("end it, or run SELECT pg_terminate_backend(%d): it keeps vacuum from cleaning the queue", pid)...)
	})
	if err != nil {
		return nil, err
	}
	prepared, err := column[string](ctx, d, "SELECT gid FROM pg_prepared_xacts WHERE prepared < now() - interval '5 min' ORDER BY prepared LIMIT 5")
	if err != nil {
		return nil, err
	}
	if len(prepared) > 0 {
		found = append(found, warns("prepared transactions are open for more than 5 minutes: %s", strings.Join(prepared, ", ")).advise("run COMMIT PREPARED or ROLLBACK PREPARED")...)
	}
	if !sees {
		return found.orOK("none that this role can see is old (pg_read_all_stats shows all)"), nil
	}
	return found.orOK("none is old"), nil
}

// blockers finds the sessions that block others.
func (d *database) blockers(ctx context.Context) (found findings, pids []int, err error) {
	all, err := store.Blockers(ctx, d.pool)
	for _, b := range all {
		pids = append(pids, b.PID)
		advice := "find it in pg_prepared_xacts, and run COMMIT PREPARED or ROLLBACK PREPARED"
		if b.PID != 0 {
			advice = fmt.Sprintf("end it, or run SELECT pg_terminate_backend(%d): requests and claims wait for its locks", b.PID)
		}
		found = append(found, warns("%s", &b).advise("%s", advice)...)
	}
	return found, pids, err
}

// muchWAL is how much WAL a slot may hold back before doctor reports it.
const muchWAL = 1 << 30

func (d *database) replication(ctx context.Context) ([]Finding, error) {
	var found findings
	slots := 0
	var name, status string
	var active bool
	var held int64
	err := d.forEach(ctx, `SELECT slot_name, active, coalesce(wal_status, ''), pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint
		FROM pg_replication_slots WHERE restart_lsn IS NOT NULL ORDER BY slot_name`, []any{&name, &active, &status, &held}, func() {
		slots++
		if held > muchWAL || status == "unreserved" || status == "lost" {
			use := "in use"
			if !active {
				use = "not in use"
			}
			found = append(found, warns("slot %s (%s) holds %d MiB of WAL", name, use, held>>20).
				advise("restore its reader, or run SELECT pg_drop_replication_slot('%s'): a slot without a reader fills the disk", name)...)
		}
	})
	if err != nil {
		return nil, err
	}
	return found.orOK("%d slots; none holds much WAL", slots), nil
}
