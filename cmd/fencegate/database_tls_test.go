package main

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/devcert"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

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
