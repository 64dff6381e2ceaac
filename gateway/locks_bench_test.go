package gateway

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

func (answered) Acquire(_ context.Context, request store.AcquireRequest) (store.Lease, error) {
	return store.Lease{
		Lock: request.Lock, OwnerID: request.OwnerID, ID: uuid.Max, Token: 35, Mode: store.Exclusive, Scope: store.Node,
		TTL: request.TTL, GrantedAt: time.UnixMilli(1), ExpiresAt: time.UnixMilli(2),
	}, nil
}

func (answered) ReleaseLease(context.Context, store.LeaseRef) (store.Released, error) {
	return store.Released{Mode: store.Exclusive, Age: time.Second}, nil
}

// benchAcquire returns a function that sends an acquire with a wait_ms, which is granted at once.
func benchAcquire(t testing.TB, handler http.Handler) func() {
	t.Helper()
	return benchRequest(t, handler, http.MethodPost, "/v1/locks/bench/lock-4711/acquire",
		[]byte(`{"owner_id":"worker","ttl_ms":60000,"wait_ms":600000}`), jsonType)
}

func benchRelease(t testing.TB, handler http.Handler) func() {
	t.Helper()
	return benchRequest(t, handler, http.MethodPost, "/v1/locks/bench/lock-4711/release",
		[]byte(`{"owner_id":"worker","lease_id":"`+uuid.Max.String()+`","fencing_token":35}`), jsonType)
}

// BenchmarkAcquire measures an acquire in the gateway alone, and BenchmarkRelease a release: `make bench-locks` measures
// whole processes.
func BenchmarkAcquire(b *testing.B) { benchLeases(b, benchAcquire) }

func BenchmarkRelease(b *testing.B) { benchLeases(b, benchRelease) }

func benchLeases(b *testing.B, of func(testing.TB, http.Handler) func()) {
	send := of(b, newBenchGateway(b, accepts))
	b.ReportAllocs()
	for b.Loop() {
		send()
	}
}
