package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
)

// A role that is not a member of pg_read_all_stats sees nothing of other roles' transactions and of replication, except
// slots and prepared transactions.
//
// Old versions of a row are kept for snapshots and transactions with an id, of this database and of standbys. Those of
// other databases do not matter, nor do those of a VACUUM, nor a slot's catalog_xmin, which is for system tables.
const (
	databaseStateSQL = `
		select clock_timestamp(), pg_is_in_recovery() or current_setting('transaction_read_only')::boolean,
			current_setting('server_version'), pg_database_size(current_database()),
			a.connections, current_setting('max_connections')::bigint, greatest(a.oldest, interval '0'),
			greatest(a.oldest_snapshot, interval '0', (
				select max(clock_timestamp() - p.prepared) from pg_prepared_xacts p where p.database = current_database())),
			array(select r.xmin::text from pg_replication_slots r where r.xmin is not null) || a.standbys,
			current_setting('synchronous_standby_names') <> '' and current_setting('synchronous_commit') not in ('off', 'local'),
			case when pg_has_role(current_user, 'pg_read_all_stats', 'usage') then (
				select count(*) from pg_stat_replication r where r.state = 'streaming' and r.sync_state in ('sync', 'quorum')) end,
			i.jumps, i.jumped_at,
			c.at, c.locks, c.held, c.leases_of, c.expiring, c.expired, c.overdue_ms * interval '1 millisecond', c.waiting, c.oldest_wait_ms * interval '1 millisecond', c.stuck_ms * interval '1 millisecond', c.sessions, c.newest_token,
			c.tables_enforce, c.tables_observe, c.tables_with_problems,
			coalesce(nullif(w.swept_at, '-infinity'), 'epoch'), r.by_cause, greatest(r.rejections - w.counted, 0),
			case when current_setting('track_functions') <> 'none' then
				coalesce(pg_stat_get_function_calls('fence.guard(text, bigint, bigint, uuid, bytea)'::regprocedure), 0)
				+ coalesce(pg_stat_get_function_calls('fence.count_guard()'::regprocedure), 0) end
		from fence.inventory c, fence.database_identity i, (
			select jsonb_object_agg(concat_ws('/', r.code, r.reason, r.mode), r.rejections) as by_cause,
				sum(r.rejections)::bigint as rejections
			from fence.rejected_by_sql r
		) r, (select * from fence.sweeps s where s.part = 'reported') w, (
			select (select sum(d.numbackends)::bigint from pg_stat_database d) as connections,
				coalesce(max(clock_timestamp() - s.xact_start) filter (where s.pid <> pg_backend_pid() and s.datname = current_database()), interval '0') as oldest,
				max(clock_timestamp() - s.xact_start) filter (where s.pid <> pg_backend_pid() and s.datname = current_database()
					and coalesce(s.backend_xmin, s.backend_xid) is not null
					and s.pid not in (select v.pid from pg_stat_progress_vacuum v)) as oldest_snapshot,
				array_agg(s.backend_xmin::text) filter (where s.backend_type = 'walsender' and s.datid is null
					and s.backend_xmin is not null) as standbys
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
			g.accepted, g.rejected, g.failed, g.durations, g.draining
		from fence.gateway_states g
		order by g.name, g.started_at, g.gateway_id
		limit 1000`
)

// Overview returns the state of the whole installation, or ErrUnavailable.
func (s *Store) Overview(ctx context.Context) (store.Overview, error) {
	var o store.Overview
	var countedAt, jumpedAt pgtype.Timestamptz
	var replicated []string
	var byCause map[string]int64
	d, c := &o.Database, &o.Inventory
	err := s.queryRow(ctx, statement{}, databaseStateSQL, nil,
		&o.At, &d.ReadOnly, &d.Version, &d.SizeBytes, &d.Connections, &d.ConnectionsMax, &d.OldestTransaction,
		&d.OldestSnapshot, &replicated, &d.SynchronousExpected, &d.SynchronousStandbys, &d.Jumps, &jumpedAt,
		&countedAt, &c.Locks, &c.Held, &c.LeasesOf, &c.Expiring, &c.Expired, &c.Overdue, &c.Waiting, &c.OldestWait, &c.Stuck, &c.Sessions, &c.NewestToken,
		&c.TablesEnforce, &c.TablesObserve, &c.TablesWithProblems,
		&d.BySQL.SweptAt, &byCause, &d.BySQL.Unlisted, &d.BySQL.Guards)
	if err != nil {
		return store.Overview{}, err
	}
	c.At, d.JumpedAt, d.BySQL.Rejected = countedAt.Time, jumpedAt.Time, classesOf(byCause)
	d.OldestSnapshot = max(d.OldestSnapshot, s.replicated.oldest(replicated, time.Now()))
	if d.Standbys, err = collect(ctx, s.query, standbysSQL, nil, pgx.RowToStructByPos[store.Standby]); err != nil {
		return store.Overview{}, err
	}
	o.Gateways, err = collect(ctx, s.query, gatewaysSQL, []any{store.SilentAfter}, gatewayState)
	return o, err
}

