package postgres

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

const isThere = "select count(*) from pg_database where datname = '%s'"

func TestEmptyIsOnesOwnAndIsDropped(t *testing.T) {
	server := sharedServer(t)
	var name string
	outer := t
	t.Run("one test", func(t *testing.T) {
		url := Empty(t)
		execute(t, url, "create table mine (id bigint)")
		name = queryValue[string](t, url, "select current_database()::text")
		want(t, "tables in another one", queryValue[int](t, Empty(t), "select count(*) from pg_class where relname = 'mine'"), 0)
		want(t, "encoding", queryValue[string](t, url, "select current_setting('server_encoding')"), "UTF8")
		want(t, "databases of the name", queryValue[int](t, server.url, fmt.Sprintf(isThere, name)), 1)

		held := connect(outer, url) // open connections don't keep it from being dropped
		if _, err := held.Exec(t.Context(), "begin; insert into mine values (1)"); err != nil {
			t.Fatal(err)
		}
	})
	want(t, "databases of the name afterwards", queryValue[int](t, server.url, fmt.Sprintf(isThere, name)), 0)
}

func TestDatabaseURL(t *testing.T) {
	for given, database := range map[string]string{
		"postgres://u:p@db.example:6432/old?sslmode=disable":            "db.example",
		"postgresql://u:p@db.example:6432?dbname=old&connect_timeout=9": "db.example",
		"postgres://u@/old?host=%2Frun%2Fmy%20pg&port=6432":             "/run/my pg",
		"host=db.example port=6432 dbname=old user=u":                   "db.example",
	} {
		url, err := (&server{url: given}).databaseURL("new")
		check(t, err)
		config, err := pgx.ParseConfig(url)
		check(t, err)
		want(t, given+" database", config.Database, "new")
		want(t, given+" host", config.Host, database)
		want(t, given+" port", config.Port, 6432)
		want(t, given+" user", config.User, "u")
		want(t, given+" timeout", config.ConnectTimeout, patience)
	}
}

func systemIdentifier(t testing.TB, c *Cluster) int64 {
	t.Helper()
	return queryValue[int64](t, c.URL(), "select system_identifier from pg_control_system()")
}

func TestClustersAreStrangers(t *testing.T) {
	t.Parallel()
	if a, b := NewCluster(t), NewCluster(t, Stranger()); systemIdentifier(t, a) == systemIdentifier(t, b) {
		t.Error("a stranger has the system identifier of another cluster")
	}
}

func TestMain(m *testing.M) {
	os.Exit(Main(m))
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(await.Context(t), url)
	check(t, err)
	t.Cleanup(func() { check(t, conn.Close(context.Background())) })
	return conn
}

func execute(t testing.TB, url, sql string) {
	t.Helper()
	_, err := connect(t, url).Exec(t.Context(), sql)
	check(t, err)
}

func queryValue[T any](t testing.TB, url, sql string) (value T) {
	t.Helper()
	check(t, connect(t, url).QueryRow(t.Context(), sql).Scan(&value))
	return value
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
