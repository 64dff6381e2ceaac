package lockclient_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"
)

// gatewayURL is that of the gateway for the examples. Without one they are skipped: internal/sdk of the main module
// starts one, and runs them.
var gatewayURL = os.Getenv("FENCEGATE_TEST_EXAMPLES_GATEWAY")

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run fails if a test or an example leaves a goroutine behind.
func run(m *testing.M) int {
	if gatewayURL == "" {
		flag.Parse()
		if err := flag.Set("test.skip", "^Example"); err != nil {
			panic(err)
		}
	}
	before := runtime.NumGoroutine()
	code := m.Run()
	for deadline := time.Now().Add(time.Minute); code == 0 && runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, "lockclient: goroutines are left:")
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			return 1
		}
		time.Sleep(10 * time.Millisecond)
	}
	return code
}
