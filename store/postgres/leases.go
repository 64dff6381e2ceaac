package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/store"
)

// leaseColumns are the columns of a lease, in the order of leaseRow.dest. They are those of the alias l.
const leaseColumns = `l.lock, l.owner_id, l.lease_id, l.fencing_token, l.mode, l.scope, l.ttl_ms, l.granted_at, l.expires_at,
	l.hold_until, floor(extract(epoch from l.hold_until - clock_timestamp()) * 1000)::bigint, l.session_id, l.waited_ms, l.metadata,
	l.principal`

// leaseRow is a lease as a row that may be missing.
type leaseRow struct {
	lock, owner, mode, scope pgtype.Text
	id, session              pgtype.UUID
	token, ttlMS, waitedMS   pgtype.Int8
	grantedAt, expiresAt     pgtype.Timestamptz
	holdUntil                pgtype.Timestamptz
	holdLeftMS               pgtype.Int8
	metadata                 []byte
	principal                pgtype.Text
}

func (r *leaseRow) dest() []any {
	return []any{
		&r.lock, &r.owner, &r.id, &r.token, &r.mode, &r.scope, &r.ttlMS, &r.grantedAt, &r.expiresAt,
		&r.holdUntil, &r.holdLeftMS, &r.session, &r.waitedMS, &r.metadata, &r.principal,
	}
}

func (r *leaseRow) lease() store.Lease {
	return store.Lease{
		Lock: store.Name(r.lock.String), OwnerID: r.owner.String, ID: r.id.Bytes, Token: r.token.Int64,
		Mode: store.Mode(r.mode.String), Scope: store.Scope(r.scope.String), TTL: milliseconds(r.ttlMS),
		GrantedAt: r.grantedAt.Time, ExpiresAt: r.expiresAt.Time,
		HoldUntil: r.holdUntil.Time, HoldLeft: max(0, milliseconds(r.holdLeftMS)),
		SessionID: r.session.Bytes, Waited: milliseconds(r.waitedMS), Metadata: r.metadata,
		Provider: store.ProviderOf(r.id.Bytes), Principal: r.principal.String,
	}
}

func milliseconds(ms pgtype.Int8) time.Duration { return time.Duration(ms.Int64) * time.Millisecond }

// Acquire tries to take a lock. When it has returned a lease, no write with an older token can commit on that name any
// more (P3), and for a lease of scope Subtree on no name below.
//
// It returns ErrLeaseHeld (a HeldError) where another lease is in the way, also the caller's own: leases are not
// re-entrant; or where others wait for it; ErrLeaseLost (a LostError) if the lease that this RequestID was granted has
// ended, or the session that it would be in; ErrNotFound if there is no such session; ErrInvalid, also for a RequestID
// that was used with other parameters, and for a Wait, for which there is package waitqueue; ErrExternalAuthority;
// ErrLimit where the name is new, and the Principal may make no more fences; ErrUnavailable.
func (s *Store) Acquire(ctx context.Context, request store.AcquireRequest) (store.Lease, error) {
	if request.Wait != 0 {
		return store.Lease{}, fmt.Errorf("%w: a Store does not wait", store.ErrInvalid)
	}
	request, err := request.Check()
	if err != nil {
		return store.Lease{}, err
	}
	acquired, err := s.acquire(ctx, request, uuid.Nil)
	return acquired.Lease, err
}

// sequenceSQL reads the value of the token sequence, after a grant in the same statement.
const sequenceSQL = "coalesce(pg_sequence_last_value('fence.tokens'), 0)"

// acquireColumns are the columns of the answer a to an acquire, in the order of acquireRow.dest. A lease that was granted
// before, to a request that was sent again, is older than the statement. So is its ticket.
const acquireColumns = `a.outcome, (a.lease).end_reason, a.left_ms, a.queue_length, a.ticket, ` + sequenceSQL + `,
	coalesce((a.lease).granted_at < statement_timestamp(), false), ` + leaseColumns

const acquireSQL = "select " + acquireColumns + `
	from fence.acquire_lease(fence.lease_request($1, $2, $3, $4, $5, $6, $7, $8, $9), $10, $11, $12) a,
		lateral (select (a.lease).*) l`

func acquireArgs(r *store.AcquireRequest, gateway uuid.UUID, mayWait bool) []any {
	return []any{
		r.Lock, r.OwnerID, r.Mode, r.Scope, r.TTL.Milliseconds(), orNull(r.SessionID), orNull(r.RequestID),
		orNull(string(r.Metadata)), r.Principal, r.Wait.Milliseconds(), orNull(gateway), mayWait,
	}
}

