package gateway

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/testenv/otlptest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// answered is an engine with fixed results, for measuring the gateway alone.
type answered struct {
	Service

	result store.Result
}

func (a answered) Commit(_ context.Context, write store.Write) (store.Result, error) {
	if a.result.Err == nil {
		return a.result, nil
	}
	return store.Result{Err: &store.RejectedError{
		Verdict: store.VerdictTokenStale, Reason: "superseded", Resource: write.Resource, Key: write.Key, Token: write.Token,
		Sequence: write.Sequence, GrantedToken: 35, LastToken: 35, LastSequence: 7,
	}}, nil
}

var (
	accepts = answered{result: store.Result{Version: 8}}
	rejects = answered{result: store.Result{Err: errors.New("rejected")}}
)

func newBenchGateway(b *testing.B, service Service) *Gateway {
	b.Helper()
	gateway, err := New(Config{}, service, postgres.NewRecorder(nil), NewMetrics("bench"))
	if err != nil {
		b.Fatal(err)
	}
	return gateway
}

// BenchmarkPutTraced is BenchmarkPut with tracing, with a ratio of no requests and of all.
func BenchmarkPutTraced(b *testing.B) {
	for name, ratio := range map[string]float64{"none": 0, "each": 1} {
		_, provider := otlptest.Start(b, ratio)
		config := Config{Tracing: store.Tracing{Provider: provider}}
		gateway, err := New(config, accepts, postgres.NewRecorder(nil), NewMetrics("bench"))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) { benchHandler(b, gateway) })
	}
}

// BenchmarkPut measures a put of 256 bytes in the gateway alone: `make bench` measures whole processes.
func BenchmarkPut(b *testing.B) { benchHandler(b, newBenchGateway(b, accepts)) }

// BenchmarkRefused is BenchmarkPut with a write that is rejected.
func BenchmarkRefused(b *testing.B) { benchHandler(b, newBenchGateway(b, rejects)) }

const benchPath = "/v1/resources/bench/resource-4711/records/key"

// discarded is a ResponseWriter without a connection.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header          { return d.header }
func (discarded) Write(body []byte) (int, error) { return len(body), nil }
func (discarded) WriteHeader(int)                {}

type rewound struct{ bytes.Reader }

func (*rewound) Close() error { return nil }

// benchPut returns a function that sends one put to a handler, without a connection.
func benchPut(t testing.TB, handler http.Handler) func() {
	t.Helper()
	return benchRequest(t, handler, http.MethodPut, benchPath, bytes.Repeat([]byte{'v'}, 256),
		"Content-Type: application/octet-stream", "Fencing-Token: 34.2")
}

// benchRequest returns a function that sends a request to a handler, without a connection.
func benchRequest(t testing.TB, handler http.Handler, method, path string, content []byte, headers ...string) func() {
	t.Helper()
	body, writer := &rewound{}, discarded{http.Header{}}
	request, err := http.NewRequestWithContext(context.Background(), method, "http://gateway"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	request.ContentLength, request.RemoteAddr = int64(len(content)), "192.0.2.1:4711"
	addHeaders(request.Header, headers...)
	return func() {
		body.Reset(content)
		clear(writer.header)
		handler.ServeHTTP(writer, request)
	}
}

func benchHandler(b *testing.B, handler http.Handler) {
	put := benchPut(b, handler)
	b.ReportAllocs()
	for b.Loop() {
		put()
	}
}

func (answered) Acquire(_ context.Context, request *store.AcquireRequest, lease *store.Lease) error {
	*lease = store.Lease{
		Lock: request.Lock, OwnerID: request.OwnerID, ID: uuid.Max, Token: 35, Mode: store.Exclusive, Scope: store.Node,
		TTL: request.TTL, GrantedAt: time.UnixMilli(1), ExpiresAt: time.UnixMilli(2),
	}
	return nil
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

// The allocations of a write, an acquire that is granted at once, and a release are bounded without tracing and access
// log. The race detector allocates, too: so it is a slow test.
func TestSlow_Allocations(t *testing.T) {
	for _, c := range []struct {
		name    string
		service Service
		send    func(testing.TB, http.Handler) func()
		most    float64
	}{
		{"put", accepts, benchPut, 7}, {"refused", rejects, benchPut, 10},
		{"acquire", accepts, benchAcquire, 14}, {"release", accepts, benchRelease, 4},
	} {
		gateway, err := New(Config{}, c.service, postgres.NewRecorder(nil), NewMetrics("test"))
		if err != nil {
			t.Fatal(err)
		}
		got := testing.AllocsPerRun(1000, c.send(t, gateway))
		if got > c.most {
			t.Errorf("%s: %.0f allocations, want at most %.0f", c.name, got, c.most)
		}
	}
}
