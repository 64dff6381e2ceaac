package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

func TestEveryCodeHasAnExitCode(t *testing.T) {
	for want, codes := range map[int][]api.Code{
		3: {api.CodeLockHeld},
		4: {api.CodeTokenStale, api.CodeTokenUnknown, api.CodeLeaseLost, api.CodeLeaseMismatch, api.CodeLeaseExpired},
		5: {api.CodeNotFound},
		6: {api.CodeVersionMismatch},
		7: {api.CodeUnavailable},
		8: {api.CodeInvalidRequest, api.CodeInvalidName, api.CodeInvalidToken, api.CodeTokenRequired, api.CodeTooLarge,
			api.CodeNotExternal, api.CodeUnsupported},
		9: {api.CodeUnauthenticated, api.CodeForbidden},
		1: {api.CodeUnknownHost, api.CodeDeadlock, api.CodeConstraintViolation, api.CodeRowsMismatch,
			api.CodeRateLimited, api.CodeInternal, "one_that_is_not_known_yet"},
	} {
		for _, code := range codes {
			err := fmt.Errorf("wrapped: %w", &lockclient.Error{Problem: &api.Problem{Code: code}})
			if got := exitCode(err); got != want {
				t.Errorf("%s exits with %d, want %d", code, got, want)
			}
		}
	}
	for want, err := range map[int]error{
		0: nil,
		1: errors.New("disk full"),
		2: fmt.Errorf("wrapped: %w", usagef("--limit")),
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v exits with %d, want %d", err, got, want)
		}
	}
	if got := exitCode(&lockclient.AnswerError{}); got != 1 {
		t.Errorf("a foreign answer exits with %d, want 1", got)
	}
}

func TestHelpListsEveryExitCode(t *testing.T) {
	text := description()
	for code := exitOK; code <= exitBadInput; code++ {
		if !strings.Contains(text, fmt.Sprintf("\n  %d  ", code)) {
			t.Errorf("the help does not list exit code %d", code)
		}
	}
	for code, exit := range codeExits {
		if (exit == exitNotHolder || exit == exitBadInput) && !strings.Contains(text, string(code)) {
			t.Errorf("the help does not list %s", code)
		}
	}
}

// withoutVariable are the flags whose variable has another meaning: FENCEGATE_OWNER_ID is the holder's, which "fencegate
// run" sets, and must not select; FENCEGATE_LEASES is the gateway's.
var withoutVariable = map[string]bool{
	"rejections --owner-id": true, "session ls --owner-id": true, "policy set --leases": true,
}

