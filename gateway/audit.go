package gateway

import (
	"context"
	"net/http"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

// asActor returns a context for an action of an administrator: the audit log of the database has whose request it is.
func (g *Gateway) asActor(ctx context.Context, w *answerWriter, r *http.Request) context.Context {
	return store.WithActor(ctx, store.Actor{
		Principal: w.principal.Name, Address: g.address(r), Scoped: !w.principal.May(access.Admin, ""),
	})
}

// listAudit answers a page of the audit log.
func (g *Gateway) listAudit(ctx context.Context, r *http.Request) (any, error) {
	page := readPage(r, "action", "principal", "name", "prefix", "since", "until")
	query := store.AuditQuery{AuditFilter: store.AuditFilter{
		Action: page.Get("action"), Principal: page.Get("principal"), Name: page.name("name"), Prefix: page.prefix,
		Since: page.time("since"), Until: page.time("until"), Within: principalOf(ctx).Within(access.Admin),
	}, Limit: page.limit}
	if page.after != "" {
		before, err := strconv.ParseInt(page.after, 10, 64)
		if err != nil || before < 1 {
			page.fail(errBadCursor)
		}
		query.Before = before
	}
	if page.err != nil {
		return nil, page.err
	}
	entries, err := g.backend.Audit(ctx, query)
	next := nextCursor(page, entries, func(last store.AuditEntry) string { return strconv.FormatInt(last.ID, 10) })
	return api.Audit{Entries: convert(entries, auditAnswer), NextCursor: next}, err
}

func auditAnswer(entry store.AuditEntry) api.AuditEntry {
	return api.AuditEntry{
		ID: entry.ID, At: api.Time{Time: entry.At}, Principal: entry.Principal, Address: entry.Address,
		Action: entry.Action, Name: entry.Name, Details: entry.Details,
	}
}
