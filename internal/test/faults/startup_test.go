//go:build unix

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	testgateway "github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// TestServeWithoutDatabase checks that a gateway waits for its database for as long as it may, answers meanwhile, and
// then migrates and serves.
func TestServeWithoutDatabase(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t)
	cluster.Stop()
	wantRefusal(t, cluster.URL(), "Is PostgreSQL running there, and is --database-url right?", "no such file or directory")
	ready, address := filepath.Join(t.TempDir(), "ready"), network.FreeAddress(t)
	serve := exec.CommandContext(patient(t), process.BuildChecked(t), "serve", "--listen", address, "--ready-file", ready,
		"--database-url", cluster.URL())
	var said process.Buffer
	serve.Stdout, serve.Stderr = &said, &said
	check(t, serve.Start())
	calls, _ := testgateway.Client(t, "http://"+address)
	g := &gateway{API: calls}
	awaitUnreachable(t, g)
	_, err := g.Acquire(patient(t), "job", api.AcquireRequest{OwnerID: "worker"})
	if !answeredUnavailable(err) || problemOf(t, err).Outcome != api.OutcomeNotApplied {
		t.Errorf("an acquire got %v", err)
	}
	if _, err := os.Stat(ready); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ready file is there (%v)", err)
	}
	cluster.Restart()
	await.True(t, "the gateway serves", func() bool { return strings.Contains(said.String(), "serves on http://") })
	mustAcquire(t, g, "job", "worker", 0)
	check(t, serve.Process.Signal(syscall.SIGTERM))
	if err := serve.Wait(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, said.String())
	}
}

// TestServeWaitsForConnection checks that a gateway waits for a database that has no connection free.
func TestServeWaitsForConnection(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t, postgres.Setting("max_connections", "8"), postgres.Setting("max_wal_senders", "0"))
	free := exhaust(t, cluster.URL())
	serve := exec.CommandContext(patient(t), process.BuildChecked(t), "serve", "--listen", "127.0.0.1:0", "--database-url",
		cluster.URL(), "--database-connections-max", "2")
	var said process.Buffer
	serve.Stdout, serve.Stderr = &said, &said
	check(t, serve.Start())
	await.True(t, "the gateway says that it waits", func() bool {
		return strings.Contains(said.String(), "waiting for the database") && strings.Contains(said.String(), "53300")
	})
	free()
	await.True(t, "the gateway serves", func() bool { return strings.Contains(said.String(), "serves on http://") })
	check(t, serve.Process.Signal(syscall.SIGTERM))
	if err := serve.Wait(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, said.String())
	}
}

// exhaust takes all connections of a server.
func exhaust(t *testing.T, url string) (free func()) {
	t.Helper()
	ctx := patient(t)
	var all []*pgx.Conn
	for {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			break
		}
		all = append(all, conn)
	}
	return func() {
		for _, conn := range all {
			check(t, conn.Close(ctx))
		}
	}
}

// TestServeOnTakenPort checks that a gateway says so before it makes a cluster of its own.
func TestServeOnTakenPort(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { _ = taken.Close() }()
	dir := filepath.Join(t.TempDir(), "data")
	output, err := exec.CommandContext(patient(t), process.BuildChecked(t), "serve", "--listen", taken.Addr().String(),
		"--data-dir", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(output), "--listen "+taken.Addr().String()) {
		t.Errorf("it ended with %v:\n%s", err, output)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory is there (%v)", err)
	}
}

func TestServeOnNewerSchema(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	g := startGateway(t, url)
	db := connect(t, url)
	execute(t, db, "update fence.guard_revision set revision = 1000, serves_from = 1000")
	wantRefusal(t, url, "the database was migrated by a newer fencegate", "run the newer one")
	if revision := query[int](t, db, "select revision from fence.guard_revision"); revision != 1000 {
		t.Errorf("it went back to revision %d", revision)
	}
	wantNotReady(t, g, "run the newer one")
}

