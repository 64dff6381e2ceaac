package clients_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/pgtest"
)

// The Python client and its tests have the types that they say.
func TestPythonTypes(t *testing.T) {
	t.Parallel()
	mypy := pgtest.Require(t, "mypy")
	inFolder(t, "python", mypy, "--strict", "--python-version", "3.9", "--cache-dir", t.TempDir())
}

// The TypeScript client has the types that it says, the declarations in types are those of the source, and a program in
// TypeScript can use them.
func TestTypeScriptTypes(t *testing.T) {
	t.Parallel()
	const compiler = "typescript/node_modules/.bin/tsc"
	if _, err := os.Stat(compiler); err != nil {
		if _, err := exec.LookPath("npm"); err != nil {
			t.Skip("TypeScript is not installed, and neither is npm")
		}
		pgtest.Missing(t, "TypeScript is not installed (make test-deps)")
	}
	types := t.TempDir()
	inFolder(t, "typescript", "node_modules/.bin/tsc", "-p", ".", "--outDir", types)
	inFolder(t, "typescript", "diff", "-r", types, "types") // npm run types writes them
	inFolder(t, "typescript", "node_modules/.bin/tsc", "--strict", "--noEmit", "--target", "es2022",
		"--lib", "es2022,dom", "--module", "nodenext", "--skipLibCheck", "false", filepath.Join("test", "types.mts"))
}

func inFolder(t *testing.T, folder, name string, args ...string) {
	t.Helper()
	command := exec.CommandContext(await.Context(t), name, args...)
	command.Dir = folder
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", command, err, output)
	}
}
