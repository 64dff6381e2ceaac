package store_test

import (
	"context"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// sharedRuleCases: a shared lease can't write, and shuts out who could.
var sharedRuleCases = []ruleCase{
	{"shared: its token can't write", given{share}, with(newest), store.VerdictTokenStale, "shared"},
	{"shared: nor with a sequence and its lease_id", given{share}, with(newest, sequence(1), ownLeaseID),
		store.VerdictTokenStale, "shared"},
	{"shared: nor under same_token", given{sameToken, share}, with(newest), store.VerdictTokenStale, "shared"},
	{"shared: nor where a live lease is demanded", given{requireLiveLease, share}, with(newest), store.VerdictTokenStale,
		"shared"},
	{"shared: nor when it has expired", given{share, expire}, with(newest), store.VerdictTokenStale, "shared"},
	{"shared: nor when it was released", given{share, release}, with(newest), store.VerdictTokenStale, "shared"},
	{"shared: nor beside others", given{share, share}, with(newest), store.VerdictTokenStale, "shared"},
	{"shared: nor before others", given{share, share}, with(first), store.VerdictTokenStale, "superseded"},
	{"shared: one beyond", given{share}, with(beyond), store.VerdictTokenUnknown, ""},
	{"shared: a writer who is replaced by a reader", given{acquire, wrote(with(newest, sequence(1))), expire, share},
		with(first, sequence(2)), store.VerdictTokenStale, "superseded"},
	{"shared: its last write again", given{acquire, wrote(with(newest, sequence(1))), expire, share},
		with(first, sequence(1)), replayed, ""},
	{"shared: a writer after a reader", given{share, release, acquire}, with(newest), store.Admitted, ""},
	{"shared: a writer after a reader that has expired", given{share, expire, acquire}, with(newest), store.Admitted, ""},
	{"shared: an external token after a reader", given{share, external}, with(newest), store.Admitted, ""},
}

// scopeRuleCases are about what a subtree lease covers.
var scopeRuleCases = []ruleCase{
	{"scope: the name itself", given{acquireSubtree}, with(newest), store.Admitted, ""},
	{"scope: just below", given{acquireSubtree}, with(newest, at("/x")), store.Admitted, ""},
	{"scope: far below", given{acquireSubtree}, with(newest, at("/x/y/z")), store.Admitted, ""},
	{"scope: beside", given{acquireSubtree}, with(newest, at("-x")), store.VerdictTokenUnknown, ""},
	{"scope: below what is beside", given{acquireSubtree}, with(newest, at("-x/y")), store.VerdictTokenUnknown, ""},
	{"scope: below a lease of the name alone", given{acquire}, with(newest, at("/x")), store.VerdictTokenUnknown, ""},
	{"scope: a token for each resource below", given{acquireSubtree, wrote(with(newest, at("/x")))},
		with(newest, at("/y")), store.Admitted, ""},
	{"scope: a second write below", given{acquireSubtree, wrote(with(newest, at("/x")))},
		with(newest, at("/x")), store.VerdictTokenStale, "reused"},

	{"scope: below, after release", given{acquireSubtree, release}, with(newest, at("/x")), store.VerdictTokenStale,
		"released"},
	{"scope: below, after break", given{acquireSubtree, breakLock}, with(newest, at("/x")), store.VerdictTokenStale,
		"released"},
	{"scope: below, a late holder", given{acquireSubtree, expire, sweep}, with(newest, at("/x")), store.Admitted, ""},
	{"scope: below, after a grant of the name alone", given{acquireSubtree, expire, acquireNode},
		with(first, at("/x")), store.VerdictTokenStale, "released"},
	{"scope: below, after a grant of the name alone, to share", given{acquireSubtree, expire, share},
		with(first, at("/x")), store.VerdictTokenStale, "released"},
	{"scope: below, with the token of the name alone", given{acquireSubtree, expire, acquireNode},
		with(newest, at("/x")), store.VerdictTokenUnknown, ""},
	{"scope: below, after a reader of the subtree", given{acquireSubtree, expire, shareSubtree},
		with(first, at("/x")), store.VerdictTokenStale, "superseded"},
	{"scope: below, as a reader of the subtree", given{shareSubtree}, with(newest, at("/x")), store.VerdictTokenStale,
		"shared"},

	{"scope: where a name below was granted since", given{acquireSubtree, expire, onBelow("/x", acquire)},
		with(first, at("/x")), store.VerdictTokenStale, "superseded"},
	{"scope: where a name below was granted since, and released",
		given{acquireSubtree, expire, onBelow("/x", acquire, release)},
		with(first, at("/x")), store.VerdictTokenStale, "superseded"},
	{"scope: below a name that was granted alone since", given{acquireSubtree, expire, onBelow("/x", acquire)},
		with(first, at("/x/y")), store.Admitted, ""},
	{"scope: elsewhere than a name that was granted since", given{acquireSubtree, expire, onBelow("/x", acquire)},
		with(first, at("/y")), store.Admitted, ""},
	{"scope: in a subtree below that was granted since", given{acquireSubtree, expire, onBelow("/x", acquireSubtree)},
		with(first, at("/x/y")), store.VerdictTokenStale, "superseded"},
	{"scope: elsewhere than a subtree that was granted since",
		given{acquireSubtree, expire, onBelow("/x", acquireSubtree)},
		with(first, at("/y")), store.Admitted, ""},

	{"scope: a name below, before the subtree", given{onBelow("/x", acquire, expire), acquireSubtree},
		ofBelow("/x"), store.VerdictTokenStale, "superseded"},
	{"scope: a name below, before the subtree, to share", given{onBelow("/x", acquire, expire), shareSubtree},
		ofBelow("/x"), store.VerdictTokenStale, "superseded"},
	{"scope: a subtree below, before the subtree", given{onBelow("/x", acquireSubtree, expire), acquireSubtree},
		ofBelow("/x", at("/x/y")), store.VerdictTokenStale, "superseded"},
	{"scope: a subtree below, after the subtree was released", given{onBelow("/x", acquireSubtree, expire), acquireSubtree,
		release},
		ofBelow("/x", at("/x/y")), store.VerdictTokenStale, "superseded"},
	{"scope: a name below, after the subtree", given{acquireSubtree, release, onBelow("/x", acquire)}, ofBelow("/x"),
		store.Admitted, ""},

	{"scope: an external token below", given{acquireSubtree, onBelow("/x", external)}, with(token(7), at("/x")),
		store.Admitted, ""},
	{"scope: the subtree's token below, where tokens are external",
		given{acquireSubtree, release, onBelow("/x", external)},
		with(newest, at("/x")), store.Admitted, ""},
	{"scope: a lower token than an external one below", given{acquireSubtree, onBelow("/x", external),
		wrote(with(token(1<<40), at("/x")))},
		with(newest, at("/x")), store.VerdictTokenStale, "superseded"},
	{"scope: the lease_id of a name below", given{onBelow("/x", acquire, release), acquireSubtree},
		with(newest, at("/x"), leaseIDOfBelow("/x")), store.VerdictLeaseMismatch, ""},
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

// subtreeWriteCases: one token of a subtree for many resources in it.
var subtreeWriteCases = []storeCase{
	{"scope: a transaction over the name and two below, and its replay", func(ctx context.Context, s *fixture) error {
		if err := s.do(ctx, acquireSubtree); err != nil {
			return err
		}
		sent := func(answer string) step {
			specs := []writeSpec{with(newest, sequence(1)), with(newest, sequence(1), at("/x")),
				with(newest, sequence(1), at("/y/z"))}
			return transacted(answer, specs, specs...)
		}
		again := changingNothing(sent("replayed versions [1 1 1]"))
		return s.do(ctx, sent("versions [1 1 1]"), again, release, again)
	}},
	{"scope: a transaction of which one name was granted since", all(acquireSubtree, expire, onBelow("/y", acquire),
		transacted("token_stale superseded of y", []writeSpec{with(newest, at("/x")), with(newest, at("/y"))},
			with(newest, at("/x")), with(newest, at("/y"))))},
	{"scope: a set over two below", all(acquireSubtree, setOf(
		setCase{with(newest, at("/x")), "admitted v1 created"},
		setCase{with(newest, at("/y")), "admitted v1 created"},
		setCase{with(newest, at("-z")), "token_unknown"}))},
}

// TestWritesInSubtrees checks writes to several resources under one token of a subtree.
func TestWritesInSubtrees(t *testing.T) {
	t.Parallel()
	runCases(t, subtreeWriteCases)
}
