package accessfile

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

const good = `
issuers:
  - name: ci
    issuer: https://ci.example
    audiences: [fencegate]
    principal: "{group}/{/nested/deep.er/id~1x}"
    leeway: 5s
    rules:
      - when: {group: "eu-*", admin: "true"}
        grants: ["all:eu"]
      - when: {roles: writer, "/nested/deep.er/number": "7"}
        grants: ["write:a", "lock:a"]
certificates:
  rules:
    - {when: {dns: "**"}, grants: ["read:"]}
`

// Claims are mapped to a principal by a template, and to the grants of all rules that match.
func TestMap(t *testing.T) {
	t.Parallel()
	file, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	nested := func(id any) map[string]any {
		return map[string]any{"deep.er": map[string]any{"id/x": id, "number": 7.0}}
	}
	for _, c := range []struct {
		claims Claims
		want   string // the name and the grants; "": none
	}{
		{Claims{"group": "eu-1", "nested": nested("x")}, "ci:eu-1/x"},
		{Claims{"group": "eu-1", "admin": true, "nested": nested("x")}, "ci:eu-1/x lock:eu write:eu read:eu observe:eu admin:eu"},
		{Claims{"group": "eu-1/2", "admin": true, "nested": nested("x")}, "ci:eu-1/2/x"},
		{Claims{"group": "g", "roles": []any{"x", "writer"}, "nested": nested(12.0)}, "ci:g/12 lock:a write:a"},
		{Claims{"group": []any{"g"}, "roles": "writer", "nested": nested("x")}, "ci:g/x lock:a write:a"},
		{Claims{"group": "g", "roles": "writers", "nested": nested("x")}, "ci:g/x"},
		{Claims{"group": []any{"g", "h"}, "nested": nested("x")}, ""},
		{Claims{"group": "g", "nested": nested(1e16)}, ""},
		{Claims{"group": "g", "nested": nested(nil)}, ""},
		{Claims{"group": "g", "nested": "x"}, ""},
		{Claims{"group": "", "nested": nested("x")}, ""},
		{Claims{"group": "\xff", "nested": nested("x")}, ""},
		{Claims{"nested": nested("x")}, ""},
	} {
		got := ""
		if principal, err := file.Issuers[0].Map(c.claims, access.Token); err == nil {
			got = strings.Join(append([]string{principal.Name}, access.Texts(principal.Grants())...), " ")
		}
		if got != c.want {
			t.Errorf("%v was mapped to %q, want %q", c.claims, got, c.want)
		}
	}
}

