package store_test

import (
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
)

// TestSweepForgetsOldActions checks that a sweep deletes the entries of the audit log that are older than the
// retention, and no others.
func TestSweepForgetsOldActions(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, `insert into fence.audit (at, principal, address, action, name, details)
		select clock_timestamp() - i * interval '1 minute', 'p', '', 'fence_set', 'n' || i, '{}' from generate_series(1500, 1, -1) i`)
	swept, err := newSweeper(t, b.Store, store.SweeperConfig{AuditRetention: time.Hour}).Sweep(t.Context())
	left, listErr := b.Audit(t.Context(), store.AuditQuery{Limit: 1000})
	if err != nil || listErr != nil || swept.AuditForgotten+int64(len(left)) != 1500 || len(left) < 58 || len(left) > 60 ||
		left[0].Name != "n1" {
		t.Errorf("%d entries were deleted (%v), %d are left (%v), want 1441 and 59 with the newest first",
			swept.AuditForgotten, err, len(left), listErr)
	}
}
