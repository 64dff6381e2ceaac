package tables

import (
	"fmt"
	"io"

	"github.com/fencegate/fencegate/internal/bench"
)

// nearlyFree is the time below which a flush is nearly free: then CPU bounds the rate of commits.
const nearlyFreeUS = 100

// freeFlush reports whether flushes are nearly free where the run was made.
func (r Report) freeFlush() bool { return r.FlushMicroseconds < nearlyFreeUS }

func (r Report) machine() string {
	if r.freeFlush() {
		return fmt.Sprintf("flushes are nearly free here (less than %d µs): CPU bounds the rate", nearlyFreeUS)
	}
	return fmt.Sprintf("flushes are not free here (%d µs or more): they bound the rate of few clients", nearlyFreeUS)
}

// WriteTables writes the report for people.
func (r Report) WriteTables(out io.Writer) error {
	_, _ = fmt.Fprintf(out, "%s; %s\n", r.Environment, r.machine())
	r.WriteParticipants(out)
	tables := bench.GroupBy(r.Lines(), func(l Line) string { return title(l.Case) })
	for _, title := range tables.Keys {
		write := writeRates
		if tables.Of(title)[0].Measure == Bulk {
			write = writeTimes
		}
		if err := write(out, title, tables.Of(title)); err != nil {
			return err
		}
	}
	if len(r.Scans) == 0 {
		return nil
	}
	return writeScans(out, r.Scans)
}

func title(c Case) string {
	if c.Measure == Bulk {
		return c.String()
	}
	return c.Measure
}

func writeRates(out io.Writer, title string, lines []Line) error {
	rows := make([]string, len(lines))
	for i, l := range lines {
		rows[i] = bench.Row(l.Clients, l.Target, l.PerSecond.Cells(0), l.Ratio.Cells(2), known(l.P99MS.Median, 2),
			known(l.CPU.Median, 0), bench.Number(l.CPURatio.Median, 2))
	}
	return bench.WriteTable(out, title,
		"clients\ttarget\ttransactions/s\t(min\tmax)\tto base\t(min\tmax)\tp99 ms\tPostgreSQL's CPU µs\tto base\t", rows)
}

// known is a dash for what pgbench does not report.
func known(value float64, digits int) string {
	if value == 0 {
		return "-"
	}
	return bench.Number(value, digits)
}

func writeTimes(out io.Writer, title string, lines []Line) error {
	rows := make([]string, len(lines))
	for i, l := range lines {
		rows[i] = bench.Row(l.Target, l.Milliseconds.Cells(1), l.TimeRatio.Cells(2))
	}
	return bench.WriteTable(out, title, "target\tms\t(min\tmax)\ttime to base\t(min\tmax)\t", rows)
}

func writeScans(out io.Writer, scans []Scans) error {
	rows := make([]string, len(scans))
	for i, s := range scans {
		rows[i] = bench.Row(s.Target, s.Rows, s.Table, s.Sequential, s.Index)
	}
	return bench.WriteTable(out, "plans: the scans of a transaction that updates, deletes and inserts rows",
		"target\trows\tscanned\tsequential\tby index\t", rows)
}
