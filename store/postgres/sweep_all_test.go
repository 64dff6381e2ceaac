package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// sweptSQL shows what sweeps change.
const sweptSQL = `
	select concat_ws('; ',
		(select string_agg(concat_ws(' ', l.lock, l.end_reason, l.kept), ', ' order by l.lock, l.fencing_token)
			from fence.leases l),
		(select string_agg(f.resource || ' ' || f.open, ', ' order by f.resource) from fence.fences f),
		(select string_agg(s.settled::text, ', ') from fence.sessions s),
		(select string_agg(concat_ws(' ', r.resource, r.code, r.count), ', ' order by r.resource) from fence.rejections r),
		(select count(*) from fence.expiries) + (select count(*) from fence.reported)
			+ (select count(*) from fence.audit))`

// prepareSweep leaves something to do to the parts of a sweep.
func prepareSweep(t *testing.T, b *testbed) {
	t.Helper()
	for name, steps := range map[store.Name]given{
		"live": {acquire}, "expired": {acquire, expire}, "replaced": {acquire, expire, acquire},
		"in a session": {openSession, inSession(acquire), expireSession}, "forgotten": {acquire, release},
	} {
		b.given(t, name, steps...)
	}
	b.Exec(t, "select fence.try_guard('expired', 1000000)")
	b.Exec(t, "update fence.leases set ended_at = ended_at - interval '11 minutes' where lock = 'forgotten'")
	b.Exec(t, "insert into fence.audit (at, principal, address, action, name, details) values "+
		"(clock_timestamp() - interval '401 days', 'old', '', '', '', '{}')")
}

// TestSweepAll checks that fence.sweep_all does what the sweep of a gateway does, and says so; that it does nothing
// when its time is over; and that it leaves a part to another caller that is doing it.
func TestSweepAll(t *testing.T) {
	t.Parallel()
	byGateway, bySQL := newTestbed(t), newTestbed(t)
	prepareSweep(t, byGateway)
	prepareSweep(t, bySQL)
	before := valueOf[string](t, bySQL, sweptSQL)
	expectSQL(t, bySQL, "11 parts, 11 with more to do",
		"select format('%s parts, %s with more to do', count(*), count(*) filter (where more)) from fence.sweep_all(0)")
	expectSQL(t, bySQL, before, sweptSQL)

	if _, err := newSweeper(t, byGateway.Store, postgres.SweeperConfig{}).Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(t.Context(), bySQL.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.WithoutCancel(t.Context()))
	if _, err := other.Exec(t.Context(), "begin; select from fence.sweeps where part = 'leases' for update"); err != nil {
		t.Fatal(err)
	}
	const done = "select string_agg(part || ' ' || done, ', ' order by part) from fence.sweep_all() where done > 0 or more"
	expectSQL(t, bySQL, "audit 1, expiries 1, reported 1, sessions 1", done)
	if _, err := other.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	expectSQL(t, bySQL, "expiries 1, leases 1", done) // the first sweep has ended the session after it counted expiries
	expectSQL(t, bySQL, valueOf[string](t, byGateway, sweptSQL), sweptSQL)
	if after := valueOf[string](t, bySQL, sweptSQL); after == before {
		t.Errorf("the sweeps changed nothing: %s", after)
	}
}