func TestServeOnUnmigratedDatabase(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	g := startGateway(t, url, "--no-migrate")
	wantNotReady(t, g, "run `fencegate migrate`")
	_, err := g.Acquire(patient(t), "job", api.AcquireRequest{OwnerID: "worker"})
	if !answeredUnavailable(err) || problemOf(t, err).Outcome != api.OutcomeNotApplied {
		t.Errorf("an acquire got %v", err)
	}

	output, err := exec.CommandContext(patient(t), process.BuildChecked(t), "migrate", "--database-url",
		url).CombinedOutput()
	if err != nil {
		t.Fatalf("fencegate migrate: %v\n%s", err, output)
	}
	g.AwaitReady(t)
	mustAcquire(t, g, "job", "worker", 0)
}

// wantRefusal expects fencegate serve to end as failed, saying all of words.
func wantRefusal(t *testing.T, databaseURL string, words ...string) {
	t.Helper()
	var said bytes.Buffer
	serve := exec.CommandContext(patient(t), process.BuildChecked(t), "serve", "--listen", "127.0.0.1:0",
		"--database-url", databaseURL, "--database-timeout", "100ms")
	serve.Stdout, serve.Stderr = &said, &said
	err := serve.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() <= 0 {
		t.Errorf("it ended with %v", err)
	}
	for _, word := range words {
		if !strings.Contains(said.String(), word) {
			t.Errorf("it does not say %q, but:\n%s", word, said.String())
		}
	}
	testgateway.CheckLog(t, said.String())
}

// wantNotReady expects /readyz to say what to do.
func wantNotReady(t *testing.T, g *gateway, advice string) {
	t.Helper()
	await.True(t, fmt.Sprintf("/readyz says %q", advice), func() bool {
		err := g.Ready(patient(t))
		return answeredUnavailable(err) && strings.Contains(problemOf(t, err).Detail, advice)
	})
}

// During shutdown a gateway finishes what it has begun and answers it. It takes no new clients.
func TestShutdownAnswersRequestsUnderWay(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	db := connect(t, url)
	g := startGateway(t, url, "--statement-timeout", "2m", "--request-timeout", "2m", "--shutdown-timeout", "2m")
	jobs := []string{"job/0", "job/1", "job/2", "job/3", "job/4", "job/5", "job/6", "job/7"}
	var leases []api.Lease
	for _, job := range jobs {
		leases = append(leases, mustAcquire(t, g, job, "worker", 0))
	}
	release := holdFence(t, db, jobs...)
	var answers []<-chan answer
	for _, lease := range leases {
		answers = append(answers, goPut(t, g, numbered(lease, 1)))
	}
	await.True(t, "all writes are under way", func() bool { return inFlight(t, g) == 1+len(answers) })
	awaitWaiting(t, db)
	check(t, g.Signal(syscall.SIGTERM))
	await.True(t, "the gateway takes no new connections", func() bool { return refuses(g) })
	if _, err := g.Acquire(patient(t), "other", api.AcquireRequest{OwnerID: "late"}); !errors.Is(err,
		lockclient.ErrUnavailable) {
		t.Errorf("a new client got %v", err)
	}
	release()

	for i, answers := range answers {
		if got := <-answers; got.err != nil || got.result.Version != 1 {
			t.Errorf("the write to %s under way got %+v, %v", jobs[i], got.result, got.err)
		}
		wantWrites(t, db, jobs[i], 1)
	}
	<-g.Ended()
	if err := g.Stop(); err != nil {
		t.Errorf("it did not end well: %v\n%s", err, g.Log())
	}
}

