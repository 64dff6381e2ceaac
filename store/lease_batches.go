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

// isBatched reports whether an acquire may be in a batch: those for a subtree, or in a session, concern others.
func isBatched(r AcquireRequest) bool { return r.Scope == Node && r.SessionID == uuid.Nil }

// leaseRefColumns are the arguments of statements about leases.
type leaseRefColumns struct {
	locks, owners []string
	// ids is of a type that pgx encodes as it is. A uuid.UUID it would print and parse: it is a driver.Valuer.
	ids    pgtype.FlatArray[pgtype.UUID]
	tokens []int64
}

func (c *leaseRefColumns) add(ref LeaseRef) {
	c.locks, c.owners = append(c.locks, string(ref.Lock)), append(c.owners, ref.OwnerID)
	c.ids = append(c.ids, pgtype.UUID{Bytes: ref.ID, Valid: true})
	c.tokens = append(c.tokens, ref.Token)
}

func (s *Store) execAcquires(ctx context.Context, batch batch[AcquireRequest, Lease]) error {
	const (
		columns = "select " + sequenceSQL + ", " + leaseColumns
		sql     = columns + " from fence.acquire_leases($1, $2, $3, $4, $5, $6, $7) l"
		sqlOne  = columns + " from fence.acquire_one($1, $2, $3, $4, $5, $6, $7) l"
	)
	var locks, owners, principals, modes []string
	var ttls []int64
	var requestIDs, metadata pgtype.FlatArray[*string]
	for _, call := range batch.calls {
		r := &call.request
		locks, owners = append(locks, string(r.Lock)), append(owners, r.OwnerID)
		principals, modes = append(principals, r.Principal), append(modes, string(r.Mode))
		ttls = append(ttls, r.TTL.Milliseconds())
		requestIDs, metadata = append(requestIDs, orNull(r.RequestID)), append(metadata, orNull(string(r.Metadata)))
	}
	text, args := sql, []any{locks, owners, principals, modes, ttls, requestIDs, metadata}
	if len(batch.calls) == 1 {
		text = sqlOne
		args = []any{locks[0], owners[0], principals[0], modes[0], ttls[0], requestIDs[0], metadata[0]}
	}
	newestToken := s.lineage.newestToken.Load()
	var sequence int64 // 0: nothing was granted
	var row leaseRow
	dest := append([]any{&sequence}, row.dest()...)
	err := s.queryAs(ctx, statement{purpose: forAcquires, bounded: true}, text, args, func(rows pgx.Rows) error {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		lease := row.lease()
		batch.byLock[lease.Lock].decide(lease)
		return nil
	})
	if err == nil && sequence > 0 {
		err = s.minted(ctx, sequence, newestToken)
	}
	return err
}

func (s *Store) execRenewals(ctx context.Context, batch batch[renewal, Lease]) error {
	// The setting is an argument of the call, so that it is made whatever is renewed.
	const sql = "select r.late_ms, " + leaseColumns + `
		from set_config('synchronous_commit', 'off', true) s (synchronous_commit),
			lateral fence.renew_leases($1, $2, $3, $4, case when s.synchronous_commit <> '' then $5::integer[] end) r,
			lateral (select (r.lease).*) l`
	var refs leaseRefColumns
	var ttls pgtype.FlatArray[*int64]
	for _, call := range batch.calls {
		refs.add(call.request.LeaseRef)
		ttls = append(ttls, orNull(call.request.ttl.Milliseconds()))
	}
	var lateMS pgtype.Int8
	var row leaseRow
	dest := append([]any{&lateMS}, row.dest()...)
	return s.queryAs(ctx, statement{purpose: forRenewals, bounded: true}, sql,
		[]any{refs.locks, refs.owners, refs.ids, refs.tokens, ttls},
		func(rows pgx.Rows) error {
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			lease := row.lease()
			lease.Late = max(0, milliseconds(lateMS))
			batch.byLock[lease.Lock].decide(lease)
			return nil
		})
}

func (s *Store) execReleases(ctx context.Context, batch batch[LeaseRef, Released]) error {
	const (
		sql    = "select lock, 'released', mode, age_ms from fence.release_leases($1, $2, $3, $4)"
		sqlOne = "select lock, 'released', mode, age_ms from fence.release_one($1, $2, $3, $4)"
	)
	var refs leaseRefColumns
	for _, call := range batch.calls {
		refs.add(call.request)
	}
	text, args := sql, []any{refs.locks, refs.owners, refs.ids, refs.tokens}
	if len(batch.calls) == 1 {
		text, args = sqlOne, refArgs(batch.calls[0].request)
	}
	var lock Name
	var row releaseRow
	dest := append([]any{&lock}, row.dest()...)
	return s.queryAs(ctx, statement{purpose: forReleases, bounded: true}, text, args, func(rows pgx.Rows) error {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		released, err := row.released(lock)
		batch.byLock[lock].decide(released)
		return err
	})
}
