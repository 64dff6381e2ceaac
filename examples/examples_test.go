package examples_test

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	// listed is a command of the table in the documentation, transcript what one of them prints.
	listed     = regexp.MustCompile("(?m)^\\| [^|]+ \\| \\[`([^`]+)`\\]")
	transcript = regexp.MustCompile("(?s)```console\n\\$ (.*?)\n(.*?)```\n")
	// varies is what differs between the programs: Knex has its statement before the message.
	varies = regexp.MustCompile(`LF103: .*accounts/\d+: the token \d+\.2 is stale: the newest token is \d+`)
)

func masked(text string) string { return varies.ReplaceAllString(text, "LF103") }

// Each example prints what docs/sql/guard.md shows of it, or else of the one before.
func TestExamples(t *testing.T) {
	page, err := os.ReadFile("../docs/sql/guard.md")
	check(t, err)
	commands, shown := listed.FindAllStringSubmatch(string(page), -1), map[string]string{}
	for _, found := range transcript.FindAllStringSubmatch(string(page), -1) {
		shown[found[1]] = found[2]
	}
	if len(commands) != 11 || shown[commands[0][1]] == "" {
		t.Fatalf("docs/sql/guard.md lists the commands %q, and shows what %d of them print", commands, len(shown))
	}
	psql := postgres.Require(t, "psql")
	databaseURL := postgres.Migrated(t)
	env := environment(t, databaseURL)
	if output, err := command(t, env, psql, "-X", "-v", "ON_ERROR_STOP=1", "-f", "examples/accounts.sql").
		CombinedOutput(); err != nil {
		t.Fatalf("accounts.sql: %v\n%s", err, output)
	}
	before := ""
	for _, found := range commands {
		line := found[1]
		want := cmp.Or(shown[line], before)
		before = want
		words := strings.Fields(line)
		t.Run(words[len(words)-1], func(t *testing.T) {
			t.Parallel()
			require(t, words[len(words)-1])
			switch words[0] {
			case "psql":
				words[0] = psql
			case "python3":
				words[0] = python
			}
			example := command(t, env, words[0], words[1:]...)
			var errors strings.Builder
			example.Stderr = &errors
			output, err := example.Output()
			if err != nil || masked(string(output)) != masked(want) {
				t.Errorf("%s: %v\n%s\nprinted:\n%s\nexpected:\n%s", line, err, errors.String(), output, want)
			}
		})
	}
}

// TestWorkers checks that each worker does the jobs that it claims, notes the one that fails, stops the work on one whose
// lease is lost, and goes on after one whose completion is rejected.
func TestWorkers(t *testing.T) {
	psql := postgres.Require(t, "psql")
	for _, words := range [][]string{
		{"go", "run", "-C", "examples/go", "./pgxworker"}, {python, "examples/python/psycopg_worker.py"},
		{"node", "examples/node/pg_worker.js"},
	} {
		example := words[len(words)-1]
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			require(t, example)
			databaseURL := postgres.Migrated(t)
			env := environment(t, databaseURL)
			if output, err := command(t, env, psql, "-X", "-f", "examples/jobs.sql").CombinedOutput(); err != nil {
				t.Fatalf("jobs.sql: %v\n%s", err, output)
			}
			worker := command(t, env, words[0], words[1:]...)
			var output, errors strings.Builder
			worker.Stdout, worker.Stderr = &output, &errors
			check(t, worker.Start())
			takeJobsOver(t, databaseURL)
			const want = "jobs/1: done\njobs/2: lost\njobs/3: lost\njobs/4: failed: less than no time\njobs/5: done\n"
			if err := worker.Wait(); err != nil || output.String() != want {
				t.Errorf("%v\n%s\nprinted:\n%s\nexpected:\n%s", err, &errors, &output, want)
			}
			var left string
			check(t, connect(t, databaseURL).QueryRow(t.Context(), `
				select string_agg(format('%s after %s', id, attempts), ', ') from jobs where not done`).Scan(&left))
			if left != "4 after 1" {
				t.Errorf("of the jobs are left: %s, expected 4 after 1", left)
			}
		})
	}
}

// takeJobsOver waits for a worker to work on job 2, which hangs, and does the jobs 2 and 3 itself: 2 under a lease of its
// own, and 3 under a number of the worker's token, whose lease the worker goes on to renew.
func takeJobsOver(t *testing.T, databaseURL string) {
	t.Helper()
	conn := connect(t, databaseURL)
	await.True(t, "the worker has done job 1", func() (done bool) {
		check(t, conn.QueryRow(t.Context(), "select done from jobs where id = 1").Scan(&done))
		return done
	})
	_, err := conn.Exec(t.Context(), `
		select fence.guard(lock, fencing_token, 2) from fence.held where lock = 'jobs/3';
		select fence.release(lock, owner_id, lease_id, fencing_token) from fence.leases where lock = 'jobs/2';
		select fence.guard(lock, fencing_token, 1) from fence.acquire('jobs/2', 'another') a, (values ('jobs/2')) as l (lock);
		update jobs set done = true where id in (2, 3)`)
	check(t, err)
}

func connect(t *testing.T, databaseURL string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// python is that of the operating system, whose packages have the drivers.
const python = "/usr/bin/python3"

// require ends the test if the drivers of an example are not installed.
func require(t *testing.T, example string) {
	t.Helper()
	switch filepath.Ext(example) {
	case ".py":
		postgres.Require(t, python)
		err := command(t, nil, python, "-c", "import psycopg, psycopg2, sqlalchemy, django").Run()
		if err != nil {
			process.Missing(t, "psycopg, psycopg2, sqlalchemy or django is not installed")
		}
	case ".rb":
		if command(t, nil, postgres.Require(t, "ruby"), "-e", "require 'active_record'; require 'pg'").Run() != nil {
			process.Missing(t, "activerecord or pg is not installed for ruby")
		}
	case ".js":
		driver := strings.Split(filepath.Base(example), "_")[0]
		resolve := command(t, nil, postgres.Require(t, "node"), "-e", "require.resolve('"+driver+"')")
		resolve.Dir = "node"
		if resolve.Run() == nil {
			return
		}
		process.Missing(t, "the npm package "+driver+" is not installed")
	}
}

// command runs at the root of the clone.
func command(t *testing.T, env []string, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(await.Context(t), name, args...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// environment starts a gateway, and returns the variables by which the examples connect.
func environment(t *testing.T, databaseURL string) []string {
	t.Helper()
	return append(libpq(t, databaseURL), "FENCEGATE_URL="+gateway.Serve(t, databaseURL).URL)
}

// libpq returns the variables by which libpq connects to a database.
func libpq(t *testing.T, databaseURL string) []string {
	t.Helper()
	config, err := pgconn.ParseConfig(databaseURL)
	check(t, err)
	return []string{
		"PGHOST=" + config.Host, "PGPORT=" + strconv.Itoa(int(config.Port)), "PGUSER=" + config.User,
		"PGPASSWORD=" + config.Password, "PGDATABASE=" + config.Database, "PGSSLMODE=disable",
	}
}
