package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

func putPolicies(t *testing.T, b *testbed, prefixes ...string) {
	t.Helper()
	for _, prefix := range prefixes {
		// The rule and a flag identify the policy that was found.
		policy := store.Policy{Prefix: prefix, Rule: store.RuleSameToken, Authority: store.AuthorityBuiltin,
			RequireLeaseID: true}
		if err := b.PutPolicy(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLongestPrefixWins checks that the policy of a name is that of its longest prefix of whole segments.
func TestLongestPrefixWins(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	policyFor := func(name store.Name) (store.Policy, error) {
		b.Exec(t, "insert into fence.fences (resource, granted_token) values ($1, 1) on conflict do nothing", name)
		fence, err := b.Fence(t.Context(), name)
		return fence.Policy, err
	}
	none, err := policyFor("jobs/1")
	if want := (store.Policy{Rule: store.RuleStrict, Authority: store.AuthorityBuiltin}); err != nil || none != want {
		t.Errorf("without any policy it is %+v (%v), want %+v", none, err, want)
	}
	putPolicies(t, b, "jobs", "jobs/night", "jobs/night/1", "ключ")
	cases := map[store.Name]string{
		"jobs": "jobs", "jobs/day": "jobs", "jobs/day/1": "jobs",
		"jobs/night": "jobs/night", "jobs/night/2": "jobs/night", "jobs/night/12": "jobs/night",
		"jobs/night/1": "jobs/night/1", "jobs/night/1/x/y": "jobs/night/1",
		"ключ/x": "ключ",
		// Prefixes are of segments, and not of characters.
		"job": "", "jobsx": "", "jobs-1/night": "", "Jobs": "", "x/jobs": "", "jobs/nightly": "jobs",
	}
	check := func(everything string) {
		for name, want := range cases {
			if want == "" {
				want = everything
			}
			policy, err := policyFor(name)
			if err != nil || policy.Prefix != want || policy.RequireLeaseID != slices.Contains([]string{"jobs", "jobs/night",
				"jobs/night/1", "ключ"}, want) {
				t.Errorf("the policy for %s is %+v (%v), want the one of %q", name, policy, err, want)
			}
		}
	}
	check("")
	all := store.Policy{Prefix: "", Rule: store.RuleStrict, Authority: store.AuthorityExternal}
	if err := b.PutPolicy(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	check("")
	if policy, err := policyFor("anything"); err != nil || policy != all {
		t.Errorf("the policy for anything is %+v (%v), want %+v", policy, err, all)
	}
}

// TestPoliciesAreKept checks that policies are stored, listed in byte order, changed and deleted.
func TestPoliciesAreKept(t *testing.T) {
	t.Parallel()
	b, ctx := newTestbed(t), t.Context()
	policies := []store.Policy{
		{Prefix: "", Rule: store.RuleSameToken, Authority: store.AuthorityBuiltin},
		{Prefix: "Z", Rule: store.RuleStrict, Authority: store.AuthorityExternal},
		{Prefix: "a", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin, RequireLeaseID: true},
		{Prefix: "a/b", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin, RequireLiveLease: true},
	}
	for _, policy := range slices.Backward(policies) {
		if err := errors.Join(b.PutPolicy(ctx, policy), b.PutPolicy(ctx, policy)); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Policy(ctx, policy.Prefix); err != nil || got != policy {
			t.Errorf("the policy is %+v (%v), want %+v", got, err, policy)
		}
	}
	if all, err := b.Policies(ctx); err != nil || !slices.Equal(all, policies) {
		t.Errorf("the policies are %+v (%v), want %+v", all, err, policies)
	}
	policies[2].RequireLeaseID = false
	if err := errors.Join(b.PutPolicy(ctx, policies[2]), b.DeletePolicy(ctx, "")); err != nil {
		t.Fatal(err)
	}
	if all, err := b.Policies(ctx); err != nil || !slices.Equal(all, policies[1:]) {
		t.Errorf("the policies are %+v (%v), want %+v", all, err, policies[1:])
	}
	_, readErr := b.Policy(ctx, "")
	for _, err := range []error{readErr, b.DeletePolicy(ctx, ""), b.DeletePolicy(ctx, "a/b/c")} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a policy that does not exist: %v, want ErrNotFound", err)
		}
	}
}

// TestLimitsOfPolicies checks that policies outside their limits are refused.
func TestLimitsOfPolicies(t *testing.T) {
	t.Parallel()
	b, ctx := newTestbed(t), t.Context()
	valid := store.Policy{Prefix: "p", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin}
	for name, c := range map[string]struct {
		change func(p *store.Policy)
		want   error
	}{
		"no rule":         {func(p *store.Policy) { p.Rule = "" }, store.ErrInvalid},
		"an unknown rule": {func(p *store.Policy) { p.Rule = "lax" }, store.ErrInvalid},
		"no authority":    {func(p *store.Policy) { p.Authority = "" }, store.ErrInvalid},
		"no name":         {func(p *store.Policy) { p.Prefix = "a/" }, store.ErrInvalidName},
		"a name too long": {func(p *store.Policy) { p.Prefix = strings.Repeat("x", store.NameBytesMax+1) },
			store.ErrInvalidName},
		"a lease from afar": {func(p *store.Policy) { p.Authority, p.RequireLeaseID = store.AuthorityExternal, true },
			store.ErrInvalid},
		"a live lease from afar": {func(p *store.Policy) { p.Authority, p.RequireLiveLease = store.AuthorityExternal, true },
			store.ErrInvalid},
		"the longest prefix": {func(p *store.Policy) { p.Prefix = strings.Repeat("x", store.NameBytesMax) }, nil},
	} {
		policy := valid
		c.change(&policy)
		if err := b.PutPolicy(ctx, policy); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}

	b.Exec(t, "insert into fence.policies (prefix) select 'n' || n from generate_series(2, $1) n", store.PoliciesMax)
	if err := b.PutPolicy(ctx, valid); !errors.Is(err, store.ErrLimit) {
		t.Errorf("one policy too many: %v, want ErrLimit", err)
	}
	valid.Prefix, valid.RequireLeaseID = "n2", true
	if err := b.PutPolicy(ctx, valid); err != nil {
		t.Errorf("a change of one of many: %v", err)
	}
}

// waitingCases: a policy holds for every decision made after it was set, also for writes that were sent before, and
// waited for the fence. Each case has a database of its own: the first is about the first policy of all.
var waitingCases = []storeCase{
	{"waiting: a policy is set", all(acquire, policyWhileWaiting(bySet))},
	{"alone, waiting: a policy is set", all(acquire, policyWhileWaiting(byOne))},
	{"waiting: another policy is set", all(onBelow("/b", sameToken), acquire, policyWhileWaiting(bySet))},
	{"alone, waiting: another policy is set", all(onBelow("/b", sameToken), acquire, policyWhileWaiting(byOne))},
	{"waiting: a resource comes under an authority elsewhere", func(ctx context.Context, s *fixture) error {
		held, late := s.below("/a"), s.below("/b")
		if err := held.do(ctx, acquire); err != nil {
			return err
		}
		var results []store.Result
		err := s.whileFenceIsLocked(ctx, held.lock, func() (err error) {
			results, err = s.Write(ctx, []store.Write{with(newest, ownLeaseID)(held), with(token(7))(late)})
			return err
		}, func() error { return external(ctx, late) })
		if err != nil {
			return err
		}
		// There was no fence yet that could have been raised, and nothing passes without one.
		if got := brief(results...); got != "admitted v1 created, token_unknown" {
			return fmt.Errorf("the answers are %s", got)
		}
		return late.do(ctx, wrote(with(token(7))))
	}},
	{"waiting: a fence that was not locked is granted", all(fenceNotLocked)},
	{"a rejected write in a set waits for nobody", all(acquire, replace, rejectedWithoutWait)},
}

// setSQL sends two writes in one set: resources, tokens and sequences.
const setSQL = `
	select from fence.write(array[$1, $2], array[$3, $4]::bigint[], array[$5, $6]::bigint[], null, null,
		array['put', 'put'], array['k', 'k'], array['v', 'v']::bytea[], array['text/plain', 'text/plain'], null,
		$7::integer[], null)`

// fenceNotLocked sends a set that waits for one fence. The other one rejects its write when the set comes, and would
// admit it later. The set has not locked that one, and must not do so against the order of locks: it is sent again.
func fenceNotLocked(ctx context.Context, s *fixture) error {
	held, other := s.below("/b"), s.below("/a")
	if err := errors.Join(held.do(ctx, acquire), other.do(ctx, acquire)); err != nil {
		return err
	}
	open := func(open bool) error {
		_, err := s.SQL.Exec(ctx, "update fence.fences set open = $2 where resource = $1", other.lock, open)
		return err
	}
	if err := open(false); err != nil {
		return err
	}
	err := s.whileFenceIsLocked(ctx, held.lock, func() error {
		_, err := s.SQL.Exec(ctx, setSQL, held.lock, other.lock, held.newest().Token, other.newest().Token, 1, 1,
			[]int32{1, 2})
		return err
	}, func() error { return open(true) })
	if raised, ok := errors.AsType[*pgconn.PgError](err); !ok || raised.Code != "40001" {
		return fmt.Errorf("the set returned %w, want 40001", err)
	}
	return nil
}

// rejectedWithoutWait sends a set that its fence rejects, while another transaction keeps that locked.
func rejectedWithoutWait(ctx context.Context, s *fixture) error {
	tx, err := s.SQL.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // it has changed nothing
	if err := executing(ctx, lockFenceSQL, s.lock)(tx); err != nil {
		return err
	}
	late, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return s.do(late, setOf(
		setCase{with(first, sequence(1)), "token_stale superseded"},
		setCase{with(first, sequence(2)), "token_stale superseded"}))
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

// policyWhileWaiting demands a lease_id while a write without one waits.
func policyWhileWaiting(source source) step {
	return func(ctx context.Context, s *fixture) error {
		return s.whileFenceIsLocked(ctx, s.lock, func() error {
			result, err := source(ctx, s.Store, with(newest)(s))
			if err == nil && !errors.Is(result.Err, store.ErrLeaseMismatch) {
				err = fmt.Errorf("the write is answered %+v, want lease_mismatch", result)
			}
			return err
		}, func() error { return requireLeaseID(ctx, s) })
	}
}

// TestPoliciesHoldForWaitingWrites checks that a new policy decides on writes that wait for the fence.
func TestPoliciesHoldForWaitingWrites(t *testing.T) {
	t.Parallel()
	for _, c := range waitingCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := c.check(t.Context(), newTestbed(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSweepForgetsOldActions checks that a sweep deletes the entries of the audit log that are older than the
// retention, and no others.
func TestSweepForgetsOldActions(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, `insert into fence.audit (at, principal, address, action, name, details)
		select clock_timestamp() - i * interval '1 minute', 'p', '', 'fence_set', 'n' || i, '{}' from generate_series(1500, 1, -1) i`)
	b.Exec(t, "update fence.sweeps set age = '1 hour' where part = 'audit'")
	swept, err := newSweeper(t, b.Store, postgres.SweeperConfig{AuditRetention: time.Hour}).Sweep(t.Context())
	left, listErr := b.Audit(t.Context(), store.AuditQuery{Limit: 1000})
	if err != nil || listErr != nil || swept.AuditForgotten+int64(len(left)) != 1500 || len(left) < 58 || len(left) > 60 ||
		left[0].Name != "n1" {
		t.Errorf("%d entries were deleted (%v), %d are left (%v), want 1441 and 59 with the newest first",
			swept.AuditForgotten, err, len(left), listErr)
	}
}

// TestSweepBoundsAnonymousActions checks that a sweep keeps the entries of callers without a credential only among the
// newest ones, however young they are, and deletes none of a principal or a role.
func TestSweepBoundsAnonymousActions(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, `insert into fence.audit (principal, address, action, name, details)
		select (array['anonymous', 'p', 'anonymous', 'sql:r', 'anonymous'])[i % 5 + 1], '', 'fence_set', 'n' || i, '{}'
		from generate_series(0, 2999) i`)
	b.Exec(t, "update fence.sweeps set count_max = 1 where part = 'audit'")
	swept, err := newSweeper(t, b.Store, postgres.SweeperConfig{AuditAnonymousMax: 100}).Sweep(t.Context())
	left := b.Count(t, "select count(*) from fence.audit where principal = 'anonymous'")
	named := b.Count(t, "select count(*) from fence.audit where principal <> 'anonymous'")
	if err != nil || swept.AuditForgotten != 1740 || left != 60 || named != 1200 {
		t.Errorf("%d entries were deleted (%v), %d without a credential and %d others are left, want 1740, 60 and 1200",
			swept.AuditForgotten, err, left, named)
	}
}

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
