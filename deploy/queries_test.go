package deploy

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

// dashboard is the tested part of a dashboard.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Panels        []struct {
		ID                       int
		Type, Title, Description string
		FieldConfig              struct{ Defaults struct{ Unit string } }
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct{ Expr string }
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("grafana/dashboards/*.json")
	check(t, err)
	all := map[string]dashboard{}
	for _, file := range files {
		var d dashboard
		if err := json.Unmarshal([]byte(read(t, file)), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[file] = d
	}
	if len(all) != 2 {
		t.Fatalf("there are %d dashboards, want 2", len(all))
	}
	return all
}

// documented returns the metrics in docs/observability.md, and those of Prometheus and its client for Go.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{
		"up": true, "ALERTS": true, "go_goroutines": true, "process_cpu_seconds_total": true,
		"process_resident_memory_bytes": true, "process_start_time_seconds": true, "process_open_fds": true,
		"process_max_fds": true,
	}
	rows := regexp.MustCompile("(?m)^\\| `(fencegate_[a-z_]+)` \\| (\\w+) \\|")
	for _, row := range rows.FindAllStringSubmatch(read(t, "../docs/observability.md"), -1) {
		known[row[1]] = true
		if row[2] == "histogram" {
			known[row[1]+"_bucket"], known[row[1]+"_sum"], known[row[1]+"_count"] = true, true, true
		}
	}
	return known
}

// metricName matches the names of metrics, but no function, label or keyword.
var metricName = regexp.MustCompile(`\b(fencegate_[a-z_]+|process_[a-z_]+|go_[a-z_]+|up|ALERTS)\b`)

// TestDashboards checks that panels have descriptions, don't overlap, and name only metrics that exist.
func TestDashboards(t *testing.T) {
	t.Parallel()
	known := documented(t)
	for file, d := range dashboards(t) {
		if d.UID == "" || d.Title == "" || d.SchemaVersion < 39 {
			t.Errorf("%s: uid %q, title %q, schema version %d", file, d.UID, d.Title, d.SchemaVersion)
		}
		ids, taken := map[int]bool{}, map[[2]int]string{}
		for _, panel := range d.Panels {
			if ids[panel.ID] {
				t.Errorf("%s: two panels have the id %d", file, panel.ID)
			}
			ids[panel.ID] = true
			for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
				for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: %q covers %q, or is beyond the edge", file, panel.Title, other)
					}
					taken[[2]int{x, y}] = panel.Title
				}
			}
			if panel.Type == "row" {
				continue
			}
			if panel.Title == "" || panel.Description == "" || panel.FieldConfig.Defaults.Unit == "" || len(panel.Targets) == 0 {
				t.Errorf("%s: panel %q has no title, description, unit or query", file, panel.Title)
			}
			for _, target := range panel.Targets {
				for _, name := range metricName.FindAllString(target.Expr, -1) {
					if !known[name] {
						t.Errorf("%s: %q queries %s, which docs/observability.md does not have", file, panel.Title, name)
					}
				}
			}
		}
	}
}

// TestAlertsNameMetrics checks that alerts and runbooks name only metrics that exist.
func TestAlertsNameMetrics(t *testing.T) {
	t.Parallel()
	known := documented(t)
	files, err := filepath.Glob("../docs/runbooks/*.md")
	check(t, err)
	for _, file := range append(files, "prometheus/alerts.yml", "prometheus/alerts_test.yml") {
		for _, name := range regexp.MustCompile(`\bfencegate_[a-z_]+\b`).FindAllString(read(t, file), -1) {
			if !known[name] && name != "fencegate_database_" {
				t.Errorf("%s names %s, which docs/observability.md does not have", file, name)
			}
		}
	}
}

// checkQueries checks that every query of every panel is valid and finds data, and so does every selector of every
// alert: an alert with a misspelt label or value would never fire.
func (p prometheus) checkQueries() {
	p.t.Helper()
	missing := map[string]string{} // by the query, where it is used
	filled := strings.NewReplacer("$job", "fencegate", "$instance", ".*", "$__rate_interval", window)
	for _, d := range dashboards(p.t) {
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				missing[filled.Replace(target.Expr)] = d.Title + ": " + panel.Title
			}
		}
	}
	for _, alert := range alerts(p.t) {
		selectors := regexp.MustCompile(`\b(fencegate_[a-z_]+|process_[a-z_]+|up)(\{[^}]*\})?`).FindAllString(alert.Expr, -1)
		if len(selectors) == 0 {
			p.t.Errorf("%s selects nothing: %s", alert.Alert, alert.Expr)
		}
		for _, selector := range selectors {
			if !strings.HasPrefix(selector, "fencegate_issuer_") { // only a gateway with --access-file shows it
				missing[selector] = alert.Alert
			}
		}
	}
	deadline := time.Now().Add(await.Limit)
	for ; len(missing) > 0 && time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		for query := range missing {
			if p.finds(query) {
				delete(missing, query)
			}
		}
	}
	for query, where := range missing {
		p.t.Errorf("%s finds no data: %s", where, query)
	}
}

// checkRules checks that Prometheus evaluates all rules without an error.
func (p prometheus) checkRules() {
	p.t.Helper()
	await.True(p.t, "all rules are evaluated", func() bool {
		var data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
		check(p.t, p.api("/api/v1/rules", nil, &data))
		well := 0
		for _, group := range data.Groups {
			for _, rule := range group.Rules {
				if rule.LastError != "" {
					p.t.Fatalf("%s: %s", rule.Name, rule.LastError)
				}
				if rule.Health == "ok" {
					well++
				}
			}
		}
		return well == len(alerts(p.t))
	})
}

// checkTokenLine checks today's limit of FencegateRunawayToken: a token that jumped just now is below it, also after a
// hundred more jumps. A token that is 15 % ahead of the clock is above.
func (p prometheus) checkTokenLine() {
	p.t.Helper()
	all := alerts(p.t)
	expr := all[slices.IndexFunc(all, func(a alert) bool {
		return a.Alert == "FencegateRunawayToken" && strings.Contains(a.Expr, "fencegate_newest_token")
	})].Expr
	jumped := time.Since(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)).Seconds() * (1 << 20)
	for _, test := range []struct {
		token float64
		fires bool
	}{{34, false}, {jumped, false}, {jumped + 100*(1<<32), false}, {jumped * 1.15, true}, {1 << 53, true}} {
		query := replace(p.t, expr, "max by (job) (fencegate_newest_token)", fmt.Sprintf("vector(%.0f)", test.token))
		if fires := p.finds(query); fires != test.fires {
			p.t.Errorf("with %.0f as the newest token FencegateRunawayToken fires: %t, want %t", test.token, fires, test.fires)
		}
	}
}
