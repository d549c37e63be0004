package store

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

var alice = task.Caller{
	Tenant: "tenant", Subject: `al"ice`, Method: "jwt", Credential: "issuer", Address: "[2001:db8::7]:4242",
}

// verified returns the problems of the chains, and what the check covered.
func (f *fixture) verified(noted ...AuditHead) (problems []AuditChain, rows int64) {
	f.t.Helper()
	chains := storetest.Must(f.VerifyAudit(f.t.Context(), noted))(f.t)
	require.Len(f.t, chains, auditChains)
	for _, c := range chains {
		rows += c.Length
		if c.Problem != "" {
			problems = append(problems, c)
		}
	}
	return problems, rows
}

func TestAuditLogNamesCallerAndAct(t *testing.T) {
	f := parallel(t)
	v := f.As(alice, Visibility{Agent: "a"})
	n := fresh("a")
	n.Task.Owner, n.Push = alice.Subject, hook("w1", "receiver")
	f.ok(v.Create(t.Context(), n))
	h := storetest.Must(v.Header(t.Context(), n.Task.ID))(t)
	f.ok(v.AddMessage(t.Context(), &NewMessage{Task: h, Message: user("more"), Enqueue: true, RequestID: NewID()}))
	require.NoError(t, v.SetPush(t.Context(), h.ID, hook("w2", "receiver"), 10))
	for range 2 {
		f.ok(v.DeletePush(t.Context(), h.ID, "w2")) // the second call deletes nothing and writes no entry
	}
	f.ok(f.DisablePush(t.Context(), h.ID, "w1", "enough"))
	f.ok(f.EnablePush(t.Context(), h.ID, "w1"))
	must2(f.Redeliver(t.Context(), h.ID, "w1", 1))(t)
	f.ok(f.AddAPIKey(t.Context(), &APIKey{ID: "k1", Hash: make([]byte, 32), Subject: "bob"}, 0))
	f.ok(f.RevokeAPIKey(t.Context(), "k1"))
	f.ok(f.RevokeAPIKey(t.Context(), "none"))
	require.True(t, storetest.Must(v.Cancel(t.Context(), h, nil))(t))
	require.ErrorIs(t, errOf(v.Cancel(t.Context(), h, nil)), task.NotCancelable)
	require.ErrorIs(t, errOf2(f.Hurry(t.Context(), h)), task.NotFound)

	_, lines := query(t, f.conn(), `SELECT action, coalesce((task = $1)::text, ''), agent, tenant, subject, method, credential, ip, object
		FROM holdfast.v_audit ORDER BY at, chain, n`, h.ID.String())
	by := []string{"tenant", `al"ice`, "jwt", "issuer", "2001:db8::7"}
	entry := func(action, task, agent string, by []string, object string) []string {
		return append(append([]string{action, task, agent}, by...), object)
	}
	nobody := []string{"", "", "", "", ""}
	require.Equal(t, [][]string{
		entry("task.created", "true", "a", by, ""),
		entry("push.set", "true", "a", by, "w1"),
		entry("task.continued", "true", "a", by, ""),
		entry("push.set", "true", "a", by, "w2"),
		entry("push.deleted", "true", "a", by, "w2"),
		entry("push.disabled", "true", "", nobody, "w1"),
		entry("push.enabled", "true", "", nobody, "w1"),
		entry("push.redelivered", "true", "", nobody, "w1"),
		entry("key.created", "", "", nobody, "k1"),
		entry("key.revoked", "", "", nobody, "k1"),
		entry("task.canceled", "true", "a", by, ""),
	}, lines)
	problems, rows := f.verified()
	require.Empty(t, problems)
	require.EqualValues(t, 10, rows, "the entries of one commit are one row")
}

