package engine_test

import (
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

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
