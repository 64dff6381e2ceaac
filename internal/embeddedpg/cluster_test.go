package embeddedpg

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

func TestSecondStartKeepsData(t *testing.T) {
	t.Parallel()
	dir := newDataDir(t)
	first := mustStart(t, Config{DataDir: dir})
	run(t, first.URL(), "create table kept as select 'ü/ö' as name")
	if got := query(t, first.URL(), "select current_database() || ' ' || current_user"); got != "fencegate fencegate" {
		t.Errorf("connected to %s", got)
	}
	mustStop(t, first)
	select {
	case <-first.Done():
	default:
		t.Error("Stop returned before Done was closed")
	}
	if process.Running(first.PID()) || process.Running(first.dog.cmd.Process.Pid) {
		t.Error("something outlived Stop")
	}
	check(t, first.Stop(await.Context(t))) // a second Stop finds nothing to do

	second := mustStart(t, Config{DataDir: dir})
	if got := query(t, second.URL(), "select name from kept"); got != "ü/ö" {
		t.Errorf("kept %q", got)
	}
}

func TestSettings(t *testing.T) {
	t.Setenv("PGOPTIONS", "-c fsync=off") // of no effect on the server
	t.Setenv("PGPORT", "1")
	t.Setenv("PGSSLMODE", "verify-full")
	cluster := mustStart(t, Config{DataDir: newDataDir(t) + ` "my" 100%+ data`, Settings: map[string]string{"work_mem": "5MB"}})
	t.Setenv("PGOPTIONS", "")
	for setting, want := range map[string]string{
		"fsync":                   "on",
		"synchronous_commit":      "on",
		"listen_addresses":        "",
		"unix_socket_permissions": "0700",
		"unix_socket_directories": quoteListItem(cluster.SocketDir()),
		"server_encoding":         "UTF8",
		"data_checksums":          "on",
		"TimeZone":                "UTC",
		"work_mem":                "5MB",
	} {
		if got := query(t, cluster.URL(), "select current_setting('"+setting+"')"); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	const collation = "select datcollate from pg_database where datname = current_database()"
	if got := query(t, cluster.URL(), collation); got != "C" {
		t.Errorf("the collation is %q, expected C", got)
	}
	info, err := os.Stat(cluster.SocketDir())
	check(t, err)
	if info.Mode().Perm() != 0o700 || !strings.HasPrefix(cluster.SocketDir(), cluster.DataDir()) {
		t.Errorf("the socket is in %s, which others may enter: %v", cluster.SocketDir(), info.Mode())
	}
}

func TestErrorsOfClientsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	cluster := mustStart(t, Config{DataDir: clusterDir(t)})
	if err := exec1(await.Context(t), cluster.URL(), "select 'marker'::integer"); err == nil {
		t.Fatal("no error")
	}
	mustStop(t, cluster)
	log := logTail(cluster.layout.log(), 0)
	if strings.Contains(log, "marker") || !strings.Contains(log, "ready to accept connections") {
		t.Errorf("the log is:\n%s", log)
	}
}

func TestUnfitSocketPaths(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{
		"long":  strings.Repeat("d", 150),
		"comma": "a, b",
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(newDataDir(t), part)
			mustMkdir(t, filepath.Dir(dir))
			cluster := mustStart(t, Config{DataDir: dir})
			run(t, cluster.URL(), "create table kept (id bigint)")
			if strings.HasPrefix(cluster.SocketDir(), cluster.DataDir()) {
				t.Errorf("the socket is in %s", cluster.SocketDir())
			}
			if target, err := os.Readlink(cluster.layout.run()); err != nil || target != cluster.SocketDir() {
				t.Errorf("run leads to %q, %v", target, err)
			}
			mustStop(t, cluster)
			if _, err := os.Lstat(cluster.SocketDir()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket's directory was left behind: %v", err)
			}
			again := mustStart(t, Config{DataDir: dir})
			run(t, again.URL(), "select from kept")
		})
	}
}

func TestSecondOwnerIsRefused(t *testing.T) {
	t.Parallel()
	dir := clusterDir(t)
	owner := startOwner(t, dir)
	_, err := Start(await.Context(t), Config{DataDir: dir})
	if !errors.Is(err, ErrDataDirInUse) {
		t.Fatalf("got %v", err)
	}
	mentions(t, err, dir)
	run(t, owner.url, "select") // and the first one is none the worse
}

func TestStopAtOnceWhenTimeIsUp(t *testing.T) {
	t.Parallel()
	dir := clusterDir(t)
	cluster := mustStart(t, Config{DataDir: dir})
	run(t, cluster.URL(), "create table kept (id bigint)")
	check(t, freeze(cluster.cmd.Process))
	cause := errors.New("time is up")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if err := cluster.Stop(ctx); !errors.Is(err, cause) {
		t.Fatalf("got %v", err)
	}
	if process.Running(cluster.PID()) {
		t.Error("it still runs")
	}
	again := mustStart(t, Config{DataDir: dir})
	run(t, again.URL(), "select from kept")
	if log := logTail(again.layout.log(), again.logStart); !strings.Contains(log, "not properly shut down") {
		t.Errorf("there was nothing to recover:\n%s", log)
	}
}

func TestPostgresRefusesToStart(t *testing.T) {
	t.Parallel()
	dir := clusterDir(t)
	_, err := Start(await.Context(t), Config{DataDir: dir, Settings: map[string]string{"no_such_setting": "1"}})
	if !errors.Is(err, ErrEnded) {
		t.Fatalf("got %v", err)
	}
	mentions(t, err, "unrecognized configuration parameter", "no_such_setting")
	mustStart(t, Config{DataDir: dir})
}

func TestStartIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	dir := clusterDir(t)
	mustStop(t, mustStart(t, Config{DataDir: dir}))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Start(ctx, Config{DataDir: dir}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	mustStart(t, Config{DataDir: dir}) // nothing was left running
}
