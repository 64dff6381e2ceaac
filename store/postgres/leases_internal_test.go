package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// TestLeftOfALeaseThatHasJustExpired checks that a waiter asks again where the lease in its way expired after it was
// found: a session's keepalive races with an acquire.
func TestLeftOfALeaseThatHasJustExpired(t *testing.T) {
	for ms, want := range map[int64]time.Duration{-3: time.Millisecond, 0: time.Millisecond, 20: 20 * time.Millisecond} {
		if got := leftOf(pgtype.Int8{Int64: ms, Valid: true}); got != want {
			t.Errorf("%d ms left: the waiter asks again after %s, not %s", ms, got, want)
		}
	}
	if got := leftOf(pgtype.Int8{}); got != 0 {
		t.Errorf("no lease known in the way: the waiter asks again after %s", got)
	}
}
