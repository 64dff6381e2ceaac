package lockclient_test

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/gateway"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if lock := os.Getenv(childLockEnv); lock != "" {
		os.Exit(holdUntilAsked(lock))
	}
	os.Exit(run(m))
}

// run leaves no goroutine behind: what a test or the SDK forgot fails here.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fencegate-lockclient-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "lockclient:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = sync.OnceValues(func() (string, error) { return build(filepath.Join(dir, "fencegate")) })
	all := &suite{}
	if gatewayURL = all.gateway(); gatewayURL == "" {
		// Examples can't skip themselves.
		if err := flag.Set("test.skip", "^Example"); err != nil {
			panic(err)
		}
	}
	code := pgtest.Main(m)
	all.end()
	// A proxy that is closed with bytes on their way leaves the goroutines of that link behind: they are the tool's, and
	// none of the SDK's.
	const toxiproxy = "github.com/Shopify/toxiproxy/v2"
	err = goleak.Find(goleak.IgnoreAnyFunction(toxiproxy+".(*ToxicLink).read"), goleak.IgnoreAnyFunction(toxiproxy+".(*ToxicLink).write"),
		goleak.IgnoreAnyFunction(toxiproxy+"/toxics.(*ToxicStub).Run"))
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "lockclient: goroutines are left:", err)
		return 1
	}
	return code
}

// newGateway runs a gateway on a database of its own, and returns a client of it.
func newGateway(t *testing.T) *lockclient.Client {
	t.Helper()
	return newGatewayOn(t, pgtest.Migrated(t))
}

func newGatewayOn(t *testing.T, databaseURL string) *lockclient.Client {
	t.Helper()
	st, err := store.Open(t.Context(), store.Config{DatabaseURL: databaseURL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	service, err := engine.New(st, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	recorder := store.NewRecorder(st)
	gw, err := gateway.New(gateway.Config{}, service, recorder, gateway.NewMetrics("test"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { recorder.Run(ctx, func(err error) { t.Error(err) }) })
	running.Go(func() { service.Run(ctx, func(error) {}) }) // the test of a database that is down makes it fail
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	server := httptest.NewServer(gw)
	t.Cleanup(server.Close)
	return newClient(t, server.URL)
}

// eventually waits for what is bound to happen.
func eventually(t *testing.T, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !happened(); {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
		time.Sleep(10 * time.Millisecond) // only spares the machine; what counts is the condition
	}
}
