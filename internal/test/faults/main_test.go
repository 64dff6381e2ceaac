//go:build unix

package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

const (
	durationEnv     = "FENCEGATE_FAULTS_DURATION"
	durationDefault = 2 * time.Second
)

var duration = flag.Duration("faults.duration", 0, "how long each load lasts, at least; default "+durationEnv+", or 2s")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if *duration == 0 {
		var err error
		if *duration, err = durationOf(os.Getenv(durationEnv)); err != nil {
			fmt.Fprintln(os.Stderr, "faults:", err)
			return 1
		}
	}
	// As many at once as there are processors, or -parallel says: each test keeps a processor busy.
	if err := flag.Set("test.parallel", flag.Lookup("test.parallel").Value.String()); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		return 1
	}
	return postgres.Main(m)
}

func durationOf(text string) (time.Duration, error) {
	if text == "" {
		return durationDefault, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", durationEnv, err)
	}
	return d, nil
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
