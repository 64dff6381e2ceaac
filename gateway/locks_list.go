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

// lockQuery selects locks for a list, and says whether to count them on all pages.
type lockQuery struct {
	store.LockQuery

	count bool
}

func (g *Gateway) listLocks() handler {
	return listing(g, collection[lockQuery, store.Lock, api.Lock]{
		parameters: []string{"prefix", "state", "contains", "owner_id", "sort", "order", "queue_max", "count"},
		query:      readLockQuery,
		rows: func(b Backend, ctx context.Context, q lockQuery) ([]store.Lock, error) {
			return b.Locks(ctx, q.LockQuery)
		},
		item:   lockAnswer,
		cursor: lockCursor,
		answer: func(ctx context.Context, q lockQuery, locks []api.Lock, next string) (any, error) {
			answer := api.Locks{Locks: locks, NextCursor: next}
			if !q.count {
				return answer, nil
			}
			total, err := g.backend.CountLocks(ctx, q.LockQuery)
			answer.Total = &total
			return answer, err
		},
	})
}

// readLockQuery reads the parameters of the list; the store checks the state and the sort.
func readLockQuery(_ *http.Request, page page) (query lockQuery, err error) {
	query.LockQuery = store.LockQuery{
		Prefix: page.prefix, State: store.LockState(page.Get("state")), Contains: page.Get("contains"),
		OwnerID: page.Get("owner_id"), Sort: store.LockSort(page.Get("sort")), Limit: page.limit,
	}
	if query.Descending, err = page.choice("order", "asc", "desc"); err != nil {
		return query, err
	}
	if query.count, err = page.choice("count", "false", "true"); err != nil {
		return query, err
	}
	if query.QueueMax, err = page.integer("queue_max", 0, store.QueueMax, store.QueueMax); err != nil {
		return query, err
	}
	err = readLockCursor(page.after, &query)
	return query, err
}

// orderText names the order of a list, so that a cursor can't be used in another order.
func orderText(query lockQuery) string {
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
func lockCursor(query lockQuery, last store.Lock) string {
	order := orderText(query)
	if order == "" {
		return string(last.Lock)
	}
	return fmt.Sprintf("%s %d %s", order, last.SortKey, last.Lock)
}

func readLockCursor(cursor string, query *lockQuery) (err error) {
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
