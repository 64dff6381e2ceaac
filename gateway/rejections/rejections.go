// Package rejections is the part of the API that shows rejected writes: lists, a summary, and a stream of all gateways.
package rejections

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// Service is what lists and streams of rejections need.
type Service interface {
	Rejections(context.Context, store.RejectionQuery) ([]store.Rejection, error)
	RejectionSummary(context.Context, store.RejectionFilter) (store.RejectionSummary, error)
	RejectionDetail(ctx context.Context, id int64, within []string) (store.RejectionDetail, error)
	FollowRejections() store.RejectionFollower
	RejectionsSince(ctx context.Context, filter store.RejectionFilter, after time.Time) (store.RejectionChanges, error)
}

// Endpoints are the rejected writes of all gateways.
type Endpoints struct {
	*endpoint.Server

	service Service
	Feed    *Feed
}

// New returns the endpoints of rejections. Their streams end with the server.
func New(server *endpoint.Server, service Service) *Endpoints {
	return &Endpoints{server, service, newFeed(server.Cut, service)}
}

// Wait returns when the streams have ended, after server.CutOff.
func (e *Endpoints) Wait() { e.Feed.Wait() }

// Routes adds the routes of rejections.
func (e *Endpoints) Routes(router *mux.Router) {
	e.Route(router, "/v1/rejections/summary", endpoint.Methods{"GET": e.WithoutBody(e.summarizeRejections)})
	e.Route(router, "/v1/rejections/stream", endpoint.Methods{"GET": e.streamRejections})
	e.Route(router, "/v1/rejections/{id}", endpoint.Methods{"GET": e.getRejection})
	e.Route(router, "/v1/rejections", endpoint.Methods{"GET": e.WithoutBody(e.listRejections)})
}

func (e *Endpoints) listRejections(ctx context.Context, r *http.Request) (_ any, err error) {
	page := endpoint.ReadPage(r, append([]string{"sort"}, rejectionFilters...)...)
	query := store.RejectionQuery{
		RejectionFilter: rejectionFilter(&page.Parameters), Order: store.RejectionOrder(page.Get("sort")), Limit: page.Limit,
	}
	query.Within = endpoint.PrincipalOf(ctx).Within(access.Observe)
	if page.Err != nil {
		return nil, page.Err
	}
	if query.After, err = rejectionMark(query.Order, page.After); err != nil {
		return nil, err
	}
	rejections, err := e.service.Rejections(ctx, query)
	next := endpoint.NextCursor(page, rejections, func(last store.Rejection) string {
		return rejectionCursor(query.Order, last)
	})
	return api.Rejections{Rejections: endpoint.Convert(rejections, rejectionAnswer), NextCursor: next}, err
}

func rejectionAnswer(rejection store.Rejection) api.Rejection {
	return api.Rejection{
		ID: rejection.ID, Resource: string(rejection.Resource), Key: string(rejection.Key),
		Code: api.Code(rejection.Verdict), Reason: rejection.Reason, Kind: api.RejectionKind(rejection.Kind()), Token: endpoint.Optional(rejection.Token),
		Sequence: rejection.Sequence, GrantedToken: rejection.GrantedToken, LastToken: rejection.LastToken,
		LastSequence: rejection.LastSequence, SupersededBy: endpoint.Optional(rejection.SupersededBy()),
		OwnerID: rejection.OwnerID, LateMS: endpoint.OptionalMS(rejection.Late), Source: rejection.Source,
		Address: rejection.Address, Principal: rejection.Principal, Observed: rejection.Observed(), Count: rejection.Count,
		FirstAt: api.Time{Time: rejection.FirstAt}, LastAt: api.Time{Time: rejection.LastAt},
	}
}

