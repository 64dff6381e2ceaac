package gateway

import (
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// An acquire for which no token is left is refused as such: it changes nothing, and no retry can succeed.
func TestNoTokensLeft(t *testing.T) {
	h := newHarness(t, Config{})
	h.exec(t, "insert into fence.fences (resource, granted_token, open) values ('full', 9007199254740991, false)")
	noTokens := func(lock string) {
		t.Helper()
		problem := refused(t, h.post(t, lockPath(lock, "/acquire"), `{"owner_id":"w"}`), api.CodeUnavailable)
		if problem.Retryable || problem.Outcome != api.OutcomeNotApplied || !strings.Contains(problem.Detail, "administrator") {
			t.Errorf("%s: %+v", lock, problem)
		}
		if changed := h.count(t, "select count(*) from fence.leases") + h.count(t, "select count(*) from fence.fences where resource = 'new'"); changed != 0 {
			t.Errorf("%s: %d rows were made", lock, changed)
		}
	}
	noTokens("full") // LF002
	h.exec(t, "select setval('fence.tokens', 9007199254740991)")
	noTokens("new") // 2200H
}
