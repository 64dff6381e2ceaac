package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store/postgres"
)

const (
	onAccount = `"resource":"accounts/1","table":"public.accounts"`
	onLogs    = `"resource":"logs","table":"public.logs"`
)

// refusedCase is a transaction on tables that must be refused. The token of accounts/1 is the first one.
type refusedCase struct {
	op     string
	code   api.Code
	detail string // a part of the problem
}

// refusedCases are refused as the operation 1 of a transaction.
var refusedCases = []refusedCase{
	// Rows of other resources, whose tokens are among the fences.
	{`"op":"insert",` + onAccount + `,"row":{"id":3}`, api.CodeTokenRequired, `belongs to accounts/3`},
	{`"op":"update",` + onAccount + `,"where":{"id":1},"set":{"id":3}`, api.CodeTokenRequired, `"resource":"accounts/3"`},
	{`"op":"upsert",` + onAccount + `,"row":{"id":2,"balance":0},"conflict":["id"]`, api.CodeTokenRequired, `accounts/2`},
	{`"op":"upsert","resource":"accounts/3","table":"public.accounts","row":{"id":3,"email":"two"},"conflict":["email"]`,
		api.CodeTokenRequired, `accounts/2`},
	{`"op":"update",` + onAccount + `,"where":{"id":1},"set":{"email":"two"}`, api.CodeConstraintViolation,
		`Key (email)=(two) already exists`},
	{`"op":"update",` + onAccount + `,"where":{"id":1},"set":{"owner":"fool"}`, api.CodeConstraintViolation,
		`"sqlstate":"23514","table":"public.accounts","constraint":"no_fools"`},
	{`"op":"insert",` + onAccount + `,"row":{}`, api.CodeConstraintViolation, `"column":"id"`},
	{`"op":"insert","resource":"types/1","table":"public.types","row":{"id":1,"positive":-1}`,
		api.CodeConstraintViolation, `"table":"public.types","constraint":"positive_check"`},
	{`"op":"update",` + onAccount + `,"where":{"id":1},"set":{"parent":404}`, api.CodeConstraintViolation,
		`"constraint":"accounts_parent_fkey"`}, // deferred

	{`"op":"update",` + onAccount + `,"where":{"id":1},"set":{"balance":1},"expect_rows":2`, api.CodeRowsMismatch,
		`"rows":1`},
	{`"op":"update","resource":"logs","table":"public.logs","where":{"line":"old"},"set":{"line":"new"}`,
		api.CodeTooLarge, `10000 rows`},

	// An operation finds no row of another resource, whatever it has.
	{`"op":"update",` + onAccount + `,"where":{"id":2},"set":{"balance":0},"expect_rows":1`, api.CodeRowsMismatch,
		`"rows":0`},
	{`"op":"delete","resource":"logs","table":"public.accounts","where":{"id":2},"expect_rows":1`, api.CodeRowsMismatch,
		`"rows":0`},

	// What is not open looks as if it did not exist.
	{`"op":"insert","resource":"accounts/1","table":"public.nothing","row":{"id":1}`, api.CodeNotFound, "public.nothing"},
	{`"op":"insert","resource":"closed/1","table":"public.closed","row":{"id":1}`, api.CodeNotFound, "is open to"},
	{`"op":"insert","resource":"watched/1","table":"public.watched","row":{"id":1}`, api.CodeNotFound, "is open to"},
	{`"op":"insert","resource":"tampered/1","table":"public.tampered","row":{"id":1}`, api.CodeNotFound, "is open to"},
	{`"op":"insert","resource":"accounts/1","table":"public.unprotected","row":{"id":1}`, api.CodeNotFound, "is open to"},
	{`"op":"delete","resource":"accounts/1","table":"fence.fences","where":{"resource":"a"}`, api.CodeNotFound,
		"is open to"},
	{`"op":"insert","resource":"accounts/1","table":"\"public\".\"accounts\"","row":{"id":1}`, api.CodeNotFound, ""},

	// The rights of a role, and its row-level security.
	{`"op":"insert","resource":"tenants/3","table":"public.tenants","row":{"id":3,"tenant":"b"}`, api.CodeForbidden,
		`row-level security`},
	{`"op":"delete","resource":"tenants/1","table":"public.tenants","where":{"id":1}`, api.CodeForbidden, `denied`},
	{`"op":"update","resource":"tenants/2","table":"public.tenants","where":{"id":2},"set":{"tenant":"a"},` +
		`"expect_rows":1`, api.CodeRowsMismatch, `"rows":0`},

	{`"op":"update",` + onAccount + `,"where":{"id":1},"set":{"nothing":1}`, api.CodeInvalidRequest,
		`no column \"nothing\"`},
	{`"op":"delete",` + onAccount + `,"where":{"ctid":"(0,1)"}`, api.CodeInvalidRequest, `no column`},
	{`"op":"insert",` + onAccount + `,"row":{"id":1},"returning":["id, (select 1)"]`, api.CodeInvalidRequest, `no column`},
	{`"op":"upsert",` + onAccount + `,"row":{"id":1},"conflict":["id) do nothing --"]`, api.CodeInvalidRequest,
		`no column`},
	{`"op":"upsert",` + onAccount + `,"row":{"id":1},"conflict":["owner"]`, api.CodeInvalidRequest, `no unique`},
	{`"op":"insert",` + onAccount + `,"row":{"id":1.0}`, api.CodeInvalidRequest, `bigint`},
	{`"op":"update",` + onAccount + `,"where":{"id":1},"set":{"owner":"a\u0000b"}`, api.CodeInvalidRequest, `NUL`},
	{`"op":"update",` + onAccount + `,"where":{"id":1},"set":{"owner":"\ud800"}`, api.CodeInvalidRequest, ``},
	{`"op":"update","resource":"types/1","table":"public.types","where":{"doc":{}},"set":{"text":""}`,
		api.CodeInvalidRequest, `operator does not exist`},
	{`"op":"insert","resource":"types/1","table":"public.types","row":{"id":1,"twice":2}`, api.CodeInvalidRequest,
		`twice`},
	{`"op":"insert","resource":"types/1","table":"public.types","row":{"id":1,"doc":` + strings.Repeat("[", 9000) +
		strings.Repeat("]", 9000) + `}`, api.CodeInvalidRequest, `stack depth`},
	{`"op":"update",` + onAccount + `,"where":{},"set":{"balance":1}`, api.CodeInvalidRequest, `where must name a column`},
	{`"op":"update",` + onAccount + `,"where":{"id":1},"set":{}`, api.CodeInvalidRequest, `set must name a column`},
	{`"op":"update",` + onAccount + `,"where":{"id":1},"row":{"id":1}`, api.CodeInvalidRequest,
		`update requires set; insert and upsert require row or rows`},
	{`"op":"delete",` + onAccount, api.CodeInvalidRequest, `where must be an object`},
	{`"op":"delete",` + onAccount + `,"where":{"id":1},"key":"k"`, api.CodeInvalidRequest, `key`},
	{`"op":"put",` + onAccount + `,"row":{"id":1}`, api.CodeInvalidRequest, `insert, upsert, update or delete`},
	{`"op":"upsert",` + onAccount + `,"row":{"id":1}`, api.CodeInvalidRequest, `conflict`},
	{`"op":"insert",` + onAccount + `,"row":{"id":1},"expect_rows":-1`, api.CodeInvalidRequest, `expect_rows`},
	{`"op":"put","resource":"accounts/1","key":"l","value":1,"expect_rows":1`, api.CodeInvalidRequest, `go with table`},

	// Many rows in one operation.
	{`"op":"insert","resource":"accounts/3","table":"public.accounts","rows":[{"id":3},{"id":4}]`,
		api.CodeTokenRequired, `A row of public.accounts belongs to accounts/4`},
	{`"op":"upsert",` + onAccount + `,"rows":[{"id":1,"balance":0},{"id":2,"balance":0}],"conflict":["id"]`,
		api.CodeTokenRequired, `accounts/2`},
	{`"op":"insert","resource":"tenants/3","table":"public.tenants","rows":[{"id":3,"tenant":"b"}]`,
		api.CodeForbidden, `row-level security`},
	{`"op":"insert",` + onLogs + `,"rows":[{"id":1000001},{"id":1000002},{"id":1000001}]`, api.CodeConstraintViolation,
		`Key (id)=(1000001) already exists`},
	{`"op":"upsert",` + onLogs + `,"rows":[{"id":1,"line":"new"},{"id":1,"line":"new"}],"conflict":["id"]`,
		api.CodeInvalidRequest, `ops[1]: two rows have the same key`},
	{`"op":"insert",` + onLogs + `,"rows":[{"line":"new"},{"line":"new"}],"expect_rows":3`, api.CodeRowsMismatch, `"rows":2`},
	{`"op":"insert",` + onLogs + `,"rows":[` + strings.Repeat(`{},`, 10_000) + `{}]`, api.CodeTooLarge, `10000 rows`},
	{`"op":"insert",` + onLogs + `,"rows":[{"id":1,"line":"new"},{"id":2}]`, api.CodeInvalidRequest,
		`ops[1]: rows[1] lacks a column of rows[0]`},
	{`"op":"insert",` + onLogs + `,"rows":[{"id":1},{"id":2,"line":"new"}]`, api.CodeInvalidRequest,
		`ops[1]: rows[1] has the column \"line\"`},
	{`"op":"insert",` + onLogs + `,"rows":[{},null]`, api.CodeInvalidRequest, `ops[1]: rows[1] must be an object`},
	{`"op":"insert",` + onLogs + `,"rows":[]`, api.CodeInvalidRequest, `ops[1]: rows is empty`},
	{`"op":"insert",` + onLogs + `,"rows":{"id":1}`, api.CodeInvalidRequest, `ops[1]: rows must be an array`},
	{`"op":"insert",` + onLogs + `,"rows":[{"id":1}],"row":{"id":1}`, api.CodeInvalidRequest, `row and rows`},
	{`"op":"update",` + onLogs + `,"where":{"id":1},"rows":[{"line":"new"}]`, api.CodeInvalidRequest, `update has no rows`},
	{`"op":"put","resource":"accounts/1","key":"l","value":1,"rows":[{}]`, api.CodeInvalidRequest, `go with table`},
}