// summarizeRejections counts the rejections that match, and names the owners and resources with the most of them.
func (e *Endpoints) summarizeRejections(ctx context.Context, r *http.Request) (any, error) {
	p := endpoint.ReadParameters(r, rejectionFilters...)
	filter := rejectionFilter(&p)
	filter.Within = endpoint.PrincipalOf(ctx).Within(access.Observe)
	if p.Err != nil {
		return nil, p.Err
	}
	summary, err := e.service.RejectionSummary(ctx, filter)
	if err != nil {
		return nil, err
	}
	byCode := make(map[api.Code]int64, len(summary.ByVerdict))
	for verdict, writes := range summary.ByVerdict {
		byCode[api.Code(verdict)] = writes
	}
	byKind := make(map[api.RejectionKind]int64, len(summary.ByKind))
	for kind, writes := range summary.ByKind {
		byKind[api.RejectionKind(kind)] = writes
	}
	return api.RejectionSummary{
		Writes: summary.Writes, Groups: summary.Groups, ByCode: byCode, ByKind: byKind,
		Owners: endpoint.Convert(summary.Owners, func(top store.RejectionTop) api.RejectedOwner {
			return api.RejectedOwner{OwnerID: top.Name, RejectionCount: countAnswer(top)}
		}),
		Resources: endpoint.Convert(summary.Resources, func(top store.RejectionTop) api.RejectedResource {
			return api.RejectedResource{Resource: top.Name, RejectionCount: countAnswer(top)}
		}),
	}, nil
}

func countAnswer(top store.RejectionTop) api.RejectionCount {
	return api.RejectionCount{
		Writes: top.Writes, Groups: top.Groups, LateMSMax: endpoint.OptionalMS(top.LateMax), LastAt: api.Time{Time: top.LastAt},
	}
}

// rejectionFilters are the parameters that select rejections.
var rejectionFilters = []string{
	"resource", "prefix", "key", "code", "reason", "kind", "source", "owner_id", "principal", "since", "until",
}

// rejectionFilter reads rejectionFilters; the store checks the values.
func rejectionFilter(p *endpoint.Parameters) store.RejectionFilter {
	return store.RejectionFilter{
		Resource: p.Name("resource"), Prefix: p.Get("prefix"), Key: p.Get("key"),
		Verdict: store.Verdict(p.Get("code")),
		Reason:  p.Get("reason"), Kind: store.RejectionKind(p.Get("kind")), Source: p.Get("source"), OwnerID: p.Get("owner_id"),
		Principal: p.Get("principal"), Since: p.Time("since"), Until: p.Time("until"),
	}
}

// rejectionMark reads a cursor of rejectionCursor. It is the ID; in the order of the latest change, the microsecond of
// the change precedes it.
func rejectionMark(order store.RejectionOrder, cursor string) (*store.RejectionMark, error) {
	if cursor == "" {
		return nil, nil //nolint:nilnil // the list begins at its front, and that is no error
	}
	malformed := endpoint.Invalid("cursor must be a next_cursor that the gateway returned for a list in the same order.")
	micros, id, ordered := strings.Cut(cursor, ".")
	if !ordered {
		micros, id = "0", cursor
	}
	if ordered != (order == store.RejectionsByLastSeen) {
		return nil, malformed
	}
	var mark store.RejectionMark
	at, err := strconv.ParseInt(micros, 10, 64)
	if err == nil {
		mark.ID, err = strconv.ParseInt(id, 10, 64)
	}
	if err != nil || at < 0 || at > eventMicrosMax {
		return nil, malformed
	}
	mark.ChangedAt = time.UnixMicro(at)
	return &mark, nil
}

// eventMicrosMax is the end of the year 9999, which the database can still represent.
const eventMicrosMax = 253402300799999999

func rejectionCursor(order store.RejectionOrder, last store.Rejection) string {
	id := strconv.FormatInt(last.ID, 10)
	if order == store.RejectionsByLastSeen {
		return strconv.FormatInt(last.ChangedAt.UnixMicro(), 10) + "." + id
	}
	return id
}
