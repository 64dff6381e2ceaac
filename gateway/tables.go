package gateway

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) listTables(ctx context.Context, r *http.Request) (any, error) {
	page := readPage(r, "prefix")
	query := store.TableQuery{Prefix: page.prefix, Limit: page.limit}
	query.AfterID, query.AfterName = page.numbered()
	if page.err != nil {
		return nil, page.err
	}
	tables, err := g.backend.Tables(ctx, query)
	next := nextCursor(page, tables, func(last store.ProtectedTable) string { return fmt.Sprint(last.ID, " ", last.Name) })
	return api.Tables{Tables: convert(tables, tableAnswer), NextCursor: next}, err
}

func tableAnswer(table store.ProtectedTable) api.Table {
	answer := api.Table{
		Table: table.Name, Template: table.Template, Mode: table.Mode, ProtectedAt: api.Time{Time: table.ProtectedAt},
		Problem: table.Problem, Rows: table.Rows, Rejections: table.Rejections,
	}
	if table.CheckedAt != nil {
		answer.CheckedAt = &api.Time{Time: *table.CheckedAt}
	}
	return answer
}
