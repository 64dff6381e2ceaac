package main

import (
	"strings"
	"testing"
)

// The commands for policies set, show, list and remove what the gateway applies, and records are listed.
func TestPolicyAndRecordCommands(t *testing.T) {
	t.Setenv("FENCEGATE_LEASES", "redis") // of serve
	s := shell{t, newShell(t, "--leases", "postgres").url}
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
	s.fails(exitNotFound, "not_found", "policy", "get", "jobs")
	recordList(t, s)
}

// recordList checks that records are listed by key, without their values.
func recordList(t *testing.T, s shell) {
	t.Helper()
	token := fields(s.must("lock", "acquire", "a"))["fencing_token"]
	for i, key := range []string{"k/2", "k/1", "other"} {
		s.must("put", "a", key, "value", "--token", token, "--sequence", string(rune('1'+i)))
	}
	lines := strings.Split(strings.TrimSpace(s.must("records", "ls", "a", "--prefix", "k/")), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "KEY  VERSION  TOKEN") || !strings.HasPrefix(lines[1], "k/1  ") ||
		!strings.Contains(lines[2], token+".1") || !strings.Contains(lines[2], "  5     ") {
		t.Errorf("ls printed %q", lines)
	}
}
