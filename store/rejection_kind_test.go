package store_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// quotedResult matches the words that the rule's functions return, and the reason after token_stale.
var quotedResult = regexp.MustCompile(`(?:then|else|\), )\s*'(\w+)(?: (\w+))?'`)

// TestEveryReasonOfTheRuleHasAKind checks that the classification of rejections knows every verdict and reason that the
// SQL of the rule returns: a new one can't be forgotten.
func TestEveryReasonOfTheRuleHasAKind(t *testing.T) {
	t.Parallel()
	// busy decides nothing, and fence.admit explains closed. The others are no results, but arguments of the policy.
	notRejections := map[string]bool{"admitted": true, "busy": true, "closed": true}
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
