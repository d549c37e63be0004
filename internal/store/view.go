package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// View is the store as one caller sees it. The audit log names that caller. As returns a caller's
// view, and Store embeds the server's own. Look-ups find only the tasks of the view's caller. For a
// view from As the database enforces this, too: its statements run under row-level security
// (migration 00008). So a statement without the right predicates still cannot read or change tasks
// of others.
//
// Statements that many callers' requests share do not run in a view: batched creates and appends,
// claims, the hub's reads, deliveries. They act on ids that a view has found or created.
type View struct {
	s    *Store
	db   querier
	by   task.Caller
	sees Visibility
	once bool // its writes give up at a lock
}

// Visibility says which tasks a view finds. A task of another tenant, owner or agent does not exist
// for it.
type Visibility struct {
	Agent string
	// TenantWide shows the agent's tasks to the whole tenant, not only to the owner.
	TenantWide bool
}

type querier interface {
	dbsqlc.DBTX
	Begin(ctx context.Context) (pgx.Tx, error)
}

// As returns the view of one caller.
func (s *Store) As(c task.Caller, sees Visibility) View {
	v := View{s: s, db: s.api, by: c, sees: sees}
	if s.rowSecurity {
		v.db = &settled{s.api, assume, []any{v.assumption()}, forCaller}
	}
	return v
}

// Once returns the view with writes that give up if another session's lock blocks them: Blocked reports their error. The
// caller retries them later.
func (v View) Once() View {
	v.once = true
	return v
}

// writes returns where the view's writes run. Their statements wait for a lock for blockedAfter only, and keep a connection of
// the pool no longer than that.
func (v View) writes() querier {
	if c, ok := v.db.(*settled); ok {
		return &settled{c.pool, c.settings + ", " + briefly, c.args, c.mark}
	}
	return v.s.brief(v.s.api)
}

// brief returns a pool whose statements wait for a lock for blockedAfter only.
func (s *Store) brief(p *pool) querier { return &settled{p, "SELECT " + briefly, nil, ""} }

// briefly sets lock_timeout to blockedAfter until the transaction ends, also behind a transaction pooler.
var briefly = fmt.Sprintf("set_config('lock_timeout', '%d', true)", blockedAfter.Milliseconds())

// assume sets the role of callers' statements and the caller until the transaction ends. The role has
// only the access that its policies allow, and nobody can log in with it. Each database has its own.
const assume = "SELECT set_config('role', holdfast.api_role(), true), set_config('holdfast.caller', $1, true)"

// assumption returns the caller in the form that the policies read: an array of tenant, owner, and
// with TenantWide the tenant again.
func (v View) assumption() string {
	quoted := func(s string) string { return `"` + arrayEscapes.Replace(cleanName(s)) + `"` }
	array := "{" + quoted(v.by.Tenant) + "," + quoted(v.by.Subject)
	if v.sees.TenantWide {
		array += "," + quoted(v.by.Tenant)
	}
	return array + "}"
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// settled sends each statement in one batch after settings. The two are one implicit transaction, one
// round trip, and through a pooler one server connection.
type settled struct {
	pool     *pool
	settings string
	args     []any
	mark     string // is added to each statement
}

// forCaller makes callers' statements differ in the driver's cache. PostgreSQL plans a prepared
// statement for a role; if two roles shared it, PostgreSQL would plan it again at each change.
const forCaller = "\n-- for a caller"

func (c *settled) send(ctx context.Context, sql string, args []any) (pgx.BatchResults, *wait, error) {
	ctx, w := c.pool.begin(ctx)
	b := &pgx.Batch{}
	b.Queue(c.settings, c.args...)
	b.Queue(sql+c.mark, args...)
	sent := c.pool.SendBatch(ctx, b)
	if _, err := sent.Exec(); err != nil {
		_ = sent.Close()
		w.end()
		return nil, nil, err
	}
	return sent, w, nil
}

// Exec implements dbsqlc.DBTX.
func (c *settled) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	sent, w, err := c.send(ctx, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer w.end()
	tag, err := sent.Exec()
	if end := sent.Close(); err == nil {
		err = end
	}
	return tag, err
}

// Query implements dbsqlc.DBTX.
func (c *settled) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	sent, w, err := c.send(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	rows, err := sent.Query() //nolint:rowserrcheck // the reader of the rows checks it
	if err != nil {
		_ = sent.Close()
		w.end()
		return nil, err
	}
	return &sentRows{Rows: rows, sent: sent, wait: w}, nil
}

// QueryRow implements dbsqlc.DBTX.
func (c *settled) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := c.Query(ctx, sql, args...) //nolint:rowserrcheck // Scan does
	return &sentRow{rows, err}
}

