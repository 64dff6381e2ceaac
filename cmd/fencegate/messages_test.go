package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
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
		serverMistakes(passwordCluster(t), strings.TrimPrefix(plain.url, "http://"))) {
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
	if hint := noAnswer(&net.OpError{Op: "remote error"}); !strings.Contains(hint, "--cert") {
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
		{plain, "lock acquire held", 3, "Try again in |--wait 1m|\"fencegate lock break\""},
		{plain, "lock get missing", 5, "no lock missing|!Is the URL right?"},
		{plain, "lock get a//b", 8, "none of them empty"},
		{plain, "lock acquire x --ttl 1", 2, "--ttl: \"1\"|" + durations},
		{plain, "lock ls --timeout 30", 2, "--timeout: \"30\"|" + durations},
		{plain, "run --lock x --wait 30 -- true", 2, "--wait: \"30\"|" + durations},
		{plain, "rejections --since 1d", 2, "--since: \"1d\"|" + durations},
		{"", "serve --request-timeout 30", 2, "--request-timeout: \"30\"|" + durations},
		{plain, "lock ls -o jsn", 2, "--output is \"jsn\"|one of table, json, yaml, env: did you mean json?"},
		{plain, "lock ls -o josn", 2, "did you mean json?"},
		{plain, "lock ls -o xml", 2, "one of table, json, yaml, env|!did you mean"},
		{plain, "lock ls --state hold", 2, "one of free, held, expired, active: did you mean held?"},
		{plain, "lock ls --limit ten", 2, "a whole number|!64 bit"},
		{plain, "lock renew a --lease-id x --token 34.2", 2, "--token: 34.2 has a sequence|give 34\n"},
		{plain, "put a k --token 34 --file /nonexistent", 1, "/nonexistent: no such file"},
		{"", "frobnicate", 2, "frobnicate|Run \"fencegate --help\""},
		{"", "serve --auth key", 2, "did you mean keys?"},
		{plain, "audit verify --head 3:12", 2, "is not a head"},
		{plain, "audit verify --head 03:" + strings.Repeat("0", 64), 2, "is not a head"},
		{plain, "audit verify --head +3:" + strings.Repeat("0", 64), 2, "is not a head"},
		{plain, "audit verify --head 3:" + strings.Repeat("A", 64), 2, "is not a head"},
	}
}

// serverMistakes are commands with a wrong address or database.
func serverMistakes(cluster *postgres.Cluster, taken string) []mistake {
	const check, secret = "check --database-url ", "postgres://u:s3cret"
	return []mistake{
		{"", "serve --listen 0.0.0.0:0", 2, "--listen 0.0.0.0:0,|--auth keys|--insecure-no-auth"},
		{"", "serve --debug-listen 0.0.0.0:0 --listen 127.0.0.1:0", 2, "--debug-listen 0.0.0.0:0,|--insecure-no-auth"},
		{"", "serve --listen 0.0.0.0", 1, "Give an address and a port: --listen 0.0.0.0:8080\n"},
		{"", "serve --listen 8080", 1, "Give an address and a port: --listen 127.0.0.1:8080\n"},
		{"", "serve --listen " + taken, 1, "--listen " + taken + "|another port"},
		{"", check + secret + "@127.0.0.1:1/db", 7, "Is PostgreSQL running there, and is --database-url right?"},
		{"", check + cluster.DatabaseURL("missing"), 7, "createdb|--database-url|!Is PostgreSQL running"},
		{"", check + roleURL(cluster, "nobody"), 7, "createuser|pg_hba.conf|--database-url"},
		{"", check + roleURL(cluster, "guest:s3cret"), 7, "The password of the role|--database-url"},
		{"", "tables ls --database-url " + cluster.DatabaseURL("missing"), 7, "createdb"},
		{"", "check --database-url postgres://u:s3cr/et%zz@h:5432/db", 2, "postgres://USER:PASSWORD@HOST|%2F for /|!et%zz"},
		{"", "migrate --database-url postgres://u:p@s3cret/x@h/db", 2, "more than one @|%40 for @"},
		{"", "serve --listen :0 --auth keys --database-url host=h --listen-url " + secret + "%z@h", 2, "--listen-url: |%25"},
		{"", "keys create a --grant all: --in-database " + secret + "@127.0.0.1:1/db", 7, "is --in-database right?|!outcome"},
		{"", "keys create a --grant all: --in-database " + secret + "%z@h", 2, "fencegate: --in-database: |%25 for %"},
	}
}

// passwordCluster starts a PostgreSQL whose role guest needs a password.
func passwordCluster(t *testing.T) *postgres.Cluster {
	t.Helper()
	cluster := postgres.NewCluster(t)
	connection, err := pgx.Connect(t.Context(), cluster.URL())
	check(t, err)
	defer func() { _ = connection.Close(t.Context()) }()
	var path string
	check(t, connection.QueryRow(t.Context(), "select current_setting('hba_file')").Scan(&path))
	rules, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(path, append([]byte("local all guest scram-sha-256\n"), rules...), 0o600))
	_, err = connection.Exec(t.Context(), "create role guest login password 'another'; select pg_reload_conf()")
	check(t, err)
	await.True(t, "PostgreSQL asks guest for a password", func() bool {
		guest, err := pgx.Connect(t.Context(), roleURL(cluster, "guest"))
		if err == nil {
			_ = guest.Close(t.Context())
		}
		return err != nil
	})
	return cluster
}

// roleURL is the URL of a cluster's database with another user and password.
func roleURL(cluster *postgres.Cluster, role string) string {
	_, rest, _ := strings.Cut(cluster.DatabaseURL("postgres"), "@")
	return "postgres://" + role + "@" + rest
}
