package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) rejectionRoutes(router *mux.Router) {
	g.route(router, "/v1/rejections/summary", methods{"GET": g.answering(g.summarizeRejections)})
	g.route(router, "/v1/rejections/stream", methods{"GET": g.streamRejections})
	g.route(router, "/v1/rejections/{id}", methods{"GET": g.getRejection})
	g.route(router, "/v1/rejections", methods{"GET": g.answering(g.listRejections)})
}

// countWrite counts a write and its verdict, and records a rejection.
func (g *Gateway) countWrite(w *answerWriter, r *http.Request, source string, took time.Duration, err error) {
	g.metrics.Write(source, took, err)
	if rejected, ok := errors.AsType[*store.RejectedError](err); ok {
		g.recorder.Record(rejected, source, g.address(r), recorded(w.principal))
	}
}

func (g *Gateway) listRejections(ctx context.Context, r *http.Request) (_ any, err error) {
	page := readPage(r, append([]string{"sort"}, rejectionFilters...)...)
	query := store.RejectionQuery{
		RejectionFilter: page.rejectionFilter(), Order: store.RejectionOrder(page.Get("sort")), Limit: page.limit,
	}
	query.Within = principalOf(ctx).Within(access.Observe)
	if page.err != nil {
		return nil, page.err
	}
	if query.After, err = rejectionMark(query.Order, page.after); err != nil {
		return nil, err
	}
	rejections, err := g.backend.Rejections(ctx, query)
	next := nextCursor(page, rejections, func(last store.Rejection) string { return rejectionCursor(query.Order, last) })
	return api.Rejections{Rejections: convert(rejections, rejectionAnswer), NextCursor: next}, err
}

func rejectionAnswer(rejection store.Rejection) api.Rejection {
	return api.Rejection{
		ID: rejection.ID, Resource: string(rejection.Resource), Key: string(rejection.Key),
		Code: api.Code(rejection.Verdict), Reason: rejection.Reason, Kind: api.RejectionKind(rejection.Kind()), Token: optional(rejection.Token),
		Sequence: rejection.Sequence, GrantedToken: rejection.GrantedToken, LastToken: rejection.LastToken,
		LastSequence: rejection.LastSequence, SupersededBy: optional(rejection.SupersededBy()),
		OwnerID: rejection.OwnerID, LateMS: optionalMS(rejection.Late), Source: rejection.Source,
		Address: rejection.Address, Principal: rejection.Principal, Count: rejection.Count,
		FirstAt: api.Time{Time: rejection.FirstAt}, LastAt: api.Time{Time: rejection.LastAt},
	}
}

// summarizeRejections counts the rejections that match, and names the owners and resources with the most of them.
func (g *Gateway) summarizeRejections(ctx context.Context, r *http.Request) (any, error) {
	p := readParameters(r, rejectionFilters...)
	filter := p.rejectionFilter()
	filter.Within = principalOf(ctx).Within(access.Observe)
	if p.err != nil {
		return nil, p.err
	}
	summary, err := g.backend.RejectionSummary(ctx, filter)
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

// rejectionFilters are the parameters that select rejections.
var rejectionFilters = []string{
	"resource", "prefix", "key", "code", "reason", "kind", "source", "owner_id", "principal", "since", "until",
}

// rejectionFilter reads rejectionFilters; the store checks the values.
func (p *parameters) rejectionFilter() store.RejectionFilter {
	return store.RejectionFilter{
		Resource: p.name("resource"), Prefix: p.Get("prefix"), Key: p.Get("key"),
		Verdict: store.Verdict(p.Get("code")),
		Reason:  p.Get("reason"), Kind: store.RejectionKind(p.Get("kind")), Source: p.Get("source"), OwnerID: p.Get("owner_id"),
		Principal: p.Get("principal"), Since: p.time("since"), Until: p.time("until"),
	}
}

// rejectionMark reads a cursor of rejectionCursor. It is the ID; in the order of the latest change, the microsecond of
// the change precedes it.
func rejectionMark(order store.RejectionOrder, cursor string) (*store.RejectionMark, error) {
	if cursor == "" {
		return nil, nil //nolint:nilnil // the list begins at its front, and that is no error
	}
	malformed := invalid("cursor must be a next_cursor that the gateway returned for a list in the same order.")
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
