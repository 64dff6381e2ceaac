package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// The commands for keys, policies and fences, one after the other: lists have what all of them have made.
func TestAdminCommands(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	keysCommands(t, s)
	policyCommands(t, s)
	fenceCommands(t, s)
}

func keysCommands(t *testing.T, s shell) {
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
	s.fails(exitUsage, "--grant", "keys", "create", "p", "--grant", "wirte:a")
	s.fails(exitBadInput, "invalid_name", "keys", "create", "p", "--grant", "write:a//b")
}

// The commands for policies set, show, list and remove what the gateway applies.
func policyCommands(t *testing.T, s shell) {
	set := fields(s.must("policy", "set", "jobs", "--rule", "same_token", "--max-hold", "1h", "--require-lease-id"))
	got := fields(s.must("policy", "get", "jobs"))
	if set["rule"] != "same_token" || set["max_hold"] != "1h0m0s" || set["require_lease_id"] != "true" ||
		set["authority"] != "builtin" || got["max_hold"] != "1h0m0s" || got["leases"] != "-" {
		t.Errorf("set printed %q, and get %q", set, got)
	}
	s.must("policies", "set", "", "--authority", "external")
	if out := s.must("policy", "ls"); strings.Count(out, "\n") != 3 || !strings.Contains(out, "jobs    same_token  builtin") {
		t.Errorf("ls printed %s", out)
	}
	var removed policyRemoved
	parseLine(t, s.must("policy", "rm", "", "-o", "json"), &removed)
	s.must("policy", "rm", "jobs")
	if out := s.must("policy", "ls"); !removed.Removed || strings.Count(out, "\n") != 1 {
		t.Errorf("after the removal %+v, ls printed %s", removed, out)
	}
}

func fenceCommands(t *testing.T, s shell) {
	s.must("policy", "set", "etcd", "--authority", "external")
	s.must("put", "etcd/job", "k", "v", "--token", "9007199254740991.3")
	s.fails(4, "token_stale", "put", "etcd/job", "k", "v", "--token", "42.1")
	s.fails(2, "reason", "fence", "set", "etcd/job", "--last-token", "41")
	set := fields(s.must("fence", "set", "etcd/job", "--last-token", "41", "--last-sequence", "7", "--reason", "typo"))
	if set["last_accepted"] != "41.7" || set["before"] != "9007199254740991.3" {
		t.Errorf("set printed %q", set)
	}
	s.must("put", "etcd/job", "k", "v", "--token", "42.1")
	if got := fields(s.must("fence", "get", "etcd/job")); got["last_token"] != "42" || got["last_sequence"] != "1" ||
		got["policy"] != "strict, external" {
		t.Errorf("get printed %q", got)
	}
	s.fails(2, "subtract", "put", "etcd/job", "k", "v", "--token", "9007199254740992")
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
	file := filepath.Join(t.TempDir(), "key")
	check(t, os.WriteFile(file, []byte(key), 0o600))
	await.True(t, "the gateway has read the key", func() bool { return s.do("whoami", "--token-file", file).code == exitOK })
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

// serve refuses a configuration with which no request could be accepted.
func TestServeRefusesUnusableAuth(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.yaml")
	check(t, os.WriteFile(path, []byte("certificates: {rules: [{when: {dns: a}, grants: ['read:']}]}"), 0o600))
	for flags, words := range map[string]string{
		"--auth tokens":                             "--access-file",
		"--auth tokens --access-file " + path:       "no issuers",
		"--auth certificates":                       "--access-file",
		"--auth certificates --access-file " + path: "--client-ca",
	} {
		got := shell{t: t}.do(append([]string{"serve", "--listen", "127.0.0.1:0"}, strings.Fields(flags)...)...)
		if got.code != exitUsage || !strings.Contains(got.errOut, words) {
			t.Errorf("%s: exited with %d: %s", flags, got.code, got.errOut)
		}
	}
}
