package soak

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/fencegate/fencegate/internal/bench"
	"github.com/fencegate/fencegate/internal/load"
)

// Report is what a soak came to.
type Report struct {
	Samples []Sample
	Load    *load.Report
}

// ErrGrew says that something is not flat, or that the load found a violation. The tables name it.
var ErrGrew = errors.New("something grew, or the contract was violated: see the report")

// WriteText writes a table of all series and what the load's clients saw. It returns ErrGrew after that, if so.
func (r Report) WriteText(out io.Writer) error {
	flat := r.Load.ViolationsTotal == 0 && r.Load.Counts.Unexpected == 0
	var rows []string
	for _, t := range trends(r.Samples) {
		verdict := "flat"
		switch {
		case math.IsInf(t.Kind.slack, 1):
			verdict = ""
		case !t.Flat():
			verdict, flat = "GREW", false
		}
		rows = append(rows, bench.Row(t.Kind.name, t.Of, number(t.First), number(t.Middle), number(t.Last), number(t.Peak),
			verdict))
	}
	title := fmt.Sprintf("medians of the thirds of %d samples; flat: last ≤ middle + %.0f %% + slack", len(r.Samples),
		100*growthShare)
	err := bench.WriteTable(out, title, bench.Row("WHAT", "OF", "FIRST", "MIDDLE", "LAST", "PEAK", ""), rows)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out)
	if err := r.Load.WriteText(out); err != nil {
		return err
	}
	if !flat {
		return ErrGrew
	}
	return nil
}

// line is a sample in short.
func (s *Sample) line() string {
	text := fmt.Sprintf("%5.0fs", s.At.Seconds())
	for i := range gateways {
		name := gatewayName(i)
		value := func(k kind) string { return number(s.Values[Series{k, name}]) }
		text += fmt.Sprintf("  %s: %s memory, %s heap, %s goroutines, %s descriptors, %s pooled;", name, value(memory), value(heap),
			value(goroutines), value(descriptors), value(pooled))
	}
	var size float64
	for series, value := range s.Values {
		switch series.Kind {
		case relationBytes:
			size += value
		case bytesPerName:
			size += value * s.Values[Series{names, "database"}]
		}
	}
	value := func(k kind) string { return number(s.Values[Series{k, "database"}]) }
	return text + fmt.Sprintf("  database: %s in tables and indexes, %s names, %s ended leases, %s dead rows, %s connections, %s log",
		number(size), value(names), value(endedLeases), value(deadRows), value(connections), value(logFiles))
}

// number shows large values in thousands and millions.
func number(value float64) string {
	switch {
	case value >= 10e6:
		return fmt.Sprintf("%.1fM", value/1e6)
	case value >= 10e3:
		return fmt.Sprintf("%.1fk", value/1e3)
	}
	return fmt.Sprintf("%.0f", value)
}
