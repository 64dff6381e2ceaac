package admin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

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
