package gateway

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/readiness"
)

// diskFull fills the disk that has the tables.
func (o *outages) diskFull(t *testing.T) {
	admin := connectTo(t, o.cluster)
	disk := smallDisk(t, admin)
	for _, sql := range []string{
		// A change of the catalogs would keep all new sessions out of the full database, for another reason.
		"alter system set autovacuum = off", "select pg_reload_conf()",
		"create tablespace small location '" + filepath.Join(disk, "space") + "'",
		"create database small tablespace small",
	} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	url := o.cluster.DatabaseURL("small")
	h := newOutageHarness(t, url, url)
	lease := h.acquireRepeatedly(t, "job")
	on := &outages{harness: h, lease: lease, written: 1, alerts: o.alerts}
	ballast := filepath.Join(disk, "ballast")
	large := strings.Repeat("x", 64<<10)
	on.meet(t, outage{
		reason: readiness.DiskFull, why: "No space left on device",
		begin: func(t *testing.T) { fill(t, ballast) },
		meanwhile: func(t *testing.T) {
			expectUnavailable(t, h.put(t, lease, 1, large), api.OutcomeNotApplied)
			h.expectCounted(t, "disk_full")
			caches, err := filepath.Glob(filepath.Join(disk, "space", "*", "*", "pg_internal.init"))
			if err != nil || len(caches) == 0 {
				t.Fatalf("caches of the catalogs: %q, %v", caches, err)
			}
			for _, cache := range caches {
				if err := os.Remove(cache); err != nil {
					t.Fatal(err)
				}
			}
			fill(t, ballast)
			_, err = pgx.Connect(t.Context(), url)
			if got := h.store.ReasonOf(err); got != store.ReasonDiskFull {
				t.Errorf("a new session fails for the reason %q, want disk_full: %v", got, err)
			}
		},
		end: func(t *testing.T) {
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
		},
		alerts: []string{"FencegateDiskFull"},
	})
}

// fill appends to a file until its disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(file, endless{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// smallDisk mounts a filesystem of 64 MB, with a directory "space" of PostgreSQL's user. Only root can do that.
func smallDisk(t *testing.T, on *pgx.Conn) (path string) {
	t.Helper()
	if os.Getuid() != 0 {
		process.Missing(t, "only root can mount a small disk")
	}
	path, err := os.MkdirTemp("", "fgdisk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size=64m,mode=755"); err != nil {
		process.Missing(t, "a small disk can't be mounted: "+err.Error())
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
