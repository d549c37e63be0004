// Package schema migrates a database to the version of this binary and reports its version.
package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
	"github.com/holdfast-a2a/holdfast/migrations"
)

// VersionTable is the table of goose. It is in our schema, so that Holdfast has no objects
// elsewhere.
const VersionTable = "holdfast.schema_steps"

// ErrUnreleased says that an unreleased version created the schema.
var ErrUnreleased = errors.New("the database was made by an unreleased version of Holdfast, and no version can migrate it: create a new database")

const aboutServer = "SELECT current_setting('server_version_num')::integer, current_setting('server_encoding')"

// CheckServer returns why Holdfast does not run on a PostgreSQL with this server_version_num, or in a database with this
// server_encoding, and what to use instead.
func CheckServer(number int, encoding string) error {
	major, minor := number/10000, number%10000
	switch {
	case encoding != "UTF8":
		return fmt.Errorf("the database has the encoding %s; create one with ENCODING 'UTF8'", encoding)
	case major < 14:
		return fmt.Errorf("the database is PostgreSQL %d.%d; use PostgreSQL 14 or later", major, minor)
	case major == 18 && minor < 2:
		return fmt.Errorf("the database is PostgreSQL %d.%d, which loses concurrent updates; use PostgreSQL 18.2 or later", major, minor)
	}
	return nil
}

// ErrPooled says that the only database URL leads to a pooler.
var ErrPooled = errors.New("database_url leads to a pooler; set HOLDFAST_LISTEN_DATABASE_URL to PostgreSQL itself " +
	"(docs/database.md, Poolers)")

// CheckDirect returns ErrPooled if a URL does not lead to PostgreSQL itself: a parameter that only PostgreSQL knows does
// not reach the session. It waits up to a minute for a database that is not up yet, and changes nothing.
func CheckDirect(ctx context.Context, databaseURL string, log *slog.Logger) error {
	return persist(ctx, log, func() error { return direct(ctx, databaseURL) })
}

