package postgres_test

import (
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestSweepForgetsOldActions checks that a sweep deletes the entries of the audit log that are older than the
// retention, and no others.
func TestSweepForgetsOldActions(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, `insert into fence.audit (at, principal, address, action, name, details)
		select clock_timestamp() - i * interval '1 minute', 'p', '', 'fence_set', 'n' || i, '{}' from generate_series(1500, 1, -1) i`)
	swept, err := newSweeper(t, b.Store, postgres.SweeperConfig{AuditRetention: time.Hour}).Sweep(t.Context())
	left, listErr := b.Audit(t.Context(), store.AuditQuery{Limit: 1000})
	if err != nil || listErr != nil || swept.AuditForgotten+int64(len(left)) != 1500 || len(left) < 58 || len(left) > 60 ||
		left[0].Name != "n1" {
		t.Errorf("%d entries were deleted (%v), %d are left (%v), want 1441 and 59 with the newest first",
			swept.AuditForgotten, err, len(left), listErr)
	}
}

// TestSweepBoundsAnonymousActions checks that a sweep keeps the entries of callers without a credential only among the
// newest ones, however young they are, and deletes none of a principal or a role.
func TestSweepBoundsAnonymousActions(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, `insert into fence.audit (principal, address, action, name, details)
		select (array['anonymous', 'p', 'anonymous', 'sql:r', 'anonymous'])[i % 5 + 1], '', 'fence_set', 'n' || i, '{}'
		from generate_series(0, 2999) i`)
	swept, err := newSweeper(t, b.Store, postgres.SweeperConfig{AuditAnonymousMax: 100}).Sweep(t.Context())
	left := b.Count(t, "select count(*) from fence.audit where principal = 'anonymous'")
	named := b.Count(t, "select count(*) from fence.audit where principal <> 'anonymous'")
	if err != nil || swept.AuditForgotten != 1740 || left != 60 || named != 1200 {
		t.Errorf("%d entries were deleted (%v), %d without a credential and %d others are left, want 1740, 60 and 1200",
			swept.AuditForgotten, err, left, named)
	}
}
