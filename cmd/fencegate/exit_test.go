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
	"strings"
	"testing"

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

func TestExitUsage(t *testing.T) {
	t.Parallel()
	s := shell{t, "http://127.0.0.1:1"}
	lease := []string{"--lease-id", "x", "--token", "1"}
	for _, args := range [][]string{
		{"lock"}, {"lock", "get"}, {"lock", "get", "a", "--no-such-flag"}, {"lock", "acquire", "a", "--ttl", "1ns"},
		{"lock", "acquire", "a", "--metadata", "[1]"}, append([]string{"lock", "renew", "a", "--ttl", "1.5ms"}, lease...),
		{"lock", "release", "a", "--lease-id", "x", "--token", "1.2"}, {"lock", "ls", "--limit", "0"},
		{"lock", "ls", "--url", "not a url"}, {"lock", "ls", "--output", "env"}, {"lock", "ls", "--timeout", "0s"},
		append([]string{"lock", "release"}, lease...), {"policy", "ls", "-o", "env"}, {"watch", "a", "-o", "env"},
		{"policy", "set", "a", "--max-hold", "1ns"}, {"put", "a", "k", "v"}, {"put", "a", "k", "v", "--token", "01"},
		{"put", "a", "k", "v", "--token", "1", "--file", "f"},
		{"put", "a", "k", "v", "--token", "1", "--if-match", "1", "--if-none-match"},
		{"put", "a", "k", "v", "--token", "1.1", "--sequence", "2"}, {"put", "a", "k", "v", "--token", "1", "--sequence=-1"},
		{"put", ".", "k", "v", "--token", "1"}, {"delete", "./x", "k", "--token", "1"}, {"get", ".", "k"},
		{"rejections", "--since=-1h"}, {"rejections", "--code", "lock_held"}, {"rejections", "--limit=-1"},
		{"session", "get"}, {"session", "create", "--ttl", "1ns"}, {"session", "create", "--metadata", "[]"},
		{"elect", "a", "--ttl", "1ms"}, {"run", "--lock", "a"}, {"version", "extra"},
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
		"\nSee \"fencegate session get --help\".\n":                                                          {"sessions", "get"},
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
	s.fails(1, page.URL+" does not answer as a fencegate gateway (500", "lock", "get", "a")
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

// What a gateway refuses has its exit code, and the message says what to do. It has the settings of its configuration file.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fencegate.yaml")
	check(t, os.WriteFile(path, []byte("body-bytes-max: 2000\n"), 0o600))
	s := newShell(t, "--config", path)
	lease := fields(s.must("lock", "acquire", "lost", "--owner-id", "first", "--ttl", "1h"))
	token := lease["fencing_token"]
	s.fails(3, "held by first", "lock", "acquire", "lost", "--owner-id", "second")
	s.fails(3, ". Try again in ", "lock", "acquire", "lost", "--owner-id", "first")
	s.fails(5, "not_found", "lock", "get", "missing")
	s.fails(6, "no such record now", "put", "lost", "k", "v", "--token", token+".1", "--if-match", "7")
	version := fields(s.must("put", "lost", "k", "v", "--token", token+".5"))["version"]
	s.fails(6, "version is now "+version, "delete", "lost", "k", "--token", token+".6", "--if-match", "99")
	s.fails(4, "\nGive the lease_id that", "put", "lost", "k", "v", "--token", token+".6", "--lease-id", otherID)
	s.fails(4, "granted is "+token, "delete", "lost", "k", "--token", "999999")
	s.fails(8, "too_large", "put", "lost", "k", strings.Repeat("v", 2001), "--token", token)
	s.must("lock", "break", "lost", "--reason", "test")
	s.fails(4, "broken", "lock", "renew", "lost", "--owner-id", "first", "--lease-id", lease["lease_id"], "--token", token)
}
