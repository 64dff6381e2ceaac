package top

import (
	"math"
	"strings"
)

var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws values as bars from 0 to their greatest, the newest at the right, in at most width cells: several
// values that share a cell show their greatest. NaN is a gap.
func sparkline(values []float64, width int) string {
	if width < 1 || len(values) == 0 {
		return ""
	}
	cells := merge(values, width)
	top := 0.0
	for _, value := range cells {
		if !math.IsNaN(value) {
			top = max(top, value)
		}
	}
	var line strings.Builder
	for _, value := range cells {
		line.WriteRune(bar(value, top))
	}
	return line.String()
}

func bar(value, top float64) rune {
	switch {
	case math.IsNaN(value):
		return ' '
	case value <= 0 || top <= 0:
		return bars[0]
	}
	return bars[min(len(bars)-1, int(value/top*float64(len(bars))))]
}

// merge makes at most width values of them.
func merge(values []float64, width int) []float64 {
	if len(values) <= width {
		return values
	}
	merged := make([]float64, width)
	for i := range merged {
		merged[i] = math.NaN()
		for _, value := range values[i*len(values)/width : (i+1)*len(values)/width] {
			if math.IsNaN(merged[i]) || value > merged[i] {
				merged[i] = value
			}
		}
	}
	return merged
}
