package postgres

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/network"
	"github.com/fencegate/fencegate/internal/testenv/process"
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
	t       testing.TB
	address string
	command []string
	running *exec.Cmd
}

// NewPooler runs one until the test ends. Without the program the test is skipped, or fails where CI=true.
func NewPooler(t testing.TB, databaseURL string) *Pooler {
	t.Helper()
	program, err := exec.LookPath("/usr/sbin/pgbouncer") // Debian has it where only root's PATH looks
	if err != nil {
		program = Require(t, "pgbouncer")
	}
	server, err := pgx.ParseConfig(databaseURL)
	check(t, err)
	dir, err := os.MkdirTemp("", "fencegate-pgbouncer-")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	check(t, os.Chmod(dir, 0o755)) //nolint:gosec // it runs as another user, and has no secret
	p := &Pooler{t: t, address: network.FreeAddress(t)}
	host, port, err := net.SplitHostPort(p.address)
	check(t, err)
	config := filepath.Join(dir, "pgbouncer.ini")
	password := ""
	if server.Password != "" {
		password = " password=" + server.Password
	}
	text := fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s%s
[pgbouncer]
pool_mode = transaction
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = any
ignore_startup_parameters = jit, statement_timeout, lock_timeout, default_transaction_isolation, client_min_messages
log_stats = 0
server_login_retry = 0.2
`, server.Host, server.Port, server.User, password, host, port)
	check(t, os.WriteFile(config, []byte(text), 0o644)) //nolint:gosec // PgBouncer reads it as another user
	p.command = []string{program, "--quiet", config}
	if os.Geteuid() == 0 {
		p.command = append(p.command, "--user", "postgres") // it refuses root
	}
	t.Cleanup(p.Kill)
	p.Start()
	return p
}

// Start runs the pooler again after Kill, and returns when it listens.
func (p *Pooler) Start() {
	p.t.Helper()
	p.running = exec.Command(p.command[0], p.command[1:]...)
	p.running.Stderr = os.Stderr
	check(p.t, p.running.Start())
	await.True(p.t, "PgBouncer listens", func() bool {
		conn, err := new(net.Dialer).DialContext(p.t.Context(), "tcp", p.address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// Kill kills the pooler, as kill -9 does.
func (p *Pooler) Kill() {
	_ = p.running.Process.Kill()
	_ = p.running.Wait()
}

// URL returns the URL by which a database is reached through the pooler.
func (p *Pooler) URL(t testing.TB, databaseURL string) string {
	t.Helper()
	server, err := pgx.ParseConfig(databaseURL)
	check(t, err)
	return (&url.URL{
		Scheme: "postgres", User: url.User(server.User), Host: p.address, Path: "/" + server.Database, RawQuery: "sslmode=disable",
	}).String()
}
