package terraform

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fencegate/fencegate/store"
)

const (
	// StateKey is the key of the record that is the state.
	StateKey store.Name = "state"

	versionsPrefix = "history/"
	contentType    = "application/json"
)

// VersionsLimit is the most versions of a state that may be kept.
const VersionsLimit = store.PageMax

// Service keeps records, and shows locks and renews leases, wherever they are kept.
type Service interface {
	Lock(context.Context, store.Name) (store.Lock, error)
	Renew(ctx context.Context, ref store.LeaseRef, ttl time.Duration) (store.Lease, error)
	RequestedLease(ctx context.Context, lock store.Name, requestID string) (store.Lease, error)
	Fence(context.Context, store.Name) (store.Fence, error)
	Records(context.Context, store.RecordQuery) ([]store.Record, error)
	DurableRecord(ctx context.Context, resource, key store.Name) (store.Record, error)
	Transact(context.Context, store.Transaction) (store.TransactionResult, error)
}

// States keeps states, and VersionsMax versions of each.
type States struct {
	Service     Service
	VersionsMax int // 1 to VersionsLimit
}

// State is a state as Terraform sends it.
type State struct {
	body   []byte
	serial int64
}

// ParseState reads a state, which OpenTofu may have encrypted but for its serial. It returns store.ErrInvalid.
func ParseState(body []byte) (State, error) {
	var state struct {
		Serial *int64 `json:"serial"`
	}
	if err := json.Unmarshal(body, &state); err != nil {
		return State{}, fmt.Errorf("%w: the body is not a state: %w", store.ErrInvalid, err)
	}
	if state.Serial == nil || *state.Serial < 0 || *state.Serial > store.SequenceMax {
		return State{}, fmt.Errorf("%w: the body is not a state: its serial must be 0 to 2^53-1", store.ErrInvalid)
	}
	return State{body, *state.Serial}, nil
}

// Writer is who writes a state: a principal with the ID of a lock.
type Writer struct {
	State     store.Name
	LockID    string
	Principal string // that has locked the state; see store.AcquireRequest
}

// Written is a write that was admitted.
type Written struct {
	Version, Sequence int64
	Lease             store.LeaseRef // of the lock
	Replayed          bool
}

// Put stores a state, and as a version of it. It returns a RejectedError: of store.ErrTokenRequired without an ID of a
// lock, of store.ErrLeaseMismatch for an ID that is unknown or another principal's, and else as the rule judges the
// lease's token. Other errors are those of Store.
func (s States) Put(ctx context.Context, writer Writer, state State) (Written, error) {
	lease, err := s.Lease(ctx, writer)
	if err != nil {
		return Written{}, err
	}
	versions, err := s.Versions(ctx, writer.State)
	if err != nil {
		return Written{}, err
	}
	put := store.Operation{Kind: store.Put, Value: state.body, ContentType: contentType}
	current, version := put, put
	current.Key, version.Key = StateKey, s.versionKey(versions, lease.Token, state.serial)
	return s.write(ctx, lease, state.serial, current, version)
}

// Size returns the size of a state in bytes, 0 if there is none. It returns store.ErrUnavailable.
func (s States) Size(ctx context.Context, state store.Name) (int64, error) {
	records, err := s.Service.Records(ctx, store.RecordQuery{Resource: state, Prefix: string(StateKey), Limit: 1})
	if err != nil || len(records) == 0 || records[0].Key != StateKey {
		return 0, err
	}
	return records[0].Size, nil
}

// Delete deletes a state and keeps its versions. It returns the errors of Put, and store.ErrNotFound.
func (s States) Delete(ctx context.Context, writer Writer) (Written, error) {
	lease, err := s.Lease(ctx, writer)
	if err != nil {
		return Written{}, err
	}
	fence, err := s.Service.Fence(ctx, writer.State)
	if err != nil {
		return Written{}, err
	}
	var sequence int64
	if fence.LastToken == lease.Token {
		sequence = fence.LastSequence + 1
	}
	return s.write(ctx, lease, sequence, store.Operation{Kind: store.Delete, Key: StateKey})
}

// Lease returns the lease that the writer's lock has or had.
func (s States) Lease(ctx context.Context, writer Writer) (store.Lease, error) {
	rejected := &store.RejectedError{Verdict: store.VerdictTokenRequired, Resource: writer.State, Key: StateKey}
	if writer.LockID == "" {
		return store.Lease{}, rejected
	}
	lease, err := s.Service.RequestedLease(ctx, writer.State, writer.LockID)
	if errors.Is(err, store.ErrNotFound) || err == nil && lease.Principal != writer.Principal {
		rejected.Verdict = store.VerdictLeaseMismatch
		return store.Lease{}, rejected
	}
	return lease, err
}

// write applies operations under the lease. Sent again, the same ones are a replay.
func (s States) write(
	ctx context.Context, lease store.Lease, sequence int64, operations ...store.Operation,
) (Written, error) {
	token := store.WriteToken{Resource: lease.Lock, Token: lease.Token, Sequence: &sequence, LeaseID: &lease.ID}
	transaction := store.Transaction{Tokens: []store.WriteToken{token}}
	for _, operation := range operations {
		transaction.Operations = append(transaction.Operations,
			store.ResourceOperation{Resource: lease.Lock, Operation: operation})
	}
	result, err := s.Service.Transact(ctx, transaction)
	if err != nil {
		return Written{}, err
	}
	return Written{result.Versions[0], sequence, lease.Ref(), result.Replayed}, nil
}
