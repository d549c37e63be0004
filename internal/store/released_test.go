package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/migrations"
)

// A fixture is a dump of a released version's database, with tasks. Its first lines have the checksums of the
// migrations that made it.
const fixtures = "../../migrations/testdata"

var newFixtureOf = flag.String("fixture", "", "write the fixture of this version (make fixture)")

var (
	pinned = regexp.MustCompile(`(?m)^-- (\S+\.sql) ([0-9a-f]{64})$`)
	// Commands of psql, settings that older servers do not have, and comments.
	apiRoles      = regexp.MustCompile(`holdfast_api_t_\w+`)
	lz4           = regexp.MustCompile(`(?m)^ALTER TABLE .* SET COMPRESSION lz4;$`)
	notForServers = regexp.MustCompile(`(?m)^(\\.*|SET transaction_timeout.*|--.*|.* TO holdfast_api_t_.*|)\n`)
)

func checksum(t *testing.T, name string) string {
	t.Helper()
	content := storetest.Must(migrations.FS.ReadFile(name))(t, "a released migration is gone")
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

// writeFixture makes a fixture of the present version.
func writeFixture(t *testing.T, version string) {
	t.Helper()
	f := newFixture(t)
	b := newBook(f)
	b.write()
	n := chosen("writer", "essay-1") // canceled
	n.Task.Tenant, n.Task.Owner = "", "cyd"
	old := storetest.Must(ownerOf(n).bare(f.Store).FindTask(t.Context(), "essay-1"))(t)
	n.Reopens = old
	f.create(n)
	f.calling("helper")
	f.begin()[0].must(t, status(task.StateWorking), status(task.StateCompleted))
	f.ok(f.AddAPIKey(t.Context(), &APIKey{ID: "k1", Hash: make([]byte, 32), Subject: "ada"}, 0))
	f.ok(f.SeenRemote(t.Context(), "replica", []RemoteWorker{{ID: NewID(), Name: "gpu-1", Version: "1", SDK: "test", Agents: []string{"writer"}}}))

	dump := exec.CommandContext(t.Context(), "pg_dump", "--inserts", "--no-owner", "--schema=holdfast", f.url)
	dump.Stderr = os.Stderr
	sql := storetest.Must(dump.Output())(t, "pg_dump, of the version of the server")
	var out bytes.Buffer
	names := storetest.Must(fs.Glob(migrations.FS, "*.sql"))(t)
	for _, name := range names {
		fmt.Fprintf(&out, "-- %s %s\n", name, checksum(t, name))
	}
	out.Write(notForServers.ReplaceAll(sql, nil))
	require.NoError(t, os.MkdirAll(fixtures, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(fixtures, version+".sql"), out.Bytes(), 0o600))
}

// Every released version can be upgraded with its tasks, and released migrations do not change.
func TestReleasedSchemas(t *testing.T) {
	t.Parallel()
	if *newFixtureOf != "" {
		writeFixture(t, *newFixtureOf)
	}
	files := storetest.Must(filepath.Glob(fixtures + "/*.sql"))(t)
	require.NotEmpty(t, files)
	want := shape(t, newFixture(t).conn())
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".sql"), func(t *testing.T) {
			t.Parallel()
			sql := storetest.Must(os.ReadFile(file))(t)
			pins := pinned.FindAllStringSubmatch(string(sql), -1)
			require.NotEmpty(t, pins)
			for _, pin := range pins {
				require.Equal(t, pin[2], checksum(t, pin[1]), "%s was changed after its release: write a new one instead (before a release: make fixture)", pin[1])
			}

			url := storetest.New(t).URL
			c := storetest.Must(pgx.Connect(t.Context(), url))(t)
			defer c.Close(context.Background()) //nolint:errcheck // nothing to lose
			storetest.Must(c.PgConn().Exec(t.Context(), "DROP SCHEMA holdfast CASCADE").ReadAll())(t)
			if _, methods := query(t, c, "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"); methods[0][0] == "f" {
				sql = lz4.ReplaceAll(sql, nil) // as the migrations do with such a server
			}
			storetest.Must(c.PgConn().Exec(t.Context(), string(sql)).ReadAll())(t)
			require.NoError(t, schema.Migrate(t.Context(), url, slog.New(slog.DiscardHandler)))
			f := openFixture(t, url, "") // it grants the callers' role of this database what it needs
			require.Equal(t, want, shape(t, c), "the same schema as a new database")
			require.NoError(t, invarianttest.Check(t.Context(), url))
			_, lines := query(t, c, `SELECT viewname FROM pg_views WHERE schemaname = 'holdfast' AND viewname LIKE 'v\_%'`)
			for _, l := range lines {
				_, rows := query(t, c, "SELECT * FROM holdfast."+l[0])
				if l[0] == "v_outages" {
					continue // what was away then is not away now
				}
				require.NotEmpty(t, rows, l[0])
			}
			continueTasks(t, f)
		})
	}
}

