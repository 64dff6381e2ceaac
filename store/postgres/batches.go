package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/store"
)

const (
	// batchCallsMax bounds the calls of one batch.
	batchCallsMax = 128
	// batchSlashesMax bounds the slashes in the names of a batch, and so the tree locks that it takes: the lock table
	// of a server with default settings holds some thousands of locks, for all. A single name has fewer.
	batchSlashesMax = 512
	// secondBatchCalls is how many calls justify a second batch beside one in flight. A batch has a fixed cost of about
	// ten calls.
	secondBatchCalls = 16
	// batchAnswerGrace is how long after the statement timeout the answer to a batch may come: the timeout does not
	// bound a commit that waits for a standby.
	batchAnswerGrace = 5 * time.Second
)

// batcher decides calls about locks together: those that come while a batch is in flight are in the next one. No timer
// delays a call. A batch has one call for each lock; what exec does not decide, the caller sends alone.
type batcher[Q, A any] struct {
	lockOf  func(Q) store.Name
	timeout time.Duration // of a batch
	// exec decides calls in one statement, and notes the answers to those that it has decided. With an error, none is.
	exec func(context.Context, batch[Q, A]) error

	mu            sync.Mutex
	waiting       []*batchedCall[Q, A]
	inFlight      int // batches
	callsInFlight int
}

// batch is the calls of one statement, in the order of their arrival. There is one for each lock.
type batch[Q, A any] struct {
	calls  []*batchedCall[Q, A]
	byLock map[store.Name]*batchedCall[Q, A]
}

func newBatch[Q, A any](room int) batch[Q, A] {
	return batch[Q, A]{make([]*batchedCall[Q, A], 0, room), make(map[store.Name]*batchedCall[Q, A], room)}
}

func (b *batch[Q, A]) add(lock store.Name, call *batchedCall[Q, A]) {
	b.calls = append(b.calls, call)
	b.byLock[lock] = call
}

// batchedCall is one call. batcher.mu guards sent; the rest belongs to the batch until done is closed.
type batchedCall[Q, A any] struct {
	ctx     context.Context
	request Q
	answer  answer[A]
	decided bool
	err     error
	sent    bool
	done    chan struct{}
}

// answer is what the database decided about one call: a value, or why there is none.
type answer[A any] struct {
	value A
	err   error
}

// decide answers the call for a lock. It returns an error if there is none.
func (b *batch[Q, A]) decide(lock store.Name, value A, err error) error {
	call := b.byLock[lock]
	if call == nil {
		return fmt.Errorf("the database answers for the lock %q, which is not in the batch", lock)
	}
	call.answer, call.decided = answer[A]{value, err}, true
	return nil
}

// do returns the answer to a request; decided is false where it has to be sent alone. It returns ErrUnavailable if the
// batch failed, or if ctx ended before it was answered.
func (b *batcher[Q, A]) do(ctx context.Context, request Q) (decision answer[A], decided bool, err error) {
	call := &batchedCall[Q, A]{ctx: ctx, request: request, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, call)
	taken := b.take()
	b.mu.Unlock()
	if len(taken.calls) > 0 {
		go b.run(taken)
	}
	select {
	case <-call.done:
		return call.answer, call.decided, call.err
	case <-ctx.Done():
		return decision, false, b.leave(call)
	}
}

// leave withdraws a call whose caller leaves, unless it was sent.
func (b *batcher[Q, A]) leave(call *batchedCall[Q, A]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if call.sent {
		return store.MayBeApplied(context.Cause(call.ctx))
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(c *batchedCall[Q, A]) bool { return c == call })
	return store.NotApplied(context.Cause(call.ctx))
}

// take returns the next batch, or one without calls where none may be started. A second call for a lock is answered
// undecided: it would have to wait for the first. The caller has locked mu.
func (b *batcher[Q, A]) take() batch[Q, A] {
	worthwhile := b.inFlight == 0 || b.inFlight == 1 && len(b.waiting) >= max(secondBatchCalls, b.callsInFlight/2)
	if len(b.waiting) == 0 || !worthwhile {
		return batch[Q, A]{}
	}
	room := min(len(b.waiting), batchCallsMax)
	next := newBatch[Q, A](room)
	taken, slashes := 0, 0
	for _, call := range b.waiting {
		lock := b.lockOf(call.request)
		slashes += strings.Count(string(lock), "/")
		if len(next.calls) == batchCallsMax || slashes > batchSlashesMax {
			break
		}
		taken++
		call.sent = true
		if _, another := next.byLock[lock]; another {
			close(call.done)
			continue
		}
		next.add(lock, call)
	}
	b.waiting = slices.Delete(b.waiting, 0, taken)
	b.inFlight++
	b.callsInFlight += len(next.calls)
	return next
}

// run decides a batch, and then those that came meanwhile, until there are none.
func (b *batcher[Q, A]) run(taken batch[Q, A]) {
	for len(taken.calls) > 0 {
		b.decide(taken)
		b.mu.Lock()
		b.inFlight--
		b.callsInFlight -= len(taken.calls)
		taken = b.take()
		b.mu.Unlock()
	}
}

// decide executes a batch and answers its calls. If the database refused the statement, nothing was decided: each call
// is sent alone, and the one at fault gets the error.
func (b *batcher[Q, A]) decide(taken batch[Q, A]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(taken.calls[0].ctx), b.timeout)
	defer cancel()
	err := b.exec(ctx, taken)
	for _, call := range taken.calls {
		if err != nil { // what is in its rows was not committed
			call.answer, call.decided = answer[A]{}, false
		}
		if store.OutcomeOf(err) != "" {
			call.err = err
		}
		close(call.done)
	}
}