// classesOf adds up rejections by "code/reason/mode".
func classesOf(byCause map[string]int64) map[store.RejectionClass]int64 {
	classes := map[store.RejectionClass]int64{}
	for cause, rejections := range byCause {
		verdict, rest, _ := strings.Cut(cause, "/")
		reason, mode, _ := strings.Cut(rest, "/")
		of := store.RejectionCause{Verdict: store.Verdict(verdict), Reason: reason}
		classes[store.RejectionClass{Verdict: of.Verdict, Kind: of.Kind(), Observed: mode == "observe"}] += rejections
	}
	return classes
}

// xmins remembers since when slots and standbys have asked for old versions of rows, by the id of the transaction from
// which on. PostgreSQL does not tell the time of an id.
type xmins struct {
	sync.Mutex
	since map[string]time.Time
}

// oldest returns for how long the oldest of ids has been asked for, as far as earlier calls know; 0 for none. Each
// sample of a gateway has an id, so that of a standby without old snapshots grows.
func (x *xmins) oldest(ids []string, now time.Time) (age time.Duration) {
	x.Lock()
	defer x.Unlock()
	since := make(map[string]time.Time, len(ids))
	for _, id := range ids {
		since[id] = now
		if known, seen := x.since[id]; seen {
			since[id] = known
		}
		age = max(age, now.Sub(since[id]))
	}
	x.since = since
	return age
}

func gatewayState(row pgx.CollectableRow) (g store.GatewayState, err error) {
	var took []int64 // a gateway of another version may have other classes
	err = row.Scan(&g.ID, &g.Name, &g.Version, &g.StartedAt, &g.SeenAt, &g.Silent, &g.Ended, &g.Waiting, &g.Streams,
		&g.Queue, &g.ConnectionsBusy, &g.ConnectionsMax, &g.Listening, &g.Accepted, &g.Rejected, &g.Failed, &took, &g.Draining)
	copy(g.Took[:], took)
	return g, err
}

// Recount counts what there is in the database, if that is due: some 2 s after any gateway counted it last, or
// later where counting takes long. Then it looks at protected tables. It returns ErrUnavailable; a count that fails keeps
// others from trying at once.
func (s *Store) Recount(ctx context.Context) (counted bool, err error) {
	begun := time.Now()
	err = s.queryRow(ctx, statement{}, "select fence.recount()", nil, &counted)
	switch {
	case err == nil && counted:
		return true, s.checkTables(ctx)
	case err == nil:
		return false, nil
	}
	// Otherwise, one gateway after the other would try a count that exceeds the statement timeout, without a pause.
	postponed := s.exec(ctx, statement{}, "select fence.postpone_recount($1)", recountEvery*time.Since(begun))
	if postponed != nil {
		return false, err
	}
	return false, fmt.Errorf("count what there is: %w", err)
}

// recountEvery is how much longer than counting the time from one count to the next is, as fence.recount has it.
const recountEvery = 20

// checkTables looks at some of the protected tables. A look at one with thousands of partitions may take longer than
// other statements may; ctx bounds it.
func (s *Store) checkTables(ctx context.Context) error {
	err := s.inTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "set local statement_timeout = 0; set local synchronous_commit = off")
		if err == nil {
			_, err = tx.Exec(ctx, "select fence.check_tables()")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("look at the protected tables: %w", err)
	}
	return nil
}

