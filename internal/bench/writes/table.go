package writes

import (
	"fmt"
	"io"

	"github.com/fencegate/fencegate/internal/bench"
)

// WriteTables writes the report for people.
func (r Report) WriteTables(out io.Writer) error {
	_, _ = fmt.Fprintf(out, "%s; %d connections of the store and of the gateway\n", r.Environment, r.Connections)
	r.WriteParticipants(out)
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
	header := "clients\ttarget\twrites/s\t(min\tmax)\tp50 ms\tp99 ms\t" + baseOf(lines[0].Case) +
		"\t(min\tmax)\tWAL B\tCPU µs: load\tpostgres\tserver\t"
	rows := make([]string, len(lines))
	for i, l := range lines {
		cpu := func(role string) string { return bench.Number(l.CPUMicroseconds[role].Median, 1) }
		rows[i] = bench.Row(l.Clients, l.Target, l.PerSecond.Cells(0), bench.Number(l.P50MS.Median, 2),
			bench.Number(l.P99MS.Median, 2), l.Ratio.Cells(2), bench.Number(l.WALBytesPerWrite.Median, 0),
			cpu(roleLoad), cpu(rolePostgres), bench.Number(server(l.CPUMicroseconds), 1))
	}
	return bench.WriteTable(out, title, header, rows)
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
