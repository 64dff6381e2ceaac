package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Rule is how step 4 of the rule is judged.
type Rule string

// The rules.
const (
	RuleStrict    Rule = "strict"     // a write's token and sequence must be greater than the last ones
	RuleSameToken Rule = "same_token" // a write without a sequence may repeat the last token
)

// Authority says who issues the tokens.
type Authority string

// The authorities.
const (
	AuthorityBuiltin  Authority = "builtin"
	AuthorityExternal Authority = "external" // an etcd revision, a ZooKeeper zxid, …: only step 4 applies
)

// Limits of policies.
const (
	PoliciesMax            = 10_000
	PoliciesReserved       = 1_000 // of them for administrators of all names
	PoliciesOfPrincipalMax = 1_000 // that an administrator of some names has set first

	MaxHoldMin = TTLMin
	MaxHoldMax = 365 * 24 * time.Hour
)

// PoliciesChannel is where PutPolicy, DeletePolicy and SetFence notify of a change.
const PoliciesChannel = "fence_policies"

// Policy is what holds for the name Prefix and every name below it, unless a longer prefix has a policy of its own.
// Prefix "" is every name.
type Policy struct {
	Prefix           string
	Rule             Rule
	Authority        Authority
	RequireLeaseID   bool
	RequireLiveLease bool
	// MaxHold is the longest time from the grant of a lease to its end, however often it is renewed, MaxHoldMin to
	// MaxHoldMax in whole milliseconds; 0: no limit. Then its fence closes. Running leases get it by their next renewal or
	// keepalive.
	MaxHold time.Duration
	// Leases is what keeps the leases; empty: what the gateway keeps leases in by default.
	Leases Provider
	// RequirePrincipalOwner: an acquire needs an OwnerID that is its Principal, or begins with that and a slash. It holds
	// for no request without a principal.
	RequirePrincipalOwner bool
}

// policyColumns are the fields of a Policy; those of the defaults where there is no row p.
const policyColumns = `coalesce(p.prefix, ''), coalesce(p.rule, 'strict'), coalesce(p.authority, 'builtin'),
	coalesce(p.require_lease_id, false), coalesce(p.require_live_lease, false),
	coalesce(p.max_hold_ms, 0) * interval '1 millisecond', coalesce(p.leases, ''),
	coalesce(p.require_principal_owner, false)`

// Check returns ErrInvalid or ErrInvalidName, naming the field, if the policy is outside its limits.
func (p Policy) Check() error {
	if p.Prefix != "" {
		if _, err := ParseName(p.Prefix); err != nil {
			return err
		}
	}
	switch {
	case p.Rule != RuleStrict && p.Rule != RuleSameToken:
		return fmt.Errorf("%w: rule must be strict or same_token", ErrInvalid)
	case p.Authority != AuthorityBuiltin && p.Authority != AuthorityExternal:
		return fmt.Errorf("%w: authority must be builtin or external", ErrInvalid)
	case p.Leases != "" && p.Leases != ProviderPostgres && p.Leases != ProviderRedis && p.Leases != ProviderRedlock:
		return fmt.Errorf("%w: leases must be postgres, redis or redlock, or absent for the gateway's default", ErrInvalid)
	case p.Leases != "" && p.Leases != ProviderPostgres && p.RequireLiveLease:
		return fmt.Errorf("%w: require_live_lease needs leases in postgres: only Redis knows whether a lease in %s is live",
			ErrInvalid, p.Leases)
	case p.Authority == AuthorityExternal && p.Leases != "":
		return fmt.Errorf("%w: with authority external fencegate grants no leases", ErrInvalid)
	case p.Authority == AuthorityExternal && (p.RequirePrincipalOwner || p.RequireLeaseID || p.RequireLiveLease || p.MaxHold != 0):
		return fmt.Errorf("%w: with authority external there are no leases that could be required or limited", ErrInvalid)
	case p.MaxHold != 0 && (p.MaxHold < MaxHoldMin || p.MaxHold > MaxHoldMax || p.MaxHold%time.Millisecond != 0):
		return fmt.Errorf("%w: max_hold_ms is %d, it must be %d to %d, or absent for no limit",
			ErrInvalid, p.MaxHold.Milliseconds(), MaxHoldMin.Milliseconds(), MaxHoldMax.Milliseconds())
	}
	return nil
}

// PutPolicy sets the policy of a prefix, for all decisions that are made after it returns. It returns ErrInvalid,
// ErrInvalidName, ErrLimit or ErrUnavailable.
func (s *Store) PutPolicy(ctx context.Context, policy Policy) error {
	if err := policy.Check(); err != nil {
		return err
	}
	policiesMax, ownMax := PoliciesMax, 0
	if ActorOf(ctx).Scoped {
		policiesMax, ownMax = PoliciesMax-PoliciesReserved, PoliciesOfPrincipalMax
	}
	return s.exec(ctx, statement{}, "select fence.put_policy($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "+actorSQL(11)+")",
		actorArgs(ctx, policy.Prefix, policy.Rule, policy.Authority, policy.RequireLeaseID, policy.RequireLiveLease,
			orNull(policy.MaxHold.Milliseconds()), orNull(policy.Leases), policy.RequirePrincipalOwner,
			policiesMax, orNull(ownMax))...)
}

// Policy returns the policy that was set on a prefix itself, ErrNotFound, or ErrUnavailable.
func (s *Store) Policy(ctx context.Context, prefix string) (Policy, error) {
	policies, err := s.readPolicies(ctx, "select "+policyColumns+" from fence.policies p where p.prefix = $1", prefix)
	if err == nil && len(policies) == 0 {
		err = fmt.Errorf("%w: there is no policy on %q itself", ErrNotFound, prefix)
	}
	if err != nil {
		return Policy{}, err
	}
	return policies[0], nil
}

// Policies returns all policies in byte order of their prefixes, or ErrUnavailable.
func (s *Store) Policies(ctx context.Context) ([]Policy, error) {
	return s.readPolicies(ctx, "select "+policyColumns+" from fence.policies p order by p.prefix")
}

// DeletePolicy removes the policy of a prefix. It returns ErrNotFound, also if it was removed before and that is durable
// now; or ErrUnavailable.
func (s *Store) DeletePolicy(ctx context.Context, prefix string) error {
	found := false
	err := s.queryRow(ctx, statement{},
		"select fence.delete_policy($1, "+actorSQL(2)+")", actorArgs(ctx, prefix), &found)
	if err == nil && !found {
		err = fmt.Errorf("%w: there is no policy on %q itself", ErrNotFound, prefix)
	}
	return err
}

func (s *Store) readPolicies(ctx context.Context, sql string, args ...any) ([]Policy, error) {
	return collect(ctx, s.query, sql, args, pgx.RowToStructByPos[Policy])
}
