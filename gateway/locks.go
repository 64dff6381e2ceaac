package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) lockRoutes(router *mux.Router) {
	const lock = "/v1/locks/{lock" + anyText
	g.route(router, lock+"/acquire", methods{"POST": acting(g, lockName, g.acquire)})
	g.route(router, lock+"/renew", methods{"POST": acting(g, lockName, g.renew)})
	g.route(router, lock+"/release", methods{"POST": acting(g, lockName, g.release)})
	g.route(router, lock+"/break", methods{"POST": acting(g, lockName, g.breakLease)})
	g.route(router, lock+"/watch", methods{"GET": g.watchLock})
	g.route(router, lock, methods{"GET": g.answeringNamed(lockName, g.getLock)})
	g.route(router, "/v1/locks", methods{"GET": g.listLocks()})
}

func (g *Gateway) acquire(ctx context.Context, a action[api.AcquireRequest]) (any, error) {
	request, err := acquireRequest(a.name, a.body)
	if err != nil {
		return nil, err
	}
	lease, err := g.grant(ctx, a.w, a.r, request)
	return leaseAnswer(lease), err
}

// acquireRequest checks what only the API knows; the store checks the rest.
func acquireRequest(lock store.Name, body api.AcquireRequest) (store.AcquireRequest, error) {
	request := store.AcquireRequest{
		Lock: lock, OwnerID: body.OwnerID, Mode: store.Mode(body.Mode), Scope: store.Scope(body.Scope),
		Metadata: optionalJSON(body.Metadata),
	}
	switch {
	case body.Mode != "" && request.Mode != store.Exclusive && request.Mode != store.Shared:
		return request, invalid("mode is %q, it must be exclusive or shared.", clip(body.Mode))
	case body.Scope != "" && request.Scope != store.Node && request.Scope != store.Subtree:
		return request, invalid("scope is %q, it must be node or subtree.", clip(body.Scope))
	}
	err := readTerms(&request, terms{body.TTLMS, body.WaitMS, body.SessionID, body.RequestID})
	return request, err
}

// terms are what acquires and campaigns have in common.
type terms struct {
	ttlMS                *int64
	waitMS               int64
	sessionID, requestID *string
}

func readTerms(request *store.AcquireRequest, given terms) (err error) {
	if given.waitMS < 0 || given.waitMS > store.WaitMax.Milliseconds() {
		return invalid("wait_ms is %d, it must be 0 (a try) to %d.", given.waitMS, store.WaitMax.Milliseconds())
	}
	request.Wait = time.Duration(given.waitMS) * time.Millisecond
	if given.requestID != nil {
		if request.RequestID = *given.requestID; request.RequestID == "" {
			return invalid("request_id is empty; it has 1 to %d bytes.", store.RequestBytesMax)
		}
	}
	if given.sessionID != nil {
		if request.SessionID, err = parseSessionID("session_id", *given.sessionID); err != nil {
			return err
		}
		if given.ttlMS != nil {
			return invalid("ttl_ms is set beside session_id; a lease in a session lasts as long as the session.")
		}
	}
	request.TTL, err = ttl(given.ttlMS)
	return err
}

// ttl reads a ttl_ms; absent it is 0.
func ttl(ms *int64) (time.Duration, error) {
	return milliseconds("ttl_ms", ms, store.TTLMin, store.TTLMax)
}

func (g *Gateway) renew(ctx context.Context, a action[api.RenewRequest]) (any, error) {
	ref, err := leaseRef(a.name, a.body.OwnerID, a.body.LeaseID, a.body.FencingToken)
	if err != nil {
		return nil, err
	}
	duration, err := ttl(a.body.TTLMS)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	lease, err := g.backend.Renew(ctx, ref, duration)
	g.metrics.Renewed(lease, time.Since(begun), err)
	return leaseAnswer(lease), err
}

func (g *Gateway) release(ctx context.Context, a action[api.ReleaseRequest]) (any, error) {
	ref, err := leaseRef(a.name, a.body.OwnerID, a.body.LeaseID, a.body.FencingToken)
	if err != nil {
		return nil, err
	}
	return api.Released{Released: true}, g.releaseLease(ctx, ref)
}

