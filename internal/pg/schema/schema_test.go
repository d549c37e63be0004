package schema_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// A server refuses the database of an unreleased version with one clear error, and does not change it.
func TestUnreleasedSchemaIsRefused(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	c := storetest.Connect(t, url)
	storetest.Must(c.Exec(t.Context(), "ALTER TABLE holdfast.schema_steps RENAME TO schema_version"))(t)
	err := schema.Migrate(t.Context(), url, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, schema.ErrUnreleased)
	require.Equal(t, 1, strings.Count(err.Error(), "unreleased"))
	_, err = schema.ReadVersion(t.Context(), c)
	require.ErrorIs(t, err, schema.ErrUnreleased)
	_, err = schema.Status(t.Context(), url)
	require.ErrorIs(t, err, schema.ErrUnreleased)
	var changed bool
	require.NoError(t, c.QueryRow(t.Context(), "SELECT to_regclass('holdfast.schema_steps') IS NOT NULL").Scan(&changed))
	require.False(t, changed)
}

type writer func()

func (w writer) Write(line []byte) (int, error) { w(); return len(line), nil }

// Operators see each step of a long migration when it is applied.
func TestStepsAreLoggedOneByOne(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	c := storetest.Must(pgx.Connect(t.Context(), url))(t)
	defer func() { _ = c.Close(context.Background()) }()
	storetest.Must(c.Exec(t.Context(), "DROP SCHEMA holdfast CASCADE"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	require.Error(t, schema.Migrate(ctx, url, slog.New(slog.NewTextHandler(writer(cancel), &slog.HandlerOptions{Level: slog.LevelDebug}))))
	version := storetest.Must(schema.ReadVersion(t.Context(), c))(t)
	require.EqualValues(t, 1, version.Applied)
}

// forge makes a database claim to be another version of PostgreSQL.
func forge(t *testing.T, number int) (url string) {
	t.Helper()
	db := storetest.New(t)
	c := storetest.Must(pgx.Connect(t.Context(), db.URL))(t)
	defer func() { _ = c.Close(context.Background()) }()
	storetest.Must(c.PgConn().Exec(t.Context(), fmt.Sprintf(`DROP SCHEMA holdfast CASCADE; CREATE SCHEMA forged;
		CREATE FUNCTION forged.current_setting(text) RETURNS text LANGUAGE sql AS
		$$SELECT CASE $1 WHEN 'server_version_num' THEN '%d' ELSE pg_catalog.current_setting($1) END$$;
		ALTER DATABASE %s SET search_path = forged, pg_catalog, public`, number, db.Name)).ReadAll())(t)
	return db.URL
}

// PostgreSQL 18.0 and 18.1 lose concurrent updates. A server does not touch a database on one of them.
func TestServersThatLoseUpdatesAreRefused(t *testing.T) {
	t.Parallel()
	for number, want := range map[int]string{
		130022: "PostgreSQL 13.22; use PostgreSQL 14 or later",
		180000: "PostgreSQL 18.0, which loses concurrent updates; use PostgreSQL 18.2 or later",
		180001: "PostgreSQL 18.1, which loses concurrent updates; use PostgreSQL 18.2 or later",
	} {
		t.Run(strconv.Itoa(number), func(t *testing.T) {
			t.Parallel()
			url := forge(t, number)
			require.ErrorContains(t, schema.Migrate(t.Context(), url, slog.New(slog.DiscardHandler)), want)
			c := storetest.Must(pgx.Connect(t.Context(), url))(t)
			defer func() { _ = c.Close(context.Background()) }()
			var there bool
			require.NoError(t, c.QueryRow(t.Context(), "SELECT to_regnamespace('holdfast') IS NOT NULL").Scan(&there))
			require.False(t, there, "nothing was migrated")
		})
	}
	for _, number := range []int{140000, 170011, 180002, 180006, 190000} {
		require.NoError(t, schema.CheckServer(number, "UTF8"))
	}
	require.ErrorContains(t, schema.CheckServer(170011, "SQL_ASCII"), "the database has the encoding SQL_ASCII; create one with ENCODING 'UTF8'")
}

func TestDirectConnectionIsNoPooler(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	c := storetest.Connect(t, db.URL)
	for _, setting := range []string{"client_encoding = 'LATIN1'", "standard_conforming_strings = off"} { // which the sessions of pgx cannot have
		_, err := c.Exec(t.Context(), "ALTER DATABASE "+db.Name+" SET "+setting)
		require.NoError(t, err)
	}
	require.NoError(t, schema.CheckDirect(t.Context(), db.URL, slog.New(slog.DiscardHandler)))
}
