package clients_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

// systemPython is that of the operating system, whose packages have the installer.
const systemPython = "/usr/bin/python3"

var (
	// quickStart is a program of a README, and what it prints.
	quickStart = regexp.MustCompile("(?s)```(?:python|js)\n(.*?)```\n\n```text\n(.*?)```\n")
	tokens     = regexp.MustCompile(`token \d+`)
)

// The programs of the READMEs print what is said there, but for the tokens. They run with the packages as they are
// installed.
func TestQuickStarts(t *testing.T) {
	t.Parallel()
	gateway := gateway.Serve(t, postgres.Migrated(t))
	for _, each := range []struct {
		folder, file, program string
		count                 int
	}{
		{"python", "quickstart.py", "python3", 2},
		{"typescript", "quickstart.mjs", "node", 1},
	} {
		text, err := os.ReadFile(filepath.Join(each.folder, "README.md"))
		check(t, err)
		found := quickStart.FindAllStringSubmatch(string(text), -1)
		if len(found) != each.count {
			t.Errorf("%s/README.md has %d programs with what they print, expected %d", each.folder, len(found), each.count)
		}
		packages := installed(t, each.folder)
		for _, example := range found {
			source := strings.ReplaceAll(example[1], "http://127.0.0.1:8080", gateway.URL)
			check(t, os.WriteFile(filepath.Join(packages, each.file), []byte(source), 0o600))
			run := exec.CommandContext(await.Context(t), postgres.Require(t, each.program), each.file)
			run.Dir = packages
			output, err := run.CombinedOutput()
			masked := func(text string) string { return tokens.ReplaceAllString(text, "token") }
			if err != nil || masked(string(output)) != masked(example[2]) {
				t.Errorf("%s: %v\n%s\nprinted:\n%s\nexpected:\n%s", each.folder, err, source, output, example[2])
			}
		}
	}
}

// installed installs a package by its installer, from a copy of its folder and without a network, and returns a folder in
// which a program finds it. Where there is no installer it copies the package's files.
func installed(t *testing.T, folder string) string {
	t.Helper()
	from, to := t.TempDir(), t.TempDir()
	parts, place := []string{"pyproject.toml", "README.md", "src"}, "src/fencegate"
	available := exec.CommandContext(await.Context(t), systemPython, "-c", "import setuptools, wheel, pip")
	install := exec.CommandContext(await.Context(t), systemPython, "-m", "pip", "install", "--quiet", "--no-index",
		"--no-deps", "--no-build-isolation", "--root-user-action=ignore", "--target", to, from)
	if folder == "typescript" {
		parts, place = []string{"package.json", "src", "types"}, "."
		available = exec.CommandContext(await.Context(t), "npm", "--version")
		install = exec.CommandContext(
			await.Context(t), "npm", "install", "--offline", "--no-audit", "--no-fund", "--silent", from)
	}
	for _, part := range parts {
		copyTo(t, filepath.Join(folder, part), from)
	}
	if err := available.Run(); err != nil {
		t.Logf("the %s package is copied, since its installer is not there: %s: %v", folder, available, err)
		modules := filepath.Join(to, "node_modules")
		check(t, os.Mkdir(modules, 0o700))
		check(t, os.Symlink(filepath.Join(from, place), filepath.Join(modules, "fencegate")))
		check(t, os.Symlink(filepath.Join(from, place), filepath.Join(to, "fencegate")))
		return to
	}
	install.Dir = to
	if output, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", install, err, output)
	}
	return to
}

func copyTo(t *testing.T, from, folder string) {
	t.Helper()
	if output, err := exec.CommandContext(await.Context(t), "cp", "-r", from, folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}
