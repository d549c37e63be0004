package documents

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/holdfast-a2a/holdfast/internal/config"
)

// composeFile has the members of docker-compose.yml that the tests check. Where it is installed, `docker compose
// config` checks all.
type composeFile struct {
	Services map[string]struct {
		Image           string
		Build           any
		Command         []string
		Environment     map[string]string
		Ports           []string
		Volumes         []string
		Healthcheck     map[string]any
		ContainerName   string        `yaml:"container_name"`
		StopGracePeriod time.Duration `yaml:"stop_grace_period"`
		Deploy          struct{ Replicas int }
		ReadOnly        bool                                  `yaml:"read_only"`
		CapDrop         []string                              `yaml:"cap_drop"`
		SecurityOpt     []string                              `yaml:"security_opt"`
		DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
	}
	Volumes map[string]any
}

func TestComposeFile(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docker-compose.yml")
	require.NoError(t, err)
	var c composeFile
	require.NoError(t, yaml.Unmarshal(raw, &c))
	for _, name := range []string{"postgres", "migrate", "server", "balancer"} {
		require.Contains(t, c.Services, name)
	}
	known := variables(reflect.TypeFor[config.Config]())
	require.Contains(t, known, "HOLDFAST_DATABASE_URL")
	for name, s := range c.Services {
		require.NotEqual(t, s.Image == "", s.Build == nil, "%s: an image or a build", name)
		for variable := range s.Environment {
			if strings.HasPrefix(variable, "HOLDFAST_") {
				require.Contains(t, known, variable, name)
			}
		}
		for other := range s.DependsOn {
			require.Contains(t, c.Services, other, name)
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

	for _, name := range []string{"migrate", "server"} {
		require.True(t, c.Services[name].ReadOnly, name)
		require.Equal(t, []string{"ALL"}, c.Services[name].CapDrop, name)
		require.Equal(t, []string{"no-new-privileges:true"}, c.Services[name].SecurityOpt, name)
	}

	postgres, migrate, server, balancer := c.Services["postgres"], c.Services["migrate"], c.Services["server"], c.Services["balancer"]
	require.NotEmpty(t, postgres.Healthcheck)
	const password = "${POSTGRES_PASSWORD:?"
	require.Contains(t, postgres.Environment["POSTGRES_PASSWORD"], password, "there is no default password")
	require.Contains(t, server.Environment["HOLDFAST_DATABASE_URL"], "postgres://holdfast:"+password)
	require.NotEqual(t, "holdfast", postgres.Environment["POSTGRES_USER"], "the server's role is no superuser")
	require.Contains(t, postgres.Volumes, "./deploy/postgres.sh:/docker-entrypoint-initdb.d/holdfast.sh:ro")
	role, err := os.ReadFile("../../deploy/postgres.sh")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^CREATE ROLE holdfast LOGIN CREATEROLE PASSWORD`, string(role))
	require.NotRegexp(t, `\bSUPERUSER`, string(role))
	require.Contains(t, server.Environment["HOLDFAST_PROXIES_TRUSTED"], "172.16.0.0/12", "networks of Docker")
	require.Equal(t, []string{"migrate"}, migrate.Command)
	require.Equal(t, "service_healthy", migrate.DependsOn["postgres"].Condition)
	require.Equal(t, "service_completed_successfully", server.DependsOn["migrate"].Condition)
	require.Equal(t, 2, server.Deploy.Replicas)
	require.Empty(t, server.Ports, "a fixed host port prevents scaling")
	require.Empty(t, server.ContainerName, "a container name prevents scaling")
	// As in the image, where other machines reach the server.
	inImage, err := config.Load(config.Source{Flags: map[string]string{"listen": ":8080"}})
	require.NoError(t, err)
	stop := inImage.DrainDelay + inImage.Worker.StopGrace + inImage.DefaultAgent().Limits.CancelGrace + 15*time.Second
	require.Equal(t, 48*time.Second, stop, "docs/deployment.md, Upgrades, names it")
	require.Greater(t, server.StopGracePeriod, stop, "longer than the longest stop of the server")
	require.Equal(t, []string{"127.0.0.1:8080:8080", "127.0.0.1:8081:8081"}, balancer.Ports, "the open server is reachable from this machine only")

	haproxy, err := os.ReadFile("../../deploy/haproxy.cfg")
	require.NoError(t, err)
	hard := regexp.MustCompile(`hard-stop-after\s+(\S+)`).FindStringSubmatch(string(haproxy))
	require.NotNil(t, hard)
	longest, err := time.ParseDuration(hard[1])
	require.NoError(t, err)
	require.Greater(t, balancer.StopGracePeriod, longest, "streams end before Docker kills the balancer")
	require.Regexp(t, `bind :8080`, string(haproxy))
	require.Regexp(t, `bind :8081 proto h2`, string(haproxy))
	require.Regexp(t, `server-template \S+ \d+ server:8080`, string(haproxy))
	require.Regexp(t, `server-template \S+ \d+ server:8081`, string(haproxy))
	require.Regexp(t, `check port 9090`, string(haproxy))
	// Without these, leastconn of HAProxy 3.2.0 and 3.4.0 forgets a replica that restarts within two seconds.
	require.Len(t, regexp.MustCompile(`(?m)^ +default-server .*fall 2 rise 1 observe layer4 error-limit 1 on-error mark-down `).FindAll(haproxy, -1), 2)
	if program, err := exec.LookPath("haproxy"); err == nil {
		out, err := exec.Command(program, "-c", "-f", "../../deploy/haproxy.cfg").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	for _, timeout := range []string{"client", "server"} {
		m := regexp.MustCompile(`timeout ` + timeout + `\s+(\S+)`).FindStringSubmatch(string(haproxy))
		require.NotNil(t, m)
		d, err := time.ParseDuration(m[1])
		require.NoError(t, err)
		require.Greater(t, d, max(config.Default().SSE.KeepAlive, config.Default().Limits.MaxBlock), "the proxy does not cut quiet streams")
	}
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	known := variables(reflect.TypeFor[config.Config]())
	used := regexp.MustCompile(`HOLDFAST_[A-Z_]+`).FindAllString(string(raw), -1)
	require.NotEmpty(t, used)
	for _, variable := range used {
		require.Contains(t, known, variable)
	}
	// This binary has the commands that the image starts.
	for _, line := range []string{`CMD ["/holdfast", "ready"]`, `CMD ["serve"]`} {
		require.Contains(t, string(raw), line)
	}
	require.Regexp(t, `(?m)^FROM scratch\n(?s:.*)^USER [1-9]\d*:[1-9]\d*$`, string(raw), "a user without root, and no shell")
	version := regexp.MustCompile(`golang:(\d+\.\d+)`).FindStringSubmatch(string(raw))
	require.NotNil(t, version)
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^go `+regexp.QuoteMeta(version[1])+`(\.|$)`, string(mod))
}

// variables are the names in the env tags of a configuration.
func variables(of reflect.Type) []string {
	var out []string
	for i := range of.NumField() {
		f := of.Field(i)
		if name := f.Tag.Get("env"); name != "" {
			out = append(out, name)
		}
		if f.Type.Kind() == reflect.Struct {
			out = append(out, variables(f.Type)...)
		}
	}
	slices.Sort(out)
	return out
}
