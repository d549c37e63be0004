package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

func TestVerbsThatLookMakeNoDatabase(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for _, dir := range []string{empty, filepath.Join(empty, "absent")} {
		for _, args := range [][]string{{"tasks", "list"}, {"migrate", "--status"}} {
			s := session{deps: Live(io.Discard), env: map[string]string{"HOLDFAST_DATA_DIR": dir}}
			r := s.run(t, args...)
			require.Equal(t, exitUsage, r.code, r.err)
			require.Contains(t, r.err, "there is no database in "+dir)
		}
	}
	files, err := os.ReadDir(empty)
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestADatabaseWithoutTheSchemaIsSaidPlainly(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := session{deps: Live(io.Discard), env: map[string]string{"HOLDFAST_DATABASE_URL": db.URL}}
	r := s.run(t, "tasks", "list")
	require.Zero(t, r.code, r.err)

	conn, err := pgx.Connect(t.Context(), db.URL)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), "DROP SCHEMA holdfast CASCADE")
	require.NoError(t, err)
	r = s.run(t, "tasks", "list")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "call holdfast migrate")
}
