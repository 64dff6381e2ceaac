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
	Title  string
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
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

// TestAlertsNameMetrics checks that alerts and runbooks name only metrics that docs/observability.md has.
func TestAlertsNameMetrics(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"fencegate_database_": true}
	rows := regexp.MustCompile("(?m)^\\| `(fencegate_[a-z_]+)` \\|")
	for _, row := range rows.FindAllStringSubmatch(read(t, "../docs/observability.md"), -1) {
		for _, part := range []string{"", "_bucket", "_sum", "_count"} {
			known[row[1]+part] = true
		}
	}
	files, err := filepath.Glob("../docs/runbooks/*.md")
	check(t, err)
	for _, file := range append(files, "prometheus/alerts.yml", "prometheus/alerts_test.yml") {
		for _, name := range regexp.MustCompile(`\bfencegate_[a-z_]+\b`).FindAllString(read(t, file), -1) {
			if !known[name] {
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
	elsewhere := regexp.MustCompile(`^fencegate_(issuer|node)_`) // of gateways with --access-file or --cluster alone
	for _, alert := range alerts(p.t) {
		selectors := regexp.MustCompile(`\b(fencegate_[a-z_]+|process_[a-z_]+|up)(\{[^}]*\})?`).FindAllString(alert.Expr, -1)
		if len(selectors) == 0 {
			p.t.Errorf("%s selects nothing: %s", alert.Alert, alert.Expr)
		}
		for _, selector := range selectors {
			if !elsewhere.MatchString(selector) {
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
