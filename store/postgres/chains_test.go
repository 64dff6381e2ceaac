package postgres_test

import (
	"context"
	"fmt"

	"github.com/fencegate/fencegate/store"
)

// chainCases are sets with several writes to each resource. fence.write_chains decides those that follow one another as
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
	{"chain: the fence is not locked", all(acquire, chainUnlocked)},
}

// belowB is a put to the resource with the suffix "-b".
func belowB(options ...option) writeSpec {
	return func(s *fixture) store.Write { return with(newest, options...)(s.below("-b")) }
}

// stored expects that a record is what the write made of it.
func stored(spec writeSpec, version int64) step {
	return func(ctx context.Context, s *fixture) error { return s.expectRecord(ctx, spec(s), version) }
}

// chainUnlocked checks that a chain is left alone if no earlier statement locked its fence: a lower name could be locked
// later, against the order of locks.
func chainUnlocked(ctx context.Context, s *fixture) error {
	var admitted []int32
	err := s.SQL.QueryRow(ctx, `
		select c.admitted from fence.write_chains(array[$1, $1], array[$2, $2]::bigint[], array[1, 2], null, null,
			array['put', 'put'], array['k', 'k'], array['v', 'v']::bytea[], array['text/plain', 'text/plain'], null, '{}',
			'{}', '{}') c`, s.lock, s.newest().Token).Scan(&admitted)
	if err == nil && admitted != nil {
		err = fmt.Errorf("the writes %v were admitted", admitted)
	}
	return err
}

// chainMutations break what fence.write_chains does.
var chainMutations = []mutation{
	{"a chain overlooks the fence", "write_chains",
		removing("\n            and fence.fast_path_admits(f, c.token, c.first, c.resource = any (p_same_token))"),
		[]string{"chain: a replaced holder", "chain: sent again after its first write",
			"chain: same_token and a number that is used"}},
	{"a chain overlooks the fence where it is not numbered", "write_chains", removing("\n            and (not " +
		"c.unnumbered or fence.fast_path_admits(f, c.token, null, c.resource = any (p_same_token)))"),
		[]string{"chain: an unnumbered write first"}},
	{"the sequence falls in a chain under same_token", "write_chains",
		replacing("fence.raised_sequence(f, c.token, c.last)", "c.last"), []string{"chain: same_token"}},
	{"a newer token keeps the sequence in a chain", "raised_sequence",
		replacing("case when p_fence.last_token = p_token", "case when true"),
		[]string{"chain: a newer holder begins anew"}},
	{"a chain takes every policy for same_token", "write_chains",
		replacing("u.sequence, u.resource = any (p_same_token), false", "u.sequence, true, false"),
		[]string{"chain: an unnumbered write later"}},
	{"a chain looks at the number before only", "write_chains",
		replacing("max(coalesce(u.sequence, 0)) over (chain rows between unbounded preceding and 1 preceding)",
			"lag(coalesce(u.sequence, 0)) over chain"),
		[]string{"chain: same_token and a number below an earlier one"}},
	{"a chain overlooks locks", "write_chains", replacing("c.resource = any (p_locked)", "true"),
		[]string{"chain: the fence is not locked"}},
	{"a chain overlooks policies", "write_chains", removing("\n            and c.resource <> all (p_governed)"),
		[]string{"chain: a lease_id is demanded"}},
	{"a chain has writes that do not follow", "write_chains", removing("\n            having bool_and(j.follows)"),
		[]string{"chain: a number twice", "chain: an unnumbered write later", "chain: a token that was never granted",
			"chain: a deletion in it"}},
	{"a chain is judged by its first write", "write_chains", replacing("'admitted' = fence.rule(", "null is distinct from ("),
		[]string{"chain: a number twice", "chain: an unnumbered write later", "chain: a token that was never granted",
			"chain: no token"}},
	{"each write of a chain counts as granted", "write_chains",
		replacing("lag(u.token, 1, u.token) over chain, true,", "u.token, true,"),
		[]string{"chain: a token that was never granted"}},
	{"the tokens of a chain may fall", "write_chains",
		replacing("lag(u.token, 1, u.token) over chain, true, lag(u.token, 1, u.token) over chain,", "u.token, true, u.token,"),
		[]string{"chain: a token that was never granted"}},
	{"a chain has deletions", "write_chains", replacing("u.kind = 'put'", "true"), []string{"chain: a deletion in it"}},
	{"a chain has lease_ids", "write_chains", removing(" and u.lease_id is null"),
		[]string{"chain: a lease_id of nobody in it"}},
	{"a chain has preconditions", "write_chains", removing(" and u.expected is null"),
		[]string{"chain: a precondition in it"}},
	{"a chain raises the fence to its first write", "write_chains",
		replacing("max(coalesce(j.sequence, 0)) as last", "min(coalesce(j.sequence, 0)) as last"),
		[]string{"chain: numbers that rise"}},
	{"a chain keeps the content of its first write", "write_chains", replacing("max(j.index)::integer", "min(j.index)::integer"),
		[]string{"chain: numbers that rise"}},
	{"a chain keeps the content of unnumbered writes", "write_chains",
		replacing("case when p_sequences[c.newest] is not null then p_digests[c.newest] end", "p_digests[c.newest]"),
		[]string{"chain: the content of an unnumbered write"}},
	{"a chain counts as one version", "write_chains", replacing("f.last_version + c.length", "f.last_version + 1"),
		[]string{"chain: numbers that rise"}},
	{"a chain gives all writes one version", "write_chains", replacing("r.version + u.position", "r.version + 1"),
		[]string{"chain: numbers that rise"}},
	{"a chain stores the first put of a key", "write_chains", replacing("max(p.index) as index", "min(p.index) as index"),
		[]string{"chain: numbers that rise"}},
	{"a chain stores the version of the first put", "write_chains",
		replacing("max(p.version) as version", "min(p.version) as version"), []string{"chain: numbers that rise"}},
	{"a chain forgets the first answer", "write_chains", replacing("u.index = u.first", "false"),
		[]string{"chain: the last put made its record"}},
	{"a chain takes its last put for the first", "write_chains", replacing("u.index = u.first", "true"),
		[]string{"chain: the last put replaced the one that made its record"}},
	{"a chain keeps how the record was made", "write_chains", removing(",\n            created = false"),
		[]string{"chain: the last put replaced what was there"}},
	{"a chain is decided twice", "write", replacing(" and u.done is not true", ""),
		[]string{"chain: under same_token beside writes that are none"}},
	{"a chain is decided twice by the whole rule", "write", replacing("v_done[p] is not true and ", ""),
		[]string{"chain: beside writes that are none"}},
}
