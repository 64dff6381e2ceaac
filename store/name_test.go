package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// TestParseName checks texts that are names and texts that are not.
func TestParseName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", store.NameBytesMax)
	for _, text := range []string{
		"a", "job-42", "accounts/42", "a/b/c", "a b", " ", "...", "a.", ".a", "..a", "a/...", "a/.b/..c", "%2F", "a\\b", "*",
		"ключ/键/🔑",
		"\u00a0", "\u200b", "\ufeff", "\U0010FFFF", "\uFFFD", "~", "\u00a1", long, long[1:] + "y",
		strings.Repeat("é", store.NameBytesMax/2),
	} {
		if name, err := store.ParseName("lock", text); err != nil || string(name) != text {
			t.Errorf("%.20q: %q, %v; want it to be a name", text, name, err)
		}
	}
	for text, why := range map[string]string{
		"": "empty", "/": "empty", "/a": "empty", "a/": "empty", "a//b": "empty", "//": "empty",
		".": `"."`, "..": `".."`, "./a": `"."`, "a/./b": `"."`, "a/..": `".."`, "../a": `".."`,
		"a\x00": "byte 1", "\x01": "byte 0", "a\nb": "byte 1", "a\tb": "byte 1", "ab\x1f": "byte 2", "\x7f": "byte 0",
		"é\u0080": "byte 2", "\u009f": "byte 0",
		"\xff": "UTF-8", "a\xc3": "UTF-8", "\xed\xa0\x80": "UTF-8", "\xc0\xaf": "UTF-8",
		long + "x": "513 bytes", strings.Repeat("é", store.NameBytesMax/2) + "x": "513 bytes",
	} {
		name, err := store.ParseName("lock", text)
		if !errors.Is(err, store.ErrInvalidName) || name != "" || !strings.Contains(err.Error(), why) {
			t.Errorf("%.20q: %q, %v; want ErrInvalidName that says %s", text, name, err, why)
		}
	}
}

// quotedResult matches the words that the rule's functions return, and the reason after token_stale.
var quotedResult = regexp.MustCompile(`(?:then|else|\), )\s*'(\w+)(?: (\w+))?'`)

// TestEveryReasonOfTheRuleHasAKind checks that the classification of rejections knows every verdict and reason that the
// SQL of the rule returns: a new one can't be forgotten.
func TestEveryReasonOfTheRuleHasAKind(t *testing.T) {
	t.Parallel()
	// busy and elsewhere decide nothing, and fence.admit explains closed. The others are no results, but arguments of the
	// policy.
	notRejections := map[string]bool{"admitted": true, "busy": true, "elsewhere": true, "closed": true}
	reasons := 0
	for _, name := range []string{"rule.sql", "admit.sql"} {
		text, err := os.ReadFile(filepath.Join("..", "migrations", "guard", "rule", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range quotedResult.FindAllStringSubmatch(string(text), -1) {
			word, reason := found[1], found[2]
			if notRejections[word] || notRejections[reason] || (store.RejectionCause{Verdict: store.Verdict(word)}).IsKnown() &&
				reason == "" {
				continue
			}
			if reason == "" {
				word, reason = string(store.VerdictTokenStale), word
			}
			reasons++
			if cause := (store.RejectionCause{Verdict: store.Verdict(word), Reason: reason}); !cause.IsKnown() {
				t.Errorf("%s returns %s, which has no kind", name, cause)
			}
		}
	}
	if reasons < 5 {
		t.Errorf("%d reasons were found in the rule, want at least 5", reasons)
	}
	for _, verdict := range append(store.SQLVerdicts, store.VerdictVersionMismatch) {
		if cause := (store.RejectionCause{Verdict: verdict}); !cause.IsKnown() {
			t.Errorf("%s has no kind", verdict)
		}
	}
}
