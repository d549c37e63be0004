package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// completing is an operator with webhooks.
type completing struct {
	fakeOperator
	asked store.PushFilter
}

func (o *completing) ListPushes(_ context.Context, f store.PushFilter) ([]store.PushRow, error) {
	o.asked = f
	row := store.PushRow{PublicID: "order-7", Config: task.PushConfig{ID: "audit", Host: "hooks.example.com:443"}}
	return []store.PushRow{row, row}, nil
}

// offers returns what the shell would offer, without descriptions.
func offers(t *testing.T, s session, args ...string) []string {
	t.Helper()
	r := s.succeeds(t, append([]string{"__complete"}, args...)...)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Equal(t, ":4", lines[len(lines)-1], "no files: %s", r.out)
	names := []string{}
	for _, line := range lines[:len(lines)-1] {
		name, _, _ := strings.Cut(line, "\t")
		names = append(names, name)
	}
	return names
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	op := &completing{}
	dir := t.TempDir()
	profiles := filepath.Join(dir, "profiles.yaml")
	require.NoError(t, os.WriteFile(profiles, []byte("profiles: {prod: {server: https://x}, staging: {server: https://y}}"), 0o600))
	s := session{
		env:  map[string]string{"HOLDFAST_DATABASE_URL": "host=db", "HOLDFAST_PROFILES": profiles},
		deps: Deps{OpenOperator: func(context.Context, *config.Config, *slog.Logger) (Operator, error) { return op, nil }},
	}
	for line, want := range map[string][]string{
		"tasks get ":                   {"order-7"},
		"tasks get order-7 ":           {},
		"tasks cancel order-7 ":        {}, // it is there already
		"tasks list --agent ":          {"weather", "maps", "gone"},
		"tasks list --agent=":          {"weather", "maps", "gone"},
		"agents get ":                  {"weather", "maps", "gone"},
		"queue list --agent w":         {"weather", "maps", "gone"}, // the shell filters
		"tasks list --state ":          stateNames(),
		"tasks list -o ":               {"table", "json"},
		"tasks list --profile ":        {"prod", "staging"},
		"push redeliver ":              {"order-7"},
		"push redeliver order-7 ":      {"audit"},
		"push redeliver order-7 hook ": {},
		"workers retire ":              {"01000000-0000-0000-0000-000000000000"},
		"api-keys revoke ":             {"mzxw6ytboi5dkmrq", "aaaaaaaaaaaaaaaa"},
		"api-keys list ":               {},
		"completion ":                  {"bash", "fish", "powershell", "zsh"},
		"bench --mode ":                {"blocking", "stream", "poll"},
	} {
		synctest.Test(t, func(t *testing.T) { require.Equal(t, want, offers(t, s, strings.Split(line, " ")...), line) })
	}
	synctest.Test(t, func(t *testing.T) { offers(t, s, "push", "redeliver", "order-7", "") })
	require.False(t, op.asked.Task.IsZero(), "the webhooks are those of the task")
	require.True(t, op.closed)
}

// A completion never waits long, prints no error, and starts no database.
func TestCompletionsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	opened := 0
	s := session{env: map[string]string{"HOLDFAST_DATA_DIR": t.TempDir()}, deps: Deps{
		OpenOperator: func(context.Context, *config.Config, *slog.Logger) (Operator, error) {
			opened++
			return nil, errors.New("away")
		},
	}}
	require.Empty(t, offers(t, s, "tasks", "get", ""))
	require.Zero(t, opened, "an embedded database that does not run is not started")
	s.env["HOLDFAST_DATABASE_URL"] = "host=db"
	r := s.run(t, "__complete", "tasks", "get", "")
	require.Equal(t, 1, opened)
	require.NotContains(t, r.err+r.out, "away")

	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s.deps.OpenOperator = func(context.Context, *config.Config, *slog.Logger) (Operator, error) {
			<-release // it does not even see that its time is over
			return nil, errors.New("late")
		}
		require.Empty(t, offers(t, s, "tasks", "get", ""))
		close(release)
	})
}

func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string]string{"bash": "complete -o default", "zsh": "#compdef holdfast", "fish": "complete -c holdfast", "powershell": "Register-ArgumentCompleter"} {
		r := session{deps: Live(io.Discard, nil)}.succeeds(t, "completion", shell)
		require.Contains(t, r.out, want)
	}
}
