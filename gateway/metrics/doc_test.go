package metrics

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// update makes TestMetricsDoc rewrite the file; `make docs` sets it.
var update = flag.Bool("update", false, "rewrite docs/metrics.md")

const metricsDoc = "../../docs/metrics.md"

const metricsDocHead = `# Metrics

<!-- Generated from gateway/metrics by ` + "`make docs`" + `: edit that. -->

A gateway shows these at ` + "`/metrics`" + `, for Prometheus. Names begin with ` + "`fencegate_`" + ` and times are seconds.
No label has more values than are listed here: names of locks and owners are never among them. Each gateway counts its
own requests, from its start; add the gateways up. Every gateway shows the same counts of the database: take the
` + "`max`" + `. There are also the ` + "`go_*` and `process_*`" + ` metrics of every Go program with Prometheus' client.
`

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
	doc.WriteString(metricsDocHead)
	for _, s := range subjects {
		fmt.Fprintf(&doc, "\n## %s\n", s.title)
		if s.about != "" {
			fmt.Fprintf(&doc, "\n%s\n", s.about)
		}
		doc.WriteString("\n| metric | type | labels | what it is | what to look at |\n|---|---|---|---|---|\n")
		for _, f := range s.families {
			fmt.Fprintf(&doc, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Kind, docLabels(f.Labels), f.Help, f.Look)
		}
	}
	doc.WriteString("\n## Buckets\n\nUpper bounds of the histograms.\n\n| metric | buckets |\n|---|---|\n")
	for _, f := range Families() {
		if f.Kind == Histogram {
			fmt.Fprintf(&doc, "| `%s` | %s |\n", f.Name, docBuckets(f.Buckets))
		}
	}
	doc.WriteString("\n## If you come from another lock server\n\n| there | here |\n|---|---|\n")
	for _, row := range genericMetrics {
		fmt.Fprintf(&doc, "| %s | %s |\n", row.there, row.here)
	}
	return doc.String()
}

func docLabels(labels []Label) string {
	texts := make([]string, len(labels))
	for i, label := range labels {
		values := label.Open
		if values == "" {
			values = "`" + strings.Join(label.Values, "`, `") + "`"
		}
		texts[i] = "`" + label.Name + "`: " + values
	}
	return strings.Join(texts, "; ")
}

func docBuckets(bounds []float64) string {
	texts := make([]string, len(bounds))
	for i, bound := range bounds {
		texts[i] = strconv.FormatFloat(bound, 'g', 6, 64)
	}
	return strings.Join(texts, ", ")
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

// TestMetricsDoc checks that docs/metrics.md is what `make docs` generates.
func TestMetricsDoc(t *testing.T) {
	want := generateMetricsDoc()
	if *update {
		if err := os.WriteFile(metricsDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/metrics.md is stale: make docs rewrites it")
	}
}
