package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/lockclient/api"
)

// otherID is that of no lease and no session.
const otherID = "00000000-0000-4000-8000-000000000000"

// The commands for locks, sessions and records, and the formats of their answers, before one gateway. It does not sweep:
// a sweep could release the leases of an ended session before the command, which would count fewer.
func TestCommands(t *testing.T) {
	t.Parallel()
	newShell(t, "--sweep-interval", "1h").each(map[string]func(*testing.T, shell){
		"locks": lockCommands, "shared locks": sharedLockCommands, "sessions": sessionCommands,
		"records": recordCommands, "numbered writes": numberedWrites, "list of records": recordList,
		"json": jsonIsTheAnswerOfTheAPI, "env in a shell": envOutputInAShell,
		"env of a session": envOutputOfASession, "env of the locks of others": envOutputOfOthersLocks, "yaml": yamlOutput,
		"url without scheme": urlWithoutScheme,
	})
}

func lockCommands(t *testing.T, s shell) {
	lease := fields(s.must("lock", "acquire", "jobs/a b", "--ttl", "90s", "--metadata", `{"pod": "x<1>"}`))
	if lease["lock"] != "jobs/a b" || lease["owner_id"] != defaultOwner() || lease["ttl"] != "1m30s" ||
		lease["fencing_token"] == "" || lease["lease_id"] == "" || lease["metadata"] != `{"pod":"x<1>"}` {
		t.Errorf("acquire printed %q", lease)
	}
	whose := []string{"--lease-id", lease["lease_id"], "--token", lease["fencing_token"]}

	renewed := fields(s.must(append([]string{"lock", "renew", "jobs/a b", "--ttl", "2h"}, whose...)...))
	if renewed["ttl"] != "2h0m0s" || renewed["lease_id"] != lease["lease_id"] ||
		renewed["expires_at"] <= lease["expires_at"] {
		t.Errorf("renew printed %q after %q", renewed, lease)
	}
	held := fields(s.must("lock", "get", "jobs/a b"))
	if held["state"] != "held" || held["owner_id"] != defaultOwner() || held["expires_at"] != renewed["expires_at"] ||
		held["lease_id"] != "" {
		t.Errorf("get printed %q", held)
	}
	released := fields(s.must(append([]string{"lock", "release", "jobs/a b"}, whose...)...))
	if released["released"] != "jobs/a b" || released["fencing_token"] != lease["fencing_token"] {
		t.Errorf("release printed %q", released)
	}
	if free := fields(s.must("lock", "get", "jobs/a b")); free["state"] != "free" || free["owner_id"] != "" {
		t.Errorf("get printed %q", free)
	}

	again := fields(s.must("lock", "acquire", "jobs/a b", "--owner-id", "other", "--request-id", "r1"))
	repeated := fields(s.must("lock", "acquire", "jobs/a b", "--owner-id", "other", "--request-id", "r1"))
	if again["lease_id"] == lease["lease_id"] || repeated["lease_id"] != again["lease_id"] {
		t.Errorf("the request_id was not heeded: %q, then %q", again, repeated)
	}
	broken := fields(s.must("lock", "break", "jobs/a b", "--reason", "stuck"))
	if broken["broken"] != "jobs/a b" || broken["owner_id"] != "other" ||
		broken["fencing_token"] != again["fencing_token"] {
		t.Errorf("break printed %q", broken)
	}
}

func sharedLockCommands(t *testing.T, s shell) {
	for _, owner := range []string{"r1", "r2"} {
		lease := fields(s.must("lock", "acquire", "shared", "--shared", "--owner-id", owner, "--ttl", "1h"))
		if lease["mode"] != "shared" {
			t.Errorf("acquire printed %q", lease)
		}
	}
	if got := s.must("lock", "get", "shared"); strings.Count(got, "mode           shared\n") != 2 {
		t.Errorf("get printed %s", got)
	}
	if got := s.must("lock", "ls"); !strings.Contains(got, " and 1 more") {
		t.Errorf("ls printed %s", got)
	}

	tree := fields(s.must("lock", "acquire", "tree", "--subtree", "--ttl", "1h"))
	if tree["scope"] != "subtree" {
		t.Errorf("acquire printed %q", tree)
	}
	if got := fields(s.must("lock", "get", "tree")); got["scope"] != "subtree" {
		t.Errorf("get printed %q", got)
	}
}

