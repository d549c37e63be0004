package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

// database makes the checks that need a database.
func (e *examination) database(ctx context.Context) {
	queries, direct := e.Config.DatabaseURL, e.Config.ListenDatabaseURL
	if queries == "" {
		passed := e.one(ctx, check{"embedded", func(context.Context) (found []Finding, err error) {
			queries, found, err = e.embedded()
			return found, err
		}})
		if !passed || queries == "" {
			return
		}
	}
	if direct == "" {
		direct = queries
	}
	d := &database{examination: e, url: queries, direct: direct, pooled: direct != queries}
	if !e.one(ctx, check{"database", func(ctx context.Context) ([]Finding, error) { return d.reach(ctx, queries) }}) {
		return
	}
	defer d.pool.Close()
	defer func() {
		if d.store != nil {
			d.store.Close(context.WithoutCancel(ctx))
		}
	}()
	for _, c := range []check{
		{"commit", d.commit},
		{"notify", d.notify},
		{"session", d.session},
		{"transactions", d.transactions}, // before the checks that read tables, which a transaction may have locked
		{"connections", d.connections},
		{"clock", d.clock},
		{"role", d.role},
		{"schema", d.schema},
		{"isolation", d.isolation},
		{"subjects", d.subjects},
		{"partitions", d.partitions},
		{"workers", d.workers},
		{"agents", d.agents},
		{"runs", d.runs},
		{"webhooks", d.webhooks},
		{"webhook secrets", d.webhookSecrets},
		{"signing keys", d.signingKeys},
		{"vacuum", d.vacuum},
		{"wraparound", d.wraparound},
		{"replication", d.replication},
	} {
		if ctx.Err() != nil {
			return
		}
		if e.late >= 3 {
			// Do not ask a hanging database twenty more times.
			e.report(Finding{Check: c.name, Status: Fail, Detail: "not checked, like all checks after it: three checks timed out"})
			return
		}
		if d.bare && needsSchema[c.name] || d.old && needsStore[c.name] {
			continue
		}
		e.one(ctx, c)
	}
}

// needsSchema are the checks that need a migrated database.
var needsSchema = map[string]bool{"isolation": true, "subjects": true, "partitions": true, "workers": true, "agents": true, "runs": true, "webhooks": true, "webhook secrets": true, "signing keys": true}

// needsStore are those of them that need the schema of this program.
var needsStore = map[string]bool{"workers": true, "agents": true, "webhooks": true}

type database struct {
	*examination
	pool   *pgxpool.Pool
	url    string // of queries
	direct string
	pooled bool // queries go through a pooler
	bare   bool // the database has no schema
	old    bool // its schema is older than this program
	store  *store.Store
}

// open connects the store, whose figures are those of the admin API.
func (d *database) open(ctx context.Context) (*store.Store, error) {
	if d.store != nil {
		return d.store, nil
	}
	s, err := store.Open(ctx, store.Options{URL: d.url, Pooled: d.pooled, APIConns: 2, Writers: 1})
	d.store = s
	return s, err
}

// embedded looks for the embedded database, and does not start it.
func (e *examination) embedded() (url string, found findings, err error) {
	dir := e.Config.DataDir
	if !pgembed.Exists(dir) {
		return "", warns("%s has no database yet; the server creates it when it starts", dir).
			advise("to use another database, set HOLDFAST_DATABASE_URL; if the server runs elsewhere, run this there"), nil
	}
	url, pid, err := pgembed.Look(dir)
	if err != nil {
		return "", nil, err
	}
	if pid == 0 {
		return "", warns("PostgreSQL in %s does not run, so its checks are skipped", dir).advise("start the server and run this again"), nil
	}
	found = oks("PostgreSQL in %s runs (pid %d)", dir, pid)
	if free, _, ok := DiskOf(dir); ok && free < 1<<30 {
		found = append(found, warns("its disk has only %d MiB free", free>>20).advise("free some space: a full disk stops every write")...)
	}
	return url, found, nil
}

