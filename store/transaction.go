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

// Transaction is one atomic change under one or more tokens. Sent again with the same numbered tokens and the same
// operations it is a replay, if it is one on each of its fences.
type Transaction struct {
	Tokens     []WriteToken // 1 to 64, each resource once
	Operations []ResourceOperation
}

// ResourceOperation is an operation on a record of one of the resources of the tokens. A transaction has 1 to 1000,
// each record once.
type ResourceOperation struct {
	Resource Name
	Operation
}

// TransactionResult has the versions that the operations gave, in their order.
type TransactionResult struct {
	Versions []int64
	Replayed bool
}

// Transact applies all of a transaction or nothing, in one commit.
//
// It returns a RejectedError for the first token, or else the first operation, that was refused (an operation on a
// resource without a token is ErrTokenRequired); ErrNotFound where an operation deletes what is not there;
// ErrInvalid; or ErrUnavailable.
func (s *Store) Transact(ctx context.Context, transaction Transaction) (TransactionResult, error) {
	ofTokens, err := transaction.check()
	if err != nil {
		return TransactionResult{}, err
	}
	var tokens tokenColumns
	of := job{use: useTransactions}
	for i := range transaction.Tokens {
		tokens.add(&transaction.Tokens[i])
		of.locks = append(of.locks, transaction.Tokens[i].Resource)
	}
	var ops operationColumns
	for i := range transaction.Operations {
		ops.add(&transaction.Operations[i].Operation)
	}

	const sql = `select verdict, coalesce(reason, ''), coalesce(index, 0), of_token, versions, coalesce(current, 0), coalesce(replayed, false),
			coalesce(granted_token, 0), coalesce(last_token, 0), coalesce(last_sequence, 0)
		from fence.transact($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
	var row verdictRow
	var index int
	var ofToken pgtype.Bool
	var versions []int64
	err = s.queryRow(ctx, of, sql,
		[]any{
			tokens.resources, tokens.tokens, tokens.sequences, tokens.leaseIDs, digest(transaction.Operations),
			ops.kinds, ofTokens, ops.keys, ops.values, ops.contentTypes, ops.expected,
		},
		&row.verdict, &row.reason, &index, &ofToken, &versions, &row.version, &row.replayed,
		&row.grantedToken, &row.lastToken, &row.lastSequence)
	switch {
	case err != nil:
		return TransactionResult{}, err
	case row.verdict == Admitted:
		return TransactionResult{Versions: versions, Replayed: row.replayed}, nil
	}
	return TransactionResult{}, row.refusal(transaction, ofTokens, index-1, ofToken.Bool)
}

// refusal is the error of the token or operation at the index.
func (r *verdictRow) refusal(transaction Transaction, ofTokens []int32, index int, ofToken bool) error {
	if ofToken {
		return r.result(&Write{WriteToken: transaction.Tokens[index]}).Err
	}
	token := transaction.Tokens[ofTokens[index]-1]
	err := r.result(&Write{WriteToken: token, Operation: transaction.Operations[index].Operation}).Err
	var rejected *RejectedError
	if errors.As(err, &rejected) {
		rejected.Op = &index
	}
	return err
}

// check returns ErrInvalid, or the index of each operation's token, from 1.
func (t Transaction) check() ([]int32, error) {
	if len(t.Tokens) < 1 || len(t.Tokens) > WriteTokensMax {
		return nil, fmt.Errorf("%w: there are %d fences, a transaction has 1 to %d",
			ErrInvalid, len(t.Tokens), WriteTokensMax)
	}
	if len(t.Operations) < 1 || len(t.Operations) > OperationsMax {
		return nil, fmt.Errorf("%w: there are %d ops, a transaction has 1 to %d",
			ErrInvalid, len(t.Operations), OperationsMax)
	}
	tokenOf := map[Name]int32{}
	for i, token := range t.Tokens {
		if err := token.check(); err != nil {
			return nil, fmt.Errorf("fences[%d]: %w", i, err)
		}
		if _, twice := tokenOf[token.Resource]; twice {
			return nil, fmt.Errorf("%w: fences[%d]: resource %s is there twice", ErrInvalid, i, token.Resource)
		}
		tokenOf[token.Resource] = int32(i) + 1
	}

	type record struct{ resource, key Name }
	seen := map[record]bool{}
	ofTokens := make([]int32, len(t.Operations))
	for i, op := range t.Operations {
		if err := op.check(); err != nil {
			return nil, fmt.Errorf("ops[%d]: %w", i, err)
		}
		token, there := tokenOf[op.Resource]
		if !there {
			return nil, &RejectedError{Verdict: VerdictTokenRequired, Resource: op.Resource, Key: op.Key, Op: &i}
		}
		if seen[record{op.Resource, op.Key}] {
			return nil, fmt.Errorf("%w: ops[%d]: record %s of %s is changed twice", ErrInvalid, i, op.Key, op.Resource)
		}
		seen[record{op.Resource, op.Key}] = true
		ofTokens[i] = token
	}
	return ofTokens, nil
}
