package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-a2a/holdfast/internal/store/dbsqlc"
)

// View is the store as somebody sees it, who is named in the audit log: As gives a caller's, and Store embeds the server's
// own. Look-ups go by their Owner in either. In a caller's the database says it a second time:
// its statements run under row-level security (migration 00012), so that one whose
// predicates were forgotten finds and changes nothing of others.
//
// What many callers' requests share is beyond a view: batched creates and appends, claims,
// the hub's reads, deliveries. Those act on ids that a view has found, or made.
type View struct {
	s  *Store
	db querier
	by Caller
}

type querier interface {
	dbsqlc.DBTX
	Begin(ctx context.Context) (pgx.Tx, error)
}

// As is the store for one caller.
func (s *Store) As(c Caller) View {
	v := View{s: s, db: s.api, by: c}
	if s.rowSecurity {
		v.db = &callers{s.api, assumption(c.Owner)}
	}
	return v
}

// apiRole is what callers' statements run as: a role that has nothing but what its policies
// let through, and that nobody can log in as.
const apiRole = "holdfast_api"

// assume takes the role and says for whom, until the transaction ends.
const assume = "SELECT set_config('role', '" + apiRole + "', true), set_config('holdfast.caller', $1, true)"

// assumption is the caller in the words of the policies: an array of tenant, owner, and the tenant again if all of it is seen.
func assumption(o Owner) string {
	quoted := func(s string) string { return `"` + arrayEscapes.Replace(cleanName(s)) + `"` }
	array := "{" + quoted(o.Tenant) + "," + quoted(o.Subject)
	if o.TenantWide {
		array += "," + quoted(o.Tenant)
	}
	return array + "}"
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// callers sends each statement behind its assumption, in one go: the two are one implicit
// transaction, one round trip, and through a pooler one server connection.
type callers struct {
	pool   *pool
	caller string
}

// aside sets callers' statements apart in the driver's cache. A prepared statement is planned
// for a role; were it the server's at one moment and theirs at the next, it would be planned
// anew each time.
const aside = "\n-- for a caller"

func (c *callers) send(ctx context.Context, sql string, args []any) (pgx.BatchResults, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(ctx, c.pool.within)
	b := &pgx.Batch{}
	b.Queue(assume, c.caller)
	b.Queue(sql+aside, args...)
	sent := c.pool.SendBatch(ctx, b)
	if _, err := sent.Exec(); err != nil {
		_ = sent.Close()
		cancel()
		return nil, nil, err
	}
	return sent, cancel, nil
}

// Exec implements dbsqlc.DBTX.
func (c *callers) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	sent, cancel, err := c.send(ctx, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer cancel()
	tag, err := sent.Exec()
	if end := sent.Close(); err == nil {
		err = end
	}
	return tag, err
}

// Query implements dbsqlc.DBTX.
func (c *callers) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	sent, cancel, err := c.send(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	rows, err := sent.Query() //nolint:rowserrcheck // whoever reads them does
	if err != nil {
		_ = sent.Close()
		cancel()
		return nil, err
	}
	return &sentRows{Rows: rows, sent: sent, cancel: cancel}, nil
}

// QueryRow implements dbsqlc.DBTX.
func (c *callers) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := c.Query(ctx, sql, args...) //nolint:rowserrcheck // Scan does
	return &sentRow{rows, err}
}

// Begin begins a transaction of the caller's. It is for what takes several statements anyway.
func (c *callers) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := c.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, assume, c.caller); err != nil {
		_ = tx.Rollback(ctx)
		return nil, err
	}
	return &callersTx{tx}, nil
}

// callersTx keeps statements aside, too.
type callersTx struct{ pgx.Tx }

func (t *callersTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.Tx.Exec(ctx, sql+aside, args...)
}

func (t *callersTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.Tx.Query(ctx, sql+aside, args...) //nolint:rowserrcheck // whoever reads them does
}

func (t *callersTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.Tx.QueryRow(ctx, sql+aside, args...)
}

// sentRows are done when the transaction is: only then nothing can go wrong any more.
type sentRows struct {
	pgx.Rows
	sent   pgx.BatchResults
	cancel context.CancelFunc
	done   bool
	err    error
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
	r.cancel()
}

func (r *sentRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
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

// CheckRowSecurity says why callers' statements cannot run under row-level security; "" is no reason.
func CheckRowSecurity(ctx context.Context, db *pgxpool.Pool) (reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var role string
	var exists, member, bypasses, granted bool
	err = db.QueryRow(ctx, `SELECT session_user, r.oid IS NOT NULL,
		coalesce(pg_has_role(session_user, r.oid, CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END), false),
		coalesce(r.rolsuper OR r.rolbypassrls, false),
		coalesce(has_table_privilege(r.oid, 'holdfast.tasks', 'SELECT') AND has_table_privilege(r.oid, to_regclass('holdfast.callers_log'), 'SELECT'), false)
		FROM (SELECT 1) one LEFT JOIN pg_roles r ON r.rolname = '`+apiRole+`'`).Scan(&role, &exists, &member, &bypasses, &granted)
	switch {
	case err != nil:
		return "", err
	case !exists:
		return "there is no role " + apiRole, nil
	case !member:
		return fmt.Sprintf("%s is no member of role %s", role, apiRole), nil
	case bypasses:
		return fmt.Sprintf("role %s bypasses row-level security", apiRole), nil
	case !granted:
		return fmt.Sprintf("role %s may not use the tables", apiRole), nil
	}
	return "", nil
}