// Begin begins a transaction with the settings, for operations with several statements.
func (c *settled) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := c.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, c.settings, c.args...); err != nil {
		_ = tx.Rollback(ctx)
		return nil, err
	}
	return &settledTx{tx, c.mark}, nil
}

// settledTx adds a mark to the statements of a transaction.
type settledTx struct {
	pgx.Tx
	mark string
}

func (t *settledTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.Tx.Exec(ctx, sql+t.mark, args...)
}

func (t *settledTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.Tx.Query(ctx, sql+t.mark, args...) //nolint:rowserrcheck // the reader of the rows checks it
}

func (t *settledTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.Tx.QueryRow(ctx, sql+t.mark, args...)
}

// sentRows ends when its transaction does: an error may come until then.
type sentRows struct {
	pgx.Rows
	sent pgx.BatchResults
	wait *wait
	done bool
	err  error
}

func (r *sentRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *sentRows) Close() {
	if r.done {
		return
	}
	r.done = true
	r.Rows.Close()
	r.err = r.sent.Close()
	if err := r.Rows.Err(); err != nil {
		r.err = err
	}
	r.wait.end()
}

func (r *sentRows) Err() error {
	if !r.done {
		return r.Rows.Err()
	}
	return r.err
}

type sentRow struct {
	rows pgx.Rows
	err  error
}

func (r *sentRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// admitCallers prepares the database for callers' statements under row-level security, if it is not
// prepared yet: a database that was renamed, cloned or restored lacks its role. It returns why they
// cannot run so; "" means that they can.
func admitCallers(ctx context.Context, db *pgxpool.Pool) (reason string, err error) {
	if reason, err = CheckRowSecurity(ctx, db); err != nil || reason == "" {
		return reason, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var admitted bool
	if err := db.QueryRow(ctx, "SELECT holdfast.admit_callers()", pgx.QueryExecModeExec).Scan(&admitted); err != nil || !admitted {
		return reason, nil // it says what the operator has to do
	}
	return CheckRowSecurity(ctx, db)
}

// CheckRowSecurity returns why callers' statements cannot run under row-level security; "" means
// that they can. It prepares no statement, because nothing repeats it: behind a pooler another session
// may not know that statement, and then the server would not start.
func CheckRowSecurity(ctx context.Context, db *pgxpool.Pool) (reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var login, role, unguarded string
	var exists, member, bypasses, owns, granted bool
	err = db.QueryRow(ctx, `-- name: RowSecurity :one
		SELECT session_user, api.name, r.oid IS NOT NULL,
		coalesce(pg_has_role(session_user, r.oid, CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END), false),
		coalesce(r.rolsuper OR r.rolbypassrls, false),
		coalesce((SELECT bool_or(pg_has_role(r.oid, c.relowner, 'USAGE')) FROM pg_class c WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p')), false),
		coalesce((SELECT string_agg(c.relname, ', ' ORDER BY c.relname) FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
			WHERE c.relnamespace = 'holdfast'::regnamespace AND p.polname = 'callers' AND NOT c.relrowsecurity), ''),
		coalesce(has_table_privilege(r.oid, 'holdfast.tasks', 'SELECT') AND has_table_privilege(r.oid, to_regclass('holdfast.callers_log'), 'SELECT'), false)
		FROM holdfast.api_role() api(name) LEFT JOIN pg_roles r ON r.rolname = api.name`, pgx.QueryExecModeExec).Scan(&login, &role, &exists, &member, &bypasses, &owns, &unguarded, &granted)
	switch {
	case err != nil:
		return "", err
	case !exists:
		return "role " + role + " does not exist", nil
	case !member:
		return fmt.Sprintf("%s is not a member of role %s", login, role), nil
	case bypasses:
		return fmt.Sprintf("role %s bypasses row-level security", role), nil
	case owns:
		return fmt.Sprintf("role %s belongs to the owner of tables, whose policies do not apply to it", role), nil
	case unguarded != "":
		return "row-level security is disabled on " + unguarded, nil
	case !granted:
		return fmt.Sprintf("role %s may not use the tables", role), nil
	}
	return "", nil
}
