// Package kubernetes checks the chart in deploy/helm with the programs and the types of Kubernetes. It is a module of its own,
// so that their dependencies stay out of the server's. `make kubernetes` runs it.
package kubernetes

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

const (
	chart     = "../../deploy/helm/holdfast"
	manifests = "../../deploy/kubernetes"
)

var update = flag.Bool("update", false, "write deploy/kubernetes")

// helm runs the program that `make bin/helm` builds.
func helm(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	program, err := filepath.Abs("../../bin/helm")
	require.NoError(t, err)
	cmd := exec.Command(program, args...)
	// No file of the person who runs the tests.
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG=/dev/null")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), &failed{out.String() + errs.String(), err}
	}
	return out.String(), nil
}

type failed struct {
	output string
	err    error
}

func (f *failed) Error() string { return f.output + f.err.Error() }

func template(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, append([]string{"template", "holdfast", chart, "--namespace", "holdfast"}, args...)...)
	require.NoError(t, err)
	return out
}

// objects are what a rendering makes, by kind and name.
type objects map[string]metav1.Object

// decode reads manifests as the API server does with strict validation: unknown members and members given twice are faults.
func decode(t *testing.T, text string) objects {
	t.Helper()
	out := objects{}
	for _, document := range strings.Split("\n"+text, "\n---\n") {
		var of metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(document), &of))
		if of.Kind == "" {
			require.Empty(t, strings.TrimSpace(strip(document)))
			continue
		}
		object, known := map[string]metav1.Object{
			"v1 ConfigMap":                            &core.ConfigMap{},
			"v1 Service":                              &core.Service{},
			"apps/v1 Deployment":                      &apps.Deployment{},
			"batch/v1 Job":                            &batch.Job{},
			"policy/v1 PodDisruptionBudget":           &policy.PodDisruptionBudget{},
			"autoscaling/v2 HorizontalPodAutoscaler":  &autoscaling.HorizontalPodAutoscaler{},
			"networking.k8s.io/v1 Ingress":            &networking.Ingress{},
			"networking.k8s.io/v1 NetworkPolicy":      &networking.NetworkPolicy{},
			"gateway.networking.k8s.io/v1 HTTPRoute":  &gateway.HTTPRoute{},
			"gateway.networking.k8s.io/v1 GRPCRoute":  &gateway.GRPCRoute{},
			"monitoring.coreos.com/v1 ServiceMonitor": &monitoring.ServiceMonitor{},
			"monitoring.coreos.com/v1 PrometheusRule": &monitoring.PrometheusRule{},
		}[of.APIVersion+" "+of.Kind]
		require.True(t, known, "%s %s", of.APIVersion, of.Kind)
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), object), document)
		key := of.Kind + " " + object.GetName()
		require.NotContains(t, out, key)
		require.Equal(t, "holdfast", object.GetNamespace(), key)
		out[key] = object
	}
	return out
}

// strip removes comments.
func strip(document string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(document, "\n"), func(line string) bool { return strings.HasPrefix(line, "#") }), "\n")
}

func get[T metav1.Object](t *testing.T, of objects, key string) T {
	t.Helper()
	require.Contains(t, of, key)
	return of[key].(T)
}

func TestLint(t *testing.T) {
	for _, args := range [][]string{{}, {"--values", chart + "/ci/full-values.yaml"}} {
		out, err := helm(t, append([]string{"lint", "--strict", chart}, args...)...)
		require.NoError(t, err)
		require.Contains(t, out, "0 chart(s) failed")
	}
}

// The manifests in deploy/kubernetes are the chart with its defaults.
func TestManifests(t *testing.T) {
	for file, args := range map[string][]string{
		"holdfast.yaml": {"--no-hooks"},
		"migrate.yaml":  {"--show-only", "templates/migrate.yaml"},
	} {
		header := "# Rendered from deploy/helm/holdfast by `make kubernetes`. docs/kubernetes.md says how to use it.\n"
		want := header + template(t, args...)
		path := filepath.Join(manifests, file)
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "make kubernetes-update writes it again")
		decode(t, string(got))
	}
}

