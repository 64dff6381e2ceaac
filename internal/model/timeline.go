package model

import (
	"fmt"
	"strings"
)

// Timeline draws the run: a column for each actor, a line for each step.
func (r Result) Timeline() string {
	width := map[string]int{}
	for _, e := range r.Run {
		width[e.Actor] = max(width[e.Actor], len(e.Text)+2)
	}
	var drawn strings.Builder
	line := func(text func(actor string) string) {
		var columns strings.Builder
		for _, actor := range []string{"A", "B", "C", "G1", "G2", "D1", "D2"} {
			if width[actor] > 0 {
				fmt.Fprintf(&columns, "%-*s", width[actor], text(actor))
			}
		}
		fmt.Fprintln(&drawn, strings.TrimRight(columns.String(), " "))
	}
	line(func(actor string) string { return actor })
	for _, e := range r.Run {
		line(func(actor string) string {
			if actor == e.Actor {
				return e.Text
			}
			return ""
		})
	}
	return drawn.String()
}
