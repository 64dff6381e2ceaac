package engine_test

import (
	"errors"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestNewestToken checks that a lease is given back whose token is not greater than the client's newest_token, where
// the gateway finds the lease by its request, because the answer of the grant was lost.
func TestNewestToken(t *testing.T) {
	t.Parallel()
	for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := enginetest.New(t)
			running := enginetest.Run(t, b.Store, engine.Config{})
			holder, err := running.Acquire(t.Context(), store.AcquireRequest{Lock: "lock", OwnerID: "holder"})
			if err != nil {
				t.Fatal(err)
			}
			answers := enginetest.GoAcquire(t.Context(), running, store.AcquireRequest{
				Lock: "lock", OwnerID: "waiter", Mode: mode, Wait: store.WaitMax, NewestToken: store.TokenMax,
			})
			b.AwaitQueued(t, 1)
			// Another call of the gateway grants the lock to the waiter.
			b.Exec(t, "select from fence.waiters w, fence.release_lease($1, $2, $3, $4, w.gateway_id, true)",
				holder.Lock, holder.OwnerID, holder.ID, holder.Token)
			got := enginetest.Answered(t, answers)
			if !errors.Is(got.Err, store.ErrDatabaseWentBack) ||
				enginetest.Unavailable(got.Err, store.OutcomeNotApplied) != nil {
				t.Errorf("an acquire with the greatest newest_token returned %+v, want ErrDatabaseWentBack, not applied", got)
			}
			if running.WentBack()[store.SignClient] == 0 {
				t.Error("no sign was counted for a client")
			}
			if _, err := running.Acquire(t.Context(), store.AcquireRequest{Lock: "lock", OwnerID: "next"}); err != nil {
				t.Errorf("after the refused acquire, the lock is not free: %v", err)
			}
		})
	}
}

// After Run has returned, an engine takes no more writes.
func TestEndedEngineTakesNoWrites(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	running := enginetest.Run(t, enginetest.OpenStore(t, postgres.Config{DatabaseURL: b.URL}), engine.Config{})
	lease, err := running.Acquire(t.Context(), store.AcquireRequest{Lock: "lock", OwnerID: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if result, err := running.Commit(t.Context(), enginetest.Put(lease, 1, "v")); err != nil || result.Err != nil {
		t.Errorf("before: %v (%v)", result, err)
	}
	if stats := running.GroupStats(); stats.Writes != 1 {
		t.Errorf("one write is %+v", stats)
	}
	running.Stop()
	_, err = running.Commit(t.Context(), enginetest.Put(lease, 2, "v"))
	if err := enginetest.Unavailable(err, store.OutcomeNotApplied); err != nil {
		t.Error(err)
	}
}
