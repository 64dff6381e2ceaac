//go:build linux

package deploy

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// imageBytesMax is the greatest size of the image.
const imageBytesMax = 40_000_000

// TestSlow_Image checks that the files that .dockerignore lets through suffice to build the program, and that the program
// needs no other file: it runs in an empty root directory, as the user of the image, and its health checks work.
func TestSlow_Image(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	check(t, os.Mkdir(root, 0o755))
	context := buildContext(t)
	binary := filepath.Join(root, "fencegate")
	// With -trimpath its packages are compiled already, for the program of other tests.
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-trimpath", "-ldflags",
		"-s -w -X main.version=v1.2.3", "-o", binary, "./cmd/fencegate")
	build.Dir = context
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("what .dockerignore lets through can't be built: %v\n%s", err, output)
	}
	checkBinary(t, binary)
	if os.Geteuid() != 0 {
		t.Skip("only root can give a process another root directory")
	}

	url := gateways(t, 1)[0].URL
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"version"}, "fencegate  v1.2.3\n"},
		{[]string{"health"}, "status  ok\n"},
		{composed(t, "gateway-1").HealthCheck.Test[2:], "status  ready\n"},
	} {
		command := exec.CommandContext(t.Context(), "/fencegate", test.args...)
		command.Err = nil // the path is missing outside the other root directory
		command.Dir, command.Env = "/", []string{"FENCEGATE_URL=" + url}
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		output, err := command.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(output), test.want) {
			t.Errorf("fencegate %s: %v, %q, want %q", strings.Join(test.args, " "), err, output, test.want)
		}
	}
}

func checkBinary(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	check(t, err)
	t.Logf("the binary has %d bytes", info.Size())
	const certificates = 300_000
	if info.Size()+certificates > imageBytesMax {
		t.Errorf("the binary has %d bytes, the image can have %d", info.Size(), imageBytesMax)
	}
	program, err := elf.Open(path)
	check(t, err)
	defer program.Close()
	for _, header := range program.Progs {
		if header.Type == elf.PT_INTERP {
			t.Error("the binary is linked dynamically")
		}
	}
}

// buildContext returns a directory with all files that .dockerignore lets through.
func buildContext(t *testing.T) string {
	t.Helper()
	patterns, err := ignorefile.ReadAll(strings.NewReader(read(t, "../.dockerignore")))
	check(t, err)
	ignored, err := patternmatcher.New(patterns)
	check(t, err)
	to := filepath.Join(t.TempDir(), "context")
	listed, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z", "--cached", "--others",
		"--exclude-standard").Output()
	check(t, err)
	for path := range strings.SplitSeq(strings.TrimRight(string(listed), "\x00"), "\x00") {
		if skip, err := ignored.MatchesOrParentMatches(path); err != nil || skip {
			check(t, err)
			continue
		}
		content, err := os.ReadFile(filepath.Join("..", path))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		check(t, err)
		check(t, os.MkdirAll(filepath.Join(to, filepath.Dir(path)), 0o755))
		check(t, os.WriteFile(filepath.Join(to, path), content, 0o644))
	}
	return to
}

// TestSlow_ImageByDocker builds the image as users do, and runs it, if there is an engine.
func TestSlow_ImageByDocker(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), "docker", "version", "--format", "{{.Server.Version}}").Run(); err != nil {
		t.Skip("no Docker engine answers")
	}
	const tag = "fencegate:deploy-test"
	build := exec.CommandContext(t.Context(), "docker", "build", "--build-arg", "VERSION=v1.2.3", "-t", tag, "..")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("docker build: %v\n%s", err, output)
	}
	size, err := exec.CommandContext(t.Context(), "docker", "image", "inspect", "--format", "{{.Size}}", tag).Output()
	check(t, err)
	if bytes, err := strconv.Atoi(strings.TrimSpace(string(size))); err != nil || bytes > imageBytesMax {
		t.Errorf("the image has %s bytes, it may have %d", size, imageBytesMax)
	}
	run := exec.CommandContext(t.Context(), "docker", "run", "--rm", "--read-only", "--cap-drop=ALL", tag, "version")
	if output, err := run.Output(); err != nil || !strings.HasPrefix(string(output), "fencegate  v1.2.3\n") {
		t.Errorf("the image's version is %q, %v", output, err)
	}
}
