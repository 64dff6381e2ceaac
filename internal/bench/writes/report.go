package writes

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/fencegate/fencegate/internal/bench"
)

// Report is a run: what was measured where, and every sample.
type Report struct {
	bench.Environment

	Resources   int      `json:"resources"`
	ValueBytes  int      `json:"value_bytes"`
	Connections int      `json:"connections"`
	Samples     []Sample `json:"samples"`
}

// Line is a target with a number of clients, over the rounds; Ratio is its rate to that of direct within each round.
type Line struct {
	Target                         string
	Clients                        int
	PerSecond, P50MS, P99MS, Ratio bench.Spread
}

// Lines summarizes the samples, in the order in which they were first made.
func (r Report) Lines() []Line {
	type key struct {
		target  string
		clients int
	}
	perSecond := func(s Sample) float64 { return s.PerSecond }
	groups := bench.GroupBy(r.Samples, func(s Sample) key { return key{s.Target, s.Clients} })
	lines := make([]Line, len(groups.Keys))
	for i, k := range groups.Keys {
		rates := groups.Values(k, perSecond)
		lines[i] = Line{
			Target: k.target, Clients: k.clients, PerSecond: bench.SpreadOf(rates),
			P50MS: bench.SpreadOf(groups.Values(k, func(s Sample) float64 { return s.P50MS })),
			P99MS: bench.SpreadOf(groups.Values(k, func(s Sample) float64 { return s.P99MS })),
			Ratio: bench.SpreadOf(bench.Ratios(rates, groups.Values(key{"direct", k.clients}, perSecond))),
		}
	}
	return lines
}

// WriteTable writes the report for people.
func (r Report) WriteTable(out io.Writer) error {
	_, _ = fmt.Fprintf(out, "%s, %d resources, %d-byte values, %d connections\n\n", r.Environment, r.Resources, r.ValueBytes, r.Connections)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "clients\ttarget\twrites/s\t(min\tmax)\tp50 ms\tp99 ms\tto direct\t(min\tmax)\t")
	for _, line := range r.Lines() {
		_, _ = fmt.Fprintf(table, "%d\t%s\t%.0f\t(%.0f\t%.0f)\t%.2f\t%.2f\t%.2f\t(%.2f\t%.2f)\t\n",
			line.Clients, line.Target, line.PerSecond.Median, line.PerSecond.Low, line.PerSecond.High, line.P50MS.Median, line.P99MS.Median,
			line.Ratio.Median, line.Ratio.Low, line.Ratio.High)
	}
	return table.Flush()
}