// In a pattern, * stands for text within a segment, and ** for any text. All else stands for itself.
func TestGlobs(t *testing.T) {
	t.Parallel()
	for pattern, texts := range map[string][2][]string{
		"a":      {{"a"}, {"", "aa", "A", "a\n"}},
		"":       {{""}, {"a"}},
		"*":      {{"", "a", "a b", "a\n"}, {"a/b", "a:b"}},
		"**":     {{"", "a/b:c\n"}, nil},
		"a*c":    {{"ac", "abc"}, {"a/c", "abcd", "babc"}},
		"a/**/c": {{"a//c", "a/b/b/c"}, {"a/c"}},
		"a.[b]?": {{"a.[b]?"}, {"axb"}},
		`\*`:     {{`\`, `\x`}, {"*"}},
	} {
		glob, err := ParseGlob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for i, all := range texts {
			for _, text := range all {
				if got := glob.matchesAny([]string{text}); got != (i == 0) {
					t.Errorf("%q matches %q: %t", pattern, text, got)
				}
			}
		}
	}
}

const (
	signIn   = "leeway: 5s=>sign_in: {client_id: fencegate, "
	callback = "/v1/sign-in/ci/callback}"
)

// A sign-in has defaults, and may name where the issuer sends users back to.
func TestParseSignIn(t *testing.T) {
	t.Parallel()
	_, settings, _ := strings.Cut(signIn, "=>")
	text := strings.Replace(good, "leeway: 5s", settings+"redirect_url: https://a.example/locks"+callback, 1)
	file, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := file.Issuers[0].SignIn; got.Label != "ci" || len(got.Scopes) != 1 || got.Scopes[0] != "openid" {
		t.Errorf("read %+v, want the name as the label, and the scope openid", got)
	}
}

// The example in docs/security.md can be used.
func TestDocumentedSignIn(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Signing in by an issuer")
	_, rest, _ := strings.Cut(section, "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	file, err := Parse([]byte(example))
	if err != nil || file.Issuers[0].SignIn.Label != "Example SSO" {
		t.Errorf("the example was read as %+v, %v", file, err)
	}
}

// A file that is not as it should be is refused, and the error says what is wrong.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for change, words := range map[string]string{
		"name: ci=>name: CI":                                     "name must have",
		"name: ci=>name: certificate":                            "name is reserved",
		"name: ci=>name: sql":                                    "name is reserved",
		"https://ci.example=>http://ci.example":                  "https",
		"https://ci.example=>https://user@ci.example":            "https",
		"leeway: 5s=>sign_in: {client_id: other}":                "audiences must contain",
		"leeway: 5s=>sign_in: {label: x}":                        "client_id",
		signIn + "scopes: [email]}":                              "openid",
		signIn + `label: "a\nb"}`:                                "label",
		signIn + "}\n    jwks_url: https://a.example":            "jwks_url",
		signIn + "redirect_url: http://a.example" + callback:     "redirect_url",
		signIn + "redirect_url: https://a.example/other}":        "redirect_url",
		"[fencegate]=>[]":                                        "audiences",
		"leeway: 5s=>leeway: 1h":                                 "leeway",
		"leeway: 5s=>leeway: 1h, x: y":                           "line",
		"leeway: 5s=>jwks_file: f\n    ca_file: g":               "jwks_file",
		"leeway: 5s=>jwks_url: file:///etc/passwd":               "https",
		"leeway: 5s=>leway: 5s":                                  "leway",
		"leeway: 5s=>leeway: 5s\n    leeway: 6s":                 "already defined",
		`{group}/{=>{group/{`:                                    "principal",
		`"{group}/{/nested/deep.er/id~1x}"=>"all"`:               "principal",
		"all:eu=>al:eu":                                          "rule 1",
		"all:eu=>all:eu//x":                                      "rule 1",
		`{dns: "**"}=>{}`:                                        "certificates",
		"certificates:=>---\ncertificates:":                      "more than one",
		"certificates:=>  - {name: x}\ncertificates:":            `issuer "x"`,
		"certificates:=>  - null\ncertificates:":                 "issuer 2 is empty",
		good + "=>":                                              "neither",
		"rules:\n    - {when=>grants_claim: x\n  rule: [{when":   "line",
		`{when: {dns: "**"}, grants: ["read:"]}=>{grants: [""]}`: "when",
	} {
		old, replacement, _ := strings.Cut(change, "=>")
		text := strings.Replace(good, old, replacement, 1)
		if _, err := Parse([]byte(text)); text == good || err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: got %v, want an error with %q", change, err, words)
		}
	}
	second := good[strings.Index(good, "  - name"):strings.Index(good, "certificates")]
	for _, twice := range []string{
		second, strings.Replace(second, "name: ci", "name: b", 1), strings.Replace(second, "//ci.", "//b.", 1),
	} {
		text := strings.Replace(good, "certificates:", twice+"certificates:", 1)
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), "another issuer") {
			t.Errorf("two issuers of one name, or URL: got %v, want an error", err)
		}
	}
	var many strings.Builder
	for i := range store.KeyGrantsMax {
		fmt.Fprintf(&many, `"read:n%d", `, i)
	}
	for words, text := range map[string]string{
		"the limit is 1048576": good + strings.Repeat("#", BytesMax),
		"at most 1000 bytes":   strings.Replace(good, "eu-*", strings.Repeat("a", globMax+1), 1),
		"the limit is 100":     strings.Replace(good, `["all:eu"`, "["+many.String()+`"all:eu"`, 1),
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("a file with more than a limit: got %v, want an error with %q", err, words)
		}
	}
}

// FuzzParse checks that every file is read or refused, and that what was read maps claims to principals of the issuer
// only.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("issuers: [{}]"))
	f.Add([]byte("certificates: {rules: [{when: {a: '*'}, grants: ['all:']}], grants_claim: /a/b}"))
	claims := Claims{"sub": "s", "group": "eu-1", "a": map[string]any{"b": []any{"read:x", 1.5}}}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse(text)
		if err != nil {
			return
		}
		for _, issuer := range file.Issuers {
			principal, err := issuer.Map(claims, access.Token)
			if err == nil && !strings.HasPrefix(principal.Name, issuer.Name+":") {
				t.Errorf("the principal %q is not one of %q", principal.Name, issuer.Name)
			}
		}
		if file.Certificates != nil {
			_, _ = file.Certificates.Map(claims, access.Certificate)
		}
	})
}
