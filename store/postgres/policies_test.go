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
