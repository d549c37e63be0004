package schema_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/schema"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

// load replaces the schema of a database with that of a dump, and returns its URL and a connection.
func load(t *testing.T, dump string) (url string, c *pgx.Conn) {
	t.Helper()
	url = storetest.New(t).URL
	sql, err := os.ReadFile(dump)
	require.NoError(t, err)
	c, err = pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	_, err = c.PgConn().Exec(t.Context(), "DROP SCHEMA holdfast CASCADE").ReadAll()
	require.NoError(t, err)
	_, err = c.PgConn().Exec(t.Context(), string(sql)).ReadAll()
	require.NoError(t, err)
	return url, c
}

// A server refuses the database of an unreleased version with one clear error, and does not change it.
func TestUnreleasedSchemaIsRefused(t *testing.T) {
	t.Parallel()
	url, c := load(t, "testdata/unreleased.sql")
	err := schema.Migrate(t.Context(), url, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, schema.ErrUnreleased)
	require.Equal(t, 1, strings.Count(err.Error(), "unreleased"))
	_, err = schema.ReadVersion(t.Context(), c)
	require.ErrorIs(t, err, schema.ErrUnreleased)
	_, err = schema.Status(t.Context(), url)
	require.ErrorIs(t, err, schema.ErrUnreleased)
	var tables int
	require.NoError(t, c.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p')").Scan(&tables))
	require.Equal(t, 2, tables)
}
