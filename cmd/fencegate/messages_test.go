package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// mistake is a command that fails, and what its message has.
type mistake struct {
	url, command string
	code         int
	words        string // separated by |; what follows a ! is absent
}

// A mistake of a first hour exits with its code, and the message names the flag, the variable or the command that comes
// next. No message shows a password. TestRunStopsACommandThatHasLostItsLease has those of a lost lease.
func TestMessagesSayWhatToDo(t *testing.T) {
	t.Parallel()
	database := postgres.Migrated(t)
	plain := newShellOn(t, database)
	plain.must("lock", "acquire", "held", "--ttl", "1h")
	for _, test := range slices.Concat(connectionMistakes(t, database, plain.url), commandLineMistakes(plain.url),
		serverMistakes(t, database, strings.TrimPrefix(plain.url, "http://"))) {
		t.Run(test.command, func(t *testing.T) {
			t.Parallel()
			got := shell{t, test.url}.do(strings.Fields(test.command)...)
			if got.code != test.code || got.out != "" {
				t.Errorf("exited with %d, want %d; stdout: %q", got.code, test.code, got.out)
			}
			for words := range strings.SplitSeq(test.words+"|!s3cr", "|") {
				if absent, is := strings.CutPrefix(words, "!"); strings.Contains(got.errOut, absent) == is {
					t.Errorf("want %q in, or after ! not in, the message:\n%s", words, got.errOut)
				}
			}
		})
	}
	for code, words := range map[string]string{
		"28P01": "The password of the role", "28000": "createuser", "08P01": "by --listen-url, too",
	} {
		if err := noDatabase("--database-url", &pgconn.PgError{Code: code}); !strings.Contains(err.Error(), words) ||
			strings.Contains(err.Error(), "Is PostgreSQL running") {
			t.Errorf("for %s the message is %v", code, err)
		}
	}
	if hint := noAnswer(&net.OpError{Op: "remote error"}, false); !strings.Contains(hint, "--cert") {
		t.Errorf("the hint for a refused client certificate is %q", hint)
	}
}

// connectionMistakes are commands that a gateway does not answer, or refuses.
func connectionMistakes(t *testing.T, database, plain string) []mistake {
	t.Helper()
	keys := newShellOn(t, database, "--auth", "keys").url
	encrypted, authority, _ := newTLSShell(t)
	authority += "/ca.pem"
	other := filepath.Join(t.TempDir(), "other")
	shell{t: t}.must("dev-cert", other, "--host", "gateway.test")
	named := newShellOn(t, database, "--tls-cert", other+"/server.pem", "--tls-key", other+"/server-key.pem").url
	reader := filepath.Join(t.TempDir(), "reader")
	key := fields(shell{t: t}.must("keys", "create", "reader", "--grant", "read:", "--in-database", database))["key"]
	check(t, os.WriteFile(reader, []byte(key), 0o600))
	const notRunning = "!Is the gateway running"
	return []mistake{
		{keys, "lock ls", 9, "--token-file|FENCEGATE_BEARER_TOKEN|--cert|\"fencegate keys create\""},
		{keys, "run --try --lock a -- true", 125, "--token-file|FENCEGATE_BEARER_TOKEN"},
		{keys, "lock acquire a --token-file " + reader, 9, "\"fencegate whoami\""},
		{encrypted.url, "lock ls", 7, "--ca-cert|FENCEGATE_CA_CERT|" + notRunning},
		{named, "lock ls --ca-cert " + other + "/ca.pem", 7, "that its certificate has|" + notRunning},
		{strings.Replace(encrypted.url, "https", "http", 1), "health --ca-cert " + authority, 1, "the URL with https://"},
		{strings.Replace(plain, "http", "https", 1), "lock ls", 7, "begin the URL with http://|" + notRunning},
		{plain + "/v1", "lock ls", 5, "Is the URL right?"},
		{"http://127.0.0.1:1", "lock ls", 7, notRunning[1:] + "|--url|FENCEGATE_URL"},
	}
}

