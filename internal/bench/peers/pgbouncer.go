package peers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// PgBouncer is one in transaction mode.
type PgBouncer struct {
	*Peer

	// URL is that of the database by way of it.
	URL string
}

// StartPgBouncer runs one before the server of a database URL, whose clients need no password. It returns ErrAbsent
// where there is none.
func StartPgBouncer(ctx context.Context, databaseURL string) (*PgBouncer, error) {
	server, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("--database-url: %w", err)
	}
	program := "pgbouncer"
	if path, err := exec.LookPath("/usr/sbin/pgbouncer"); err == nil { // Debian has it where only root's PATH looks
		program = path
	}
	peer, err := command{
		program: program, ports: 1,
		prepare: func(dir string, ports []int) error { return writePgBouncerConfig(dir, ports[0], server) },
		args: func(dir string, _ []int) []string {
			args := []string{"--quiet", filepath.Join(dir, "pgbouncer.ini")}
			if os.Geteuid() == 0 {
				args = append(args, "--user", "postgres") // it refuses root
			}
			return args
		},
		ready: func(ctx context.Context, address string) (string, error) {
			connection, err := dial(ctx, address)
			if err != nil {
				return "", err
			}
			version, err := exec.CommandContext(ctx, program, "--version").Output()
			name, _, _ := strings.Cut(string(version), "\n")
			return name, errors.Join(err, connection.Close())
		},
	}.start(ctx)
	if err != nil {
		return nil, err
	}
	return &PgBouncer{peer, (&url.URL{
		Scheme: "postgres", User: url.User(server.User), Host: peer.Address, Path: "/" + server.Database,
		RawQuery: "sslmode=disable",
	}).String()}, nil
}

// writePgBouncerConfig writes what PgBouncer reads, also as another user.
func writePgBouncerConfig(dir string, port int, server *pgx.ConnConfig) error {
	password := ""
	if server.Password != "" {
		password = " password=" + server.Password
	}
	text := fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s%s
[pgbouncer]
pool_mode = transaction
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
max_client_conn = 1000
log_stats = 0
`, server.Host, server.Port, server.User, password, port)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // a private server has no password
		return err
	}
	return os.WriteFile(filepath.Join(dir, "pgbouncer.ini"), []byte(text), 0o644) //nolint:gosec // see above
}