func sessionCommands(t *testing.T, s shell) {
	session := fields(s.must("session", "create", "--owner-id", "w1", "--ttl", "1h", "--metadata", `{"n": 1}`))
	if session["owner_id"] != "w1" || session["state"] != "live" || session["ttl"] != "1h0m0s" ||
		session["metadata"] != `{"n":1}` {
		t.Errorf("create printed %q", session)
	}
	id := session["session_id"]
	for _, lock := range []string{"of-session/a", "of-session/b"} {
		lease := fields(s.must("lock", "acquire", lock, "--owner-id", "w1", "--session-id", id))
		if lease["session_id"] != session["session_id"] {
			t.Errorf("acquire printed %q", lease)
		}
	}
	if got := fields(s.must("session", "get", id)); got["leases"] != "2" {
		t.Errorf("get printed %q", got)
	}
	if got := fields(s.must("session", "keepalive", id)); got["expires_at"] < session["expires_at"] {
		t.Errorf("keepalive printed %q", got)
	}
	var ended api.SessionEnded
	parseLine(t, s.must("session", "end", "--session-id", id, "--output", "json"), &ended)
	if !ended.Ended || ended.Released != 2 {
		t.Errorf("end printed %+v", ended)
	}
	s.must("lock", "acquire", "of-session/a", "--session-id", fields(s.must("session", "create"))["session_id"])
}

func recordCommands(t *testing.T, s shell) {
	lease := fields(s.must("lock", "acquire", "values"))
	token := lease["fencing_token"]
	file := filepath.Join(t.TempDir(), "value")
	check(t, os.WriteFile(file, []byte("\x00\xff\n"), 0o600))

	for i, test := range []struct {
		stdin, want, contentType string
		args                     []string
	}{
		{"", `{"n": 1}`, "application/json", []string{`{"n": 1}`}},
		{"", "", "text/plain; charset=utf-8", []string{""}},
		{"from\nstdin\n", "from\nstdin\n", "text/plain; charset=utf-8", nil},
		{"no", "\x00\xff\n", "application/octet-stream", []string{"--file", file}},
		{"", "7", "text/csv", []string{"7", "--content-type", "text/csv", "--lease-id", lease["lease_id"]}},
		{"", "-5", "application/json", []string{"--", "-5"}},
	} {
		number := fmt.Sprintf("%s.%d", token, i+1)
		args := append([]string{"put", "--token", number, "values", "k/1"}, test.args...)
		put := s.doWith(test.stdin, args...)
		got := fields(put.out)
		if put.code != exitOK || got["resource"] != "values" || got["key"] != "k/1" || got["version"] == "" ||
			got["fencing_token"] != number {
			t.Fatalf("%q exited with %d: %s%s", args, put.code, put.out, put.errOut)
		}
		if value := s.must("get", "values", "k/1"); value != test.want {
			t.Errorf("%q stored %q, want %q", args, value, test.want)
		}
		record := recordDocument{}
		parseLine(t, s.must("get", "values", "k/1", "--output", "json"), &record)
		if record.ContentType != test.contentType || fmt.Sprint(record.Version) != got["version"] || record.Key != "k/1" {
			t.Errorf("%q stored %+v, want type %s and version %s", args, record, test.contentType, got["version"])
		}
	}

	replayed := fields(s.must("put", "--token", token+".6", "values", "k/1", "--", "-5"))
	if replayed["replayed"] != "true" {
		t.Errorf("the same write again printed %q", replayed)
	}
	s.must("put", "values", "k/1", "v", "--token", token+".7", "--if-match", replayed["version"])
	s.must("put", "values", "k/2", "v", "--token", token+".8", "--if-none-match")
	deleted := fields(s.must("delete", "values", "k/2", "--token", token+".9"))
	if deleted["key"] != "k/2" || deleted["fencing_token"] != token+".9" {
		t.Errorf("delete printed %q", deleted)
	}
}

