package bench

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Report is a run: what was measured where, and every sample.
type Report struct {
	At          time.Time         `json:"at"`
	CPUs        int               `json:"cpus"`
	Go          string            `json:"go"`
	Environment map[string]string `json:"environment"`
	Resources   int               `json:"resources"`
	ValueBytes  int               `json:"value_bytes"`
	Connections int               `json:"connections"`
	Samples     []Sample          `json:"samples"`
}

// Line is a target with a number of clients: medians over the rounds, and the ratios to direct within each round.
type Line struct {
	Target                      string
	Clients                     int
	PerSecond, P50MS, P99MS     float64
	Ratio, RatioLow, RatioHigh  float64
	PerSecondLow, PerSecondHigh float64
}

// Lines summarizes the samples, in the order in which they were first made.
func (r Report) Lines() []Line {
	type key struct {
		target  string
		clients int
	}
	var order []key
	groups := map[key][]Sample{}
	for _, sample := range r.Samples {
		k := key{sample.Target, sample.Clients}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], sample)
	}
	lines := make([]Line, len(order))
	for i, k := range order {
		lines[i] = summary(groups[k], groups[key{"direct", k.clients}])
	}
	return lines
}

func summary(samples, direct []Sample) Line {
	var rates, p50s, p99s, ratios []float64
	for i, sample := range samples {
		rates, p50s, p99s = append(rates, sample.PerSecond), append(p50s, sample.P50MS), append(p99s, sample.P99MS)
		if i < len(direct) {
			ratios = append(ratios, sample.PerSecond/direct[i].PerSecond)
		}
	}
	return Line{
		Target: samples[0].Target, Clients: samples[0].Clients, PerSecond: median(rates), P50MS: median(p50s), P99MS: median(p99s),
		Ratio: median(ratios), RatioLow: slices.Min(ratios), RatioHigh: slices.Max(ratios),
		PerSecondLow: slices.Min(rates), PerSecondHigh: slices.Max(rates),
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// WriteTable writes the report for people.
func (r Report) WriteTable(out io.Writer) error {
	_, _ = fmt.Fprintf(out, "%d CPUs, %s, PostgreSQL %s, fsync %s, synchronous_commit %s, %d resources, %d-byte values, %d connections\n\n",
		r.CPUs, r.Go, r.Environment["server_version"], r.Environment["fsync"], r.Environment["synchronous_commit"],
		r.Resources, r.ValueBytes, r.Connections)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "clients\ttarget\twrites/s\t(min\tmax)\tp50 ms\tp99 ms\tto direct\t(min\tmax)\t")
	for _, line := range r.Lines() {
		_, _ = fmt.Fprintf(table, "%d\t%s\t%.0f\t(%.0f\t%.0f)\t%.2f\t%.2f\t%.2f\t(%.2f\t%.2f)\t\n",
			line.Clients, line.Target, line.PerSecond, line.PerSecondLow, line.PerSecondHigh, line.P50MS, line.P99MS,
			line.Ratio, line.RatioLow, line.RatioHigh)
	}
	return table.Flush()
}
