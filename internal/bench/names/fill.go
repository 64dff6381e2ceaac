package names

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/bench"
)

// Of so many names one had a lease, and one has a lease that runs.
const (
	leasedOneIn  = 10
	runningOneIn = 200
)

const (
	prefix      = "names/"
	key         = "state"
	contentType = "text/plain"
	valueBytes  = 100
	batch       = 500_000 // names that are made in one transaction
)

// The tables, in the order in which they are made.
var tables = []string{"fences", "records", "leases"}

// fill makes the names from 0 to count-1.
func fill(ctx context.Context, db *pgx.Conn, count int, progress func(string)) error {
	var token int64
	if err := db.QueryRow(ctx, "select nextval('fence.tokens')").Scan(&token); err != nil {
		return fmt.Errorf("take a token: %w", err)
	}
	fence := bench.Fence{Token: token, Key: key, Value: make([]byte, valueBytes), ContentType: contentType}
	for from := 0; from < count; from += batch {
		to := min(from+batch, count) - 1
		if err := bench.MakeFences(ctx, db, prefix, from, to, fence); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, makeLeases, prefix, from, to, token, leasedOneIn, runningOneIn); err != nil {
			return fmt.Errorf("make leases: %w", err)
		}
		progress(fmt.Sprintf("made %d of %d names", to+1, count))
	}
	for _, table := range tables {
		if _, err := db.Exec(ctx, "vacuum (analyze) fence."+table); err != nil {
			return err
		}
	}
	_, err := db.Exec(ctx, "checkpoint")
	return err
}

// makeLeases makes the leases that run, for a day, and those that ended and are kept as the newest of their locks.
const makeLeases = `
	insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at, check_at, ended_at,
		end_reason, kept)
	select $1 || n, $4::bigint, gen_random_uuid(), 'worker-' || n % 100, 86400000, at, at + interval '1 day',
		at + interval '1 day', case when not runs then at end, case when not runs then 'released' end, not runs
	from generate_series($2::integer, $3::integer) n, lateral (select n % $6::integer = 0 as runs) r,
		lateral (select clock_timestamp() - case when runs then interval '0' else interval '2 hours' end as at) t
	where n % $5::integer = 0`
