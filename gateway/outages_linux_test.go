package gateway

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/readiness"
)

// TestOutages checks that /readyz, the metrics and the overview name what keeps the database from taking commits, and
// that the gateway is ready again by itself once it does.
func TestOutages(t *testing.T) {
	parallel(t)
	cluster := pgtest.NewCluster(t, pgtest.Setting("max_connections", "40"))
	h := newHarnessOn(t, Config{}, store.Config{DatabaseURL: cluster.URL()})
	if err := h.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.awaitReady(t)
	h.sample(t)
	h.expectOutage(t, "")
	t.Run("synchronous standby gone", func(t *testing.T) { standbyGone(t, h, cluster) })
	t.Run("connections exhausted", func(t *testing.T) { connectionsExhausted(t, h, cluster) })
	t.Run("connection lost", func(t *testing.T) { connectionLost(t, h, cluster) })
	t.Run("disk full", func(t *testing.T) { diskFull(t, cluster) })
}

func standbyGone(t *testing.T, h *harness, primary *pgtest.Cluster) {
	standby := primary.Standby()
	synchronous := func(names string) {
		h.exec(t, "alter system set synchronous_standby_names = '"+names+"'")
		h.exec(t, "select pg_reload_conf()")
	}
	synchronous("*")
	h.awaitStandbys(t, 1, 1)
	h.awaitReady(t)
	standby.Stop()
	h.awaitNotReady(t, readiness.WaitsForStandby, "synchronous standby")
	h.awaitStandbys(t, 1, 0)
	h.sample(t) // in spite of the wait, and without an error
	h.expectOutage(t, readiness.WaitsForStandby)
	standby.Restart()
	h.awaitReady(t)
	h.awaitStandbys(t, 1, 1)
	standby.Stop()
	h.awaitNotReady(t, readiness.WaitsForStandby, "")
	synchronous("") // ends the wait
	h.awaitReady(t)
	h.sample(t)
	h.expectOutage(t, "")
}

// connectionsExhausted lets other sessions take all connections. The prober has one; the pool has none any more.
func connectionsExhausted(t *testing.T, h *harness, cluster *pgtest.Cluster) {
	admin := connectTo(t, cluster)
	var others []*pgx.Conn
	await.True(t, "the gateway has no connection for statements", func() bool {
		_, err := admin.Exec(t.Context(), `select pg_terminate_backend(pid, 60000) from pg_stat_activity
			where application_name = 'fencegate'`)
		for err == nil {
			var other *pgx.Conn
			if other, err = pgx.Connect(t.Context(), cluster.DatabaseURL("postgres")); err == nil {
				others = append(others, other)
			}
		}
		if refused, is := errors.AsType[*pgconn.PgError](err); !is || refused.Code != "53300" {
			t.Fatal(err)
		}
		return h.notReadyReason(t) == readiness.ConnectionsExhausted
	})
	h.expectOutage(t, readiness.ConnectionsExhausted)
	expectUnavailable(t, h.get(t, "/v1/locks/job"), api.OutcomeNotApplied)
	if metrics, _ := h.scrape(t); metrics.value("fencegate_database_errors_total", "reason", "connections_exhausted") == 0 {
		t.Error("no failure for the reason connections_exhausted was counted")
	}
	for _, other := range others {
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	h.awaitReady(t)
	h.expectOutage(t, "")
}

// connectionLost freezes the database's end of the prober's connection: no answer ever comes by it, while new
// connections work.
func connectionLost(t *testing.T, h *harness, cluster *pgtest.Cluster) {
	admin := connectTo(t, cluster)
	const sql = "select pid, state from pg_stat_activity where application_name = 'fencegate prober' and pid <> $1"
	const alone = "select count(*) = 1 from pg_stat_activity where application_name = 'fencegate prober'"
	var lost, next int
	var state string
	// In the middle of a statement, it would be one that is slow.
	await.True(t, "the prober's connection is frozen while it is idle", func() (frozen bool) {
		if err := admin.QueryRow(t.Context(), alone).Scan(&frozen); err != nil || !frozen {
			return false
		}
		if err := admin.QueryRow(t.Context(), sql, 0).Scan(&lost, &state); err != nil {
			return false
		}
		if err := syscall.Kill(lost, syscall.SIGSTOP); err != nil {
			return false
		}
		err := admin.QueryRow(t.Context(), sql, 0).Scan(&next, &state)
		if err == nil && next == lost && state == "idle" {
			return true
		}
		_ = syscall.Kill(lost, syscall.SIGCONT)
		return false
	})
	defer func() { _ = syscall.Kill(lost, syscall.SIGCONT) }()
	h.awaitNotReady(t, readiness.Unreachable, "is lost")
	h.awaitReady(t)
	if err := admin.QueryRow(t.Context(), sql, lost).Scan(&next, &state); err != nil {
		t.Errorf("the prober has no other connection: %v", err)
	}
}

// diskFull fills the disk that has the tables.
func diskFull(t *testing.T, cluster *pgtest.Cluster) {
	admin := connectTo(t, cluster)
	disk := smallDisk(t, admin)
	for _, sql := range []string{
		"create tablespace small location '" + filepath.Join(disk, "space") + "'",
		"create database small tablespace small",
	} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	h := newHarnessOn(t, Config{}, store.Config{DatabaseURL: cluster.DatabaseURL("small")})
	if err := h.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.awaitReady(t)
	lease := h.acquire(t, "job", "w")
	ballast := filepath.Join(disk, "ballast")
	file, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(file, endless{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	h.awaitNotReady(t, readiness.DiskFull, "No space left on device")
	h.expectOutage(t, readiness.DiskFull)
	large := strings.Repeat("x", 64<<10)
	expectUnavailable(t, h.put(t, lease, 1, large), api.OutcomeNotApplied)
	if metrics, _ := h.scrape(t); metrics.value("fencegate_database_errors_total", "reason", "disk_full") == 0 {
		t.Error("no failure for the reason disk_full was counted")
	}
	if err := errors.Join(file.Close(), os.Remove(ballast)); err != nil {
		t.Fatal(err)
	}
	h.awaitReady(t)
	as[api.WriteResult](t, h.put(t, lease, 1, large), http.StatusCreated)
	h.expectOutage(t, "")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// smallDisk mounts a filesystem of 64 MB, with a directory "space" of PostgreSQL's user. Only root can do that.
func smallDisk(t *testing.T, on *pgx.Conn) (path string) {
	t.Helper()
	if os.Getuid() != 0 {
		pgtest.Missing(t, "only root can mount a small disk")
	}
	path, err := os.MkdirTemp("", "fgdisk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size=64m,mode=755"); err != nil {
		pgtest.Missing(t, "a small disk can't be mounted: "+err.Error())
	}
	t.Cleanup(func() { _ = syscall.Unmount(path, syscall.MNT_DETACH) })
	var data string
	if err := on.QueryRow(t.Context(), "show data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	owner, err := os.Stat(data)
	if err != nil {
		t.Fatal(err)
	}
	of, is := owner.Sys().(*syscall.Stat_t)
	if !is {
		t.Fatalf("%s has no owner", data)
	}
	space := filepath.Join(path, "space")
	err = errors.Join(os.Chmod(path, 0o755), os.Mkdir(space, 0o700), os.Chown(space, int(of.Uid), int(of.Gid)))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func connectTo(t *testing.T, cluster *pgtest.Cluster) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), cluster.DatabaseURL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

// notReadyReason is the reason at /readyz; empty: ready.
func (h *harness) notReadyReason(t *testing.T) readiness.Reason {
	t.Helper()
	got := h.ready(t)
	if got.status == http.StatusOK {
		return ""
	}
	return readiness.Reason(expectUnavailable(t, got, api.OutcomeNotApplied).Reason)
}

// expectOutage checks that the metrics and the overview say why the gateway is not ready; empty: it is.
func (h *harness) expectOutage(t *testing.T, reason readiness.Reason) {
	t.Helper()
	metrics, _ := h.scrape(t)
	want := []wanted{{1, "fencegate_database_up", ""}}
	if reason != "" {
		want = []wanted{{0, "fencegate_database_up", ""}}
	}
	for _, other := range readiness.Reasons {
		value := 0.0
		if other == reason {
			value = 1
		}
		want = append(want, wanted{value, "fencegate_not_ready", "reason " + string(other)})
	}
	metrics.want(t, want)
	state := api.DatabaseOK
	if reason != "" {
		state = api.DatabaseUnavailable
	}
	if d := h.overview(t, "").Database; d.State != state || d.Reason != string(reason) || (d.Detail == "") != (reason == "") {
		t.Errorf("the overview has the database %+v, want the state %s and the reason %q", d, state, reason)
	}
}

// awaitStandbys returns when the metrics show whether commits wait for standbys, and for how many they can.
func (h *harness) awaitStandbys(t *testing.T, expected, standbys float64) {
	t.Helper()
	await.True(t, "the metrics show the standbys", func() bool {
		h.sample(t)
		metrics, _ := h.scrape(t)
		return metrics.value("fencegate_database_synchronous_expected") == expected &&
			metrics.value("fencegate_database_synchronous_standbys") == standbys
	})
}