// Writes under one token are numbered; a write without a number is one that ends the token.
func numberedWrites(t *testing.T, s shell) {
	lease := fields(s.must("lock", "acquire", "numbered", "--ttl", "1h"))
	token := lease["fencing_token"]
	put := func(more ...string) []string {
		return append([]string{"put", "numbered", "k", "w", "--token", token, "--lease-id", lease["lease_id"]}, more...)
	}
	s.must(put()...)
	s.fails(4, "The next number is free: --sequence 1, or --token "+token+".1.", "put", "numbered", "k", "x", "--token", token)
	if got := fields(s.must(put("--sequence", "4")...)); got["fencing_token"] != token+".4" {
		t.Errorf("put printed %q", got)
	}
	s.fails(4, "--sequence 5", "delete", "numbered", "k", "--token", token, "--sequence", "3")
}

// recordList checks that records are listed by key, without their values.
func recordList(t *testing.T, s shell) {
	token := fields(s.must("lock", "acquire", "listed"))["fencing_token"]
	for i, key := range []string{"k/2", "k/1", "other"} {
		s.must("put", "listed", key, "value", "--token", token, "--sequence", string(rune('1'+i)))
	}
	lines := strings.Split(strings.TrimSpace(s.must("records", "ls", "listed", "--prefix", "k/")), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "KEY  VERSION  TOKEN") || !strings.HasPrefix(lines[1], "k/1  ") ||
		!strings.Contains(lines[2], token+".1") || !strings.Contains(lines[2], "  5     ") {
		t.Errorf("ls printed %q", lines)
	}
}

func jsonIsTheAnswerOfTheAPI(t *testing.T, s shell) {
	parse := func(document any, args ...string) {
		t.Helper()
		parseLine(t, s.must(append(args, "--output", "json")...), document)
	}
	var lease api.Lease
	parse(&lease, "lock", "acquire", "json/b", "--owner-id", "w<1>", "--ttl", "1h", "--metadata", `{"m": [1]}`)
	if lease.Lock != "json/b" || lease.OwnerID != "w<1>" || lease.FencingToken < 1 || lease.TTLMS != 3_600_000 ||
		lease.ExpiresAt.IsZero() {
		t.Errorf("acquire: %+v", lease)
	}
	token := fmt.Sprint(lease.FencingToken)
	var written api.WriteResult
	parse(&written, "put", "json/b", "k", `[1, 2]`, "--token", token+".1")
	var record recordDocument
	parse(&record, "get", "json/b", "k")
	if string(record.Value) != `[1,2]` || record.ValueBase64 != nil || record.FencingToken != lease.FencingToken ||
		record.Version != written.Version || *record.Sequence != *written.Sequence {
		t.Errorf("put: %+v, get: %+v", written, record)
	}
	s.must("put", "json/b", "k", "häh", "--token", token+".2")
	record = recordDocument{}
	parse(&record, "get", "json/b", "k")
	if record.Value != nil || *record.ValueBase64 != "aMOkaA==" {
		t.Errorf("get: %+v", record)
	}
	var broken api.Broken
	parse(&broken, "lock", "break", "json/b", "--reason", "test")
	if !broken.Broken || broken.OwnerID != "w<1>" {
		t.Errorf("break: %+v", broken)
	}
}

