package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) acquire(ctx context.Context, _ *http.Request, lock store.Name, body api.AcquireRequest) (any, error) {
	request, err := acquireRequest(lock, body)
	if err != nil {
		return nil, err
	}
	lease, err := g.backend.Acquire(ctx, request)
	g.metrics.leaseOperation("acquire", err)
	return leaseAnswer(lease), err
}

// acquireRequest checks what only the API has: options that this gateway does not offer must not pass silently.
func acquireRequest(lock store.Name, body api.AcquireRequest) (store.AcquireRequest, error) {
	request := store.AcquireRequest{Lock: lock, OwnerID: body.OwnerID}
	switch {
	case body.Mode != "" && body.Mode != "exclusive":
		return request, invalid("mode is %q; this gateway grants exclusive leases.", clip(body.Mode))
	case body.Scope != "" && body.Scope != "node":
		return request, invalid("scope is %q; this gateway grants leases of scope node.", clip(body.Scope))
	case body.WaitMS != 0:
		return request, invalid("wait_ms is %d; this gateway's acquire is a try, with wait_ms 0.", body.WaitMS)
	case body.SessionID != nil:
		return request, invalid("session_id is set; this gateway has no sessions.")
	case body.RequestID != nil && *body.RequestID == "":
		return request, invalid("request_id is empty; it has 1 to %d bytes.", store.RequestBytesMax)
	}
	if body.RequestID != nil {
		request.RequestID = *body.RequestID
	}
	if string(body.Metadata) != "null" {
		request.Metadata = body.Metadata
	}
	var err error
	request.TTL, err = ttl(body.TTLMS)
	return request, err
}

// ttl reads a ttl_ms; absent it is 0.
func ttl(ms *int64) (time.Duration, error) {
	if ms == nil {
		return 0, nil
	}
	if *ms < store.TTLMin.Milliseconds() || *ms > store.TTLMax.Milliseconds() {
		return 0, invalid("ttl_ms is %d, it must be %d to %d.", *ms, store.TTLMin.Milliseconds(), store.TTLMax.Milliseconds())
	}
	return time.Duration(*ms) * time.Millisecond, nil
}

func (g *Gateway) renew(ctx context.Context, _ *http.Request, lock store.Name, body api.RenewRequest) (any, error) {
	ref, err := leaseRef(lock, body.OwnerID, body.LeaseID, body.FencingToken)
	if err != nil {
		return nil, err
	}
	duration, err := ttl(body.TTLMS)
	if err != nil {
		return nil, err
	}
	lease, err := g.backend.Renew(ctx, ref, duration)
	g.metrics.leaseOperation("renew", err)
	return leaseAnswer(lease), err
}

func (g *Gateway) release(ctx context.Context, _ *http.Request, lock store.Name, body api.ReleaseRequest) (any, error) {
	ref, err := leaseRef(lock, body.OwnerID, body.LeaseID, body.FencingToken)
	if err != nil {
		return nil, err
	}
	err = g.backend.Release(ctx, ref)
	g.metrics.leaseOperation("release", err)
	return api.Released{Released: true}, err
}

func leaseRef(lock store.Name, ownerID, leaseID string, token int64) (store.LeaseRef, error) {
	if ownerID == "" {
		return store.LeaseRef{}, invalid("owner_id is required.")
	}
	id, err := parseLeaseID("lease_id", leaseID)
	if err != nil {
		return store.LeaseRef{}, err
	}
	if token == 0 {
		return store.LeaseRef{}, problem(http.StatusBadRequest, api.CodeInvalidToken, "fencing_token is missing or 0, it must be 1 to 2^53-1.")
	}
	if token < 1 || token > api.MaxToken {
		return store.LeaseRef{}, problem(http.StatusBadRequest, api.CodeInvalidToken, fmt.Sprintf("fencing_token is %d, it must be 1 to 2^53-1.", token))
	}
	return store.LeaseRef{Lock: lock, OwnerID: ownerID, ID: id, Token: token}, nil
}

func parseLeaseID(field, text string) (uuid.UUID, error) {
	if text == "" {
		return uuid.UUID{}, invalid("%s is missing or empty.", field)
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.UUID{}, invalid("%s is not a lease_id that an acquire returned.", field)
	}
	return id, nil
}

func (g *Gateway) breakLease(ctx context.Context, r *http.Request, lock store.Name, body api.BreakRequest) (any, error) {
	lease, err := g.backend.Break(ctx, lock, body.Reason)
	g.metrics.leaseOperation("break", err)
	if err != nil {
		return nil, err
	}
	g.config.Logger.Info("lease broken", "lock", lock, "owner_id", lease.OwnerID, "fencing_token", lease.Token, "reason", body.Reason, "address", address(r))
	return api.Broken{Broken: true, Lock: string(lock), OwnerID: lease.OwnerID, FencingToken: lease.Token}, nil
}

func (g *Gateway) getLock(ctx context.Context, name store.Name) (any, error) {
	lock, err := g.backend.Lock(ctx, name)
	return lockAnswer(lock), err
}

func (g *Gateway) listLocks(w http.ResponseWriter, r *http.Request) error {
	page, err := readPage(r, "prefix", "state")
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	locks, err := g.backend.Locks(ctx, store.LockQuery{Prefix: page.prefix, State: store.LockState(page.values.Get("state")), After: page.after, Limit: page.limit})
	if err != nil {
		return err
	}
	answer := api.Locks{Locks: make([]api.Lock, len(locks))}
	for i, lock := range locks {
		answer.Locks[i] = lockAnswer(lock)
	}
	answer.NextCursor = nextCursor(len(locks), page.limit, func() string { return string(locks[len(locks)-1].Lock) })
	return answerJSON(w, http.StatusOK, answer)
}

func leaseAnswer(lease store.Lease) api.Lease {
	return api.Lease{
		Lock: string(lease.Lock), OwnerID: lease.OwnerID, LeaseID: lease.ID.String(), FencingToken: lease.Token,
		Mode: lease.Mode, Scope: lease.Scope, TTLMS: lease.TTL.Milliseconds(),
		GrantedAt: api.Time{Time: lease.GrantedAt}, ExpiresAt: api.Time{Time: lease.ExpiresAt}, Metadata: lease.Metadata,
	}
}

func lockAnswer(lock store.Lock) api.Lock {
	answer := api.Lock{
		Lock: string(lock.Lock), State: string(lock.State), FencingToken: lock.Token,
		Holders: []api.LockHolder{}, Queue: []api.Waiter{},
	}
	if holder := lock.Holder; holder != nil {
		answer.Holders = append(answer.Holders, api.LockHolder{
			OwnerID: holder.OwnerID, FencingToken: holder.Token, Mode: holder.Mode, Scope: holder.Scope, TTLMS: holder.TTL.Milliseconds(),
			GrantedAt: api.Time{Time: holder.GrantedAt}, ExpiresAt: api.Time{Time: holder.ExpiresAt}, Metadata: json.RawMessage(holder.Metadata),
		})
	}
	return answer
}
