package gateway

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/lockclient/api"
)

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
