package sdk

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

const sdkModule = "github.com/fencegate/fencegate/lockclient"

// consumer is a program that uses all packages of the SDK.
const consumer = `package main

import (
	"fmt"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/lockclient/sqlguard"
)

func main() {
	client, err := lockclient.New("http://127.0.0.1:1")
	fmt.Println(err, admin.New(client) != nil, api.CodeTokenStale, sqlguard.Error(nil))
}
`

// A program that requires the SDK requires no other module, and is built without a network and downloaded modules.
// The SDK uses nothing that is newer than the Go version of its go.mod.
func TestModule(t *testing.T) {
	t.Parallel()
	sdk, err := filepath.Abs("../../../lockclient")
	check(t, err)
	folder := t.TempDir()
	module := fmt.Sprintf("module consumer\n\ngo %s\n\nrequire %s v0.0.0\n\nreplace %[2]s => %s\n",
		goVersion(t), sdkModule, sdk)
	check(t, os.WriteFile(filepath.Join(folder, "go.mod"), []byte(module), 0o600))
	check(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(consumer), 0o600))
	offline := []string{"GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOMODCACHE=" + t.TempDir()}
	want := "consumer\n" + sdkModule + "\n"
	if got := runGo(t, folder, offline, "list", "-m", "-f", "{{.Path}}", "all"); got != want {
		t.Errorf("the program's modules are:\n%s\nexpected:\n%s", got, want)
	}
	want = "<nil> true token_stale <nil>\n"
	if got := runGo(t, folder, offline, "run", "."); got != want {
		t.Errorf("the program printed %q, expected %q", got, want)
	}
	runGo(t, folder, offline, "vet", sdkModule+"/...")
}

// The SDK passes its tests with the oldest Go that its go.mod accepts, and its adapters are built with that.
func TestSlow_OldestGo(t *testing.T) {
	t.Parallel()
	toolchain := []string{"GOTOOLCHAIN=go" + goVersion(t), "GOWORK=off"}
	probe := exec.CommandContext(await.Context(t), "go", "version")
	probe.Env = append(os.Environ(), toolchain...)
	if output, err := probe.CombinedOutput(); err != nil {
		process.Missing(t, fmt.Sprintf("%s can't be had: %v\n%s", toolchain[0], err, output))
	}
	runGo(t, "../../../lockclient", toolchain, "test", "./...")
	runGo(t, "../../../lockclient/pgxguard", toolchain, "build", "./...")
	runGo(t, "../../../lockclient/gocronlock", toolchain, "build", "./...")
}

// goVersion returns the oldest version of Go that the SDK's go.mod accepts.
func goVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../lockclient/go.mod")
	check(t, err)
	return regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(string(text))[1]
}

// runGo runs the go command in a folder, and returns what it printed.
func runGo(t *testing.T, folder string, env []string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...) // it may compile the standard library
	command.Dir, command.Env = folder, append(os.Environ(), env...)
	var failed strings.Builder
	command.Stderr = &failed
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s in %s: %v\n%s%s", command, folder, err, output, &failed)
	}
	return string(output)
}
