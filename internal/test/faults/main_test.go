//go:build unix

package faults

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

var duration = flag.Duration("faults.duration", 2*time.Second, "how long each load lasts, at least")

func TestMain(m *testing.M) {
	flag.Parse()
	// As many at once as there are processors, or -parallel says: each test keeps a processor busy.
	if err := flag.Set("test.parallel", flag.Lookup("test.parallel").Value.String()); err != nil {
		panic(err)
	}
	os.Exit(postgres.Main(m))
}

// patient is a context that ends long after everything should have happened.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), *duration+await.Limit)
	t.Cleanup(cancel)
	return ctx
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
