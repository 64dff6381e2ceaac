// Package heapfloor makes the garbage collector run less often while little memory is in use.
//
// Go collects the heap when it has grown by GOGC percent, by default by as much as was in use after the last
// collection. A gateway has a few MB in use, and its requests allocate more than that many times a second. With a floor,
// the heap always grows by at least that many bytes before it is collected. So the process uses at most that much more
// memory than with Go's default; where more than the floor is in use, it uses no more.
//
// After each collection, GOGC is set so that the heap may grow by the floor. A fixed GOGC of some hundred percent would
// do as much at rest, but it would let a heap of 200 MB grow to 1 GB.
package heapfloor

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// percentLeast is Go's default of GOGC.
const percentLeast = 100

// Keep sets the floor, in bytes, until the returned function is called. It does nothing if the operator has set GOGC.
// GOMEMLIMIT, if set, holds as always: close to it, the heap is collected more often.
func Keep(floor uint64) (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	k := &keeper{floor: floor, percent: percentLeast}
	k.adjust()
	return k.stop
}

type keeper struct {
	floor uint64

	mu      sync.Mutex
	percent int
	stopped bool
}

// collected is an object that nothing uses: its cleanup runs after the next collection. It has a pointer so that it is
// not allocated together with others.
type collected struct{ _ *byte }

// adjust sets GOGC for the heap as the last collection has found it, and runs again after the next.
func (k *keeper) adjust() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return
	}
	percent := percentFor(k.floor, scanned())
	// Each change stops the program for some microseconds.
	if more := percent - k.percent; percent == percentLeast || more > k.percent/8 || more < -k.percent/8 {
		k.set(percent)
	}
	runtime.AddCleanup(&collected{}, (*keeper).adjust, k)
}

func (k *keeper) set(percent int) {
	if percent != k.percent {
		k.percent = percent
		debug.SetGCPercent(percent)
	}
}

func (k *keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	k.set(percentLeast)
}

// usedLeast is the least heap that GOGC is a percentage of, whatever is in use.
const usedLeast = 4 << 20

// percentFor returns the GOGC by which a heap grows by the floor, and at least by what is in use.
func percentFor(floor, used uint64) int {
	return max(percentLeast, int(floor*100/max(used, usedLeast)))
}

// scanned is what GOGC is a percentage of: the live heap, the stacks and the global variables.
func scanned() (bytes uint64) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(samples)
	for _, sample := range samples {
		bytes += sample.Value.Uint64()
	}
	return bytes
}
