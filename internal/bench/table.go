package bench

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Participants are the peers that took part in a run, with their versions, and what did not, with the reason.
type Participants struct {
	Peers   map[string]string `json:"peers"`
	Skipped map[string]string `json:"skipped"`
}

// NewParticipants are none.
func NewParticipants() Participants {
	return Participants{Peers: map[string]string{}, Skipped: map[string]string{}}
}

// WriteParticipants writes a line for each.
func (p Participants) WriteParticipants(out io.Writer) {
	for _, peer := range slices.Sorted(maps.Keys(p.Peers)) {
		_, _ = fmt.Fprintf(out, "%s: %s\n", peer, p.Peers[peer])
	}
	for _, what := range slices.Sorted(maps.Keys(p.Skipped)) {
		_, _ = fmt.Fprintf(out, "skipped: %s: %s\n", what, p.Skipped[what])
	}
}

// WriteTable writes rows below a title and a header, whose cells end with a tab.
func WriteTable(out io.Writer, title, header string, rows []string) error {
	_, _ = fmt.Fprintf(out, "\n%s\n\n", title)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, header)
	for _, row := range rows {
		_, _ = fmt.Fprintln(table, row)
	}
	return table.Flush()
}

// Row is a row of a table.
func Row(cells ...any) string {
	return fmt.Sprintf(strings.Repeat("%v\t", len(cells)), cells...)
}

// Cells are the three of a spread.
func (s Spread) Cells(digits int) string {
	return Number(s.Median, digits) + "\t(" + Number(s.Low, digits) + "\t" + Number(s.High, digits) + ")"
}

// Number is a dash where nothing was measured.
func Number(value float64, digits int) string {
	if math.IsNaN(value) {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, value)
}
