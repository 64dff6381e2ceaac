package postgres_test

import (
	"flag"
	"os"
	"testing"

	pgtest "github.com/fencegate/fencegate/internal/testenv/postgres"
)

// TestMain halves the number of random runs, which the command line can raise: each makes some hundred calls.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "50"); err != nil {
		panic(err)
	}
	os.Exit(pgtest.Main(m))
}
