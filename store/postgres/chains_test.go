package postgres_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencegate/fencegate/store"
)

// chainCases are sets with several writes to each resource. fence.write raises at once those that follow one another as
// the writes of one holder do, and leaves the others. The answers are those of one write after the other.
var chainCases = []storeCase{
	{"chain: numbers that rise", all(acquire, setOf(
		setCase{with(newest, sequence(1), value("a")), "admitted v1 created"},
		setCase{with(newest, sequence(2), key("other")), "admitted v2 created"},
		setCase{with(newest, sequence(5), value("b")), "admitted v3"},
		setCase{with(newest, sequence(7), value("c")), "admitted v4"}),
		stored(with(newest, sequence(7), value("c")), 4), stored(with(newest, sequence(2), key("other")), 2),
		setOf(setCase{with(newest, sequence(7), value("c")), "admitted v4 replayed"},
			setCase{with(newest, sequence(5), value("b")), "token_stale reused"},
			setCase{with(newest, sequence(7), value("b")), "token_stale reused"},
			setCase{with(newest, sequence(8)), "admitted v5"}))},
	{"chain: the last put made its record", all(acquire, wrote(with(newest, sequence(1))), setOf(
		setCase{with(newest, sequence(2)), "admitted v2"},
		setCase{with(newest, sequence(3), key("other")), "admitted v3 created"}),
		setOf(setCase{with(newest, sequence(3), key("other")), "admitted v3 created replayed"}))},
	{"chain: the last put replaced the one that made its record", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest, sequence(2)), "admitted v2"}),
		setOf(setCase{with(newest, sequence(2)), "admitted v2 replayed"}))},
	{"chain: the last put replaced what was there", all(acquire, wrote(with(newest, sequence(1))), setOf(
		setCase{with(newest, sequence(2)), "admitted v2"},
		setCase{with(newest, sequence(3)), "admitted v3"}),
		setOf(setCase{with(newest, sequence(3)), "admitted v3 replayed"}))},
	{"chain: a newer holder begins anew", all(acquire, wrote(with(newest, sequence(9))), replace, setOf(
		setCase{with(newest), "admitted v2"},
		setCase{with(newest, sequence(1)), "admitted v3"}),
		setOf(setCase{with(newest, sequence(1)), "admitted v3 replayed"}))},

	{"chain: an unnumbered write first", all(acquire, wrote(with(newest)), setOf(
		setCase{with(newest), "token_stale reused"},
		setCase{with(newest, sequence(1)), "admitted v2"}))},
	{"chain: same_token", all(sameToken, acquire, wrote(with(newest, sequence(5))), setOf(
		setCase{with(newest), "admitted v2"},
		setCase{with(newest, key("other")), "admitted v3 created"},
		setCase{with(newest), "admitted v4"}),
		setOf(setCase{with(newest, sequence(5)), "token_stale reused"},
			setCase{with(newest, sequence(4)), "token_stale reused"},
			setCase{with(newest, sequence(6)), "admitted v5"},
			setCase{with(newest), "admitted v6"}),
		setOf(setCase{with(newest, sequence(6)), "token_stale reused"}))},
	{"chain: same_token, a number and then none", all(sameToken, acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest), "admitted v2"}),
		setOf(setCase{with(newest, sequence(1)), "token_stale reused"}))},
	{"chain: same_token and a number that is used", all(sameToken, acquire, wrote(with(newest, sequence(5))), setOf(
		setCase{with(newest), "admitted v2"},
		setCase{with(newest, sequence(5)), "token_stale reused"}))},
	{"chain: same_token and a number below an earlier one", all(sameToken, acquire, setOf(
		setCase{with(newest, sequence(5)), "admitted v1 created"},
		setCase{with(newest), "admitted v2"},
		setCase{with(newest, sequence(3)), "token_stale reused"}))},

	{"chain: the content of an unnumbered write", all(acquire, onBelow("-b", acquire), setOf(
		setCase{with(newest), "admitted v1 created"},
		setCase{belowB(sequence(1)), "admitted v1 created"},
		setCase{belowB(sequence(2)), "admitted v2"},
		setCase{belowB(sequence(3)), "admitted v3"}),
		setOf(setCase{with(newest, sequence(0)), "token_stale reused"}))},
	{"chain: a number twice", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest, sequence(1), value("other")), "token_stale reused"},
		setCase{with(newest, sequence(2)), "admitted v2"}))},
	{"chain: an unnumbered write later", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest), "token_stale reused"}))},
	{"chain: a token that was never granted", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(beyond, sequence(2)), "token_unknown"}))},
	{"chain: no token", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(none, sequence(2)), "token_required"}))},
	{"chain: a replaced holder", all(acquire, replace, setOf(
		setCase{with(first, sequence(1)), "token_stale superseded"},
		setCase{with(first, sequence(2)), "token_stale superseded"}))},
	{"chain: sent again after its first write", all(acquire, wrote(with(newest, sequence(1))), setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created replayed"},
		setCase{with(newest, sequence(2)), "admitted v2"}))},
	{"chain: a deletion in it", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest, sequence(2), deletion), "admitted v2"},
		setCase{with(newest, sequence(3)), "admitted v3 created"}))},
	{"chain: a precondition in it", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest, sequence(2), expect(7)), "version_mismatch at 1"}))},
	{"chain: a lease_id of nobody in it", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest, sequence(2), otherLeaseID), "lease_mismatch"}))},
	{"chain: a lease_id is demanded", all(requireLeaseID, acquire, setOf(
		setCase{with(newest, sequence(1)), "lease_mismatch"},
		setCase{with(newest, sequence(2)), "lease_mismatch"}))},

	{"chain: beside writes that are none", all(acquire, onBelow("-b", acquire), setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{belowB(sequence(2)), "admitted v1 created"},
		setCase{belowB(sequence(1)), "token_stale reused"},
		setCase{with(newest, sequence(2)), "admitted v2"},
		setCase{with(newest, sequence(3), key("other")), "admitted v3 created"},
		setCase{belowB(sequence(3), key("other")), "admitted v2 created"}),
		onBelow("-b", stored(with(newest, sequence(2)), 1)))},
	{"chain: under same_token beside writes that are none", all(sameToken, acquire, onBelow("-b", acquire), setOf(
		setCase{with(newest), "admitted v1 created"},
		setCase{with(newest), "admitted v2"},
		setCase{belowB(sequence(2)), "admitted v1 created"},
		setCase{belowB(sequence(1)), "token_stale reused"}))},
	{"chain: of two resources", all(acquire, chainOfTwo)},
}

