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

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	testgateway "github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
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
