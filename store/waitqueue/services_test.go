package waitqueue_test

import (
	"os"
	"testing"

	"github.com/fencegate/fencegate/internal/enginetest"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store/engine"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// services are several engines on one database.
type services struct{ *enginetest.Engines }

func newServices(t *testing.T, b *enginetest.DB, count int, config engine.Config) *services {
	t.Helper()
	return &services{enginetest.NewEngines(t, b, count, config)}
}
