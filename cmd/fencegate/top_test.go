package main

import (
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/await"
)

// zombie makes a write that is rejected on the resource.
func (s shell) zombie(resource string) {
	s.t.Helper()
	s.must("lock", "acquire", resource, "--owner-id", "heir", "--ttl", "1h")
	stale := s.do("put", resource, "k", "late", "--token", "1")
	if stale.code == exitOK {
		s.t.Fatalf("token 1 was admitted: %+v", stale)
	}
	await.True(s.t, "a rejection is listed", func() bool { return len(rejections(s.t, s)) > 0 })
}

// Where there is no terminal, top prints what there is, and ends.
func TestTopPrints(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.must("lock", "acquire", "warm-up") // its token is the 1 of the zombie
	s.zombie("jobs/42")
	out := s.must("top")
	for _, want := range []string{"fencegate top", "● live", "database  ok", "rejections", "jobs/42", "token_", "locks",
		"heir", "gateways"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("it steers what is no terminal: %q", out)
	}
	var overview api.Overview
	parseLine(t, s.must("top", "--output", "json", "--range", "1h"), &overview)
	if overview.Database.State != api.DatabaseOK || overview.RangeMS < 3_600_000 {
		t.Errorf("it printed %+v", overview)
	}
	for flag, args := range map[string][]string{
		"--interval": {"--interval", "1ms"}, "--range": {"--range", "25h"}, "--rows": {"--rows", "-1"},
	} {
		if got := s.do(append([]string{"top"}, args...)...); got.code != exitUsage || !strings.Contains(got.errOut, flag) {
			t.Errorf("%q: %+v", args, got)
		}
	}
}
