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
		all = append(all, program.Serve(t, url, args...))
	}
	return all
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