// A transaction with an operation on a table that is refused changes nothing at all, and its numbers may be used again.
// The rights of a role end with its operation.
func TestRefusedTableOperations(t *testing.T) {
	// Only a superuser may call a function with this setting.
	owned := postgres.Config{DatabaseURL: pgtest.Migrated(t), StatementTimeout: time.Hour}
	h := newTables(t, owned, "accounts/1", "accounts/2", "accounts/3", "types/1", "logs", "closed/1",
		"watched/1", "tampered/1", "tenants/1", "tenants/2", "tenants/3")
	h.openWithRole(t)
	h.exec(t, "alter function fence.write_rows set max_stack_depth = '500kB'")
	h.written(t, `"op":"insert",`+onAccount+`,"row":{"id":1,"balance":10,"email":"one"}`,
		`"op":"insert","resource":"accounts/2","table":"public.accounts","row":{"id":2,"balance":10,"email":"two"}`)
	rows := func() string {
		return strings.Join(h.texts(t, `select t::text from public.accounts t
			union all select t::text from public.tenants t
			union all select count(*)::text from public.types
			union all select count(*)::text from public.tampered
			union all select count(*)::text from public.logs where line = 'new' order by 1`), "\n")
	}
	before := rows()
	h.unchanged(t, func() {
		for _, c := range refusedCases {
			answer := h.transact(t, h.request(t,
				`"op":"update","resource":"tenants/1","table":"public.tenants","where":{"id":1},"set":{"tenant":"a"}`, c.op,
				`"op":"put","resource":"accounts/1","key":"k","value":1`))
			problem := expectProblem(t, answer, c.code)
			if !strings.Contains(string(answer.body), c.detail) {
				t.Errorf("%.200s: answered %s, want %q in it", c.op, answer.body, c.detail)
			}
			deferred := problem.Constraint == "accounts_parent_fkey"
			if op := problem.Op; op != nil && *op != 1 || op == nil != deferred && c.code == api.CodeConstraintViolation {
				t.Errorf("%.200s: the problem is of another operation: %s", c.op, answer.body)
			}
		}
	})
	if after := rows(); after != before {
		t.Errorf("the rows were changed from\n%s\nto\n%s", before, after)
	}
	h.written(t, `"op":"update","resource":"tenants/1","table":"public.tenants","where":{"id":1},"set":{"tenant":"a"}`,
		`"op":"update",`+onAccount+`,"where":{"id":1,"email":"one"},"set":{"balance":20,"parent":2},"expect_rows":1`,
		`"op":"insert","resource":"logs","table":"public.logs","row":{}`)
}

