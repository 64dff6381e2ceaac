package writes

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/fencegate/fencegate/internal/bench"
)

// WriteTables writes the report for people.
func (r Report) WriteTables(out io.Writer) error {
	_, _ = fmt.Fprintf(out, "%s; %d connections of the store and of the gateway\n", r.Environment, r.Connections)
	for _, peer := range slices.Sorted(maps.Keys(r.Peers)) {
		_, _ = fmt.Fprintf(out, "%s: %s\n", peer, r.Peers[peer])
	}
	for _, what := range slices.Sorted(maps.Keys(r.Skipped)) {
		_, _ = fmt.Fprintf(out, "skipped: %s: %s\n", what, r.Skipped[what])
	}
	for _, failure := range r.Failed {
		_, _ = fmt.Fprintf(out, "failed: %s\n", failure)
	}
	tables := bench.GroupBy(r.Lines(), func(l Line) string { return title(l.Case) })
	for _, title := range tables.Keys {
		if err := writeTable(out, title, tables.Of(title)); err != nil {
			return err
		}
	}
	return nil
}

func title(c Case) string {
	text := fmt.Sprintf("%s: %d resources, %d-byte values", c.Measure, c.Resources, c.ValueBytes)
	if c.FlushDelayMS > 0 {
		text += fmt.Sprintf(", each flush %g ms slower", c.FlushDelayMS)
	}
	return text + prefixed(", ", c.Load)
}

func writeTable(out io.Writer, title string, lines []Line) error {
	_, _ = fmt.Fprintf(out, "\n%s\n\n", title)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(table, "clients\ttarget\twrites/s\t(min\tmax)\tp50 ms\tp99 ms\t%s\t(min\tmax)\tWAL B\tCPU µs: "+
		"load\tpostgres\tserver\t\n", baseOf(lines[0].Case))
	for _, l := range lines {
		_, _ = fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n",
			l.Clients, l.Target, spread(l.PerSecond, 0), number(l.P50MS.Median, 2), number(l.P99MS.Median, 2),
			spread(l.Ratio, 2),
			number(l.WALBytesPerWrite.Median, 0), number(l.CPUMicroseconds[roleLoad].Median, 1),
			number(l.CPUMicroseconds[rolePostgres].Median, 1), number(server(l.CPUMicroseconds), 1))
	}
	return table.Flush()
}

// baseOf names what the ratios are to.
func baseOf(c Case) string {
	switch {
	case c.Measure != Refusals && c.Measure != Dashboards:
		return "to direct"
	case c.Measure == Refusals && c.Load == "":
		return "to floor"
	}
	return "to alone"
}

// server is the CPU time of the process that the target is: the gateway's, the peer's, the empty handler's. Each line
// has one at most.
func server(cpu map[string]bench.Spread) float64 {
	return cpu[roleGateway].Median + cpu[rolePeer].Median + cpu[nameFloor].Median // those that a line lacks are 0
}

// spread is three cells.
func spread(s bench.Spread, digits int) string {
	return number(s.Median, digits) + "\t(" + number(s.Low, digits) + "\t" + number(s.High, digits) + ")"
}

// number is a dash where nothing was measured.
func number(value float64, digits int) string {
	if math.IsNaN(value) {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, value)
}
