package access_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencegate/fencegate/internal/access"
)

// names are paths of few segments, of which some are beginnings of others.
var names = rapid.Custom(func(t *rapid.T) string {
	segments := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "ab", "a!", "b", ":", ","}), 1, 3).Draw(t, "segments")
	return strings.Join(segments, "/")
})

var grants = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) access.Grant {
	prefix := rapid.OneOf(rapid.Just(access.AllNames), names, names, names).Draw(t, "prefix")
	return access.Grant{Scope: rapid.SampledFrom(access.Scopes).Draw(t, "scope"), Prefix: prefix}
}), 0, 6)

// below is Covers, segment by segment.
func below(prefix, name string) bool {
	if prefix == "" {
		return true
	}
	of, segments := strings.Split(prefix, "/"), strings.Split(name, "/")
	return len(segments) >= len(of) && slices.Equal(segments[:len(of)], of)
}

// A principal may do what one of its grants says, and nothing else: no scope implies another one.
func TestMay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := grants.Draw(t, "grants")
		p := access.New("p", access.Key, given)
		name := names.Draw(t, "name")
		for _, scope := range access.Scopes {
			allows := func(name string) bool {
				return slices.ContainsFunc(given, func(g access.Grant) bool { return g.Scope == scope && below(g.Prefix, name) })
			}
			all := slices.Contains(given, access.Grant{Scope: scope})
			any := slices.ContainsFunc(given, func(g access.Grant) bool { return g.Scope == scope })
			if p.May(scope, name) != allows(name) || p.MayAll(scope) != all || p.MayAny(scope) != any {
				t.Errorf("%s on %q with %v: got %t, all %t, any %t, want %t, %t, %t", scope, name, given,
					p.May(scope, name), p.MayAll(scope), p.MayAny(scope), allows(name), all, any)
			}
		}
	})
}

// The prefixes of a scope cover exactly what the principal may do, none covers another one, and they are sorted.
func TestWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := grants.Draw(t, "grants")
		p := access.New("p", access.Key, given)
		name := names.Draw(t, "name")
		for _, scope := range access.Scopes {
			within := p.Within(scope)
			if within == nil || !slices.IsSorted(within) {
				t.Errorf("%v: %s is within %q, want a sorted list", given, scope, within)
			}
			for i, prefix := range within {
				if slices.ContainsFunc(slices.Delete(slices.Clone(within), i, i+1), func(other string) bool {
					return access.Covers(other, prefix)
				}) {
					t.Errorf("%v: %s is within %q, where %q is covered twice", given, scope, within, prefix)
				}
			}
			covered := slices.ContainsFunc(within, func(prefix string) bool { return access.Covers(prefix, name) })
			if covered != p.May(scope, name) {
				t.Errorf("%v: %s is within %q, and on %q it is %t", given, scope, within, name, p.May(scope, name))
			}
		}
	})
}

// Grants that were written are read as the same ones, whatever is in the names.
func TestGrantsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minimal := access.Minimal(grants.Draw(t, "grants"))
		read, err := access.ParseAll(access.Texts(minimal))
		if err != nil || !slices.Equal(read, minimal) {
			t.Errorf("%v was written as %q and read as %v, %v", minimal, access.Texts(minimal), read, err)
		}
		if got := access.New("p", access.Key, minimal).Grants(); !slices.Equal(got, minimal) {
			t.Errorf("the grants %v of a principal are %v", minimal, got)
		}
	})
}

func TestParseGrants(t *testing.T) {
	for text, want := range map[string]string{
		"write:accounts/eu": "write:accounts/eu", "lock,write:jobs": "lock:jobs write:jobs", "observe:": "observe:",
		"all:a:b": "lock:a:b write:a:b read:a:b observe:a:b admin:a:b", "lock,lock:a": "lock:a",
		"": "", "write": "", ":a": "", "wirte:a": "", "lock,:a": "", "Lock:a": "", "lock :a": "", "lock;write:a": "",
	} {
		grants, err := access.ParseAll([]string{text})
		if got := strings.Join(access.Texts(grants), " "); got != want || (err == nil) != (want != "") {
			t.Errorf("%q was read as %q, %v, want %q", text, got, err, want)
		}
	}
}

// FuzzParseGrants checks that what was read is written so that it is read as the same.
func FuzzParseGrants(f *testing.F) {
	f.Add("lock,write:jobs")
	f.Add("all:")
	f.Fuzz(func(t *testing.T, text string) {
		grants, err := access.ParseGrants(text)
		if err != nil {
			return
		}
		minimal := access.Minimal(grants)
		if again, err := access.ParseAll(access.Texts(minimal)); err != nil || !slices.Equal(again, minimal) {
			t.Errorf("%q was read as %v, and that as %v, %v", text, minimal, again, err)
		}
	})
}
