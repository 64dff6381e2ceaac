package heapfloor

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

const floor = 64 << 20

// The heap may grow by the floor if it is small, by what is in use if that is more, and by Go's default after the end.
func TestKeep(t *testing.T) {
	t.Setenv("GOGC", "")
	stop := Keep(floor)
	defer stop()
	awaitGrowth(t, floor, floor*5/4)
	kept := make([]byte, 2*floor)
	awaitGrowth(t, 2*floor, 2*floor*5/4)
	runtime.KeepAlive(kept)
	awaitGrowth(t, floor, floor*5/4)
	stop()
	awaitGrowth(t, 0, floor/2)
}

// The operator's GOGC is left alone.
func TestOperatorsPercent(t *testing.T) {
	before := read("/gc/gogc:percent")
	t.Setenv("GOGC", "50")
	defer Keep(floor)()
	if got := read("/gc/gogc:percent"); got != before {
		t.Errorf("GOGC is %d, want %d as before", got, before)
	}
}

// awaitGrowth waits until the heap may grow by that many bytes after a collection.
func awaitGrowth(t *testing.T, least, most uint64) {
	t.Helper()
	await.True(t, fmt.Sprintf("the heap may grow by %d to %d bytes", least, most), func() bool {
		runtime.GC()
		growth := read("/gc/heap/goal:bytes") - read("/gc/heap/live:bytes")
		return growth >= least-least/8 && growth <= most
	})
}

func read(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
