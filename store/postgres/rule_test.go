package postgres_test

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
	verdict string // as verdictOf says it
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
	verdict := func(ctx context.Context, s *fixture) error {
		return s.expectVerdict(ctx, source, c.write(s), c.verdict)
	}
	return storeCase{c.name, all(all(c.given...), verdict)}
}

// The rule, step by step: each is seen to admit what it must and to reject what it must, at its very boundary.
var (
	step1Cases = []ruleCase{
		{"step 1: a token", given{acquire}, with(newest), "admitted"},
		{"step 1: no token", given{acquire}, with(none), "token_required"},
		{"step 1: no token but a sequence", given{acquire}, with(none, sequence(1)), "token_required"},
		{"step 1: no token but the lease_id", given{acquire}, with(none, ownLeaseID), "token_required"},
		{"step 1: no token where nothing was granted", nil, with(none), "token_required"},
		{"step 1: no token under same_token", given{sameToken, acquire}, with(none), "token_required"},
		{"step 1: no token under authority external", given{external}, with(none), "token_required"},
	}

	step2Cases = []ruleCase{
		{"step 2: the newest token", given{acquire, replace}, with(newest), "admitted"},
		{"step 2: one beyond the newest", given{acquire}, with(beyond), "token_unknown"},
		{"step 2: the greatest of all tokens", given{acquire}, with(token(store.TokenMax)), "token_unknown"},
		{"step 2: one beyond, after release", given{acquire, release}, with(beyond), "token_unknown"},
		{"step 2: one beyond, under same_token", given{sameToken, acquire}, with(beyond), "token_unknown"},
		{"step 2: a token where nothing was granted", nil, with(token(1)), "token_unknown"},
		{"step 2: the token of another lock", given{acquire}, with(ofAnotherLock), "token_unknown"},
	}

	step3Cases = []ruleCase{
		{"step 3: the holder", given{acquire}, with(newest), "admitted"},
		{"step 3: a late holder that was not replaced", given{acquire, expire}, with(newest), "admitted"},
		{"step 3: a late holder, also after a sweep", given{acquire, expire, sweep}, with(newest), "admitted"},
		{"step 3: a holder after another's release", given{acquire, release, acquire}, with(newest), "admitted"},
		{"step 3: one below the newest", given{acquire}, with(below), "token_stale superseded"},
		{"step 3: a replaced holder", given{acquire, replace}, with(first), "token_stale superseded"},
		{"step 3: a replaced holder that had written", given{acquire, wrote(with(newest)), replace},
			with(first, sequence(9)), "token_stale superseded"},
		{"step 3: a replaced holder under same_token", given{sameToken, acquire, replace},
			with(first), "token_stale superseded"},
		{"step 3: after release", given{acquire, release}, with(newest), "token_stale released"},
		{"step 3: after a late release", given{acquire, expire, release}, with(newest), "token_stale released"},
		{"step 3: after release under same_token", given{sameToken, acquire, wrote(with(newest)), release},
			with(newest), "token_stale released"},
		{"step 3: after break", given{acquire, breakLock}, with(newest), "token_stale released"},
		{"step 3: after the break of a late lease", given{acquire, expire, breakLock}, with(newest), "token_stale released"},
		{"step 3: after release and another grant", given{acquire, release, acquire}, with(first), "token_stale superseded"},
		{"step 3: after break and another grant", given{acquire, breakLock, acquire}, with(first), "token_stale superseded"},
		{"step 3: an old token after release", given{acquire, replace, release}, with(first), "token_stale superseded"},
	}

	step4Cases = []ruleCase{
		{"step 4: a plain token", given{acquire}, with(newest), "admitted"},
		{"step 4: a plain token twice", given{acquire, wrote(with(newest))}, with(newest), "token_stale reused"},
		{"step 4: a plain token twice under a policy that says nothing",
			given{under(store.Policy{}), acquire, wrote(with(newest))}, with(newest), "token_stale reused"},
		{"step 4: sequence 0 first", given{acquire}, with(newest, sequence(0)), "admitted"},
		{"step 4: sequence 0 after a plain token", given{acquire, wrote(with(newest))},
			with(newest, sequence(0)), "token_stale reused"},
		{"step 4: a plain token after sequence 0", given{acquire, wrote(with(newest, sequence(0)))},
			with(newest), "token_stale reused"},
		{"step 4: sequence 1 after a plain token", given{acquire, wrote(with(newest))},
			with(newest, sequence(1)), "admitted"},
		{"step 4: the next sequence", given{acquire, wrote(with(newest, sequence(1)))},
			with(newest, sequence(2)), "admitted"},
		{"step 4: a sequence after a gap", given{acquire, wrote(with(newest, sequence(1)))},
			with(newest, sequence(store.SequenceMax)), "admitted"},
		{"step 4: a sequence in the gap", given{acquire, wrote(with(newest, sequence(1)), with(newest, sequence(9)))},
			with(newest, sequence(8)), "token_stale reused"},
		{"step 4: the last sequence with other content", given{acquire, wrote(with(newest, sequence(2)))},
			with(newest, sequence(2), value("other")), "token_stale reused"},
		{"step 4: a plain token after a sequence", given{acquire, wrote(with(newest, sequence(1)))},
			with(newest), "token_stale reused"},
		{"step 4: a greater token with a lower sequence", given{acquire, wrote(with(newest, sequence(9))), replace},
			with(newest, sequence(1)), "admitted"},
		{"step 4: a greater token without one", given{acquire, wrote(with(newest, sequence(9))), replace},
			with(newest), "admitted"},
		{"step 4: the late holder's second write", given{acquire, wrote(with(newest)), expire},
			with(newest), "token_stale reused"},
	}

	sameTokenCases = []ruleCase{
		{"same_token: a plain token twice", given{sameToken, acquire, wrote(with(newest))}, with(newest), "admitted"},
		{"same_token: a plain token after a sequence", given{sameToken, acquire, wrote(with(newest, sequence(5)))},
			with(newest), "admitted"},
		{"same_token: the sequence stays shut out after that",
			given{sameToken, acquire, wrote(with(newest, sequence(5)), with(newest))},
			with(newest, sequence(5), value("other")), "token_stale reused"},
		{"same_token: sequence 0 after a plain token", given{sameToken, acquire, wrote(with(newest))},
			with(newest, sequence(0)), "token_stale reused"},
		{"same_token: the next sequence", given{sameToken, acquire, wrote(with(newest, sequence(5)), with(newest))},
			with(newest, sequence(6)), "admitted"},
		{"same_token: an external token again", given{externalSameToken, wrote(with(token(7)))}, with(token(7)), "admitted"},
		{"same_token: a lower external token", given{externalSameToken, wrote(with(token(7)))},
			with(token(6)), "token_stale superseded"},
		{"same_token: a lower external token with a sequence", given{externalSameToken, wrote(with(token(7)))},
			with(token(6), sequence(9)), "token_stale superseded"},
	}

	externalCases = []ruleCase{
		{"external: a token that nobody granted here", given{external}, with(token(7)), "admitted"},
		{"external: the greatest of all tokens", given{external}, with(token(store.TokenMax)), "admitted"},
		{"external: a greater token", given{external, wrote(with(token(7), sequence(9)))}, with(token(8)), "admitted"},
		{"external: the same token", given{external, wrote(with(token(7)))}, with(token(7)), "token_stale reused"},
		{"external: the next sequence", given{external, wrote(with(token(7), sequence(1)))},
			with(token(7), sequence(2)), "admitted"},
		{"external: a lower sequence", given{external, wrote(with(token(7), sequence(2)))},
			with(token(7), sequence(1)), "token_stale reused"},
		{"external: a lower token with a greater sequence", given{external, wrote(with(token(7), sequence(2)))},
			with(token(6), sequence(3)), "token_stale superseded"},
		{"external: any lease_id", given{external}, with(token(7), otherLeaseID), "admitted"},
		{"external: a lower token than was granted before", given{acquire, external}, with(below), "admitted"},
		{"external: the same token, lower than was granted before", given{acquire, external, wrote(with(below))},
			with(below), "token_stale reused"},
		{"external: after the release of what was granted before", given{acquire, release, external},
			with(newest), "admitted"},
		{"external: a precondition that fails", given{external, wrote(with(token(7)))},
			with(token(8), expect(store.ExpectNone)), "version_mismatch"},
	}

	step5Cases = []ruleCase{
		{"step 5: no lease_id", given{acquire}, with(newest), "admitted"},
		{"step 5: the lease_id", given{acquire}, with(newest, ownLeaseID), "admitted"},
		{"step 5: a lease_id of nobody", given{acquire}, with(newest, otherLeaseID), "lease_mismatch"},
		{"step 5: the lease_id of the holder before", given{acquire, replace}, with(newest, firstLeaseID), "lease_mismatch"},
		{"step 5: a late holder's lease_id", given{acquire, expire, sweep}, with(newest, ownLeaseID), "admitted"},
		{"step 5: no lease_id where one is demanded", given{requireLeaseID, acquire}, with(newest), "lease_mismatch"},
		{"step 5: the lease_id where one is demanded", given{requireLeaseID, acquire}, with(newest, ownLeaseID), "admitted"},
		{"step 5: a lease_id of nobody where one is demanded", given{requireLeaseID, acquire},
			with(newest, otherLeaseID), "lease_mismatch"},
	}

	step6Cases = []ruleCase{
		{"step 6: a live lease where one is demanded", given{requireLiveLease, acquire}, with(newest), "admitted"},
		{"step 6: an expired one", given{requireLiveLease, acquire, expire}, with(newest), "lease_expired"},
		{"step 6: an expired one that was swept", given{requireLiveLease, acquire, expire, sweep},
			with(newest), "lease_expired"},
		{"step 6: an expired one where none is demanded", given{acquire, expire}, with(newest), "admitted"},
		{"step 6: a live one after an expired one", given{requireLiveLease, acquire, replace}, with(newest), "admitted"},
	}

	step7Cases = []ruleCase{
		{"step 7: none is there, none expected", given{acquire}, with(newest, expect(store.ExpectNone)), "admitted"},
		{"step 7: one is there, none expected", given{acquire, wrote(with(newest))},
			with(newest, sequence(1), expect(store.ExpectNone)), "version_mismatch"},
		{"step 7: none is there, any expected", given{acquire}, with(newest, expect(store.ExpectAny)), "version_mismatch"},
		{"step 7: one is there, any expected", given{acquire, wrote(with(newest))},
			with(newest, sequence(1), expect(store.ExpectAny)), "admitted"},
		{"step 7: the version", given{acquire, wrote(with(newest), with(newest, sequence(1)))},
			with(newest, sequence(2), expect(2)), "admitted"},
		{"step 7: a lower version", given{acquire, wrote(with(newest), with(newest, sequence(1)))},
			with(newest, sequence(2), expect(1)), "version_mismatch"},
		{"step 7: a greater version", given{acquire, wrote(with(newest), with(newest, sequence(1)))},
			with(newest, sequence(2), expect(3)), "version_mismatch"},
		{"step 7: a version where none is there", given{acquire}, with(newest, expect(1)), "version_mismatch"},
		{"step 7: a deletion of the version", given{acquire, wrote(with(newest))},
			with(newest, sequence(1), deletion, expect(1)), "admitted"},
		{"step 7: a deletion of another version", given{acquire, wrote(with(newest))},
			with(newest, sequence(1), deletion, expect(2)), "version_mismatch"},
		{"step 7: a deletion of none that is expected", given{acquire},
			with(newest, deletion, expect(store.ExpectAny)), "version_mismatch"},
		{"step 7: a deletion of what is not there", given{acquire}, with(newest, deletion), "not found"},
		{"step 7: what was refused did not use up its token",
			given{acquire, rejected(with(newest, expect(7)), "version_mismatch")}, with(newest), "admitted"},
		{"step 7: nor did a deletion of what is not there", given{acquire, rejected(with(newest, deletion), "not found")},
			with(newest), "admitted"},
	}
)

