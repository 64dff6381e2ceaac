package gateway

import (
	"os"
	"testing"

	"github.com/fencegate/fencegate/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
