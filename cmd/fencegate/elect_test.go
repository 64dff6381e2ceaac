package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
)

func TestElect(t *testing.T) {
	t.Parallel()
	s := newShell(t)
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

func TestElectEndsWithItsTerm(t *testing.T) {
	s := newShell(t)
	p := s.start("elect", "main", "--ttl", "4s", "--output", "json")
	p.says("\n")
	var term api.Term
	parseLine(t, p.out.String(), &term)
	if term.Term < 1 || term.LeaseID == "" || term.Election != "main" {
		t.Errorf("got %+v", term)
	}
	s.must("lock", "break", "main", "--reason", "test")
	p.wants(121, "is lost: broken")
	observer := s.start("elect", "main", "--observe", "--output", "json")
	observer.says("\n")
	var election api.Election
	parseLine(t, observer.out.String(), &election)
	if election.Leader != "" || election.Term != term.Term {
		t.Errorf("got %+v", election)
	}
	s.fails(exitUsage, "takes no command", "elect", "main", "--observe", "--", "true")
}
