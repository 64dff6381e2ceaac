package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/devcert"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// newTLSShell starts a gateway with the files of "fencegate dev-cert" and more flags, and returns the flags of its clients.
func newTLSShell(t *testing.T, more ...string) (s shell, dir string, flags []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "certificates")
	out := shell{t: t}.must("dev-cert", dir)
	serve, check, _ := strings.Cut(out, "\n")
	s = newShell(t, append(strings.Fields(serve)[2:], more...)...)
	return s, dir, strings.Fields(check)[4:]
}

// What dev-cert prints works: the gateway speaks TLS, and all commands reach it with the flags. A credential is read
// from the file, and the environment has it for commands that run under the lock, but for no process list.
func TestCommandsOverTLS(t *testing.T) {
	t.Parallel()
	s, dir, flags := newTLSShell(t)
	if !strings.HasPrefix(s.url, "https://") {
		t.Fatalf("the gateway serves on %s, expected https", s.url)
	}
	s.fails(exitUnavailable, "certificate", "health")
	plain := shell{t, strings.Replace(s.url, "https", "http", 1)}
	plain.fails(exitFailure, "HTTPS server", "health")
	with := func(args ...string) []string { return append(args, flags...) }
	s.must(with("health", "--ready")...)
	lease := fields(s.must(with("lock", "acquire", "a")...))
	s.must(with("put", "a", "k", "v", "--token", lease["fencing_token"]+".1")...)
	if got := s.must(with("get", "a", "k")...); got != "v" {
		t.Errorf("get wrote %q, expected v", got)
	}

	secret := filepath.Join(dir, "token")
	check(t, os.WriteFile(secret, []byte("fgk_secret\n"), 0o600))
	const script = `ps -eo args > "$1"; "$FENCEGATE" put . k from-run --sequence 1`
	seen := filepath.Join(dir, "processes")
	run := s.start(append(append([]string{"run", "--lock", "b", "--token-file", secret}, flags...),
		"--", "sh", "-c", script, "sh", seen)...)
	run.wants(exitOK, "")
	processes, err := os.ReadFile(seen)
	check(t, err)
	if !strings.Contains(string(processes), secret) || strings.Contains(string(processes), "fgk_secret") {
		t.Errorf("the process list has no --token-file, or the credential: %s", processes)
	}
	demo := s.start(append([]string{"demo", "zombie", "--gateway", s.url, "--rounds", "1"}, flags...)...)
	demo.wants(exitOK, "")
}

// Unusable files are errors of the command line, and none shows a secret.
func TestUnusableCredentialFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	bad := file("bad", "fgk_secret with spaces")
	for words, flags := range map[string][]string{
		"--ca-cert":                    {"--ca-cert", bad},
		"--cert":                       {"--cert", bad},
		"--token-file: the token file": {"--token-file", bad},
	} {
		got := shell{t, "https://127.0.0.1:1"}.do(append([]string{"lock", "ls"}, flags...)...)
		if got.code != exitUsage || !strings.Contains(got.errOut, words) ||
			strings.Contains(got.errOut, "secret") {
			t.Errorf("%q exited with %d: %s", flags, got.code, got.errOut)
		}
	}
	bearer := exec.CommandContext(t.Context(), process.Build(t), "lock", "ls", "--url", "http://127.0.0.1:1")
	bearer.Env = append(os.Environ(), variableBearer+"=fgk_secret with spaces")
	if out, err := bearer.CombinedOutput(); bearer.ProcessState.ExitCode() != exitUsage ||
		!strings.HasPrefix(string(out), "fencegate: "+variableBearer+": ") || strings.Contains(string(out), "secret") {
		t.Errorf("an unusable %s: %v, %s", variableBearer, err, out)
	}
}

// A proxy of the environment receives no credential: requests over plain http that have one do not use it.
func TestProxyReceivesNoCredential(t *testing.T) {
	t.Parallel()
	var requests, credentials atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		credentials.Add(int64(len(r.Header["Authorization"])))
	}))
	defer proxy.Close()
	for token, want := range map[string]bool{"": true, "fgk_secret": false} {
		requests.Store(0)
		command := exec.CommandContext(t.Context(), process.Build(t), "lock", "ls", "--url", "http://192.0.2.1.invalid:1")
		command.Env = append(os.Environ(), "HTTP_PROXY="+proxy.URL, variableBearer+"="+token)
		if out, err := command.CombinedOutput(); err == nil || (requests.Load() > 0) != want || credentials.Load() > 0 {
			t.Errorf("with the credential %q the proxy received %d requests, %d with it; the command: %v, %s",
				token, requests.Load(), credentials.Load(), err, out)
		}
	}
}

