package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) getLock(ctx context.Context, name store.Name) (any, error) {
	lock, fence, err := g.backend.LockAndFence(ctx, name)
	answer := lockAnswer(lock)
	if fence != nil {
		shown := fenceAnswer(*fence)
		answer.Fence = &shown
	}
	return answer, err
}

func (g *Gateway) listLocks(w http.ResponseWriter, r *http.Request) error {
	query, count, err := readLockQuery(r)
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	locks, err := g.backend.Locks(ctx, query)
	if err != nil {
		return err
	}
	answer := api.Locks{Locks: make([]api.Lock, len(locks))}
	for i, lock := range locks {
		answer.Locks[i] = lockAnswer(lock)
	}
	answer.NextCursor = nextCursor(len(locks), query.Limit, func() string { return lockCursor(query, locks[len(locks)-1]) })
	if count {
		total, err := g.backend.CountLocks(ctx, query)
		if err != nil {
			return err
		}
		answer.Total = &total
	}
	return answerJSON(w, http.StatusOK, answer)
}

// readLockQuery reads which locks are asked for, and whether to count them. What a state or a sort may be is for the store to say.
func readLockQuery(r *http.Request) (query store.LockQuery, count bool, err error) {
	page, err := readPage(r, "prefix", "state", "contains", "owner_id", "sort", "order", "queue_max", "count")
	if err != nil {
		return query, false, err
	}
	query = store.LockQuery{
		Prefix: page.prefix, State: store.LockState(page.values.Get("state")), Contains: page.values.Get("contains"),
		OwnerID: page.values.Get("owner_id"), Sort: store.LockSort(page.values.Get("sort")), Limit: page.limit, QueueMax: store.QueueMax,
	}
	if query.Descending, err = page.choice("order", "asc", "desc"); err != nil {
		return query, false, err
	}
	if count, err = page.choice("count", "false", "true"); err != nil {
		return query, false, err
	}
	if text := page.values.Get("queue_max"); text != "" {
		if query.QueueMax, err = strconv.Atoi(text); err != nil {
			return query, false, invalid("queue_max must be an integer from 0 to %d.", store.QueueMax)
		}
	}
	err = readLockCursor(page.after, &query)
	return query, count, err
}

// choice reads a parameter that is one of two, and reports whether it is the second; absent it is the first.
func (p page) choice(parameter, first, second string) (bool, error) {
	switch text := p.values.Get(parameter); text {
	case "", first:
		return false, nil
	case second:
		return true, nil
	}
	return false, invalid("%s must be %s or %s.", parameter, first, second)
}

// orderText names the order of a list, so that a cursor goes on in no other.
func orderText(query store.LockQuery) string {
	if query.Descending {
		return string(query.Sort) + "-"
	}
	return string(query.Sort)
}

// lockCursor is where a page ended: the name, and in other orders than that of the names the order and the place in it, too.
func lockCursor(query store.LockQuery, last store.Lock) string {
	switch order := orderText(query); order {
	case "", string(store.LocksByName):
		return string(last.Lock)
	default:
		return fmt.Sprintf("%s %d %s", order, last.Place, last.Lock)
	}
}

func readLockCursor(cursor string, query *store.LockQuery) (err error) {
	switch order := orderText(*query); {
	case cursor == "", order == "", order == string(store.LocksByName):
		query.After = cursor
	default:
		parts := strings.SplitN(cursor, " ", 3)
		if len(parts) == 3 {
			query.AfterValue, err = strconv.ParseInt(parts[1], 10, 64)
		}
		if err != nil || len(parts) < 3 || parts[0] != order || parts[2] == "" {
			return invalid("cursor must be a next_cursor that the gateway gave, for the same sort and order.")
		}
		query.After = parts[2]
	}
	return nil
}

func lockAnswer(lock store.Lock) api.Lock {
	answer := api.Lock{
		Lock: string(lock.Lock), State: string(lock.State), FencingToken: lock.Token,
		Holders: []api.LockHolder{}, Queue: []api.Waiter{}, QueueLength: lock.QueueLength,
	}
	for _, holder := range lock.Holders {
		answer.Holders = append(answer.Holders, holderAnswer(holder))
	}
	for _, waiter := range lock.Queue {
		answer.Queue = append(answer.Queue, api.Waiter{
			OwnerID: waiter.OwnerID, Mode: string(waiter.Mode), Scope: string(waiter.Scope), QueuedAt: api.Time{Time: waiter.QueuedAt},
		})
	}
	return answer
}

func holderAnswer(lease store.Lease) api.LockHolder {
	return api.LockHolder{
		OwnerID: lease.OwnerID, FencingToken: lease.Token, Mode: string(lease.Mode), Scope: string(lease.Scope), TTLMS: lease.TTL.Milliseconds(),
		GrantedAt: api.Time{Time: lease.GrantedAt}, ExpiresAt: api.Time{Time: lease.ExpiresAt}, HoldUntil: timeAnswer(lease.HoldUntil),
		Metadata: lease.Metadata,
	}
}
