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
	}

	step2Cases = []ruleCase{
		{"step 2: one beyond the newest", given{acquire}, with(beyond), "token_unknown"},
		{"step 2: the greatest of all tokens", given{acquire}, with(token(store.TokenMax)), "token_unknown"},
		{"step 2: a token where nothing was granted", nil, with(token(1)), "token_unknown"},
	}

	step3Cases = []ruleCase{
		{"step 3: a holder after another's release", given{acquire, release, acquire}, with(newest), "admitted"},
		{"step 3: one below the newest", given{acquire}, with(below), "token_stale superseded"},
		{"step 3: a replaced holder", given{acquire, replace}, with(first), "token_stale superseded"},
		{"step 3: after release", given{acquire, release}, with(newest), "token_stale released"},
		{"step 3: after a late release", given{acquire, expire, release}, with(newest), "token_stale released"},
		{"step 3: after release, and another name's shared lease has the same token",
			given{acquire, release, sameTokenElsewhere("shared")}, with(newest), "token_stale released"},
		{"step 3: after break", given{acquire, breakLock}, with(newest), "token_stale released"},
	}

	step4Cases = []ruleCase{
		{"step 4: a plain token twice", given{acquire, wrote(with(newest))}, with(newest), "token_stale reused"},
		{"step 4: a plain token twice under a policy that says nothing",
			given{under(store.Policy{}), acquire, wrote(with(newest))}, with(newest), "token_stale reused"},
		{"step 4: the next sequence", given{acquire, wrote(with(newest, sequence(1)))},
			with(newest, sequence(2)), "admitted"},
		{"step 4: the next sequence under a policy that says nothing",
			given{under(store.Policy{}), acquire, wrote(with(newest, sequence(1)))}, with(newest, sequence(2)), "admitted"},
		{"step 4: a sequence after a gap", given{acquire, wrote(with(newest, sequence(1)))},
			with(newest, sequence(store.SequenceMax)), "admitted"},
		{"step 4: a sequence in the gap", given{acquire, wrote(with(newest, sequence(1)), with(newest, sequence(9)))},
			with(newest, sequence(8)), "token_stale reused"},
		{"step 4: the last sequence with other content", given{acquire, wrote(with(newest, sequence(2)))},
			with(newest, sequence(2), value("other")), "token_stale reused"},
		{"step 4: a greater token with a lower sequence", given{acquire, wrote(with(newest, sequence(9))), replace},
			with(newest, sequence(1)), "admitted"},
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
		{"same_token: an external token again", given{externalSameToken, wrote(with(token(7)))}, with(token(7)), "admitted"},
		{"same_token: a lower external token", given{externalSameToken, wrote(with(token(7)))},
			with(token(6)), "token_stale superseded"},
	}

	externalCases = []ruleCase{
		{"external: a token that nobody granted here", given{external}, with(token(7)), "admitted"},
		{"external: the greatest of all tokens", given{external}, with(token(store.TokenMax)), "admitted"},
		{"external: the same token", given{external, wrote(with(token(7)))}, with(token(7)), "token_stale reused"},
		{"external: a lower token with a greater sequence", given{external, wrote(with(token(7), sequence(2)))},
			with(token(6), sequence(3)), "token_stale superseded"},
		{"external: any lease_id", given{external}, with(token(7), otherLeaseID), "admitted"},
		{"external: a lower token than was granted before", given{acquire, external}, with(below), "admitted"},
		{"external: no lease, where a policy that was set by SQL demands one", given{externalWithLease}, with(token(7)), "admitted"},
		{"external: after the release of what was granted before", given{acquire, release, external},
			with(newest), "admitted"},
	}

	step5Cases = []ruleCase{
		{"step 5: the lease_id", given{acquire}, with(newest, ownLeaseID), "admitted"},
		{"step 5: a lease_id of nobody", given{acquire}, with(newest, otherLeaseID), "lease_mismatch"},
		{"step 5: the lease_id of the holder before", given{acquire, replace}, with(newest, firstLeaseID), "lease_mismatch"},
		{"step 5: the lease_id, and another name's lease has the same token",
			given{acquire, sameTokenElsewhere("exclusive")}, with(newest, ownLeaseID), "admitted"},
		{"step 5: no lease_id where one is demanded", given{requireLeaseID, acquire}, with(newest), "lease_mismatch"},
		{"step 5: the lease_id where one is demanded", given{requireLeaseID, acquire}, with(newest, ownLeaseID), "admitted"},
	}

	step6Cases = []ruleCase{
		{"step 6: a live lease where one is demanded", given{requireLiveLease, acquire}, with(newest), "admitted"},
		{"step 6: an expired one", given{requireLiveLease, acquire, expire}, with(newest), "lease_expired"},
		{"step 6: an expired one, and another name's lease with the same token is live",
			given{requireLiveLease, acquire, expire, sameTokenElsewhere("exclusive")}, with(newest), "lease_expired"},
		{"step 6: one that another provider has ended", given{requireLiveLease, acquire, endedElsewhere}, with(newest),
			"lease_expired"},
		{"step 6: an expired one where none is demanded", given{acquire, expire}, with(newest), "admitted"},
	}

	step7Cases = []ruleCase{
		{"step 7: one is there, none expected", given{acquire, wrote(with(newest))},
			with(newest, sequence(1), expect(store.ExpectNone)), "version_mismatch"},
		{"step 7: a lower version", given{acquire, wrote(with(newest), with(newest, sequence(1)))},
			with(newest, sequence(2), expect(1)), "version_mismatch"},
		{"step 7: a deletion of what is not there", given{acquire}, with(newest, deletion), "not_found"},
		{"step 7: what was refused did not use up its token",
			given{acquire, rejected(with(newest, expect(7)), "version_mismatch")}, with(newest), "admitted"},
	}
)

