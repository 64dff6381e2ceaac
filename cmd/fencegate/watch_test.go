package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	p := s.start("watch", "a/b")
	p.says("  state  free\n")
	lease := fields(s.must("lock", "acquire", "a/b", "--owner-id", "w1", "--ttl", "1h"))
	token := lease["fencing_token"]
	s.must("lock", "renew", "a/b", "--owner-id", "w1", "--lease-id", lease["lease_id"], "--token", token)
	s.must("put", "a/b", "k", "v", "--token", token)
	s.do("put", "a/b", "k", "v", "--token", token)
	p.says("  token_stale  reused  key k\n")
	s.must("lock", "break", "a/b", "--reason", "stuck for too long")
	p.says("  stuck for too long\n")
	s.must("lock", "acquire", "a/b", "--owner-id", "w2", "--shared", "--ttl", "1h")
	p.says("  w2  shared  token ")
	p.signal(syscall.SIGTERM)
	got := p.wants(0, "")
	var kinds []string
	for line := range strings.Lines(got.out) {
		kinds = append(kinds, strings.Fields(line)[1])
	}
	if events := strings.Join(kinds, " "); events != "state granted renewed rejected broken granted" || got.errOut != "" {
		t.Errorf("it printed the events %s, and %q:\n%s", events, got.errOut, got.out)
	}

	lines := strings.Split(got.out, "\n")
	resumed := s.start("watch", "a/b", "--after", strings.Fields(lines[3])[0], "--output", "json")
	resumed.says("\n{")
	var events []eventDocument
	for line := range strings.Lines(resumed.out.String()) {
		var event eventDocument
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		events = append(events, event)
	}
	if events[0].Event != "broken" || events[1].Event != "granted" ||
		!strings.Contains(string(events[1].Data), `"owner_id":"w2"`) {
		t.Errorf("after %q it printed %+v", lines[3], events)
	}

	state := s.start("watch", "a/b")
	state.says("  held  held by w2 with token ")
}
