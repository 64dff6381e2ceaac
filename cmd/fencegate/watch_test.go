package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// What commands show of a lock and of elections, before one gateway.
func TestWatch(t *testing.T) {
	t.Parallel()
	newShell(t).each(map[string]func(*testing.T, shell){
		"watch": watchALock, "elect": electALeader, "term": electionEndsWithItsTerm,
	})
}

func watchALock(t *testing.T, s shell) {
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

func electALeader(t *testing.T, s shell) {
	observer := s.start("elect", "main", "--observe")
	observer.says("term 0  no leader\n")

	first := s.start("elect", "main", "--owner-id", "w1", "--value", "http://a")
	first.says("candidate   w1\n")
	term := fields(first.out.String())["term"]
	observer.says("term " + term + "  w1 leads  since ")
	second := s.start("elect", "main", "--owner-id", "w2", "--value", `{"at": [1]}`, "--", "sh", "-c",
		`echo "token $FENCEGATE_TOKEN after `+term+` of $FENCEGATE_LOCK"; `+
			`"$FENCEGATE" put . state v >/dev/null || exit 90; read line; exit 5`)
	await.True(t, "the second candidate waits", func() bool {
		return strings.Contains(s.must("lock", "get", "main"), "waiting")
	})
	s.fails(exitRunLockHeld, "held by w1", "elect", "main", "--try", "--", "true")
	first.signal(syscall.SIGINT)
	if got := first.wants(0, ""); got.errOut != "" {
		t.Errorf("the leader that resigned wrote %q", got.errOut)
	}
	if got := second.wants(5, ""); !strings.Contains(got.out, " after "+term+" of main\n") {
		t.Errorf("it printed %q", got.out)
	}
	observer.says("w2 leads")
	observer.says(`{"at":[1]}`)
	observer.says("no leader\n")
	observer.signal(syscall.SIGINT)
	observer.wants(0, "")
}

func electionEndsWithItsTerm(t *testing.T, s shell) {
	p := s.start("elect", "second", "--ttl", "12s", "--output", "json") // a busy machine renews late
	p.says("\n")
	var term api.Term
	parseLine(t, p.out.String(), &term)
	if term.Term < 1 || term.LeaseID == "" || term.Election != "second" {
		t.Errorf("got %+v", term)
	}
	s.must("lock", "break", "second", "--reason", "test")
	p.wants(121, "is lost: broken")
	observer := s.start("elect", "second", "--observe", "--output", "json")
	observer.says("\n")
	var election api.Election
	parseLine(t, observer.out.String(), &election)
	if election.Leader != "" || election.Term != term.Term {
		t.Errorf("got %+v", election)
	}
	s.fails(exitUsage, "takes no command", "elect", "second", "--observe", "--", "true")
}
