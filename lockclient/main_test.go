package lockclient_test

import (
	"context"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/store"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

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
	recorder := store.NewRecorder(st)
	gw, err := gateway.New(gateway.Config{}, st, recorder, gateway.NewMetrics("test"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gw)
	t.Cleanup(server.Close)

	ctx, cancel := context.WithCancel(context.Background())
	var recording sync.WaitGroup
	recording.Go(func() { recorder.Run(ctx, func(err error) { t.Error(err) }) })
	t.Cleanup(func() {
		cancel()
		recording.Wait()
	})
	client := newClient(t, server.URL)
	t.Cleanup(client.Close)
	return client
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
