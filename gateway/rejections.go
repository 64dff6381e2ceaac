package gateway

import (
	"errors"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// judged counts the verdict on a write, and notes a rejection for the record.
func (g *Gateway) judged(r *http.Request, source string, err error) {
	g.metrics.write(source, err)
	var rejected *store.RejectedError
	if errors.As(err, &rejected) {
		g.recorder.Record(rejected, source, g.address(r))
	}
}

func (g *Gateway) listRejections(w http.ResponseWriter, r *http.Request) error {
	page, err := readPage(r, append([]string{"sort", "format"}, rejectionFilters...)...)
	if err != nil {
		return err
	}
	filter, err := rejectionFilter(page.values)
	if err != nil {
		return err
	}
	order := store.RejectionOrder(page.values.Get("sort"))
	csv, err := wantsCSV(r, page.values)
	if err != nil {
		return err
	}
	w.Header().Set("Vary", "Accept")
	if csv {
		return g.exportRejections(w, r, page, filter, order)
	}
	query := store.RejectionQuery{RejectionFilter: filter, Order: order, Limit: page.limit}
	if query.After, err = rejectionMark(order, page.after); err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	rejections, err := g.backend.Rejections(ctx, query)
	if err != nil {
		return err
	}
	answer := api.Rejections{Rejections: make([]api.Rejection, len(rejections))}
	for i := range rejections {
		answer.Rejections[i] = rejectionAnswer(&rejections[i])
	}
	answer.NextCursor = nextCursor(len(rejections), page.limit, func() string {
		return rejectionCursor(order, rejections[len(rejections)-1])
	})
	return answerJSON(w, http.StatusOK, answer)
}

func rejectionAnswer(rejection *store.Rejection) api.Rejection {
	answer := api.Rejection{
		ID: rejection.ID, Resource: string(rejection.Resource), Key: string(rejection.Key),
		Code: api.Code(rejection.Verdict), Reason: rejection.Reason, Token: unlessZero(rejection.Token), Sequence: rejection.Sequence,
		GrantedToken: rejection.GrantedToken, LastToken: rejection.LastToken, LastSequence: rejection.LastSequence,
		SupersededBy: unlessZero(rejection.SupersededBy()),
		OwnerID:      rejection.OwnerID, LateMS: lateAnswer(rejection.Late), Source: rejection.Source, Address: rejection.Address, Count: rejection.Count,
		FirstAt: api.Time{Time: rejection.FirstAt}, LastAt: api.Time{Time: rejection.LastAt},
	}
	return answer
}

func unlessZero(number int64) *int64 {
	if number == 0 {
		return nil
	}
	return &number
}

func lateAnswer(late *time.Duration) *int64 {
	if late == nil {
		return nil
	}
	ms := late.Milliseconds()
	return &ms
}

// summarizeRejections counts the rejections that match, and names the owners and resources with the most of them.
func (g *Gateway) summarizeRejections(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r, rejectionFilters...)
	if err != nil {
		return err
	}
	filter, err := rejectionFilter(values)
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	summary, err := g.backend.RejectionSummary(ctx, filter)
	if err != nil {
		return err
	}
	answer := api.RejectionSummary{
		Writes: summary.Writes, Groups: summary.Groups, ByCode: map[api.Code]int64{},
		Owners: make([]api.RejectedOwner, len(summary.Owners)), Resources: make([]api.RejectedResource, len(summary.Resources)),
	}
	for verdict, writes := range summary.ByVerdict {
		answer.ByCode[api.Code(verdict)] = writes
	}
	for i, top := range summary.Owners {
		answer.Owners[i] = api.RejectedOwner{OwnerID: top.Name, RejectionCount: countAnswer(top)}
	}
	for i, top := range summary.Resources {
		answer.Resources[i] = api.RejectedResource{Resource: top.Name, RejectionCount: countAnswer(top)}
	}
	return answerJSON(w, http.StatusOK, answer)
}

func countAnswer(top store.RejectionTop) api.RejectionCount {
	return api.RejectionCount{Writes: top.Writes, Groups: top.Groups, LateMSMax: lateAnswer(top.LateMax), LastAt: api.Time{Time: top.LastAt}}
}