// commandLineMistakes are commands whose words are wrong.
func commandLineMistakes(plain string) []mistake {
	const durations = "such as 500ms, 1s, 5m or 24h"
	return []mistake{
		{"", "", 2, "Usage: fencegate <command>|\n  lock acquire |!fencegate: "},
		{plain, "lock ls --token-file /nonexistent", 2, "fencegate: --token-file: |/nonexistent: no such file|!--url"},
		{plain, "lock acquire held", 3, ". Try again in |--wait 1m|\"fencegate lock break --reason TEXT\"|!\nTry again|!recommended"},
		{plain, "lock acquire held --ttl 48h", 2, "--ttl: it is 48h, it must be 100ms to 24h"},
		{plain, "run --ttl 25h --lock held true", 2, "--ttl: it is 25h, it must be 300ms to 24h"},
		{plain, "put held k v --token .1", 2, "has no token|FENCEGATE_TOKEN"},
		{plain, "get held " + strings.Repeat("x", 600), 8, "The name of the key has 600 bytes; at most 512 are allowed.\n"},
		{plain, "lock get missing", 5, "no lock missing|!Is the URL right?"},
		{plain, "lock get a//b", 8, "none of them empty"},
		{plain, "lock ls --timeout 30", 2, "--timeout: \"30\"|" + durations},
		{plain, "rejections --since 1d", 2, "--since: \"1d\"|" + durations},
		{plain, "lock ls -o jsn", 2, "--output is \"jsn\"|one of table, json, yaml, env: did you mean json?"},
		{plain, "lock ls -o xml", 2, "one of table, json, yaml, env|!did you mean"},
		{plain, "lock ls --state hold", 2, "one of free, held, expired, active: did you mean held?"},
		{plain, "lock renew a --lease-id x --token 34.2", 2, "--token: 34.2 has a sequence|give 34\n"},
		{"", "frobnicate", 2, "frobnicate|Run \"fencegate --help\""},
		{plain, "audit verify --head 3:12", 2, "is not a head"},
	}
}

// applicationRole returns a URL of the database with a role that is no gateway's.
func applicationRole(t *testing.T, database string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	check(t, err)
	role := "app_" + strings.ToLower(rand.Text())
	_, err = conn.Exec(t.Context(), "create role "+role+" login")
	check(t, err)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "drop role "+role)
		check(t, errors.Join(err, conn.Close(context.Background())))
	})
	address, err := url.Parse(database)
	check(t, err)
	address.User = url.User(role)
	return address.String()
}

// A program without a directory for its files says which variable names it.
func TestMissingTemporaryDirectory(t *testing.T) {
	t.Parallel()
	demo := exec.CommandContext(t.Context(), process.Build(t), "demo", "zombie", "--rounds", "1")
	demo.Env = append(os.Environ(), "TMPDIR=/nonexistent")
	if out, err := demo.CombinedOutput(); err == nil || !strings.Contains(string(out), "TMPDIR must name a directory") {
		t.Errorf("%v: %s", err, out)
	}
}

// serverMistakes are commands with a wrong address or database.
func serverMistakes(t *testing.T, database, taken string) []mistake {
	t.Helper()
	const check, secret = "check --database-url ", "postgres://u:s3cret"
	config, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	missing := fmt.Sprintf("postgres://%s:%s@/missing?host=%s&port=%d", config.User, config.Password, config.Host, config.Port)
	application := applicationRole(t, database)
	pooler := postgres.NewPooler(t, database).URL(t, database)
	const serve, noPostgres = "serve --listen 127.0.0.1:0 --database-url ", "|!Is PostgreSQL running|!refused TLS"
	return []mistake{
		{"", serve + application, 9, "permission denied for|--gateway-role" + noPostgres},
		{"", serve + pooler, 1, "--database-url leads through a pooler|--listen-url" + noPostgres},
		{"", "serve --debug-listen 0.0.0.0:0 --listen 127.0.0.1:0", 2, "--debug-listen 0.0.0.0:0,|--insecure-no-auth"},
		{"", "serve --listen 0.0.0.0", 1, "Give an address and a port: --listen 0.0.0.0:8080\n"},
		{"", "serve --listen " + taken, 1, "--listen " + taken + "|another port"},
		{"", check + secret + "@127.0.0.1:1/db", 7, "Is PostgreSQL running there, and is --database-url right?"},
		{"", check + missing, 7, "createdb|--database-url|!Is PostgreSQL running"},
		{"", "check --database-url postgres://u:s3cr/et%zz@h:5432/db", 2, "postgres://USER:PASSWORD@HOST|%2F for /|!et%zz"},
		{"", "migrate --database-url postgres://u:p@s3cret/x@h/db", 2, "more than one @|%40 for @"},
		{"", "serve --listen :0 --auth keys --database-url host=h --listen-url " + secret + "%z@h", 2, "--listen-url: |%25"},
		{"", "keys create a --grant all: --in-database " + secret + "@127.0.0.1:1/db", 7, "is --in-database right?|!outcome"},
		{"", "keys create a --grant all: --in-database " + secret + "%z@h", 2, "fencegate: --in-database: |%25 for %"},
	}
}
