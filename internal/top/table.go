package top

import (
	"math"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// column is one of a table. Its width is that of its widest cell, but at most Max, and less where the terminal is
// narrow.
type column struct {
	heading string
	right   bool
	most    int
	// shrink: gives up cells first, where there are too few.
	shrink bool
	// optional: is left out where the terminal is too narrow for all columns to be legible, the last one first.
	optional bool
}

// legible is what a column that can be shrunk should have at least.
const legible = 12

// lines draws rows under a heading, each line cut to width.
func lines(p painter, columns []column, rows [][]string, width int) []string {
	columns, rows = leaveOut(columns, rows, width)
	widths := columnWidths(columns, rows, width)
	draw := func(cells []string) string {
		fitted := make([]string, len(cells))
		for i, cell := range cells {
			fitted[i] = fit(cell, widths[i], columns[i].right)
		}
		return strings.TrimRight(strings.Join(fitted, "  "), " ")
	}
	headings := make([]string, len(columns))
	for i, c := range columns {
		headings[i] = c.heading
	}
	drawn := []string{p.paint(dim, draw(headings))}
	for _, row := range rows {
		drawn = append(drawn, draw(row))
	}
	return drawn
}

// leaveOut returns the columns that there is room for.
func leaveOut(columns []column, rows [][]string, width int) ([]column, [][]string) {
	for {
		needed, last := -2, -1
		for i, natural := range columnWidths(columns, rows, math.MaxInt) {
			if columns[i].shrink {
				natural = min(natural, legible)
			}
			needed += natural + 2
			if columns[i].optional {
				last = i
			}
		}
		if needed <= width || last < 0 {
			return columns, rows
		}
		columns = slices.Delete(slices.Clone(columns), last, last+1)
		for i, row := range rows {
			rows[i] = slices.Delete(slices.Clone(row), last, last+1)
		}
	}
}

func columnWidths(columns []column, rows [][]string, width int) []int {
	widths := make([]int, len(columns))
	total := 2 * (len(columns) - 1)
	for i, c := range columns {
		widths[i] = cells(c.heading)
		for _, row := range rows {
			widths[i] = max(widths[i], cells(row[i]))
		}
		widths[i] = min(widths[i], c.most)
		total += widths[i]
	}
	for total > width {
		widest := -1
		for i, c := range columns {
			if c.shrink && widths[i] > shrinkLeast && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break // the line is cut
		}
		widths[widest]--
		total--
	}
	return widths
}

// shrinkLeast is how narrow a column may get.
const shrinkLeast = 6

func cells(text string) int { return ansi.StringWidth(text) }
