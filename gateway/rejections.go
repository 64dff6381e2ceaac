package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) rejectionRoutes(router *mux.Router) {
	g.route(router, "/v1/rejections/summary", methods{"GET": g.answering(g.summarizeRejections)})
	g.route(router, "/v1/rejections/stream", methods{"GET": g.streamRejections})
	g.route(router, "/v1/rejections", methods{"GET": g.listRejections})
}

// countWrite counts a write and its verdict, and records a rejection.
func (g *Gateway) countWrite(r *http.Request, source string, took time.Duration, err error) {
	g.metrics.Write(source, took, err)
	if err == nil {
		return
	}
	var rejected *store.RejectedError
	if errors.As(err, &rejected) {
		g.recorder.Record(rejected, source, g.address(r))
	}
}

// rejectionQuery selects rejections for a list or an export.
type rejectionQuery struct {
	store.RejectionFilter

	order store.RejectionOrder
}

// listRejections answers a page as JSON, or all that match as CSV.
func (g *Gateway) listRejections(w http.ResponseWriter, r *http.Request) error {
	page, err := readPage(r, append([]string{"sort", "format"}, rejectionFilters...)...)
	if err != nil {
		return err
	}
	query := rejectionQuery{order: store.RejectionOrder(page.Get("sort"))}
	if query.RejectionFilter, err = rejectionFilter(page.Values); err != nil {
		return err
	}
	csv, err := wantsCSV(r, page.Values)
	if err != nil {
		return err
	}
	w.Header().Set("Vary", "Accept")
	if csv {
		return g.exportRejections(w, r, page, query)
	}
	return g.answering(func(ctx context.Context, r *http.Request) (any, error) {
		return listPage(ctx, g, r, page, rejectionList(query))
	})(w, r)
}

func rejectionList(selected rejectionQuery) collection[store.RejectionQuery, store.Rejection, api.Rejection] {
	return collection[store.RejectionQuery, store.Rejection, api.Rejection]{
		query: func(_ *http.Request, page page) (store.RejectionQuery, error) {
			after, err := rejectionMark(selected.order, page.after)
			return store.RejectionQuery{
				RejectionFilter: selected.RejectionFilter, Order: selected.order, Limit: page.limit, After: after,
			}, err
		},
		rows:   Backend.Rejections,
		item:   rejectionAnswer,
		cursor: rejectionCursor,
		answer: func(_ context.Context, _ store.RejectionQuery, rejections []api.Rejection, next string) (any, error) {
			return api.Rejections{Rejections: rejections, NextCursor: next}, nil
		},
	}
}

func rejectionAnswer(rejection store.Rejection) api.Rejection {
	return api.Rejection{
		ID: rejection.ID, Resource: string(rejection.Resource), Key: string(rejection.Key),
		Code: api.Code(rejection.Verdict), Reason: rejection.Reason, Token: optional(rejection.Token),
		Sequence: rejection.Sequence, GrantedToken: rejection.GrantedToken, LastToken: rejection.LastToken,
		LastSequence: rejection.LastSequence, SupersededBy: optional(rejection.SupersededBy()),
		OwnerID: rejection.OwnerID, LateMS: optionalMS(rejection.Late), Source: rejection.Source,
		Address: rejection.Address, Count: rejection.Count,
		FirstAt: api.Time{Time: rejection.FirstAt}, LastAt: api.Time{Time: rejection.LastAt},
	}
}

// summarizeRejections counts the rejections that match, and names the owners and resources with the most of them.
func (g *Gateway) summarizeRejections(ctx context.Context, r *http.Request) (any, error) {
	values, err := query(r, rejectionFilters...)
	if err != nil {
		return nil, err
	}
	filter, err := rejectionFilter(values)
	if err != nil {
		return nil, err
	}
	summary, err := g.backend.RejectionSummary(ctx, filter)
	if err != nil {
		return nil, err
	}
	byCode := make(map[api.Code]int64, len(summary.ByVerdict))
	for verdict, writes := range summary.ByVerdict {
		byCode[api.Code(verdict)] = writes
	}
	return api.RejectionSummary{
		Writes: summary.Writes, Groups: summary.Groups, ByCode: byCode,
		Owners: convert(summary.Owners, func(top store.RejectionTop) api.RejectedOwner {
			return api.RejectedOwner{OwnerID: top.Name, RejectionCount: countAnswer(top)}
		}),
		Resources: convert(summary.Resources, func(top store.RejectionTop) api.RejectedResource {
			return api.RejectedResource{Resource: top.Name, RejectionCount: countAnswer(top)}
		}),
	}, nil
}

func countAnswer(top store.RejectionTop) api.RejectionCount {
	return api.RejectionCount{
		Writes: top.Writes, Groups: top.Groups, LateMSMax: optionalMS(top.LateMax), LastAt: api.Time{Time: top.LastAt},
	}
}
