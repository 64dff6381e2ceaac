package postgres

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"
)

// recorder is a test that fails only on paper.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatal(args ...any) {
	r.fatal = fmt.Sprint(args...)
	runtime.Goexit()
}

func systemIdentifier(t testing.TB, c *Cluster) int64 {
	t.Helper()
	return queryValue[int64](t, c.URL(), "select system_identifier from pg_control_system()")
}

func TestClusterRecoversFromKill(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, Setting("work_mem", "5MB"))
	url, first := c.URL(), c.PID()
	execute(t, url, "create table kept as select 1 as id")
	want(t, "fsync", queryValue[string](t, url, "select current_setting('fsync')"), "on")
	c.Kill()
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		check(t, conn.Close(t.Context()))
		t.Fatal("it is alive")
	}
	c.Restart()
	want(t, "rows kept", queryValue[int](t, url, "select count(*) from kept"), 1)
	want(t, "the setting", queryValue[string](t, url, "select current_setting('work_mem')"), "5MB")
	if c.PID() == first {
		t.Error("it was not restarted")
	}
	c.Stop()
	c.Restart()
	c.Restart()
	want(t, "rows kept", queryValue[int](t, url, "select count(*) from kept"), 1)
}

func TestClustersAreStrangers(t *testing.T) {
	t.Parallel()
	if a, b := NewCluster(t), NewCluster(t, Stranger()); systemIdentifier(t, a) == systemIdentifier(t, b) {
		t.Error("a stranger has the system identifier of another cluster")
	}
}

func TestDiscardedClusterIsGone(t *testing.T) {
	var dir string
	t.Run("one test", func(t *testing.T) {
		c := NewCluster(t)
		dir = c.dataDir
		c.Kill()
	})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its data was left behind: %v", err)
	}
}