func TestDefaults(t *testing.T) {
	all := decode(t, template(t))
	require.Len(t, all, 6, "a ConfigMap, a Deployment, its budget, two Services, a Job")
	server := get[*apps.Deployment](t, all, "Deployment holdfast-server")
	checkPods(t, all)
	checkPod(t, server.Spec.Template.Spec)
	require.EqualValues(t, 2, *server.Spec.Replicas)
	require.EqualValues(t, 10+20+10+15, *server.Spec.Template.Spec.TerminationGracePeriodSeconds)
	require.Zero(t, server.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
	require.Equal(t, "10s", env(server.Spec.Template.Spec.Containers[0], "HOLDFAST_DRAIN_DELAY").Value)
	require.Equal(t, "api,worker,push", env(server.Spec.Template.Spec.Containers[0], "HOLDFAST_ROLES").Value)

	job := get[*batch.Job](t, all, "Job holdfast-migrate")
	require.Equal(t, "pre-install,pre-upgrade", job.Annotations["helm.sh/hook"])
	checkPod(t, job.Spec.Template.Spec)
	require.Equal(t, []string{"migrate", "--runtime-role", "holdfast"}, job.Spec.Template.Spec.Containers[0].Args)
	require.Equal(t, "holdfast-owner", env(job.Spec.Template.Spec.Containers[0], "HOLDFAST_DATABASE_URL").ValueFrom.SecretKeyRef.Name)
	require.Equal(t, "holdfast-database", env(server.Spec.Template.Spec.Containers[0], "HOLDFAST_DATABASE_URL").ValueFrom.SecretKeyRef.Name)
	require.Equal(t, "wait", env(server.Spec.Template.Spec.Containers[0], "HOLDFAST_MIGRATE").Value)
	check := job.Spec.Template.Spec.InitContainers[0]
	require.Equal(t, []string{"config", "check"}, check.Args)
	require.Equal(t, server.Spec.Template.Spec.Containers[0].Env, check.Env)
	require.Equal(t, "metadata.annotations['config-server']", job.Spec.Template.Spec.Volumes[0].DownwardAPI.Items[0].FieldRef.FieldPath,
		"a hook runs before the release's ConfigMaps exist")
	require.Equal(t, get[*core.ConfigMap](t, all, "ConfigMap holdfast-server").Data["holdfast.yaml"], strings.TrimSpace(job.Spec.Template.Annotations["config-server"]))
}

func TestEverything(t *testing.T) {
	all := decode(t, template(t, "--values", chart+"/ci/full-values.yaml"))
	checkPods(t, all)
	require.NotContains(t, all, "Deployment holdfast-server", "a component that is not enabled")
	for _, name := range []string{"api", "worker", "push"} {
		d := get[*apps.Deployment](t, all, "Deployment holdfast-"+name)
		spec := d.Spec.Template.Spec
		checkPod(t, spec)
		c := spec.Containers[0]
		require.Equal(t, name, env(c, "HOLDFAST_ROLES").Value)
		require.Equal(t, "images.example.com/holdfast@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", c.Image)
		require.EqualValues(t, 30+20+60+15, *spec.TerminationGracePeriodSeconds)
		require.Equal(t, "30s", env(c, "HOLDFAST_DRAIN_DELAY").Value)
		require.Equal(t, "listen-url", env(c, "HOLDFAST_LISTEN_DATABASE_URL").ValueFrom.SecretKeyRef.Key)
		require.Equal(t, "/etc/holdfast/database/ca.pem", env(c, "PGSSLROOTCERT").Value)
		require.Equal(t, "weather", env(c, "WEATHER_TOKEN").ValueFrom.SecretKeyRef.Name)
		require.Equal(t, name == "worker", d.Spec.Replicas == nil, "the autoscaler alone sets the replicas")
	}
	require.Equal(t, "34%", get[*policy.PodDisruptionBudget](t, all, "PodDisruptionBudget holdfast-api").Spec.MaxUnavailable.String())
	require.NotContains(t, all, "PodDisruptionBudget holdfast-push")
	config := get[*core.ConfigMap](t, all, "ConfigMap holdfast-worker").Data["holdfast.yaml"]
	require.Contains(t, config, "lease_ttl: 15s", "the component's configuration")
	require.Contains(t, config, "stop_grace: 20s")
	require.Contains(t, config, "public_url: https://agents.example.com")
	require.NotContains(t, get[*core.ConfigMap](t, all, "ConfigMap holdfast-api").Data["holdfast.yaml"], "lease_ttl")

	hpa := get[*autoscaling.HorizontalPodAutoscaler](t, all, "HorizontalPodAutoscaler holdfast-worker")
	metric := hpa.Spec.Metrics[0].External
	page, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "| `"+metric.Metric.Name+"` | gauge | `agent` |")
	require.Equal(t, map[string]string{"agent": "weather"}, metric.Metric.Selector.MatchLabels)
	require.EqualValues(t, 30, metric.Target.Value.Value())
	require.Len(t, hpa.Spec.Metrics, 2)
	require.NotContains(t, all, "HorizontalPodAutoscaler holdfast-api")

	monitor := get[*monitoring.ServiceMonitor](t, all, "ServiceMonitor holdfast")
	admin := get[*core.Service](t, all, "Service holdfast-admin")
	selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	require.NoError(t, err)
	require.True(t, selector.Matches(labels.Set(admin.Labels)))
	require.False(t, selector.Matches(labels.Set(all["Service holdfast"].GetLabels())), "each pod is scraped once")
	require.Equal(t, "holdfast", admin.Labels[monitor.Spec.JobLabel], "the alerts' job")
	require.Equal(t, admin.Spec.Ports[0].Name, monitor.Spec.Endpoints[0].Port)

	var alerts monitoring.PrometheusRuleSpec
	raw, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(raw, &alerts))
	require.Equal(t, alerts, get[*monitoring.PrometheusRule](t, all, "PrometheusRule holdfast").Spec)

	for _, port := range []string{"http", "grpc"} {
		ingress := get[*networking.Ingress](t, all, "Ingress holdfast-"+port)
		backend := ingress.Spec.Rules[0].HTTP.Paths[0].Backend.Service
		require.Equal(t, "holdfast", backend.Name)
		require.Equal(t, port, backend.Port.Name)
	}
	require.EqualValues(t, 8080, *get[*gateway.HTTPRoute](t, all, "HTTPRoute holdfast").Spec.Rules[0].BackendRefs[0].Port)
	require.EqualValues(t, 8081, *get[*gateway.GRPCRoute](t, all, "GRPCRoute holdfast").Spec.Rules[0].BackendRefs[0].Port)
	access := get[*networking.NetworkPolicy](t, all, "NetworkPolicy holdfast").Spec
	require.True(t, labels.SelectorFromSet(access.PodSelector.MatchLabels).Matches(labels.Set(get[*apps.Deployment](t, all, "Deployment holdfast-api").Spec.Template.Labels)))
	require.Equal(t, []int{0, 1}, []int{len(access.Ingress[0].From), len(access.Ingress[1].From)})
	require.Equal(t, "admin", access.Ingress[1].Ports[0].Port.StrVal)
	dashboard, err := os.ReadFile("../../deploy/grafana/holdfast.json")
	require.NoError(t, err)
	require.Equal(t, string(dashboard), get[*core.ConfigMap](t, all, "ConfigMap holdfast-dashboard").Data["holdfast.json"])

	job := get[*batch.Job](t, all, "Job holdfast-migrate")
	require.Len(t, job.Spec.Template.Spec.InitContainers, 3)
	require.Nil(t, job.Spec.Template.Spec.SecurityContext.RunAsUser, "OpenShift chooses")
	require.Equal(t, []string{"migrate", "--runtime-role", "app"}, job.Spec.Template.Spec.Containers[0].Args)
	owner := env(job.Spec.Template.Spec.Containers[0], "HOLDFAST_DATABASE_URL").ValueFrom.SecretKeyRef
	require.Equal(t, "database-owner owner-url", owner.Name+" "+owner.Key)
	require.Equal(t, "/etc/holdfast/database/ca.pem", env(job.Spec.Template.Spec.Containers[0], "PGSSLROOTCERT").Value)
}