// What takes longer than it may is cut off, and the exit code says so. The client makes no guess; its retry counts
// once.
func TestShutdownTimeout(t *testing.T) {
	t.Parallel()
	db, f := startMigrated(t, 2, "--shutdown-timeout", "50ms", "--request-timeout", "1h", "--statement-timeout", "1h")
	lease := mustAcquire(t, f.at(0), "job", "worker", 0)
	release := holdFence(t, db, "job")
	answer := goPut(t, f.at(0), numbered(lease, 1))
	awaitWaiting(t, db)
	check(t, f.at(0).Signal(syscall.SIGTERM))
	await.True(t, "it ends", func() bool { return f.at(0).HasEnded() })
	var exit *exec.ExitError
	if err := f.at(0).Stop(); !errors.As(err, &exit) || exit.ExitCode() <= 0 {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(f.at(0).Log(), "requests were still under way after 50ms") {
		t.Errorf("it did not say why:\n%s", f.at(0).Log())
	}
	wantUnanswered(t, <-answer)
	release()
	mustPut(t, f.at(1), numbered(lease, 1))
	wantWrites(t, db, "job", 1)
}

// The end does not wait either for writes that a worker of the gateway sends, since their fence is locked. Nor does it
// after their clients have given up.
func TestShutdownTimeoutOfLockWaits(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	db := connect(t, url)
	for job, c := range map[string]struct {
		requestTimeout string
		givenUp        bool
	}{"waiting": {"1h", false}, "gone": {"1s", true}} {
		t.Run(job, func(t *testing.T) {
			g := startGateway(t, url, "--shutdown-timeout", "50ms", "--request-timeout", c.requestTimeout,
				"--statement-timeout", "1h", "--lock-timeout", "100ms")
			lease := mustAcquire(t, g, job, "worker", 0)
			defer holdFence(t, db, job)()
			var writes []<-chan answer
			for sequence := range int64(3) {
				writes = append(writes, goPut(t, g, numbered(lease, sequence+1)))
			}
			awaitPatient(t, db)
			if !c.givenUp {
				check(t, g.Signal(syscall.SIGTERM))
			}
			for _, answers := range writes {
				if got := await.Receive(t, "the end of a write", answers); !errors.Is(got.err, lockclient.ErrUnavailable) {
					t.Errorf("the write got %+v, %v", got.result, got.err)
				}
			}
			if c.givenUp {
				check(t, g.Signal(syscall.SIGTERM))
			}
			await.True(t, "the gateway ends", g.HasEnded)
			if err := g.Stop(); (err == nil) != c.givenUp {
				t.Errorf("it ended with %v; it should fail only if it cuts clients off:\n%s", err, g.Log())
			}
		})
	}
}

// The end does not wait for a database that does not answer.
func TestShutdownWithFrozenDatabase(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t)
	g := startGateway(t, cluster.URL(), "--shutdown-timeout", "50ms", "--statement-timeout", "1h")
	mustAcquire(t, g, "job", "worker", 0)
	cluster.Freeze()
	begun := time.Now()
	check(t, g.Signal(syscall.SIGTERM))
	await.True(t, "the gateway ends", g.HasEnded)
	t.Logf("it ended %s after SIGTERM", time.Since(begun).Round(time.Millisecond))
	if !strings.Contains(g.Log(), "the database did not answer") {
		t.Errorf("it did not say why it left work undone:\n%s", g.Log())
	}
}

// Every rejection that was answered is in the record when the gateway has ended, the last moment's included.
func TestShutdownRecordsRejections(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	db := connect(t, url)
	g := startGateway(t, url)
	stale := mustAcquire(t, g, "job", "zombie", 0)
	mustRelease(t, g, stale)
	for sequence := range int64(20) {
		if _, err := tryPut(t, g, numbered(stale, sequence+1)); !errors.Is(err, lockclient.ErrTokenStale) {
			t.Fatalf("a released lease's write got %v", err)
		}
	}
	check(t, g.Stop())
	if recorded := query[int](t, db, "select coalesce(sum(count), 0) from fence.rejections"); recorded != 20 {
		t.Errorf("%d of 20 rejections are in the record", recorded)
	}
}

func TestSecondSignalKills(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	db := connect(t, url)
	g := startGateway(t, url)
	put := startPut(t, db, g, 0)
	check(t, g.Signal(syscall.SIGTERM))
	await.True(t, "the gateway takes no new connections", func() bool { return refuses(g) })
	await.True(t, "the next signal ends it", func() bool {
		_ = g.Signal(syscall.SIGTERM) // its error is that it has ended
		return g.HasEnded()
	})
	var exit *exec.ExitError
	if err := g.Stop(); !errors.As(err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("it ended with %v, not by the signal", err)
	}
	wantUnanswered(t, <-put.answer)
}

// refuses reports whether the gateway takes no new connections.
func refuses(g *gateway) bool {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(g.URL, "http://"), await.Limit)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
