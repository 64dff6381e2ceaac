package embeddedpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// commitUntil inserts rows one by one, calling break_ after some, until the connection is lost. It returns how many
// commits were acknowledged.
func commitUntil(t *testing.T, url string, break_ func()) (acknowledged int) {
	t.Helper()
	ctx := await.Context(t)
	conn, err := pgx.Connect(ctx, url)
	check(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "create table kept (id bigint primary key)")
	check(t, err)
	for id := 1; ; id++ {
		if _, err := conn.Exec(ctx, "insert into kept values ($1)", id); err != nil {
			return id - 1
		}
		if id == 100 {
			break_()
		}
	}
}

func wantKept(t *testing.T, url string, acknowledged int) {
	t.Helper()
	got := query(t, url, fmt.Sprintf("select count(*)::text from kept where id <= %d", acknowledged))
	if got != fmt.Sprint(acknowledged) {
		t.Errorf("%s of %d acknowledged commits are left", got, acknowledged)
	}
}

func TestPostgresDiesWithItsOwner(t *testing.T) {
	t.Parallel()
	dir := clusterDir(t)
	owner := startOwner(t, dir)
	processes := append(children(owner.postmaster), owner.postmaster, owner.watchdog)
	if len(processes) < 5 {
		t.Fatalf("PostgreSQL seems to be the processes %d", processes)
	}
	acknowledged := commitUntil(t, owner.url, func() { owner.kill(t) })
	for _, pid := range processes {
		await.True(t, fmt.Sprintf("the process %d ends", pid), func() bool { return !process.Running(pid) })
	}
	again := mustStart(t, Config{DataDir: dir})
	wantKept(t, again.URL(), acknowledged)
}

func TestStartRightAfterTheOwnerWasKilled(t *testing.T) {
	t.Parallel()
	dir := clusterDir(t)
	owner := startOwner(t, dir)
	acknowledged := commitUntil(t, owner.url, func() {
		owner.kill(t)
		wantKept(t, mustStart(t, Config{DataDir: dir}).URL(), 100)
	})
	if acknowledged != 100 {
		t.Errorf("the old PostgreSQL went on beside the new one: %d commits", acknowledged)
	}
}

func TestFrozenPostgresDiesWithItsOwner(t *testing.T) {
	t.Parallel()
	owner := startOwner(t, clusterDir(t))
	check(t, syscall.Kill(owner.postmaster, syscall.SIGSTOP))
	owner.kill(t)
	await.True(t, "the frozen postmaster ends", func() bool { return !process.Running(owner.postmaster) })
	await.True(t, "the watchdog ends", func() bool { return !process.Running(owner.watchdog) })
}

func TestPostgresThatOutlivedOwnerAndWatchdog(t *testing.T) {
	t.Parallel()
	dir := clusterDir(t)
	owner := startOwner(t, dir)
	check(t, kill(owner.watchdog))
	await.True(t, "the watchdog ends", func() bool { return !process.Running(owner.watchdog) })
	owner.kill(t)
	run(t, owner.url, "create table kept (id bigint)") // it does outlive both

	cluster := mustStart(t, Config{DataDir: dir})
	run(t, cluster.URL(), "select from kept")
	if process.Running(owner.postmaster) {
		t.Error("the old PostgreSQL runs beside the new one")
	}
}

func TestOwnershipEndsThoughAForkedChildHasACopy(t *testing.T) {
	t.Parallel()
	dir := clusterDir(t)
	cluster := mustStart(t, Config{DataDir: dir})
	held, err := syscall.Dup(int(cluster.owner.Fd())) // what any child has until it executes its program
	check(t, err)
	defer syscall.Close(held)
	mustStop(t, cluster)
	mustStart(t, Config{DataDir: dir})
}

func TestPostgresIsNotBornUnwatched(t *testing.T) {
	t.Parallel()
	mark := t.TempDir() + "/born"
	cmd := exec.Command("/bin/sh", "-c", launchScript, "sh", "touch", mark)
	cmd.Stdin = strings.NewReader("") // the owner died before it gave the word
	if err := cmd.Run(); err == nil {
		t.Error("the launcher succeeded")
	}
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program was started: %v", err)
	}
	cmd = exec.Command("/bin/sh", "-c", launchScript, "sh", "touch", mark)
	cmd.Stdin = strings.NewReader("go\n")
	check(t, cmd.Run())
	_, err := os.Stat(mark)
	check(t, err)
}

func TestPostgresIsOutOfReachOfTheTerminal(t *testing.T) {
	t.Parallel()
	cluster := mustStart(t, Config{DataDir: clusterDir(t)})
	for _, pid := range []int{cluster.PID(), cluster.dog.cmd.Process.Pid} {
		group, err := syscall.Getpgid(pid)
		check(t, err)
		if group == syscall.Getpgrp() {
			t.Errorf("the process %d is in the process group of its owner", pid)
		}
	}
}

func TestDoneWhenPostmasterIsKilled(t *testing.T) {
	t.Parallel()
	dir := clusterDir(t)
	cluster := mustStart(t, Config{DataDir: dir})
	check(t, cluster.Err())
	check(t, kill(cluster.PID()))
	<-cluster.Done()
	if err := cluster.Err(); !errors.Is(err, ErrEnded) {
		t.Fatalf("got %v", err)
	}
	mentions(t, cluster.Err(), "signal: killed", "ready to accept connections")
	check(t, cluster.Stop(await.Context(t)))
	mustStart(t, Config{DataDir: dir})
}

func TestKillAndRecover(t *testing.T) {
	t.Parallel()
	dir := clusterDir(t)
	cluster := mustStart(t, Config{DataDir: dir})
	idle, err := pgx.Connect(await.Context(t), cluster.URL())
	check(t, err)
	defer idle.Close(await.Context(t))
	check(t, syscall.Kill(int(idle.PgConn().PID()), syscall.SIGSTOP)) // it can't see that its parent is dead
	processes := append(children(cluster.PID()), cluster.PID())
	acknowledged := commitUntil(t, cluster.URL(), cluster.Kill)
	for _, pid := range processes {
		await.True(t, fmt.Sprintf("the process %d ends", pid), func() bool { return !process.Running(pid) })
	}
	if err := cluster.Err(); !errors.Is(err, ErrEnded) {
		t.Errorf("got %v", err)
	}
	cluster.Kill() // finds nothing to do
	again := mustStart(t, Config{DataDir: dir})
	wantKept(t, again.URL(), acknowledged)
}

func TestStalePidThatIsInUseAgain(t *testing.T) {
	t.Parallel()
	dir := clusterDir(t)
	cluster := mustStart(t, Config{DataDir: dir})
	run(t, cluster.URL(), "create table kept (id bigint)")
	cluster.Kill()

	// Of PostgreSQL's own user, as in a container where everything is.
	other := currentAccount(t).command(t.Context(), "sleep", "600")
	check(t, other.Start())
	defer func() { other.Process.Kill(); other.Wait() }()
	text, err := os.ReadFile(cluster.layout.pidFile())
	check(t, err)
	_, rest, _ := strings.Cut(string(text), "\n")
	check(t, os.WriteFile(cluster.layout.pidFile(), []byte(fmt.Sprintf("%d\n%s", other.Process.Pid, rest)), 0o600))

	again := mustStart(t, Config{DataDir: dir})
	run(t, again.URL(), "select from kept")
	if !process.Running(other.Process.Pid) {
		t.Error("the process that has the number now was killed")
	}
}
