package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

func TestLockCommands(t *testing.T) {
	t.Parallel()
	s := newShell(t)
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

func TestRecordCommands(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	lease := fields(s.must("lock", "acquire", "a"))
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
		{"7", "7", "application/json", []string{"-"}},
		{"no", "\x00\xff\n", "application/octet-stream", []string{"--file", file}},
		{"", "7", "text/csv", []string{"7", "--content-type", "text/csv", "--lease-id", lease["lease_id"]}},
		{"", "-5", "application/json", []string{"--", "-5"}},
	} {
		number := fmt.Sprintf("%s.%d", token, i+1)
		args := append([]string{"put", "--token", number, "a", "k/1"}, test.args...)
		put := s.doWith(test.stdin, args...)
		got := fields(put.out)
		if put.code != exitOK || got["resource"] != "a" || got["key"] != "k/1" || got["version"] == "" ||
			got["fencing_token"] != number {
			t.Fatalf("%q exited with %d: %s%s", args, put.code, put.out, put.errOut)
		}
		if value := s.must("get", "a", "k/1"); value != test.want {
			t.Errorf("%q stored %q, want %q", args, value, test.want)
		}
		record := recordDocument{}
		parseLine(t, s.must("get", "a", "k/1", "--output", "json"), &record)
		if record.ContentType != test.contentType || fmt.Sprint(record.Version) != got["version"] || record.Key != "k/1" {
			t.Errorf("%q stored %+v, want type %s and version %s", args, record, test.contentType, got["version"])
		}
		if isJSON := test.contentType == "application/json"; (record.Value != nil) != isJSON ||
			(record.ValueBase64 == nil) != isJSON {
			t.Errorf("%q is shown as %+v", args, record)
		}
	}

	replayed := fields(s.must("put", "--token", token+".7", "a", "k/1", "--", "-5"))
	if replayed["replayed"] != "true" {
		t.Errorf("the same write again printed %q", replayed)
	}
	s.must("put", "a", "k/1", "v", "--token", token+".8", "--if-match", replayed["version"])
	s.must("put", "a", "k/2", "v", "--token", token+".9", "--if-none-match")
	deleted := fields(s.must("delete", "a", "k/2", "--token", token+".10"))
	if deleted["key"] != "k/2" || deleted["fencing_token"] != token+".10" {
		t.Errorf("delete printed %q", deleted)
	}
	s.fails(exitNotFound, "not_found", "get", "a", "k/2")
}

func TestExitOtherFailure(t *testing.T) {
	t.Parallel()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError) // a proxy's 502, 503 and 504 are a gateway that is away
		_, _ = io.WriteString(w, "<html>")
	}))
	defer page.Close()
	s := shell{t, page.URL}
	s.fails(1, "not fencegate's", "lock", "get", "a")
	s.fails(1, "no such file", "put", "a", "k", "--token", "1", "--file", filepath.Join(t.TempDir(), "missing"))
}

