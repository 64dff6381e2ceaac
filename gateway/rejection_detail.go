package gateway

import (
	"net/http"
	"strconv"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

// getRejection answers a rejection with its leases. A caller who may not see its resource gets the same answer as for
// one that does not exist.
func (g *Gateway) getRejection(w *answerWriter, r *http.Request) error {
	id, err := strconv.ParseInt(mux.Vars(r)["id"], 10, 64)
	if err != nil || id < 1 {
		return invalid("The id of a rejection is a positive integer.")
	}
	if _, err := query(r); err != nil {
		return err
	}
	detail, err := g.backend.RejectionDetail(g.work(r), id, w.principal.Within(access.Observe))
	return answerJSON(w, api.RejectionDetail{
		Rejection: rejectionAnswer(detail.Rejection), Lease: optionalLease(detail.Lease),
		Successor: optionalLease(detail.Successor),
	}, err)
}

func optionalLease(lease *store.ShownLease) *api.LeaseInfo {
	if lease == nil {
		return nil
	}
	return new(leaseInfo(*lease))
}
