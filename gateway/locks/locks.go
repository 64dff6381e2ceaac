// Package locks is the part of the API that grants leases: locks with their queues, leases, waits, watches and
// sessions.
package locks

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/watch"
)

// LockRoute is the path of a lock.
const LockRoute = "/v1/locks/{lock" + endpoint.AnyText

// Service grants, shows and ends leases, wherever they are kept. When the context of a waiting Acquire ends, it
// leaves the queue. It cuts off no statement, and releases a lease granted after that.
type Service interface {
	Acquire(context.Context, *store.AcquireRequest, *store.Lease) error
	Renew(context.Context, store.LeaseRef, time.Duration) (store.Lease, error)
	ReleaseLease(context.Context, store.LeaseRef) (store.Released, error)
	Break(ctx context.Context, lock store.Name, reason string) (store.Lease, error)
	LockAndFence(context.Context, store.Name) (store.Lock, *store.Fence, error)
	Watch(context.Context, store.Name) (*watch.Subscription, error)

	Locks(context.Context, store.LockQuery) ([]store.Lock, error)
	CountLocks(context.Context, store.LockQuery) (int64, error)
	Leases(context.Context, store.LeaseQuery) ([]store.LeaseInfo, error)
	Waits(ctx context.Context, lock store.Name, limit int, within []string) (store.WaitGraph, error)
	WaitsOf(ctx context.Context, ownerID string, limit int, within []string) (store.WaitGraph, error)

	CreateSession(context.Context, store.SessionRequest) (store.Session, error)
	KeepAlive(ctx context.Context, id uuid.UUID) (store.Session, error)
	Session(ctx context.Context, id uuid.UUID) (session store.Session, leases int64, err error)
	EndSession(ctx context.Context, id uuid.UUID) (released int64, err error)
	Sessions(context.Context, store.SessionQuery) ([]store.SessionInfo, error)
}

// Config configures the endpoints of leases, as gateway.Config says.
type Config struct {
	WaitingMax      int
	CallerLeasesMax int
	// LeasesOf returns how many leases and sessions the principal has, by a count of this age.
	LeasesOf func(principal string) (leases int64, age time.Duration)
}

// Endpoints are locks with their leases and queues, and sessions.
type Endpoints struct {
	*endpoint.Server

	config  Config
	service Service
	waiting atomic.Int64 // acquires that wait
}

// New returns the endpoints of leases and sessions.
func New(server *endpoint.Server, service Service, config Config) *Endpoints {
	return &Endpoints{Server: server, service: service, config: config}
}

// Routes adds the routes of locks, leases, waits and sessions.
func (e *Endpoints) Routes(router *mux.Router) {
	for name, handle := range e.LeaseOperations() {
		e.Route(router, LockRoute+"/"+name, endpoint.Methods{"POST": handle})
	}
	e.Route(router, LockRoute+"/break", endpoint.Methods{
		"POST": endpoint.WithBody(e.Server, endpoint.LockName, e.breakLease),
	})
	e.Route(router, LockRoute+"/watch", endpoint.Methods{"GET": e.watchLock})
	e.Route(router, LockRoute, endpoint.Methods{"GET": endpoint.WithoutBodyNamed(e.Server, endpoint.LockName, e.getLock)})
	e.Route(router, "/v1/locks", endpoint.Methods{"GET": e.WithoutBody(e.listLocks)})
	e.Route(router, "/v1/leases", endpoint.Methods{"GET": e.WithoutBody(e.listLeases)})
	e.Route(router, "/v1/waits", endpoint.Methods{"GET": e.WithoutBody(e.getWaits)})
	e.sessionRoutes(router)
}

// LeaseOperations are the handlers of the most frequent operations, on leases, by the last segment of the path.
func (e *Endpoints) LeaseOperations() map[string]endpoint.Handler {
	return map[string]endpoint.Handler{
		"acquire": endpoint.WithBody(e.Server, endpoint.LockName, e.acquire),
		"renew":   endpoint.WithBody(e.Server, endpoint.LockName, e.renew),
		"release": endpoint.WithBody(e.Server, endpoint.LockName, e.release),
	}
}

func (e *Endpoints) acquire(ctx context.Context, a endpoint.Action[store.Name, api.AcquireRequest]) (any, error) {
	request, err := AcquireRequest(a.Key, &a.Body)
	if err != nil {
		return nil, err
	}
	lease, err := e.Grant(ctx, a.W, a.R, request)
	return leaseAnswer(lease), err
}

// AcquireRequest checks the fields that only the API has; the store checks the rest.
func AcquireRequest(lock store.Name, body *api.AcquireRequest) (*store.AcquireRequest, error) {
	request := &store.AcquireRequest{
		Lock: lock, OwnerID: body.OwnerID, Mode: store.Mode(body.Mode), Scope: store.Scope(body.Scope),
		Metadata: endpoint.OptionalJSON(body.Metadata), Wait: time.Duration(body.WaitMS) * time.Millisecond,
		NewestToken: body.NewestToken,
	}
	switch {
	case body.Mode != "" && request.Mode != store.Exclusive && request.Mode != store.Shared:
		return request, endpoint.Invalid("mode is %q, it must be exclusive or shared.", endpoint.Clip(body.Mode))
	case body.Scope != "" && request.Scope != store.Node && request.Scope != store.Subtree:
		return request, endpoint.Invalid("scope is %q, it must be node or subtree.", endpoint.Clip(body.Scope))
	case body.NewestToken < 0 || body.NewestToken > api.MaxToken:
		return request, endpoint.Invalid("newest_token is %d, it must be 0 to 2^53-1.", body.NewestToken)
	case body.WaitMS < 0 || body.WaitMS > store.WaitMax.Milliseconds():
		return request, endpoint.Invalid(
			"wait_ms is %d, it must be 0 (a try) to %d.", body.WaitMS, store.WaitMax.Milliseconds(),
		)
	}
	if body.RequestID != nil {
		if request.RequestID = *body.RequestID; request.RequestID == "" {
			return request, endpoint.Invalid("request_id is empty; it has 1 to %d bytes.", store.RequestBytesMax)
		}
	}
	var err error
	if body.SessionID != nil {
		if request.SessionID, err = parseSessionID("session_id", *body.SessionID); err != nil {
			return request, err
		}
		if body.TTLMS != nil {
			return request, endpoint.Invalid(
				"ttl_ms is set beside session_id; a lease in a session lasts as long as the session.",
			)
		}
	}
	request.TTL, err = ttl(body.TTLMS)
	return request, err
}

