package postgres

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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

func timeline(t testing.TB, c *Cluster) string {
	t.Helper()
	return queryValue[string](t, c.URL(), "select left(pg_walfile_name(pg_current_wal_lsn()), 8)")
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

func TestPromotedStandbyHasLostCommits(t *testing.T) {
	t.Parallel()
	primary := NewCluster(t)
	execute(t, primary.URL(), "create table kept (id bigint)")
	standby := primary.Standby()
	execute(t, primary.URL(), "insert into kept values (1)")
	standby.CatchUp()
	want(t, "rows on the standby", queryValue[int](t, standby.URL(), "select count(*) from kept"), 1)
	want(t, "standby", queryValue[bool](t, standby.URL(), "select pg_is_in_recovery()"), true)
	before := timeline(t, primary)
	system := systemIdentifier(t, primary)

	standby.Stop()
	execute(t, primary.URL(), "insert into kept values (2)")
	want(t, "rows on the primary", queryValue[int](t, primary.URL(), "select count(*) from kept"), 2)
	primary.Kill()
	standby.Restart()
	standby.Promote()

	want(t, "rows after the failover", queryValue[int](t, standby.URL(), "select count(*) from kept"), 1)
	execute(t, standby.URL(), "insert into kept values (3)")
	want(t, "system identifier", systemIdentifier(t, standby), system)
	was, err := strconv.ParseInt(before, 16, 64)
	check(t, err)
	is, err := strconv.ParseInt(timeline(t, standby), 16, 64)
	check(t, err)
	want(t, "timeline", is, was+1)
	standby.Restart()
	want(t, "rows after a restart", queryValue[int](t, standby.URL(), "select count(*) from kept"), 2)
}

func TestFailoverURL(t *testing.T) {
	t.Parallel()
	primary := NewCluster(t)
	standby := primary.Standby()
	pool, err := pgxpool.New(t.Context(), FailoverURL(standby, primary))
	check(t, err)
	defer pool.Close()
	_, err = pool.Exec(t.Context(), "create table kept (id bigint)")
	check(t, err)
	standby.CatchUp()
	primary.Kill()
	standby.Promote()
	pool.Reset()
	_, err = pool.Exec(t.Context(), "insert into kept values (1)")
	check(t, err)
	want(t, "rows on the standby", queryValue[int](t, standby.URL(), "select count(*) from kept"), 1)
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