// sameTokenElsewhere grants another name a lease with the newest token, as a sequence that went back would.
func sameTokenElsewhere(mode string) step {
	return execute("insert into fence.leases (lock, fencing_token, lease_id, owner_id, mode, ttl_ms, granted_at, expires_at) " +
		"select lock || '-2', fencing_token, gen_random_uuid(), owner_id, '" + mode + "', ttl_ms, clock_timestamp(), " +
		"clock_timestamp() + interval '1 hour' from fence.leases where lock = $1 and fencing_token = $2")
}

// endedElsewhere ends the newest lease as one in Redis ends: before PostgreSQL expects it, and without a release.
var endedElsewhere = execute("update fence.leases set ended_at = clock_timestamp(), end_reason = 'expired' " +
	"where lock = $1 and fencing_token = $2")

// externalWithLease is a policy that store.Policy does not allow.
var externalWithLease = execute("insert into fence.policies (prefix, authority, require_lease_id, require_live_lease) " +
	"values ($1, 'external', true, true)")

var externalSameToken = under(store.Policy{Rule: store.RuleSameToken, Authority: store.AuthorityExternal})

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
	{"steps 1 and 7: no token, a wrong version", given{acquire}, with(none, expect(7)), "token_required"},
	{"steps 3 and 4: released and reused", given{acquire, wrote(with(newest)), release},
		with(newest), "token_stale released"},
	{"steps 6 and 7: an expired lease, a wrong version", given{requireLiveLease, acquire, expire},
		with(newest, expect(7)), "lease_expired"},
}

// sharedRuleCases: a shared lease can't write, and its grant rejects earlier writers.
var sharedRuleCases = []ruleCase{
	{"shared: its token can't write", given{share}, with(newest), "token_stale shared"},
	{"shared: nor beside others", given{share, share}, with(newest), "token_stale shared"},
	{"shared: a writer that is replaced by a reader", given{acquire, wrote(with(newest, sequence(1))), expire, share},
		with(first, sequence(2)), "token_stale superseded"},
}

// scopeRuleCases are about what a subtree lease covers.
var scopeRuleCases = []ruleCase{
	{"scope: just below", given{acquireSubtree}, with(newest, at("/x")), "admitted"},
	{"scope: far below", given{acquireSubtree}, with(newest, at("/x/y/z")), "admitted"},
	{"scope: beside", given{acquireSubtree}, with(newest, at("-x")), "token_unknown"},
	{"scope: below what is beside", given{acquireSubtree}, with(newest, at("-x/y")), "token_unknown"},

	{"scope: below, after release", given{acquireSubtree, release}, with(newest, at("/x")), "token_stale released"},
	{"scope: below, after a grant of the name alone", given{acquireSubtree, expire, acquireNode},
		with(first, at("/x")), "token_stale released"},
	{"scope: below, after a grant of the name alone, to share", given{acquireSubtree, expire, share},
		with(first, at("/x")), "token_stale released"},
	{"scope: below, written before the release", given{acquireSubtree, wrote(with(newest, sequence(1), at("/x"))), release},
		with(newest, sequence(2), at("/x")), "token_stale released"},
	{"scope: below, written before a grant of the name alone",
		given{acquireSubtree, wrote(with(newest, sequence(1), at("/x"))), expire, acquireNode},
		with(first, sequence(2), at("/x")), "token_stale released"},
	{"scope: below, written before", given{acquireSubtree, wrote(with(newest, sequence(1), at("/x")))},
		with(newest, sequence(2), at("/x")), "admitted"},
	{"scope: below, as a reader of the subtree", given{shareSubtree}, with(newest, at("/x")), "token_stale shared"},

	{"scope: where a name below was granted since", given{acquireSubtree, expire, onBelow("/x", acquire)},
		with(first, at("/x")), "token_stale superseded"},
	{"scope: in a subtree below that was granted since", given{acquireSubtree, expire, onBelow("/x", acquireSubtree)},
		with(first, at("/x/y")), "token_stale superseded"},

	{"scope: a name below, before the subtree", given{onBelow("/x", acquire, expire), acquireSubtree},
		ofBelow("/x"), "token_stale superseded"},
	{"scope: a name below, before the subtree, to share", given{onBelow("/x", acquire, expire), shareSubtree},
		ofBelow("/x"), "token_stale superseded"},
	{"scope: a subtree below, before the subtree", given{onBelow("/x", acquireSubtree, expire), acquireSubtree},
		ofBelow("/x", at("/x/y")), "token_stale superseded"},
	{"scope: a name below, after the subtree", given{acquireSubtree, release, onBelow("/x", acquire)}, ofBelow("/x"),
		"admitted"},
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
