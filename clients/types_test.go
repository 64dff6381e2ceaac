package clients_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/internal/testenv/process"
)

// The Python client and its tests have the types that they say.
func TestPythonTypes(t *testing.T) {
	t.Parallel()
	mypy := postgres.Require(t, "mypy")
	inFolder(t, "python", mypy, "--strict", "--python-version", "3.9", "--cache-dir", t.TempDir())
}

// A thread of the Python client sees the end of a lease that another thread is ending.
func TestPythonEnd(t *testing.T) {
	t.Parallel()
	inFolder(t, "python", "env", "PYTHONPATH=src", postgres.Require(t, "python3"), "-m", "unittest", "tests.test_end")
}

// The Python client releases each lease that its caller did not get, and returns all of a record.
func TestPythonDelivery(t *testing.T) {
	t.Parallel()
	gateway := gateway.Serve(t, postgres.Migrated(t))
	inFolder(t, "python", "env", "PYTHONPATH=src", "FENCEGATE_URL="+gateway.URL, postgres.Require(t, "python3"),
		"-m", "unittest", "tests.test_delivery")
}

// The TypeScript client has the types that it says, the declarations in types are those of the source, and a program in
// TypeScript can use them.
func TestTypeScriptTypes(t *testing.T) {
	t.Parallel()
	compiler, types := fromNPM(t, "tsc"), t.TempDir()
	inFolder(t, "typescript", compiler, "-p", ".", "--outDir", types)
	inFolder(t, "typescript", "diff", "-r", types, "types") // npm run types writes them
	inFolder(t, "typescript", compiler, "--strict", "--noEmit", "--target", "es2022",
		"--lib", "es2022,dom", "--module", "nodenext", "--skipLibCheck", "false", filepath.Join("test", "types.mts"))
}

// fromNPM returns a program that npm installs for the TypeScript client.
func fromNPM(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("typescript", "node_modules", ".bin", name))
	check(t, err)
	if _, err := os.Stat(path); err != nil {
		process.Missing(t, name+" is not installed in clients/typescript")
	}
	return path
}

func inFolder(t *testing.T, folder, name string, args ...string) {
	t.Helper()
	command := exec.CommandContext(await.Context(t), name, args...)
	command.Dir = folder
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", command, err, output)
	}
}
