// Package kubernetes tests the Helm chart.
package kubernetes

import (
	"cmp"
	"errors"
	"flag"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	securityapi "k8s.io/pod-security-admission/api"
	security "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// chartPath is the chart that the tests are about: that of the sources, or a packaged one.
var chartPath = cmp.Or(os.Getenv("FENCEGATE_CHART"), "chart")

// load reads the chart once.
var load = sync.OnceValues(func() (*chart.Chart, error) { return loader.Load(chartPath) })

// render returns the manifests by the names of their templates.
func render(values string) (map[string]string, error) {
	loaded, err := load()
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

// manifests are the objects of a chart by the names of their templates.
type manifests map[string]runtime.Object

// decode renders the chart, and reads the manifests as Kubernetes does: an unknown kind, and an unknown or repeated
// field is an error.
func decode(t *testing.T, values string) manifests {
	t.Helper()
	rendered, err := render(values)
	check(t, err)
	known := runtime.NewScheme()
	check(t, errors.Join(scheme.AddToScheme(known), monitoring.AddToScheme(known)))
	decoder := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	all := manifests{}
	for name, text := range rendered {
		if all[name], _, err = decoder.Decode([]byte(text), nil, nil); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
	}
	return all
}

func (m manifests) deployment() *apps.Deployment { return m["deployment"].(*apps.Deployment) }

// pods are those of the gateways, and of the migration, if it has one.
func (m manifests) pods() map[string]core.PodTemplateSpec {
	pods := map[string]core.PodTemplateSpec{"gateways": m.deployment().Spec.Template}
	if job, is := m["migration"].(*batch.Job); is {
		pods["migration"] = job.Spec.Template
	}
	return pods
}

// valuesFiles returns the values that the tests are about, by their names.
func valuesFiles(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.values.yaml")
	check(t, err)
	all := map[string]string{}
	for _, path := range append(paths, "production.yaml") {
		text, err := os.ReadFile(path)
		check(t, err)
		name, _, _ := strings.Cut(filepath.Base(path), ".")
		all[name] = string(text)
	}
	return all
}

func TestLint(t *testing.T) {
	t.Parallel()
	for name, text := range valuesFiles(t) {
		values, err := chartutil.ReadValues([]byte(text))
		check(t, err)
		for _, message := range lint.All(chartPath, values, "fencegate", true).Messages {
			if message.Severity > support.InfoSev {
				t.Error(name, message)
			}
		}
	}
}

// TestManifests compares the manifests of all values with golden files. The alerts are those of TestAlerts.
func TestManifests(t *testing.T) {
	t.Parallel()
	for name, values := range valuesFiles(t) {
		decode(t, values)
		rendered, err := render(values)
		check(t, err)
		delete(rendered, "prometheusrule")
		var text strings.Builder
		for _, template := range slices.Sorted(maps.Keys(rendered)) {
			text.WriteString("---\n" + rendered[template])
		}
		golden := filepath.Join("testdata", name+".yaml")
		if *update {
			check(t, os.WriteFile(golden, []byte(text.String()), 0o600))
		}
		found, err := os.ReadFile(golden)
		check(t, err)
		if string(found) != text.String() {
			t.Errorf("%s is not what the chart makes of its values: go test -run TestManifests . -update", golden)
		}
	}
}

// TestPods checks what manifests and programs must have in common, and that a namespace with the Pod Security Standard
// "restricted" admits the pods.
func TestPods(t *testing.T) {
	t.Parallel()
	standard, err := security.NewEvaluator(security.DefaultChecks(), nil)
	check(t, err)
	restricted := securityapi.LevelVersion{Level: securityapi.LevelRestricted, Version: securityapi.LatestVersion()}
	for name, values := range valuesFiles(t) {
		all := decode(t, values)
		for of, pod := range all.pods() {
			for _, result := range standard.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec) {
				if !result.Allowed {
					t.Errorf("%s, %s: %s: %s", name, of, result.ForbiddenReason, result.ForbiddenDetail)
				}
			}
			if *pod.Spec.AutomountServiceAccountToken || !*pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s, %s: the pods have rights that they do not need", name, of)
			}
		}
		checkSelectors(t, name, all)
		checkTimes(t, name, all.deployment().Spec.Template.Spec)
	}
}

