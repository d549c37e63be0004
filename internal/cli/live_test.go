package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func TestReadingVerbsCreateNoDatabase(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for _, dir := range []string{empty, filepath.Join(empty, "absent")} {
		for _, args := range [][]string{{"tasks", "list"}, {"migrate", "--status"}} {
			s := session{deps: Live(io.Discard, nil), env: map[string]string{"HOLDFAST_DATA_DIR": dir}}
			s.fails(t, exitUsage, dir+" has no database", args...)
		}
	}
	files, err := os.ReadDir(empty)
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestMissingSchemaMessage(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := session{deps: Live(io.Discard, nil), env: map[string]string{"HOLDFAST_DATABASE_URL": db.URL}}
	s.succeeds(t, "tasks", "list")

	conn, err := pgx.Connect(t.Context(), db.URL)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), "DROP SCHEMA holdfast CASCADE")
	require.NoError(t, err)
	s.fails(t, exitFailed, "run holdfast migrate", "tasks", "list")
}

// When PostgreSQL's notification queue is full, the process that finds it full asks for room, which may take minutes.
// Replicas do that; a verb that has finished its work does not wait for it.
func TestVerbDoesNotWaitForFullNotifyQueue(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s, err := store.Open(t.Context(), store.Options{URL: db.URL, APIConns: 1})
	require.NoError(t, err)
	id := store.NewID()
	_, err = s.Create(t.Context(), &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: "a", ContextID: "c", Dialect: "0.3"},
		Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("x")}},
	})
	require.NoError(t, err)
	s.Close(t.Context())

	proxy := pgproxytest.New(t, db.URL)
	t.Cleanup(proxy.Fail("NotifySend", "54000", "too many notifications in the NOTIFY queue"))
	asked := proxy.Lose("NotifyQueueTrim", pgproxytest.Silence, 1)
	verb := session{deps: Live(io.Discard, nil), env: map[string]string{"HOLDFAST_DATABASE_URL": proxy.URL}}
	ended := make(chan result, 1)
	go func() { ended <- verb.run(t, "tasks", "cancel", id.String()) }()
	r := waittest.Within(t, "the verb ends", ended)
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "canceled")
	<-asked
}