// An act that was rolled back has no entry, and an act has one entry however often its statement was sent.
func TestAuditEntryIsInCommitOfAct(t *testing.T) {
	f := parallel(t)
	first := keyed(fresh("a"), "k", "1")
	f.create(first)
	require.ErrorIs(t, errOf(f.Create(t.Context(), keyed(fresh("a"), "k", "1"))), ErrTaken)
	c := newCreate(first)
	c.audit = f.audited(auditCreated, first.Task.ID, "a", "")
	c.unknown = true
	f.writeCreates(t.Context(), []*create{c}) // as after a lost connection
	require.True(t, (<-c.done).made)
	require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.v_audit"))

	p := f.running("busy")
	f.ok(f.Cancel(t.Context(), p.c.Task, nil))
	require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.v_audit WHERE action = 'task.canceled'"), "a cancel that was requested of a running task")
	p.must(t, status(task.StateCanceled))
}

func TestAuditChainsOfManyWriters(t *testing.T) {
	f := parallel(t)
	const writers, each = 16, 10
	var g errgroup.Group
	for range writers {
		g.Go(func() error {
			for range each {
				n := fresh("a")
				if _, err := f.Create(t.Context(), n); err != nil {
					return err
				}
				if _, err := f.Cancel(t.Context(), &n.Task, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	problems, rows := f.verified()
	require.Empty(t, problems)
	require.Equal(t, 2*writers*each, scan[int](f, "SELECT count(*) FROM holdfast.v_audit"))
	require.Less(t, rows, int64(2*writers*each+1))
	require.Equal(t, writers*each, scan[int](f, "SELECT count(*) FROM holdfast.v_audit WHERE action = 'task.created'"))

	// A hanging transaction holds its chain; the other writers use other chains.
	tx := storetest.Must(f.conn().Begin(t.Context()))(t)
	f.ok(tx.Exec(t.Context(), "SELECT holdfast.audit('[]')"))
	f.create(fresh("a"))
	require.NoError(t, tx.Rollback(t.Context()))
	problems, _ = f.verified()
	require.Empty(t, problems, "a rollback leaves no gap")

	// When all chains are held, writers wait.
	held := make([]pgx.Tx, auditChains)
	for i := range held {
		held[i] = storetest.Must(f.conn().Begin(t.Context()))(t)
		f.ok(held[i].Exec(t.Context(), "SELECT holdfast.audit('[]')"))
	}
	made := make(chan error, 1)
	go func() { _, err := f.Create(context.Background(), fresh("a")); made <- err }()
	f.blocked(1)
	for _, tx := range held {
		require.NoError(t, tx.Commit(t.Context()))
	}
	require.NoError(t, waittest.Within(t, "the create", made))
	problems, _ = f.verified()
	require.Empty(t, problems)
}

func TestAuditLogIsAppendOnly(t *testing.T) {
	f := parallel(t)
	f.create(fresh("a"))
	c := f.conn()
	for _, change := range []string{
		"UPDATE holdfast.audit_log SET login = 'x'", "DELETE FROM holdfast.audit_log", "TRUNCATE holdfast.audit_log",
		"UPDATE holdfast.audit_chains SET length = 0", "UPDATE holdfast.audit_chains SET length = length + 2",
		"UPDATE holdfast.audit_chains SET head = ''", "UPDATE holdfast.audit_chains SET chain = chain + 100, length = length + 1",
		"DELETE FROM holdfast.audit_chains", "TRUNCATE holdfast.audit_chains", "INSERT INTO holdfast.audit_chains (chain) VALUES (65)",
		"SET session_replication_role = replica; DELETE FROM holdfast.audit_log",
		"INSERT INTO holdfast.audit_log SELECT * FROM holdfast.audit_log",
	} {
		_, err := c.Exec(t.Context(), change, pgx.QueryExecModeSimpleProtocol)
		var pg *pgconn.PgError
		require.True(t, errors.As(err, &pg) && (pg.Code == "42501" || pg.Code == "23505"), "%s: %v", change, err)
	}
	problems, _ := f.verified()
	require.Empty(t, problems)
	// Callers' statements may append entries, and nothing else.
	_, err := c.Exec(t.Context(), "SET session_replication_role = origin;"+become(asker{Tenant: "tenant", Subject: "owner"}), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	for _, sql := range []string{"SELECT * FROM holdfast.audit_log", "INSERT INTO holdfast.audit_log SELECT", "SELECT * FROM holdfast.v_audit"} {
		require.Error(t, errOf(c.Exec(t.Context(), sql)), sql)
	}
}

// A check that never fails proves nothing.
func TestVerifyNamesFirstBrokenRow(t *testing.T) {
	f := parallel(t)
	for range 5 {
		f.create(fresh("a"))
	}
	require.Equal(t, 5, scan[int](f, "SELECT length FROM holdfast.audit_chains WHERE chain = 1"), "all in order, in one chain")
	f.exec("CREATE TABLE whole_log AS SELECT * FROM holdfast.audit_log")
	f.exec("CREATE TABLE whole_chains AS SELECT * FROM holdfast.audit_chains")
	for _, table := range []string{"audit_log", "audit_chains"} {
		f.exec("ALTER TABLE holdfast." + table + " DISABLE TRIGGER ALL")
	}
	for name, x := range map[string]struct {
		damage string
		at     int64
		says   string
	}{
		"an entry changed":                   {"UPDATE holdfast.audit_log SET entries = replace(entries::text, 'created', 'dreamed')::json WHERE n = 3", 3, "was changed"},
		"a space more":                       {"UPDATE holdfast.audit_log SET entries = (entries::text || ' ')::json WHERE n = 3", 3, "was changed"},
		"another time":                       {"UPDATE holdfast.audit_log SET at = at + interval '1 microsecond' WHERE n = 2", 2, "was changed"},
		"another login":                      {"UPDATE holdfast.audit_log SET login = 'x' WHERE n = 5", 5, "was changed"},
		"a row removed":                      {"DELETE FROM holdfast.audit_log WHERE n = 2", 2, "is missing"},
		"a row removed, the gap closed":      {"DELETE FROM holdfast.audit_log WHERE n = 2; UPDATE holdfast.audit_log SET n = n - 1 WHERE n > 2", 2, "was changed"},
		"two rows exchanged":                 {"UPDATE holdfast.audit_log SET n = n + 100 WHERE n IN (2, 3); UPDATE holdfast.audit_log SET n = 105 - n WHERE n > 100", 2, "was changed"},
		"the last row removed":               {"DELETE FROM holdfast.audit_log WHERE n = 5", 5, "ends before this row, but had 5 rows"},
		"the last rows removed":              {"DELETE FROM holdfast.audit_log WHERE n >= 3", 3, "ends before this row, but had 5 rows"},
		"all rows removed":                   {"DELETE FROM holdfast.audit_log", 1, "ends before this row, but had 5 rows"},
		"the last row, and the end's length": {"DELETE FROM holdfast.audit_log WHERE n = 5; UPDATE holdfast.audit_chains SET length = 4 WHERE chain = 1", 4, "another hash"},
		"a row added":                        {"INSERT INTO holdfast.audit_log SELECT chain, 6, at, login, entries, hash FROM holdfast.audit_log WHERE n = 5", 6, "was changed"},
		"a row added as it should be": {`INSERT INTO holdfast.audit_log SELECT chain, 6, at, login, entries,
			sha256(hash || convert_to(concat_ws(' ', chain, 6, (extract(epoch FROM at) * 1000000)::bigint, login, entries), 'UTF8')) FROM holdfast.audit_log WHERE n = 5`, 6, "continues after its recorded end"},
		"the chain's end removed": {"DELETE FROM holdfast.audit_chains WHERE chain = 1", 1, "continues after its recorded end"},
		"an empty chain removed":  {"DELETE FROM holdfast.audit_chains WHERE chain = 1; DELETE FROM holdfast.audit_log", 1, "was removed"},
	} {
		problems, _ := f.verified()
		require.Empty(t, problems, "before: %s", name)
		f.exec(x.damage, pgx.QueryExecModeSimpleProtocol)
		problems, _ = f.verified()
		require.Len(t, problems, 1, name)
		require.Equal(t, 1, problems[0].Chain, name)
		require.Equal(t, x.at, problems[0].Broken, name)
		require.Contains(t, problems[0].Problem, x.says, name)
		f.exec(`DELETE FROM holdfast.audit_log; INSERT INTO holdfast.audit_log SELECT * FROM whole_log;
			DELETE FROM holdfast.audit_chains; INSERT INTO holdfast.audit_chains SELECT * FROM whole_chains`, pgx.QueryExecModeSimpleProtocol)
	}
}

// The owner of the database can rewrite the whole log. Heads that were stored elsewhere reveal that.
func TestVerifyAgainstNotedHeads(t *testing.T) {
	f := parallel(t)
	for range 5 {
		f.create(fresh("a"))
	}
	chains := storetest.Must(f.VerifyAudit(t.Context(), nil))(t)
	var noted []AuditHead
	for _, c := range chains {
		noted = append(noted, AuditHead{c.Chain, c.Length, c.Head})
	}
	f.create(fresh("a"))
	problems, _ := f.verified(noted...)
	require.Empty(t, problems, "later entries are no problem")
	forge := func(damage string) {
		_, err := f.conn().Exec(t.Context(), `ALTER TABLE holdfast.audit_log DISABLE TRIGGER ALL; ALTER TABLE holdfast.audit_chains DISABLE TRIGGER ALL;`+
			damage+`
			DO $$
			DECLARE
				r record;
				last bytea := '';
			BEGIN
				FOR r IN SELECT * FROM holdfast.audit_log WHERE chain = 1 ORDER BY n LOOP
					last := sha256(last || convert_to(concat_ws(' ', r.chain, r.n, (extract(epoch FROM r.at) * 1000000)::bigint, r.login, r.entries), 'UTF8'));
					UPDATE holdfast.audit_log SET hash = last WHERE chain = 1 AND n = r.n;
					UPDATE holdfast.audit_chains SET length = r.n, head = last WHERE chain = 1;
				END LOOP;
			END $$;`, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
	forge("UPDATE holdfast.audit_log SET entries = '[]' WHERE n = 3;")
	problems, _ = f.verified()
	require.Empty(t, problems, "without the heads the log looks whole")
	problems, _ = f.verified(noted...)
	require.Len(t, problems, 1)
	require.EqualValues(t, 5, problems[0].Broken)
	require.Contains(t, problems[0].Problem, "was rewritten")
	forge("DELETE FROM holdfast.audit_log WHERE n > 2;")
	problems, _ = f.verified(noted...)
	require.Len(t, problems, 1)
	require.EqualValues(t, 3, problems[0].Broken)
	require.Contains(t, problems[0].Problem, "had 5 rows when its head was noted")
}

// While another session keeps an old snapshot, vacuum removes no old version of a chain. A writer does not read them.
func TestAuditBesideAnOldSnapshot(t *testing.T) {
	f := parallel(t)
	old := storetest.Must(f.conn().BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	defer func() { _ = old.Rollback(context.Background()) }()
	f.ok(old.Exec(t.Context(), "SELECT FROM holdfast.tasks"))
	c := f.conn()
	f.ok(c.Exec(t.Context(), "DO $$ BEGIN FOR i IN 1..3000 LOOP PERFORM holdfast.audit('[]'); COMMIT; END LOOP; END $$"))
	f.exec("VACUUM (ANALYZE) holdfast.audit_chains")
	require.Less(t, pagesOf(t, c, "SELECT holdfast.audit('[]')"), 60, "pages, of 3000 old versions")
	problems, rows := f.verified()
	require.Empty(t, problems)
	require.EqualValues(t, 3000, rows)
}
