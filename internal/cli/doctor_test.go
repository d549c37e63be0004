package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/doctor"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	require.NoError(t, os.WriteFile(file, []byte("listen: 127.0.0.1:1\ndatabase_url: ${HOLDFAST_OWN}\n"), 0o600))
	good := doctor.Finding{Check: "notify", Status: doctor.OK, Detail: "arrives after 1ms"}
	bad := doctor.Finding{Check: "commit", Status: doctor.Warn, Detail: "FSYNC IS OFF", Advice: "fsync = on"}
	worse := doctor.Finding{Check: "schema", Status: doctor.Fail, Detail: "version 1, but this program needs version 3", Advice: "run holdfast migrate"}
	for _, c := range []struct {
		golden   string
		findings []doctor.Finding
		args     []string
		code     int
	}{
		{"doctor-ok.txt", []doctor.Finding{good}, nil, exitOK},
		{"doctor-warn.txt", []doctor.Finding{good, bad}, nil, exitOK},
		{"doctor-fail.txt", []doctor.Finding{bad, worse, good}, nil, exitFailed},
		{"doctor-fail.json", []doctor.Finding{bad, worse, good}, []string{"-o", "json"}, exitFailed},
	} {
		t.Run(c.golden, func(t *testing.T) {
			t.Parallel()
			var got doctor.Options
			env := map[string]string{
				"HOLDFAST_OWN": "postgres://u:sesame@db/x", "HOLDFAST_LISTEN": "127.0.0.1:2", "HOLDFAST_CONFIG": file,
				"HOLDFAST_DATABSE_URL": "postgres://u:sesame@db/x", "HOLDFAST_URL": "http://x", "HOME": "/root",
			}
			var out, errs bytes.Buffer
			code := Run(t.Context(), append([]string{"doctor", "--timeout", "7s"}, c.args...), IO{
				Out: &out, Err: &errs,
				Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
				Environ: func() (all []string) {
					for name, v := range env {
						all = append(all, name+"="+v)
					}
					return all
				},
			}, Deps{Examine: func(_ context.Context, o doctor.Options, report func(doctor.Finding)) {
				got = o
				for _, f := range c.findings {
					report(f)
				}
			}})
			require.Equal(t, c.code, code, errs.String())
			require.Equal(t, "127.0.0.1:2", got.Config.Listen)
			require.Equal(t, 7*time.Second, got.Timeout)
			require.Equal(t, file+", HOLDFAST_LISTEN, HOLDFAST_OWN", got.Sources)
			require.Equal(t, []string{"HOLDFAST_DATABSE_URL"}, got.Strangers)
			golden(t, c.golden, out.String())
		})
	}
}

func TestDoctorOfUnreadableConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := session{deps: Live(io.Discard, nil), env: map[string]string{"HOLDFAST_LISTEN": "nowhere", "HOLDFAST_ROLES": "king", "HOLDFAST_DATA_DIR": dir}}
	r := s.run(t, "doctor", "-o", "json")
	require.Equal(t, exitFailed, r.code, r.err)
	var d diagnosis
	require.NoError(t, json.Unmarshal([]byte(r.out), &d))
	require.Equal(t, doctor.Fail, d.Status)
	require.Len(t, d.Checks, 2)
	require.Contains(t, r.out, "environment variable HOLDFAST_LISTEN")

	s.env = map[string]string{"HOLDFAST_DATA_DIR": dir, "HOLDFAST_CONFIG": filepath.Join(dir, "absent.yaml")}
	require.Equal(t, exitFailed, s.run(t, "doctor").code)

	// doctor creates no database.
	s.env = map[string]string{"HOLDFAST_DATA_DIR": dir, "HOLDFAST_LISTEN": "127.0.0.1:0", "HOLDFAST_ADMIN_LISTEN": "127.0.0.1:0"}
	r = s.run(t, "doctor")
	require.Zero(t, r.code, r.out)
	require.Contains(t, r.out, ""+dir+" has no database yet")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}
