package engine_test

import (
	"os"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }
