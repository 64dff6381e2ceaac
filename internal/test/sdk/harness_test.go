package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// gatewayURL is that of a gateway process that serves all tests and the SDK's examples. Each uses locks of its own.
var gatewayURL string

// names counts the names of shared, which differ if a test runs again.
var names atomic.Int64

// often is a policy of many quick tries.
var often = lockclient.RetryPolicy{Attempts: 10_000, Base: 10 * time.Millisecond, Max: 10 * time.Millisecond}

func TestMain(m *testing.M) {
	flag.Parse()
	if lock := os.Getenv(childLockEnv); lock != "" {
		os.Exit(holdUntilAsked(lock))
	}
	os.Exit(run(m))
}

// run fails if a test or the SDK leaves a goroutine behind.
func run(m *testing.M) int {
	// Most tests wait most of the time.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	all := &suite{}
	gatewayURL = all.gateway()
	code := postgres.Main(m)
	all.end()
	err := await.Nil(func() error { return goleak.Find() })
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "sdk: goroutines are left:", err)
		return 1
	}
	return code
}

// suite is the testing.TB of the gateway that all tests share. It ends after them.
type suite struct {
	testing.TB
	undo []func()
}

// gateway starts a gateway with a database of its own. It returns "" where there is no PostgreSQL: each test reports
// that.
func (s *suite) gateway() (url string) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		url = gateway.Serve(s, postgres.Migrated(s)).URL
	}()
	<-ended
	return url
}

func (s *suite) end() {
	for _, undo := range slices.Backward(s.undo) {
		undo()
	}
}

func (s *suite) Helper()             {}
func (s *suite) Failed() bool        { return false }
func (s *suite) Cleanup(undo func()) { s.undo = append(s.undo, undo) }
func (s *suite) Skip(...any)         { runtime.Goexit() }

func (s *suite) Fatal(args ...any) {
	fmt.Println(args...)
	runtime.Goexit()
}

// Error ignores that a database is dropped after its server has ended.
func (s *suite) Error(...any) {}

// pair starts two gateways of one database, and returns a client that prefers the first.
func pair(t *testing.T, opts ...lockclient.Option) (first, second *gateway.Process, client *lockclient.Client) {
	t.Helper()
	databaseURL := postgres.Migrated(t)
	first, second = gateway.Serve(t, databaseURL), gateway.Serve(t, databaseURL)
	return first, second, newClient(t, first.URL, append(opts, lockclient.WithFailover(second.URL))...)
}

// shared returns a client of the shared gateway, and a name that no other test has.
func shared(t *testing.T, opts ...lockclient.Option) (*lockclient.Client, string) {
	t.Helper()
	if gatewayURL == "" {
		postgres.Migrated(t) // skips or fails, and says why
		t.Fatal("there is no gateway")
	}
	return newClient(t, gatewayURL, opts...), fmt.Sprint(strings.ToLower(t.Name()), "-", names.Add(1))
}

func newClient(t *testing.T, baseURL string, opts ...lockclient.Option) *lockclient.Client {
	t.Helper()
	quiet := lockclient.WithLogger(slog.New(slog.DiscardHandler))
	client, err := lockclient.New(baseURL, append([]lockclient.Option{quiet}, opts...)...)
	check(t, err)
	t.Cleanup(client.Close)
	return client
}

func newAPI(t *testing.T, baseURL string, opts ...lockclient.Option) *lockclient.API {
	t.Helper()
	return newClient(t, baseURL, opts...).API()
}

// mustAcquire acquires a lock, and releases it when the test ends.
func mustAcquire(
	t *testing.T, client *lockclient.Client, lock string, opts ...lockclient.LeaseOption,
) *lockclient.Lease {
	t.Helper()
	lease, err := client.Acquire(await.Context(t), lock, opts...)
	check(t, err)
	t.Cleanup(lease.ReleaseOnce)
	return lease
}

// mustBreak breaks a lock.
func mustBreak(t *testing.T, client *lockclient.Client, lock string) {
	t.Helper()
	_, err := admin.New(client).Break(await.Context(t), lock, api.BreakRequest{Reason: "test"})
	check(t, err)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// second drops a result.
func second[T any](_ T, err error) error { return err }

// wantErr expects an error that matches want.
func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s returned %v, expected %v", what, err, want)
	}
}

// causeOf waits until a context ends, and returns its cause.
func causeOf(t *testing.T, what string, ctx context.Context) error { //nolint:revive // the test comes first
	t.Helper()
	await.Receive(t, "the end of "+what, ctx.Done())
	return context.Cause(ctx)
}

// wantFree expects that no lease holds the lock.
func wantFree(t *testing.T, client *lockclient.Client, lock string) {
	t.Helper()
	if state, err := client.API().Lock(await.Context(t), lock); err != nil || state.State != "free" {
		t.Errorf("expected a free lock, saw %+v, %v", state, err)
	}
}

// awaitQueue waits until the lock's queue has this length.
func awaitQueue(t *testing.T, client *lockclient.Client, lock string, length int) {
	t.Helper()
	await.True(t, fmt.Sprintf("a queue of %d for %s", length, lock), func() bool {
		state, err := client.API().Lock(t.Context(), lock)
		return err == nil && len(state.Queue) == length
	})
}

// awaitValue waits until a record has this value.
func awaitValue(t *testing.T, client *lockclient.Client, resource, key, value string) {
	t.Helper()
	await.True(t, "the value "+value+" of "+resource+" "+key, func() bool {
		record, err := client.API().Get(t.Context(), resource, key)
		return err == nil && string(record.Value) == value
	})
}

// wantVersion expects a record that was written this often.
func wantVersion(t *testing.T, client *lockclient.Client, resource, key string, version int64) {
	t.Helper()
	record, err := client.API().Get(await.Context(t), resource, key)
	if err != nil || record.Version != version {
		t.Errorf("%s %s has version %d, %v, expected %d: each write once", resource, key, record.Version, err, version)
	}
}

func writeProblem(w http.ResponseWriter, problem api.Problem) {
	w.Header().Set("Content-Type", api.ProblemContentType)
	w.WriteHeader(problem.Status)
	_ = json.NewEncoder(w).Encode(problem)
}

func unavailable(outcome api.Outcome) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, api.Problem{Status: 503, Code: api.CodeUnavailable, Retryable: true, Outcome: outcome})
	}
}

// serve runs a fake gateway, and returns its URL and the number of its calls.
func serve(t *testing.T, answer http.HandlerFunc) (string, *atomic.Int64) {
	t.Helper()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, &calls
}

// closedAddress is one on which nothing listens, and which the system gives to nobody who asks for a free port.
const closedAddress = "127.0.0.1:1"

func numbered(token, sequence int64) api.FencingToken {
	return api.FencingToken{Token: token, Sequence: &sequence}
}
