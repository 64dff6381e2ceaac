package apikey_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/apikey"
)

// A key has the form that scanners for secrets look for, and is read with its id. No two keys are the same.
func TestNew(t *testing.T) {
	form := regexp.MustCompile(`^fgk_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}$`)
	seen := map[apikey.Digest]bool{}
	for range 100 {
		text, id, digest := apikey.New()
		gotID, gotDigest, ok := apikey.Parse(text)
		if !form.MatchString(text) || !ok || gotID != id || gotDigest != digest || seen[digest] {
			t.Errorf("%q with id %q was read as %q, %t, want its id, and a digest that no other key has", text, id, gotID, ok)
		}
		seen[digest] = true
	}
}

// A key with any character changed, or of another length, is none: the checksum shows it.
func TestParseRefusesOthers(t *testing.T) {
	text, _, _ := apikey.New()
	for i := range text {
		other := byte('x')
		if text[i] == other {
			other = 'y'
		}
		if changed := text[:i] + string(other) + text[i+1:]; ok(changed) {
			t.Errorf("%q was read as a key, and it is %q with another character", changed, text)
		}
	}
	for _, malformed := range []string{
		"", "fgk_", text[:len(text)-1], text + "x", " " + text, strings.ToUpper(text), "Bearer " + text, strings.Repeat("x", 64),
	} {
		if ok(malformed) {
			t.Errorf("%q was read as a key", malformed)
		}
	}
}

func ok(text string) bool {
	_, _, ok := apikey.Parse(text)
	return ok
}

// Reading a key allocates at most once: it is done for every request.
func TestParseAllocations(t *testing.T) {
	text, _, _ := apikey.New()
	if got := testing.AllocsPerRun(100, func() { _, _, _ = apikey.Parse(text) }); got > 1 {
		t.Errorf("%.0f allocations, want at most 1", got)
	}
}

func FuzzParse(f *testing.F) {
	text, _, _ := apikey.New()
	f.Add(text)
	f.Add("fgk_\xff")
	f.Fuzz(func(t *testing.T, text string) {
		if id, _, ok := apikey.Parse(text); ok && !apikey.IsID(id) {
			t.Errorf("%q was read as a key with the id %q", text, id)
		}
	})
}
