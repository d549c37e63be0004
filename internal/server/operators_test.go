package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin/adminclient"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A job of a command that is interrupted goes on at the next process that looks for jobs.
func TestInterruptedJobsAreGivenBack(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	cfg := storetest.Must(config.Load(config.Source{Flags: map[string]string{"database_url": url}}))(t)
	db := &Database{URL: url, DirectURL: url, Close: func() {}}
	o := storetest.Must(OpenOperators(t.Context(), cfg, db, task.Caller{Subject: "me", Method: task.MethodOperator}, "1", slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(o.Close)
	api := adminclient.Local(o)
	id := store.NewID()
	storetest.Must(o.store.Create(t.Context(), &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: "a", ContextID: "c", Dialect: "1.0"},
		Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("x")}},
	}))(t)
	conn := storetest.Must(pgx.Connect(t.Context(), url))(t)
	defer func() { _ = conn.Close(context.Background()) }()
	storetest.Must(conn.Exec(t.Context(), "BEGIN; SELECT FROM holdfast.tasks FOR UPDATE"))(t)

	body := map[string]any{"action": "hold", "reason": "r", "filter": map[string][]string{"agent": {"a"}}}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var interrupted shown.Job
	go func() { ended <- api.Post(ctx, "/jobs", body, &interrupted) }()
	waittest.Eventually(t, "the job waits for the task", func() error {
		j, err := o.store.Operator(task.Caller{}, false).Jobs(t.Context(), task.ID{}, 1)
		return errors.Join(err, waittest.Unless(len(j) == 1 && j[0].Matched == 1, "%v", j))
	})
	claimed := storetest.Must(o.store.ClaimJob(t.Context(), store.NewID(), time.Minute))(t)
	require.Nil(t, claimed, "the command has it")
	interrupt()
	require.NoError(t, waittest.Within(t, "the command ends", ended))
	require.NotEmpty(t, interrupted.ID, "the command can say what goes on")
	require.NotEqual(t, "done", interrupted.State)
	waittest.Eventually(t, "another process claims it", func() error {
		claimed, err := o.store.ClaimJob(t.Context(), store.NewID(), time.Minute)
		return errors.Join(err, waittest.Unless(claimed != nil, "not yet"))
	})
	storetest.Must(conn.Exec(t.Context(), "ROLLBACK"))(t)

	var j shown.Job
	require.NoError(t, api.Post(t.Context(), "/jobs", body, &j))
	require.Equal(t, "done", j.State)
	require.EqualValues(t, 1, j.Done)
}

// The API of a command has no budgets of memory. It records a delivery that it signs in a name. A purge of a whole agent spares what has
// not ended. A failure of the database is no list of lost secrets.
func TestOperatorsInACommand(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	cfg := storetest.Must(config.Load(config.Source{Flags: map[string]string{"database_url": url}}))(t)
	cfg.Push.SecretKeys = []string{base64.StdEncoding.EncodeToString(make([]byte, 32))}
	db := &Database{URL: url, DirectURL: url, Close: func() {}}
	o := storetest.Must(OpenOperators(t.Context(), cfg, db, task.Caller{Subject: "me", Method: task.MethodOperator}, "1", slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(o.Close)
	api := adminclient.Local(o)
	var got map[string]any
	require.NoError(t, api.Get(t.Context(), "/limits", nil, &got))

	test := map[string]any{"url": "http://127.0.0.1:1/", "agent": "a", "tenant": "t", "owner": "alice"}
	require.ErrorIs(t, api.Post(t.Context(), "/webhooks/test", test, &got), task.Invalid)
	test["reason"] = "to see"
	require.NoError(t, api.Post(t.Context(), "/webhooks/test", test, &got))
	conn := storetest.Must(pgx.Connect(t.Context(), url))(t)
	defer func() { _ = conn.Close(context.Background()) }()
	var entry string
	require.NoError(t, conn.QueryRow(t.Context(),
		"SELECT concat_ws(' ', subject, agent, object, reason) FROM holdfast.v_audit WHERE action = 'push.tested'").Scan(&entry))
	require.Equal(t, "me a t/alice to see", entry)

	for filter, states := range map[string]string{`{"agent":["a"]}`: `,"state":["completed","failed","canceled","rejected"]`, `{"owner":["alice"]}`: ""} {
		var j shown.Job
		body := map[string]any{"action": "purge", "reason": "r", "dry_run": true, "filter": json.RawMessage(filter)}
		require.NoError(t, api.Post(t.Context(), "/jobs", body, &j))
		require.JSONEq(t, strings.TrimSuffix(filter, "}")+states+"}", string(j.Filter))
	}

	storetest.Must(conn.Exec(t.Context(), "ALTER TABLE holdfast.push_configs RENAME TO gone"))(t)
	require.ErrorIs(t, api.Post(t.Context(), "/secrets/reseal", map[string]string{"reason": "r"}, &got), task.Internal)
}
