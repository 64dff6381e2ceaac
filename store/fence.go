package store

import "context"

// Fence is the row that decides which writes to a resource pass.
type Fence struct {
	Resource     Name
	GrantedToken int64 // the newest granted on the name, or on a subtree that it is in
	Open         bool  // whether that grant may still write
	LastToken    int64 // of the last accepted write, like LastSequence
	LastSequence int64
	Policy       Policy // what holds for the resource
}

// Fence returns the fence of a resource, ErrNotFound if nothing was ever granted or written on it, or ErrUnavailable.
func (s *Store) Fence(ctx context.Context, resource Name) (Fence, error) {
	fence := Fence{Resource: resource}
	err := s.queryRow(ctx, `
		select
			greatest(f.granted_token, above.granted_token),
			case when above.granted_token > coalesce(f.granted_token, 0) then above.open else f.open end
				and not exists (
					select from fence.leases l
					where l.lock = case when above.granted_token > coalesce(f.granted_token, 0) then above.name else f.resource end
						and l.fencing_token = greatest(f.granted_token, above.granted_token) and l.hold_until <= clock_timestamp()),
			coalesce(f.last_token, 0), coalesce(f.last_sequence, 0)
		from (select * from fence.fences f where f.resource = $1) f
		full join (
			select s.* from fence.subtrees s where s.name = any (fence.ancestors($1)) order by s.granted_token desc limit 1
		) above on true
		where greatest(f.granted_token, f.last_token, above.granted_token) > 0`,
		[]any{resource}, &fence.GrantedToken, &fence.Open, &fence.LastToken, &fence.LastSequence)
	if err != nil {
		return Fence{}, notFound(err, "there is no fence of %s: nothing was granted or written on it", resource)
	}
	fence.Policy, err = s.PolicyFor(ctx, resource)
	return fence, err
}

// PolicyFor returns what holds for a name: the policy of its longest prefix that has one, or the defaults. It returns ErrUnavailable.
func (s *Store) PolicyFor(ctx context.Context, name Name) (Policy, error) {
	policies, err := s.readPolicies(ctx, "select "+policyColumns+" from fence.policy_for($1) p", name)
	if err != nil {
		return Policy{}, err
	}
	if len(policies) == 0 {
		return Policy{Rule: RuleStrict, Authority: AuthorityBuiltin}, nil
	}
	return policies[0], nil
}
