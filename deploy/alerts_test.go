package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

// TestAlertRules checks that the rules are well-formed, and fire exactly when they should.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool := postgres.Require(t, "promtool")
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"},
		{"check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"},
		{"test", "rules", "alerts_test.yml"},
	} {
		command := exec.CommandContext(t.Context(), promtool, args...)
		command.Dir = "prometheus"
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
}

// alert is a rule of alerts.yml.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	unmarshal(t, "prometheus/alerts.yml", &file)
	var all []alert
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

func unmarshal(t *testing.T, path string, to any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, path)), to); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryAlertHasARunbook checks that every alert has a section in the runbook: why it matters, how to confirm it, and
// what to do. No section is left of an alert that was removed.
func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	runbooks := map[string]string{}
	for _, section := range regexp.MustCompile(`(?m)^### `).Split(read(t, "../docs/operations.md"), -1)[1:] {
		name, text, _ := strings.Cut(section, "\n")
		if strings.HasPrefix(name, "Fencegate") {
			text, _, _ = strings.Cut(text, "\n## ")
			runbooks[name] = text
		}
	}
	seen := map[string]bool{}
	for _, alert := range alerts(t) {
		seen[alert.Alert] = true
		for _, part := range []string{"**Why it matters.**", "**Confirm.**", "**Do.**"} {
			if !strings.Contains(runbooks[alert.Alert], part) {
				t.Errorf("docs/operations.md has no section %q with %q", "### "+alert.Alert, part)
			}
		}
		want := "/docs/operations.md#" + strings.ToLower(alert.Alert)
		if url := alert.Annotations["runbook_url"]; !strings.HasSuffix(url, want) {
			t.Errorf("%s: the runbook is at %s, want an address that ends with %s", alert.Alert, url, want)
		}
		if severity := alert.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s: its severity is %q", alert.Alert, severity)
		}
		if alert.Annotations["summary"] == "" || alert.For == "" {
			t.Errorf("%s has no summary, or no time for which it must hold", alert.Alert)
		}
		fires := regexp.MustCompile(`alertname: ` + alert.Alert + `\n\s+exp_alerts:`)
		if !fires.MatchString(read(t, "prometheus/alerts_test.yml")) {
			t.Errorf("no test of promtool lets %s fire", alert.Alert)
		}
	}
	for name := range runbooks {
		if !seen[name] {
			t.Errorf("docs/operations.md has a section for %s, which is no alert", name)
		}
	}
}
