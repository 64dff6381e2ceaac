package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) listLeases(w http.ResponseWriter, r *http.Request) error {
	query, err := readLeaseQuery(r)
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	leases, err := g.backend.Leases(ctx, query)
	if err != nil {
		return err
	}
	answer := api.LeaseInfos{Leases: make([]api.LeaseInfo, len(leases))}
	for i, lease := range leases {
		answer.Leases[i] = leaseInfo(lease)
	}
	answer.NextCursor = nextCursor(len(leases), query.Limit, func() string {
		last := leases[len(leases)-1]
		return fmt.Sprint(last.Token, " ", last.Lock)
	})
	return answerJSON(w, http.StatusOK, answer)
}

func readLeaseQuery(r *http.Request) (query store.LeaseQuery, err error) {
	page, err := readPage(r, "lock", "owner_id", "state")
	if err != nil {
		return query, err
	}
	query = store.LeaseQuery{OwnerID: page.values.Get("owner_id"), State: store.LeaseState(page.values.Get("state")), Limit: page.limit}
	if text := page.values.Get("lock"); text != "" {
		if query.Lock, err = parseName("lock", text); err != nil {
			return query, err
		}
	}
	query.AfterToken, query.AfterLock, err = page.numbered()
	return query, err
}

// numbered reads a cursor that is a positive number and a text.
func (p page) numbered() (number int64, text string, err error) {
	if p.after == "" {
		return 0, "", nil
	}
	first, text, found := strings.Cut(p.after, " ")
	number, err = strconv.ParseInt(first, 10, 64)
	if err != nil || !found || number < 1 || text == "" {
		return 0, "", invalid("cursor must be a next_cursor that the gateway gave.")
	}
	return number, text, nil
}

func leaseInfo(lease store.ShownLease) api.LeaseInfo {
	info := api.LeaseInfo{
		Lock: string(lease.Lock), LockHolder: holderAnswer(lease.Lease), WaitedMS: lease.Waited.Milliseconds(),
		State: string(lease.State), InSession: lease.InSession, EndReason: lease.EndReason, EndNote: lease.EndNote,
	}
	if lease.State == store.LeaseEnded {
		info.EndedAt = timeAnswer(lease.EndedAt)
	}
	return info
}
