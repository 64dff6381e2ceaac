package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// StartPgBouncer runs one in transaction mode before the server of a database URL, for all databases of it, whose
// clients need no password. It returns ErrAbsent where there is none.
func StartPgBouncer(ctx context.Context, databaseURL string) (*Peer, error) {
	server, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("the database's URL: %w", err)
	}
	program := "pgbouncer"
	if path, err := exec.LookPath("/usr/sbin/pgbouncer"); err == nil { // Debian has it where only root's PATH looks
		program = path
	}
	return command{
		program: program, addresses: 1,
		prepare: func(dir, address string) error { return writePgBouncerConfig(dir, address, server) },
		args: func(dir string, _ []string) []string {
			args := []string{"--quiet", filepath.Join(dir, "pgbouncer.ini")}
			if os.Geteuid() == 0 {
				args = append(args, "--user", "postgres") // it refuses root
			}
			return args
		},
		ready: func(ctx context.Context, address string) (string, error) {
			version, err := exec.CommandContext(ctx, program, "--version").Output()
			name, _, _ := strings.Cut(string(version), "\n")
			_, listening := listens(ctx, address)
			return name, errors.Join(err, listening)
		},
	}.start(ctx)
}

// ThroughPgBouncer is the URL by which a database is reached through a PgBouncer.
func ThroughPgBouncer(pooler *Peer, databaseURL string) (string, error) {
	server, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return "", fmt.Errorf("the database's URL: %w", err)
	}
	return (&url.URL{
		Scheme: "postgres", User: url.User(server.User), Host: pooler.Address, Path: "/" + server.Database,
		RawQuery: "sslmode=disable",
	}).String(), nil
}

// writePgBouncerConfig writes what PgBouncer reads, also as another user.
func writePgBouncerConfig(dir, address string, server *pgx.ConnConfig) error {
	host, port, _ := net.SplitHostPort(address)
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
max_client_conn = 1000
ignore_startup_parameters = jit, statement_timeout, lock_timeout, default_transaction_isolation, client_min_messages
log_stats = 0
server_login_retry = 0.2
`, server.Host, server.Port, server.User, password, host, port)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // a private server has no password
		return err
	}
	return os.WriteFile(filepath.Join(dir, "pgbouncer.ini"), []byte(text), 0o644) //nolint:gosec // see above
}
