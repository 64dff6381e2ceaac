package pgtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/freeport"
)

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
	p := &Pooler{t: t, address: freeport.Address(t)}
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