// acquireRow is the answer to an acquire.
type acquireRow struct {
	outcome                     string
	endReason                   pgtype.Text
	leftMS, queueLength, ticket pgtype.Int8
	sequence                    int64
	replayed                    bool
	lease                       leaseRow
}

func (r *acquireRow) dest() []any {
	return append([]any{
		&r.outcome, &r.endReason, &r.leftMS, &r.queueLength, &r.ticket, &r.sequence, &r.replayed,
	}, r.lease.dest()...)
}

func (r *acquireRow) acquired(lock store.Name) (store.Acquired, error) {
	switch r.outcome {
	case "granted":
		lease := r.lease.lease()
		lease.Replayed = r.replayed
		return store.Acquired{Lease: lease}, nil
	case "queued":
		return store.Acquired{Ticket: r.ticket.Int64, Requeued: r.replayed, Left: leftOf(r.leftMS)}, nil
	case "session_lost":
		return store.Acquired{}, sessionLost(r.endReason.String)
	}
	return store.Acquired{}, notGranted(
		r.outcome, lock, r.lease.lease(), r.endReason.String, milliseconds(r.leftMS), r.queueLength.Int64)
}

// acquire decides a checked request: a try, or, with the ID of a gateway, one that joins the queue.
func (s *Store) acquire(ctx context.Context, request store.AcquireRequest, gateway uuid.UUID) (store.Acquired, error) {
	if isBatched(request) {
		answer, decided, err := s.leases.acquires.do(ctx, queuedRequest{request, gateway})
		if decided || err != nil {
			return answer.value, cmp.Or(err, answer.err)
		}
	}
	return s.sendAcquire(ctx, request, gateway, forAcquires)
}

// sendAcquire is acquire in a statement of its own, which may wait for other transactions.
func (s *Store) sendAcquire(
	ctx context.Context, request store.AcquireRequest, gateway uuid.UUID, purpose purpose,
) (store.Acquired, error) {
	row, err := s.decideAcquire(ctx, onLock(purpose, request.Lock), acquireSQL, acquireArgs(&request, gateway, true))
	if err != nil {
		return store.Acquired{}, err
	}
	return row.acquired(request.Lock)
}

// decideAcquire executes a statement whose row has acquireColumns.
func (s *Store) decideAcquire(ctx context.Context, stmt statement, sql string, args []any) (row acquireRow, err error) {
	newestToken := s.lineage.newestToken.Load()
	err = s.queryRow(ctx, stmt, sql, args, row.dest()...)
	if err == nil && row.outcome == "granted" {
		err = s.minted(ctx, row.sequence, newestToken)
	}
	return row, err
}

// RequestedLease returns the lease that an acquire with this RequestID was granted, with its ID, also if it has ended;
// ErrNotFound if there was none or it is forgotten; or ErrUnavailable.
func (s *Store) RequestedLease(ctx context.Context, lock store.Name, requestID string) (store.Lease, error) {
	const sql = "select " + leaseColumns + " from fence.leases l where l.lock = $1 collate \"POSIX\" and l.request_id = $2"
	var row leaseRow
	if err := s.queryRow(ctx, statement{}, sql, []any{lock, requestID}, row.dest()...); err != nil {
		return store.Lease{}, notFound(err, "no lease on %s was granted for this request", lock)
	}
	return row.lease(), nil
}

// leftOf reads the remaining time of the lease that blocks a waiter; null, and so 0: none is known. The time is 1 ms at
// least: if the lease has expired since, the waiter must ask again.
func leftOf(ms pgtype.Int8) time.Duration {
	if !ms.Valid {
		return 0
	}
	return max(milliseconds(ms), time.Millisecond)
}

var errOwnerRefused = fmt.Errorf("%w: the policy demands an owner_id that is the name of the principal, "+
	"or begins with that and /", store.ErrInvalid)

// notGranted is the error of an outcome of fence.acquire_lease and fence.grant_elsewhere. Held: blocking is the lease in
// the way, which runs for left.
func notGranted(
	outcome string, lock store.Name, blocking store.Lease, endReason string, left time.Duration, queueLength int64,
) error {
	switch outcome {
	case "held":
		return &store.HeldError{
			Lock: lock, OwnerID: blocking.OwnerID, Principal: blocking.Principal, ExpiresAt: blocking.ExpiresAt,
			By: blocking.Lock, Remaining: max(0, left), QueueLength: int(queueLength),
		}
	case "lost":
		return &store.LostError{Lock: lock, Reason: endReason}
	case "request_id_reused":
		return store.ErrRequestIDReused
	case "owner_refused":
		return errOwnerRefused
	case "request_id_changed":
		return fmt.Errorf("%w: request_id was used on this lock with another mode, scope, ttl_ms, session_id, "+
			"or metadata or value: send the same request again, or take another request_id", store.ErrInvalid)
	}
	return fmt.Errorf("an acquire of %s was answered %q", lock, outcome)
}