var externalSameToken = under(store.Policy{Rule: store.RuleSameToken, Authority: store.AuthorityExternal})

// ofAnotherLock grants another lock and takes that token.
func ofAnotherLock(s *fixture) int64 {
	other := s.below("-other")
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

// orderCases are writes that fail two steps of the rule: the first of them is the answer.
var orderCases = []ruleCase{
	{"steps 1 and 5: no token, a wrong lease_id", given{acquire}, with(none, otherLeaseID), "token_required"},
	{"steps 1 and 7: no token, a wrong version", given{acquire}, with(none, expect(7)), "token_required"},
	{"steps 2 and 5: unknown, a wrong lease_id", given{acquire}, with(beyond, otherLeaseID), "token_unknown"},
	{"steps 2 and 6: unknown, an expired lease", given{requireLiveLease, acquire, expire}, with(beyond), "token_unknown"},
	{"steps 2 and 7: unknown, a wrong version", given{acquire}, with(beyond, expect(7)), "token_unknown"},
	{"steps 3 and 4: superseded and reused", given{acquire, wrote(with(newest)), replace},
		with(first), "token_stale superseded"},
	{"steps 3 and 4: released and reused", given{acquire, wrote(with(newest)), release},
		with(newest), "token_stale released"},
	{"steps 3 and 5: superseded, a wrong lease_id", given{acquire, replace},
		with(first, otherLeaseID), "token_stale superseded"},
	{"steps 3 and 6: released, an expired lease", given{requireLiveLease, acquire, expire, release},
		with(newest), "token_stale released"},
	{"steps 3 and 7: released, a wrong version", given{acquire, release}, with(newest, expect(7)), "token_stale released"},
	{"steps 4 and 5: reused, a wrong lease_id", given{acquire, wrote(with(newest))},
		with(newest, otherLeaseID), "token_stale reused"},
	{"steps 4 and 6: reused, an expired lease", given{requireLiveLease, acquire, wrote(with(newest)), expire},
		with(newest), "token_stale reused"},
	{"steps 4 and 7: reused, a wrong version", given{acquire, wrote(with(newest))},
		with(newest, expect(7)), "token_stale reused"},
	{"steps 5 and 6: a wrong lease_id, an expired lease", given{requireLiveLease, acquire, expire},
		with(newest, otherLeaseID), "lease_mismatch"},
	{"steps 5 and 7: a wrong lease_id and version", given{acquire},
		with(newest, otherLeaseID, expect(7)), "lease_mismatch"},
	{"steps 6 and 7: an expired lease, a wrong version", given{requireLiveLease, acquire, expire},
		with(newest, expect(7)), "lease_expired"},
}

// sharedRuleCases: a shared lease can't write, and its grant rejects earlier writers.
var sharedRuleCases = []ruleCase{
	{"shared: its token can't write", given{share}, with(newest), "token_stale shared"},
	{"shared: nor with a sequence and its lease_id", given{share}, with(newest, sequence(1), ownLeaseID),
		"token_stale shared"},
	{"shared: nor under same_token", given{sameToken, share}, with(newest), "token_stale shared"},
	{"shared: nor where a live lease is demanded", given{requireLiveLease, share}, with(newest), "token_stale shared"},
	{"shared: nor when it has expired", given{share, expire}, with(newest), "token_stale shared"},
	{"shared: nor when it was released", given{share, release}, with(newest), "token_stale shared"},
	{"shared: nor beside others", given{share, share}, with(newest), "token_stale shared"},
	{"shared: nor before others", given{share, share}, with(first), "token_stale superseded"},
	{"shared: one beyond", given{share}, with(beyond), "token_unknown"},
	{"shared: a writer that is replaced by a reader", given{acquire, wrote(with(newest, sequence(1))), expire, share},
		with(first, sequence(2)), "token_stale superseded"},
	{"shared: its last write again", given{acquire, wrote(with(newest, sequence(1))), expire, share},
		with(first, sequence(1)), "admitted replayed"},
	{"shared: a writer after a reader", given{share, release, acquire}, with(newest), "admitted"},
	{"shared: a writer after a reader that has expired", given{share, expire, acquire}, with(newest), "admitted"},
	{"shared: an external token after a reader", given{share, external}, with(newest), "admitted"},
}

// scopeRuleCases are about what a subtree lease covers.
var scopeRuleCases = []ruleCase{
	{"scope: the name itself", given{acquireSubtree}, with(newest), "admitted"},
	{"scope: just below", given{acquireSubtree}, with(newest, at("/x")), "admitted"},
	{"scope: far below", given{acquireSubtree}, with(newest, at("/x/y/z")), "admitted"},
	{"scope: beside", given{acquireSubtree}, with(newest, at("-x")), "token_unknown"},
	{"scope: below what is beside", given{acquireSubtree}, with(newest, at("-x/y")), "token_unknown"},
	{"scope: below a lease of the name alone", given{acquire}, with(newest, at("/x")), "token_unknown"},
	{"scope: a token for each resource below", given{acquireSubtree, wrote(with(newest, at("/x")))},
		with(newest, at("/y")), "admitted"},
	{"scope: a second write below", given{acquireSubtree, wrote(with(newest, at("/x")))},
		with(newest, at("/x")), "token_stale reused"},

	{"scope: below, after release", given{acquireSubtree, release}, with(newest, at("/x")), "token_stale released"},
	{"scope: below, after break", given{acquireSubtree, breakLock}, with(newest, at("/x")), "token_stale released"},
	{"scope: below, a late holder", given{acquireSubtree, expire, sweep}, with(newest, at("/x")), "admitted"},
	{"scope: below, after a grant of the name alone", given{acquireSubtree, expire, acquireNode},
		with(first, at("/x")), "token_stale released"},
	{"scope: below, after a grant of the name alone, to share", given{acquireSubtree, expire, share},
		with(first, at("/x")), "token_stale released"},
	{"scope: below, with the token of the name alone", given{acquireSubtree, expire, acquireNode},
		with(newest, at("/x")), "token_unknown"},
	{"scope: below, after a reader of the subtree", given{acquireSubtree, expire, shareSubtree},
		with(first, at("/x")), "token_stale superseded"},
	{"scope: below, as a reader of the subtree", given{shareSubtree}, with(newest, at("/x")), "token_stale shared"},

	{"scope: where a name below was granted since", given{acquireSubtree, expire, onBelow("/x", acquire)},
		with(first, at("/x")), "token_stale superseded"},
	{"scope: where a name below was granted since, and released",
		given{acquireSubtree, expire, onBelow("/x", acquire, release)}, with(first, at("/x")), "token_stale superseded"},
	{"scope: below a name that was granted alone since", given{acquireSubtree, expire, onBelow("/x", acquire)},
		with(first, at("/x/y")), "admitted"},
	{"scope: elsewhere than a name that was granted since", given{acquireSubtree, expire, onBelow("/x", acquire)},
		with(first, at("/y")), "admitted"},
	{"scope: in a subtree below that was granted since", given{acquireSubtree, expire, onBelow("/x", acquireSubtree)},
		with(first, at("/x/y")), "token_stale superseded"},
	{"scope: elsewhere than a subtree that was granted since",
		given{acquireSubtree, expire, onBelow("/x", acquireSubtree)}, with(first, at("/y")), "admitted"},

	{"scope: a name below, before the subtree", given{onBelow("/x", acquire, expire), acquireSubtree},
		ofBelow("/x"), "token_stale superseded"},
	{"scope: a name below, before the subtree, to share", given{onBelow("/x", acquire, expire), shareSubtree},
		ofBelow("/x"), "token_stale superseded"},
	{"scope: a subtree below, before the subtree", given{onBelow("/x", acquireSubtree, expire), acquireSubtree},
		ofBelow("/x", at("/x/y")), "token_stale superseded"},
	{"scope: a subtree below, after the subtree was released", given{onBelow("/x", acquireSubtree, expire), acquireSubtree,
		release},
		ofBelow("/x", at("/x/y")), "token_stale superseded"},
	{"scope: a name below, after the subtree", given{acquireSubtree, release, onBelow("/x", acquire)}, ofBelow("/x"),
		"admitted"},

	{"scope: an external token below", given{acquireSubtree, onBelow("/x", external)}, with(token(7), at("/x")),
		"admitted"},
	{"scope: the subtree's token below, where tokens are external",
		given{acquireSubtree, release, onBelow("/x", external)}, with(newest, at("/x")), "admitted"},
	{"scope: a lower token than an external one below", given{acquireSubtree, onBelow("/x", external),
		wrote(with(token(1<<40), at("/x")))},
		with(newest, at("/x")), "token_stale superseded"},
	{"scope: the lease_id of a name below", given{onBelow("/x", acquire, release), acquireSubtree},
		with(newest, at("/x"), leaseIDOfBelow("/x")), "lease_mismatch"},
}

// ofBelow is a write under the newest token of a lock below, to that name.
func ofBelow(suffix store.Name, options ...option) writeSpec {
	return func(s *fixture) store.Write {
		write := with(newest)(s.below(suffix))
		for _, option := range options {
			option(s, &write)
		}
		return write
	}
}

func leaseIDOfBelow(suffix store.Name) option {
	return func(s *fixture, w *store.Write) { w.LeaseID = new(s.below(suffix).newest().ID) }
}

// ofSubtree are writes to a name and two below.
var ofSubtree = specs{
	with(newest, sequence(1)), with(newest, sequence(1), at("/x")), with(newest, sequence(1), at("/y/z")),
}

// subtreeWriteCases: one token of a subtree for many resources in it.
var subtreeWriteCases = []storeCase{
	{"scope: a transaction over the name and two below, and its replay", all(acquireSubtree,
		transacted("versions [1 1 1]", ofSubtree, ofSubtree...),
		changingNothing(transacted("replayed versions [1 1 1]", ofSubtree, ofSubtree...)), release,
		changingNothing(transacted("replayed versions [1 1 1]", ofSubtree, ofSubtree...)))},
	{"scope: a transaction of which one name was granted since", all(acquireSubtree, expire, onBelow("/y", acquire),
		transacted("token_stale superseded of y", []writeSpec{with(newest, at("/x")), with(newest, at("/y"))},
			with(newest, at("/x")), with(newest, at("/y"))))},
	{"scope: a set over two below", all(acquireSubtree, setOf(
		setCase{with(newest, at("/x")), "admitted v1 created"},
		setCase{with(newest, at("/y")), "admitted v1 created"},
		setCase{with(newest, at("-z")), "token_unknown"}))},
}
