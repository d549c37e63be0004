// Package deploy_test shows that the server accepts the configurations in this folder, and that each platform waits for its longest stop.
package deploy_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/holdfast-a2a/holdfast/internal/config"
)

func read(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(raw)
}

// load loads a configuration as a container does, with a key where secrets.sh has one for it.
func load(t *testing.T, content string, env map[string]string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	key, file := filepath.Join(dir, "secret_keys"), filepath.Join(dir, "holdfast.yaml")
	require.NoError(t, os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n"), 0o600))
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(content, "/run/secrets/secret_keys", key)), 0o600))
	cfg, err := config.Load(config.Source{File: file, Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
	require.NoError(t, err)
	return cfg
}

// longest is how long a stop of the server may take.
func longest(cfg *config.Config) time.Duration {
	return cfg.DrainDelay + cfg.Worker.StopGrace + cfg.DefaultAgent().Limits.CancelGrace + 15*time.Second
}

// The Compose file's configuration, also with the lines for its profiles, which are comments.
func TestCompose(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]struct {
			StopGracePeriod time.Duration `yaml:"stop_grace_period"`
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "../docker-compose.yml")), &compose))
	raw := read(t, "config/holdfast.yaml")
	cfg := load(t, raw, nil)
	grace := compose.Services["server"].StopGracePeriod
	require.Greater(t, grace, longest(cfg))
	unit := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(read(t, "systemd/holdfast.service"))
	require.NotNil(t, unit)
	waits, err := time.ParseDuration(unit[1] + "s")
	require.NoError(t, err)
	require.Equal(t, grace, waits, "as in docker-compose.yml")
	require.Equal(t, config.AdminAsks, cfg.AdminAccess(), "metrics and profiles need a key")
	require.Equal(t, config.MigrateWait, cfg.Migrate, "the owner migrates")
	require.True(t, cfg.LocalOnly(), "an open server is protected against DNS rebinding")
	require.NotContains(t, cfg.DatabaseURL, "holdfast:", "the password is in a file")

	require.Len(t, load(t, regexp.MustCompile(`(?m)^  # (- |  )`).ReplaceAllString(raw, "  $1"), nil).Agents, 3)
	pooled := load(t, regexp.MustCompile(`(?m)^database_url:.*\n|^# (?P<rest>(listen_)?database_url: )`).ReplaceAllString(raw, "$rest"), nil)
	require.Contains(t, pooled.DatabaseURL, "@pgbouncer:6432/")
	require.Equal(t, cfg.DatabaseURL, pooled.ListenDatabaseURL)
	image := load(t, read(t, "image.yaml"), map[string]string{"HOLDFAST_AUTH_NONE": "true"})
	require.Equal(t, []string{":8080", ":8081", ":9090"}, []string{image.Listen, image.GRPCListen, image.AdminListen})
}

// The images of a release are those of the Dockerfile; the one for trials opens all ports to everybody.
func TestImages(t *testing.T) {
	t.Parallel()
	_, holdfast, _ := strings.Cut(read(t, "../Dockerfile"), "COPY --from=build /out/holdfast /holdfast\n")
	_, released, _ := strings.Cut(read(t, "release.Dockerfile"), "COPY $TARGETPLATFORM/holdfast /holdfast\n")
	require.NotEmpty(t, holdfast)
	require.Equal(t, holdfast, released)

	_, dev, found := strings.Cut(holdfast, " AS dev\n")
	require.True(t, found)
	env := map[string]string{}
	for _, set := range regexp.MustCompile(`(HOLDFAST_\w+)=(\S+)`).FindAllStringSubmatch(dev, -1) {
		env[set[1]] = set[2]
	}
	cfg, err := config.Load(config.Source{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
	require.NoError(t, err)
	require.Equal(t, []string{":8080", ":8081", ":9090"}, []string{cfg.Listen, cfg.GRPCListen, cfg.AdminListen})
	require.Equal(t, config.AdminOpen, cfg.AdminAccess())
	require.Empty(t, cfg.DatabaseURL, "the embedded PostgreSQL")
}

// The configurations that pages for operators have whole. No test runs Envoy, whose configuration is YAML.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"limits.md", "proxies.md"} {
		block := regexp.MustCompile("(?s)```yaml holdfast.yaml\n(.*?)```").FindStringSubmatch(read(t, "../docs/"+page))
		require.NotNil(t, block, page)
		require.NotEmpty(t, load(t, block[1], nil).Proxies.Trusted, page)
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "proxies/envoy.yaml")), &map[string]any{}))
}

// go install MODULE/cmd/holdfast@VERSION refuses a module with directives for the main module alone.
func TestModuleIsInstallable(t *testing.T) {
	t.Parallel()
	require.NotRegexp(t, `(?m)^(exclude|replace)\b`, read(t, "../go.mod"))
	require.FileExists(t, "../cmd/holdfast/main.go", "the folder names the binary")
}
