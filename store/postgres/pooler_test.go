package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	pgtest "github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/storetest"
)

// TestPooler checks that a Store behind PgBouncer in transaction mode passes the conformance suite, and that it refuses
// one without a direct URL.
func TestPooler(t *testing.T) {
	t.Parallel()
	pooler := pgtest.NewPooler(t, pgtest.Migrated(t))
	t.Run("without a direct URL", func(t *testing.T) {
		t.Parallel()
		s := openStore(t, postgres.Config{DatabaseURL: pooler.URL(t, pgtest.Migrated(t))})
		err := s.CheckSessions(t.Context())
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "--listen-url") {
			t.Errorf("CheckSessions returned %v, want ErrInvalid that names --listen-url", err)
		}
	})
	storetest.Run(t, storetest.All, func(t *testing.T) storetest.Provider {
		t.Helper()
		direct := pgtest.Migrated(t)
		s := openStore(t, postgres.Config{DatabaseURL: pooler.URL(t, direct), ListenURL: direct})
		if err := s.Await(t.Context(), 10*time.Second, func(error) {}); err != nil {
			t.Fatal(err)
		}
		if err := s.CheckSessions(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	})
}
