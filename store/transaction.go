package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
)

// Limits of a transaction.
const (
	WriteTokensMax = 64
	OperationsMax  = 1000
)

// Transaction is one atomic change under one or more claims. Sent again with the same numbered claims and the same
// operations it is a replay, if it is one on each of its fences.
type Transaction struct {
	Claims     []WriteToken // 1 to 64, each resource once
	Operations []ResourceOperation
}

// ResourceOperation is an operation on a record of one of the claimed resources. A transaction has 1 to 1000, each
// record once.
type ResourceOperation struct {
	Resource Name
	Operation
}

// TransactionResult tells the versions that the operations gave, in their order.
type TransactionResult struct {
	Versions []int64
	Replayed bool
}

// placedOperation is an operation and the place of its claim.
type placedOperation struct {
	Operation
	claim int
}

// Transact applies all of a transaction or nothing, in one commit.
//
// It returns a RejectedError for the first claim, or else the first operation, that was refused (an operation on a
// resource that is not claimed is ErrTokenRequired); ErrNotFound where an operation deletes what is not there;
// ErrInvalid; or ErrUnavailable.
func (s *Store) Transact(ctx context.Context, transaction Transaction) (TransactionResult, error) {
	operations, err := transaction.place()
	if err != nil {
		return TransactionResult{}, err
	}
	var claims tokenColumns
	claimed := job{use: useTransactions}
	for i := range transaction.Claims {
		claims.add(&transaction.Claims[i])
		claimed.locks = append(claimed.locks, transaction.Claims[i].Resource)
	}
	var ops operationColumns
	var places []int32
	for i := range operations {
		ops.add(&operations[i].Operation)
		places = append(places, int32(operations[i].claim)+1)
	}

	const sql = `select verdict, coalesce(reason, ''), coalesce(place, 0), of_claim, versions, coalesce(current, 0), coalesce(replayed, false),
			coalesce(granted_token, 0), coalesce(last_token, 0), coalesce(last_sequence, 0)
		from fence.transact($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
	var row verdictRow
	var place int
	var ofClaim pgtype.Bool
	var versions []int64
	err = s.queryRowAs(ctx, claimed, sql,
		[]any{
			claims.resources, claims.tokens, claims.sequences, claims.leaseIDs, digest(transaction.Claims, operations),
			ops.kinds, places, ops.keys, ops.values, ops.contentTypes, ops.expected,
		},
		&row.verdict, &row.reason, &place, &ofClaim, &versions, &row.version, &row.replayed,
		&row.grantedToken, &row.lastToken, &row.lastSequence)
	switch {
	case err != nil:
		return TransactionResult{}, err
	case row.verdict == Admitted:
		return TransactionResult{Versions: versions, Replayed: row.replayed}, nil
	}
	return TransactionResult{}, row.refusal(transaction, place-1, ofClaim.Bool)
}

// refusal is the error of the claim or operation at place.
func (r *verdictRow) refusal(transaction Transaction, place int, ofClaim bool) error {
	if ofClaim {
		return r.result(&Write{WriteToken: transaction.Claims[place]}).Err
	}
	op := transaction.Operations[place]
	err := r.result(&Write{WriteToken: transaction.claim(op.Resource), Operation: op.Operation}).Err
	var rejected *RejectedError
	if errors.As(err, &rejected) {
		rejected.Op = &place
	}
	return err
}

// place checks the transaction and finds the claim of every operation.
func (t Transaction) place() ([]placedOperation, error) {
	if len(t.Claims) < 1 || len(t.Claims) > WriteTokensMax {
		return nil, fmt.Errorf("%w: there are %d fences, a transaction has 1 to %d", ErrInvalid, len(t.Claims), WriteTokensMax)
	}
	if len(t.Operations) < 1 || len(t.Operations) > OperationsMax {
		return nil, fmt.Errorf("%w: there are %d ops, a transaction has 1 to %d", ErrInvalid, len(t.Operations), OperationsMax)
	}
	claimOf := map[Name]int{}
	for i, claim := range t.Claims {
		if err := claim.check(); err != nil {
			return nil, fmt.Errorf("fences[%d]: %w", i, err)
		}
		if _, twice := claimOf[claim.Resource]; twice {
			return nil, fmt.Errorf("%w: fences[%d]: resource %s is there twice", ErrInvalid, i, claim.Resource)
		}
		claimOf[claim.Resource] = i
	}

	type record struct{ resource, key Name }
	seen := map[record]bool{}
	placed := make([]placedOperation, len(t.Operations))
	for i, op := range t.Operations {
		if err := op.check(); err != nil {
			return nil, fmt.Errorf("ops[%d]: %w", i, err)
		}
		claim, claimed := claimOf[op.Resource]
		if !claimed {
			return nil, &RejectedError{Verdict: VerdictTokenRequired, Resource: op.Resource, Key: op.Key, Op: &i}
		}
		if seen[record{op.Resource, op.Key}] {
			return nil, fmt.Errorf("%w: ops[%d]: record %s of %s is changed twice", ErrInvalid, i, op.Key, op.Resource)
		}
		seen[record{op.Resource, op.Key}] = true
		placed[i] = placedOperation{op.Operation, claim}
	}
	return placed, nil
}

func (t Transaction) claim(resource Name) WriteToken {
	for _, claim := range t.Claims {
		if claim.Resource == resource {
			return claim
		}
	}
	return WriteToken{Resource: resource}
}
