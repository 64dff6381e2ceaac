package locks

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fencegate/fencegate/internal/bench"
)

// WriteTables writes the report for people.
func (r Report) WriteTables(out io.Writer) error {
	_, _ = fmt.Fprintln(out, r.Environment)
	for _, peer := range slices.Sorted(maps.Keys(r.Peers)) {
		_, _ = fmt.Fprintf(out, "%s: %s\n", peer, r.Peers[peer])
	}
	for _, what := range slices.Sorted(maps.Keys(r.Skipped)) {
		_, _ = fmt.Fprintf(out, "skipped: %s: %s\n", what, r.Skipped[what])
	}
	for _, write := range []func(io.Writer) error{r.writeWakeUps, r.writeCycles, r.writeCrowds} {
		if err := write(out); err != nil {
			return err
		}
	}
	return nil
}

func (r Report) writeWakeUps(out io.Writer) error {
	var rows []string
	for _, line := range r.WakeUpLines() {
		rows = append(rows, row(line.Service, fmt.Sprint(line.HandOffs),
			spread(line.P50MS, 2), spread(line.P99MS, 2), spread(line.Ratio, 2)))
	}
	return writeTable(out, "Wake-up: from the release to the next waiter's grant",
		"service\thand-offs\tp50 ms\t(min\tmax)\tp99 ms\t(min\tmax)\tp50 to etcd\t(min\tmax)\t", rows)
}

func (r Report) writeCycles(out io.Writer) error {
	var rows []string
	for _, line := range r.CycleLines() {
		rows = append(rows, row(line.Locks, fmt.Sprint(line.Clients), line.Service,
			spread(line.PerSecond, 0), number(line.P50MS.Median, 2), number(line.P99MS.Median, 2), spread(line.Ratio, 2)))
	}
	return writeTable(out, "Cycles: acquire and release",
		"locks\tclients\tservice\tcycles/s\t(min\tmax)\tp50 ms\tp99 ms\tto etcd\t(min\tmax)\t", rows)
}

func (r Report) writeCrowds(out io.Writer) error {
	var rows []string
	for _, line := range r.CrowdLines() {
		rows = append(rows, row(line.Figure, spread(line.Spread, 1)))
	}
	title := "Crowd"
	if len(r.Crowds) > 0 {
		s := r.Crowds[0]
		title = fmt.Sprintf("Crowd: %d wait for one lock at two gateways, over %d connections (%s; %d open files allowed); "+
			"%.0f s idle",
			s.Waiters, s.Connections, s.Protocol, s.OpenFilesMax, s.Idle.Seconds)
	}
	return writeTable(out, title, "figure\tmedian\t(min\tmax)\t", rows)
}

// writeTable leaves out a table without rows: what was not measured.
func writeTable(out io.Writer, title, header string, rows []string) error {
	if len(rows) == 0 {
		return nil
	}
	_, _ = fmt.Fprintf(out, "\n%s\n\n", title)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, header)
	for _, row := range rows {
		_, _ = fmt.Fprintln(table, row)
	}
	return table.Flush()
}

func row(cells ...string) string { return strings.Join(cells, "\t") + "\t" }

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
