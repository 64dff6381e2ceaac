package postgres_test

import (
	"testing"

	pgtest "github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/storetest"
)

// TestConformance checks the Store against the conformance suite of lease providers.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.All, func(t *testing.T) storetest.Provider {
		t.Helper()
		return openStore(t, postgres.Config{DatabaseURL: pgtest.Migrated(t)})
	})
}

// TestConformanceOneByOne checks the same where each call about a lease has a statement of its own.
func TestConformanceOneByOne(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.All, func(t *testing.T) storetest.Provider {
		t.Helper()
		b := newTestbed(t)
		for _, batched := range batchedFunctions {
			b.Exec(t, decidingNothing(t, batched))
		}
		return b.Store
	})
}
