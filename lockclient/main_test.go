package lockclient_test

import (
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
)

// gatewayURL is that of the gateway for the examples. Without one they are skipped: internal/test/sdk of the main module
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
	code := m.Run()
	for deadline := time.Now().Add(time.Minute); code == 0 && goroutine() != ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, "lockclient: a goroutine is left:", goroutine())
			return 1
		}
	}
	return code
}

// goroutine returns the stack of a goroutine of the SDK or its connections, "" if there is none.
func goroutine() string {
	var stacks strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		return err.Error()
	}
	for stack := range strings.SplitSeq(stacks.String(), "\n\n") {
		if strings.Contains(stack, "/lockclient.") || strings.Contains(stack, "net/http.") {
			return stack
		}
	}
	return ""
}
