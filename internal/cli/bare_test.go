package cli

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/config"
)

// holdfast alone starts the server the first time, and helps in a terminal later. Without a terminal it always starts the server.
func TestWithoutAVerb(t *testing.T) {
	t.Parallel()
	empty, used := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(used, "postgres", "data"), 0o700))
	for name, c := range map[string]struct {
		terminal bool
		env      map[string]string
		args     []string
		served   bool
		says     string
	}{
		"the first start":            {true, map[string]string{"HOLDFAST_DATA_DIR": empty}, nil, true, ""},
		"a later one":                {true, map[string]string{"HOLDFAST_DATA_DIR": used}, nil, false, "To start the server with the database in " + used + ", write: holdfast serve"},
		"with a database":            {true, map[string]string{"HOLDFAST_DATABASE_URL": "host=db"}, nil, false, "the database of the configuration, write: holdfast serve"},
		"with a wrong configuration": {true, map[string]string{"HOLDFAST_LISTEN": "nonsense"}, nil, false, "environment variable HOLDFAST_LISTEN"},
		"with a flag":                {true, map[string]string{"HOLDFAST_DATA_DIR": used}, []string{"--roles", "api"}, true, ""},
		"serve":                      {true, map[string]string{"HOLDFAST_DATA_DIR": used}, []string{"serve"}, true, ""},
		"without a terminal":         {false, map[string]string{"HOLDFAST_DATA_DIR": used}, nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			served := false
			deps := Deps{Serve: func(context.Context, *config.Config, *slog.Logger) error {
				served = true
				return nil
			}}
			stdio := IO{Env: func(name string) (string, bool) {
				v, ok := c.env[name]
				return v, ok
			}}
			var errs bytes.Buffer
			stdio.Err = &errs
			shown := func() string { return "" }
			if c.terminal {
				screen, tty, err := pty.Open()
				require.NoError(t, err)
				stdio.In, stdio.Out = tty, tty
				read := make(chan string, 1)
				go func() {
					all, _ := io.ReadAll(screen) // a closed terminal is an error
					read <- string(all)
				}()
				shown = func() string {
					require.NoError(t, tty.Close())
					defer func() { _ = screen.Close() }()
					return <-read
				}
			} else {
				stdio.In, stdio.Out = strings.NewReader(""), io.Discard
			}
			code := Run(t.Context(), c.args, stdio, deps)
			out := shown()
			require.Equal(t, c.served, served, "%s%s", out, &errs)
			require.Contains(t, errs.String(), c.says)
			switch {
			case c.served:
				require.Zero(t, code)
				require.NotContains(t, out, "Talk to agents:")
			case strings.Contains(name, "wrong"):
				require.Equal(t, exitUsage, code)
			default:
				require.Zero(t, code)
				require.Contains(t, out, "Talk to agents:")
			}
		})
	}
}

// A banner is for people: a program that reads the output gets none.
func TestBannerNeedsATerminal(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	require.Nil(t, bannerOn(file))
	screen, tty, err := pty.Open()
	require.NoError(t, err)
	defer func() { _ = screen.Close() }()
	defer func() { _ = tty.Close() }()
	require.Equal(t, tty, bannerOn(tty))
}