// Renew makes a live lease last ttl from now, but not longer than its HoldUntil, by the policy in force; 0: the TTL
// that it has. It does not wait for the disk: a crash of the database may make the lease shorter than Renew has
// returned, never longer. It returns ErrLeaseLost (a LostError), also when the lease has expired and nobody has
// replaced it; ErrNotFound if there is no such lock; ErrInvalid, also for a lease in a session; ErrUnavailable.
func (s *Store) Renew(ctx context.Context, ref store.LeaseRef, ttl time.Duration) (store.Lease, error) {
	if err := ref.Check(); err != nil {
		return store.Lease{}, err
	}
	if ttl != 0 {
		if err := store.CheckTTL(ttl); err != nil {
			return store.Lease{}, err
		}
	}
	answer, decided, err := s.leases.renewals.do(ctx, renewal{ref, ttl})
	if !decided && err == nil {
		alone, call := newBatch[renewal, store.Lease](1), &batchedCall[renewal, store.Lease]{request: renewal{ref, ttl}}
		alone.add(ref.Lock, call)
		err = s.renew(ctx, onLock(forRenewals, ref.Lock), alone, true)
		answer = call.answer
	}
	return answer.value, cmp.Or(err, answer.err)
}

// renew renews the leases of a batch; if it may not wait for other transactions, perhaps not all of them.
func (s *Store) renew(ctx context.Context, stmt statement, batch batch[renewal, store.Lease], mayWait bool) error {
	// The setting is an argument of the call, so that it is made whatever is renewed.
	const sql = "select r.lock, r.status, r.late_ms, " + leaseColumns + `
		from set_config('synchronous_commit', 'off', true) s (synchronous_commit),
			lateral fence.renew_leases($1, $2, $3, $4, $5, case when s.synchronous_commit <> '' then $6::boolean end) r,
			lateral (select (r.lease).*) l`
	var refs leaseRefColumns
	var ttls pgtype.FlatArray[*int64]
	for _, call := range batch.calls {
		refs.add(call.request.LeaseRef)
		ttls = append(ttls, orNull(call.request.ttl.Milliseconds()))
	}
	var lock store.Name
	var status string
	var lateMS pgtype.Int8
	var row leaseRow
	dest := append([]any{&lock, &status, &lateMS}, row.dest()...)
	return s.queryAs(ctx, stmt, sql, []any{refs.locks, refs.owners, refs.ids, refs.tokens, ttls, mayWait},
		func(rows pgx.Rows) error {
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			switch status {
			case "live":
				lease := row.lease()
				lease.Late = max(0, milliseconds(lateMS))
				return batch.decide(lock, lease, nil)
			case "in_session":
				return batch.decide(lock, store.Lease{}, errInSession)
			default:
				return batch.decide(lock, store.Lease{}, lost(lock, status, milliseconds(lateMS)))
			}
		})
}

var errInSession = fmt.Errorf("%w: the lease lasts as long as its session: keep that alive", store.ErrInvalid)

// Release ends a lease and closes the fence behind it. Sent twice, it succeeds twice. It returns ErrLeaseLost (a
// LostError) if the lease was broken, or expired and was replaced; ErrNotFound if there is no such lock; ErrInvalid;
// ErrUnavailable.
func (s *Store) Release(ctx context.Context, ref store.LeaseRef) error {
	_, err := s.ReleaseLease(ctx, ref)
	return err
}

// ReleaseLease is Release, and returns the lease that it has ended.
func (s *Store) ReleaseLease(ctx context.Context, ref store.LeaseRef) (store.Released, error) {
	if err := ref.Check(); err != nil {
		return store.Released{}, err
	}
	if answer, decided, err := s.leases.releases.do(ctx, ref); decided || err != nil {
		return answer.value, cmp.Or(err, answer.err)
	}
	const sql = "select status, mode, age_ms from fence.release_lease($1, $2, $3, $4, null, true)"
	var row releaseRow
	if err := s.queryRow(ctx, onLock(forReleases, ref.Lock), sql, refArgs(ref), row.dest()...); err != nil {
		return store.Released{}, err
	}
	return row.released(ref.Lock)
}

// releaseRow is the result of a release.
type releaseRow struct {
	status string
	mode   pgtype.Text
	ageMS  pgtype.Float8
}

