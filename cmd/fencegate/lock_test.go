package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
)

func TestSharedLockCommands(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	for _, owner := range []string{"r1", "r2"} {
		lease := fields(s.must("lock", "acquire", "a", "--shared", "--owner-id", owner, "--ttl", "1h"))
		if lease["mode"] != "shared" {
			t.Errorf("acquire printed %q", lease)
		}
		s.fails(4, "token_stale", "put", "a", "k", "v", "--token", lease["fencing_token"])
	}
	s.fails(3, "held by r", "lock", "acquire", "a", "--wait", "50ms")
	if got := s.must("lock", "get", "a"); strings.Count(got, "mode           shared\n") != 2 {
		t.Errorf("get printed %s", got)
	}
	if got := s.must("lock", "ls"); !strings.Contains(got, " and 1 more") {
		t.Errorf("ls printed %s", got)
	}

	tree := fields(s.must("lock", "acquire", "t", "--subtree", "--ttl", "1h"))
	if tree["scope"] != "subtree" {
		t.Errorf("acquire printed %q", tree)
	}
	s.fails(3, "lock_held", "lock", "acquire", "t/below")
	s.must("put", "t/below", "k", "v", "--token", tree["fencing_token"], "--sequence", "1")
	if got := fields(s.must("lock", "get", "t")); got["scope"] != "subtree" {
		t.Errorf("get printed %q", got)
	}
}

func TestLockAcquireWaits(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.must("lock", "acquire", "a", "--owner-id", "w1", "--ttl", "1h")
	waiting := s.start("lock", "acquire", "a", "--owner-id", "w2", "--wait", "10m", "--output", "json")
	await.True(t, "w2 waits", func() bool {
		return strings.Contains(s.must("lock", "get", "a"), "waiting        w2 (exclusive) since ")
	})
	s.must("lock", "break", "a", "--reason", "test")
	var lease api.Lease
	if err := json.Unmarshal([]byte(waiting.wants(0, "").out), &lease); err != nil || lease.OwnerID != "w2" {
		t.Errorf("got %+v, %v", lease, err)
	}
}

func TestSessionCommands(t *testing.T) {
	s := newShell(t)
	session := fields(s.must("session", "create", "--owner-id", "w1", "--ttl", "1h", "--metadata", `{"n": 1}`))
	if session["owner_id"] != "w1" || session["state"] != "live" || session["ttl"] != "1h0m0s" ||
		session["metadata"] != `{"n":1}` {
		t.Errorf("create printed %q", session)
	}
	t.Setenv("FENCEGATE_SESSION_ID", session["session_id"])
	for _, lock := range []string{"a", "b"} {
		lease := fields(s.must("lock", "acquire", lock, "--owner-id", "w1"))
		if lease["session_id"] != session["session_id"] {
			t.Errorf("acquire printed %q", lease)
		}
	}
	s.fails(8, "invalid_request", "lock", "acquire", "c", "--owner-id", "w1", "--ttl", "1h")
	if got := fields(s.must("session", "get")); got["leases"] != "2" {
		t.Errorf("get printed %q", got)
	}
	if got := fields(s.must("session", "keepalive")); got["expires_at"] < session["expires_at"] {
		t.Errorf("keepalive printed %q", got)
	}
	var ended api.SessionEnded
	parseLine(t, s.must("session", "end", "--output", "json"), &ended)
	if !ended.Ended || ended.Released != 2 {
		t.Errorf("end printed %+v", ended)
	}
	s.fails(4, "lease_lost", "session", "keepalive")
	s.fails(4, "lease_lost", "lock", "acquire", "c", "--owner-id", "w1")
	s.fails(5, "not_found", "session", "get", "--session-id", "00000000-0000-4000-8000-000000000000")
	s.must("lock", "acquire", "a", "--session-id", fields(s.must("session", "create"))["session_id"])
}

func TestNumberedWrites(t *testing.T) {
	s := newShell(t)
	lease := fields(s.must("lock", "acquire", "a", "--ttl", "1h"))
	t.Setenv("FENCEGATE_TOKEN", lease["fencing_token"])
	t.Setenv("FENCEGATE_LEASE_ID", lease["lease_id"])
	s.fails(2, "FENCEGATE_LOCK", "put", ".", "k", "v")
	s.fails(2, "FENCEGATE_LOCK", "get", "./x", "k")
	t.Setenv("FENCEGATE_LOCK", "a")
	s.must("put", ".", "k", "v")
	s.fails(4, "The next number is free: --sequence 1, or --token "+lease["fencing_token"]+".1.", "put", ".", "k", "w")
	if got := fields(s.must("put", ".", "k", "w", "--sequence", "4")); got["fencing_token"] != lease["fencing_token"]+
		".4" {
		t.Errorf("put printed %q", got)
	}
	s.fails(4, "--sequence 5", "delete", ".", "k", "--sequence", "3")
	s.must("delete", ".", "k", "--sequence", "5")
	s.fails(5, "not_found", "get", ".", "k")
	s.fails(4, "lease_mismatch", "put", ".", "k", "w", "--sequence", "6", "--lease-id",
		"00000000-0000-4000-8000-000000000000")
}
