package main

import (
	"os/exec"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/gateway/api"
)

// The formats of answers, before one gateway.
func TestOutputFormats(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	for name, test := range map[string]func(t *testing.T, s shell){
		"env in a shell": envOutputInAShell, "env of a session": envOutputOfASession,
		"env of the locks of others": envOutputOfOthersLocks, "yaml": yamlOutput, "url without scheme": urlWithoutScheme,
	} {
		t.Run(name, func(t *testing.T) { test(t, shell{t, s.url}) })
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
	for given, want := range map[string]string{
		"a:1": "http://a:1", "[::1]:80": "http://[::1]:80", "https://a": "https://a", "a": "a", "a:b": "a:b", "a:1/x": "a:1/x", "a:": "a:",
	} {
		if got := (connectionFlags{}).withScheme(given); got != want {
			t.Errorf("%s is read as %s, want %s", given, got, want)
		}
	}
	if got := (connectionFlags{CACert: "ca.pem"}).withScheme("a:1"); got != "https://a:1" {
		t.Errorf("with an authority, a:1 is read as %s", got)
	}
}