// continueTasks continues the tasks of a fixture, whose processes are long gone.
func continueTasks(t *testing.T, f *fixture) {
	t.Helper()
	require.Empty(t, f.WithoutRowSecurity())
	f.exec("UPDATE holdfast.workers SET lease_until = now() - interval '1 day'")
	_, runs := must2(f.Rescue(t.Context(), 0, true))(t)
	require.Len(t, runs, 2, "the novels")
	asked := asker{Subject: "cyd", Agent: "support"}
	h := storetest.Must(asked.bare(f.Store).FindTask(t.Context(), "ask-1"))(t)
	storetest.Must(asked.of(f.Store).AddMessage(t.Context(), &NewMessage{Task: h, Message: user("the first"), RequestID: NewID()}))(t)
	won, err := f.Claim(t.Context(), f.worker(time.Hour), []Demand{{Agent: "support", Slots: 1}, {Agent: "writer", Slots: 3}, {Agent: "travel", Slots: 9}})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(won), 4)
	for _, c := range won {
		(&pen{s: f.Store, c: c}).must(t, piece("end", "the end", false, true), status(task.StateCompleted))
	}
	essay := asker{Subject: "cyd", Agent: "writer"}
	h = storetest.Must(essay.of(f.Store).ReadTask(t.Context(), "essay-1", true))(t)
	require.Equal(t, task.StateCompleted, h.Status.State, "the task that took over the name")
	again := keyed(fresh("travel"), "k-1", "k-1")
	again.Task.Tenant, again.Task.Owner = "", "ada"
	require.ErrorIs(t, errOf(ownerOf(again).bare(f.Store).Create(t.Context(), again)), ErrTaken)
}

// shape describes a schema, without its partitions, and without the bodies of views, which a dump writes differently.
// PostgreSQL 18 has NOT NULL (contype n) as constraints, too; a dump of an older version gives those of partitions other names.
func shape(t *testing.T, c *pgx.Conn) (lines []string) {
	t.Helper()
	_, err := c.Exec(t.Context(), "SET search_path = ''") // like a dump
	require.NoError(t, err)
	for _, sql := range []string{
		`SELECT format('%s.%s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attcompression, pg_get_expr(d.adbin, d.adrelid))
		   FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		   LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
		  WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND c.relname !~ '_\d{8}$'`,
		`SELECT format('%s %s %s %s %s', c.relname, c.relkind, c.reloptions, c.relrowsecurity, pg_get_partkeydef(c.oid)) FROM pg_class c
		  WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname !~ '_\d{8}$'`,
		`SELECT format('%s %s %s', k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid)) FROM pg_constraint k
		  WHERE k.contype <> 'n' AND k.connamespace = 'holdfast'::regnamespace AND k.conrelid::regclass::text !~ '_\d{8}$'`,
		`SELECT indexdef FROM pg_indexes WHERE schemaname = 'holdfast' AND tablename !~ '_\d{8}$'`,
		`SELECT pg_get_functiondef(oid) || coalesce(proacl::text, '') FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace`,
		`SELECT format('%s %s %s %s', tablename, policyname, roles, qual) FROM pg_policies WHERE schemaname = 'holdfast'`,
		`SELECT pg_get_triggerdef(g.oid) || ' ' || g.tgenabled::text FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
		  WHERE c.relnamespace = 'holdfast'::regnamespace AND NOT g.tgisinternal AND c.relname !~ '_\d{8}$'`,
		`SELECT format('%s %s', c.relname, (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(c.relacl) x)) FROM pg_class c
		  WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relname !~ '_\d{8}$' AND c.relkind IN ('r', 'p', 'v')`,
		`SELECT format('%s %s %s', d.objoid::regclass, d.objsubid, d.description) FROM pg_description d JOIN pg_class c ON c.oid = d.objoid
		  WHERE d.classoid = 'pg_class'::regclass AND c.relnamespace = 'holdfast'::regnamespace AND c.relname !~ '_\d{8}$'`,
	} {
		_, rows := query(t, c, sql+" ORDER BY 1")
		require.NotEmpty(t, rows, sql)
		for _, r := range rows {
			lines = append(lines, apiRoles.ReplaceAllString(r[0], "holdfast_api_of_database"))
		}
	}
	return lines
}