// Only the Job has the owner's Secret. Without one the servers' role migrates, on a connection without a pooler.
func TestOneRoleOrTwo(t *testing.T) {
	rendered := template(t)
	require.Equal(t, 1, strings.Count(rendered, "holdfast-owner"))
	for file, of := range map[string]int{"holdfast.yaml": 0, "migrate.yaml": 1} {
		raw, err := os.ReadFile(filepath.Join(manifests, file))
		require.NoError(t, err)
		require.Equal(t, of, strings.Count(string(raw), "holdfast-owner"), file)
	}
	for secret, args := range map[string][]string{
		"holdfast-database url":        {"--set", "migration.urlSecret.name="},
		"holdfast-database listen-url": {"--set", "migration.urlSecret.name=", "--set", "database.listenUrlSecret.name=holdfast-database"},
	} {
		all := decode(t, template(t, args...))
		job := get[*batch.Job](t, all, "Job holdfast-migrate").Spec.Template.Spec.Containers[0]
		require.Equal(t, []string{"migrate"}, job.Args)
		from := env(job, "HOLDFAST_DATABASE_URL").ValueFrom.SecretKeyRef
		require.Equal(t, secret, from.Name+" "+from.Key)
	}
	all := decode(t, strings.ReplaceAll(template(t, "--set", "migration.enabled=false"), "\n---\n\n---\n", "\n---\n"))
	require.NotContains(t, all, "Job holdfast-migrate")
	server := get[*apps.Deployment](t, all, "Deployment holdfast-server").Spec.Template.Spec.Containers[0]
	require.Empty(t, env(server, "HOLDFAST_MIGRATE").Value, "the configuration says")
}

