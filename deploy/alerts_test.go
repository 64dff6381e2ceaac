package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
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

// TestEveryAlertHasARunbook checks that every alert has a page in docs/runbooks, and a test that lets it fire. The list of
// the pages has it, with its severity. No page is left of an alert that was removed.
func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/runbooks/Fencegate*.md")
	check(t, err)
	runbooks := map[string]string{}
	for _, page := range pages {
		runbooks[strings.TrimSuffix(filepath.Base(page), ".md")] = read(t, page)
	}
	list, severities := read(t, "../docs/runbooks/README.md"), map[string][]string{}
	for _, alert := range alerts(t) {
		name := alert.Alert
		if url := alert.Annotations["runbook_url"]; runbooks[name] == "" || !strings.HasSuffix(url, "/docs/runbooks/"+name+".md") {
			t.Errorf("%s: the runbook is at %s, or is missing", name, url)
		}
		if severity := alert.Labels["severity"]; !slices.Contains(severities[name], severity) {
			severities[name] = append(severities[name], severity)
		}
		fires := regexp.MustCompile(`alertname: ` + name + `\n\s+exp_alerts:`)
		if !fires.MatchString(read(t, "prometheus/alerts_test.yml")) {
			t.Errorf("no test of promtool lets %s fire", name)
		}
	}
	for name := range runbooks {
		row := fmt.Sprintf("\n| [%s](%s.md) | %s | ", name, name, strings.Join(severities[name], ", "))
		if !strings.Contains(list, row) {
			t.Errorf("docs/runbooks/README.md has no row %q", row)
		}
		if severities[name] == nil {
			t.Errorf("docs/runbooks/%s.md is for no alert", name)
		}
	}
}
