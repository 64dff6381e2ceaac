package drive

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Strangers makes names with the next tokens that are minted, and with the owners, requests, keys, sequences and versions
// that a Generator draws; they come first in each index. A decision about a name reads rows of that name alone: what reads
// others, too, meets these. Their leases run, or have ended.
func Strangers(ctx context.Context, sql *pgxpool.Pool, running bool) error {
	_, err := sql.Exec(ctx, `
		with strangers as (
			select t, format('a-strangers/%s/%s', case when $1 then 'running' else 'ended' end, t) as name, clock_timestamp() as now
			from fence.tokens s, generate_series(s.last_value - 10, s.last_value + 300) t
		), fences as (
			insert into fence.fences (resource, granted_token, last_token, last_sequence, last_version, open, subtree_token)
			select name, t, t, 1, 1, $1, case when not $1 then t end from strangers on conflict do nothing
		), records as (
			insert into fence.records (resource, key, version, fencing_token, sequence, updated_at, content_type, value)
			select name, k, 1, t, 1, now, 'text/plain', 'v' from strangers, unnest(array['k', 'k/l']) k on conflict do nothing
		)
		insert into fence.leases (lock, fencing_token, lease_id, owner_id, principal, mode, scope, ttl_ms, requested_ttl_ms,
			granted_at, expires_at, request_id, ended_at, end_reason)
		select name, t, gen_random_uuid(), 'A', 'A', 'exclusive',
			case when $1 then 'node' else 'subtree' end, 3600000, 3600000, now, now + '1 hour', 'again-0',
			case when not $1 then now end, case when not $1 then 'released' end
		from strangers on conflict do nothing`, running)
	return err
}
