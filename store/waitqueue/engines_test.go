package waitqueue_test

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/waitqueue"
)

// TestMain reduces the number of random sequences, which the command line can raise.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	// The contract names the wait that is refused. A machine that is busy for so long would make it another one.
	waitqueue.InsistAfter(5 * time.Second)
	os.Exit(postgres.Main(m))
}

// engines are several engines on one database.
type engines struct{ *enginetest.Engines }

func newEngines(t *testing.T, b *enginetest.DB, count int, config engine.Config) *engines {
	t.Helper()
	return &engines{enginetest.NewEngines(t, b, count, config)}
}
