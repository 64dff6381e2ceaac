package sdk

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

// The examples of lockclient's documentation print what they say, and leave no goroutine behind.
func TestExamples(t *testing.T) {
	t.Parallel()
	shared(t) // skips or fails without a gateway
	run := exec.CommandContext(await.Context(t), "go", "test", "-C", "../../../lockclient", "-count=1", "-vet=off", "-v",
		"-run", "^Example", ".")
	run.Env = append(os.Environ(), "FENCEGATE_TEST_EXAMPLES_GATEWAY="+gatewayURL)
	output, err := run.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "\n--- PASS: ExampleClient_Do ") {
		t.Errorf("%s: %v, expected that the examples run\n%s", run, err, output)
	}
}
