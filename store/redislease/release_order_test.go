package redislease_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/redislease"
)

// releaseHook is a database that does something before it releases a lease.
type releaseHook struct {
	redislease.Database

	before func() error
}

func (h *releaseHook) ReleaseLease(ctx context.Context, ref store.LeaseRef) (store.Released, error) {
	if err := h.before(); err != nil {
		return store.Released{}, err
	}
	return h.Database.ReleaseLease(ctx, ref)
}

// TestReleaseClosesTheFenceFirst checks that a lock is free only after the releaser can't write any more, and that it
// stays held if the fence can't be closed.
func TestReleaseClosesTheFenceFirst(t *testing.T) {
	t.Parallel()
	db, server := &releaseHook{Database: openDB(t)}, redis.Start(t)
	leases := open(t, db, redislease.Config{}, server)
	lease := acquire(t, leases, request("lock", "A"))
	broken := errors.New("broken for the test")
	db.before = func() error { return store.NotApplied(broken) }
	_, err := leases.ReleaseLease(await.Context(t), lease.Ref())
	fails(t, "a release without the database", err, broken)
	held(t, leases, "lock", "A")
	db.before = func() error {
		held(t, leases, "lock", "A")
		return nil
	}
	release(t, leases, lease)
	acquire(t, leases, request("lock", "B"))
}
