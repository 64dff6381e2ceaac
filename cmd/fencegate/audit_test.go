package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// TestAuditCommand checks that the command lists the actions of administrators, the newest first, that its flags
// select, and that it writes JSON.
func TestAuditCommand(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	const heading = "WHEN  ACTION  NAME  ADDRESS  DETAILS\n"
	if out := s.must("audit"); out != heading {
		t.Errorf("no actions are listed as %q", out)
	}
	s.must("lock", "acquire", "job", "--ttl", "1h")
	s.must("lock", "break", "job", "--reason", "it hangs")
	key := fields(s.must("keys", "create", "billing", "--grant", "lock:billing"))
	lines := strings.Split(strings.TrimSpace(s.must("audit", "--since", "1h")), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "WHEN") || !strings.Contains(lines[1], "key_created") ||
		!strings.Contains(lines[1], key["id"]) || !strings.Contains(lines[2], "lease_broken  job   anonymous  127.0.0.1  {") {
		t.Errorf("it listed %q, want the new key and then the broken lease", lines)
	}
	for _, flags := range []string{"--action key_created", "--prefix jo", "--name job --principal anonymous"} {
		if out := s.must(append([]string{"audit"}, strings.Fields(flags)...)...); strings.Count(out, "\n") != 2 {
			t.Errorf("%s listed %q, want one action", flags, out)
		}
	}
	if out := s.must("audit", "--until", "1h"); strings.Count(out, "\n") != 1 {
		t.Errorf("--until listed %q, want nothing", out)
	}
	var entry api.AuditEntry
	if err := json.Unmarshal([]byte(s.must("audit", "--name", "job", "--output", "json")), &entry); err != nil ||
		entry.Action != "lease_broken" || !strings.Contains(string(entry.Details), "it hangs") {
		t.Errorf("the JSON is %+v (%v), want the broken lease", entry, err)
	}
	s.fails(exitUsage, "--since", "audit", "--since=-1h")
}