func TestExitUsage(t *testing.T) {
	t.Parallel()
	s := shell{t, "http://127.0.0.1:1"}
	lease := []string{"--lease-id", "x", "--token", "1"}
	for _, args := range [][]string{
		{"no-such-command"}, {"lock"}, {"lock", "get"}, {"lock", "get", "a", "--no-such-flag"},
		{"lock", "acquire", "a", "--ttl", "soon"}, {"lock", "acquire", "a", "--ttl", "1ns"},
		{"lock", "acquire", "a", "--metadata", "[1]"},
		{"lock", "acquire", "a", "--metadata", "null"},
		{"lock", "renew", "a"}, append([]string{"lock", "renew", "a", "--ttl", "1.5ms"}, lease...),
		{"lock", "release", "a", "--lease-id", "x", "--token", "1.2"}, {"lock", "break", "a"},
		{"lock", "ls", "--state", "shut"}, {"lock", "ls", "--limit", "0"}, {"lock", "ls", "--url", "not a url"},
		{"lock", "ls", "--output", "xml"}, {"lock", "ls", "--output", "env"}, {"lock", "ls", "--timeout", "0s"},
		append([]string{"lock", "release"}, lease...),
		{"policy", "ls", "-o", "env"}, {"watch", "a", "-o", "env"}, {"elect", "a", "--observe", "-o", "env"},
		{"policy", "set", "a", "--rule", "lax"}, {"policy", "set", "a", "--max-hold", "1ns"},
		{"put", "a", "k", "v"}, {"put", "a", "k", "v", "--token", "01"}, {"put", "a", "k", "v", "--token", "1.x"},
		{"put", "a", "k", "v", "--token", "1", "--file", "f"},
		{"put", "a", "k", "v", "--token", "1", "--if-match", "1", "--if-none-match"},
		{"delete", "a", "k"}, {"rejections", "--since=-1h"}, {"rejections", "--code", "lock_held"},
		{"rejections", "--limit=-1"},
		{"lock", "acquire", "a", "--wait", "soon"}, {"lock", "acquire", "a", "--wait", "1.5ms"},
		{"put", "a", "k", "v", "--token", "1.1", "--sequence", "2"}, {"put", "a", "k", "v", "--token", "1", "--sequence=-1"},
		{"put", ".", "k", "v", "--token", "1"}, {"delete", "./x", "k", "--token", "1"}, {"get", ".", "k"},
		{"session"}, {"session", "get"}, {"session", "create", "--ttl", "1ns"}, {"session", "create", "--metadata", "[]"},
		{"watch"}, {"watch", "a", "--after", "now"}, {"elect"}, {"elect", "a", "--ttl", "1ms"}, {"run", "true"},
		{"run", "--lock", "a"},
		{"load", "--clients", "0"}, {"load", "--clients", "10001"}, {"load", "--locks=-1"}, {"load", "--duration", "0s"},
		{"load", "--url", "gateway"}, {"watch", "a", "--url", "gateway"},
		{"version", "extra"},
	} {
		s.fails(2, ` --help".`, args...)
	}
	s.url = "" // demo takes no --url
	for flag, args := range map[string][]string{
		"--output": {"-o", "yaml"}, "--gateway": {"--gateway", "nonsense"},
		"--every":  {"--gateway", "http://127.0.0.1:1", "--every", "1ms"},
		"--rounds": {"--gateway", "http://127.0.0.1:1", "--rounds", "-1"},
	} {
		s.fails(2, flag, append([]string{"demo", "zombie"}, args...)...)
	}
}

// An error in a command line comes with the usage of the command that it names.
func TestUsageOfTheCommandAtHand(t *testing.T) {
	t.Parallel()
	s := shell{t, "http://127.0.0.1:1"}
	for words, args := range map[string][]string{
		"\nUsage: fencegate lock break --reason=TEXT <lock> [flags]\nSee \"fencegate lock break --help\".\n": {"locks", "break", "a"},
		"\nUsage: fencegate lock ls [flags]\n":        {"lock", "list", "--limit", "0"},
		"\nUsage: fencegate lock <command> [flags]\n": {"lock", "shut"},
		"\nSee \"fencegate session get --help\".\n":   {"sessions", "get"},
		"\nRun \"fencegate --help\".\n":               {"lokc"},
	} {
		s.fails(exitUsage, words, args...)
	}
}

func TestExitLockHeld(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.must("lock", "acquire", "a", "--owner-id", "first", "--ttl", "1h")
	s.fails(3, "held by first", "lock", "acquire", "a", "--owner-id", "second")
	s.fails(3, ".\nTry again in ", "lock", "acquire", "a", "--owner-id", "first")
}

func TestExitNotHolder(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	const otherID = "00000000-0000-4000-8000-000000000000"
	old := fields(s.must("lock", "acquire", "a", "--ttl", "1h"))
	token, whose := old["fencing_token"], []string{"--lease-id", old["lease_id"], "--token", old["fencing_token"]}
	s.must("put", "a", "k", "v", "--token", token+".5")

	s.fails(4, "token_stale", "put", "a", "k", "other", "--token", token+".5")
	s.fails(4, "\nGive the lease_id that", "put", "a", "k", "v", "--token", token+".6", "--lease-id", otherID)
	s.fails(4, "lease_mismatch", "delete", "a", "k", "--token", token+".6", "--lease-id", otherID)
	s.fails(4, "granted is "+token, "delete", "a", "k", "--token", "999999")
	s.fails(4, "lease_lost", "lock", "renew", "a", "--lease-id", otherID, "--token", token)
	s.fails(4, "lease_lost", append([]string{"lock", "release", "a", "--owner-id", "other"}, whose...)...)

	s.must("lock", "break", "a", "--reason", "test")
	s.fails(4, "token_stale", "put", "a", "k", "v", "--token", token+".6")
	s.fails(4, "broken", append([]string{"lock", "renew", "a"}, whose...)...)
	s.must("lock", "acquire", "a", "--ttl", "1h")
	s.fails(4, "token_stale", "delete", "a", "k", "--token", token+".6")
	if value := s.must("get", "a", "k"); value != "v" {
		t.Errorf("a rejected write stored %q", value)
	}
}

