package checks_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// soundRows makes leases that run, are shared, for a subtree, or were released; records that were written twice, by the
// token of a subtree, and by an external token whose fence was set back; and a fence without a grant.
const soundRows = `
	do $$
	declare
		v_lease record;
	begin
		perform setval('fence.tokens', 10);
		perform fence.acquire(n, 'w') from unnest(array['job/1', 'job/2', 'job/3']) n;
		perform fence.acquire('expired', 'w', 100), fence.acquire('shared', 'w', mode => 'shared');
		v_lease := fence.acquire('tree', 'w', scope => 'subtree');
		perform fence.write_one(r, v_lease.fencing_token, 1, null, '\x01', 'put', 'k', '\x01', 'text/plain', null, null)
		from unnest(array['tree', 'tree/below']) r;
		v_lease := fence.acquire('released', 'w');
		perform fence.release('released', 'w', v_lease.lease_id, v_lease.fencing_token);
		perform fence.write_one(r, (select granted_token from fence.fences f where f.resource = r), s, null,
			decode(to_hex(15 + s), 'hex'), 'put', 'k', '\x01', 'text/plain', null, null)
		from unnest(array['job/1', 'job/2']) r, generate_series(1, 2) s;
		insert into fence.policies (prefix, authority) values ('etcd', 'external');
		perform fence.write_one('etcd/job', 500, 1, null, '\x01', 'put', 'k', '\x01', 'text/plain', null, null),
			fence.set_fence('etcd/job', 5, 0), fence.lock_fence('unused');
	end $$;`

// TestCheckRows breaks the rows of a sound database in one way after the other. Each is found, and nothing else.
func TestCheckRows(t *testing.T) {
	t.Parallel()
	for _, broken := range []struct{ sql, want string }{
		{"select 1", ""},
		{"select setval('fence.tokens', 3)", "error tokens_behind: fence.tokens continues after 3, and token "},
		// A pending jump leads past the clock, and past the sequence.
		{`update fence.database_identity set timeline = 7;
			update fence.fences set granted_token = 60000000000000 where resource = 'unused'`, ""},
		{`update fence.database_identity set timeline = 7; select setval('fence.tokens', 1000000000000000);
			update fence.fences set granted_token = 1000000000000005 where resource = 'unused'`, ""},
		{`update fence.database_identity set timeline = 7;
			update fence.fences set granted_token = 9007199254740991 where resource = 'unused'`,
			"error tokens_behind: fence.tokens continues after "},
		{"update fence.fences set granted_token = 1 where resource = 'job/1'", "error fence_behind_lease: job/1 token "},
		{"update fence.fences set granted_token = 1 where resource = 'released'", "error fence_behind_lease: released token "},
		{"delete from fence.fences where resource = 'shared'", "error fence_behind_lease: shared token "},
		{"update fence.fences set subtree_token = null", "error fence_behind_lease: tree token "},
		{"update fence.fences set subtree_token = 1 where resource = 'tree'", "error fence_behind_lease: tree token "},
		{"delete from fence.leases where lock = 'expired'", "error fence_open: expired token "},
		{"update fence.fences set open = true where resource = 'released'", "error fence_open: released token "},
		{"update fence.fences set open = true where resource = 'shared'", "error fence_open: shared token "},
		{"update fence.leases set ended_at = now(), end_reason = 'broken' where lock = 'job/3'", "error fence_open: job/3 token "},
		{"update fence.leases set ended_at = now(), end_reason = 'expired' where lock = 'expired'", ""},
		{`update fence.leases set ended_at = now(), end_reason = 'released' where lock = 'tree';
			update fence.fences set open = false where resource = 'tree'`, "error fence_open: tree/below token "},
		{"update fence.leases set scope = 'node' where lock = 'tree'", "error fence_open: tree token "},
		{"delete from fence.leases where lock = 'tree'", "error fence_open: tree token "},
		{"update fence.leases set ended_at = expires_at + interval '1 microsecond' where lock = 'released'",
			"error lease_end: released token "},
		{"update fence.leases set ended_at = null where lock = 'released'", "error lease_end: released token "},
		{"update fence.leases set end_reason = null where lock = 'released'", "error lease_end: released token "},
		{"update fence.fences set last_version = 1 where resource = 'job/2'", "error fence_behind_record: job/2 record k has version 2 "},
		{"update fence.fences set last_token = 1 where resource = 'job/2'", "error fence_behind_record: job/2 record k has version 2 "},
		{"delete from fence.fences where resource = 'etcd/job'", "error fence_behind_record: etcd/job record k has version 1 "},
		{"update fence.leases set granted_at = now() + interval '1 hour', expires_at = 'infinity' where lock = 'job/1'", "warning clock_behind: clock is at "},
	} {
		conn, err := pgx.Connect(t.Context(), postgres.Migrated(t))
		check(t, err)
		_, err = conn.Exec(await.Context(t), soundRows+broken.sql)
		check(t, err)
		found, err := checks.Run(await.Context(t), conn, checks.OfRows)
		check(t, err)
		check(t, conn.Close(await.Context(t)))
		var unsound []string
		for _, f := range found {
			if f.State != checks.OK {
				unsound = append(unsound, string(f.Severity)+" "+f.Check+": "+f.Subject+" "+f.Detail)
			}
		}
		if len(found) == 0 || found[len(found)-1].Check != "rows" {
			t.Errorf("%s: what was read is not shown", broken.sql)
		}
		text := strings.Join(unsound, "\n")
		if broken.want == "" && text != "" || !strings.HasPrefix(text, broken.want) {
			t.Errorf("%s: check found %q, want %q", broken.sql, text, broken.want)
		}
	}
}