// leaseBatches decide the acquires, renewals and releases of many callers together. They wait for no lock of another
// session: a call that would have to is sent alone. Each kind has batches of its own: renewals need not reach the disk.
type leaseBatches struct {
	acquires batcher[queuedRequest, store.Acquired]
	renewals batcher[renewal, store.Lease]
	releases batcher[store.LeaseRef, store.Released]
}

// queuedRequest is an acquire, of the gateway that it waits at, if it does.
type queuedRequest struct {
	store.AcquireRequest
	gateway uuid.UUID
}

// renewal is the request of Store.Renew.
type renewal struct {
	store.LeaseRef
	ttl time.Duration
}

func newLeaseBatches(s *Store) *leaseBatches {
	timeout := s.config.StatementTimeout + batchAnswerGrace
	return &leaseBatches{
		acquires: batcher[queuedRequest, store.Acquired]{
			lockOf: func(r queuedRequest) store.Name { return r.Lock }, timeout: timeout, exec: s.execAcquires,
		},
		renewals: batcher[renewal, store.Lease]{
			lockOf: func(r renewal) store.Name { return r.Lock }, timeout: timeout, exec: s.execRenewals,
		},
		releases: batcher[store.LeaseRef, store.Released]{
			lockOf: func(r store.LeaseRef) store.Name { return r.Lock }, timeout: timeout, exec: s.execReleases,
		},
	}
}

// isBatched reports whether an acquire may be in a batch: those for a subtree, or in a session, concern others.
func isBatched(r store.AcquireRequest) bool { return r.Scope == store.Node && r.SessionID == uuid.Nil }

// leaseRefColumns are the arguments of statements about leases.
type leaseRefColumns struct {
	locks, owners []string
	// ids is of a type that pgx encodes as it is. A uuid.UUID it would print and parse: it is a driver.Valuer.
	ids    pgtype.FlatArray[pgtype.UUID]
	tokens []int64
}

func (c *leaseRefColumns) add(ref store.LeaseRef) {
	c.locks, c.owners = append(c.locks, string(ref.Lock)), append(c.owners, ref.OwnerID)
	c.ids = append(c.ids, pgtype.UUID{Bytes: ref.ID, Valid: true})
	c.tokens = append(c.tokens, ref.Token)
}

func (s *Store) execAcquires(ctx context.Context, batch batch[queuedRequest, store.Acquired]) error {
	const sql = "select a.lock, " + acquireColumns + ` from fence.acquire_leases($1, $2, $3, $4, $5, $6, $7, $8, $9) a,
		lateral (select (a.lease).*) l`
	var locks, owners, principals, modes []string
	var ttls, waits []int64
	var requestIDs, metadata pgtype.FlatArray[*string]
	var gateways pgtype.FlatArray[pgtype.UUID]
	for _, call := range batch.calls {
		r := &call.request
		locks, owners = append(locks, string(r.Lock)), append(owners, r.OwnerID)
		principals, modes = append(principals, r.Principal), append(modes, string(r.Mode))
		ttls, waits = append(ttls, r.TTL.Milliseconds()), append(waits, r.Wait.Milliseconds())
		requestIDs, metadata = append(requestIDs, orNull(r.RequestID)), append(metadata, orNull(string(r.Metadata)))
		gateways = append(gateways, pgtype.UUID{Bytes: r.gateway, Valid: r.gateway != uuid.Nil})
	}
	text, args := sql, []any{locks, owners, principals, modes, ttls, requestIDs, metadata, waits, gateways}
	var lock store.Name
	var row acquireRow
	dest := append([]any{&lock}, row.dest()...)
	if len(batch.calls) == 1 {
		lone := &batch.calls[0].request
		lock, text, args, dest = lone.Lock, acquireSQL, acquireArgs(&lone.AcquireRequest, lone.gateway, false), row.dest()
	}
	newestToken := s.lineage.newestToken.Load()
	var sequence int64 // 0: nothing was granted
	err := s.queryAs(ctx, statement{purpose: forAcquires, bounded: true}, text, args, func(rows pgx.Rows) error {
		if err := rows.Scan(dest...); err != nil || row.outcome == "undecided" {
			return err
		}
		if row.outcome == "granted" {
			sequence = row.sequence
		}
		acquired, err := row.acquired(lock)
		return batch.decide(lock, acquired, err)
	})
	if err == nil && sequence > 0 {
		err = s.minted(ctx, sequence, newestToken)
	}
	return err
}

func (s *Store) execRenewals(ctx context.Context, batch batch[renewal, store.Lease]) error {
	return s.renew(ctx, statement{purpose: forRenewals, bounded: true}, batch, false)
}

func (s *Store) execReleases(ctx context.Context, batch batch[store.LeaseRef, store.Released]) error {
	const (
		sql    = "select lock, status, mode, age_ms from fence.release_leases($1, $2, $3, $4)"
		sqlOne = "select $1, status, mode, age_ms from fence.release_lease($1, $2, $3, $4, null, false)"
	)
	var refs leaseRefColumns
	for _, call := range batch.calls {
		refs.add(call.request)
	}
	text, args := sql, []any{refs.locks, refs.owners, refs.ids, refs.tokens}
	if len(batch.calls) == 1 {
		text, args = sqlOne, refArgs(batch.calls[0].request)
	}
	var lock store.Name
	var row releaseRow
	dest := append([]any{&lock}, row.dest()...)
	return s.queryAs(ctx, statement{purpose: forReleases, bounded: true}, text, args, func(rows pgx.Rows) error {
		if err := rows.Scan(dest...); err != nil || row.status == "undecided" {
			return err
		}
		released, err := row.released(lock)
		return batch.decide(lock, released, err)
	})
}
