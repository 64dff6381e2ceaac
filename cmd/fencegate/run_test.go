package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// What run does for its command, before one gateway.
func TestRun(t *testing.T) {
	t.Parallel()
	newShell(t).each(map[string]func(*testing.T, shell){
		"gives its lease": runGivesItsLease, "within run": runWithinRun, "exit codes": runExitCodes,
		"streams": runPassesTheStreams, "signals": runPassesSignals, "interrupted": runIsInterrupted,
		"shared": sharedRuns,
	})
}

func runGivesItsLease(t *testing.T, s shell) {
	got := s.startCommand(strings.NewReader(""), exec.Command("env", "FENCEGATE_SEQUENCE=7", process.BuildChecked(t),
		"run", "--lock", "jobs/7", "--owner-id", "w1", "--", "sh", "-c", `
		echo "lock $FENCEGATE_LOCK owner $FENCEGATE_OWNER_ID url $FENCEGATE_URL sequence ${FENCEGATE_SEQUENCE-none}"
		"$FENCEGATE" lock renew "$FENCEGATE_LOCK" >/dev/null || exit 90
		"$FENCEGATE" lock get jobs/7 | grep "^fencing_token  $FENCEGATE_TOKEN\$" >/dev/null || exit 91
		"$FENCEGATE" put . state first --output json || exit 92
		"$FENCEGATE" put . state second; echo "second: $?"
		"$FENCEGATE" put . state third --sequence 2 || exit 93
		"$FENCEGATE" put . other - --token "$FENCEGATE_TOKEN.3" </dev/null || exit 94
		"$FENCEGATE" delete . other --sequence 4 || exit 95
		"$FENCEGATE" get . state`)).wants(0, "The next number is free: --sequence 1, or --token ")
	for _, words := range []string{
		"lock jobs/7 owner w1 url " + s.url + " sequence none\n", `"version":1,`, "second: 4\n", "version        2\n",
		"version        4\n",
	} {
		if !strings.Contains(got.out, words) {
			t.Errorf("it printed %s\nwant %q in it", got.out, words)
		}
	}
	if !strings.HasSuffix(got.out, "third") {
		t.Errorf("it printed %s, want the value at the end", got.out)
	}
	if state := fields(s.must("lock", "get", "jobs/7"))["state"]; state != "free" {
		t.Errorf("afterwards the lock is %s", state)
	}
}

// The environment that run sets for one lock does not affect the command's work on another lock.
func runWithinRun(t *testing.T, s shell) {
	lease := fields(s.must("lock", "acquire", "inner", "--owner-id", "w2", "--ttl", "1h"))
	s.start("run", "--lock", "outer", "--subtree", "--", "sh", "-c", fmt.Sprintf(`
		"$FENCEGATE" put inner k v --token %s.1 || exit 90
		"$FENCEGATE" put inner k v --token %[1]s.2 --lease-id %s || exit 91
		"$FENCEGATE" put ./below k v || exit 92
		"$FENCEGATE" run --lock within -- "$FENCEGATE" put . k v || exit 93
		"$FENCEGATE" run --lock outer -- true; test $? = 2 || exit 94
		"$FENCEGATE" run -- true; test $? = 2 || exit 95
		"$FENCEGATE" get outer/below k`, lease["fencing_token"], lease["lease_id"])).wants(0, "it would wait for itself")
	if value := s.must("get", "within", "k"); value != "v" {
		t.Errorf("within, %q was written", value)
	}
}

