package admin

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// listAudit answers a page of the audit log.
func (e *Endpoints) listAudit(ctx context.Context, r *http.Request) (any, error) {
	page := endpoint.ReadPage(r, "action", "principal", "name", "prefix", "since", "until")
	query := store.AuditQuery{AuditFilter: store.AuditFilter{
		Action: page.Get("action"), Principal: page.Get("principal"), Name: page.Name("name"), Prefix: page.Prefix,
		Since: page.Time("since"), Until: page.Time("until"), Within: endpoint.PrincipalOf(ctx).Within(access.Admin),
	}, Limit: page.Limit}
	if page.After != "" {
		before, err := strconv.ParseInt(page.After, 10, 64)
		if err != nil || before < 1 {
			page.Fail(endpoint.ErrBadCursor)
		}
		query.Before = before
	}
	if page.Err != nil {
		return nil, page.Err
	}
	entries, err := e.service.Audit(ctx, query)
	next := endpoint.NextCursor(page, entries, func(last store.AuditEntry) string {
		return strconv.FormatInt(last.ID, 10)
	})
	return api.Audit{Entries: endpoint.Convert(entries, auditAnswer), NextCursor: next}, err
}

func auditAnswer(entry store.AuditEntry) api.AuditEntry {
	return api.AuditEntry{
		ID: entry.ID, At: api.Time{Time: entry.At}, Principal: entry.Principal, Address: entry.Address,
		Action: entry.Action, Name: entry.Name, Details: entry.Details,
	}
}

// listSeals answers a page of the seals of the audit log. Their entries are the texts that they have the hashes of.
func (e *Endpoints) listSeals(ctx context.Context, r *http.Request) (any, error) {
	parameters := endpoint.ReadParameters(r, "after")
	after := parameters.Integer("after", 0, math.MaxInt, 0)
	if after < 0 {
		parameters.Fail(endpoint.Invalid("after must not be negative."))
	}
	if parameters.Err != nil {
		return nil, parameters.Err
	}
	seals, unsealed, err := e.service.AuditSeals(ctx, int64(after))
	return api.AuditSeals{
		Seals: endpoint.Convert(seals, sealAnswer), More: len(seals) == store.AuditSealsMax, Unsealed: unsealed,
	}, err
}

func sealAnswer(seal store.AuditSeal) api.AuditSeal {
	return api.AuditSeal{
		Seal: seal.Seal, AtUS: seal.AtUS, Previous: seal.Previous, Hash: seal.Hash,
		Entries: endpoint.Convert(seal.Entries, func(entry store.SealedEntry) api.SealedEntry {
			return api.SealedEntry(entry)
		}),
	}
}

func (e *Endpoints) listTables(ctx context.Context, r *http.Request) (any, error) {
	page := endpoint.ReadPage(r, "prefix")
	query := store.TableQuery{Prefix: page.Prefix, Limit: page.Limit}
	query.AfterID, query.AfterName = page.Numbered()
	if page.Err != nil {
		return nil, page.Err
	}
	tables, err := e.service.Tables(ctx, query)
	next := endpoint.NextCursor(page, tables, func(last store.ProtectedTable) string {
		return fmt.Sprint(last.ID, " ", last.Name)
	})
	return api.Tables{Tables: endpoint.Convert(tables, tableAnswer), NextCursor: next}, err
}

func tableAnswer(table store.ProtectedTable) api.Table {
	answer := api.Table{
		Table: table.Name, Template: table.Template, Mode: table.Mode, Inserts: table.Inserts,
		ProtectedAt: api.Time{Time: table.ProtectedAt}, Problem: table.Problem, Rows: table.Rows, Rejections: table.Rejections,
	}
	if table.CheckedAt != nil {
		answer.CheckedAt = &api.Time{Time: *table.CheckedAt}
	}
	return answer
}

func (e *Endpoints) listSQLRoles(ctx context.Context, r *http.Request) (any, error) {
	if _, err := endpoint.Query(r); err != nil {
		return nil, err
	}
	roles, err := e.service.SQLRoles(ctx)
	return api.SQLRoles{SQLRoles: endpoint.Convert(roles, func(role store.SQLRole) api.SQLRole {
		return api.SQLRole{Role: role.Name, Prefixes: role.Prefixes}
	})}, err
}
