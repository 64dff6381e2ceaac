package redislease_test

import (
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/redislease"
	"github.com/fencegate/fencegate/store/storetest"
)

// TestConformance checks leases in Redis, as a gateway serves them, against the conformance suite of lease providers.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		provider store.Provider
		servers  int
	}{{store.ProviderRedis, 1}, {store.ProviderRedlock, 3}} {
		t.Run(string(c.provider), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, storetest.Promises{}, func(t *testing.T) storetest.Provider {
				t.Helper()
				db := openDB(t)
				config := redislease.Config{Provider: c.provider, TTLMax: store.TTLMax, Timeout: 10 * time.Second}
				for _, server := range startVoting(t, c.servers) {
					config.URLs = append(config.URLs, server.URL())
				}
				provider, err := redislease.New(db, config)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(provider.Close)
				return enginetest.Run(t, db, engine.Config{Leases: c.provider, Providers: []engine.LeaseProvider{provider}})
			})
		})
	}
}
