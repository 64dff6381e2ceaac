package embeddedpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// The test binary runs itself as another process where a test needs one to kill, or one of another user.
const (
	helperEnv = "FENCEGATE_EMBEDDEDPG_HELPER"
	helperDir = "FENCEGATE_EMBEDDEDPG_DIR"
	helperOwn = "own" // owns a cluster until it is killed
)

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == helperOwn {
		exitWith(ownUntilKilled(os.Getenv(helperDir)))
	}
	code := m.Run()
	removeTemplate()
	os.Exit(code)
}

func exitWith(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ownUntilKilled prints the pids of the postmaster and of the watchdog, and then the URL.
func ownUntilKilled(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	cluster, err := Start(ctx, Config{DataDir: dir})
	if err != nil {
		return err
	}
	fmt.Println(cluster.PID(), cluster.dog.cmd.Process.Pid, cluster.URL())
	_, err = io.Copy(io.Discard, os.Stdin) // ends if the test does
	cluster.end()
	return err
}

func exec1(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// owner is a process that owns a cluster.
type owner struct {
	process    *exec.Cmd
	postmaster int
	watchdog   int
	url        string
}

func startOwner(t *testing.T, dir string) owner {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+helperOwn, helperDir+"="+dir)
	stdin, err := cmd.StdinPipe()
	check(t, err)
	stdout, err := cmd.StdoutPipe()
	check(t, err)
	cmd.Stderr = os.Stderr
	check(t, cmd.Start())
	o := owner{process: cmd}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		_ = cmd.Wait() // its error is that it was killed
		// The watchdog ends PostgreSQL, which must be gone before its directory is removed.
		await.True(t, "PostgreSQL has ended", func() bool { return o.postmaster == 0 || !process.Running(o.postmaster) })
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	check(t, err)
	if _, err := fmt.Sscan(line, &o.postmaster, &o.watchdog, &o.url); err != nil {
		t.Fatalf("the owner says %q: %v", line, err)
	}
	return o
}

// killOwner kills the owner alone, as kill -9 and the kernel's out-of-memory killer do.
func (o owner) kill(t *testing.T) {
	t.Helper()
	check(t, o.process.Process.Kill())
	_ = o.process.Wait() // its error is that it was killed
}

// newDataDir returns a data directory that does not exist yet, in a place that every user can reach.
func newDataDir(t *testing.T) string {
	t.Helper()
	if _, err := FindBinaries(); err != nil {
		needBinaries(t, err)
	}
	parent, err := os.MkdirTemp(process.TempParent(), "fg-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(parent)) })
	check(t, os.Chmod(parent, 0o711))
	return filepath.Join(parent, "data")
}

// needBinaries skips the test, or fails it where nothing may be missing.
func needBinaries(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%v; run `make test-deps`", err)
	}
	t.Skipf("%v; run `make test-deps`", err)
}

func mustStart(t *testing.T, config Config) *Cluster {
	t.Helper()
	if testing.Verbose() && config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	ctx := await.Context(t)
	cluster, err := Start(ctx, config)
	check(t, err)
	t.Cleanup(func() { cluster.end() })
	return cluster
}

func mustStop(t *testing.T, cluster *Cluster) {
	t.Helper()
	check(t, cluster.Stop(await.Context(t)))
	check(t, cluster.Err())
}

func run(t *testing.T, url, sql string) {
	t.Helper()
	check(t, exec1(await.Context(t), url, sql))
}

// query returns the one text that a query yields.
func query(t *testing.T, url, sql string) (answer string) {
	t.Helper()
	ctx := await.Context(t)
	conn, err := pgx.Connect(ctx, url)
	check(t, err)
	defer conn.Close(ctx)
	check(t, conn.QueryRow(ctx, sql).Scan(&answer))
	return answer
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// currentAccount is the user that PostgreSQL runs as in this test.
func currentAccount(t *testing.T) *account {
	t.Helper()
	account, err := pickAccount(os.Geteuid(), osuser.Lookup)
	check(t, err)
	return account
}

func mentions(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(fmt.Sprint(err), word) {
			t.Errorf("the error does not mention %q: %v", word, err)
		}
	}
}

// template is a data directory with a cluster that was never written to. Copies of it spare most tests an initdb.
var template struct {
	once   sync.Once
	parent string
	err    error
}

// clusterDir returns a data directory that holds a cluster, never started.
func clusterDir(t *testing.T) string {
	t.Helper()
	dir := newDataDir(t)
	template.once.Do(func() { template.err = makeTemplate() })
	check(t, template.err)
	mustMkdir(t, dir)
	source := layout{root: filepath.Join(template.parent, "data")}.cluster()
	if output, err := exec.Command("cp", "-Rp", source, layout{root: dir}.cluster()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return dir
}

func makeTemplate() (err error) {
	if template.parent, err = os.MkdirTemp(process.TempParent(), "fg-"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	if err := os.Chmod(template.parent, 0o711); err != nil {
		return err
	}
	cluster, err := Start(ctx, Config{DataDir: filepath.Join(template.parent, "data")})
	if err != nil {
		return err
	}
	return errors.Join(cluster.Stop(ctx), cluster.Err())
}

func removeTemplate() {
	if template.parent != "" {
		_ = os.RemoveAll(template.parent)
	}
}