func direct(ctx context.Context, databaseURL string) error {
	const name, value = "holdfast.direct", "yes"
	conn, err := pgurl.Connect(ctx, databaseURL, func(cfg *pgx.ConnConfig) {
		// The simple protocol leaves no statement in a pooler's session.
		cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		cfg.RuntimeParams[name] = value
	})
	var answer *pgconn.PgError
	if errors.As(err, &answer) && strings.Contains(answer.Message, name) { // PgBouncer: unsupported startup parameter
		return ErrPooled
	}
	if err != nil {
		return fmt.Errorf("look for a pooler: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var have *string
	if err := conn.QueryRow(ctx, "SELECT current_setting('"+name+"', true)").Scan(&have); err != nil {
		return fmt.Errorf("look for a pooler: %w", err)
	}
	if have == nil || *have != value { // the pooler ignores parameters
		return ErrPooled
	}
	return nil
}

// Migrate migrates the schema to the version of this binary. Any number of processes may call it at
// once: one migrates, and the others block until it is done. It waits up to a minute for a database
// that is not up yet. Steps have no time limit.
//
// The URL must lead to PostgreSQL itself or a pooler in session mode, since the lock belongs to a session.
func Migrate(ctx context.Context, databaseURL string, log *slog.Logger) error {
	cfg, before, err := pgurl.Parse(databaseURL)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	db := stdlib.OpenDB(*cfg, stdlib.OptionBeforeConnect(before), stdlib.OptionAfterConnect(unlimited)) // goose speaks database/sql
	defer func() { _ = db.Close() }()

	// goose keeps its table in the schema, and looks for it before the first step runs.
	var refused error
	err = persist(ctx, log, func() error {
		var number int
		var encoding string
		if err := db.QueryRowContext(ctx, aboutServer).Scan(&number, &encoding); err != nil {
			return err
		}
		if refused = CheckServer(number, encoding); refused != nil {
			return refused
		}
		var unreleased bool
		if err := db.QueryRowContext(ctx, isUnreleased).Scan(&unreleased); err != nil {
			return err
		}
		if unreleased {
			return ErrUnreleased
		}
		// If the schema is there, its owner need not be able to create one.
		var there bool
		if err := db.QueryRowContext(ctx, "SELECT to_regnamespace('holdfast') IS NOT NULL").Scan(&there); err != nil || there {
			return err
		}
		_, err := db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS holdfast")
		return err
	})
	if refused != nil || errors.Is(err, ErrUnreleased) {
		return err
	}
	var unreached *Unreached
	if errors.As(err, &unreached) {
		return fmt.Errorf("database: %w", err)
	}
	if err != nil {
		return fmt.Errorf("migrate: create schema: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 600), lock.WithUnlockTimeout(1, 30))
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithTableName(VersionTable), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return persist(ctx, log, func() error {
		began, steps := time.Now(), 0
		for ; ; steps++ {
			step, err := p.UpByOne(ctx)
			if errors.Is(err, goose.ErrNoNextVersion) {
				break
			}
			if err != nil {
				return fmt.Errorf("migrate: %w", err)
			}
			log.Debug("schema step applied", "step", step.Source.Path, "took", step.Duration)
		}
		if err := admit(ctx, db); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		if steps > 0 {
			log.Info("database ready", "steps", steps, "took", time.Since(began))
		}
		return nil
	})
}

// admit gives the roles of callers and servers their grants.
func admit(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range []string{
		"SELECT pg_advisory_xact_lock(hashtext('holdfast.admit'))",
		// New tables need grants for the roles of servers that this owner has admitted.
		"SELECT holdfast.admit_servers()",
		// A database with another name needs another role of callers. Servers that own nothing cannot make it.
		`SELECT holdfast.admit_callers() FROM holdfast.api_role() api(name) LEFT JOIN pg_roles r ON r.rolname = api.name
		  WHERE r.oid IS NULL OR NOT has_table_privilege(r.oid, 'holdfast.tasks', 'SELECT')`,
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Admit lets servers with this database role use the schema: the role then reads and writes rows, and needs to own
// nothing. It must be called as the owner, after Migrate, and may be called again.
func Admit(ctx context.Context, databaseURL, role string, log *slog.Logger) error {
	return persist(ctx, log, func() error {
		conn, err := pgurl.Connect(ctx, databaseURL)
		if err != nil {
			return fmt.Errorf("admit %s: %w", role, err)
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		var exists, owns bool
		err = conn.QueryRow(ctx, `SELECT r.oid IS NOT NULL, coalesce(pg_has_role(r.oid, c.relowner, 'USAGE'), false)
			FROM pg_class c LEFT JOIN pg_roles r ON r.rolname = $1 WHERE c.oid = 'holdfast.tasks'::regclass`, role).Scan(&exists, &owns)
		switch {
		case err != nil:
			return fmt.Errorf("admit %s: %w", role, err)
		case !exists:
			return fmt.Errorf("admit %s: there is no such role; run CREATE ROLE %s LOGIN", role, pgx.Identifier{role}.Sanitize())
		case owns:
			return fmt.Errorf("admit %s: this role is a superuser, or owns the tables or belongs to their owner; name the role of the servers, which should own nothing", role)
		}
		if _, err := conn.Exec(ctx, "SELECT holdfast.admit_servers($1)", role); err != nil {
			return fmt.Errorf("admit %s: %w", role, err)
		}
		log.Info("role of servers admitted", "role", role)
		return nil
	})
}

// Unusable says why a server cannot work with the schema, and what to do.
type Unusable struct{ Reason string }

func (e *Unusable) Error() string { return e.Reason }

// CheckUsable returns an Unusable if a server of this version with the role of db cannot work with the schema. It changes
// nothing.
func CheckUsable(ctx context.Context, db rowQuerier) error {
	v, err := ReadVersion(ctx, db)
	var answer *pgconn.PgError
	barred := errors.As(err, &answer) && answer.Code == "42501"
	switch {
	case barred: // no USAGE of the schema
	case err != nil:
		return err
	case !v.Current():
		return &Unusable{fmt.Sprintf("the database has schema version %d, but this server needs version %d; run holdfast migrate with this binary, as the owner of the schema", v.Applied, v.Latest)}
	}
	var role, lacks string
	// A detached partition has the name of one, and is nobody's business but of retention.
	err = db.QueryRow(ctx, `SELECT current_user, coalesce((SELECT string_agg(c.relname, ', ' ORDER BY c.relname)
		FROM pg_class c WHERE c.relnamespace = to_regnamespace('holdfast') AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
		  AND c.relname !~ '_\d{8}(_\d{4,6})?$' AND (NOT has_schema_privilege(c.relnamespace, 'USAGE') OR NOT has_table_privilege(c.oid, 'SELECT')
		  OR c.relrowsecurity AND NOT pg_has_role(c.relowner, 'USAGE') AND NOT EXISTS (
			SELECT FROM pg_policy p CROSS JOIN unnest(p.polroles) r
			 WHERE p.polrelid = c.oid AND p.polname = 'servers' AND pg_has_role(r, 'USAGE')))), '')`).Scan(&role, &lacks)
	switch {
	case err != nil:
		return fmt.Errorf("schema: %w", err)
	case barred || lacks != "":
		return &Unusable{fmt.Sprintf("role %s neither owns the schema nor was admitted to all of it (%s); run holdfast migrate --runtime-role %s as the owner of the schema", role, shorten(lacks), role)}
	}
	return nil
}

func shorten(list string) string {
	if list == "" {
		return "no USAGE"
	}
	const most = 60
	if len(list) > most {
		return list[:most] + "…"
	}
	return list
}

// MayMigrate reports whether the role of db can change the schema, or create it.
func MayMigrate(ctx context.Context, db rowQuerier) (may bool, err error) {
	err = db.QueryRow(ctx, `SELECT coalesce(
		(SELECT has_schema_privilege(n.oid, 'CREATE') AND coalesce(
			(SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'schema_steps'), true)
		   FROM pg_namespace n WHERE n.nspname = 'holdfast'),
		has_database_privilege(current_database(), 'CREATE'))`).Scan(&may)
	return may, err
}

// Look connects and returns what CheckUsable says, and whether the role may migrate. It waits up to a minute for a database
// that is not up yet.
func Look(ctx context.Context, databaseURL string, log *slog.Logger) (unusable *Unusable, mayMigrate bool, err error) {
	err = persist(ctx, log, func() error {
		conn, err := pgurl.Connect(ctx, databaseURL)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		var number int
		var encoding string
		if err := conn.QueryRow(ctx, aboutServer).Scan(&number, &encoding); err != nil {
			return err
		}
		if err := CheckServer(number, encoding); err != nil {
			return err
		}
		if mayMigrate, err = MayMigrate(ctx, conn); err != nil {
			return err
		}
		if err := CheckUsable(ctx, conn); !errors.As(err, &unusable) {
			return err
		}
		return nil
	})
	return unusable, mayMigrate, err
}

// unlimited lets a session take as long as a step needs, whatever the role, the database and the URL set: a step on a
// large table takes minutes. It sends no startup parameters, because poolers refuse them. Each step sets its lock_timeout
// itself.
func unlimited(ctx context.Context, c *pgx.Conn) error {
	// First, so that a low limit does not end the next statement.
	if _, err := c.Exec(ctx, "SET statement_timeout = 0"); err != nil {
		return err
	}
	_, err := c.Exec(ctx, `SELECT set_config(name, '0', false) FROM pg_settings
		WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout')`)
	return err
}

// persist retries an idempotent step for up to a minute while its error is temporary.
func persist(ctx context.Context, log *slog.Logger, do func() error) error {
	return Persist(ctx, func() error { return Explain(do()) }, passes, func(err error) {
		var unreached *Unreached
		if errors.As(err, &unreached) {
			log.Warn("no connection to the database yet; retrying", "error", unreached.Detail)
		} else {
			log.Warn("the database does not accept the migration yet; retrying", "error", err)
		}
	})
}

// Persist retries an idempotent step for up to a minute while passes says that its error is temporary. It calls tell before
// each pause.
func Persist(ctx context.Context, do func() error, passes func(error) bool, tell func(error)) error {
	deadline := time.Now().Add(time.Minute)
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := do()
		if err == nil || !passes(err) || time.Now().After(deadline) {
			return err
		}
		tell(err)
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

func passes(err error) bool {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		var refused *pgconn.ConnectError // not listening yet, or its name not known yet
		return errors.As(err, &refused) || pgconn.SafeToRetry(err)
	}
	switch answer.Code {
	case "23505", "42P06": // another process created the schema at the same moment
	case "55P03", "40P01": // a step's lock_timeout, a deadlock: running tasks were in the way
	case "57P01", "57P02", "57P03", "53300": // going down, coming up, full
	default:
		return false
	}
	return true
}

// Version is the schema version of a database.
type Version struct {
	Applied int64 // newest step in the database
	Latest  int64 // newest step this binary knows
}

// Current reports whether the database has all steps of this binary. It may have more: in a rollout
// the newer version migrates first.
func (v Version) Current() bool { return v.Applied >= v.Latest }

type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// The versions before the first release had other steps, in a table of another name.
const isUnreleased = "SELECT to_regclass('holdfast.workers') IS NOT NULL AND to_regclass('" + VersionTable + "') IS NULL"

// refuseUnreleased returns ErrUnreleased if the schema in db is of an unreleased version.
func refuseUnreleased(ctx context.Context, db rowQuerier) error {
	var unreleased bool
	if err := db.QueryRow(ctx, isUnreleased).Scan(&unreleased); err != nil {
		return err
	}
	if unreleased {
		return ErrUnreleased
	}
	return nil
}

// known lists the steps that this binary knows, the oldest first.
func known() (steps []Step, err error) {
	files, err := fs.Glob(migrations.FS, "*.sql") // sorted
	if err != nil {
		return nil, fmt.Errorf("schema version: %w", err)
	}
	for _, file := range files {
		version, err := goose.NumericComponent(file)
		if err != nil {
			return nil, fmt.Errorf("schema version: %w", err)
		}
		steps = append(steps, Step{Version: version, Name: file})
	}
	return steps, nil
}

// Latest returns the newest step that this binary knows.
func Latest() (latest int64, err error) {
	steps, err := known()
	if err != nil {
		return 0, err
	}
	return steps[len(steps)-1].Version, nil
}

// ReadVersion reads the version of db; a database without a schema has version 0. Errors:
// ErrUnreleased for an unreleased schema.
func ReadVersion(ctx context.Context, db rowQuerier) (Version, error) {
	latest, err := Latest()
	v := Version{Latest: latest}
	if err != nil {
		return v, err
	}
	if err := refuseUnreleased(ctx, db); err != nil {
		return v, err
	}
	err = db.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+VersionTable+" WHERE is_applied").Scan(&v.Applied)
	var answer *pgconn.PgError
	if errors.As(err, &answer) && answer.Code == "42P01" {
		return v, nil
	}
	if err != nil {
		return v, fmt.Errorf("schema version: %w", err)
	}
	return v, nil
}

// Step is one migration.
type Step struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"` // nil: pending
}

// Status lists every step that this binary knows, oldest first, and changes nothing.
func Status(ctx context.Context, databaseURL string) ([]Step, error) {
	conn, err := pgurl.Connect(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("schema status: %w", Explain(err))
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := refuseUnreleased(ctx, conn); err != nil {
		return nil, err
	}
	applied := map[int64]time.Time{}
	rows, err := conn.Query(ctx, "SELECT version_id, tstamp AT TIME ZONE current_setting('TimeZone') FROM "+VersionTable+" WHERE is_applied")
	if err == nil {
		var version int64
		var at time.Time
		if _, err = pgx.ForEachRow(rows, []any{&version, &at}, func() error { applied[version] = at; return nil }); err == nil {
			err = rows.Err()
		}
	}
	var answer *pgconn.PgError
	if err != nil && (!errors.As(err, &answer) || answer.Code != "42P01") {
		return nil, fmt.Errorf("schema status: %w", err)
	}
	steps, err := known()
	for i := range steps {
		if at, ok := applied[steps[i].Version]; ok {
			steps[i].AppliedAt = &at
		}
	}
	return steps, err
}
