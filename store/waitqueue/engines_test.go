package waitqueue_test

import (
	"flag"
	"os"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store/engine"
)

// TestMain reduces the number of random sequences, which the command line can raise.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	os.Exit(postgres.Main(m))
}

// engines are several engines on one database.
type engines struct{ *enginetest.Engines }

func newEngines(t *testing.T, b *enginetest.DB, count int, config engine.Config) *engines {
	t.Helper()
	return &engines{enginetest.NewEngines(t, b, count, config)}
}
