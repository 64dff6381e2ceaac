//go:build !race

package gateway

import (
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// The allocations of a write, an acquire that is granted at once, and a release are bounded without tracing and access
// log. The race detector allocates, too.
func TestAllocations(t *testing.T) {
	for _, c := range []struct {
		name    string
		backend Backend
		send    func(testing.TB, http.Handler) func()
		most    float64
	}{
		{"put", accepts, benchPut, 6}, {"refused", rejects, benchPut, 10},
		{"acquire", accepts, benchAcquire, 10}, {"release", accepts, benchRelease, 4},
	} {
		gateway, err := New(Config{}, c.backend, store.NewRecorder(nil), NewMetrics("test"))
		if err != nil {
			t.Fatal(err)
		}
		got := testing.AllocsPerRun(1000, c.send(t, gateway))
		if got > c.most {
			t.Errorf("%s: %.0f allocations, want at most %.0f", c.name, got, c.most)
		}
	}
}