// A component may set a default to false, zero or empty.
func TestEmptyValuesWin(t *testing.T) {
	all := decode(t, template(t, "--set", "components.server.replicas=0", "--set", "defaults.autoscaling.enabled=true",
		"--set", "components.server.autoscaling.enabled=false", "--set", "components.server.maxUnavailable="))
	require.Zero(t, *get[*apps.Deployment](t, all, "Deployment holdfast-server").Spec.Replicas)
	require.NotContains(t, all, "HorizontalPodAutoscaler holdfast-server")
	require.NotContains(t, all, "PodDisruptionBudget holdfast-server")
	all = decode(t, template(t, "--set", "components.server.maxUnavailable=0"))
	require.Zero(t, get[*policy.PodDisruptionBudget](t, all, "PodDisruptionBudget holdfast-server").Spec.MaxUnavailable.IntValue())
}

// Mistakes in values fail before anything reaches the cluster.
func TestRefusedValues(t *testing.T) {
	for name, tt := range map[string]struct{ set, says string }{
		"an unknown value":          {"replicaCount=3", "replicaCount"},
		"an unknown one below":      {"components.server.replica=3", "replica"},
		"an unknown role":           {"components.server.roles={api,worker,pusher}", "roles"},
		"a role that nothing has":   {"components.server.roles={api,worker}", "none has the role push"},
		"an address in config":      {"config.listen=:80", "listen"},
		"a database URL in config":  {"config.database_url=postgres://h:secret@db/h", "database_url"},
		"a grace in config":         {"config.worker.stop_grace=1m", "stop_grace"},
		"a component's address":     {"components.server.config.admin_listen=:80", "admin_listen"},
		"a secret that is a string": {"secretEnv.TOKEN=abc", "TOKEN"},
		"no secret with the URL":    {"database.urlSecret.name=", "urlSecret"},
		"no role of servers":        {"migration.runtimeRole=", "runtimeRole"},
		"an invalid digest":         {"image.digest=latest", "digest"},
		"an invalid budget":         {"components.server.maxUnavailable=some", "maxUnavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := helm(t, "template", "holdfast", chart, "--set", tt.set)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

// The values on the page work.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubernetes.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	rendered := 0
	for _, block := range blocks {
		if strings.Contains(block[1], "Values of the adapter's chart") {
			continue
		}
		file := filepath.Join(t.TempDir(), "values.yaml")
		require.NoError(t, os.WriteFile(file, []byte(block[1]), 0o600))
		checkPods(t, decode(t, template(t, "--values", file)))
		rendered++
	}
	require.Equal(t, 4, rendered)
}

// checkPods checks what selects pods: each Deployment and budget its own, the Services those with the right ports.
func checkPods(t *testing.T, all objects) {
	t.Helper()
	service := get[*core.Service](t, all, "Service holdfast")
	admin := get[*core.Service](t, all, "Service holdfast-admin")
	job := get[*batch.Job](t, all, "Job holdfast-migrate")
	for _, s := range []*core.Service{service, admin} {
		require.False(t, labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(job.Spec.Template.Labels)))
	}
	for key, object := range all {
		d, ok := object.(*apps.Deployment)
		if !ok {
			continue
		}
		pod := labels.Set(d.Spec.Template.Labels)
		c := d.Spec.Template.Spec.Containers[0]
		for other, object := range all {
			var selector *metav1.LabelSelector
			switch o := object.(type) {
			case *apps.Deployment:
				selector = o.Spec.Selector
			case *policy.PodDisruptionBudget:
				selector = o.Spec.Selector
			default:
				continue
			}
			s, err := metav1.LabelSelectorAsSelector(selector)
			require.NoError(t, err)
			require.Equal(t, d.Name == object.GetName(), s.Matches(pod), "%s and %s", key, other)
		}
		require.True(t, labels.SelectorFromSet(admin.Spec.Selector).Matches(pod), key)
		isAPI := strings.Contains(env(c, "HOLDFAST_ROLES").Value, "api")
		require.Equal(t, isAPI, labels.SelectorFromSet(service.Spec.Selector).Matches(pod), key)
		for _, p := range slices.Concat(service.Spec.Ports, admin.Spec.Ports) {
			named := slices.ContainsFunc(c.Ports, func(c core.ContainerPort) bool {
				return c.Name == p.TargetPort.StrVal && c.ContainerPort == p.Port
			})
			require.Equal(t, isAPI || p.Name == "admin", named, "%s: %s", key, p.Name)
		}
		require.Contains(t, all, "ConfigMap "+d.Spec.Template.Spec.Volumes[0].ConfigMap.Name)
		probes := map[string]*core.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe}
		for path, probe := range probes {
			require.Equal(t, path, probe.HTTPGet.Path)
			require.Equal(t, "admin", probe.HTTPGet.Port.StrVal)
		}
		require.Equal(t, "/livez", c.StartupProbe.HTTPGet.Path)
		require.Nil(t, c.Lifecycle, "the image has no shell for a preStop hook; drain_delay does its work")
	}
}

// checkPod checks what docker-compose.yml demands of its containers.
func checkPod(t *testing.T, spec core.PodSpec) {
	t.Helper()
	require.False(t, *spec.AutomountServiceAccountToken)
	require.True(t, *spec.SecurityContext.RunAsNonRoot)
	require.Equal(t, core.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type)
	c := spec.Containers[0]
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	require.Equal(t, []core.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.NotEmpty(t, c.Resources.Limits.Memory())
	seen := map[string]bool{}
	for _, e := range c.Env {
		require.False(t, seen[e.Name], e.Name)
		seen[e.Name] = true
	}
}

func env(c core.Container, name string) core.EnvVar {
	i := slices.IndexFunc(c.Env, func(e core.EnvVar) bool { return e.Name == name })
	if i < 0 {
		return core.EnvVar{}
	}
	return c.Env[i]
}
