package metrics

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/generated"
)

// update makes TestMetricsDoc rewrite the file; `make docs` sets it.
var update = flag.Bool("update", false, "rewrite the metrics in docs/observability.md")

const metricsDoc = "../../docs/observability.md"

// genericMetrics maps metrics that other lock servers have to those of fencegate.
var genericMetrics = []struct{ there, here string }{
	{"acquires by result", "`fencegate_lease_operations_total{operation=\"acquire\"}`"},
	{"renewals by result", "`fencegate_lease_operations_total{operation=\"renew\"}`; " +
		"of sessions `fencegate_session_operations_total{operation=\"keepalive\"}`"},
	{"releases by result", "`fencegate_lease_operations_total{operation=\"release\"}`; " +
		"of sessions `fencegate_session_operations_total{operation=\"end\"}`"},
	{"operation latency", "`fencegate_lease_operation_duration_seconds`; " +
		"of acquires that wait `fencegate_acquire_wait_duration_seconds`"},
	{"busy: lock attempts that met a holder",
		"`fencegate_lease_operations_total{operation=\"acquire\",result=\"lock_held\"}`"},
	{"locks held now", "`fencegate_leases{state=\"held\"}`"},
	{"leases expired", "`fencegate_swept_total{kind=\"lease_expired\"}`; " +
		"those not swept yet `fencegate_leases{state=\"expired\"}`"},
}

func generateMetricsDoc() string {
	var doc strings.Builder
	known := map[string]string{}
	for _, s := range subjects {
		fmt.Fprintf(&doc, "\n### %s\n", s.title)
		if s.about != "" {
			fmt.Fprintf(&doc, "\n%s\n", s.about)
		}
		doc.WriteString("\n| metric | type | labels | what it is | what to look at |\n|---|---|---|---|---|\n")
		for _, f := range s.families {
			fmt.Fprintf(&doc, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Kind, docLabels(f.Name, f.Labels, known), f.Help, f.Look)
		}
	}
	doc.WriteString("\n### If you come from another lock server\n\n| there | here |\n|---|---|\n")
	for _, row := range genericMetrics {
		fmt.Fprintf(&doc, "| %s | %s |\n", row.there, row.here)
	}
	doc.WriteString("\n")
	return doc.String()
}

// docLabels describes the labels of a family. Of long values that an earlier family has, too, it names that family.
func docLabels(family string, labels []Label, known map[string]string) string {
	texts := make([]string, len(labels))
	for i, label := range labels {
		values := label.Open
		if values == "" {
			values = "`" + strings.Join(label.Values, "`, `") + "`"
		}
		texts[i] = "`" + label.Name + "`: " + values
		if first := known[texts[i]]; first != "" && len(texts[i]) > 50 {
			texts[i] = "`" + label.Name + "`: as of `" + first + "`"
		} else {
			known[texts[i]] = family
		}
	}
	return strings.Join(texts, "; ")
}

// Every metric that the docs name is declared.
func TestDocsNameDeclaredMetrics(t *testing.T) {
	declared := map[string]bool{}
	for _, f := range Families() {
		declared[f.Name] = true
	}
	for _, path := range []string{metricsDoc, "../../docs/operations.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bfencegate_[a-z_]+`).FindAllString(string(text), -1) {
			family := regexp.MustCompile("_(bucket|count|sum)$").ReplaceAllString(name, "")
			if !declared[family] && !declared[name] {
				t.Errorf("%s names %s, which is not declared", path, name)
			}
		}
	}
}

// TestMetricsDoc checks that the metrics in docs/observability.md are those that `make docs` generates.
func TestMetricsDoc(t *testing.T) {
	generated.Section(t, metricsDoc, "## Metrics", generateMetricsDoc(), *update)
}
