package gateway

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/callfile"
	"github.com/fencegate/fencegate/store"
)

// recorded is a Service whose calls that grant, end and write are recorded, with their answers.
type recorded struct {
	Service
	calls *callfile.Recorder
}

func (s recorded) Acquire(ctx context.Context, request *store.AcquireRequest, lease *store.Lease) error {
	call := s.calls.Begin(request.Lock)
	err := s.Service.Acquire(ctx, request, lease)
	call.Acquired(request, *lease, err)
	return err
}

func (s recorded) Renew(ctx context.Context, ref store.LeaseRef, ttl time.Duration) (store.Lease, error) {
	call := s.calls.Begin(ref.Lock)
	lease, err := s.Service.Renew(ctx, ref, ttl)
	call.Renewed(ref, ttl, lease, err)
	return lease, err
}

func (s recorded) ReleaseLease(ctx context.Context, ref store.LeaseRef) (store.Released, error) {
	call := s.calls.Begin(ref.Lock)
	released, err := s.Service.ReleaseLease(ctx, ref)
	call.Released(ref, err)
	return released, err
}

func (s recorded) Break(ctx context.Context, lock store.Name, reason string) (store.Lease, error) {
	call := s.calls.Begin(lock)
	lease, err := s.Service.Break(ctx, lock, reason)
	call.Broken(lock, lease, err)
	return lease, err
}

func (s recorded) EndSession(ctx context.Context, id uuid.UUID) (int64, error) {
	call := s.calls.Begin("")
	leases, err := s.Service.EndSession(ctx, id)
	call.SessionEnded(id, err)
	return leases, err
}

func (s recorded) Commit(ctx context.Context, write store.Write) (store.Result, error) {
	call := s.calls.Begin(write.Resource)
	result, err := s.Service.Commit(ctx, write)
	call.Wrote(write, result, err)
	return result, err
}

func (s recorded) Submit(ctx context.Context, write store.Write, done func(store.Result, error)) {
	call := s.calls.Begin(write.Resource)
	s.Service.Submit(ctx, write, func(result store.Result, err error) {
		call.Wrote(write, result, err)
		done(result, err)
	})
}

func (s recorded) Transact(ctx context.Context, transaction store.Transaction) (store.TransactionResult, error) {
	var first store.Name
	if len(transaction.Tokens) > 0 {
		first = transaction.Tokens[0].Resource
	}
	call := s.calls.Begin(first)
	result, err := s.Service.Transact(ctx, transaction)
	call.Transacted(transaction, result, err)
	return result, err
}