// serve refuses to start where other machines could use it without authentication, before it makes a database.
func TestServeRefusesToBeOpen(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		got := shell{t: t}.do("serve", "--listen", listen, "--data-dir", dir)
		if got.code != exitUsage || !strings.Contains(got.errOut, "--insecure-no-auth") {
			t.Errorf("serve --listen %s exited with %d: %s", listen, got.code, got.errOut)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("serve made a database before it refused")
	}
	databaseURL := postgres.Migrated(t)
	for flags, words := range map[string]string{
		"--tls-cert missing": "--tls-key", "--client-ca missing": "--tls-cert", "--tls-cert missing --tls-key missing": "no such",
		"--allowed-hosts http://a": "--allowed-hosts", "--trace-endpoint collector:4317": "--trace-endpoint",
	} {
		args := append([]string{"serve", "--listen", "127.0.0.1:0", "--database-url", databaseURL}, strings.Fields(flags)...)
		if got := (shell{t: t}).do(args...); got.code == exitOK || !strings.Contains(got.errOut, words) {
			t.Errorf("%s: exited with %d: %s", flags, got.code, got.errOut)
		}
	}
}

// A gateway that is open on purpose answers for addresses and no names, unless they are allowed.
func TestServeInsecureNoAuth(t *testing.T) {
	t.Parallel()
	open := newShell(t, "--listen", "0.0.0.0:0", "--insecure-no-auth")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(open.url, "http://"))
	check(t, err)
	for host, status := range map[string]int{"": 200, "10.0.0.5": 200, "gateway.test": 421} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+"/v1/locks", nil)
		check(t, err)
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		check(t, err)
		_ = response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("a request for the host %q was answered with %d, expected %d", host, response.StatusCode, status)
		}
	}
}

// With sslmode=verify-full all connections of a gateway are encrypted: those of the pool, the listener and the prober.
// A database without the right certificate is not used, be it of another authority or of another host.
func TestDatabaseVerifyFull(t *testing.T) {
	t.Parallel()
	authority, err := devcert.NewAuthority("test")
	check(t, err)
	pair, err := authority.Issue(devcert.Request{Name: "database", Hosts: []string{"localhost"}})
	check(t, err)
	address := postgres.NewEncrypted(t, pair.Certificate, pair.Key)
	_, port, err := net.SplitHostPort(address)
	check(t, err)
	foreign, err := devcert.NewAuthority("foreign")
	check(t, err)
	dir := t.TempDir()
	authorityFile, foreignFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "foreign.pem")
	check(t, os.WriteFile(authorityFile, authority.PEM, 0o600))
	check(t, os.WriteFile(foreignFile, foreign.PEM, 0o600))
	databaseURL := func(hosts, mode, root string) string {
		query := url.Values{"sslmode": {mode}, "sslrootcert": {root}}
		return "postgres://fencegate@" + hosts + "/fencegate?" + query.Encode()
	}

	// The first host of two is reached by an address that the certificate does not have.
	good := databaseURL("127.0.0.1:"+port+",localhost:"+port, "verify-full", authorityFile)
	gateway := newShellOn(t, good)
	await.True(t, "the gateway is ready", func() bool { return gateway.do("health", "--ready").code == exitOK })
	gateway.must("lock", "acquire", "a")
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, databaseURL("localhost:"+port, "verify-full", authorityFile))
	check(t, err)
	defer func() { _ = connection.Close(ctx) }()
	var all, encrypted int
	check(t, connection.QueryRow(ctx, `select count(*), count(*) filter (where ssl) from pg_stat_activity
		join pg_stat_ssl using (pid) where backend_type = 'client backend' and application_name like 'fencegate%'`).
		Scan(&all, &encrypted))
	if all < 3 || encrypted != all {
		t.Errorf("%d of %d connections of the gateway are encrypted, expected all of 3 or more", encrypted, all)
	}

	for what, bad := range map[string]string{
		"another authority": databaseURL("localhost:"+port, "verify-full", foreignFile),
		"another host":      databaseURL("127.0.0.1:"+port, "verify-full", authorityFile),
		"no TLS":            databaseURL("localhost:"+port, "disable", ""),
	} {
		got := shell{t: t}.do("check", "--database-url", bad)
		if got.code == exitOK || what != "no TLS" && !strings.Contains(got.errOut, "certificate") {
			t.Errorf("%s: check exited with %d: %s", what, got.code, got.errOut)
		}
	}
}
