package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

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

func TestDoctorOfAServer(t *testing.T) {
	t.Parallel()
	pg := storetest.Server(t, nil)
	config := settings + "\nlimits: {max_streams: 100}\n"
	a := start(t, replicaOptions{Name: "a", DB: pg.URL, Config: config})
	require.Equal(t, "completed", a.call(v03.send, v03.params("", "echo:x")).state())
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "holdfast.yaml"), []byte(config), 0o600))
	env := []string{
		"HOLDFAST_DATABASE_URL=" + pg.URL, "HOLDFAST_CONFIG=holdfast.yaml",
		"HOLDFAST_LISTEN=" + hostOf(a.url), "HOLDFAST_ADMIN_LISTEN=" + hostOf(a.admin), "HOLDFAST_GRPC_LISTEN=" + a.grpc,
	}
	doctor := func(code int) (d diagnosis) {
		t.Helper()
		res := command(t, dir, env, "doctor", "-o", "json", "--timeout", "20s")
		require.NoError(t, json.Unmarshal([]byte(res.out), &d), res.err)
		require.Equal(t, code, res.code, d)
		return d
	}
	d := doctor(0)
	require.Equal(t, "ok", d.Status, d)
	_, from := d.find(t, "configuration")
	require.Contains(t, from, "holdfast.yaml, HOLDFAST_ADMIN_LISTEN, HOLDFAST_DATABASE_URL, HOLDFAST_GRPC_LISTEN, HOLDFAST_LISTEN")
	_, detail := d.find(t, "admin_listen")
	require.Contains(t, detail, "is served: ready")
	_, detail = d.find(t, "listen")
	require.Contains(t, detail, "is served: its agent is demo")
	_, detail = d.find(t, "grpc_listen")
	require.Contains(t, detail, "is served: serving")
	_, detail = d.find(t, "workers")
	require.Contains(t, detail, "1 are alive, 1 run agents")

	// The server dies in the middle of a run.
	a.open(v03.stream, v03.params("", "hold")).untilState("working")
	a.kill()
	db := openLedger(t, pg.URL)
	eventually(t, "its lease runs out", func() error {
		return unless(one[bool](db, "SELECT lease_until < now() FROM holdfast.workers"), "not yet")
	})
	d = doctor(0)
	require.Equal(t, "warn", d.Status, d)
	for _, check := range []string{"workers", "runs"} {
		status, _ := d.find(t, check)
		require.Equal(t, "warn", status, check)
	}
	_, detail = d.find(t, "admin_listen")
	require.Contains(t, detail, "is free")

	require.NoError(t, db.conn.Close(context.Background()))
	pg.Stop()
	d = doctor(1)
	status, _ := d.find(t, "database")
	require.Equal(t, "fail", status)
	pg.Start()
}

func TestDoctorOfTheEmbeddedDatabase(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "holdfast-doctor-") //nolint:usetesting // as root, PostgreSQL's user cannot enter t.TempDir
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { dropDatabase(dir); _ = os.RemoveAll(dir) })
	a := start(t, replicaOptions{Name: "a", Config: settings, Dir: dir})
	env := []string{"HOLDFAST_LISTEN=" + hostOf(a.url), "HOLDFAST_ADMIN_LISTEN=" + hostOf(a.admin), "HOLDFAST_GRPC_LISTEN=" + a.grpc}
	res := command(t, dir, env, "doctor", "--timeout", "20s")
	require.Zero(t, res.code, res.out)
	require.Contains(t, res.out, fmt.Sprintf("PostgreSQL in ./.holdfast runs (pid %d)", postmaster(dir)))
	require.Contains(t, res.out, "fsync on")
	require.Contains(t, res.out, "1 are alive, 1 run agents")
	require.NoError(t, a.cmd.Process.Signal(os.Interrupt))
	require.Zero(t, a.wait())
	res = command(t, dir, env, "doctor")
	require.Zero(t, res.code, res.out)
	require.Contains(t, res.out, "PostgreSQL in ./.holdfast does not run")
	require.Zero(t, postmaster(dir), "it is not started for a look")
	require.NotContains(t, res.out, "notify")
}
