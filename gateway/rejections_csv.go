package gateway

import (
	"context"
	"net/http"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// rejectionColumns are the columns of the CSV, in the order of rejectionRow.
var rejectionColumns = []string{
	"id", "first_at", "last_at", "count", "resource", "key", "code", "reason", "token", "sequence", "superseded_by",
	"granted_token", "last_token", "last_sequence", "owner_id", "late_ms", "source", "address", "principal", "kind",
}

// exportRejections answers all rejections that match, a few at a time. While a client reads slowly, the gateway keeps
// only their IDs and the database keeps nothing.
func (g *Gateway) exportRejections(w *answerWriter, r *http.Request, page page, query store.RejectionQuery) error {
	if page.Has("limit") || page.Has("cursor") {
		return errCSVPage
	}
	ids, err := g.backend.RejectionIDs(g.work(r), query.RejectionFilter, query.Order)
	if err != nil {
		return err
	}
	return g.answerCSV(w, r, "rejections", rejectionColumns, func(ctx context.Context) ([][]string, error) {
		for len(ids) > 0 {
			part := ids[:min(csvRowsAtOnce, len(ids))]
			ids = ids[len(part):]
			rejections, err := g.backend.RejectionsOf(ctx, part)
			if len(rejections) > 0 || err != nil {
				return convert(rejections, func(r store.Rejection) []string { return rejectionRow(rejectionAnswer(r)) }), err
			}
		}
		return nil, nil
	})
}

func rejectionRow(rejection api.Rejection) []string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	optionalNumber := func(n *int64) string {
		if n == nil {
			return ""
		}
		return number(*n)
	}
	return []string{
		number(rejection.ID), csvTime(rejection.FirstAt), csvTime(rejection.LastAt), number(rejection.Count),
		harmless(rejection.Resource), harmless(rejection.Key), string(rejection.Code), harmless(rejection.Reason),
		optionalNumber(rejection.Token), optionalNumber(rejection.Sequence), optionalNumber(rejection.SupersededBy),
		number(rejection.GrantedToken), number(rejection.LastToken), number(rejection.LastSequence),
		harmless(rejection.OwnerID), optionalNumber(rejection.LateMS), harmless(rejection.Source),
		harmless(rejection.Address), harmless(rejection.Principal), string(rejection.Kind),
	}
}
