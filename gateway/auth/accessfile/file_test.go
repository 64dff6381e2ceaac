package accessfile

import (
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/access"
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

// A file that is not as it should be is refused, and the error says what is wrong.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for change, words := range map[string]string{
		"name: ci=>name: CI":                                     "name must have",
		"name: ci=>name: certificate":                            "name is reserved",
		"name: ci=>name: sql":                                    "name is reserved",
		"https://ci.example=>http://ci.example":                  "https",
		"https://ci.example=>https://user@ci.example":            "https",
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
	twice := strings.Replace(good, "certificates:", good[strings.Index(good, "  - name"):strings.Index(good, "certificates")]+"certificates:", 1)
	if _, err := Parse([]byte(twice)); err == nil || !strings.Contains(err.Error(), "another issuer") {
		t.Errorf("an issuer that is there twice: %v", err)
	}
	if _, err := Parse(make([]byte, BytesMax+1)); err == nil {
		t.Error("a file that is too large is accepted")
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
