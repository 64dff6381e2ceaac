package postgres

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// Require returns the path of a program that the test needs. PostgreSQL's own are taken from beside the postgres that
// runs the clusters, so that versions agree; others from the PATH. If it is missing, the test is
// skipped, or fails where CI=true.
func Require(t testing.TB, program string) string {
	t.Helper()
	if binaries, err := embeddedpg.FindBinaries(); err == nil {
		if path, err := exec.LookPath(binaries.Path(program)); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(program)
	if err != nil {
		process.Missing(t, program+" is not installed")
	}
	return path
}

// RequireDump returns the paths of pg_dump and of another program. It skips the test if pg_dump is older than the
// PostgreSQL that runs the clusters, whose data it can't read then: not every installation has its own.
func RequireDump(t testing.TB, restore string) (pgDump, restorePath string) {
	t.Helper()
	pgDump, restorePath = Require(t, "pg_dump"), Require(t, restore)
	output, err := exec.CommandContext(await.Context(t), pgDump, "--version").Output()
	check(t, err)
	var major int
	if _, err := fmt.Sscanf(string(output), "pg_dump (PostgreSQL) %d", &major); err != nil {
		t.Fatalf("pg_dump --version says %q", output)
	}
	if binaries, err := embeddedpg.FindBinaries(); err == nil && major < binaries.Major {
		t.Skipf("pg_dump is of PostgreSQL %d, the server of %d", major, binaries.Major)
	}
	return pgDump, restorePath
}

// NewEncrypted runs a PostgreSQL of one test's own that listens by TCP, takes no connection without TLS, and has this
// certificate. It returns its address. The role and the database are fencegate, without a password.
func NewEncrypted(t testing.TB, certificate, key []byte) string {
	t.Helper()
	cluster := NewCluster(t)
	cluster.Stop()
	dir := filepath.Join(cluster.dataDir, "cluster")
	info, err := os.Stat(dir)
	check(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	for name, text := range map[string][]byte{
		"server.crt": certificate, "server.key": key, "encrypted_hba.conf": []byte("hostssl all all 127.0.0.1/32 trust\n"),
	} {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, text, 0o600))
		check(t, os.Chown(path, int(owner.Uid), int(owner.Gid)))
	}
	binaries, err := embeddedpg.FindBinaries()
	check(t, err)
	address := network.FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	check(t, err)
	command := exec.Command(binaries.Path("postgres"), "-D", dir, "-c", "listen_addresses=127.0.0.1", "-c", "port="+port,
		"-c", "unix_socket_directories=", "-c", "hba_file="+filepath.Join(dir, "encrypted_hba.conf"),
		"-c", "ssl=on", "-c", "dynamic_shared_memory_type=mmap")
	command.Dir, command.Env = dir, []string{"LC_ALL=C"}
	if os.Geteuid() == 0 { // PostgreSQL refuses root
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	check(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGINT)
		_ = command.Wait()
	})
	await.True(t, "PostgreSQL listens", func() bool {
		connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	})
	return address
}

// Pooler is a PgBouncer in transaction mode before the server of a database URL, for all databases of it.
type Pooler struct {
	t testing.TB
	*peers.Peer
}

// NewPooler runs one until the test ends. Without the program the test is skipped, or fails where CI=true.
func NewPooler(t testing.TB, databaseURL string) *Pooler {
	t.Helper()
	pooler, err := peers.StartPgBouncer(t.Context(), databaseURL)
	if errors.Is(err, peers.ErrAbsent) {
		process.Missing(t, err.Error())
	}
	check(t, err)
	t.Cleanup(func() { check(t, pooler.Stop()) })
	return &Pooler{t, pooler}
}

// Start runs the pooler again after Kill, and returns when it listens.
func (p *Pooler) Start() {
	p.t.Helper()
	check(p.t, p.Peer.Start(p.t.Context()))
}

// URL returns the URL by which a database is reached through the pooler.
func (p *Pooler) URL(t testing.TB, databaseURL string) string {
	t.Helper()
	through, err := peers.ThroughPgBouncer(p.Peer, databaseURL)
	check(t, err)
	return through
}
