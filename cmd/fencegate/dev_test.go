package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient/api"
)

// startDev starts "fencegate dev" at a free port, and returns it with a shell for its gateway.
func startDev(t *testing.T, environment []string, flags ...string) (*child, shell) {
	t.Helper()
	command := exec.Command(process.BuildChecked(t), append([]string{"dev", "--listen", "127.0.0.1:0"}, flags...)...)
	command.Env = append(os.Environ(), environment...)
	dev := shell{t: t}.startCommand(strings.NewReader(""), command)
	dev.says("one process at a time'\n")
	_, rest, _ := strings.Cut(dev.out.String(), "\ndashboard ")
	url, _, _ := strings.Cut(rest, "\n")
	return dev, shell{t, strings.TrimSpace(url)}
}

// rejected waits for a rejection of a worker's write.
func (s shell) rejected() {
	s.t.Helper()
	await.True(s.t, "a write of a worker is listed as rejected", func() bool {
		out := s.must("rejections", "--prefix", "dev", "--code", string(api.CodeTokenStale), "-o", "json")
		return strings.Contains(out, `"resource":"dev/job-`)
	})
}

// endsWithItsProcesses interrupts dev, and expects that it ends well, with all processes that it has started.
func (p *child) endsWithItsProcesses() {
	p.t.Helper()
	family, err := process.Family(p.cmd.Process.Pid)
	check(p.t, err)
	p.signal(syscall.SIGINT)
	if got := p.wants(exitOK, ""); got.errOut != "" {
		p.t.Errorf("dev wrote to its standard error: %s", got.errOut)
	}
	awaitEnd(p.t, family)
}

func awaitEnd(t *testing.T, processes []int) {
	t.Helper()
	for _, pid := range processes {
		await.True(t, "a process of dev has ended", func() bool { return !process.Running(pid) })
	}
}

// dev prints how a worker is frozen and rejected, opens the dashboard, and prints commands that can be run as they are.
func TestDev(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opened := filepath.Join(dir, "opened")
	for _, name := range []string{"xdg-open", "open"} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho \"$1\" >'"+opened+"'\n"), 0o700))
	}
	dev, s := startDev(t, []string{
		"FENCEGATE_DATABASE_URL=" + postgres.Empty(t), "PATH=" + dir + ":" + os.Getenv("PATH"),
	}, "--every", "1s", "--open")
	for _, words := range []string{" is granted dev/job-", " is frozen ", " is thawed ", "REJECTED, token_stale"} {
		dev.says(words)
	}
	s.rejected()
	await.True(t, "the dashboard is opened", func() bool {
		text, err := os.ReadFile(opened)
		return err == nil && string(text) == s.url+"\n"
	})
	wanted := []string{"LOCK", "token_stale", "one process at a time"}
	lines := bufio.NewScanner(strings.NewReader(dev.out.String()))
	for lines.Scan() && len(wanted) > 0 {
		command, printed := strings.CutPrefix(lines.Text(), "  ")
		if !printed || !strings.Contains(command, "fencegate") {
			continue
		}
		shell := exec.Command("bash", "-c", command)
		shell.Dir = dir
		if out, err := shell.CombinedOutput(); err != nil || !strings.Contains(string(out), wanted[0]) {
			t.Errorf("%s\nended with %v, want %q in its output: %s", command, err, wanted[0], out)
		}
		wanted = wanted[1:]
	}
	if len(wanted) > 0 {
		t.Errorf("dev printed too few commands:\n%s", dev.out.String())
	}
	dev.endsWithItsProcesses()
}

// A killed dev leaves no process behind, not even a frozen worker, and no temporary file. The next one has its data.
func TestDevIsKilled(t *testing.T) {
	t.Parallel()
	postgres.Require(t, "initdb")
	// PostgreSQL's user, another one if root runs the test, can't enter t.TempDir.
	dir, err := os.MkdirTemp(process.TempParent(), "fencegate-dev-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Chmod(dir, 0o711))
	temporary := t.TempDir()
	environment := []string{"TMPDIR=" + temporary, "FENCEGATE_DATABASE_URL="}
	data := filepath.Join(dir, "data")

	dev, s := startDev(t, environment, "--data-dir", data)
	s.must("put", "kept", "k", "v", "--token", fields(s.must("lock", "acquire", "kept"))["fencing_token"])
	if printed := regexp.MustCompile(`\S+ check --database-url '.*'`).FindString(dev.out.String()); printed == "" {
		t.Errorf("dev does not print how others use its database: %s", dev.out.String())
	} else if out, err := exec.Command("bash", "-c", printed).CombinedOutput(); err != nil || !strings.Contains(string(out), "ok  ") {
		t.Errorf("%s\nended with %v: %s", printed, err, out)
	}
	var family []int
	dev.until("a worker is frozen", func() bool {
		family, err = process.Family(dev.cmd.Process.Pid)
		check(t, err)
		for _, pid := range family {
			if strings.HasPrefix(process.State(pid), "T") {
				return true
			}
		}
		return false
	})
	if len(family) < 3 {
		t.Fatalf("the processes of dev are %d, want PostgreSQL and a worker among them", family)
	}
	check(t, dev.cmd.Process.Kill())
	awaitEnd(t, family)

	dev, s = startDev(t, environment, "--data-dir", data, "--quiet", "--every", "1s")
	if got := s.must("get", "kept", "k"); got != "v" {
		t.Errorf("after the kill, get wrote %q, want v", got)
	}
	s.rejected()
	if out := dev.out.String(); strings.Contains(out, "granted") || strings.Contains(out, "REJECTED") {
		t.Errorf("with --quiet, dev printed events: %s", out)
	}
	dev.endsWithItsProcesses()
	left, err := os.ReadDir(temporary)
	check(t, err)
	if len(left) > 0 {
		t.Errorf("dev left temporary files behind: %v", left)
	}
}

// dev refuses what it could not do, and a taken port.
func TestDevRefuses(t *testing.T) {
	s := newShell(t)
	address := strings.TrimPrefix(s.url, "http://")
	s.url = "" // dev takes no --url
	s.fails(exitFailure, "give --listen another port", "dev", "--listen", address)
	s.fails(exitUsage, "--every", "dev", "--every", "100ms")
	t.Setenv("FENCEGATE_AUTH", "keys")
	s.fails(exitUsage, "FENCEGATE_AUTH", "dev", "--listen", "127.0.0.1:0")
}