// In a shell that evaluates the answer of an acquire, later commands need neither flags nor the name of the lock, and
// no name can run a command. The answer of the release ends that.
func envOutputInAShell(t *testing.T, s shell) {
	const lock, owner = `jobs/it's $(echo owned) "x"`, "a'b\\ $HOME `echo owned`"
	const script = `
		eval "$("$FENCEGATE" lock acquire "$1" --owner-id "$2" --metadata '{"k": "'\''"}' -o env)"
		"$FENCEGATE" put . state x --sequence 1 >/dev/null
		eval "$("$FENCEGATE" put . state y --sequence 2 -o env)"
		"$FENCEGATE" put . other z --sequence 3 >/dev/null
		"$FENCEGATE" lock renew >/dev/null
		echo "lock=$FENCEGATE_LOCK owner=$FENCEGATE_OWNER_ID value=$("$FENCEGATE" get . state)"
		echo "key=$FENCEGATE_ANSWER_KEY metadata=$FENCEGATE_ANSWER_METADATA"
		eval "$("$FENCEGATE" lock release -o env)"
		echo "after: ${FENCEGATE_LOCK-none} ${FENCEGATE_TOKEN-none} ${FENCEGATE_LEASE_ID-none} $FENCEGATE_ANSWER_RELEASED"`
	got := s.startCommand(strings.NewReader(""), exec.Command("sh", "-euc", script, "sh", lock, owner)).wants(0, "")
	const want = "lock=" + lock + " owner=" + owner + " value=y\nkey=state metadata={\"k\":\"'\"}\n" +
		"after: none none none true\n"
	if got.out != want || got.errOut != "" {
		t.Errorf("got  %q\nwant %q\n%s", got.out, want, got.errOut)
	}
	if state := fields(s.must("lock", "get", lock))["state"]; state != "free" {
		t.Errorf("afterwards the lock is %s", state)
	}
}

// The session of a shell is in its environment, too.
func envOutputOfASession(_ *testing.T, s shell) {
	s.startCommand(strings.NewReader(""), exec.Command("sh", "-euc", `
		eval "$("$FENCEGATE" session create --ttl 1h -o env)"
		"$FENCEGATE" lock acquire in-session
		test "$("$FENCEGATE" session get -o json | grep -c '"leases":1')" = 1
		eval "$("$FENCEGATE" session end -o env)"
		test "${FENCEGATE_SESSION_ID-none} $FENCEGATE_ANSWER_RELEASED" = "none 1"`)).wants(0, "")
}

// Only an answer that grants something sets the variables that later commands read.
func envOutputOfOthersLocks(t *testing.T, s shell) {
	s.must("lock", "acquire", "theirs", "--ttl", "1h")
	out := s.must("lock", "get", "theirs", "-o", "env")
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "export "+answerPrefix) {
			t.Errorf("the state of a lock sets %s", line)
		}
	}
	if !strings.Contains(out, "export FENCEGATE_ANSWER_LOCK='theirs'\n") {
		t.Errorf("got %s", out)
	}
}

// The YAML has the documents of the JSON, one after the other, and errors are problem documents in it, too.
func yamlOutput(t *testing.T, s shell) {
	s.must("lock", "acquire", "yaml/a", "--ttl", "1h")
	s.must("lock", "acquire", "yaml/b", "--ttl", "1h")
	var locks []string
	decoder := yaml.NewDecoder(strings.NewReader(s.must("lock", "ls", "--prefix", "yaml/", "-o", "yaml")))
	for {
		var lock struct{ Lock, State string }
		if err := decoder.Decode(&lock); err != nil {
			break
		}
		locks = append(locks, lock.Lock+" "+lock.State)
	}
	if got := strings.Join(locks, ", "); got != "yaml/a held, yaml/b held" {
		t.Errorf("the locks are %q", got)
	}
	got := s.do("get", "a", "missing", "-o", "yaml")
	var problem struct{ Code api.Code }
	if err := yaml.Unmarshal([]byte(got.errOut), &problem); err != nil || problem.Code != api.CodeNotFound || got.out != "" ||
		!strings.Contains(got.errOut, "\ncode: not_found\n") {
		t.Errorf("got %+v, %v", got, err)
	}
}

// An address without a scheme is that of a gateway.
func urlWithoutScheme(t *testing.T, s shell) {
	address := strings.TrimPrefix(s.url, "http://")
	s.must("health", "--url", address)
	s.must("lock", "ls", "--url", "127.0.0.1:1,"+address)
	for given, want := range map[string]string{"[::1]:80": "http://[::1]:80", "https://a": "https://a", "a": "a", "a:b": "a:b"} {
		if got := (connectionFlags{}).withScheme(given); got != want {
			t.Errorf("%s is read as %s, want %s", given, got, want)
		}
	}
	if got := (connectionFlags{CACert: "ca.pem"}).withScheme("a:1"); got != "https://a:1" {
		t.Errorf("with an authority, a:1 is read as %s", got)
	}
}
