package schema_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A migration takes as long as it needs, whatever limits the role has for its sessions.
func TestMigrationHasNoStatementTimeout(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"statement_timeout", "transaction_timeout"} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			look, other := storetest.Connect(t, db.URL), storetest.Connect(t, db.URL)
			var known bool
			require.NoError(t, look.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_settings WHERE name = $1)", limit).Scan(&known))
			if !known {
				t.Skip("this PostgreSQL has no " + limit)
			}
			storetest.Must(look.Exec(t.Context(), "DROP SCHEMA holdfast CASCADE"))(t)
			storetest.Must(look.Exec(t.Context(), fmt.Sprintf("ALTER ROLE CURRENT_USER IN DATABASE %s SET %s = '500ms'", db.Name, limit)))(t)

			// Another session has created the schema and not committed that, so the migration waits.
			tx := storetest.Must(other.Begin(t.Context()))(t)
			storetest.Must(tx.Exec(t.Context(), "CREATE SCHEMA holdfast"))(t)
			migrated := make(chan error, 1)
			go func() { migrated <- schema.Migrate(t.Context(), db.URL, slog.New(slog.DiscardHandler)) }()
			waittest.Eventually(t, "the migration has waited for longer than the limit", func() error {
				select {
				case err := <-migrated:
					require.NoError(t, err)
					t.Fatal("the migration did not wait")
				default:
				}
				var waits bool
				err := look.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
					AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '1 s')`).Scan(&waits)
				require.NoError(t, err)
				return waittest.Unless(waits, "it does not wait")
			})
			require.NoError(t, tx.Rollback(t.Context()))
			require.NoError(t, waittest.Within(t, "the migration", migrated))
			v := storetest.Must(schema.ReadVersion(t.Context(), look))(t)
			require.True(t, v.Current())
		})
	}
}
