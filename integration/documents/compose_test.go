package documents

import (
	"cmp"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/holdfast-a2a/holdfast/internal/config"
)

// composeFile has the members of docker-compose.yml that the tests check. make compose-test runs it; where it is installed,
// `docker compose config` checks all.
type composeFile struct {
	Services map[string]struct {
		Image           string
		Build           any
		Command         []string
		Environment     map[string]string
		Ports           []string
		Volumes         []string
		Secrets         []string
		Profiles        []string
		Logging         struct{ Options map[string]string }
		ContainerName   string        `yaml:"container_name"`
		StopGracePeriod time.Duration `yaml:"stop_grace_period"`
		StopSignal      string        `yaml:"stop_signal"`
		Deploy          struct {
			Replicas  int
			Resources struct{ Limits struct{ Memory string } }
		}
		ReadOnly    bool                                  `yaml:"read_only"`
		CapDrop     []string                              `yaml:"cap_drop"`
		SecurityOpt []string                              `yaml:"security_opt"`
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Healthcheck map[string]any
	}
	Volumes map[string]any
	Secrets map[string]struct{ File string }
}

// repository is a file of the repository.
func repository(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../..", path))
	require.NoError(t, err)
	return raw
}

func readCompose(t *testing.T) *composeFile {
	t.Helper()
	var c composeFile
	require.NoError(t, yaml.Unmarshal(repository(t, "docker-compose.yml"), &c))
	return &c
}

func TestComposeFile(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	profiles := map[string][]string{
		"examples": {"http-agent", "worker"}, "pooler": {"pgbouncer"}, "tls": {"caddy"}, "observability": {"grafana", "jaeger", "prometheus"},
	}
	var always []string
	found := map[string][]string{}
	builds := map[string]bool{}
	for name, s := range c.Services {
		if len(s.Profiles) == 0 {
			always = append(always, name)
		}
		for _, profile := range s.Profiles {
			found[profile] = append(found[profile], name)
			slices.Sort(found[profile])
		}
		require.NotEmpty(t, s.Image, name)
		require.Regexp(t, `:[^:]*[0-9]|:dev(\}|$)`, s.Image, "%s: a tag that names a version", name)
		if s.Build != nil {
			require.False(t, builds[s.Image], "%s: each image is built once", name)
			builds[s.Image] = true
		}
		for variable := range s.Environment {
			require.NotContains(t, variable, "PASSWORD=", name)
			if strings.HasPrefix(variable, "HOLDFAST_") {
				require.Contains(t, []string{"worker", "caddy"}, name, "%s overrides a key of deploy/holdfast.yaml", variable)
			}
		}
		require.NotEmpty(t, s.Logging.Options["max-size"], "%s: Docker keeps logs forever", name)
		require.NotEmpty(t, s.Deploy.Resources.Limits.Memory, name)
		require.Empty(t, s.ContainerName, "%s: a container name prevents scaling", name)
		for _, port := range s.Ports {
			require.Regexp(t, `^(127\.0\.0\.1|\$\{HOLDFAST_TLS_ADDRESS:-127\.0\.0\.1\}):`, port, "%s is for this machine only", name)
		}
		for other := range s.DependsOn {
			require.Contains(t, c.Services, other, name)
		}
		for _, secret := range s.Secrets {
			require.Contains(t, c.Secrets, secret, name)
		}
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(source, ".") {
				_, err := os.Stat(filepath.Join("../..", source))
				require.NoError(t, err, name)
			} else {
				require.Contains(t, c.Volumes, source, name)
			}
		}
	}
	slices.Sort(always)
	require.Equal(t, []string{"balancer", "migrate", "postgres", "server"}, always)
	require.Equal(t, profiles, found)

	for _, name := range []string{"migrate", "server", "http-agent", "worker"} {
		require.True(t, c.Services[name].ReadOnly, name)
		require.Equal(t, []string{"ALL"}, c.Services[name].CapDrop, name)
		require.Equal(t, []string{"no-new-privileges:true"}, c.Services[name].SecurityOpt, name)
	}

	migrate, server, balancer := c.Services["migrate"], c.Services["server"], c.Services["balancer"]
	require.Equal(t, "migrate", migrate.Command[0])
	// Only the step has the owner's password; PostgreSQL makes the role.
	require.Equal(t, []string{"owner_pgpass", "secret_keys"}, migrate.Secrets)
	for name, s := range c.Services {
		if name != "migrate" && name != "postgres" {
			require.NotContains(t, strings.Join(s.Secrets, " "), "owner", name)
		}
	}
	require.Equal(t, "service_healthy", migrate.DependsOn["postgres"].Condition)
	require.Equal(t, "service_completed_successfully", server.DependsOn["migrate"].Condition)
	require.Equal(t, 2, server.Deploy.Replicas)
	require.Empty(t, server.Ports, "a fixed host port prevents scaling")
	require.Equal(t, migrate.Image, server.Image)
	// As in the image, where other machines reach the server.
	cfg := deployed(t)
	stop := cfg.DrainDelay + cfg.Worker.StopGrace + cfg.DefaultAgent().Limits.CancelGrace + 15*time.Second
	require.Equal(t, 48*time.Second, stop, "docs/deployment.md, Upgrades, names it")
	require.Greater(t, server.StopGracePeriod, stop, "longer than the longest stop of the server")
	require.Equal(t, "SIGTERM", balancer.StopSignal, "a balancer that waits for its streams serves nobody meanwhile")
}

