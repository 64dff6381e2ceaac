package waitqueue_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestManyWaitsOfOneOwner checks that the search for a cycle reads a queue in which one owner waits a thousand times about
// once, and not once for each of these waits.
func TestManyWaitsOfOneOwner(t *testing.T) {
	t.Parallel()
	s := newRandomWaits(t)
	const waits = 1000
	s.Exec(t, `insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at)
		values ('one', 1, gen_random_uuid(), 'holder', 1000, clock_timestamp(), clock_timestamp() + interval '1 hour')`)
	s.Exec(t, `insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
		select 'one', $1, 'owner', 'exclusive', 'node', 1000, clock_timestamp(), clock_timestamp() + interval '1 hour'
		from generate_series(1, $2)`, crowdGateway, waits)
	s.Exec(t, "vacuum analyze fence.waiters, fence.leases")
	var found, read int64
	err := pgx.BeginFunc(t.Context(), s.SQL, func(tx pgx.Tx) error {
		return errors.Join(
			tx.QueryRow(t.Context(), "select count(*) from fence.find_deadlocks(array[(select max(ticket) from fence.waiters)], true)").
				Scan(&found),
			tx.QueryRow(t.Context(), "select idx_tup_fetch + seq_tup_read from pg_stat_xact_user_tables "+
				"where relid = 'fence.waiters'::regclass").Scan(&read))
	})
	if err != nil {
		t.Fatal(err)
	}
	if found != 0 || read < waits || read > 10*waits {
		t.Errorf("the search found %d cycles and read %d waits, want none, and about %d", found, read, waits)
	}
}