// TestSQLRoles checks that the roles of applications are listed with their names, and that the names of a role do not
// bind the gateway where it writes to a table with the rights of that role.
func TestSQLRoles(t *testing.T) {
	h := newTables(t, patientDatabase(t), "tenants/5")
	expect := func(want string) {
		t.Helper()
		if answer := h.get(t, "/v1/sql-roles"); answer.status != http.StatusOK || string(answer.body) != want+"\n" {
			t.Errorf("answered %d %s, want %s", answer.status, answer.body, want)
		}
	}
	expect(`{"sql_roles":[]}`)
	role := h.texts(t, "select current_database()")[0] + "_app"
	h.exec(t, fmt.Sprintf(`create role %[1]s; grant execute on function fence.guard, fence.all_names to %[1]s;
		grant usage on schema public to %[1]s; grant select, insert on public.tenants to %[1]s;
		create policy all_of_app on public.tenants to %[1]s using (true);
		grant %[1]s to %[2]s; select fence.open_table('public.tenants', '%[1]s')`, role, h.role(t)))
	t.Cleanup(func() {
		if _, err := h.db.Exec(context.Background(), fmt.Sprintf("drop owned by %[1]s; drop role %[1]s", role)); err != nil {
			t.Error(err)
		}
	})
	expect(`{"sql_roles":[{"role":"` + role + `"}]}`)
	h.exec(t, fmt.Sprintf("select fence.allow_names('%[1]s', 'shop/2'), fence.allow_names('%[1]s', 'shop')", role))
	expect(`{"sql_roles":[{"role":"` + role + `","prefixes":["shop","shop/2"]}]}`)

	insert := func(id int) string {
		return fmt.Sprintf(`"op":"insert","resource":"tenants/5","table":"public.tenants","row":{"id":%d}`, id)
	}
	expectProblem(t, h.transact(t, h.request(t, insert(6))), api.CodeTokenRequired)
	h.written(t, insert(5))
}
