package gateway

import (
	"flag"
	"os"
	"testing"

	"github.com/fencegate/fencegate/internal/pgtest"
)

// TestMain runs more tests at once than there are processors: many of them wait.
func TestMain(m *testing.M) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		_ = flag.Set("test.parallel", "6")
	}
	os.Exit(pgtest.Main(m))
}