// deployed is the configuration that docker-compose.yml mounts.
func deployed(t *testing.T) *config.Config {
	t.Helper()
	return loaded(t, string(repository(t, "deploy/holdfast.yaml")))
}

// loaded loads a configuration as the containers do, with a key where deploy/secrets.sh has one for them.
func loaded(t *testing.T, content string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	key, file := filepath.Join(dir, "secret_keys"), filepath.Join(dir, "holdfast.yaml")
	require.NoError(t, os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n"), 0o600))
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(content, "/run/secrets/secret_keys", key)), 0o600))
	cfg, err := config.Load(config.Source{File: file})
	require.NoError(t, err)
	return cfg
}

func TestComposeConfiguration(t *testing.T) {
	t.Parallel()
	c, cfg := readCompose(t), deployed(t)
	require.Contains(t, c.Services["server"].Volumes, "./deploy/holdfast.yaml:/etc/holdfast/holdfast.yaml:ro")
	require.Contains(t, string(repository(t, "Dockerfile")), "HOLDFAST_CONFIG=/etc/holdfast/holdfast.yaml")
	require.Contains(t, cfg.DatabaseURL, "passfile=/run/secrets/pgpass")
	require.NotContains(t, cfg.DatabaseURL, "holdfast:", "the password is in a file")
	require.Subset(t, c.Services["server"].Secrets, []string{"pgpass", "secret_keys"})
	require.Len(t, cfg.Push.SealingKeys(), 1)
	require.Equal(t, config.AdminAsks, cfg.AdminAccess(), "metrics and profiles need a key")
	require.Equal(t, []string{"demo"}, cfg.OpenAgents())
	require.True(t, cfg.LocalOnly(), "an open server is protected against DNS rebinding")
	require.Contains(t, cfg.Proxies.Trusted, "172.16.0.0/12", "networks of Docker")

	// Profiles need lines that are comments.
	raw := string(repository(t, "deploy/holdfast.yaml"))
	agents := loaded(t, regexp.MustCompile(`(?m)^  # (- |  )`).ReplaceAllString(raw, "  $1")).Agents
	require.Len(t, agents, 3)
	require.Equal(t, "http://http-agent:9000/", agents[1].Executor.HTTP.URL)
	pooled := regexp.MustCompile(`(?m)^database_url:.*\n|^# (?P<rest>(listen_)?database_url: )`).ReplaceAllString(raw, "$rest")
	behind := loaded(t, pooled)
	require.Contains(t, behind.DatabaseURL, "@pgbouncer:6432/")
	require.Equal(t, cfg.DatabaseURL, behind.ListenDatabaseURL)

	// The owner migrates, the servers wait, and both roles are made.
	step := strings.Join(c.Services["migrate"].Command, " ")
	require.Contains(t, step, "--database-url=postgres://holdfast_owner@postgres:5432/holdfast?sslmode=disable&passfile=/run/secrets/owner_pgpass")
	require.Contains(t, step, "--runtime-role=holdfast")
	require.Contains(t, cfg.DatabaseURL, "//holdfast@")
	require.Equal(t, config.MigrateWait, cfg.Migrate)
	role := string(repository(t, "deploy/postgres.sh"))
	require.Contains(t, role, "'CREATE ROLE holdfast_owner LOGIN CREATEROLE PASSWORD ")
	require.Contains(t, role, "'CREATE ROLE holdfast LOGIN PASSWORD ")
	require.NotRegexp(t, `\bSUPERUSER`, role)
	// docs/deployment.md has the settings of a role behind a pooler, and the role has them.
	settings := regexp.MustCompile(`(?m)^ *(ALTER ROLE holdfast SET .*;)$`).FindAllStringSubmatch(string(repository(t, "docs/deployment.md")), -1)
	require.Len(t, settings, 8)
	for _, s := range settings {
		require.Contains(t, role, s[1])
	}
}

