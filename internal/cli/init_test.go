package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// init prints the files that it writes. They have the name of the agent.
func TestInit(t *testing.T) {
	t.Parallel()
	for _, language := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			parent := filepath.Join(t.TempDir(), "it's here")
			dir := filepath.Join(parent, "trips")
			r := session{}.succeeds(t, "init", language, dir)
			require.LessOrEqual(t, strings.Count(r.out, "\n"), 5)
			require.Contains(t, r.out, "\n  cd '"+strings.ReplaceAll(dir, "'", `'\''`)+"'\n")
			golden(t, filepath.Join("init", language), strings.NewReplacer(strings.ReplaceAll(parent, "'", `'\''`), "DIR", parent, "DIR").Replace(r.out))

			var names []string
			for _, e := range storetest.Must(os.ReadDir(dir))(t) {
				names = append(names, e.Name())
				require.NotContains(t, contentOf(t, dir, e.Name()), templateName, e.Name())
			}
			require.Contains(t, r.out, "Wrote "+strings.Join(names, ", ")+" into ")

			// The image has what it copies.
			for line := range strings.Lines(contentOf(t, dir, "Dockerfile")) {
				words := strings.Fields(line)
				if len(words) < 3 || words[0] != "COPY" || strings.HasPrefix(words[1], "--from") {
					continue
				}
				for _, pattern := range words[1 : len(words)-1] {
					if pattern == "package-lock.json" || pattern == "go.sum" { // the first command writes them
						continue
					}
					require.NotEmpty(t, storetest.Must(filepath.Glob(filepath.Join(dir, pattern)))(t), pattern)
				}
			}
		})
	}
}

func contentOf(t *testing.T, dir, name string) string {
	t.Helper()
	return string(storetest.Must(os.ReadFile(filepath.Join(dir, name)))(t))
}

// The server of compose.yaml accepts its variables and the configuration. It has the agent at the root,
// for clients of this machine only.
func TestInitComposes(t *testing.T) {
	t.Parallel()
	for _, language := range languages {
		dir := filepath.Join(t.TempDir(), "007") // YAML would read a number
		session{}.succeeds(t, "init", language, dir)
		var compose struct {
			Name     string
			Services map[string]struct {
				Environment map[string]string
				Ports       []string
				Volumes     []string
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(contentOf(t, dir, "compose.yaml")), &compose))
		require.Equal(t, "007", compose.Name)
		require.Len(t, compose.Services, 3)
		server := compose.Services["server"]
		require.Equal(t, []string{"127.0.0.1:8080:8080"}, server.Ports)
		require.Equal(t, []string{"./holdfast.yaml:/etc/holdfast/holdfast.yaml:ro"}, server.Volumes)
		cfg, err := config.Load(config.Source{
			File: filepath.Join(dir, "holdfast.yaml"), Env: func(name string) (string, bool) { v, ok := server.Environment[name]; return v, ok },
		})
		require.NoError(t, err)
		require.True(t, cfg.LocalOnly())
		require.Equal(t, "http://server:8080", cfg.RunAPIURL(cfg.PublicURL), "where the agent's container reaches it")
		require.Equal(t, "007", cfg.DefaultAgent().Name)
		database := compose.Services["postgres"].Environment
		require.Contains(t, cfg.DatabaseURL, "//"+database["POSTGRES_USER"]+":"+database["POSTGRES_PASSWORD"]+"@postgres:5432/")
		if language == "http" {
			require.Equal(t, config.ExecutorHTTP, cfg.DefaultAgent().Executor.Kind)
		} else {
			require.Equal(t, config.ExecutorWorker, cfg.DefaultAgent().Executor.Kind)
			require.Equal(t, "http://server:8080", compose.Services["agent"].Environment["HOLDFAST_URL"])
		}
	}
}

func TestInitOverwritesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "trips")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for _, name := range []string{"agent.py", "README.md"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600))
	}
	session{}.fails(t, exitUsage, dir+" has README.md, agent.py already; nothing is written", "init", "python", dir)
	require.Len(t, storetest.Must(os.ReadDir(dir))(t), 2)
	require.Equal(t, "mine", contentOf(t, dir, "agent.py"))

	// A directory that cannot be one.
	session{}.fails(t, exitFailed, "no file is written: ", "init", "python", filepath.Join(dir, "agent.py", "trips"))
	require.NoError(t, os.Remove(filepath.Join(dir, "README.md")))

	// Files of other names stay beside it.
	var made project
	require.NoError(t, json.Unmarshal([]byte(session{}.succeeds(t, "init", "go", dir, "-o", "json").out), &made))
	require.Equal(t, "trips", made.Agent)
	require.Len(t, storetest.Must(os.ReadDir(dir))(t), len(made.Files)+1)
	require.Equal(t, "mine", contentOf(t, dir, "agent.py"))
}

// If a file cannot be written, those that were go again.
func TestInitWritesAllOrNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "trips")
	p := storetest.Must(newProject("http", dir))(t)
	p.Files = append(p.Files, "no/such/directory")
	require.ErrorContains(t, p.write(dir), "no file is written: ")
	require.Empty(t, storetest.Must(os.ReadDir(dir))(t))
}