func (r *releaseRow) dest() []any { return []any{&r.status, &r.mode, &r.ageMS} }

func (r *releaseRow) released(lock store.Name) (store.Released, error) {
	if r.status != "released" {
		return store.Released{}, lost(lock, r.status, 0)
	}
	age := time.Duration(r.ageMS.Float64 * float64(time.Millisecond))
	return store.Released{Mode: store.Mode(r.mode.String), Age: age}, nil
}

// Break ends the lease on the lock, live or expired, and closes the fence; the reason is kept with the lease.
// It returns the lease that was ended (without its ID), ErrNotFound where nobody may write, ErrInvalid, or
// ErrUnavailable.
func (s *Store) Break(ctx context.Context, lock store.Name, reason string) (store.Lease, error) {
	if err := store.CheckReason(reason); err != nil {
		return store.Lease{}, err
	}
	sql := `select b.outcome, ` + leaseColumns + ` from fence.break($1, $2, ` + actorSQL(3) + `) b, lateral (select (b.lease).*) l`
	var outcome string
	var row leaseRow
	err := s.queryRow(ctx, onLock(forReleases, lock), sql, actorArgs(ctx, lock, reason),
		append([]any{&outcome}, row.dest()...)...)
	if err != nil {
		return store.Lease{}, err
	}
	if outcome != "broken" {
		return store.Lease{}, fmt.Errorf("%w: nobody holds the lock %s", store.ErrNotFound, lock)
	}
	lease := row.lease()
	lease.ID = [16]byte{}
	return lease, nil
}

func refArgs(ref store.LeaseRef) []any { return []any{ref.Lock, ref.OwnerID, ref.ID, ref.Token} }

func lost(lock store.Name, status string, late time.Duration) error {
	if status == "not_found" {
		return fmt.Errorf("%w: there is no lock %s", store.ErrNotFound, lock)
	}
	return &store.LostError{Lock: lock, Reason: status, Late: late}
}

// orNull is nil for a value that is zero. JSON is passed as a string: nil bytes would become the JSON value null.
func orNull[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// CheckOwner returns ErrInvalid if the policy does not let the principal of an acquire use its owner_id, or ErrUnavailable.
// Acquire and GrantElsewhere decide that themselves.
func (s *Store) CheckOwner(ctx context.Context, request store.AcquireRequest) error {
	if request.Principal == "" {
		return nil
	}
	allowed := false
	err := s.queryRow(ctx, statement{purpose: forAcquires},
		"select fence.owner_is_allowed(fence.lease_request($1, $2, $3, $4, null, null, null, null, $5))",
		[]any{request.Lock, request.OwnerID, request.Mode, request.Scope, request.Principal}, &allowed)
	if err == nil && !allowed {
		err = errOwnerRefused
	}
	return err
}

// BeginWatch has the database notify of changes of these locks for the time, from now on, and calls begun with the key
// that stands for each of them on store.ChangesChannel. It returns ErrUnavailable.
func (s *Store) BeginWatch(
	ctx context.Context, locks []store.Name, lasting time.Duration, begun func(lock store.Name, key string),
) error {
	const sql = "select lock, key from fence.begin_watch($1, $2)"
	return s.query(ctx, sql, []any{locks, lasting.Milliseconds()}, func(rows pgx.Rows) error {
		var lock store.Name
		var key uuid.UUID
		if err := rows.Scan(&lock, &key); err != nil {
			return err
		}
		begun(lock, key.String())
		return nil
	})
}

// watchedSQL shows every lock that is asked for, but those that are at another node of a cluster. The sort key is the start of the transaction, which comes before the
// snapshot.
var watchedSQL = fmt.Sprintf(showSQL,
	"select n.name as resource, coalesce(f.granted_token, 0) as granted_token, coalesce(f.open, false) as open, "+
		"0 as sorted from unnest(@locks::text[]) n (name) left join fence.fences f on f.resource = n.name "+
		"where not exists (select from fence.cluster) or not fence.is_elsewhere(n.name)",
	"(extract(epoch from now()) * 1000000)::bigint", leaseColumns, "", "")

// WatchStates reads locks as they are at one moment, without their queues. The version of the states is the time of the
// database, from before that moment. It returns ErrUnavailable.
func (s *Store) WatchStates(ctx context.Context, locks []store.Name) ([]store.WatchState, error) {
	shown, err := readLocks(ctx, s.query, watchedSQL, pgx.NamedArgs{"locks": locks, "queue_max": 0})
	states := make([]store.WatchState, len(shown))
	for i, lock := range shown {
		states[i] = store.WatchState{Lock: lock, Version: lock.SortKey}
	}
	return states, err
}
