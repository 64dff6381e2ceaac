package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
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

// Some behaviour is that of a whole test process. The test binary then runs itself, for TestProcess alone, with what
// that is to do in this variable.
const processEnv = "FENCEGATE_POSTGRES_PROCESS"

// TestProcess is not a test of its own, but what the other processes of the tests below do.
func TestProcess(t *testing.T) {
	switch os.Getenv(processEnv) {
	case "use": // the shared server as it is found
		url := Empty(t)
		Migrated(t)
		fmt.Println("system", queryValue[int64](t, url, "select system_identifier from pg_control_system()"))
		fmt.Println("scratch", scratch.path)
	case "leave": // die without any cleaning up
		Empty(t)
		fmt.Println("scratch", scratch.path)
		process, err := os.FindProcess(os.Getpid())
		check(t, err)
		check(t, process.Kill())
		select {}
	case "lack": // have no binaries
		shared.once.Do(func() { shared.server, shared.err = startEmbedded(t.Context(), lackBinaries) })
		Empty(t)
	}
}

func lackBinaries() (embeddedpg.Binaries, error) {
	return embeddedpg.Binaries{}, embeddedpg.ErrNoBinaries
}

// runProcess runs the test binary as another process and returns what it prints.
func runProcess(t *testing.T, what string, env ...string) (output string, err error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^TestProcess$")
	cmd.Env = append(append(os.Environ(), processEnv+"="+what), env...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// field returns what a process printed after a word.
func field(t *testing.T, output, word string) string {
	t.Helper()
	for line := range strings.Lines(output) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), word+" "); ok {
			return rest
		}
	}
	t.Fatalf("no %q in %q", word, output)
	return ""
}

func TestKilledProcessLeavesNothing(t *testing.T) {
	if _, err := embeddedpg.FindBinaries(); err != nil {
		process.Missing(t, err.Error())
	}
	output, err := runProcess(t, "leave", urlEnv+"=")
	if err == nil {
		t.Fatalf("it was not killed: %s", output)
	}
	left := field(t, output, "scratch")
	lock, err := lockFile(t.Context(), filepath.Join(left, "1", "postgres.lock"))
	check(t, err) // its PostgreSQL has ended
	check(t, lock.Close())

	output, err = runProcess(t, "use", urlEnv+"=")
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next process left it there: %v", err)
	}
	if _, err := os.Stat(scratch.path); scratch.path != "" && err != nil {
		t.Errorf("the next process took away what is in use: %v", err)
	}
}

func TestNothingToTestWith(t *testing.T) {
	output, err := runProcess(t, "lack", urlEnv+"=", "CI=true")
	if err == nil || !strings.Contains(output, "--- FAIL") {
		t.Errorf("in CI it did not fail: %s", output)
	}
	for _, word := range []string{"make test-deps", urlEnv + " is not set", "no PostgreSQL binaries"} {
		if !strings.Contains(output, word) {
			t.Errorf("the failure does not mention %q: %s", word, output)
		}
	}
	output, err = runProcess(t, "lack", urlEnv+"=", "CI=")
	if err != nil || !strings.Contains(output, "--- SKIP") || !strings.Contains(output, "make test-deps") {
		t.Errorf("elsewhere it was not skipped: %v: %s", err, output)
	}
}
