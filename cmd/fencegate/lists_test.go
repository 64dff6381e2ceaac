package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// The lists, before one gateway, one after the other: each is complete.
func TestLists(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	if out := s.must("locks", "ls"); out != "LOCK  STATE  TOKEN  OWNER  EXPIRES\n" {
		t.Errorf("no locks are listed as %q", out)
	}
	auditList(t, s)
	lockList(t, s)
	sessionList(t, s)
	waitList(t, s)
	rejectionList(t, s)
}

// auditList checks that the command lists the actions of administrators, the newest first, that its flags
// select, and that it writes JSON.
func auditList(t *testing.T, s shell) {
	const heading = "WHEN  ACTION  NAME  ADDRESS  DETAILS\n"
	if out := s.must("audit"); out != heading {
		t.Errorf("no actions are listed as %q", out)
	}
	s.must("lock", "acquire", "zz", "--ttl", "1h")
	s.must("lock", "break", "zz", "--reason", "it hangs")
	key := fields(s.must("keys", "create", "billing", "--grant", "lock:billing"))
	lines := strings.Split(strings.TrimSpace(s.must("audit", "--since", "1h")), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "WHEN") || !strings.Contains(lines[1], "key_created") ||
		!strings.Contains(lines[1], key["id"]) || !strings.Contains(lines[2], "lease_broken  zz    anonymous  127.0.0.1  {") {
		t.Errorf("it listed %q, want the new key and then the broken lease", lines)
	}
	for flags, want := range map[string]int{"--action key_created": 2, "--prefix z": 2, "--name zz --principal anonymous": 2, "--until 1h": 1} {
		if out := s.must(append([]string{"audit"}, strings.Fields(flags)...)...); strings.Count(out, "\n") != want {
			t.Errorf("%s listed %q, want %d lines", flags, out, want)
		}
	}
	var entry api.AuditEntry
	if err := json.Unmarshal([]byte(s.must("audit", "--name", "zz", "--output", "json")), &entry); err != nil ||
		entry.Action != "lease_broken" || !strings.Contains(string(entry.Details), "it hangs") {
		t.Errorf("the JSON is %+v (%v), want the broken lease", entry, err)
	}
}

func lockList(t *testing.T, s shell) {
	for i := range 5 {
		s.must("lock", "acquire", fmt.Sprintf("jobs/%d", i), "--owner-id", fmt.Sprintf("w%d", i), "--ttl", "1h")
	}
	s.must("lock", "acquire", "other", "--ttl", "1h")
	s.must("lock", "break", "jobs/3", "--reason", "test")

	names := func(out string) string {
		var names []string
		for i, line := range strings.Split(strings.TrimRight(out, "\n"), "\n") {
			columns := strings.Fields(line)
			if len(columns) != 5 || (i == 0) != (line == strings.ToUpper(line)) {
				t.Errorf("line %d is %q", i, line)
			}
			names = append(names, columns[0]+" "+columns[1]+" "+columns[3])
		}
		return strings.Join(names[1:], ", ")
	}
	for want, args := range map[string][]string{
		"jobs/0 held w0, jobs/1 held w1, jobs/2 held w2, jobs/3 free -, jobs/4 held w4": {"--prefix", "jobs/"},
		"jobs/3 free -, zz free -": {"--state", "free"},
		"jobs/0 held w0, jobs/1 held w1, jobs/2 held w2, jobs/4 held w4": {"--state", "held", "--prefix", "j", "--limit",
			"4"},
	} {
		if got := names(s.must(append([]string{"lock", "ls"}, args...)...)); got != want {
			t.Errorf("%q listed %s, want %s", args, got, want)
		}
	}

	limited := s.do("lock", "ls", "--limit", "2")
	if got := names(limited.out); got != "jobs/0 held w0, jobs/1 held w1" ||
		!strings.Contains(limited.errOut, "more than 2") || limited.code != exitOK {
		t.Errorf("got %s, %q, %d", got, limited.errOut, limited.code)
	}
}

func sessionList(t *testing.T, s shell) {
	id := fields(s.must("session", "create", "--owner-id", "w1", "--ttl", "1h"))["session_id"]
	s.must("session", "create", "--owner-id", "w2", "--ttl", "1h")
	s.must("lock", "acquire", "a", "--owner-id", "w1", "--session-id", id)
	for args, want := range map[string]string{
		"":                           "live w2 0, live w1 1",
		"--owner-id w1":              "live w1 1",
		"--state live --owner-id w2": "live w2 0",
	} {
		var rows []string
		for _, line := range strings.Split(strings.TrimRight(s.must(append([]string{"session", "ls"},
			strings.Fields(args)...)...), "\n"), "\n")[1:] {
			columns := strings.Fields(line)
			if columns[2] == "w1" && columns[0] != id[:8]+"…" {
				t.Errorf("the session is listed as %s, expected the first 8 digits of its secret", columns[0])
			}
			rows = append(rows, strings.Join(columns[1:4], " "))
		}
		if got := strings.Join(rows, ", "); got != want {
			t.Errorf("session ls %s listed %q, expected %q", args, got, want)
		}
	}
}

