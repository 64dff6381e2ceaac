package gateway

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// update has `make docs` rewrite what is generated.
var update = flag.Bool("update", false, "rewrite docs/metrics.md")

const metricsDoc = "../docs/metrics.md"

const metricsDocHead = `# Metrics

<!-- Generated from gateway/metrics*.go by ` + "`make docs`" + `: edit those. -->

A gateway shows these at ` + "`/metrics`" + `, for Prometheus. Names begin with ` + "`fencegate_`" + `, times are seconds, and no label has more values than are listed here: names of
locks and owners are never among them. Each gateway counts what went through itself, from its start; add the gateways up. What is
counted in the database is shown by each alike: take the ` + "`max`" + `. Beside these there are ` + "`go_*` and `process_*`" + `, as every Go program with Prometheus' client has them.
`

// genericMetrics are what the metrics of a lock server are called elsewhere, and where they are found here.
var genericMetrics = []struct{ there, here string }{
	{"acquires by result", "`fencegate_lease_operations_total{operation=\"acquire\"}`"},
	{"renewals by result", "`fencegate_lease_operations_total{operation=\"renew\"}`; of sessions `fencegate_session_operations_total{operation=\"keepalive\"}`"},
	{"releases by result", "`fencegate_lease_operations_total{operation=\"release\"}`; of sessions `fencegate_session_operations_total{operation=\"end\"}`"},
	{"operation latency", "`fencegate_lease_operation_duration_seconds`; of acquires that stand in line `fencegate_acquire_wait_duration_seconds`"},
	{"busy: lock attempts that met a holder", "`fencegate_lease_operations_total{operation=\"acquire\",result=\"lock_held\"}`"},
	{"locks held now", "`fencegate_leases{state=\"held\"}`"},
	{"leases expired", "`fencegate_swept_total{kind=\"lease_expired\"}`; those not tidied yet `fencegate_leases{state=\"expired\"}`"},
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
			fmt.Fprintf(&doc, "| `%s` | %s | %s | %s | %s |\n", f.name, f.kind, docLabels(f.labels), f.help, f.look)
		}
	}
	doc.WriteString("\n## Buckets\n\nUpper bounds of the histograms.\n\n| metric | buckets |\n|---|---|\n")
	for _, s := range subjects {
		for _, f := range s.families {
			if f.kind == kindHistogram {
				fmt.Fprintf(&doc, "| `%s` | %s |\n", f.name, docBuckets(f.buckets))
			}
		}
	}
	doc.WriteString("\n## If you come from another lock server\n\n| there | here |\n|---|---|\n")
	for _, row := range genericMetrics {
		fmt.Fprintf(&doc, "| %s | %s |\n", row.there, row.here)
	}
	return doc.String()
}

func docLabels(labels []label) string {
	texts := make([]string, len(labels))
	for i, label := range labels {
		values := label.open
		if values == "" {
			values = "`" + strings.Join(label.values, "`, `") + "`"
		}
		texts[i] = "`" + label.name + "`: " + values
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

// What the docs name is there.
func TestDocsNameMetricsThatThereAre(t *testing.T) {
	declared := map[string]bool{}
	for _, s := range subjects {
		for _, f := range s.families {
			declared[f.name] = true
		}
	}
	for _, path := range []string{metricsDoc, "../docs/operations.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bfencegate_[a-z_]+`).FindAllString(string(text), -1) {
			if !declared[regexp.MustCompile("_(bucket|count|sum)$").ReplaceAllString(name, "")] && !declared[name] {
				t.Errorf("%s names %s, which there is not", path, name)
			}
		}
	}
}

// docs/metrics.md is what the code says.
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
