package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// leaseBatches decide the acquires, renewals and releases of many callers together, where nothing of a lock concerns
// others. They wait for no lock of another session. So renewals, which need not reach the disk, have batches of their
// own, and everything else about leases is decided by a statement for each.
type leaseBatches struct {
	acquires batcher[AcquireRequest, Lease]
	renewals batcher[renewal, Lease]
	releases batcher[LeaseRef, Released]
}

// renewal is the request of Store.Renew.
type renewal struct {
	LeaseRef
	ttl time.Duration
}

func newLeaseBatches(s *Store) *leaseBatches {
	timeout := s.config.StatementTimeout + batchAnswerGrace
	return &leaseBatches{
		acquires: batcher[AcquireRequest, Lease]{
			lockOf: func(r AcquireRequest) Name { return r.Lock }, timeout: timeout, exec: s.execAcquires,
		},
		renewals: batcher[renewal, Lease]{
			lockOf: func(r renewal) Name { return r.Lock }, timeout: timeout, exec: s.execRenewals,
		},
		releases: batcher[LeaseRef, Released]{
			lockOf: func(r LeaseRef) Name { return r.Lock }, timeout: timeout, exec: s.execReleases,
		},
	}
}

// batched reports whether an acquire may be in a batch: those for a subtree, or in a session, concern others.
func (r AcquireRequest) batched() bool {
	return r.Scope == Node && r.SessionID == uuid.Nil
}

// leaseRefColumns are the arguments of statements about leases.
type leaseRefColumns struct {
	locks, owners []string
	ids           []uuid.UUID
	tokens        []int64
}

func (c *leaseRefColumns) add(ref LeaseRef) {
	c.locks, c.owners = append(c.locks, string(ref.Lock)), append(c.owners, ref.OwnerID)
	c.ids, c.tokens = append(c.ids, ref.ID), append(c.tokens, ref.Token)
}

// callsByLock are the calls of a batch, which has one for each lock.
func callsByLock[Q, A any](batch []*batchedCall[Q, A], lockOf func(Q) Name) map[Name]*batchedCall[Q, A] {
	calls := make(map[Name]*batchedCall[Q, A], len(batch))
	for _, call := range batch {
		calls[lockOf(call.request)] = call
	}
	return calls
}

func (s *Store) execAcquires(ctx context.Context, batch []*batchedCall[AcquireRequest, Lease]) error {
	const (
		columns = "select " + sequenceSQL + ", " + leaseColumns
		sql     = columns + " from fence.acquire_leases($1, $2, $3, $4, $5, $6, $7) l"
		sqlOne  = columns + " from fence.acquire_one($1, $2, $3, $4, $5, $6, $7) l"
	)
	var locks, owners, principals, modes []string
	var ttls []int64
	var requestIDs, metadata []*string
	for _, call := range batch {
		r := &call.request
		locks, owners = append(locks, string(r.Lock)), append(owners, r.OwnerID)
		principals, modes = append(principals, r.Principal), append(modes, string(r.Mode))
		ttls = append(ttls, r.TTL.Milliseconds())
		requestIDs, metadata = append(requestIDs, orNull(r.RequestID)), append(metadata, orNull(string(r.Metadata)))
	}
	statement, args := sql, []any{locks, owners, principals, modes, ttls, requestIDs, metadata}
	if len(batch) == 1 {
		statement = sqlOne
		args = []any{locks[0], owners[0], principals[0], modes[0], ttls[0], requestIDs[0], metadata[0]}
	}
	calls := callsByLock(batch, s.leases.acquires.lockOf)
	newestToken := s.lineage.newestToken.Load()
	var sequence int64 // 0: nothing was granted
	err := s.queryAs(ctx, job{use: useAcquires}, statement, args, func(rows pgx.Rows) error {
		var row leaseRow
		if err := rows.Scan(append([]any{&sequence}, row.dest()...)...); err != nil {
			return err
		}
		lease := row.lease()
		calls[lease.Lock].decide(lease)
		return nil
	})
	if err == nil && sequence > 0 {
		err = s.minted(ctx, sequence, newestToken)
	}
	return err
}

func (s *Store) execRenewals(ctx context.Context, batch []*batchedCall[renewal, Lease]) error {
	// The setting is an argument of the call, so that it is made whatever is renewed.
	const sql = "select r.late_ms, " + leaseColumns + `
		from set_config('synchronous_commit', 'off', true) s (synchronous_commit),
			lateral fence.renew_leases($1, $2, $3, $4, case when s.synchronous_commit <> '' then $5::integer[] end) r,
			lateral (select (r.lease).*) l`
	var refs leaseRefColumns
	var ttls []*int64
	for _, call := range batch {
		refs.add(call.request.LeaseRef)
		ttls = append(ttls, orNull(call.request.ttl.Milliseconds()))
	}
	calls := callsByLock(batch, s.leases.renewals.lockOf)
	return s.queryAs(ctx, job{use: useRenewals}, sql, []any{refs.locks, refs.owners, refs.ids, refs.tokens, ttls},
		func(rows pgx.Rows) error {
			var lateMS pgtype.Int8
			var row leaseRow
			if err := rows.Scan(append([]any{&lateMS}, row.dest()...)...); err != nil {
				return err
			}
			lease := row.lease()
			lease.Late = max(0, milliseconds(lateMS))
			calls[lease.Lock].decide(lease)
			return nil
		})
}

func (s *Store) execReleases(ctx context.Context, batch []*batchedCall[LeaseRef, Released]) error {
	const (
		sql    = "select lock, 'released', mode, age_ms from fence.release_leases($1, $2, $3, $4)"
		sqlOne = "select lock, 'released', mode, age_ms from fence.release_one($1, $2, $3, $4)"
	)
	var refs leaseRefColumns
	for _, call := range batch {
		refs.add(call.request)
	}
	statement, args := sql, []any{refs.locks, refs.owners, refs.ids, refs.tokens}
	if len(batch) == 1 {
		statement, args = sqlOne, batch[0].request.args()
	}
	calls := callsByLock(batch, s.leases.releases.lockOf)
	return s.queryAs(ctx, job{use: useReleases}, statement, args, func(rows pgx.Rows) error {
		var lock Name
		var row releaseRow
		if err := rows.Scan(append([]any{&lock}, row.dest()...)...); err != nil {
			return err
		}
		released, err := row.released(lock)
		calls[lock].decide(released)
		return err
	})
}