// ttl reads a ttl_ms; absent it is 0.
func ttl(ms *int64) (time.Duration, error) {
	return endpoint.Milliseconds("ttl_ms", ms, store.TTLMin, store.TTLMax)
}

func (e *Endpoints) renew(ctx context.Context, a endpoint.Action[store.Name, api.RenewRequest]) (any, error) {
	ref, err := endpoint.LeaseRef(a.Key, a.Body.OwnerID, a.Body.LeaseID, "fencing_token", a.Body.FencingToken)
	if err != nil {
		return nil, err
	}
	duration, err := ttl(a.Body.TTLMS)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	lease, err := e.service.Renew(ctx, ref, duration)
	e.Metrics.Renewed(lease, time.Since(begun), err)
	return leaseAnswer(&lease), err
}

func (e *Endpoints) release(ctx context.Context, a endpoint.Action[store.Name, api.ReleaseRequest]) (any, error) {
	ref, err := endpoint.LeaseRef(a.Key, a.Body.OwnerID, a.Body.LeaseID, "fencing_token", a.Body.FencingToken)
	if err != nil {
		return nil, err
	}
	return api.Released{Released: true}, e.Release(ctx, ref)
}

// Release releases a lease and counts that.
func (e *Endpoints) Release(ctx context.Context, ref store.LeaseRef) error {
	begun := time.Now()
	lease, err := e.service.ReleaseLease(ctx, ref)
	e.Metrics.Released(lease, time.Since(begun), err)
	return err
}

func (e *Endpoints) breakLease(ctx context.Context, a endpoint.Action[store.Name, api.BreakRequest]) (any, error) {
	return e.Break(ctx, a.W, a.R, a.Key, a.Body.Reason)
}

// Break ends the lease on a lock for a reason, and logs who did.
func (e *Endpoints) Break(
	ctx context.Context, w *endpoint.Answer, r *http.Request, lock store.Name, reason string,
) (any, error) {
	begun := time.Now()
	lease, err := e.service.Break(e.AsActor(ctx, w, r), lock, reason)
	e.Metrics.Broken(lease, time.Since(begun), err)
	if err != nil {
		return nil, err
	}
	e.Metrics.AdminAction("lease_broken")
	e.Logger.InfoContext(ctx, "lease broken", "lock", lock, "owner_id", lease.OwnerID,
		"fencing_token", lease.Token, "reason", reason, "by", w.Principal.Name, "address", e.Address(r))
	return api.Broken{Broken: true, Lock: string(lock), OwnerID: lease.OwnerID, FencingToken: lease.Token}, nil
}

func leaseAnswer(lease *store.Lease) any {
	return api.Lease{
		Lock: string(lease.Lock), OwnerID: lease.OwnerID, LeaseID: lease.ID.String(), FencingToken: lease.Token,
		Mode: string(lease.Mode), Scope: string(lease.Scope), TTLMS: lease.TTL.Milliseconds(),
		GrantedAt: api.Time{Time: lease.GrantedAt}, ExpiresAt: api.Time{Time: lease.ExpiresAt},
		HoldUntil: endpoint.OptionalTime(lease.HoldUntil), HoldLeftMS: endpoint.HoldLeft(*lease),
		WaitedMS: lease.Waited.Milliseconds(), SessionID: endpoint.OptionalID(lease.SessionID), Metadata: lease.Metadata,
		Provider: endpoint.OtherProvider(*lease),
	}
}

func (e *Endpoints) getLock(ctx context.Context, name store.Name) (any, error) {
	lock, fence, err := e.service.LockAndFence(ctx, name)
	answer := endpoint.LockAnswer(lock)
	if fence != nil && endpoint.PrincipalOf(ctx).May(access.Read, string(name)) {
		answer.Fence = new(endpoint.FenceAnswer(*fence))
	}
	return answer, err
}

// leasesCountAge is the age at which a count of leases no longer limits anybody.
const leasesCountAge = 10 * time.Minute

// checkLeases refuses an acquire or a session of a principal that had reached its limit of leases and sessions at the
// last count, some seconds ago. For an exact count, all acquires of a principal would have to wait for each other.
func (e *Endpoints) checkLeases(principal string) error {
	most := int64(e.config.CallerLeasesMax)
	if most == 0 || principal == "" {
		return nil
	}
	if leases, age := e.config.LeasesOf(principal); leases < most || age > leasesCountAge {
		return nil
	}
	return e.RateLimited(metrics.LimitLeases, "You have as many leases and sessions as one caller may (--caller-leases-max).",
		store.SampleInterval)
}