func runExitCodes(t *testing.T, s shell) {
	const nobody = "http://127.0.0.1:1"
	s.must("lock", "acquire", "held", "--owner-id", "w1", "--ttl", "1h")
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, []byte("data"), 0o600))
	away := awayBehindProxy(t)
	for _, test := range []struct {
		code  int
		words string
		args  []string
	}{
		{0, "", []string{"--lock", "codes", "--", "true"}},
		{0, "", []string{"--lock", "codes", "echo", "--", "-n"}},
		{1, "", []string{"--lock", "codes", "--", "false"}},
		{128 + 15, "", []string{"--lock", "codes", "--", "sh", "-c", "kill -TERM $$"}},
		{2, "--help", []string{"--lock", "codes"}},
		{2, "name a command", []string{"--lock", "codes", "--"}},
		{2, "missing flags: --lock", []string{"--", "true"}},
		{2, "not both", []string{"--lock", "codes", "--try", "--wait", "1s", "--", "true"}},
		{2, "at most a third of --ttl, 1s", []string{"--lock", "codes", "--ttl", "3s", "--kill-after", "1001ms", "--", "true"}},
		{2, "whole milliseconds", []string{"--lock", "codes", "--ttl", "3000.5ms", "--", "true"}},
		{2, "can't be negative", []string{"--lock", "codes", "--wait=-1s", "--", "true"}},
		{120, "held by w1", []string{"--lock", "held", "-n", "--", "true"}},
		{120, "held by w1", []string{"--lock", "held", "--wait", "100ms", "--", "true"}},
		{122, "no answer from " + nobody, []string{"--lock", "codes", "--url", nobody, "--", "true"}},
		{122, "does not answer as a fencegate gateway (503 text/html)", []string{"--lock", "codes", "--url", away, "--", "true"}},
		{122, "no gateway serves codes, trying again: ", []string{"--lock", "codes", "--url", nobody, "--wait", "500ms", "--",
			"true"}},
		{0, "", []string{"--lock", "codes", "--url", nobody, "--url", s.url, "--", "true"}},
		{125, "invalid_name", []string{"--lock", "a//b", "--", "true"}},
		{126, "permission denied", []string{"--lock", "codes", "--", file}},
		{127, "not found", []string{"--lock", "codes", "--", "no-such-command"}},
	} {
		args, run := append([]string{"run"}, test.args...), s.do
		if test.words == "" { // it runs a command
			run = func(args ...string) result { return s.start(args...).wait() }
		}
		got := run(args...)
		if got.code != test.code || !strings.Contains(got.errOut, test.words) || (test.words == "") != (got.errOut == "") {
			t.Errorf("%q exited with %d and %q, want %d and %q", args, got.code, got.errOut, test.code, test.words)
		}
	}
}

func runPassesTheStreams(t *testing.T, s shell) {
	got := s.startWith(strings.NewReader("some\ninput\n"), "run", "--lock", "streams", "--", "sh", "-c",
		"cat; echo aside >&2").wait()
	if got != (result{0, "some\ninput\n", "aside\n"}) {
		t.Errorf("got %+v", got)
	}
}

func runPassesSignals(t *testing.T, s shell) {
	for name, number := range map[string]syscall.Signal{"INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "USR2": syscall.SIGUSR2} {
		p := s.start("run", "--lock", "signals", "--", "sh", "-c", "trap 'echo got "+name+"; exit 7' "+name+
			"; echo ready; while :; do sleep 0.02; done")
		p.says("ready")
		p.signal(number)
		if got := p.wants(7, ""); got.out != "ready\ngot "+name+"\n" {
			t.Errorf("%s: it printed %q", name, got.out)
		}
	}
	p := s.start("run", "--lock", "signals", "--", "sh", "-c", "echo ready; exec sleep 60")
	p.says("ready")
	p.signal(syscall.SIGTERM)
	p.wants(128+15, "")
}

func runIsInterrupted(t *testing.T, s shell) {
	s.must("lock", "acquire", "busy", "--owner-id", "w1", "--ttl", "1h")
	p := s.start("run", "--lock", "busy", "--owner-id", "w2", "--", "true")
	p.until("w2 waits", func() bool { return strings.Contains(s.must("lock", "get", "busy"), "waiting        w2") })
	p.signal(syscall.SIGINT)
	p.wants(128+int(syscall.SIGINT), "while waiting for busy")
	await.True(t, "w2 leaves the queue", func() bool { return !strings.Contains(s.must("lock", "get", "busy"), "waiting") })
	p = s.start("run", "--lock", "busy", "--", "true")
	p.until("it says that it waits", func() bool {
		return strings.Contains(p.errOut.String(), "waiting for busy, held by w1; 1 in the queue")
	})
	s.must("lock", "break", "busy", "--reason", "test")
	p.wants(0, "")
}

// Each of two shared runs waits for the other.
func sharedRuns(t *testing.T, s shell) {
	dir := t.TempDir()
	meet := func(own, other string) *child {
		return s.start("run", "--lock", "together", "--shared", "--", "sh", "-c", fmt.Sprintf(
			`>%[1]s/%[2]s; until test -e %[1]s/%[3]s; do sleep 0.02; done; "$FENCEGATE" put . k v; echo "put: $?"; until test -e %[1]s/end; do sleep 0.02; done`,
			dir,
			own,
			other,
		))
	}
	one, two := meet("one", "two"), meet("two", "one")
	one.says("put: 4")
	two.says("put: 4")
	s.fails(exitRunLockHeld, "held by ", "run", "--lock", "together", "--try", "--", "true")
	check(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
	one.wants(0, "token_stale")
	two.wants(0, "token_stale")
	s.start("run", "--lock", "together", "--try", "--", "true").wants(0, "")
}