// KeepSample stores the state of a gateway that was started the time uptime ago, in place of its sample before. It
// returns when that was, by the database's clock, or ErrUnavailable.
func (s *Store) KeepSample(ctx context.Context, state store.GatewayState, uptime time.Duration) (at time.Time, err error) {
	rejected := state.Rejected
	if rejected == nil {
		rejected = map[store.RejectionClass]int64{}
	}
	err = s.queryRow(ctx, statement{},
		"select fence.keep_sample($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
		[]any{
			state.ID, state.Name, state.Version, uptime.Milliseconds(),
			state.Waiting, state.Streams, state.Queue, state.ConnectionsBusy, state.ConnectionsMax, state.Listening,
			state.Accepted, rejected, state.Failed, state.Took[:], state.Draining,
		}, &at)
	return at, err
}

// ForgetGateway notes that a gateway has ended. The sweep deletes its state a minute later. It returns ErrUnavailable.
func (s *Store) ForgetGateway(ctx context.Context, id uuid.UUID) error {
	return s.exec(ctx, statement{}, "select fence.forget_gateway($1)", id)
}

const (
	probeApplication = "fencegate prober"
	closeTimeout     = time.Second

	// probeSQL is the statement by which a Probe commits. pg_stat_activity shows it while the commit waits.
	probeSQL = "select fence.probe()"

	probesSQL = `
		select count(*), coalesce(max(a.wait_event) filter (where a.wait_event = 'SyncRep'),
			max(a.wait_event_type || '/' || a.wait_event), 'nothing')
		from pg_stat_activity a
		where a.query = $1 and a.state = 'active' and a.datname = current_database()`
)

var errReadOnly = errors.New("it is read-only: a standby, or default_transaction_read_only is set")

// probe is a Probe.
type probe struct {
	store *Store
	conn  *pgx.Conn
}

// OpenProbe connects. It returns ErrUnavailable.
func (s *Store) OpenProbe(ctx context.Context) (store.Probe, error) {
	config := s.ConnConfig()
	config.RuntimeParams["application_name"] = probeApplication
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, notConnected(err)
	}
	return &probe{s, conn}, nil
}

// Close is that of a Probe.
func (p *probe) Close() { CloseSoon(p.conn) }

// CloseSoon closes a connection outside the pool, but does not wait long for a database that hangs.
func CloseSoon(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// Commit is that of a Probe; fence.probe is what it commits. ReasonOf returns the kind of its errors; migrations.ErrNewer
// is in one where that is the reason.
func (p *probe) Commit(ctx context.Context) error {
	if err := p.store.judgeAnew(ctx, p.conn); err != nil {
		return probeFailed(err)
	}
	var readOnly bool
	const sql = "select pg_is_in_recovery() or current_setting('transaction_read_only')::boolean"
	if err := p.conn.QueryRow(ctx, sql).Scan(&readOnly); err != nil {
		return probeFailed(err)
	}
	if readOnly {
		return store.NotApplied(errReadOnly)
	}
	if err := migrations.Check(ctx, p.conn); err != nil {
		return probeFailed(err)
	}
	if _, err := p.conn.Exec(ctx, probeSQL); err != nil {
		return probeFailed(err)
	}
	return takeNotReplicated(p.conn.PgConn())
}

// UnderWay is that of a Probe.
func (p *probe) UnderWay(ctx context.Context) (found store.ProbesUnderWay, err error) {
	err = p.conn.QueryRow(ctx, probesSQL, probeSQL).Scan(&found.Count, &found.WaitFor)
	if err != nil {
		return store.ProbesUnderWay{}, store.NotApplied(err)
	}
	return found, nil
}

// probeFailed is classify for a statement without a visible effect.
func probeFailed(err error) error {
	if _, reported := errors.AsType[*pgconn.PgError](err); reported {
		return classify(err)
	}
	return store.NotApplied(err)
}

// RequireConnection returns ErrUnavailable if the pool has no connection and can't make one. An idle connection that
// was cut does not count, and leaves the pool.
func (s *Store) RequireConnection(ctx context.Context) error {
	for s.pool.Stat().AcquiredConns() == 0 {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return store.NotApplied(err)
		}
		err = conn.Ping(ctx)
		conn.Release()
		if err == nil {
			return nil
		}
	}
	return nil
}
