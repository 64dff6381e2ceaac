package bench

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// Goal is a target that we set ourselves, and what was measured of it.
type Goal struct {
	Name string
	// Limit is the least that the figure may be, or the most if AtMost.
	Limit  float64
	AtMost bool
	Figure Spread
}

// Measured reports whether there is a figure.
func (g Goal) Measured() bool { return !math.IsNaN(g.Figure.Median) }

// Met reports whether the median is within the limit.
func (g Goal) Met() bool {
	if g.AtMost {
		return g.Figure.Median <= g.Limit
	}
	return g.Figure.Median >= g.Limit
}

// WriteGoals writes goals as measured.
func WriteGoals(out io.Writer, goals []Goal) error {
	_, _ = fmt.Fprintf(out, "\nTargets that we set ourselves\n\n")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "target\tgoal\tmeasured\t(min\tmax)\t\t")
	for _, goal := range goals {
		relation, verdict := "at least", "missed"
		if goal.AtMost {
			relation = "at most"
		}
		switch {
		case !goal.Measured():
			verdict = "not measured"
		case goal.Met():
			verdict = "met"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s %.2f\t%s\t%s\t\n", goal.Name, relation, goal.Limit, goal.Figure.Cells(2), verdict)
	}
	return table.Flush()
}
