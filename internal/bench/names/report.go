package names

import (
	"fmt"
	"io"

	"github.com/fencegate/fencegate/internal/bench"
)

// Sample is what was measured of one database in one round.
type Sample struct {
	What  string  `json:"what"`
	Unit  string  `json:"unit"` // ms or bytes
	Names int     `json:"names"`
	Round int     `json:"round"`
	Value float64 `json:"value"`
}

// Report is all that was measured.
type Report struct {
	bench.Environment

	Names   []int    `json:"names"`
	Samples []Sample `json:"samples"`
}

// measured is the key of samples that are compared: of all rounds, for one number of names.
type measured struct {
	what, unit string
	names      int
}

// WriteTable writes a row for each measurement: the medians of the rounds for each number of names, and the ratio of the
// last to the first within each round.
func (r Report) WriteTable(out io.Writer) error {
	groups := bench.GroupBy(r.Samples, func(s Sample) measured { return measured{s.What, s.Unit, s.Names} })
	value := func(s Sample) float64 { return s.Value }
	few, many := r.Names[0], r.Names[len(r.Names)-1]
	var rows []string
	for _, k := range groups.Keys {
		if k.names != few {
			continue
		}
		cells := []any{k.what, k.unit}
		for _, names := range r.Names {
			cells = append(cells, bench.SpreadOf(groups.Values(measured{k.what, k.unit, names}, value)).Cells(1))
		}
		ratios := bench.Ratios(groups.Values(measured{k.what, k.unit, many}, value), groups.Values(k, value))
		rows = append(rows, bench.Row(append(cells, bench.SpreadOf(ratios).Cells(2))...))
	}
	header := []any{"", ""}
	for _, names := range r.Names {
		header = append(header, names, "(min", "max)")
	}
	return bench.WriteTable(out, fmt.Sprintf("Names: a database of each number of them; %s", r.Environment),
		bench.Row(append(header, "ratio", "(min", "max)")...), rows)
}
