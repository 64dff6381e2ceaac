package locks

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

func (e *Endpoints) listLocks(ctx context.Context, r *http.Request) (any, error) {
	page := endpoint.ReadPage(r, "prefix", "state", "contains", "owner_id", "sort", "order", "queue_max", "count")
	query := store.LockQuery{ // the store checks the state and the sort
		Prefix: page.Prefix, State: store.LockState(page.Get("state")), Contains: page.Get("contains"),
		OwnerID: page.Get("owner_id"), Sort: store.LockSort(page.Get("sort")), Limit: page.Limit,
	}
	query.Within = endpoint.PrincipalOf(ctx).Within(access.Observe)
	query.Descending = page.Choice("order", "asc", "desc")
	count := page.Choice("count", "false", "true")
	query.QueueMax = page.Integer("queue_max", 0, store.QueueMax, store.QueueMax)
	page.Fail(readLockCursor(page.After, &query))
	if page.Err != nil {
		return nil, page.Err
	}
	locks, err := e.service.Locks(ctx, query)
	next := endpoint.NextCursor(page, locks, func(last store.Lock) string { return lockCursor(query, last) })
	answer := api.Locks{Locks: endpoint.Convert(locks, endpoint.LockAnswer), NextCursor: next}
	if err == nil && count { // all pages
		var total int64
		total, err = e.service.CountLocks(ctx, query)
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
		return endpoint.Invalid("cursor must be a next_cursor that the gateway returned for the same sort and order.")
	}
	query.After = parts[2]
	return nil
}

func (e *Endpoints) listLeases(ctx context.Context, r *http.Request) (any, error) {
	page := endpoint.ReadPage(r, "lock", "owner_id", "state")
	query := store.LeaseQuery{
		Lock: page.Name("lock"), OwnerID: page.Get("owner_id"), State: store.LeaseState(page.Get("state")), Limit: page.Limit,
		Within: endpoint.PrincipalOf(ctx).Within(access.Observe),
	}
	query.AfterToken, query.AfterLock = page.Numbered()
	if page.Err != nil {
		return nil, page.Err
	}
	leases, err := e.service.Leases(ctx, query)
	next := endpoint.NextCursor(page, leases, func(last store.LeaseInfo) string {
		return fmt.Sprint(last.Token, " ", last.Lock)
	})
	return api.LeaseInfos{Leases: endpoint.Convert(leases, endpoint.LeaseInfo), NextCursor: next}, err
}

var waitsRule = endpoint.OnName("lock", access.Observe)

// getWaits answers the wait-for graph.
func (e *Endpoints) getWaits(ctx context.Context, r *http.Request) (any, error) {
	p := endpoint.ReadParameters(r, "lock", "owner_id", "limit")
	lock, limit := p.Name("lock"), p.Integer("limit", 1, store.WaitsMax, store.WaitsMax)
	owner := p.Get("owner_id")
	if owner != "" && lock != "" {
		p.Fail(endpoint.Invalid("lock and owner_id can't be combined."))
	}
	if p.Err != nil {
		return nil, p.Err
	}
	within := endpoint.PrincipalOf(ctx).Within(access.Observe)
	if lock != "" && !endpoint.PrincipalOf(ctx).May(access.Observe, string(lock)) {
		return nil, waitsRule.Forbidden()
	}
	var graph store.WaitGraph
	var err error
	if owner != "" {
		graph, err = e.service.WaitsOf(ctx, owner, limit, within)
	} else {
		graph, err = e.service.Waits(ctx, lock, limit, within)
	}
	return api.Waits{Waits: endpoint.Convert(graph.Waits, waitAnswer), Truncated: graph.Truncated}, err
}

func waitAnswer(wait store.WaitOf) api.WaitOf {
	return api.WaitOf{
		OwnerID: wait.OwnerID, Principal: wait.Principal,
		Lock: string(wait.Lock), Mode: string(wait.Mode), Scope: string(wait.Scope),
		QueuedAt: api.Time{Time: wait.QueuedAt}, For: endpoint.Convert(wait.For, blockerAnswer),
	}
}

func blockerAnswer(blocker store.Blocker) api.Blocker {
	return api.Blocker{
		OwnerID: blocker.OwnerID, Principal: blocker.Principal,
		Relation: string(blocker.Relation), Lock: string(blocker.Lock),
	}
}
