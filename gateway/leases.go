package gateway

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) listLeases() handler {
	return listing(g, collection[store.LeaseQuery, store.ShownLease, api.LeaseInfo]{
		parameters: []string{"lock", "owner_id", "state"},
		query:      readLeaseQuery,
		rows:       Backend.Leases,
		item:       leaseInfo,
		cursor: func(_ store.LeaseQuery, last store.ShownLease) string {
			return fmt.Sprint(last.Token, " ", last.Lock)
		},
		answer: func(_ context.Context, _ store.LeaseQuery, leases []api.LeaseInfo, next string) (any, error) {
			return api.LeaseInfos{Leases: leases, NextCursor: next}, nil
		},
	})
}

func readLeaseQuery(_ *http.Request, page page) (query store.LeaseQuery, err error) {
	query = store.LeaseQuery{
		OwnerID: page.Get("owner_id"), State: store.LeaseState(page.Get("state")), Limit: page.limit,
	}
	if query.Lock, err = page.name("lock"); err != nil {
		return query, err
	}
	query.AfterToken, query.AfterLock, err = page.numbered()
	return query, err
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
