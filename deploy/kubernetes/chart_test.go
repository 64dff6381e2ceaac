package kubernetes

import (
	"cmp"
	"flag"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/internal/testenv/process"
)

var update = flag.Bool("update", false, "write fencegate.yaml")

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// chartPath is the chart that the tests are about: that of the sources, or a packaged one.
var chartPath = cmp.Or(os.Getenv("FENCEGATE_CHART"), "chart")

// set is the manifests of a chart.
type set struct {
	deployment     apps.Deployment
	service        core.Service
	budget         policy.PodDisruptionBudget
	serviceMonitor *monitoring.ServiceMonitor
	rule           *monitoring.PrometheusRule
}

// render returns the manifests by the names of their templates.
func render(values string) (map[string]string, error) {
	loaded, err := loader.Load(chartPath)
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "fencegate", Namespace: "fencegate", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, given, release, nil)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(loaded, all)
	manifests := map[string]string{}
	for name, text := range rendered {
		if strings.TrimSpace(text) != "" && path.Ext(name) == ".yaml" {
			manifests[strings.TrimSuffix(path.Base(name), ".yaml")] = strings.TrimLeft(text, "\n")
		}
	}
	return manifests, err
}

// manifests renders the chart, and reads the manifests as Kubernetes does: an unknown or repeated field is an error.
func manifests(t *testing.T, values string) set {
	t.Helper()
	rendered, err := render(values)
	check(t, err)
	all := set{serviceMonitor: &monitoring.ServiceMonitor{}, rule: &monitoring.PrometheusRule{}}
	into := map[string]any{
		"deployment": &all.deployment, "service": &all.service, "poddisruptionbudget": &all.budget,
		"servicemonitor": all.serviceMonitor, "prometheusrule": all.rule,
	}
	for name, text := range rendered {
		if err := yaml.UnmarshalStrict([]byte(text), into[name]); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
	}
	return all
}

const everything = `
image: {tag: v1, pullSecrets: [registry]}
tls: {secretName: fencegate-tls}
env: {FENCEGATE_LEASE_RETENTION: 5m}
serviceMonitor: {enabled: true, credentials: {secretName: observer}}
prometheusRule: {enabled: true}
podAnnotations: {a: b}
nodeSelector: {a: b}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {}}
`

func TestLint(t *testing.T) {
	t.Parallel()
	values, err := chartutil.ReadValues([]byte(everything))
	check(t, err)
	for _, message := range lint.All(chartPath, values, "fencegate", true).Messages {
		if message.Severity > support.InfoSev {
			t.Error(message)
		}
	}
}

// TestManifests checks that the plain manifests are the chart's with its defaults.
func TestManifests(t *testing.T) {
	t.Parallel()
	rendered, err := render("image: {tag: local}\n")
	check(t, err)
	const head = "# The chart with its defaults. Set the image, and make the secret of the database:\n" +
		"#   kubectl create namespace fencegate\n" +
		"#   kubectl -n fencegate create secret generic fencegate-database --from-literal url=postgres://…\n" +
		"#   kubectl apply -f fencegate.yaml\n"
	var text strings.Builder
	text.WriteString(head)
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		text.WriteString("---\n" + rendered[name])
	}
	want := strings.ReplaceAll(text.String(), "managed-by: Helm", "managed-by: kubectl")
	if *update {
		check(t, os.WriteFile("fencegate.yaml", []byte(want), 0o600))
	}
	found, err := os.ReadFile("fencegate.yaml")
	check(t, err)
	if string(found) != want {
		t.Error("fencegate.yaml is not the chart with its defaults: go test -run TestManifests . -update")
	}
}

