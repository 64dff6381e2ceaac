package postgres

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/migrations"
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

func TestMigratedIsMigratedAndOnesOwn(t *testing.T) {
	var wait sync.WaitGroup
	urls := make([]string, 4)
	for i := range urls {
		wait.Go(func() { urls[i] = Migrated(t) })
	}
	wait.Wait()
	for _, url := range urls {
		check(t, migrations.Check(t.Context(), connect(t, url)))
		execute(t, url, "create table fence.mine (id bigint)") // fails if another has it
	}
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
