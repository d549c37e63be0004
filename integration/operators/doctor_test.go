package operators

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

type diagnosis struct {
	Status string
	Checks []struct{ Check, Status, Detail, Advice string }
}

func (d diagnosis) find(t testing.TB, check string) (status, detail string) {
	t.Helper()
	for _, c := range d.Checks {
		if c.Check == check {
			return c.Status, c.Detail
		}
	}
	require.Fail(t, "there is no check "+check, d)
	return "", ""
}

func TestDoctorOfServer(t *testing.T) {
	t.Parallel()
	pg := storetest.Server(t, nil)
	// With a secret key doctor has nothing to say about signing keys.
	config := clustertest.Replace(clustertest.Settings, "lease_ttl: 6s", "lease_ttl: 10s") + "\nlimits: {max_streams: 100}\npush: {secret_keys: [" + strings.Repeat("A", 43) + "=]}\n"
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: pg.URL, Config: config})
	require.Equal(t, "completed", a.Send(a2atest.V03, a2atest.Say("echo:x")).State())
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "holdfast.yaml"), []byte(config), 0o600))
	env := []string{
		"HOLDFAST_DATABASE_URL=" + pg.URL, "HOLDFAST_CONFIG=holdfast.yaml",
		"HOLDFAST_LISTEN=" + a2atest.Host(a.URL), "HOLDFAST_ADMIN_LISTEN=" + a2atest.Host(a.Admin), "HOLDFAST_GRPC_LISTEN=" + a.GRPC,
	}
	doctor := func(code int) (d diagnosis) {
		t.Helper()
		res := clustertest.Command(t, dir, env, "doctor", "-o", "json", "--timeout", "2m")
		require.NoError(t, json.Unmarshal([]byte(res.Out), &d), res.Err)
		require.Equal(t, code, res.Code, d)
		return d
	}
	d := doctor(0)
	// Only the disk may be slow.
	status, took := d.find(t, "commit")
	require.Contains(t, took, "a commit takes ")
	require.Equal(t, status, d.Status, d)
	for _, c := range d.Checks {
		require.True(t, c.Check == "commit" || c.Status == "ok", d)
	}
	_, from := d.find(t, "configuration")
	require.Contains(t, from, "holdfast.yaml, HOLDFAST_ADMIN_LISTEN, HOLDFAST_DATABASE_URL, HOLDFAST_GRPC_LISTEN, HOLDFAST_LISTEN")
	_, detail := d.find(t, "admin_listen")
	require.Regexp(t, "^a server listens on .*: ready$", detail)
	_, detail = d.find(t, "listen")
	require.Regexp(t, "^a server listens on .*: its agent is demo$", detail)
	_, detail = d.find(t, "grpc_listen")
	require.Regexp(t, "^a server listens on .*: serving$", detail)
	_, detail = d.find(t, "workers")
	require.Contains(t, detail, "1 processes are alive, 1 with the role worker")

	// The server dies in the middle of a run.
	a.Stream(a2atest.V03, a2atest.Say("hold")).UntilState("working")
	a.Kill()
	db := clustertest.OpenDB(t, pg.URL)
	db.Exec("UPDATE holdfast.workers SET lease_until = now() - interval '1 second'")
	d = doctor(0)
	require.Equal(t, "warn", d.Status, d)
	for _, check := range []string{"workers", "runs"} {
		status, _ := d.find(t, check)
		require.Equal(t, "warn", status, check)
	}
	_, detail = d.find(t, "admin_listen")
	require.Contains(t, detail, "is free")

	require.NoError(t, db.Conn.Close(context.Background()))
	pg.Stop()
	d = doctor(1)
	status, _ = d.find(t, "database")
	require.Equal(t, "fail", status)
	pg.Start()
}