func (g *Gateway) releaseLease(ctx context.Context, ref store.LeaseRef) error {
	begun := time.Now()
	lease, err := g.backend.ReleaseLease(ctx, ref)
	g.metrics.Released(lease, time.Since(begun), err)
	return err
}

func leaseRef(lock store.Name, ownerID, leaseID string, token int64) (store.LeaseRef, error) {
	if ownerID == "" {
		return store.LeaseRef{}, invalid("owner_id is required.")
	}
	id, err := parseLeaseID("lease_id", leaseID)
	if err != nil {
		return store.LeaseRef{}, err
	}
	return store.LeaseRef{Lock: lock, OwnerID: ownerID, ID: id, Token: token}, checkToken("fencing_token", token)
}

func checkToken(field string, token int64) error {
	switch {
	case token == 0:
		return invalidToken(field + " is missing or 0, it must be 1 to 2^53-1.")
	case token < 1 || token > api.MaxToken:
		return invalidToken(fmt.Sprintf("%s is %d, it must be 1 to 2^53-1.", field, token))
	}
	return nil
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

func (g *Gateway) breakLease(ctx context.Context, a action[api.BreakRequest]) (any, error) {
	begun := time.Now()
	lease, err := g.backend.Break(ctx, a.name, a.body.Reason)
	g.metrics.Broken(lease, time.Since(begun), err)
	if err != nil {
		return nil, err
	}
	g.config.Logger.InfoContext(ctx, "lease broken", "lock", a.name, "owner_id", lease.OwnerID,
		"fencing_token", lease.Token, "reason", a.body.Reason, "address", g.address(a.r))
	return api.Broken{Broken: true, Lock: string(a.name), OwnerID: lease.OwnerID, FencingToken: lease.Token}, nil
}

func leaseAnswer(lease store.Lease) api.Lease {
	return api.Lease{
		Lock: string(lease.Lock), OwnerID: lease.OwnerID, LeaseID: lease.ID.String(), FencingToken: lease.Token,
		Mode: string(lease.Mode), Scope: string(lease.Scope), TTLMS: lease.TTL.Milliseconds(),
		GrantedAt: api.Time{Time: lease.GrantedAt}, ExpiresAt: api.Time{Time: lease.ExpiresAt},
		HoldUntil: optionalTime(lease.HoldUntil), HoldLeftMS: holdLeft(lease),
		WaitedMS: lease.Waited.Milliseconds(), SessionID: optionalID(lease.SessionID), Metadata: lease.Metadata,
	}
}

// holdLeft is nil for a lease without a limit.
func holdLeft(lease store.Lease) *int64 {
	if lease.HoldUntil.IsZero() {
		return nil
	}
	return optionalMS(&lease.HoldLeft)
}

func (g *Gateway) getLock(ctx context.Context, name store.Name) (any, error) {
	lock, fence, err := g.backend.LockAndFence(ctx, name)
	answer := lockAnswer(lock)
	if fence != nil {
		shown := fenceAnswer(*fence)
		answer.Fence = &shown
	}
	return answer, err
}

func lockAnswer(lock store.Lock) api.Lock {
	return api.Lock{
		Lock: string(lock.Lock), State: string(lock.State), FencingToken: lock.Token,
		Holders: convert(lock.Holders, holderAnswer), Queue: convert(lock.Queue, waiterAnswer),
		QueueLength: lock.QueueLength,
	}
}

func holderAnswer(lease store.Lease) api.LockHolder {
	return api.LockHolder{
		OwnerID: lease.OwnerID, FencingToken: lease.Token, Mode: string(lease.Mode), Scope: string(lease.Scope),
		TTLMS: lease.TTL.Milliseconds(), GrantedAt: api.Time{Time: lease.GrantedAt},
		ExpiresAt: api.Time{Time: lease.ExpiresAt}, HoldUntil: optionalTime(lease.HoldUntil), Metadata: lease.Metadata,
	}
}

func waiterAnswer(waiter store.Waiter) api.Waiter {
	return api.Waiter{
		OwnerID: waiter.OwnerID, Mode: string(waiter.Mode), Scope: string(waiter.Scope),
		QueuedAt: api.Time{Time: waiter.QueuedAt},
	}
}
