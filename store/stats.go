package store

import (
	"slices"
	"sync/atomic"
	"time"
)

// PoolStats says how the connections to the database are used.
type PoolStats struct {
	Max, Busy, Idle int64
	// Waited counts the statements that had to wait for a connection.
	Waited int64
}

// DurationBounds are the bounds of Durations.UpTo.
var DurationBounds = [...]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Durations counts durations from the beginning.
type Durations struct {
	Count uint64
	Sum   time.Duration
	// UpTo counts those up to each of DurationBounds, the shorter ones included.
	UpTo [len(DurationBounds)]uint64
}

// Histogram counts Durations. It is safe for concurrent use.
type Histogram struct {
	sum   atomic.Int64
	exact [len(DurationBounds) + 1]atomic.Uint64 // each without the shorter ones; the last: above all bounds
}

// Add counts one.
func (h *Histogram) Add(took time.Duration) {
	i, _ := slices.BinarySearch(DurationBounds[:], took)
	h.exact[i].Add(1)
	h.sum.Add(int64(took))
}

// Read returns the state now.
func (h *Histogram) Read() Durations {
	got := Durations{Sum: time.Duration(h.sum.Load())}
	for i := range h.exact {
		got.Count += h.exact[i].Load()
		if i < len(got.UpTo) {
			got.UpTo[i] = got.Count
		}
	}
	return got
}

// Swept counts what a sweep tidied.
type Swept struct {
	// Expired leases, whatever has ended them, count in one sweep each.
	Expired                                              int64
	LeasesForgotten, RejectionsForgotten, AuditForgotten int64
	// SessionsExpired had not been kept alive.
	SessionsExpired int64
}

// SweepStats are the statistics of complete sweeps.
type SweepStats struct {
	Took Durations
	// Last is when the last one ended, by this process's clock; zero if there was none yet.
	Last time.Time
}
