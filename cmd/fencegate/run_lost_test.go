package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// A command ends when its lease is lost, whatever becomes of its run.
func TestRunStopsACommandThatHasLostItsLease(t *testing.T) {
	t.Parallel()
	newShell(t).each(map[string]func(*testing.T, shell){
		"TERM": runStopsItsCommand, "KILL": runKillsWhatIgnoresTERM, "frozen": frozenRun, "stopped": stoppedRuns,
		"killed": commandOfAKilledRun,
	})
}

func runStopsItsCommand(t *testing.T, s shell) {
	p := s.start("run", "--lock", "broken", "--ttl", "30s", "--", "sh", "-c",
		"trap 'echo cleaning up; exit 3' TERM; echo ready; while :; do sleep 0.02; done")
	p.says("ready")
	s.must("lock", "break", "broken", "--reason", "test")
	got := p.wants(121, "is lost: broken: sending TERM to the command, and KILL in ")
	if got.out != "ready\ncleaning up\n" || !strings.HasSuffix(got.errOut, "\nfencegate: the command ended with 3\n") ||
		strings.Count(got.errOut, "is lost") != 1 {
		t.Errorf("it printed %q and %q", got.out, got.errOut)
	}
}

// The leader obeys TERM, or does not; the grandchild never does.
func runKillsWhatIgnoresTERM(t *testing.T, s shell) {
	for lock, leader := range map[string]string{"leader-too": "", "grandchild-alone": "trap 'exit 3' TERM; "} {
		t.Run(lock, func(t *testing.T) {
			t.Parallel()
			s := shell{t, s.url}
			file := filepath.Join(t.TempDir(), "pid")
			p := s.start("run", "--lock", lock, "--ttl", "30s", "--kill-after", "1900ms", "--", "sh", "-c",
				`trap "" TERM; sh -c 'echo $$ >`+file+`; exec sleep 60' >/dev/null 2>&1 & `+leader+
					`echo ready; while :; do sleep 0.02; done`)
			p.says("ready")
			grandchild := pidIn(t, file)
			if !process.Running(grandchild) {
				t.Fatal("the grandchild does not live")
			}
			s.must("lock", "break", lock, "--reason", "test")
			want := "the command ended with 137\n"
			if leader != "" {
				want = "the command ended with 3\n"
			}
			p.wants(121, want)
			await.True(t, "the grandchild ends", func() bool { return !process.Running(grandchild) })
		})
	}
}

// The run itself is frozen until another has the lock. When it wakes, the first that it does is to end its command.
func frozenRun(t *testing.T, s shell) {
	file := filepath.Join(t.TempDir(), "pid")
	p := s.start("run", "--lock", "frozen", "--ttl", "4s", "--", "sh", "-c", `trap "" TERM; echo $$ >`+file+
		`; echo ready; while :; do sleep 0.02; done`)
	p.says("ready")
	command := pidIn(t, file)
	p.signal(syscall.SIGSTOP)
	s.must("lock", "acquire", "frozen", "--owner-id", "w2", "--ttl", "1h", "--wait", "1m")
	if !process.Running(command) {
		t.Error("the command ended while its run was frozen")
	}
	p.signal(syscall.SIGCONT)
	p.wants(121, "sending KILL to the command\nfencegate: the command ended with 137\n")
	if process.Running(command) {
		t.Error("the command still runs")
	}
	if owner := fields(s.must("lock", "get", "frozen"))["owner_id"]; owner != "w2" {
		t.Errorf("the lock is %s's now", owner)
	}
}

// A stopped command does not continue if its lease has expired meanwhile, however its run was stopped.
func stoppedRuns(t *testing.T, s shell) {
	var stopped []*child
	for i, stop := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGSTOP, syscall.SIGSTOP} {
		p := s.start("run", "--lock", fmt.Sprint("stopped/", i), "--ttl", "4s", "--", "sh", "-c",
			`echo ready; kill -STOP $$; echo went on`)
		p.says("ready")
		p.signal(stop)
		stopped = append(stopped, p)
	}
	for i, p := range stopped {
		s.must("lock", "acquire", fmt.Sprint("stopped/", i), "--owner-id", "w2", "--ttl", "1h", "--wait", "1m")
		p.signal(syscall.SIGCONT)
		if got := p.wants(121, "sending KILL to the command"); got.out != "ready\n" {
			t.Errorf("it printed %q", got.out)
		}
	}
}

// With the gateway gone the command, which ignores TERM, is over before its lease expires by the database's clock.
func TestRunEndsBeforeItsLeaseWhereRenewalsFail(t *testing.T) {
	t.Parallel()
	databaseURL := postgres.Migrated(t)
	gateway, err := gateway.Run(t.Context(), process.BuildChecked(t), "--database-url", databaseURL)
	check(t, err)
	defer gateway.Kill()
	file := filepath.Join(t.TempDir(), "times")
	p := shell{t, gateway.URL}.start("run", "--lock", "a", "--ttl", "12s", "--", "sh", "-c", fmt.Sprintf(
		`trap "" TERM; echo ready; while :; do date +%%s%%N >>%s; sleep 0.02; done`, file))
	p.says("ready")
	gateway.Kill()
	p.wants(121, "could not be renewed, and is about to expire: sending TERM to the command, and KILL in ")

	times, err := os.ReadFile(file)
	check(t, err)
	lines := strings.Fields(string(times))
	last, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
	if err != nil {
		t.Skipf("date has no nanoseconds here: %v", err)
	}
	lock := fields(newShellOn(t, databaseURL).must("lock", "get", "a"))
	expires, err := time.Parse(time.RFC3339, lock["expires_at"])
	check(t, err)
	if !time.Unix(0, last).Before(expires) {
		t.Errorf("the command was alive at %s, its lease ran until %s", time.Unix(0, last).UTC(), expires)
	}
}

// A run that is killed can't renew any more: its command ends with it.
func commandOfAKilledRun(t *testing.T, s shell) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only Linux signals a process when its parent dies")
	}
	file := filepath.Join(t.TempDir(), "pid")
	p := s.start("run", "--lock", "killed", "--", "sh", "-c", `echo $$ >`+file+`; echo ready; exec sleep 60`)
	p.says("ready")
	p.signal(syscall.SIGKILL)
	await.True(t, "the process in "+file+" ends", func() bool { return !process.Running(pidIn(t, file)) })
}
