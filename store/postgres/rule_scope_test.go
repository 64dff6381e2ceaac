package postgres_test

import (
	"github.com/fencegate/fencegate/store"
)

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
