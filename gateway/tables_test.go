package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// protectTables makes and protects tables, with a problem each but for the first two, and has SQL reject writes.
func protectTables(t *testing.T, h *harness) {
	t.Helper()
	for _, sql := range []string{
		`create table accounts (id bigint primary key); insert into accounts select generate_series(1, 300)`,
		`analyze accounts`,
		`select fence.protect('accounts', 'accounts/{id}')`,
		`create schema "Odd one"; create table "Odd one"."<b>.t" (id text)`,
		`select fence.protect('"Odd one"."<b>.t"', 'odd', 'observe')`,
		`insert into "Odd one"."<b>.t" values ('x'), ('y')`,
		`create table gone (id bigint); select fence.protect('gone', 'gone/{id}')`,
		`create table parts (id bigint) partition by range (id); select fence.protect('parts', 'parts/{id}')`,
		`create table parts_1 partition of parts for values from (1) to (10)`,
		`create table renamed (id bigint); select fence.protect('renamed', 'renamed/{id}')`,
		`alter table renamed rename id to no`,
		`create table tampered (id bigint); select fence.protect('tampered', 'tampered/{id}')`,
		`create or replace trigger fencegate_delete after delete on tampered for each row when (false)
			execute function fence.check_6_delete(); alter table tampered enable always trigger fencegate_delete`,
		`drop table gone; select fence.sweep('reported', '0', 1000, '0', 0)`,
	} {
		for part := range strings.SplitSeq(sql, "; ") {
			h.exec(t, part)
		}
	}
	if _, err := h.db.Exec(t.Context(), "insert into accounts values (301)"); err == nil {
		t.Fatal("a row was inserted into a protected table without a token")
	}
}

// Protected tables are listed with their problems and rejections, also while users alter them. The metrics count them.
func TestProtectedTables(t *testing.T) {
	h := newHarness(t, Config{})
	protectTables(t, h)
	gone := fmt.Sprint(h.count(t, "select table_id::oid::bigint from fence.protected_tables where template = 'gone/{id}'"))
	alter, err := h.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = alter.Rollback(t.Context()) }()
	if _, err := alter.Exec(t.Context(), "lock table accounts, parts, parts_1 in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	const unseen = "select count(*) from fence.protected_tables where checked_at = '-infinity'"
	for h.recount(t); h.count(t, unseen) > 0; { // a look stops after 100 ms
		h.recount(t)
	}
	rows := func(page api.Tables) (texts []string, next string) {
		for _, table := range page.Tables {
			texts = append(texts, fmt.Sprintf("%s %s %s %v %d %s", table.Table, table.Template, table.Mode,
				value(table.Rows), table.Rejections, table.Problem))
		}
		return texts, page.NextCursor
	}
	odd := "Odd one.<b>.t odd observe <nil> 1 "
	expectList(t, h.client, "/v1/tables", strings.Join([]string{
		gone + " gone/{id} enforce <nil> 0 public.gone was dropped: call fence.protect for a new table of that name, " +
			"or fence.unprotect(" + gone + ")", odd,
		"public.accounts accounts/{id} enforce 300 0 ",
		"public.parts parts/{id} enforce <nil> 0 trigger fencegate_truncate on public.parts_1 is missing",
		"public.renamed renamed/{id} enforce <nil> 0 the table public.renamed has no column 'id'",
		"public.tampered tampered/{id} enforce <nil> 0 trigger fencegate_delete on public.tampered has another definition",
	}, ","), rows)
	expectList(t, h.client, "/v1/tables?prefix=Odd", odd, rows)

	key := url.QueryEscape("Odd one.<b>.t")
	found := h.rejections(t, "?source=sql&code=token_required&key="+key).Rejections
	if len(found) != 1 || found[0].Key != "Odd one.<b>.t" || found[0].Resource != "odd" || found[0].Source != "sql" {
		t.Errorf("the rejections of the table are %+v, want one of the resource odd", found)
	}
	if other := h.rejections(t, "?key=public.accounts").Rejections; len(other) != 0 {
		t.Errorf("the rejections of another table are %+v, want none", other)
	}
	as[api.Rejections](t, h.get(t, "/v1/rejections?code=truncate"), http.StatusOK)
	changes := h.open(t, "/v1/rejections/stream?key="+key)
	h.exec(t, `insert into "Odd one"."<b>.t" values ('z')`)
	h.exec(t, "select fence.sweep('reported', '0', 1000, '0', 0)")
	if changed := changes.nextRejection(t); changed.Count != 2 {
		t.Errorf("the stream of the table's rejections has the count %d, want 2", changed.Count)
	}

	h.get(t, overviewPath)
	metrics, _ := h.scrape(t)
	metrics.want(t, []wanted{
		{3, "fencegate_sql_rejections_total", "code token_required"},
		{0, "fencegate_sql_rejections_total", "code token_reused"},
		{0, "fencegate_sql_rejections_total", "code truncate"},
		{5, "fencegate_protected_tables", "mode enforce"}, {1, "fencegate_protected_tables", "mode observe"},
		{4, "fencegate_protected_tables_with_problems", ""},
	})
}
