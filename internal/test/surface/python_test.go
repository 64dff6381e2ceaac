package surface_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/surface"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// TestPython compares the public names of the Python client with python.golden.
func TestPython(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		process.Missing(t, "python3 is not installed")
	}
	output, err := exec.CommandContext(t.Context(), python, "exported.py", root+"clients/python/src/fencegate").Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("exported.py: %v\n%s", err, failed.Stderr)
	}
	check(t, err)
	surface.Compare(t, "testdata/python.golden", strings.Split(strings.TrimSpace(string(output)), "\n"))
}
