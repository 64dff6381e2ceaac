package store_test

import (
	"context"
	"slices"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// ruleCase is one write and what the rule says of it.
type ruleCase struct {
	name    string
	given   given // what happened before
	write   writeSpec
	verdict store.Verdict
	reason  string // of token_stale
}

// below is the case under a subtree lease, for a resource in the subtree.
func (c ruleCase) below() ruleCase {
	c.name, c.given = "subtree: "+c.name, append(given{inSubtree}, c.given...)
	return c
}

// alone is the case where all that was written before was written one by one.
func (c ruleCase) alone() ruleCase {
	c.name, c.given = "alone: "+c.name, append(given{writingAlone}, c.given...)
	return c
}

func writingAlone(_ context.Context, s *fixture) error {
	s.alone = true
	return nil
}

func inSubtree(_ context.Context, s *fixture) error {
	s.subtree = true
	return nil
}

func (c ruleCase) by(source source) storeCase {
	return storeCase{c.name, func(ctx context.Context, s *fixture) error {
		if err := s.do(ctx, c.given...); err != nil {
			return err
		}
		return s.expectVerdict(ctx, source, c.write(s), c.verdict, c.reason)
	}}
}

// The rule, step by step: each is seen to admit what it must and to reject what it must, at its very boundary.
var (
	step1Cases = []ruleCase{
		{"step 1: a token", given{acquire}, with(newest), store.Admitted, ""},
		{"step 1: no token", given{acquire}, with(none), store.VerdictTokenRequired, ""},
		{"step 1: no token but a sequence", given{acquire}, with(none, sequence(1)), store.VerdictTokenRequired, ""},
		{"step 1: no token but the lease_id", given{acquire}, with(none, ownLeaseID), store.VerdictTokenRequired, ""},
		{"step 1: no token where nothing was granted", nil, with(none), store.VerdictTokenRequired, ""},
		{"step 1: no token under same_token", given{sameToken, acquire}, with(none), store.VerdictTokenRequired, ""},
		{"step 1: no token under authority external", given{external}, with(none), store.VerdictTokenRequired, ""},
	}

	step2Cases = []ruleCase{
		{"step 2: the newest token", given{acquire, replace}, with(newest), store.Admitted, ""},
		{"step 2: one beyond the newest", given{acquire}, with(beyond), store.VerdictTokenUnknown, ""},
		{"step 2: the greatest of all tokens", given{acquire}, with(token(store.TokenMax)), store.VerdictTokenUnknown, ""},
		{"step 2: one beyond, after release", given{acquire, release}, with(beyond), store.VerdictTokenUnknown, ""},
		{"step 2: one beyond, under same_token", given{sameToken, acquire}, with(beyond), store.VerdictTokenUnknown, ""},
		{"step 2: a token where nothing was granted", nil, with(token(1)), store.VerdictTokenUnknown, ""},
		{"step 2: the token of another lock", given{acquire}, with(ofAnotherLock), store.VerdictTokenUnknown, ""},
	}

	step3Cases = []ruleCase{
		{"step 3: the holder", given{acquire}, with(newest), store.Admitted, ""},
		{"step 3: a late holder that was not replaced", given{acquire, expire}, with(newest), store.Admitted, ""},
		{"step 3: a late holder, also after a sweep", given{acquire, expire, sweep}, with(newest), store.Admitted, ""},
		{"step 3: a holder after another's release", given{acquire, release, acquire}, with(newest), store.Admitted, ""},
		{"step 3: one below the newest", given{acquire}, with(below), store.VerdictTokenStale, "superseded"},
		{"step 3: a replaced holder", given{acquire, replace}, with(first), store.VerdictTokenStale, "superseded"},
		{"step 3: a replaced holder that had written", given{acquire, wrote(with(newest)), replace},
			with(first, sequence(9)), store.VerdictTokenStale, "superseded"},
		{"step 3: a replaced holder under same_token", given{sameToken, acquire, replace},
			with(first), store.VerdictTokenStale, "superseded"},
		{"step 3: after release", given{acquire, release}, with(newest), store.VerdictTokenStale, "released"},
		{"step 3: after a late release", given{acquire, expire, release}, with(newest), store.VerdictTokenStale, "released"},
		{"step 3: after release under same_token", given{sameToken, acquire, wrote(with(newest)), release},
			with(newest), store.VerdictTokenStale, "released"},
		{"step 3: after break", given{acquire, breakLock}, with(newest), store.VerdictTokenStale, "released"},
		{"step 3: after the break of a late lease", given{acquire, expire, breakLock},
			with(newest), store.VerdictTokenStale, "released"},
		{"step 3: after release and another grant", given{acquire, release, acquire},
			with(first), store.VerdictTokenStale, "superseded"},
		{"step 3: after break and another grant", given{acquire, breakLock, acquire},
			with(first), store.VerdictTokenStale, "superseded"},
		{"step 3: an old token after release", given{acquire, replace, release},
			with(first), store.VerdictTokenStale, "superseded"},
	}

	step4Cases = []ruleCase{
		{"step 4: a plain token", given{acquire}, with(newest), store.Admitted, ""},
		{"step 4: a plain token twice", given{acquire, wrote(with(newest))},
			with(newest), store.VerdictTokenStale, "reused"},
		{"step 4: sequence 0 first", given{acquire}, with(newest, sequence(0)), store.Admitted, ""},
		{"step 4: sequence 0 after a plain token", given{acquire, wrote(with(newest))},
			with(newest, sequence(0)), store.VerdictTokenStale, "reused"},
		{"step 4: a plain token after sequence 0", given{acquire, wrote(with(newest, sequence(0)))},
			with(newest), store.VerdictTokenStale, "reused"},
		{"step 4: sequence 1 after a plain token", given{acquire, wrote(with(newest))},
			with(newest, sequence(1)), store.Admitted, ""},
		{"step 4: the next sequence", given{acquire, wrote(with(newest, sequence(1)))},
			with(newest, sequence(2)), store.Admitted, ""},
		{"step 4: a sequence after a gap", given{acquire, wrote(with(newest, sequence(1)))},
			with(newest, sequence(store.SequenceMax)), store.Admitted, ""},
		{"step 4: a sequence in the gap", given{acquire, wrote(with(newest, sequence(1)), with(newest, sequence(9)))},
			with(newest, sequence(8)), store.VerdictTokenStale, "reused"},
		{"step 4: the last sequence with other content", given{acquire, wrote(with(newest, sequence(2)))},
			with(newest, sequence(2), value("other")), store.VerdictTokenStale, "reused"},
		{"step 4: a plain token after a sequence", given{acquire, wrote(with(newest, sequence(1)))},
			with(newest), store.VerdictTokenStale, "reused"},
		{"step 4: a greater token with a lower sequence", given{acquire, wrote(with(newest, sequence(9))), replace},
			with(newest, sequence(1)), store.Admitted, ""},
		{"step 4: a greater token without one", given{acquire, wrote(with(newest, sequence(9))), replace},
			with(newest), store.Admitted, ""},
		{"step 4: the late holder's second write", given{acquire, wrote(with(newest)), expire},
			with(newest), store.VerdictTokenStale, "reused"},
	}

	sameTokenCases = []ruleCase{
		{"same_token: a plain token twice", given{sameToken, acquire, wrote(with(newest))},
			with(newest), store.Admitted, ""},
		{"same_token: a plain token after a sequence", given{sameToken, acquire, wrote(with(newest, sequence(5)))},
			with(newest), store.Admitted, ""},
		{"same_token: the sequence stays shut out after that",
			given{sameToken, acquire, wrote(with(newest, sequence(5)), with(newest))},
			with(newest, sequence(5), value("other")), store.VerdictTokenStale, "reused"},
		{"same_token: sequence 0 after a plain token", given{sameToken, acquire, wrote(with(newest))},
			with(newest, sequence(0)), store.VerdictTokenStale, "reused"},
		{"same_token: the next sequence", given{sameToken, acquire, wrote(with(newest, sequence(5)), with(newest))},
			with(newest, sequence(6)), store.Admitted, ""},
		{"same_token: an external token again", given{externalSameToken, wrote(with(token(7)))},
			with(token(7)), store.Admitted, ""},
		{"same_token: a lower external token", given{externalSameToken, wrote(with(token(7)))},
			with(token(6)), store.VerdictTokenStale, "superseded"},
		{"same_token: a lower external token with a sequence", given{externalSameToken, wrote(with(token(7)))},
			with(token(6), sequence(9)), store.VerdictTokenStale, "superseded"},
	}

	externalCases = []ruleCase{
		{"external: a token that nobody granted here", given{external}, with(token(7)), store.Admitted, ""},
		{"external: the greatest of all tokens", given{external}, with(token(store.TokenMax)), store.Admitted, ""},
		{"external: a greater token", given{external, wrote(with(token(7), sequence(9)))},
			with(token(8)), store.Admitted, ""},
		{"external: the same token", given{external, wrote(with(token(7)))},
			with(token(7)), store.VerdictTokenStale, "reused"},
		{"external: the next sequence", given{external, wrote(with(token(7), sequence(1)))},
			with(token(7), sequence(2)), store.Admitted, ""},
		{"external: a lower sequence", given{external, wrote(with(token(7), sequence(2)))},
			with(token(7), sequence(1)), store.VerdictTokenStale, "reused"},
		{"external: a lower token with a greater sequence", given{external, wrote(with(token(7), sequence(2)))},
			with(token(6), sequence(3)), store.VerdictTokenStale, "superseded"},
		{"external: any lease_id", given{external}, with(token(7), otherLeaseID), store.Admitted, ""},
		{"external: a lower token than was granted before", given{acquire, external},
			with(below), store.Admitted, ""},
		{"external: the same token, lower than was granted before", given{acquire, external, wrote(with(below))},
			with(below), store.VerdictTokenStale, "reused"},
		{"external: after the release of what was granted before", given{acquire, release, external},
			with(newest), store.Admitted, ""},
		{"external: a precondition that fails", given{external, wrote(with(token(7)))},
			with(token(8), expect(store.ExpectNone)), store.VerdictVersionMismatch, ""},
	}

	step5Cases = []ruleCase{
		{"step 5: no lease_id", given{acquire}, with(newest), store.Admitted, ""},
		{"step 5: the lease_id", given{acquire}, with(newest, ownLeaseID), store.Admitted, ""},
		{"step 5: a lease_id of nobody", given{acquire}, with(newest, otherLeaseID), store.VerdictLeaseMismatch, ""},
		{"step 5: the lease_id of the holder before", given{acquire, replace},
			with(newest, firstLeaseID), store.VerdictLeaseMismatch, ""},
		{"step 5: a late holder's lease_id", given{acquire, expire, sweep}, with(newest, ownLeaseID), store.Admitted, ""},
		{"step 5: no lease_id where one is demanded", given{requireLeaseID, acquire},
			with(newest), store.VerdictLeaseMismatch, ""},
		{"step 5: the lease_id where one is demanded", given{requireLeaseID, acquire},
			with(newest, ownLeaseID), store.Admitted, ""},
		{"step 5: a lease_id of nobody where one is demanded", given{requireLeaseID, acquire},
			with(newest, otherLeaseID), store.VerdictLeaseMismatch, ""},
	}

	step6Cases = []ruleCase{
		{"step 6: a live lease where one is demanded", given{requireLiveLease, acquire}, with(newest), store.Admitted, ""},
		{"step 6: an expired one", given{requireLiveLease, acquire, expire}, with(newest), store.VerdictLeaseExpired, ""},
		{"step 6: an expired one that was swept", given{requireLiveLease, acquire, expire, sweep},
			with(newest), store.VerdictLeaseExpired, ""},
		{"step 6: an expired one where none is demanded", given{acquire, expire}, with(newest), store.Admitted, ""},
		{"step 6: a live one after an expired one", given{requireLiveLease, acquire, replace},
			with(newest), store.Admitted, ""},
	}

	step7Cases = []ruleCase{
		{"step 7: none is there, none expected", given{acquire}, with(newest, expect(store.ExpectNone)), store.Admitted, ""},
		{"step 7: one is there, none expected", given{acquire, wrote(with(newest))},
			with(newest, sequence(1), expect(store.ExpectNone)), store.VerdictVersionMismatch, ""},
		{"step 7: none is there, any expected", given{acquire},
			with(newest, expect(store.ExpectAny)), store.VerdictVersionMismatch, ""},
		{"step 7: one is there, any expected", given{acquire, wrote(with(newest))},
			with(newest, sequence(1), expect(store.ExpectAny)), store.Admitted, ""},
		{"step 7: the version", given{acquire, wrote(with(newest), with(newest, sequence(1)))},
			with(newest, sequence(2), expect(2)), store.Admitted, ""},
		{"step 7: a lower version", given{acquire, wrote(with(newest), with(newest, sequence(1)))},
			with(newest, sequence(2), expect(1)), store.VerdictVersionMismatch, ""},
		{"step 7: a greater version", given{acquire, wrote(with(newest), with(newest, sequence(1)))},
			with(newest, sequence(2), expect(3)), store.VerdictVersionMismatch, ""},
		{"step 7: a version where none is there", given{acquire}, with(newest, expect(1)), store.VerdictVersionMismatch, ""},
		{"step 7: a deletion of the version", given{acquire, wrote(with(newest))},
			with(newest, sequence(1), deletion, expect(1)), store.Admitted, ""},
		{"step 7: a deletion of another version", given{acquire, wrote(with(newest))},
			with(newest, sequence(1), deletion, expect(2)), store.VerdictVersionMismatch, ""},
		{"step 7: a deletion of none that is expected", given{acquire},
			with(newest, deletion, expect(store.ExpectAny)), store.VerdictVersionMismatch, ""},
		{"step 7: a deletion of what is not there", given{acquire}, with(newest, deletion), notFound, ""},
		{"step 7: what was refused did not use up its token",
			given{acquire, rejected(with(newest, expect(7)), store.VerdictVersionMismatch, "")},
			with(newest), store.Admitted, ""},
		{"step 7: nor did a deletion of what is not there", given{acquire, rejected(with(newest, deletion), notFound, "")},
			with(newest), store.Admitted, ""},
	}
)

var externalSameToken = under(store.Policy{Rule: store.RuleSameToken, Authority: store.AuthorityExternal})

// ofAnotherLock grants another lock and takes that token.
func ofAnotherLock(s *fixture) int64 {
	other := s.beside("-other")
	if err := acquire(context.Background(), other); err != nil {
		panic(err)
	}
	return other.newest().Token
}

// ruleCases are played on a name that was granted itself, and on one below a subtree that was granted: the rule is the
// same.
func ruleCases() []ruleCase {
	cases := slices.Concat(step1Cases, step2Cases, step3Cases, step4Cases, sameTokenCases, externalCases,
		step5Cases, step6Cases, step7Cases, orderCases, replayCases, sharedRuleCases, holdRuleCases)
	for _, c := range slices.Clone(cases) {
		cases = append(cases, c.below())
	}
	return slices.Concat(cases, scopeRuleCases, sessionRuleCases)
}

// TestRule checks that every source has the same rule.
func TestRule(t *testing.T) {
	t.Parallel()
	sources := map[string]source{"a set of writes": bySet, "a write alone": byOne, "a transaction": byTransaction}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cases []storeCase
			for _, c := range ruleCases() {
				cases = append(cases, c.by(source))
			}
			runCases(t, cases)
		})
	}
}