func (d *database) reach(ctx context.Context, url string) (found []Finding, err error) {
	cfg, err := pgurl.ParseAny(url)
	if err != nil {
		return nil, err // the error hides the password
	}
	quiet(cfg.ConnConfig)
	cfg.MaxConns = 2
	if d.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg); err != nil {
		return nil, err
	}
	c := cfg.ConnConfig
	where := fmt.Sprintf("%s as %s on %s:%d", c.Database, c.User, c.Host, c.Port)
	defer func() {
		if err != nil || len(found) > 0 && found[0].Status == Fail {
			d.pool.Close()
		}
	}()
	var number int
	var version, encoding string
	var standby, readOnly bool
	err = d.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version'),
		current_setting('server_encoding'), pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool`).
		Scan(&number, &version, &encoding, &standby, &readOnly)
	var unreached *schema.Unreached
	unsupported := schema.CheckServer(number, encoding)
	switch {
	case errors.As(schema.Explain(err), &unreached) && ctx.Err() == nil:
		return fails("%s", unreached.Detail).advise("%s", unreached.Advice), nil
	case err != nil:
		return nil, err
	case unsupported != nil && encoding != "UTF8":
		return fails("%s: %v", where, unsupported), nil
	case unsupported != nil:
		return fails("%s: %v", where, unsupported).advise("upgrade PostgreSQL; the data stays with another release of the same major version"), nil
	case standby:
		return fails("%s is a standby", where).advise("point Holdfast at the primary, because it writes with every request"), nil
	case readOnly:
		return fails("%s: transactions are read-only by default", where).advise("run ALTER ROLE %s RESET default_transaction_read_only", c.User), nil
	}
	return oks("PostgreSQL %s: %s", version, where), nil
}

// short returns the last error of a connection that was tried in several ways.
func short(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// connectTimeout is how long a connection may take.
var connectTimeout = 5 * time.Second

// quiet makes a connection that leaves no state in a pooler's session.
func quiet(c *pgx.ConnConfig) {
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	c.ConnectTimeout = connectTimeout
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "holdfast doctor"
	}
}

// slowCommit is how long a commit may take before doctor reports it.
const slowCommit = 50 * time.Millisecond

// commit measures a commit, because every acknowledgement waits for one. A logical message is only in PostgreSQL's log.
// So its commit is complete, but changes no data.
func (d *database) commit(ctx context.Context) ([]Finding, error) {
	var fsync, pages bool
	var synchronous, standbys string
	err := d.pool.QueryRow(ctx, `SELECT current_setting('fsync')::bool, current_setting('full_page_writes')::bool,
		current_setting('synchronous_commit'), current_setting('synchronous_standby_names')`).
		Scan(&fsync, &pages, &synchronous, &standbys)
	if err != nil {
		return nil, err
	}
	var found findings
	if !fsync {
		found = append(found, warns("FSYNC IS OFF: if the machine stops, acknowledged tasks and events are lost and the database may be damaged beyond repair").
			advise("set fsync = on in postgresql.conf; every promise of Holdfast depends on it")...)
	}
	if !pages {
		found = append(found, warns("FULL_PAGE_WRITES IS OFF: if the machine stops during a write, the database may be damaged beyond repair").
			advise("set full_page_writes = on in postgresql.conf")...)
	}
	switch {
	case synchronous == "off":
		found = append(found, warns("SYNCHRONOUS_COMMIT IS OFF: if PostgreSQL or its machine stops, the tasks and events acknowledged last are lost").
			advise("run ALTER ROLE … RESET synchronous_commit, or set it to on where it was set to off (postgresql.conf, the database, the URL)")...)
	case standbys != "" && (synchronous == "local"):
		found = append(found, warns("synchronous_commit is local although there is a synchronous standby: a failover may lose acknowledged tasks and events").
			advise("set it to on or remote_apply")...)
	}
	var took []time.Duration
	for range 5 {
		start := time.Now()
		if _, err := d.pool.Exec(ctx, "SELECT pg_logical_emit_message(true, 'holdfast doctor', '')"); err != nil {
			if ctx.Err() != nil && standbys != "" {
				return append(found, fails("a commit does not return: synchronous_standby_names is %q", standbys).
					advise("no synchronous standby answers: restore it, or remove it from the setting")...), nil
			}
			return found, fmt.Errorf("measure a commit: %w", err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	median := took[len(took)/2].Round(10 * time.Microsecond)
	if median > slowCommit {
		found = append(found, warns("a commit takes %s (median of 5), and every acknowledgement waits for one", median).
			advise("use a faster disk for the WAL or a nearer database; store.writer_conns: 4 hides part of the delay")...)
	}
	return found.orOK("a commit takes %s (median of 5); fsync on, synchronous_commit %s", median, synchronous), nil
}

// notify sends on its own channel and listens for that, as the replicas do.
func (d *database) notify(ctx context.Context) ([]Finding, error) {
	connect := func() (*pgx.Conn, error) {
		cfg, err := pgurl.ParseAny(d.direct)
		if err != nil {
			return nil, err
		}
		quiet(cfg.ConnConfig)
		return pgurl.ConnectAs(ctx, cfg)
	}
	leave := func(c *pgx.Conn) {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.Close(closing)
	}
	const advice = "set HOLDFAST_LISTEN_DATABASE_URL to PostgreSQL itself; until then replicas poll for the events of others, and parallel migrations are not safe"
	ear, err := connect()
	if err != nil {
		return fails("the connection for LISTEN fails: %s", short(err)).advise(advice), nil
	}
	defer leave(ear)
	mouth, err := connect()
	if err != nil {
		return fails("the connection for NOTIFY fails: %s", short(err)).advise(advice), nil
	}
	defer leave(mouth)
	if d.pooled {
		const which = "SELECT current_database() || ' ' || pg_postmaster_start_time()::text"
		var here, there string
		if err := errors.Join(d.pool.QueryRow(ctx, which).Scan(&here), ear.QueryRow(ctx, which).Scan(&there)); err != nil {
			return nil, err
		}
		if here != there {
			return fails("database_url and listen_database_url lead to different databases").advise("let both lead to the same database, with and without the pooler"), nil
		}
	}
	channel := "holdfast_doctor_" + strings.ToLower(rand.Text())
	if _, err := ear.Exec(ctx, "LISTEN "+channel); err != nil {
		return fails("LISTEN is refused: %v", err).advise(advice), nil
	}
	if _, err := mouth.Exec(ctx, "SELECT pg_notify('"+channel+"', '')"); err != nil {
		return fails("NOTIFY is refused: %v", err).advise(advice), nil
	}
	waiting, cancel := context.WithTimeout(ctx, cmp.Or(d.arrival, min(3*time.Second, d.Timeout/2)))
	defer cancel()
	start := time.Now()
	if _, err := ear.WaitForNotification(waiting); err != nil {
		return warns("notifications do not arrive; is there a pooler in transaction mode?").advise(advice), nil
	}
	return oks("a notification arrives after %s", time.Since(start).Round(10*time.Microsecond)), nil
}

// session checks settings of the session. The server sets them itself on a direct connection. Behind a pooler, an
// operator has to set them for the role (docs/database.md).
func (d *database) session(ctx context.Context) ([]Finding, error) {
	if !d.pooled {
		switch err := schema.CheckDirect(ctx, d.direct, slog.New(slog.DiscardHandler)); {
		case errors.Is(err, schema.ErrPooled):
			return fails("database_url leads to a pooler, and listen_database_url is not set").
				advise("set HOLDFAST_LISTEN_DATABASE_URL to PostgreSQL itself: without it the server does not start"), nil
		case err != nil:
			return nil, err
		}
		return oks("direct connection: the server sets the parameters that it needs"), nil
	}
	var missing []string
	for _, want := range [][2]string{
		{"TimeZone", "UTC"},
		{"enable_seqscan", "off"},
		{"plan_cache_mode", "force_generic_plan"},
		{"jit", "off"},
		{"default_transaction_isolation", "read committed"},
	} {
		var have string
		if err := d.pool.QueryRow(ctx, "SELECT current_setting('"+want[0]+"')").Scan(&have); err != nil {
			return nil, err
		}
		if have != want[1] {
			missing = append(missing, fmt.Sprintf("%s is %s instead of %s", want[0], have, want[1]))
		}
	}
	for _, name := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		var have string
		if err := d.pool.QueryRow(ctx, "SELECT current_setting('"+name+"')").Scan(&have); err != nil {
			return nil, err
		}
		if have == "0" {
			missing = append(missing, name+" is not set")
		}
	}
	if len(missing) > 0 {
		return warns("behind a pooler, but %s", strings.Join(missing, "; ")).
			advise("set them for the role with the statements of docs/database.md, Poolers"), nil
	}
	return oks("behind a pooler, and the role has the settings"), nil
}

func (d *database) connections(ctx context.Context) ([]Finding, error) {
	var most, reserved, used, ofRole, ofDatabase int
	err := d.pool.QueryRow(ctx, `SELECT current_setting('max_connections')::int,
		current_setting('superuser_reserved_connections')::int + coalesce(current_setting('reserved_connections', true), '0')::int,
		(SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend'),
		(SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
		(SELECT datconnlimit FROM pg_database WHERE datname = current_database())`).
		Scan(&most, &reserved, &used, &ofRole, &ofDatabase)
	if err != nil {
		return nil, err
	}
	live := 0
	err = d.pool.QueryRow(ctx, "SELECT count(*)::int FROM holdfast.workers WHERE lease_until >= now()").Scan(&live)
	if err != nil && ctx.Err() != nil {
		return nil, err // else the table is missing, so no replica is live
	}
	each := store.Connections(d.Config.Store.PoolSize, d.Config.Store.WriterConns)
	room := most - reserved
	for _, limit := range []int{ofRole, ofDatabase} {
		if limit >= 0 {
			room = min(room, limit)
		}
	}
	need := max(live, 1) * each
	detail := fmt.Sprintf("%d allowed, %d in use; %d live replicas with this configuration take up to %d", room, used, max(live, 1), need)
	switch {
	case d.pooled:
		return oks("through a pooler; PostgreSQL allows %d, %d in use", room, used), nil
	case need > room:
		return warns("%s", detail).advise("raise max_connections (or the limit of the role or database) or lower store.pool_size"), nil
	case used > room-each:
		return warns("%s", detail).advise("one more replica would not fit: see pg_stat_activity for the connections in use"), nil
	}
	return oks("%s", detail), nil
}

func (d *database) clock(ctx context.Context) ([]Finding, error) {
	before := time.Now()
	var theirs time.Time
	if err := d.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&theirs); err != nil {
		return nil, err
	}
	trip := time.Since(before)
	off := theirs.Sub(before.Add(trip / 2)).Round(time.Millisecond)
	if off.Abs() > 5*time.Second {
		return warns("the database's clock is %s ahead of this machine's", off).
			advise("synchronise both clocks (NTP): ids take their time from this machine; leases are safe, because they use only the database's clock"), nil
	}
	return oks("within %s of this machine's", max(off.Abs(), trip.Round(time.Millisecond))), nil
}

// isolation makes the same check as the store before it relies on row-level security.
func (d *database) isolation(ctx context.Context) ([]Finding, error) {
	if d.Config.Auth.RowSecurity == config.RowSecurityOff {
		return warns("row-level security is off: only the server keeps callers apart").
			advise("remove auth.row_level_security from the configuration to let the database do it, too"), nil
	}
	var there bool
	if err := d.pool.QueryRow(ctx, "SELECT to_regproc('holdfast.admit_callers') IS NOT NULL").Scan(&there); err != nil || !there {
		return oks("not checked: the schema is older than row-level security"), err
	}
	reason, err := store.CheckRowSecurity(ctx, d.pool)
	if err != nil {
		return nil, err
	}
	if reason == "" {
		return oks("on: the database keeps callers apart, too"), nil
	}
	found := warns
	if d.Config.Auth.RowSecurity == config.RowSecurityRequire {
		found = fails
	}
	return found("only the server keeps callers apart: %s", reason).
		advise("run the statements of docs/database.md, The database, or set auth.row_level_security to off"), nil
}

func (d *database) role(ctx context.Context) ([]Finding, error) {
	var role string
	var exists, creates, makes, owns, admitted, powerful bool
	err := d.pool.QueryRow(ctx, `SELECT current_user, n.oid IS NOT NULL, has_database_privilege(current_database(), 'CREATE'),
		coalesce(has_schema_privilege(n.oid, 'CREATE') AND has_schema_privilege(n.oid, 'USAGE'), false),
		EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND pg_has_role(c.relowner, 'USAGE')),
		EXISTS (SELECT FROM pg_policy p CROSS JOIN unnest(p.polroles) r
			WHERE p.polrelid = (SELECT c.oid FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'tasks') AND p.polname = 'servers' AND pg_has_role(r, 'USAGE')),
		(SELECT r.rolsuper OR r.rolbypassrls FROM pg_roles r WHERE r.rolname = current_user)
		FROM (SELECT 1) one LEFT JOIN pg_namespace n ON n.nspname = 'holdfast'`).Scan(&role, &exists, &creates, &makes, &owns, &admitted, &powerful)
	if err != nil {
		return nil, err
	}
	switch {
	case admitted && !owns && !powerful:
		var unusable *schema.Unusable
		if err := schema.CheckUsable(ctx, d.pool); errors.As(err, &unusable) {
			return fails("%s", unusable.Reason), nil
		}
		if makes {
			return warns("%s owns nothing, but may create tables in schema holdfast", role).advise("run REVOKE CREATE ON SCHEMA holdfast FROM %s", role), nil
		}
		return d.connects(ctx, role+" owns nothing; the owner of the schema has admitted it")
	case !exists && !creates:
		return fails("%s may not create the schema", role).advise("run GRANT CREATE ON DATABASE … TO %s, once", role), nil
	case !exists:
		return oks("%s may create the schema", role), nil
	case !makes:
		return fails("%s may not use schema holdfast or create tables in it", role).advise("run GRANT USAGE, CREATE ON SCHEMA holdfast TO %s; better, let it own the schema", role), nil
	}
	barred, err := column[string](ctx, d, `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'holdfast' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND NOT (has_table_privilege(c.oid, 'SELECT')
		  AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
		ORDER BY c.relname LIMIT 10`)
	if err != nil {
		return nil, err
	}
	if len(barred) > 0 {
		return fails("%s may not read and write %s", role, strings.Join(barred, ", ")).advise("let it own the tables in schema holdfast"), nil
	}
	foreign, err := column[string](ctx, d, `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'holdfast' AND c.relkind IN ('r', 'p') AND NOT pg_has_role(c.relowner, 'USAGE') ORDER BY c.relname LIMIT 10`)
	if err != nil {
		return nil, err
	}
	if len(foreign) > 0 {
		return fails("%s does not own %s: row-level security hides their rows, and it can neither migrate nor create the next partition", role, strings.Join(foreign, ", ")).
			advise("let it own the tables in schema holdfast, or make it a member of the owner"), nil
	}
	return d.connects(ctx, role+" owns the tables")
}

// connects finds owners of other databases that may connect to this one.
func (d *database) connects(ctx context.Context, otherwise string) ([]Finding, error) {
	var database string
	var open bool
	err := d.pool.QueryRow(ctx, `SELECT d.datname, EXISTS (SELECT FROM aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a WHERE a.grantee = 0 AND a.privilege_type = 'CONNECT')
		FROM pg_database d WHERE d.datname = current_database()`).Scan(&database, &open)
	if err != nil {
		return nil, err
	}
	others, err := column[string](ctx, d, `SELECT DISTINCT r.rolname FROM pg_database d JOIN pg_roles r ON r.oid = d.datdba
		WHERE r.rolcanlogin AND NOT r.rolsuper AND d.datdba <> (SELECT o.datdba FROM pg_database o WHERE o.datname = current_database())
		ORDER BY 1 LIMIT 10`)
	if err != nil {
		return nil, err
	}
	if open && len(others) > 0 {
		return warns("%s may connect to this database, because PUBLIC may", strings.Join(others, ", ")).
			advise(`run REVOKE CONNECT ON DATABASE "%s" FROM PUBLIC; and GRANT CONNECT to the roles that need it`, database), nil
	}
	return oks("%s", otherwise), nil
}

func (d *database) schema(ctx context.Context) ([]Finding, error) {
	v, err := schema.ReadVersion(ctx, d.pool)
	if errors.Is(err, schema.ErrUnreleased) {
		d.bare = true // an unknown schema
		return fails("made by an unreleased version of Holdfast; no version can migrate it").advise("create a new database"), nil
	}
	if err != nil {
		return nil, err
	}
	d.bare, d.old = v.Applied == 0, v.Applied < v.Latest
	switch {
	case v.Applied == 0:
		return warns("not there yet; the server creates it when it starts").advise("start the server or run holdfast migrate"), nil
	case v.Applied < v.Latest:
		return fails("version %d, but this program needs version %d", v.Applied, v.Latest).
			advise("read CHANGELOG.md, then run holdfast migrate or start a server of this version"), nil
	case v.Applied > v.Latest:
		return warns("version %d, but this program knows version %d: a newer version migrated the database", v.Applied, v.Latest).
			advise("during an upgrade this is normal; otherwise use the newer program"), nil
	}
	return oks("version %d, as this program needs", v.Applied), nil
}

func column[T any](ctx context.Context, d *database, sql string) ([]T, error) {
	rows, err := d.pool.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

// forEach scans each row into the same variables and calls do.
func (d *database) forEach(ctx context.Context, sql string, into []any, do func()) error {
	rows, err := d.pool.Query(ctx, sql)
	if err != nil {
		return err
	}
	if _, err := pgx.ForEachRow(rows, into, func() error { do(); return nil }); err != nil {
		return err
	}
	return rows.Err()
}
