package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// What commands show of a lock and of an election, before one gateway.
func TestWatch(t *testing.T) {
	t.Parallel()
	newShell(t).each(map[string]func(*testing.T, shell){
		"watch": watchALock, "elect": electALeader, "term": electionEndsWithItsTerm,
	})
}

func watchALock(t *testing.T, s shell) {
	p := s.start("watch", "a/b")
	p.says("free\n")
	s.must("lock", "acquire", "a/b", "--owner-id", "w1", "--ttl", "1h", "--metadata", `{"at": [1]}`)
	p.says(`  {"at":[1]}` + "\n")
	s.must("lock", "break", "a/b", "--reason", "stuck for too long")
	s.must("lock", "acquire", "a/b", "--owner-id", "w2", "--shared", "--ttl", "1h")
	p.says("held  held by w2 with token ")
	p.signal(syscall.SIGTERM)
	if got := p.wants(0, ""); got.errOut != "" || !strings.HasPrefix(got.out, "free\nheld  held by w1 with token ") {
		t.Errorf("it printed %q, and\n%s", got.errOut, got.out)
	}

	document := s.start("watch", "a/b", "--output", "json")
	document.says("\n")
	var state api.WatchState
	if err := json.Unmarshal([]byte(document.out.String()), &state); err != nil || state.Holders[0].OwnerID != "w2" ||
		state.Version == 0 {
		t.Errorf("it printed %s (%v)", document.out.String(), err)
	}
}

func electALeader(t *testing.T, s shell) {
	observer := s.start("watch", "main")
	observer.says("free\n")
	first := s.start("elect", "main", "--owner-id", "w1", "--metadata", `{"url":"http://a"}`)
	first.says("owner_id       w1\n")
	term := fields(first.out.String())["fencing_token"]
	observer.says("held  held by w1 with token " + term + " until ")
	second := s.start("elect", "main", "--owner-id", "w2", "--metadata", `{"at": [1]}`, "--", "sh", "-c",
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
	observer.says("held by w2")
	observer.says(`{"at":[1]}`)
	s.fails(exitRunFailure, "metadata", "elect", "main", "--metadata", "no object", "--", "true")
}

func electionEndsWithItsTerm(t *testing.T, s shell) {
	p := s.start("elect", "second", "--ttl", "12s", "--output", "json") // a busy machine renews late
	p.says("\n")
	var term api.Lease
	parseLine(t, p.out.String(), &term)
	if term.FencingToken < 1 || term.LeaseID == "" || term.Lock != "second" {
		t.Errorf("got %+v", term)
	}
	s.must("lock", "break", "second", "--reason", "test")
	p.wants(121, "is lost: broken")
}
