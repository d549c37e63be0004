package schema_test

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of goose
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/migrations"
)

// A migration takes as long as it needs, whatever limits the role has for its sessions.
func TestMigrationHasNoStatementTimeout(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"statement_timeout", "transaction_timeout"} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			look, reader := storetest.Connect(t, db.URL), storetest.Connect(t, db.URL)
			var known bool
			require.NoError(t, look.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_settings WHERE name = $1)", limit).Scan(&known))
			if !known {
				t.Skip("this PostgreSQL has no " + limit)
			}
			older(t, db.URL)
			storetest.Must(look.Exec(t.Context(), fmt.Sprintf("ALTER ROLE CURRENT_USER IN DATABASE %s SET %s = '500ms'", db.Name, limit)))(t)

			// Another session reads the table that a step changes, so the step waits.
			tx := storetest.Must(reader.Begin(t.Context()))(t)
			storetest.Must(tx.Exec(t.Context(), "SELECT FROM holdfast.task_queue"))(t)
			migrated := make(chan error, 1)
			go func() { migrated <- schema.Migrate(t.Context(), db.URL, slog.New(slog.DiscardHandler)) }()
			waittest.Eventually(t, "a step has waited for longer than the limit", func() error {
				select {
				case err := <-migrated:
					require.NoError(t, err)
					t.Fatal("the step did not wait")
				default:
				}
				var waits bool
				err := look.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
					AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '1 s')`).Scan(&waits)
				require.NoError(t, err)
				return waittest.Unless(waits, "no step waits")
			})
			require.NoError(t, tx.Rollback(t.Context()))
			require.NoError(t, waittest.Within(t, "the migration", migrated))
			v := storetest.Must(schema.ReadVersion(t.Context(), look))(t)
			require.True(t, v.Current())
		})
	}
}

// older takes the newest steps back, down to the one before message_bytes.
func older(t *testing.T, databaseURL string) {
	t.Helper()
	db := storetest.Must(sql.Open("pgx", databaseURL))(t)
	defer func() { _ = db.Close() }()
	g := storetest.Must(goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithTableName(schema.VersionTable), goose.WithDisableGlobalRegistry(true)))(t)
	storetest.Must(g.DownTo(t.Context(), 10))(t)
}

// Taking the step back leaves nothing of a role that was admitted. Migrating again does not bring it back.
func TestDownForgetsAdmittedRoles(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	c := storetest.Connect(t, db.URL)
	role := "server_" + strings.ToLower(rand.Text()[:8])
	storetest.Must(c.Exec(t.Context(), "CREATE ROLE "+role))(t)
	log := slog.New(slog.DiscardHandler)
	require.NoError(t, schema.Admit(t.Context(), db.URL, role, log))
	require.NoError(t, schema.Migrate(t.Context(), db.URL, log), "renews the grants")
	unusable, may, err := schema.Look(t.Context(), db.URL+"&role="+role, log)
	require.NoError(t, err)
	require.Nil(t, unusable)
	require.False(t, may)
	older(t, db.URL)
	storetest.Must(c.Exec(t.Context(), "DROP ROLE "+role))(t, "no grant and no policy depends on it")
	require.NoError(t, schema.Migrate(t.Context(), db.URL, log))
	unusable, may, err = schema.Look(t.Context(), db.URL, log)
	require.NoError(t, err)
	require.Nil(t, unusable)
	require.True(t, may)
}
