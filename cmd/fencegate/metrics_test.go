package main

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// scrape reads /metrics as Prometheus does.
func (s shell) scrape() (map[string]*dto.MetricFamily, []byte) {
	s.t.Helper()
	response, err := http.Get(s.url + "/metrics")
	check(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("/metrics: %d, %v: %s", response.StatusCode, err, text)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	check(s.t, err)
	return families, text
}

// documented are the names and types in docs/observability.md.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/observability.md")
	check(t, err)
	kinds := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(fencegate_[a-z_]+)` \\| (counter|gauge|histogram) \\|").FindAllSubmatch(text, -1) {
		kinds[string(row[1])] = string(row[2])
	}
	return kinds
}

// "serve" exposes exactly the metrics that docs/observability.md lists: all of them once the database was read, and a call of
// Redis has failed.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	s := newShell(t, "--redis-url", "redis://"+network.FreeAddress(t))
	s.scrape() // which shows no request before itself
	var families map[string]*dto.MetricFamily
	await.True(t, "the gauges of the database are shown, and an error of Redis", func() bool {
		families, _ = s.scrape()
		return families["fencegate_locks"] != nil && families["fencegate_redis_errors_total"] != nil &&
			families["fencegate_database_up"].GetMetric()[0].GetGauge().GetValue() == 1
	})
	shown := map[string]string{}
	for name, family := range families {
		if strings.HasPrefix(name, "fencegate_") {
			shown[name] = strings.ToLower(family.GetType().String())
		}
	}
	want := documented(t)
	delete(want, "fencegate_issuer_key_readings_total") // only a gateway with --access-file shows it
	if len(want) < 30 {
		t.Fatalf("docs/observability.md was not understood: %v", want)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if shown[name] != want[name] {
			t.Errorf("docs/observability.md lists %s as a %s, shown is %q", name, want[name], shown[name])
		}
		delete(shown, name)
	}
	if len(shown) > 0 {
		t.Errorf("docs/observability.md lacks %v", shown)
	}

	// Prometheus' own check finds nothing to say about what is shown after some work.
	promtool := postgres.Require(t, "promtool")
	s.must("lock", "acquire", "job", "--owner-id", "w")
	s.do("lock", "acquire", "job", "--owner-id", "x")
	_, text := s.scrape()
	check := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	check.Stdin = bytes.NewReader(text)
	if said, err := check.CombinedOutput(); err != nil || len(bytes.TrimSpace(said)) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, said)
	}
}
