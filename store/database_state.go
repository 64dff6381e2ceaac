package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Overview is how all of it is.
type Overview struct {
	// At is the database's clock.
	At        time.Time
	Inventory Inventory
	Database  DatabaseState
	// Gateways are in the order of their names, including those that were silent for up to a day, or have just ended.
	Gateways []GatewayState
}

// DatabaseState is how the database is.
type DatabaseState struct {
	// ReadOnly: a standby, or default_transaction_read_only is set. Nothing can be written.
	ReadOnly  bool
	Version   string
	SizeBytes int64
	// Connections and ConnectionsMax are those of the whole server.
	Connections, ConnectionsMax int64
	// OldestTransaction is how long the oldest transaction lasts, as far as the role may see others'.
	OldestTransaction time.Duration
	// SynchronousExpected: a commit waits for standbys.
	SynchronousExpected bool
	// SynchronousStandbys is how many there are to wait for; nil where the role may not see it.
	SynchronousStandbys *int64
	Standbys            []Standby
	// Jumps is how often the tokens jumped past those of a database that was lost.
	Jumps    int64
	JumpedAt time.Time // zero: never
	// RejectedBySQL counts the rejections by SQL, those among them whose transaction was rolled back. After a crash of the
	// server a count may be up to 32 too high.
	RejectedBySQL map[Verdict]int64
}

// Standby is one that follows the database.
type Standby struct {
	Name, State, SyncState string
	// LagBytes are those that it has not replayed yet; nil where that is not known.
	LagBytes *int64
}

// A role that is not a member of pg_read_all_stats sees nothing of other roles' transactions and of replication.
const (
	databaseStateSQL = `
		select clock_timestamp(), pg_is_in_recovery() or current_setting('transaction_read_only')::boolean,
			current_setting('server_version'), pg_database_size(current_database()),
			a.connections, current_setting('max_connections')::bigint, greatest(a.oldest, interval '0'),
			current_setting('synchronous_standby_names') <> '' and current_setting('synchronous_commit') not in ('off', 'local'),
			case when pg_has_role(current_user, 'pg_read_all_stats', 'usage') then (
				select count(*) from pg_stat_replication r where r.state = 'streaming' and r.sync_state in ('sync', 'quorum')) end,
			i.jumps, i.jumped_at,
			c.at, c.locks, c.held, c.leases_of, c.expiring, c.expired, c.waiting, c.oldest_wait_ms * interval '1 millisecond', c.stuck_ms * interval '1 millisecond', c.sessions, c.newest_token,
			c.tables_enforce, c.tables_observe, c.tables_with_problems,
			(select jsonb_object_agg(r.code, r.rejections) from fence.rejected_by_sql() r)
		from fence.inventory c, fence.database_identity i, (
			select (select sum(d.numbackends)::bigint from pg_stat_database d) as connections,
				coalesce(max(clock_timestamp() - s.xact_start) filter (where s.pid <> pg_backend_pid() and s.datname = current_database()), interval '0') as oldest
			from pg_stat_activity s
		) a`

	// The fields of a Standby.
	standbysSQL = `
		select coalesce(r.application_name, ''), coalesce(r.state, ''), coalesce(r.sync_state, ''),
			pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end, r.replay_lsn)::bigint
		from pg_stat_replication r
		where r.state is distinct from 'backup'
		order by r.application_name, r.pid
		limit 100`

	gatewaysSQL = `
		select g.gateway_id, g.name, g.version, g.started_at, g.seen_at, g.seen_at < clock_timestamp() - $1::interval,
			g.ended, g.waiting, g.streams, g.queue, g.connections_busy, g.connections_max, g.listening,
			g.accepted, g.rejected, g.failed, g.durations
		from fence.gateway_states g
		order by g.name, g.started_at, g.gateway_id
		limit 1000`
)

// Overview returns how all of it is. It returns ErrUnavailable.
func (s *Store) Overview(ctx context.Context) (Overview, error) {
	var o Overview
	var countedAt, jumpedAt pgtype.Timestamptz
	d, c := &o.Database, &o.Inventory
	err := s.queryRow(ctx, statement{}, databaseStateSQL, nil,
		&o.At, &d.ReadOnly, &d.Version, &d.SizeBytes, &d.Connections, &d.ConnectionsMax, &d.OldestTransaction,
		&d.SynchronousExpected, &d.SynchronousStandbys, &d.Jumps, &jumpedAt,
		&countedAt, &c.Locks, &c.Held, &c.LeasesOf, &c.Expiring, &c.Expired, &c.Waiting, &c.OldestWait, &c.Stuck, &c.Sessions, &c.NewestToken,
		&c.TablesEnforce, &c.TablesObserve, &c.TablesWithProblems, &d.RejectedBySQL)
	if err != nil {
		return Overview{}, err
	}
	c.At, d.JumpedAt = countedAt.Time, jumpedAt.Time
	if d.Standbys, err = collect(ctx, s.query, standbysSQL, nil, pgx.RowToStructByPos[Standby]); err != nil {
		return Overview{}, err
	}
	o.Gateways, err = collect(ctx, s.query, gatewaysSQL, []any{SilentAfter}, gatewayState)
	return o, err
}

func gatewayState(row pgx.CollectableRow) (g GatewayState, err error) {
	var took []int64 // a gateway of another version may have other classes
	err = row.Scan(&g.ID, &g.Name, &g.Version, &g.StartedAt, &g.SeenAt, &g.Silent, &g.Ended, &g.Waiting, &g.Streams,
		&g.Queue, &g.ConnectionsBusy, &g.ConnectionsMax, &g.Listening, &g.Accepted, &g.Rejected, &g.Failed, &took)
	copy(g.Took[:], took)
	return g, err
}
