package endpoint

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// LeaseRef reads what identifies a lease to its owner; the token is in the field tokenField.
func LeaseRef(lock store.Name, ownerID, leaseID, tokenField string, token int64) (store.LeaseRef, error) {
	if ownerID == "" {
		return store.LeaseRef{}, Invalid("owner_id is required.")
	}
	id, err := ParseLeaseID("lease_id", leaseID)
	if err != nil {
		return store.LeaseRef{}, err
	}
	return store.LeaseRef{Lock: lock, OwnerID: ownerID, ID: id, Token: token}, checkToken(tokenField, token)
}

func checkToken(field string, token int64) error {
	switch {
	case token == 0:
		return InvalidToken(field + " is missing or 0, it must be 1 to 2^53-1.")
	case token < 1 || token > api.MaxToken:
		return InvalidToken(fmt.Sprintf("%s is %d, it must be 1 to 2^53-1.", field, token))
	}
	return nil
}

// ParseLeaseID reads a lease_id.
func ParseLeaseID(field, text string) (uuid.UUID, error) {
	if text == "" {
		return uuid.UUID{}, Invalid("%s is missing or empty.", field)
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.UUID{}, Invalid("%s is not a lease_id that an acquire returned.", field)
	}
	return id, nil
}

// HoldLeft is nil for a lease without a limit.
func HoldLeft(lease store.Lease) *int64 {
	if lease.HoldUntil.IsZero() {
		return nil
	}
	return OptionalMS(&lease.HoldLeft)
}

// LockAnswer is a lock as the API shows it.
func LockAnswer(lock store.Lock) api.Lock {
	return api.Lock{
		Lock: string(lock.Lock), State: string(lock.State), FencingToken: lock.Token,
		Holders: Convert(lock.Holders, holderAnswer), Queue: Convert(lock.Queue, waiterAnswer),
		QueueLength: lock.QueueLength,
	}
}

func holderAnswer(lease store.Lease) api.LockHolder {
	return api.LockHolder{
		OwnerID: lease.OwnerID, FencingToken: lease.Token, Mode: string(lease.Mode), Scope: string(lease.Scope),
		TTLMS: lease.TTL.Milliseconds(), GrantedAt: api.Time{Time: lease.GrantedAt},
		ExpiresAt: api.Time{Time: lease.ExpiresAt}, HoldUntil: OptionalTime(lease.HoldUntil), Metadata: lease.Metadata,
		Provider: OtherProvider(lease), Principal: lease.Principal,
	}
}

// OtherProvider is what keeps a lease; "" for PostgreSQL.
func OtherProvider(lease store.Lease) string {
	if lease.Provider == store.ProviderPostgres {
		return ""
	}
	return string(lease.Provider)
}

func waiterAnswer(waiter store.Waiter) api.Waiter {
	return api.Waiter{
		OwnerID: waiter.OwnerID, Principal: waiter.Principal, Mode: string(waiter.Mode), Scope: string(waiter.Scope),
		QueuedAt: api.Time{Time: waiter.QueuedAt},
	}
}

// LeaseInfo is a lease as lists show it.
func LeaseInfo(lease store.LeaseInfo) api.LeaseInfo {
	info := api.LeaseInfo{
		Lock: string(lease.Lock), LockHolder: holderAnswer(lease.Lease), WaitedMS: lease.Waited.Milliseconds(),
		State: string(lease.State), InSession: lease.InSession, EndReason: lease.EndReason, EndNote: lease.EndNote,
	}
	if lease.State == store.LeaseEnded {
		info.EndedAt = OptionalTime(lease.EndedAt)
	}
	return info
}

// PolicyAnswer is a policy as the API shows it.
func PolicyAnswer(policy store.Policy) api.Policy {
	return api.Policy{
		Prefix: policy.Prefix, Rule: string(policy.Rule), Authority: string(policy.Authority),
		RequireLeaseID: policy.RequireLeaseID, RequireLiveLease: policy.RequireLiveLease,
		MaxHoldMS: policy.MaxHold.Milliseconds(), Leases: string(policy.Leases),
		RequirePrincipalOwner: policy.RequirePrincipalOwner,
	}
}

// FenceAnswer is a fence as the API shows it.
func FenceAnswer(fence store.Fence) api.Fence {
	return api.Fence{
		Resource: string(fence.Resource), GrantedToken: fence.GrantedToken, Open: fence.Open,
		LastToken: fence.LastToken, LastSequence: fence.LastSequence, Policy: PolicyAnswer(fence.Policy),
	}
}
