package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

func TestKeysCommands(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	made := fields(s.must("keys", "create", "billing", "--grant", "lock,write:billing", "--lifetime", "720h"))
	rotated := fields(s.must("keys", "rotate", made["id"], "--overlap", "1h"))
	if !strings.HasPrefix(made["key"], "fgk_"+made["id"]+"_") || made["grants"] != "lock:billing write:billing" ||
		rotated["id"] == made["id"] || rotated["grants"] != made["grants"] || rotated["principal"] != "billing" {
		t.Errorf("create printed %v, and rotate %v", made, rotated)
	}
	if revoked := fields(s.must("keys", "revoke", made["id"])); revoked["revoked_at"] == "-" {
		t.Errorf("revoke printed %v", revoked)
	}
	listed := s.must("keys", "list")
	if strings.Count(listed, "\n") != 3 || !strings.Contains(listed, rotated["id"]+"  billing") ||
		strings.Contains(listed, "fgk_") {
		t.Errorf("list printed %s", listed)
	}
	if first := s.do("keys", "list", "--limit", "1"); strings.Count(first.out, "\n") != 2 ||
		!strings.Contains(first.errOut, "there are more than 1; --limit lists more") {
		t.Errorf("list with a limit printed %s%s", first.out, first.errOut)
	}
	s.fails(exitNotFound, "not_found", "keys", "revoke", "0123456789")
	s.fails(exitUsage, "--grant", "keys", "create", "p", "--grant", "wirte:a")
	s.fails(exitBadInput, "invalid_name", "keys", "create", "p", "--grant", "write:a//b")
}

// The first key of an administrator is made in the database. A gateway with --auth=keys is not ready before it has read
// the keys. It accepts this one, and no request without one.
func TestServeWithKeys(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "begin; lock table fence.keys")
	check(t, err)
	s := newShellOn(t, url, "--auth", "keys")
	if got := s.do("health", "--ready", "--url", s.url); got.code != exitUnavailable ||
		!strings.Contains(got.errOut, "not read its keys") {
		t.Errorf("before the keys were read, health --ready exited with %d: %s", got.code, got.errOut)
	}
	_, err = conn.Exec(t.Context(), "commit")
	check(t, err)
	s.fails(exitNotAllowed, "unauthenticated", "lock", "ls")
	key := fields(s.must("keys", "create", "admin", "--grant", "all:", "--in-database", url))["key"]
	for credential, status := range map[string]int{"Bearer " + key: http.StatusOK, "": http.StatusUnauthorized} {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.url+"/v1/keys", http.NoBody)
		check(t, err)
		request.Header.Set("Authorization", credential)
		await.True(t, "the gateway answers "+http.StatusText(status), func() bool {
			response, err := http.DefaultClient.Do(request)
			check(t, err)
			defer response.Body.Close()
			return response.StatusCode == status
		})
	}
	file := filepath.Join(t.TempDir(), "key")
	check(t, os.WriteFile(file, []byte(key), 0o600))
	who := fields(s.must("whoami", "--token-file", file))
	if who["principal"] != "admin" || who["kind"] != "key" || who["grants"] != "lock: write: read: observe: admin:" {
		t.Errorf("whoami printed %v", who)
	}
	s.must("lock", "acquire", "job", "--owner-id", "w", "--token-file", file)
	if locks := s.must("lock", "ls", "--token-file", file); !strings.Contains(locks, "OWNER  PRINCIPAL") ||
		!strings.Contains(locks, "w      admin") {
		t.Errorf("the locks are listed as %s, want the principal beside the owner", locks)
	}
}
