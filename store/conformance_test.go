package store_test

import (
	"testing"

	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Provider {
		t.Helper()
		return openStore(t, store.Config{DatabaseURL: pgtest.Migrated(t)})
	})
}
