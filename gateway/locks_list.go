package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) listLocks(ctx context.Context, r *http.Request) (any, error) {
	page := readPage(r, "prefix", "state", "contains", "owner_id", "sort", "order", "queue_max", "count")
	query := store.LockQuery{ // the store checks the state and the sort
		Prefix: page.prefix, State: store.LockState(page.Get("state")), Contains: page.Get("contains"),
		OwnerID: page.Get("owner_id"), Sort: store.LockSort(page.Get("sort")), Limit: page.limit,
	}
	query.Within = principalOf(ctx).Within(access.Observe)
	query.Descending = page.choice("order", "asc", "desc")
	count := page.choice("count", "false", "true")
	query.QueueMax = page.integer("queue_max", 0, store.QueueMax, store.QueueMax)
	page.fail(readLockCursor(page.after, &query))
	if page.err != nil {
		return nil, page.err
	}
	locks, err := g.backend.Locks(ctx, query)
	next := nextCursor(page, locks, func(last store.Lock) string { return lockCursor(query, last) })
	answer := api.Locks{Locks: convert(locks, lockAnswer), NextCursor: next}
	if err == nil && count { // all pages
		var total int64
		total, err = g.backend.CountLocks(ctx, query)
		answer.Total = &total
	}
	return answer, err
}

// orderText names the order of a list, so that a cursor can't be used in another order.
func orderText(query store.LockQuery) string {
	order := string(query.Sort)
	if query.Descending {
		return order + "-"
	}
	if order == string(store.LocksByName) {
		return ""
	}
	return order
}

// lockCursor is the name of the last lock. In other orders than by name, the order and the sort key precede it.
func lockCursor(query store.LockQuery, last store.Lock) string {
	order := orderText(query)
	if order == "" {
		return string(last.Lock)
	}
	return fmt.Sprintf("%s %d %s", order, last.SortKey, last.Lock)
}

func readLockCursor(cursor string, query *store.LockQuery) (err error) {
	order := orderText(*query)
	if cursor == "" || order == "" {
		query.After = cursor
		return nil
	}
	parts := strings.SplitN(cursor, " ", 3)
	if len(parts) == 3 {
		query.AfterValue, err = strconv.ParseInt(parts[1], 10, 64)
	}
	if err != nil || len(parts) < 3 || parts[0] != order || parts[2] == "" {
		return invalid("cursor must be a next_cursor that the gateway returned for the same sort and order.")
	}
	query.After = parts[2]
	return nil
}

func (g *Gateway) listLeases(ctx context.Context, r *http.Request) (any, error) {
	page := readPage(r, "lock", "owner_id", "state")
	query := store.LeaseQuery{
		Lock: page.name("lock"), OwnerID: page.Get("owner_id"), State: store.LeaseState(page.Get("state")), Limit: page.limit,
		Within: principalOf(ctx).Within(access.Observe),
	}
	query.AfterToken, query.AfterLock = page.numbered()
	if page.err != nil {
		return nil, page.err
	}
	leases, err := g.backend.Leases(ctx, query)
	next := nextCursor(page, leases, func(last store.ShownLease) string { return fmt.Sprint(last.Token, " ", last.Lock) })
	return api.LeaseInfos{Leases: convert(leases, leaseInfo), NextCursor: next}, err
}

func leaseInfo(lease store.ShownLease) api.LeaseInfo {
	info := api.LeaseInfo{
		Lock: string(lease.Lock), LockHolder: holderAnswer(lease.Lease), WaitedMS: lease.Waited.Milliseconds(),
		State: string(lease.State), InSession: lease.InSession, EndReason: lease.EndReason, EndNote: lease.EndNote,
	}
	if lease.State == store.LeaseEnded {
		info.EndedAt = optionalTime(lease.EndedAt)
	}
	return info
}

var waitsRule = onName("lock", access.Observe)

// getWaits answers the wait-for graph.
func (g *Gateway) getWaits(ctx context.Context, r *http.Request) (any, error) {
	p := readParameters(r, "lock", "limit")
	lock, limit := p.name("lock"), p.integer("limit", 1, store.WaitsMax, store.WaitsMax)
	if p.err != nil {
		return nil, p.err
	}
	within := principalOf(ctx).Within(access.Observe)
	if lock != "" && !principalOf(ctx).May(access.Observe, string(lock)) {
		return nil, waitsRule.forbidden()
	}
	graph, err := g.backend.Waits(ctx, lock, limit, within)
	return api.Waits{Waits: convert(graph.Waits, waitAnswer), Truncated: graph.Truncated}, err
}

func waitAnswer(wait store.WaitOf) api.WaitOf {
	return api.WaitOf{
		OwnerID: wait.OwnerID, Principal: wait.Principal,
		Lock: string(wait.Lock), Mode: string(wait.Mode), Scope: string(wait.Scope),
		QueuedAt: api.Time{Time: wait.QueuedAt}, For: convert(wait.For, blockerAnswer),
	}
}

func blockerAnswer(blocker store.Blocker) api.Blocker {
	return api.Blocker{
		OwnerID: blocker.OwnerID, Principal: blocker.Principal,
		Relation: string(blocker.Relation), Lock: string(blocker.Lock),
	}
}
