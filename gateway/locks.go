package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) acquire(w http.ResponseWriter, r *http.Request, lock store.Name, body api.AcquireRequest) (any, error) {
	request, err := acquireRequest(lock, body)
	if err != nil {
		return nil, err
	}
	lease, err := g.grant(w, r, request)
	return leaseAnswer(lease), err
}

// acquireRequest checks what only the API has; the rest is for the store to check.
func acquireRequest(lock store.Name, body api.AcquireRequest) (store.AcquireRequest, error) {
	request := store.AcquireRequest{Lock: lock, OwnerID: body.OwnerID, Mode: store.Mode(body.Mode), Scope: store.Scope(body.Scope)}
	switch {
	case body.Mode != "" && request.Mode != store.Exclusive && request.Mode != store.Shared:
		return request, invalid("mode is %q, it must be exclusive or shared.", clip(body.Mode))
	case body.Scope != "" && request.Scope != store.Node && request.Scope != store.Subtree:
		return request, invalid("scope is %q, it must be node or subtree.", clip(body.Scope))
	}
	request.Metadata = unlessNull(body.Metadata)
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
			return invalid("ttl_ms is set beside session_id; a lease in a session lasts as long as that.")
		}
	}
	request.TTL, err = ttl(given.ttlMS)
	return err
}

// unlessNull is what was given; null is the same as nothing.
func unlessNull(given json.RawMessage) json.RawMessage {
	if string(given) == "null" {
		return nil
	}
	return given
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

func (g *Gateway) renew(_ http.ResponseWriter, r *http.Request, lock store.Name, body api.RenewRequest) (any, error) {
	ref, err := leaseRef(lock, body.OwnerID, body.LeaseID, body.FencingToken)
	if err != nil {
		return nil, err
	}
	duration, err := ttl(body.TTLMS)
	if err != nil {
		return nil, err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	begun := time.Now()
	lease, err := g.backend.Renew(ctx, ref, duration)
	g.metrics.renewed(lease, time.Since(begun), err)
	return leaseAnswer(lease), err
}

func (g *Gateway) release(_ http.ResponseWriter, r *http.Request, lock store.Name, body api.ReleaseRequest) (any, error) {
	ref, err := leaseRef(lock, body.OwnerID, body.LeaseID, body.FencingToken)
	if err != nil {
		return nil, err
	}
	return api.Released{Released: true}, g.giveBack(r, ref)
}

// giveBack releases a lease.
func (g *Gateway) giveBack(r *http.Request, ref store.LeaseRef) error {
	ctx, cancel := g.work(r)
	defer cancel()
	begun := time.Now()
	lease, err := g.backend.ReleaseLease(ctx, ref)
	g.metrics.released(lease, time.Since(begun), err)
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
		return problem(http.StatusBadRequest, api.CodeInvalidToken, field+" is missing or 0, it must be 1 to 2^53-1.")
	case token < 1 || token > api.MaxToken:
		return problem(http.StatusBadRequest, api.CodeInvalidToken, fmt.Sprintf("%s is %d, it must be 1 to 2^53-1.", field, token))
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

func (g *Gateway) breakLease(_ http.ResponseWriter, r *http.Request, lock store.Name, body api.BreakRequest) (any, error) {
	ctx, cancel := g.work(r)
	defer cancel()
	begun := time.Now()
	lease, err := g.backend.Break(ctx, lock, body.Reason)
	g.metrics.leaseOperation(operationBreak, lease.Mode, time.Since(begun), err)
	if err != nil {
		return nil, err
	}
	g.config.Logger.InfoContext(r.Context(), "lease broken", "lock", lock, "owner_id", lease.OwnerID, "fencing_token", lease.Token, "reason", body.Reason, "address", g.address(r))
	return api.Broken{Broken: true, Lock: string(lock), OwnerID: lease.OwnerID, FencingToken: lease.Token}, nil
}

func leaseAnswer(lease store.Lease) api.Lease {
	return api.Lease{
		Lock: string(lease.Lock), OwnerID: lease.OwnerID, LeaseID: lease.ID.String(), FencingToken: lease.Token,
		Mode: string(lease.Mode), Scope: string(lease.Scope), TTLMS: lease.TTL.Milliseconds(),
		GrantedAt: api.Time{Time: lease.GrantedAt}, ExpiresAt: api.Time{Time: lease.ExpiresAt},
		HoldUntil: timeAnswer(lease.HoldUntil), HoldLeftMS: holdLeft(lease),
		WaitedMS: lease.Waited.Milliseconds(), SessionID: idText(lease.SessionID), Metadata: lease.Metadata,
	}
}

// holdLeft is nil for a lease that may be held without a limit.
func holdLeft(lease store.Lease) *int64 {
	if lease.HoldUntil.IsZero() {
		return nil
	}
	ms := lease.HoldLeft.Milliseconds()
	return &ms
}

// idText is empty for an ID that is not there.
func idText(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}
