package documents

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/holdfast-a2a/holdfast/internal/config"
)

// manifest has the members of a Kubernetes object that the test checks. tools/kubernetes checks the others.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Template struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Args []string
					Env  []struct{ Name, Value string }
				}
			}
		}
	}
}

// The server accepts what deploy/kubernetes gives it, and Kubernetes waits for its longest stop.
func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	known := variables(reflect.TypeFor[config.Config]())
	dir := t.TempDir()
	var containers int
	for _, name := range []string{"holdfast.yaml", "migrate.yaml"} {
		raw, err := os.ReadFile(filepath.Join("../../deploy/kubernetes", name))
		require.NoError(t, err)
		documents := yaml.NewDecoder(bytes.NewReader(raw))
		for {
			var m manifest
			err := documents.Decode(&m)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if m.Kind == "ConfigMap" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, m.Metadata.Name), []byte(m.Data["holdfast.yaml"]), 0o600))
			}
			for _, c := range m.Spec.Template.Spec.Containers {
				containers++
				env := map[string]string{}
				for _, e := range c.Env {
					env[e.Name] = e.Value
					require.True(t, e.Name == "HOLDFAST_CONFIG" || slices.Contains(known, e.Name), e.Name)
				}
				env["HOLDFAST_DATABASE_URL"] = "postgres://holdfast@db/holdfast" // from a Secret
				if env["HOLDFAST_CONFIG"] != "" {
					env["HOLDFAST_CONFIG"] = filepath.Join(dir, m.Metadata.Name)
				}
				cfg, err := config.Load(config.Source{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
				require.NoError(t, err)
				if c.Args[0] != "serve" {
					continue
				}
				require.Equal(t, ":8080 :8081 :9090", strings.Join([]string{cfg.Listen, cfg.GRPCListen, cfg.AdminListen}, " "))
				require.False(t, cfg.Auth.None || cfg.Admin.Open, "the defaults open nothing")
				require.Equal(t, 10*time.Second, cfg.DrainDelay, "longer than Kubernetes takes to change its Services")
				stop := cfg.DrainDelay + cfg.Worker.StopGrace + cfg.DefaultAgent().Limits.CancelGrace + 15*time.Second
				require.GreaterOrEqual(t, time.Duration(m.Spec.Template.Spec.Grace)*time.Second, stop)
			}
		}
	}
	require.Equal(t, 2, containers)
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