func TestPods(t *testing.T) {
	t.Parallel()
	all := manifests(t, everything)
	pod := all.deployment.Spec.Template
	for what, selector := range map[string]map[string]string{
		"deployment": all.deployment.Spec.Selector.MatchLabels, "service": all.service.Spec.Selector,
		"disruption budget": all.budget.Spec.Selector.MatchLabels,
	} {
		if !reflect.DeepEqual(selector, pod.Labels) {
			t.Errorf("the %s selects %v, the pods have %v", what, selector, pod.Labels)
		}
	}
	if !reflect.DeepEqual(all.serviceMonitor.Spec.Selector.MatchLabels, pod.Labels) {
		t.Errorf("the service monitor selects %v", all.serviceMonitor.Spec.Selector.MatchLabels)
	}
	if job := all.service.Labels[all.serviceMonitor.Spec.JobLabel]; job != "fencegate" {
		t.Errorf("Prometheus's job is %q, the alerts require fencegate", job)
	}

	gateway := pod.Spec.Containers[0]
	ready, live := gateway.ReadinessProbe, gateway.LivenessProbe
	if ready.HTTPGet.Path != "/readyz" || live.HTTPGet.Path != "/healthz" || ready.HTTPGet.Scheme != "HTTPS" {
		t.Errorf("the probes are %v and %v", ready.HTTPGet, live.HTTPGet)
	}
	drain, err := time.ParseDuration(environment(gateway)["FENCEGATE_DRAIN_DELAY"])
	check(t, err)
	// A gateway that drains is asked twice, and has the rest of its 20 s for requests under way.
	if drain < 2*time.Duration(ready.PeriodSeconds)*time.Second || *pod.Spec.TerminationGracePeriodSeconds < 25 {
		t.Errorf("the drain of %s is too short for a probe each %d s, or for %d s in all", drain, ready.PeriodSeconds,
			*pod.Spec.TerminationGracePeriodSeconds)
	}
	target, err := resource.ParseQuantity(strings.TrimSuffix(environment(gateway)["GOMEMLIMIT"], "B"))
	check(t, err)
	if limit := gateway.Resources.Limits[core.ResourceMemory]; target.Cmp(limit) >= 0 {
		t.Errorf("GOMEMLIMIT is %s, the limit is %s", &target, &limit)
	}
	if *gateway.SecurityContext.AllowPrivilegeEscalation || !*gateway.SecurityContext.ReadOnlyRootFilesystem ||
		!*pod.Spec.SecurityContext.RunAsNonRoot || *pod.Spec.AutomountServiceAccountToken {
		t.Error("the pods have rights that a gateway does not need")
	}
}

// TestAlerts checks that the chart's rules are those of deploy/prometheus.
func TestAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../prometheus/alerts.yml")
	check(t, err)
	var want monitoring.PrometheusRuleSpec
	check(t, yaml.UnmarshalStrict(text, &want))
	rules := manifests(t, everything).rule.Spec
	if len(want.Groups) == 0 || !reflect.DeepEqual(rules, want) {
		t.Error("the chart's rules are not those of deploy/prometheus/alerts.yml")
	}
}

func TestRefusedValues(t *testing.T) {
	t.Parallel()
	for values, says := range map[string]string{
		"{}":                                                  "image.tag is required",
		"{image: {tag: v1}, replica: 3}":                      "replica",
		"{image: {tag: v1}, auth: no}":                        "auth",
		"{image: {tag: v1}, replicas: 0}":                     "replicas",
		"{image: {tag: v1}, drainDelay: 1m}":                  "drainDelay",
		"{image: {tag: v1}, env: {A: [1]}}":                   "env",
		"{image: {tag: v1}, serviceMonitor: {enabled: true}}": "credentials.secretName is required",
	} {
		if _, err := render(values); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, expected %q", values, err, says)
		}
	}
}

func environment(container core.Container) map[string]string {
	all := map[string]string{}
	for _, variable := range container.Env {
		all[variable.Name] = variable.Value
	}
	return all
}

// TestEnvironment starts a gateway with the settings of a pod.
func TestEnvironment(t *testing.T) {
	for _, auth := range []string{"keys", "none"} {
		settings := environment(manifests(t, "{image: {tag: v1}, auth: "+auth+"}").deployment.Spec.Template.Spec.Containers[0])
		settings["FENCEGATE_DATABASE_URL"] = postgres.Migrated(t)
		for name, value := range settings {
			t.Setenv(name, value)
		}
		path := process.Build(t) // the build has a limit of its own
		process, err := gateway.Run(await.Context(t), path, "--listen", "0.0.0.0:0")
		check(t, err)
		process.Kill()
		for name := range settings {
			check(t, os.Unsetenv(name))
		}
	}
}
