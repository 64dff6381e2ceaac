package store_test

import (
	"testing"

	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

// TestConformance checks the Store against the conformance suite of lease providers.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.All, func(t *testing.T) storetest.Provider {
		t.Helper()
		return openStore(t, store.Config{DatabaseURL: pgtest.Migrated(t)})
	})
}
