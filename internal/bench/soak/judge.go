package soak

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/fencegate/fencegate/internal/bench"
)

// kind is what a series measures, with the most by which it may grow beside growthShare. The slack is for what garbage
// collection, vacuum and checkpoints move up and down.
type kind struct {
	name  string
	slack float64
}

const (
	kB = 1 << 10
	mB = 1 << 20
)

// growthShare is how much the median of the last third may be above that of the middle third.
const growthShare = 0.1

// What is measured. A slack of infinity: only shown.
var (
	memory        = kind{"resident memory", 4 * mB}
	heap          = kind{"Go heap", 2 * mB}
	goroutines    = kind{"goroutines", 10}
	descriptors   = kind{"file descriptors", 10}
	pooled        = kind{"connections of the pool", 2}
	connections   = kind{"connections", 2}
	relationBytes = kind{"size", 256 * kB}
	bytesPerName  = kind{"bytes a name", 16}
	endedLeases   = kind{"leases beside the newest of each lock", 1000}
	deadRows      = kind{"dead rows", 10_000}
	logFiles      = kind{"write-ahead log", 64 * mB}
	logWritten    = kind{"log written", math.Inf(1)}
	names         = kind{"names", math.Inf(1)}
)

// keptForEver are the relations with a row for each name that is never deleted: the fence, the newest lease, the
// record.
var keptForEver = map[string]bool{
	"fences": true, "fences_pkey": true, "leases": true, "leases_pkey": true, "records": true, "records_pkey": true,
}

// Trend is what became of a series: the medians of the thirds, and the highest value.
type Trend struct {
	Series

	First, Middle, Last, Peak float64
}

// Flat reports whether the series did not grow.
func (t Trend) Flat() bool { return t.Last-t.Middle <= t.Middle*growthShare+t.Kind.slack }

// trends are those of all series, sorted.
func trends(samples []Sample) (all []Trend) {
	values := map[Series][]float64{}
	for _, s := range samples {
		for series, value := range s.Values {
			values[series] = append(values[series], value)
		}
	}
	for _, series := range slices.SortedFunc(maps.Keys(values), compare) {
		of := values[series]
		third := len(of) / 3
		all = append(all, Trend{
			series, median(of[:third]), median(of[third : len(of)-third]), median(of[len(of)-third:]), slices.Max(of),
		})
	}
	return all
}

func compare(a, b Series) int {
	return cmp.Or(cmp.Compare(a.Kind.name, b.Kind.name), cmp.Compare(a.Of, b.Of))
}

func median(values []float64) float64 { return bench.SpreadOf(values).Median }
