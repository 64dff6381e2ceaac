package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/issuertest"
)

// A gateway accepts keys, tokens and certificates at the same time, each with its own grants, and no request without one.
func TestServeAcceptsAllKinds(t *testing.T) {
	t.Parallel()
	issuer, dir := issuertest.New(t), t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	access := file("access.yaml", `
issuers:
  - {name: local, issuer: "`+issuer.URL+`", audiences: [fencegate], rules: [{when: {sub: alice}, grants: ["all:"]}]}
certificates:
  rules: [{when: {common_name: "**"}, grants: ["lock:certified"]}]
`)
	s, _, flags := newTLSShell(t, "--auth", "keys,tokens,certificates", "--access-file", access)
	certified := func(args ...string) []string { return append(args, flags...) }
	by := func(credential string, args ...string) []string {
		authority := slices.Index(flags, "--ca-cert")
		return append(append(args, flags[authority:authority+2]...), "--token-file", file(credential[:8], credential))
	}
	s.must(certified("lock", "acquire", "certified/a")...)
	s.fails(exitNotAllowed, "forbidden", certified("lock", "acquire", "other")...)
	token := issuer.Token(nil)
	await.True(t, "the token is accepted", func() bool { return s.do(by(token, "keys", "list")...).code == exitOK })
	key := fields(s.must(by(token, "keys", "create", "k", "--grant", "lock:keyed")...))["key"]
	s.must(by(key, "lock", "acquire", "keyed")...)
	s.fails(exitNotAllowed, "forbidden", by(key, "lock", "acquire", "certified")...)
	s.fails(exitNotAllowed, "unauthenticated", by(issuer.Token(map[string]any{"aud": "x"}), "lock", "ls")...)
	s.fails(exitNotAllowed, "unauthenticated", "lock", "ls", flags[0], flags[1])
}

// serve refuses a configuration with which no request could be accepted.
func TestServeRefusesUnusableAuth(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.yaml")
	check(t, os.WriteFile(path, []byte("certificates: {rules: [{when: {dns: a}, grants: ['read:']}]}"), 0o600))
	for flags, words := range map[string]string{
		"--auth tokens":                             "--access-file",
		"--auth tokens --access-file missing":       "no such file",
		"--auth tokens --access-file " + path:       "no issuers",
		"--auth keys --access-file " + path:         "--access-file is for",
		"--auth certificates":                       "--access-file",
		"--auth passwords":                          "--auth",
		"--auth certificates --access-file " + path: "--client-ca",
	} {
		got := shell{t: t}.do(append([]string{"serve", "--listen", "127.0.0.1:0"}, strings.Fields(flags)...)...)
		if got.code != exitUsage || !strings.Contains(got.errOut, words) {
			t.Errorf("%s: exited with %d: %s", flags, got.code, got.errOut)
		}
	}
}