func checkSelectors(t *testing.T, name string, all manifests) {
	t.Helper()
	labels := all.deployment().Spec.Template.Labels
	service := all["service"].(*core.Service)
	selectors := map[string]map[string]string{
		"deployment": all.deployment().Spec.Selector.MatchLabels, "service": service.Spec.Selector,
		"disruption budget": all["poddisruptionbudget"].(*policy.PodDisruptionBudget).Spec.Selector.MatchLabels,
	}
	if found, is := all["networkpolicy"].(*network.NetworkPolicy); is {
		selectors["network policy"] = found.Spec.PodSelector.MatchLabels
	}
	if found, is := all["servicemonitor"].(*monitoring.ServiceMonitor); is {
		selectors["service monitor"] = found.Spec.Selector.MatchLabels
		if job := service.Labels[found.Spec.JobLabel]; job != "fencegate" {
			t.Errorf("%s: Prometheus's job is %q, the alerts require fencegate", name, job)
		}
	}
	for what, selector := range selectors {
		if !maps.Equal(selector, labels) {
			t.Errorf("%s: the %s selects %v, the gateways have %v", name, what, selector, labels)
		}
	}
	if job, is := all["migration"].(*batch.Job); is && maps.Equal(job.Spec.Template.Labels, labels) {
		t.Errorf("%s: the service selects the migration", name)
	}
}

func checkTimes(t *testing.T, name string, pod core.PodSpec) {
	t.Helper()
	gateway := pod.Containers[0]
	variables := environment(gateway)
	drain, err := time.ParseDuration(variables["FENCEGATE_DRAIN_DELAY"])
	check(t, err)
	shutdown, err := time.ParseDuration(variables["FENCEGATE_SHUTDOWN_TIMEOUT"])
	check(t, err)
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	// A gateway that drains is asked twice. After its shutdown, it has a few seconds for the last rejections and spans.
	if drain < 2*time.Duration(gateway.ReadinessProbe.PeriodSeconds)*time.Second || shutdown+5*time.Second > grace {
		t.Errorf("%s: the drain of %s is too short for a probe each %d s, or the shutdown of %s too long for %s", name, drain,
			gateway.ReadinessProbe.PeriodSeconds, shutdown, grace)
	}
	target, err := resource.ParseQuantity(strings.TrimSuffix(variables["GOMEMLIMIT"], "B"))
	check(t, err)
	if limit := gateway.Resources.Limits[core.ResourceMemory]; target.Cmp(limit) >= 0 {
		t.Errorf("%s: GOMEMLIMIT is %s, the limit is %s", name, &target, &limit)
	}
}

// TestTrial checks that gateways without credentials say so, and answer for addresses and the names of the service alone.
func TestTrial(t *testing.T) {
	t.Parallel()
	all := decode(t, "{image: {tag: v1}, auth: none, migration: {by: gateways}}")
	variables := environment(all.deployment().Spec.Template.Spec.Containers[0])
	const hosts = "localhost,0.0.0.0/0,::/0,fencegate,fencegate.fencegate,fencegate.fencegate.svc,fencegate.fencegate.svc.cluster.local"
	if variables["FENCEGATE_INSECURE_NO_AUTH"] != "true" || variables["FENCEGATE_ALLOWED_HOSTS"] != hosts || all["migration"] != nil {
		t.Errorf("the gateways have %v, and the job %v", variables, all["migration"])
	}
}

// TestAlerts checks that the chart's rules are those of deploy/prometheus.
func TestAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../prometheus/alerts.yml")
	check(t, err)
	var want monitoring.PrometheusRuleSpec
	check(t, yaml.UnmarshalStrict(text, &want))
	rules := decode(t, valuesFiles(t)["production"])["prometheusrule"].(*monitoring.PrometheusRule).Spec
	if len(want.Groups) == 0 || !reflect.DeepEqual(rules, want) {
		t.Error("the chart's rules are not those of deploy/prometheus/alerts.yml")
	}
}

func TestRefusedValues(t *testing.T) {
	t.Parallel()
	for values, says := range map[string]string{
		"":                        "image.tag is required",
		"replica: 3":              "additional properties 'replica' not allowed",
		"auth: keys,password":     "does not match pattern '^(none|(keys|tokens|certificates)",
		"auth: tokens":            "auth: tokens and certificates need access.secretName or access.file",
		"access: {secretName: a}": "access is for auth: tokens and certificates",
		"{auth: certificates, access: {secretName: a}}":     "auth: certificates needs clientCA",
		"clientCA: {secretName: a}":                         "clientCA needs tls.secretName",
		"database: {ca: {secretName: a, configMapName: b}}": "not in both",
		"env: {FENCEGATE_DATABASE_URL: x}":                  "env.FENCEGATE_DATABASE_URL: the chart sets it by other values",
		"env: {FENCEGATE_REDIS_URL: x}":                     "env.FENCEGATE_REDIS_URL may have a credential",
		"networkPolicy: {enabled: true}":                    "networkPolicy.from is required",
		"serviceMonitor: {enabled: true}":                   "credentials.secretName is required",
	} {
		given, err := chartutil.ReadValues([]byte(values))
		check(t, err)
		if _, set := given["image"]; !set && values != "" {
			given["image"] = map[string]any{"tag": "v1"}
		}
		text, err := given.YAML()
		check(t, err)
		if _, err := render(text); err == nil || !strings.Contains(err.Error(), says) {
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
