package gateway

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

const lockRoute = "/v1/locks/{lock" + anyText

func (g *Gateway) lockRoutes(router *mux.Router) {
	for name, handle := range g.leaseOperations() {
		g.route(router, lockRoute+"/"+name, methods{"POST": handle})
	}
	g.route(router, lockRoute+"/break", methods{"POST": acting(g, lockName, g.breakLease)})
	g.route(router, lockRoute+"/watch", methods{"GET": g.watchLock})
	g.route(router, lockRoute, methods{"GET": answeringNamed(g, lockName, g.getLock)})
	g.route(router, "/v1/locks", methods{"GET": g.answering(g.listLocks)})
}

// leaseOperations are the handlers of what clients do with leases all the time, by the last segment of the path.
func (g *Gateway) leaseOperations() map[string]handler {
	return map[string]handler{
		"acquire": acting(g, lockName, g.acquire),
		"renew":   acting(g, lockName, g.renew),
		"release": acting(g, lockName, g.release),
	}
}

func (g *Gateway) acquire(ctx context.Context, a action[store.Name, api.AcquireRequest]) (any, error) {
	request, err := acquireRequest(a.key, a.body)
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
		Metadata: optionalJSON(body.Metadata), Wait: time.Duration(body.WaitMS) * time.Millisecond,
		NewestToken: body.NewestToken,
	}
	switch {
	case body.Mode != "" && request.Mode != store.Exclusive && request.Mode != store.Shared:
		return request, invalid("mode is %q, it must be exclusive or shared.", clip(body.Mode))
	case body.Scope != "" && request.Scope != store.Node && request.Scope != store.Subtree:
		return request, invalid("scope is %q, it must be node or subtree.", clip(body.Scope))
	case body.NewestToken < 0 || body.NewestToken > api.MaxToken:
		return request, invalid("newest_token is %d, it must be 0 to 2^53-1.", body.NewestToken)
	case body.WaitMS < 0 || body.WaitMS > store.WaitMax.Milliseconds():
		return request, invalid("wait_ms is %d, it must be 0 (a try) to %d.", body.WaitMS, store.WaitMax.Milliseconds())
	}
	if body.RequestID != nil {
		if request.RequestID = *body.RequestID; request.RequestID == "" {
			return request, invalid("request_id is empty; it has 1 to %d bytes.", store.RequestBytesMax)
		}
	}
	var err error
	if body.SessionID != nil {
		if request.SessionID, err = parseSessionID("session_id", *body.SessionID); err != nil {
			return request, err
		}
		if body.TTLMS != nil {
			return request, invalid("ttl_ms is set beside session_id; a lease in a session lasts as long as the session.")
		}
	}
	request.TTL, err = ttl(body.TTLMS)
	return request, err
}

// ttl reads a ttl_ms; absent it is 0.
func ttl(ms *int64) (time.Duration, error) {
	return milliseconds("ttl_ms", ms, store.TTLMin, store.TTLMax)
}

func (g *Gateway) renew(ctx context.Context, a action[store.Name, api.RenewRequest]) (any, error) {
	ref, err := leaseRef(a.key, a.body.OwnerID, a.body.LeaseID, "fencing_token", a.body.FencingToken)
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

func (g *Gateway) release(ctx context.Context, a action[store.Name, api.ReleaseRequest]) (any, error) {
	ref, err := leaseRef(a.key, a.body.OwnerID, a.body.LeaseID, "fencing_token", a.body.FencingToken)
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

// leaseRef reads what identifies a lease to its owner; the token is in the field tokenField.
func leaseRef(lock store.Name, ownerID, leaseID, tokenField string, token int64) (store.LeaseRef, error) {
	if ownerID == "" {
		return store.LeaseRef{}, invalid("owner_id is required.")
	}
	id, err := parseLeaseID("lease_id", leaseID)
	if err != nil {
		return store.LeaseRef{}, err
	}
	return store.LeaseRef{Lock: lock, OwnerID: ownerID, ID: id, Token: token}, checkToken(tokenField, token)
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

func (g *Gateway) breakLease(ctx context.Context, a action[store.Name, api.BreakRequest]) (any, error) {
	return g.breakNamed(ctx, a.w, a.r, a.key, a.body.Reason)
}

func (g *Gateway) breakNamed(
	ctx context.Context, w *answerWriter, r *http.Request, lock store.Name, reason string,
) (any, error) {
	begun := time.Now()
	lease, err := g.backend.Break(g.asActor(ctx, w, r), lock, reason)
	g.metrics.Broken(lease, time.Since(begun), err)
	if err != nil {
		return nil, err
	}
	g.metrics.AdminAction("lease_broken")
	g.config.Logger.InfoContext(ctx, "lease broken", "lock", lock, "owner_id", lease.OwnerID,
		"fencing_token", lease.Token, "reason", reason, "by", w.principal.Name, "address", g.address(r))
	return api.Broken{Broken: true, Lock: string(lock), OwnerID: lease.OwnerID, FencingToken: lease.Token}, nil
}

func leaseAnswer(lease store.Lease) api.Lease {
	return api.Lease{
		Lock: string(lease.Lock), OwnerID: lease.OwnerID, LeaseID: lease.ID.String(), FencingToken: lease.Token,
		Mode: string(lease.Mode), Scope: string(lease.Scope), TTLMS: lease.TTL.Milliseconds(),
		GrantedAt: api.Time{Time: lease.GrantedAt}, ExpiresAt: api.Time{Time: lease.ExpiresAt},
		HoldUntil: optionalTime(lease.HoldUntil), HoldLeftMS: holdLeft(lease),
		WaitedMS: lease.Waited.Milliseconds(), SessionID: optionalID(lease.SessionID), Metadata: lease.Metadata,
		Provider: otherProvider(lease),
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
	if fence != nil && principalOf(ctx).May(access.Read, string(name)) {
		answer.Fence = new(fenceAnswer(*fence))
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
		Provider: otherProvider(lease), Principal: lease.Principal,
	}
}

// otherProvider is what keeps a lease; "" for PostgreSQL.
func otherProvider(lease store.Lease) string {
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