// belowB is a put to the resource with the suffix "-b".
func belowB(options ...option) writeSpec {
	return func(s *fixture) store.Write { return with(newest, options...)(s.below("-b")) }
}

// stored expects that a record is what the write made of it.
func stored(spec writeSpec, version int64) step {
	return func(ctx context.Context, s *fixture) error { return s.expectRecord(ctx, spec(s), version) }
}

// chainOfTwo sends a set that calls writes to two resources a chain. The second resource has another holder.
func chainOfTwo(ctx context.Context, s *fixture) error {
	other := s.below("/b")
	if err := other.do(ctx, acquire, replace); err != nil {
		return err
	}
	_, err := s.SQL.Exec(ctx, setSQL, other.lock, s.lock, s.newest().Token, s.newest().Token, 1, 2, []int32{2})
	if err != nil {
		return err
	}
	if _, err := s.Record(ctx, other.lock, "k"); !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("the record of the other resource: %w, want ErrNotFound", err)
	}
	return nil
}

// chainMutations break what fence.write does with several writes to a resource.
var chainMutations = []mutation{
	{"a chain overlooks the fence where it is not numbered", "write", removing("\n            and (c.unnumbered is not " +
		"true\n                or fence.fast_path_admits(f, c.token, null, c.resource = any (v_policies.same_token)))"),
		[]string{"chain: an unnumbered write first"}},
	{"a newer token keeps the sequence in a chain", "raised_sequence",
		replacing("case when p_fence.last_token = p_token", "case when true"),
		[]string{"chain: a newer holder begins anew"}},
	{"a chain takes every policy for same_token", "write",
		replacing("w.sequence, w.resource = any (v_policies.same_token), false", "w.sequence, true, false"),
		[]string{"chain: an unnumbered write later"}},
	{"a chain looks at the number before only", "write",
		replacing("max(coalesce(w.sequence, 0))\n                            over (chain rows between unbounded preceding and "+
			"1 preceding)", "lag(coalesce(w.sequence, 0)) over chain"),
		[]string{"chain: same_token and a number below an earlier one"}},
	{"a chain has writes that do not follow", "write", replacing("case when c.follows then 'put' end", "'put'::text"),
		[]string{"chain: a number twice", "chain: an unnumbered write later", "chain: a token that was never granted",
			"chain: a deletion in it"}},
	{"a chain is judged by its first write", "write", replacing("'admitted' = fence.rule(", "null is distinct from fence.rule("),
		[]string{"chain: a number twice", "chain: an unnumbered write later", "chain: a token that was never granted",
			"chain: no token"}},
	{"each write of a chain counts as granted", "write",
		replacing("lag(w.token, 1, w.token) over chain, true,", "w.token, true,"),
		[]string{"chain: a token that was never granted"}},
	{"the tokens of a chain may fall", "write",
		replacing("lag(w.token, 1, w.token) over chain, true, lag(w.token, 1, w.token) over chain,", "w.token, true, w.token,"),
		[]string{"chain: a token that was never granted"}},
	{"a chain has deletions", "write", replacing("w.kind = 'put'", "true"), []string{"chain: a deletion in it"}},
	{"a chain has lease_ids", "write", removing(" and w.lease_id is null"),
		[]string{"chain: a lease_id of nobody in it"}},
	{"a chain has preconditions", "write", removing(" and w.expected is null"),
		[]string{"chain: a precondition in it"}},
	{"a chain has writes to others", "write",
		removing("\n                    and w.resource = lag(w.resource, 1, w.resource) over chain"),
		[]string{"chain: of two resources"}},
	{"a chain raises the fence to its first write", "write",
		replacing("max(j.sequence) as highest", "min(j.sequence) as highest"),
		[]string{"chain: numbers that rise"}},
	{"a chain keeps the content of its first write", "write",
		replacing("p_digests[c.\"end\"]", "p_digests[c.\"end\" - c.length + 1]"),
		[]string{"chain: numbers that rise"}},
	{"a chain keeps the content of unnumbered writes", "write",
		replacing("case when p_sequences[c.\"end\"] is not null then p_digests[c.\"end\"] end", "p_digests[c.\"end\"]"),
		[]string{"chain: same_token, a number and then none"}},
	{"a chain counts as one version", "write", replacing("f.last_version + coalesce(c.length, 1)", "f.last_version + 1"),
		[]string{"chain: numbers that rise"}},
	{"a chain gives all writes one version", "write", replacing("r.version - (r.\"end\" - i)", "r.version"),
		[]string{"chain: numbers that rise"}},
	{"a chain stores the first put of a key", "write", replacing("max(w.index) as last", "min(w.index) as last"),
		[]string{"chain: numbers that rise"}},
	{"a chain stores the version of the first put", "write",
		replacing("max(w.version) as version", "min(w.version) as version"), []string{"chain: numbers that rise"}},
	{"a chain forgets the first answer", "write", replacing("s.index = s.first", "false"),
		[]string{"chain: the last put made its record"}},
	{"a chain takes its last put for the first", "write", replacing("s.index = s.first", "true"),
		[]string{"chain: the last put replaced the one that made its record"}},
	{"a chain keeps how the record was made", "write", removing(",\n        created = false"),
		[]string{"chain: the last put replaced what was there"}},
	{"a chain is decided twice", "write", removing(" and c.\"end\" <> all (v_raised)"),
		[]string{"chain: beside writes that are none"}},
}