func TestComposeSecrets(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "deploy/secrets.sh")
	require.NoError(t, os.Mkdir(filepath.Dir(script), 0o755))
	require.NoError(t, os.WriteFile(script, repository(t, "deploy/secrets.sh"), 0o600))
	read := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(dir, c.Secrets[name].File))
		require.NoError(t, err, name)
		return string(raw)
	}
	first := map[string]string{}
	for range 2 { // the second time writes what is missing, and nothing else
		out, err := exec.CommandContext(t.Context(), "sh", script).CombinedOutput()
		require.NoError(t, err, "%s", out)
		server, owner := read("database_password"), read("owner_password")
		require.NotEqual(t, server, owner)
		for _, password := range []string{server, owner, read("grafana_password")} {
			require.Regexp(t, `^[0-9a-f]{48}$`, password, "nothing that a URL, pgpass or PgBouncer would read as syntax")
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(read("secret_keys")))
		require.NoError(t, err)
		require.Len(t, key, 32)
		require.Equal(t, "*:*:holdfast:holdfast:"+server+"\n", read("pgpass"))
		require.Equal(t, "*:*:holdfast:holdfast_owner:"+owner+"\n", read("owner_pgpass"))
		require.Equal(t, `"holdfast" "`+server+"\"\n", read("pgbouncer_users"), "the owner does not go through PgBouncer")
		require.Equal(t, cmp.Or(first["database_password"], server), server)
		first["database_password"] = server
		for _, name := range []string{"owner_password", "owner_pgpass"} {
			require.NotEqual(t, first[name], read(name))
			first[name] = read(name)
			require.NoError(t, os.Remove(filepath.Join(dir, c.Secrets[name].File)))
		}
	}
	out, err := exec.CommandContext(t.Context(), "sh", script).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, secret := range c.Secrets {
		if name == "worker_key" || name == "prometheus_key" {
			continue // in the database
		}
		info, err := os.Stat(filepath.Join(dir, secret.File))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o644), info.Mode().Perm(), "%s: the users in containers read it", name)
	}
	info, err := os.Stat(filepath.Join(dir, "deploy/secrets"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.Contains(t, string(repository(t, ".dockerignore")), "deploy/secrets\n")
	require.Contains(t, string(repository(t, ".gitignore")), "/deploy/secrets/\n")
}

func TestHAProxyFile(t *testing.T) {
	t.Parallel()
	haproxy := repository(t, "deploy/haproxy.cfg")
	for port, lines := range map[string]string{"8080": `bind :8080`, "8081": `bind :8081 proto h2`, "9090": `bind :9090`} {
		require.Regexp(t, lines, string(haproxy))
		require.Regexp(t, `server-template \S+ 16 server:`+port, string(haproxy))
	}
	require.Regexp(t, `check port 9090`, string(haproxy))
	require.Regexp(t, `http-error status 503 content-type application/json .* hdr Retry-After 1`, string(haproxy))
	// Without these, leastconn of HAProxy 3.2.0 and 3.4.0 forgets a replica that restarts within two seconds.
	require.Len(t, regexp.MustCompile(`(?m)^ +default-server .*fall 2 rise 1 observe layer4 error-limit 1 on-error mark-down `).FindAll(haproxy, -1), 3)
	if program, err := exec.LookPath("haproxy"); err == nil {
		out, err := exec.CommandContext(t.Context(), program, "-c", "-f", "../../deploy/haproxy.cfg").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	for _, timeout := range []string{"client", "server"} {
		all := regexp.MustCompile(`timeout `+timeout+`\s+(\S+)`).FindAllStringSubmatch(string(haproxy), -1)
		require.Len(t, all, 2, "gRPC has its own")
		for _, m := range all {
			d, err := time.ParseDuration(m[1])
			require.NoError(t, err)
			require.Greater(t, d, max(config.Default().SSE.KeepAlive, config.Default().Limits.MaxBlock), "the proxy does not cut quiet streams")
		}
	}
}

// Programs that read the other files say whether they can, where they are installed. make compose-test has them.
func TestFilesOfProfiles(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"caddy", "validate", "--adapter", "caddyfile", "--config", "../../deploy/Caddyfile"},
		{"promtool", "check", "config", "--syntax-only", "../../deploy/prometheus/prometheus.yml"},
		{"docker", "compose", "--file", "../../docker-compose.yml", "--profile", "*", "config", "--quiet"},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(args[0]); err != nil {
				t.Skipf("needs %s", args[0])
			}
			if args[0] == "docker" && exec.CommandContext(t.Context(), "docker", "compose", "version").Run() != nil {
				t.Skip("needs docker compose")
			}
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
			if args[0] == "docker" {
				cmd.Env = os.Environ()
			}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
	// Grafana finds the dashboard where the compose file mounts it.
	var provider struct {
		Providers []struct{ Options struct{ Path string } }
	}
	require.NoError(t, yaml.Unmarshal(repository(t, "deploy/grafana/provisioning/dashboards/holdfast.yml"), &provider))
	require.Contains(t, readCompose(t).Services["grafana"].Volumes, "./deploy/grafana/holdfast.json:"+provider.Providers[0].Options.Path+"/holdfast.json:ro")
}

// A script makes the images of others, under their names, where no registry is reached. Those that it cannot make are known.
func TestBaseImagesAreKnown(t *testing.T) {
	t.Parallel()
	script := string(repository(t, "deploy/test/base-images"))
	images := regexp.MustCompile(`(?m)^FROM ([a-z]\S*:\S+)`).FindAllStringSubmatch(string(repository(t, "Dockerfile")), -1)
	require.Len(t, images, 1)
	all := []string{images[0][1]}
	for _, s := range readCompose(t).Services {
		if s.Build == nil && !strings.HasPrefix(s.Image, "$") {
			all = append(all, s.Image)
		}
	}
	for _, image := range all {
		name, _, _ := strings.Cut(image, ":")
		if name == "grafana/grafana" || name == "jaegertracing/jaeger" {
			continue // not in Debian
		}
		require.Contains(t, script, "$(name "+name+")")
	}
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	require.NotContains(t, string(raw), "# syntax", "a frontend would be pulled")
	// Variables would override the operator's file without a word.
	used := regexp.MustCompile(`HOLDFAST_[A-Z_]+`).FindAllString(string(raw), -1)
	require.Equal(t, []string{"HOLDFAST_CONFIG"}, used)
	inImage, err := config.Load(config.Source{File: "../../deploy/image.yaml", Env: func(name string) (string, bool) { return "true", name == "HOLDFAST_AUTH_NONE" }})
	require.NoError(t, err)
	require.Equal(t, []string{":8080", ":8081", ":9090"}, []string{inImage.Listen, inImage.GRPCListen, inImage.AdminListen})
	// holdfast version shows what the build was told.
	for _, name := range []string{"stampedVersion=$VERSION", "stampedCommit=$COMMIT", "stampedTime=$DATE"} {
		require.Contains(t, string(raw), "-X github.com/holdfast-a2a/holdfast/internal/cli."+name)
	}
	// This binary has the commands that the image starts.
	for _, line := range []string{`CMD ["/holdfast", "ready"]`, `CMD ["serve"]`} {
		require.Contains(t, string(raw), line)
	}
	require.Regexp(t, `(?m)^FROM scratch AS holdfast\n(?s:.*)^USER [1-9]\d*:[1-9]\d*$`, string(raw), "a user without root, and no shell")
	version := regexp.MustCompile(`golang:(\d+\.\d+)`).FindStringSubmatch(string(raw))
	require.NotNil(t, version)
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^go `+regexp.QuoteMeta(version[1])+`(\.|$)`, string(mod))
}
