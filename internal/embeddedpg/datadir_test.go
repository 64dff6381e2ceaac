package embeddedpg

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

func TestUnfinishedInitdbIsNoCluster(t *testing.T) {
	dir := newDataDir(t)
	real, err := FindBinaries()
	check(t, err)
	fake := filepath.Join(filepath.Dir(dir), "bin")
	install(t, fake, real.Version)
	script(t, filepath.Join(fake, "initdb"), `while [ "$1" != --pgdata ]; do shift; done
echo `+strconv.Itoa(real.Major)+` >"$2/PG_VERSION"
echo the disk is full
exit 1`)

	_, err = Start(await.Context(t), Config{DataDir: dir, BinDir: fake})
	if err == nil {
		t.Fatal("started")
	}
	mentions(t, err, "initdb", "the disk is full")
	if _, err := os.Lstat(filepath.Join(dir, "cluster")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("half a cluster is in place: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, stagingPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("half a cluster was left lying about: %v, %v", left, err)
	}

	// What an initdb leaves whose machine lost power.
	half := mustMkdir(t, filepath.Join(dir, stagingPrefix+"123"))
	check(t, os.WriteFile(filepath.Join(half, "PG_VERSION"), []byte("15\n"), 0o600))
	mustStart(t, Config{DataDir: dir})
	if _, err := os.Lstat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a cluster was left lying about: %v", err)
	}
}

func TestClusterOfAnotherVersion(t *testing.T) {
	t.Parallel()
	dir := clusterDir(t)
	cluster := mustStart(t, Config{DataDir: dir})
	mustStop(t, cluster)
	version := filepath.Join(cluster.layout.cluster(), "PG_VERSION")

	check(t, os.WriteFile(version, []byte("99\n"), 0o600))
	_, err := Start(await.Context(t), Config{DataDir: dir})
	if !errors.Is(err, ErrVersionMismatch) {
		t.Fatalf("got %v", err)
	}
	mentions(t, err, "made by PostgreSQL 99", cluster.Binaries().Version, "pg_upgrade")

	check(t, os.WriteFile(version, []byte("13\n"), 0o600))
	if _, err := Start(await.Context(t), Config{DataDir: dir}); !errors.Is(err, ErrDataDirUnusable) {
		t.Errorf("an older version: %v", err)
	}
	check(t, os.Remove(version))
	if _, err := Start(await.Context(t), Config{DataDir: dir}); !errors.Is(err, ErrDataDirUnusable) {
		t.Errorf("without a version: %v", err)
	}
}

func TestForeignClusterIsRefused(t *testing.T) {
	t.Parallel()
	dir := mustMkdir(t, newDataDir(t))
	check(t, os.WriteFile(filepath.Join(dir, "PG_VERSION"), []byte("15\n"), 0o600))
	_, err := Start(await.Context(t), Config{DataDir: dir})
	if !errors.Is(err, ErrDataDirUnusable) {
		t.Fatalf("got %v", err)
	}
	mentions(t, err, dir, "--data-dir", "--database-url")
	entries, err := os.ReadDir(dir)
	check(t, err)
	if len(entries) != 1 {
		t.Errorf("something was put into it: %v", entries)
	}
}

func TestClusterOfAnotherUserIsTakenOver(t *testing.T) {
	t.Parallel()
	account := currentAccount(t)
	if account == nil {
		t.Skip("only root can give files away")
	}
	dir := clusterDir(t)
	cluster := mustStart(t, Config{DataDir: dir})
	run(t, cluster.URL(), "create table kept (id bigint)")
	mustStop(t, cluster)
	check(t, exec.Command("chown", "-R", "0", cluster.layout.cluster()).Run()) // as a copy that root made
	again := mustStart(t, Config{DataDir: dir})
	run(t, again.URL(), "select from kept")
}

func TestDirectoryThatTheOtherUserCanNotReach(t *testing.T) {
	t.Parallel()
	if currentAccount(t) == nil {
		t.Skip("only root runs PostgreSQL as another user")
	}
	barred := mustMkdir(t, filepath.Join(filepath.Dir(newDataDir(t)), "barred"))
	check(t, os.Chmod(barred, 0o700))
	_, err := Start(await.Context(t), Config{DataDir: filepath.Join(barred, "a", "b")})
	if !errors.Is(err, ErrDataDirUnusable) {
		t.Fatalf("got %v", err)
	}
	mentions(t, err, "can't enter "+barred+";", "chmod o+x "+barred, "--data-dir")
}

func TestOrdinaryUser(t *testing.T) {
	account := currentAccount(t)
	dir := newDataDir(t)
	self := filepath.Join(filepath.Dir(dir), "self")
	program, err := os.ReadFile(os.Args[0]) // which may be out of the other user's reach
	check(t, err)
	check(t, os.WriteFile(self, program, 0o755))
	parent := mustMkdir(t, filepath.Join(filepath.Dir(dir), "home"))
	check(t, account.give(parent))

	for range 2 { // it ends its cluster at the end of its input
		cmd := account.command(await.Context(t), self)
		cmd.Env = append(os.Environ(), helperEnv+"="+helperOwn, helperDir+"="+filepath.Join(parent, "state", "data"))
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	info, err := os.Stat(filepath.Join(parent, "state", "data"))
	check(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("others may enter the data directory: %v", info.Mode())
	}
}