func waitList(t *testing.T, s shell) {
	s.must("lock", "acquire", "tree/1", "--owner-id", "w1", "--ttl", "1h")
	waiting := make(chan result, 1)
	go func() { waiting <- s.do("lock", "acquire", "tree", "--subtree", "--owner-id", "w2", "--wait", "2m") }()
	await.True(t, "the waiter is listed", func() bool {
		return strings.Contains(s.must("waits"), "w1 (holds tree/1)")
	})
	var wait api.WaitOf
	parseLine(t, s.must("waits", "tree/1", "--output", "json"), &wait)
	if wait.OwnerID != "w2" || wait.Lock != "tree" || len(wait.For) != 1 {
		t.Errorf("the wait of w2 for tree is listed as %+v", wait)
	}
	s.must("lock", "break", "tree/1", "--reason", "test")
	if got := await.Receive(t, "the answer to the waiter", waiting); got.code != exitOK {
		t.Errorf("the waiter's answer is %+v", got)
	}
}

func rejectionList(t *testing.T, s shell) {
	if out := s.must("rejections"); strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "WHEN  RESOURCE") {
		t.Errorf("no rejections are listed as %q", out)
	}
	zombie := fields(s.must("lock", "acquire", "job/42", "--owner-id", "w1", "--ttl", "1h"))["fencing_token"]
	s.must("lock", "break", "job/42", "--reason", "test")
	newer := fields(s.must("lock", "acquire", "job/42", "--owner-id", "w2", "--ttl", "1h"))["fencing_token"]
	for range 3 {
		s.do("put", "job/42", "state", "v", "--token", zombie+".7")
	}
	s.do("put", "elsewhere", "state", "v", "--token", "1")
	await.True(t, "four rejections in two groups are listed", func() bool {
		all := rejections(t, s)
		return len(all) == 2 && all[0].Count+all[1].Count == 4
	})

	lines := strings.Split(strings.TrimSpace(s.must("rejections", "--resource", "job/42", "--since", "1h")), "\n")
	heading, row := strings.Fields(lines[0]), strings.Fields(lines[len(lines)-1])
	if got := strings.Join(heading, " "); len(lines) != 2 ||
		got != "WHEN RESOURCE KEY CODE TOKEN NEWER LATE OWNER SOURCE COUNT" {
		t.Fatalf("got %q", lines)
	}
	row[0], row[6] = "WHEN", "LATE"
	if got, want := strings.Join(row, " "), "WHEN job/42 state token_stale/superseded "+zombie+".7 "+newer+
		" LATE w1 http 3"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for args, want := range map[string]int{
		"--code token_unknown": 1, "--since 1ms": 0, "--since 1h --limit 2": 2, "--prefix job/": 1, "--reason superseded": 1,
		"--kind zombie": 1, "--owner-id w1": 1, "--source http --last-seen": 2, "--source sql": 0, "--until 1h": 0,
	} {
		if got := rejections(t, s, strings.Fields(args)...); len(got) != want {
			t.Errorf("%s listed %d, want %d", args, len(got), want)
		}
	}
}

func rejections(t *testing.T, s shell, args ...string) []api.Rejection {
	t.Helper()
	var all []api.Rejection
	for line := range strings.Lines(s.must(append([]string{"rejections", "--output", "json"}, args...)...)) {
		var one api.Rejection
		check(t, json.Unmarshal([]byte(line), &one))
		all = append(all, one)
	}
	return all
}

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
	seen := filepath.Join(t.TempDir(), "seen") // a watch may leave out a state that lasts for a moment
	second := s.start("elect", "main", "--owner-id", "w2", "--metadata", `{"at": [1]}`, "--", "sh", "-c",
		`echo "token $FENCEGATE_TOKEN after `+term+` of $FENCEGATE_LOCK"; `+
			`"$FENCEGATE" put . state v >/dev/null || exit 90; until [ -e '`+seen+`' ]; do sleep 0.05; done; exit 5`)
	await.True(t, "the second candidate waits", func() bool {
		return strings.Contains(s.must("lock", "get", "main"), "waiting")
	})
	s.fails(exitRunLockHeld, "held by w1", "elect", "main", "--try", "--", "true")
	first.signal(syscall.SIGINT)
	if got := first.wants(0, ""); got.errOut != "" {
		t.Errorf("the leader that resigned wrote %q", got.errOut)
	}
	observer.says("held by w2")
	observer.says(`{"at":[1]}`)
	if err := os.WriteFile(seen, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := second.wants(5, ""); !strings.Contains(got.out, " after "+term+" of main\n") {
		t.Errorf("it printed %q", got.out)
	}
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
