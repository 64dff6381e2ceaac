package rejections

import (
	"net/http"
	"strconv"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// getRejection answers a rejection with its leases. A caller who may not see its resource gets the same answer as for
// one that does not exist.
func (e *Endpoints) getRejection(w *endpoint.Answer, r *http.Request) error {
	id, err := strconv.ParseInt(mux.Vars(r)["id"], 10, 64)
	if err != nil || id < 1 {
		return endpoint.Invalid("The id of a rejection is a positive integer.")
	}
	if _, err := endpoint.Query(r); err != nil {
		return err
	}
	detail, err := e.service.RejectionDetail(e.Work(r), id, w.Principal.Within(access.Observe))
	return endpoint.AnswerJSON(w, api.RejectionDetail{
		Rejection: rejectionAnswer(detail.Rejection), Lease: optionalLease(detail.Lease),
		Successor: optionalLease(detail.Successor),
	}, err)
}

func optionalLease(lease *store.LeaseInfo) *api.LeaseInfo {
	if lease == nil {
		return nil
	}
	return new(endpoint.LeaseInfo(*lease))
}
