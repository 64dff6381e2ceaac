package endpoint

import (
	"testing"
	"time"
)

// The delay doubles with each refusal after the free ones, up to its maximum.
func TestRefusalDelays(t *testing.T) {
	d := NewRefusalDelays(t.Context(), time.Second, nil)
	for refusals, want := range map[uint64]time.Duration{
		1: 0, RefusalsFree: 0, RefusalsFree + 1: RefusalDelayMin, RefusalsFree + 2: 2 * RefusalDelayMin,
		RefusalsFree + 6: time.Second, 1 << 16: time.Second,
	} {
		if got := d.after(refusals); got != want {
			t.Errorf("refusal %d is delayed by %s, want %s", refusals, got, want)
		}
	}
}
