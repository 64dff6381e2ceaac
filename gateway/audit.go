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
	return store.WithActor(ctx, store.Actor{Principal: w.principal.Name, Address: g.address(r)})
}

// listAudit answers a page of the audit log as JSON, or all entries that match as CSV.
func (g *Gateway) listAudit(w *answerWriter, r *http.Request) error {
	page := readPage(r, "action", "principal", "name", "prefix", "since", "until", "format")
	query := store.AuditQuery{AuditFilter: store.AuditFilter{
		Action: page.Get("action"), Principal: page.Get("principal"), Name: page.name("name"), Prefix: page.prefix,
		Since: page.time("since"), Until: page.time("until"), Within: w.principal.Within(access.Admin),
	}, Limit: page.limit}
	if page.after != "" {
		before, err := strconv.ParseInt(page.after, 10, 64)
		if err != nil || before < 1 {
			page.fail(errBadCursor)
		}
		query.Before = before
	}
	csv := page.wantsCSV(r)
	if page.err != nil {
		return page.err
	}
	w.Header().Set("Vary", "Accept")
	if csv {
		return g.exportAudit(w, r, page, query)
	}
	return g.answering(func(ctx context.Context, _ *http.Request) (any, error) {
		entries, err := g.backend.Audit(ctx, query)
		next := nextCursor(page, entries, func(last store.AuditEntry) string { return strconv.FormatInt(last.ID, 10) })
		return api.Audit{Entries: convert(entries, auditAnswer), NextCursor: next}, err
	})(w, r)
}

func auditAnswer(entry store.AuditEntry) api.AuditEntry {
	return api.AuditEntry{
		ID: entry.ID, At: api.Time{Time: entry.At}, Principal: entry.Principal, Address: entry.Address,
		Action: entry.Action, Name: entry.Name, Details: entry.Details,
	}
}

// auditColumns are the columns of the CSV, in the order of auditRow.
var auditColumns = []string{"id", "at", "principal", "address", "action", "name", "details"}

func auditRow(entry store.AuditEntry) []string {
	return []string{
		strconv.FormatInt(entry.ID, 10), csvTime(api.Time{Time: entry.At}), harmless(entry.Principal),
		harmless(entry.Address), entry.Action, harmless(entry.Name), string(entry.Details),
	}
}

func (g *Gateway) exportAudit(w *answerWriter, r *http.Request, page page, query store.AuditQuery) error {
	if page.Has("limit") || page.Has("cursor") {
		return errCSVPage
	}
	query.Limit = csvRowsAtOnce
	return g.answerCSV(w, r, "audit", auditColumns, func(ctx context.Context) ([][]string, error) {
		entries, err := g.backend.Audit(ctx, query)
		if len(entries) > 0 {
			query.Before = entries[len(entries)-1].ID
		}
		return convert(entries, auditRow), err
	})
}
