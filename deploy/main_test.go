package deploy

import (
	"os"
	"testing"

	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/internal/program"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// gateways starts some before one database. They end with the test.
func gateways(t *testing.T, n int, args ...string) []*gatewayprocess.Process {
	t.Helper()
	url := pgtest.Migrated(t)
	var all []*gatewayprocess.Process
	for range n {
		all = append(all, startGateway(t, append([]string{"--database-url", url}, args...)...))
	}
	return all
}

// startGateway starts one that ends with the test.
func startGateway(t *testing.T, args ...string) *gatewayprocess.Process {
	t.Helper()
	gateway, err := gatewayprocess.Start(t.Context(), program.Path(t), args...)
	check(t, err)
	t.Cleanup(func() {
		gateway.Kill()
		if t.Failed() {
			t.Logf("%s logged:\n%s", gateway.URL, gateway.Log())
		}
	})
	return gateway
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
