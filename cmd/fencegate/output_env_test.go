package main

import (
	"os/exec"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fencegate/fencegate/gateway/api"
)

// In a shell that evaluates the answer of an acquire, later commands need neither flags nor the name of the lock, and
// no name can run a command. The answer of the release ends that.
func TestEnvOutputInAShell(t *testing.T) {
	t.Parallel()
	s := newShell(t)
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
func TestEnvOutputOfASession(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.startCommand(strings.NewReader(""), exec.Command("sh", "-euc", `
		eval "$("$FENCEGATE" session create --ttl 1h -o env)"
		"$FENCEGATE" lock acquire a
		test "$("$FENCEGATE" session get -o json | grep -c '"leases":1')" = 1
		eval "$("$FENCEGATE" session end -o env)"
		test "${FENCEGATE_SESSION_ID-none} $FENCEGATE_ANSWER_RELEASED" = "none 1"`)).wants(0, "")
}

// Only an answer that grants something sets the variables that later commands read.
func TestEnvOutputOfOthersLocks(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.must("lock", "acquire", "a", "--ttl", "1h")
	out := s.must("lock", "get", "a", "-o", "env")
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "export "+answerPrefix) {
			t.Errorf("the state of a lock sets %s", line)
		}
	}
	if !strings.Contains(out, "export FENCEGATE_ANSWER_LOCK='a'\n") {
		t.Errorf("got %s", out)
	}
}

// The YAML has the documents of the JSON, one after the other, and errors are problem documents in it, too.
func TestYAMLOutput(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.must("lock", "acquire", "a", "--ttl", "1h")
	s.must("lock", "acquire", "b", "--ttl", "1h")
	var locks []string
	decoder := yaml.NewDecoder(strings.NewReader(s.must("lock", "ls", "-o", "yaml")))
	for {
		var lock struct{ Lock, State string }
		if err := decoder.Decode(&lock); err != nil {
			break
		}
		locks = append(locks, lock.Lock+" "+lock.State)
	}
	if got := strings.Join(locks, ", "); got != "a held, b held" {
		t.Errorf("the locks are %q", got)
	}
	got := s.do("get", "a", "missing", "-o", "yaml")
	var problem struct{ Code api.Code }
	if err := yaml.Unmarshal([]byte(got.errOut), &problem); err != nil || problem.Code != api.CodeNotFound || got.out != "" ||
		!strings.Contains(got.errOut, "\ncode: not_found\n") {
		t.Errorf("got %+v, %v", got, err)
	}
}