// Scripts set FENCEGATE_URL once for all commands: the same flag has the same variable everywhere, and no other flag
// has it.
func TestEveryFlagHasItsEnvironmentVariable(t *testing.T) {
	p, err := newProgram()
	check(t, err)
	flags := 0
	var check func(node *kong.Node, hidden bool)
	check = func(node *kong.Node, hidden bool) {
		hidden = hidden || node.Hidden
		for _, flag := range node.Flags {
			if flag.Name == "help" || flag.Name == "version" {
				continue
			}
			flags++
			if strings.HasPrefix(flag.Name, "answer-") {
				t.Errorf("%s --%s would be set by --output env", node.FullPath(), flag.Name)
			}
			want := []string{"FENCEGATE_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))}
			if withoutVariable[node.Path()+" --"+flag.Name] {
				want = nil
			}
			if !slices.Equal(flag.Envs, want) {
				t.Errorf("%s --%s has the variables %q, want %q", node.FullPath(), flag.Name, flag.Envs, want)
			}
			if flag.Help == "" && !hidden {
				t.Errorf("%s --%s has no help", node.FullPath(), flag.Name)
			}
		}
		for _, child := range node.Children {
			check(child, hidden)
		}
	}
	check(p.parser.Model.Node, false)
	if flags < 40 {
		t.Errorf("saw %d flags only", flags)
	}
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
		{"policy", "ls", "-o", "env"}, {"watch", "a", "-o", "env"},
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
		{"watch"}, {"elect"}, {"elect", "a", "--ttl", "1ms"}, {"run", "true"},
		{"run", "--lock", "a"},
		{"watch", "a", "--url", "gateway"},
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

// The exit codes of what a gateway refuses. It has the settings of its configuration file.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fencegate.yaml")
	check(t, os.WriteFile(path, []byte("body-bytes-max: 2000\n"), 0o600))
	newShell(t, "--config", path).each(map[string]func(*testing.T, shell){
		"lock held": heldLock, "not the holder": formerHolder, "lease expired": expiredLease,
		"not found": missingNames, "version mismatch": otherVersions, "bad input": badInput,
	})
}

func heldLock(_ *testing.T, s shell) {
	s.must("lock", "acquire", "held", "--owner-id", "first", "--ttl", "1h")
	s.fails(3, "held by first", "lock", "acquire", "held", "--owner-id", "second")
	s.fails(3, ".\nTry again in ", "lock", "acquire", "held", "--owner-id", "first")
}

func formerHolder(t *testing.T, s shell) {
	old := fields(s.must("lock", "acquire", "lost", "--ttl", "1h"))
	token, whose := old["fencing_token"], []string{"--lease-id", old["lease_id"], "--token", old["fencing_token"]}
	s.must("put", "lost", "k", "v", "--token", token+".5")

	s.fails(4, "token_stale", "put", "lost", "k", "other", "--token", token+".5")
	s.fails(4, "\nGive the lease_id that", "put", "lost", "k", "v", "--token", token+".6", "--lease-id", otherID)
	s.fails(4, "lease_mismatch", "delete", "lost", "k", "--token", token+".6", "--lease-id", otherID)
	s.fails(4, "granted is "+token, "delete", "lost", "k", "--token", "999999")
	s.fails(4, "lease_lost", "lock", "renew", "lost", "--lease-id", otherID, "--token", token)
	s.fails(4, "lease_lost", append([]string{"lock", "release", "lost", "--owner-id", "other"}, whose...)...)

	s.must("lock", "break", "lost", "--reason", "test")
	s.fails(4, "token_stale", "put", "lost", "k", "v", "--token", token+".6")
	s.fails(4, "broken", append([]string{"lock", "renew", "lost"}, whose...)...)
	s.must("lock", "acquire", "lost", "--ttl", "1h")
	s.fails(4, "token_stale", "delete", "lost", "k", "--token", token+".6")
	if value := s.must("get", "lost", "k"); value != "v" {
		t.Errorf("a rejected write stored %q", value)
	}
}

func expiredLease(t *testing.T, s shell) {
	s.must("policy", "set", "live", "--require-live-lease")
	lease := fields(s.must("lock", "acquire", "live", "--ttl", "100ms"))
	await.True(t, "the lease expires", func() bool { return fields(s.must("lock", "get", "live"))["state"] == "expired" })
	s.fails(4, "lease_expired", "put", "live", "k", "v", "--token", lease["fencing_token"])
}

func missingNames(_ *testing.T, s shell) {
	s.fails(5, "not_found", "lock", "get", "missing")
	s.fails(5, "not_found", "lock", "break", "missing", "--reason", "test")
	s.fails(5, "not_found", "lock", "release", "missing", "--token", "1", "--lease-id", otherID)
	s.fails(5, "not_found", "get", "missing", "k")
	lease := fields(s.must("lock", "acquire", "missing"))
	s.fails(5, "not_found", "delete", "missing", "k", "--token", lease["fencing_token"])
}

func otherVersions(_ *testing.T, s shell) {
	token := fields(s.must("lock", "acquire", "versions"))["fencing_token"]
	s.fails(6, "no such record now", "put", "versions", "k", "v", "--token", token+".1", "--if-match", "7")
	version := fields(s.must("put", "versions", "k", "v", "--token", token+".1"))["version"]
	s.fails(6, "version is now "+version, "put", "versions", "k", "v", "--token", token+".2", "--if-none-match")
	s.fails(6, "version is now "+version, "delete", "versions", "k", "--token", token+".2", "--if-match", "99")
}

func badInput(_ *testing.T, s shell) {
	token := fields(s.must("lock", "acquire", "input"))["fencing_token"]
	s.fails(8, "invalid_name", "lock", "get", "a//b")
	s.fails(8, "invalid_name", "lock", "acquire", strings.Repeat("n", 513))
	s.fails(8, "invalid_request", "lock", "acquire", "input/b", "--ttl", "1ms")
	s.fails(8, "invalid_request", "lock", "acquire", "input/b", "--owner-id", "")
	s.fails(8, "invalid_request", "put", "input", "k", "{", "--content-type", "application/json", "--token", token)
	s.fails(8, "invalid_token", "lock", "renew", "input", "--token", "0", "--lease-id", otherID)
	s.fails(8, "too_large", "put", "input", "k", strings.Repeat("v", 2001), "--token", token)
}
