package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/storetest"
)

// TestLeasesElsewhere checks what PostgreSQL does with leases that are granted in Redis: it mints their tokens, lets no
// lease of another provider be granted beside them, and believes in them until it is told that they have ended.
func TestLeasesElsewhere(t *testing.T) {
	t.Parallel()
	st := openStore(t, postgres.Config{DatabaseURL: pgtest.Migrated(t)})
	ctx := t.Context()
	for _, provider := range []store.Provider{store.ProviderPostgres, store.ProviderRedis, store.ProviderRedlock} {
		if got := store.ProviderOf(store.NewLeaseID(provider)); got != provider {
			t.Errorf("a lease ID of %s is taken for one of %s", provider, got)
		}
	}
	grant := func(lock store.Name, provider store.Provider) (store.Lease, error) {
		return st.GrantElsewhere(ctx, store.ElsewhereGrant{
			Lock: lock, OwnerID: "worker", LeaseID: store.NewLeaseID(provider), TTL: time.Hour, Metadata: []byte(`{"a":1}`),
		})
	}
	state := func(lock store.Name, want store.LockState) {
		t.Helper()
		if found, err := st.Lock(ctx, lock); err != nil || found.State != want {
			t.Errorf("%s is %s (%v), want %s", lock, found.State, err, want)
		}
	}

	first, err := grant("orders", store.ProviderRedis)
	if err != nil || store.ProviderOf(first.ID) != store.ProviderRedis || string(first.Metadata) != `{"a":1}` {
		t.Fatalf("the first grant is %+v, %v", first, err)
	}
	second, err := grant("orders", store.ProviderRedis)
	if err != nil || second.Token <= first.Token {
		t.Fatalf("the second grant is %+v, %v, want a token above %d", second, err, first.Token)
	}
	late := store.Write{
		WriteToken: store.WriteToken{Resource: "orders", Token: first.Token},
		Operation:  store.Operation{Kind: store.Put, Key: "k", ContentType: "text/plain", Value: []byte("v")},
	}
	if results, err := st.Write(ctx, []store.Write{late}); err != nil || !errors.Is(results[0].Err, store.ErrStaleToken) {
		t.Errorf("the write of the first holder: %+v, %v, want it rejected as stale", results, err)
	}
	if _, err := grant("orders", store.ProviderRedlock); !errors.Is(err, store.ErrLeaseHeld) {
		t.Errorf("a grant by redlock beside one by redis: %v, want it held", err)
	}
	if _, err := st.Acquire(ctx, acquireOf("orders")); !errors.Is(err, store.ErrLeaseHeld) {
		t.Errorf("a lease in postgres beside one in redis: %v, want it held", err)
	}
	if err := st.LostReason(ctx, first.Ref()); !isLost(err, "superseded") {
		t.Errorf("the first lease is lost for %v, want superseded", err)
	}
	if err := st.LostReason(ctx, second.Ref()); !isLost(err, "expired") {
		t.Errorf("a lease that Redis has lost is lost for %v, want expired", err)
	}

	running, err := st.LeasesElsewhere(ctx, store.ProviderRedis, "orders", 10)
	if err != nil || len(running) != 1 || running[0] != second.Ref() {
		t.Fatalf("the leases on the lock are %v (%v), want the second", running, err)
	}
	if due, err := st.LeasesElsewhere(ctx, store.ProviderRedis, "", 10); err != nil || len(due) != 0 {
		t.Errorf("due for a look are %v (%v), want none before their TTL is over", due, err)
	}
	settle(ctx, t, st, running[0], time.Minute)
	state("orders", store.LockHeld)
	settle(ctx, t, st, running[0], 0)
	state("orders", store.LockExpired)
	if _, err := st.Acquire(ctx, acquireOf("orders")); err != nil {
		t.Errorf("an acquire after the end in Redis: %v", err)
	}
	if _, err := grant("orders", store.ProviderRedis); !errors.Is(err, store.ErrLeaseHeld) {
		t.Errorf("a grant in redis beside one in postgres: %v, want it held", err)
	}
}

// TestLeasesElsewhereUnderPolicies checks that a policy which needs leases in PostgreSQL is kept.
func TestLeasesElsewhereUnderPolicies(t *testing.T) {
	t.Parallel()
	st := openStore(t, postgres.Config{DatabaseURL: pgtest.Migrated(t)})
	ctx := t.Context()
	for _, policy := range []store.Policy{
		{Prefix: "jobs", Leases: store.ProviderRedis, MaxHold: time.Minute},
		{Prefix: "live", RequireLiveLease: true},
		{Prefix: "etcd", Authority: store.AuthorityExternal},
	} {
		policy.Rule = store.RuleStrict
		if policy.Authority == "" {
			policy.Authority = store.AuthorityBuiltin
		}
		if err := st.PutPolicy(ctx, policy); err != nil {
			t.Fatal(err)
		}
		if got, err := st.Policy(ctx, policy.Prefix); err != nil || got != policy {
			t.Errorf("the policy is %+v (%v), want %+v", got, err, policy)
		}
	}
	bad := store.Policy{
		Rule: store.RuleStrict, Authority: store.AuthorityBuiltin, RequireLiveLease: true, Leases: store.ProviderRedlock,
	}
	if err := st.PutPolicy(ctx, bad); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("require_live_lease with leases in redlock: %v, want it invalid", err)
	}
	for _, c := range []struct {
		lock store.Name
		want error
	}{{"jobs/1", nil}, {"live/1", store.ErrUnsupported}, {"etcd/1", store.ErrExternalAuthority}} {
		lease, err := st.GrantElsewhere(ctx, store.ElsewhereGrant{
			Lock: c.lock, OwnerID: "worker", LeaseID: store.NewLeaseID(store.ProviderRedis), TTL: time.Hour,
		})
		if !errors.Is(err, c.want) {
			t.Errorf("a grant on %s: %v, want %v", c.lock, err, c.want)
		}
		if err == nil && (lease.HoldUntil.IsZero() || lease.ExpiresAt.After(lease.HoldUntil)) {
			t.Errorf("the lease on %s is %+v, want that it is not held longer than its policy allows", c.lock, lease)
		}
	}
}

func settle(ctx context.Context, t *testing.T, st *postgres.Store, ref store.LeaseRef, left time.Duration) {
	t.Helper()
	if err := st.SettleLeases(ctx, []store.LeaseStatus{{LeaseRef: ref, Left: left}}); err != nil {
		t.Fatal(err)
	}
}

func acquireOf(lock store.Name) store.AcquireRequest {
	return store.AcquireRequest{Lock: lock, OwnerID: "other", TTL: time.Hour}
}

func isLost(err error, reason string) bool {
	lost, ok := errors.AsType[*store.LostError](err)
	return ok && lost.Reason == reason
}

// TestConformance checks the Store against the conformance suite of lease providers.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.All, func(t *testing.T) storetest.Provider {
		t.Helper()
		return enginetest.Run(t, openStore(t, postgres.Config{DatabaseURL: pgtest.Migrated(t)}), engine.Config{})
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
		return enginetest.Run(t, b.Store, engine.Config{})
	})
}