func TestExitLeaseExpired(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	client, err := lockclient.New(s.url)
	check(t, err)
	if _, err := admin.New(client).PutPolicy(t.Context(), "a", api.PolicyRequest{RequireLiveLease: true}); err != nil {
		t.Fatal(err)
	}
	lease := fields(s.must("lock", "acquire", "a", "--ttl", "100ms"))
	await.True(t, "the lease expires", func() bool { return fields(s.must("lock", "get", "a"))["state"] == "expired" })
	s.fails(4, "lease_expired", "put", "a", "k", "v", "--token", lease["fencing_token"])
}

func TestExitNotFound(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.fails(5, "not_found", "lock", "get", "a")
	s.fails(5, "not_found", "lock", "break", "a", "--reason", "test")
	s.fails(5, "not_found", "lock", "release", "a", "--token", "1", "--lease-id", "00000000-0000-4000-8000-000000000000")
	s.fails(5, "not_found", "get", "a", "k")
	lease := fields(s.must("lock", "acquire", "a"))
	s.fails(5, "not_found", "delete", "a", "k", "--token", lease["fencing_token"])
}

func TestExitVersionMismatch(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	token := fields(s.must("lock", "acquire", "a"))["fencing_token"]
	s.fails(6, "no such record now", "put", "a", "k", "v", "--token", token+".1", "--if-match", "7")
	version := fields(s.must("put", "a", "k", "v", "--token", token+".1"))["version"]
	s.fails(6, "version is now "+version, "put", "a", "k", "v", "--token", token+".2", "--if-none-match")
	s.fails(6, "version is now "+version, "delete", "a", "k", "--token", token+".2", "--if-match", "99")
}

func TestExitUnavailable(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	s := shell{t, "http://" + listener.Addr().String()}
	s.fails(7, "--timeout allows more time", "lock", "get", "a", "--timeout", "50ms") // it listens, and never answers
	s.fails(7, "Nothing was sent", "put", "a", "k", "v", "--token", "1", "--timeout", "1ns")
	s.url = "http://127.0.0.1:1"
	s.fails(7, "Nothing was sent: try again.\nIs the gateway running there?", "put", "a", "k", "v", "--token", "1")
}

func TestExitBadInput(t *testing.T) {
	t.Parallel()
	s := newShell(t, "--body-bytes-max", "2000")
	token := fields(s.must("lock", "acquire", "a"))["fencing_token"]
	s.fails(8, "invalid_name", "lock", "get", "a//b")
	s.fails(8, "invalid_name", "lock", "acquire", strings.Repeat("n", 513))
	s.fails(8, "invalid_request", "lock", "acquire", "b", "--ttl", "1ms")
	s.fails(8, "invalid_request", "lock", "acquire", "b", "--owner-id", "")
	s.fails(8, "invalid_request", "put", "a", "k", "{", "--content-type", "application/json", "--token", token)
	s.fails(8, "invalid_token", "lock", "renew", "a", "--token", "0", "--lease-id", "00000000-0000-4000-8000-000000000000")
	s.fails(8, "too_large", "put", "a", "k", strings.Repeat("v", 2001), "--token", token)
}

func TestFenceCommands(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	client, err := lockclient.New(s.url)
	check(t, err)
	t.Cleanup(client.Close)
	_, err = admin.New(client).PutPolicy(t.Context(), "etcd", api.PolicyRequest{Authority: "external"})
	check(t, err)
	s.must("put", "etcd/job", "k", "v", "--token", "9007199254740991.3")
	s.fails(4, "token_stale", "put", "etcd/job", "k", "v", "--token", "42.1")
	s.fails(2, "reason", "fence", "set", "etcd/job", "--last-token", "41")
	set := fields(s.must("fence", "set", "etcd/job", "--last-token", "41", "--last-sequence", "7", "--reason", "typo"))
	if set["last_accepted"] != "41.7" || set["before"] != "9007199254740991.3" {
		t.Errorf("set printed %q", set)
	}
	s.must("put", "etcd/job", "k", "v", "--token", "42.1")
	if got := fields(s.must("fence", "get", "etcd/job")); got["last_token"] != "42" || got["last_sequence"] != "1" ||
		got["policy"] != "strict, external" {
		t.Errorf("get printed %q", got)
	}
	s.fails(8, "not_external", "fence", "set", "ours", "--last-token", "0", "--reason", "typo")
	s.fails(2, "subtract", "put", "etcd/job", "k", "v", "--token", "9007199254740992")
}
