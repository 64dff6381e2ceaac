package migrations_test

import (
	"flag"
	"os"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

// update rewrites the golden files from what the migrations and functions are now.
var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }
