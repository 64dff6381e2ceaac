//go:build unix

package examples_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// TestWorkersThatFreeze runs the programs of docs/sql/languages.md, each of which withdraws 10 whenever it reads a line.
// One that is frozen while another takes its lock over is rejected when it wakes. Before, it renews its lease; the other
// one releases its own. The Java program finds out whether a COMMIT without an answer was made.
func TestWorkersThatFreeze(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/sql/languages.md")
	check(t, err)
	shown := transcript.FindStringSubmatch(string(page))
	if len(shown) == 0 {
		t.Fatal("docs/sql/languages.md does not show what a worker prints")
	}
	classes, databaseURL := compiledJava(t), postgres.Migrated(t)
	if output, err := command(t, libpq(t, databaseURL), postgres.Require(t, "psql"), "-X", "-f", "examples/accounts.sql").
		CombinedOutput(); err != nil {
		t.Fatalf("accounts.sql: %v\n%s", err, output)
	}
	for lock, program := range map[string]string{
		"accounts/12": "Worker", "accounts/13": "ScheduledTask", // a task of ShedLock
		"accounts/14": "django/worker.py", "accounts/15": "rails/worker.rb",
	} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			require(t, program)
			var words []string
			switch filepath.Ext(program) {
			case ".py":
				words = []string{python, "examples/" + program}
			case ".rb":
				words = []string{"ruby", "examples/" + program}
			default:
				words = []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classes(t) + ":" + jdbcDriver, program}
			}
			db := newWay(t, databaseURL)
			a := db.start(t, words, "worker-a")
			b := testTakeOver(t, db, lock, a)
			if got := a.end(t); masked(got) != masked(shown[2]) {
				t.Errorf("worker-a printed:\n%s\nexpected:\n%s", got, shown[2])
			}
			b.withdraw(t, 70)
			if program == "Worker" {
				testLostCommits(t, db, b)
			}
			b.end(t)
			var status string
			check(t, db.QueryRow(t.Context(), "select status from fence.acquire($1, 'worker-c')", lock).Scan(&status))
			if status != "granted" {
				t.Errorf("an acquire after the end of worker-b is %q, expected granted: it has released its lease", status)
			}
		})
	}
}

// testTakeOver freezes a worker after it has written and renewed its lease, has another one take its lock over and write,
// and has the frozen one wake and write again. It returns the other one.
func testTakeOver(t *testing.T, db way, lock string, a running) (b running) {
	t.Helper()
	a.withdraw(t, 90)
	await.True(t, "worker-a renews its lease of two seconds", func() (renewed bool) {
		check(t, db.QueryRow(t.Context(), `
			select exists (select from fence.leases where lock = $1 and expires_at > granted_at + interval '2001 ms')`, lock).
			Scan(&renewed))
		return renewed
	})

	check(t, a.cmd.Process.Signal(syscall.SIGSTOP))
	await.True(t, "worker-a is frozen", func() bool { return strings.HasPrefix(process.State(a.cmd.Process.Pid), "T") })
	b = db.start(t, a.words, "worker-b")
	b.withdraw(t, 80)
	check(t, a.cmd.Process.Signal(syscall.SIGCONT))
	a.pressEnter(t)
	return b
}

// testLostCommits cuts the connection of a worker while its COMMIT waits in the server, which then makes it, or rolls it
// back. The worker finds out which, and withdraws once.
func testLostCommits(t *testing.T, db way, w running) {
	t.Helper()
	_, err := db.Exec(t.Context(), `
		create function wait() returns trigger language plpgsql as $$ begin
			perform pg_advisory_xact_lock_shared(1); return null; end $$;
		create constraint trigger wait after update on accounts deferrable initially deferred
			for each row when (new.id = 12) execute function wait()`)
	check(t, err)
	for i, end := range []string{"true", "pg_terminate_backend($1, 60000)"} {
		_, err := db.Exec(t.Context(), "select pg_advisory_lock(1)")
		check(t, err)
		w.pressEnter(t)
		var pid int
		await.True(t, "the COMMIT waits", func() bool {
			err := db.QueryRow(t.Context(), `
				select l.pid from pg_locks l join pg_database d on d.oid = l.database
				where d.datname = current_database() and l.locktype = 'advisory' and not l.granted`).Scan(&pid)
			return err == nil
		})
		db.relay.PointAt(db.target)
		_, err = db.Exec(t.Context(), "select "+end+" and $1 > 0 and pg_advisory_unlock(1)", pid)
		check(t, err)
		w.read(t, 60-10*i)
	}
	var balance int
	check(t, db.QueryRow(t.Context(), "select balance from accounts where id = 12").Scan(&balance))
	if balance != 50 {
		t.Errorf("the balance is %d after 5 withdrawals, expected 50", balance)
	}
}

// jdbcDriver is where Debian has it.
const jdbcDriver = "/usr/share/java/postgresql.jar"

// compiledJava returns a function that compiles the programs for Java at its first call, and returns their directory.
// ShedLock is not among Debian's packages, so declarations in testdata take its place.
func compiledJava(t *testing.T) func(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	compile := sync.OnceValues(func() ([]byte, error) {
		var sources []string
		for _, pattern := range []string{
			"java/*.java", "java/shedlock/*.java", "testdata/shedlock/*.java", "testdata/shedlock/net/javacrumbs/shedlock/core/*.java",
		} {
			found, _ := filepath.Glob(pattern)
			sources = append(sources, found...)
		}
		args := []string{"-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-proc:none", "-d", dir, "-cp", jdbcDriver}
		return exec.Command("javac", append(args, sources...)...).CombinedOutput()
	})
	return func(t *testing.T) string {
		t.Helper()
		postgres.Require(t, "javac")
		if _, err := os.Stat(jdbcDriver); err != nil {
			process.Missing(t, "PostgreSQL's driver for JDBC is not installed: "+err.Error())
		}
		if output, err := compile(); err != nil {
			t.Fatalf("javac: %v\n%s", err, output)
		}
		return dir
	}
}

// way is a way to the database by TCP that can be cut. JDBC knows no Unix sockets.
type way struct {
	*pgx.Conn
	relay  *network.Relay
	target string
	env    []string
}

func newWay(t *testing.T, databaseURL string) way {
	t.Helper()
	config, err := pgconn.ParseConfig(databaseURL)
	check(t, err)
	kind, target := pgconn.NetworkAddress(config.Host, config.Port)
	relay, err := network.NewRelay(t.Context(), kind, target)
	check(t, err)
	t.Cleanup(relay.Close)
	return way{connect(t, databaseURL), relay, target, append(libpq(t, databaseURL),
		"JDBC_URL=jdbc:postgresql://"+relay.Address()+"/"+config.Database+"?user="+config.User+"&password="+config.Password)}
}

// running is a worker that runs. It ends with its standard input.
type running struct {
	words   []string
	owner   string
	cmd     *exec.Cmd
	input   io.WriteCloser
	lines   *bufio.Scanner
	printed *strings.Builder
	errors  *process.Buffer
}

func (db way) start(t *testing.T, words []string, owner string) running {
	t.Helper()
	cmd := command(t, db.env, words[0], append(slices.Clone(words[1:]), owner)...)
	input, err := cmd.StdinPipe()
	check(t, err)
	output, err := cmd.StdoutPipe()
	check(t, err)
	errors := &process.Buffer{}
	cmd.Stderr = errors
	check(t, cmd.Start())
	return running{words, owner, cmd, input, bufio.NewScanner(output), &strings.Builder{}, errors}
}

func (r running) pressEnter(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(r.input, "\n")
	check(t, err)
}

// read reads a line, which says that the balance is this.
func (r running) read(t *testing.T, balance int) {
	t.Helper()
	if !r.lines.Scan() || r.lines.Text() != fmt.Sprintf("%s: the balance is %d", r.owner, balance) {
		t.Fatalf("%s printed %q, expected that the balance is %d\n%s", r.owner, r.lines.Text(), balance, r.errors)
	}
	r.printed.WriteString(r.lines.Text() + "\n")
}

func (r running) withdraw(t *testing.T, balance int) {
	t.Helper()
	r.pressEnter(t)
	r.read(t, balance)
}

// end ends the input, and returns all that the worker has printed.
func (r running) end(t *testing.T) string {
	t.Helper()
	check(t, r.input.Close())
	for r.lines.Scan() {
		r.printed.WriteString(r.lines.Text() + "\n")
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", r.owner, err, r.errors)
	}
	return r.printed.String()
}

// TestShownCode checks that docs/sql/languages.md shows code of the examples, as it is there but for the indentation.
func TestShownCode(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/sql/languages.md")
	check(t, err)
	sources := map[string]string{"java": "java/*.java", "python": "django/*.py", "ruby": "rails/*.rb"}
	blocks := regexp.MustCompile("(?s)```(java|python|ruby)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < len(sources) {
		t.Errorf("docs/sql/languages.md shows %d pieces of code, expected one of each language", len(blocks))
	}
	for _, block := range blocks {
		var code strings.Builder
		files, _ := filepath.Glob(sources[block[1]])
		for _, file := range files {
			text, err := os.ReadFile(file)
			check(t, err)
			code.WriteString(unindented(string(text)))
		}
		if !strings.Contains(code.String(), unindented(block[2])) {
			t.Errorf("%s has no such code:\n%s", sources[block[1]], block[2])
		}
	}
}

var indentation = regexp.MustCompile(`(?m)^ +`)

func unindented(text string) string { return indentation.ReplaceAllString(text, "") }
