//go:build !race

package gateway

import (
	"testing"

	"github.com/fencegate/fencegate/store"
)

// The allocations of a write are bounded without tracing and access log. The race detector allocates, too.
func TestAllocationsOfWrites(t *testing.T) {
	for _, c := range []struct {
		name    string
		backend Backend
		most    float64
	}{{"put", accepts, 6}, {"refused", rejects, 10}} {
		gateway, err := New(Config{}, c.backend, store.NewRecorder(nil), NewMetrics("test"))
		if err != nil {
			t.Fatal(err)
		}
		got := testing.AllocsPerRun(1000, benchPut(t, gateway))
		if got > c.most {
			t.Errorf("%s: %.0f allocations, want at most %.0f", c.name, got, c.most)
		}
	}
}
