package store

import "fmt"

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

// ResourceOperation is an operation on a record of one of the resources of the tokens, each record once, or on rows of
// a table that belong to one. A transaction has 1 to 1000.
type ResourceOperation struct {
	Resource Name
	Operation
	// Table, if not nil, is the operation, in place of Operation.
	Table *TableOperation
}

// TransactionResult has what the operations did, in their order.
type TransactionResult struct {
	Versions []int64       // that the operations gave; 0 for those on tables
	Tables   []TableResult // of the operations on tables; nil for a replay, whose rows are not remembered
	Replayed bool
}

// Check returns the index of each operation's token, from 1. It returns ErrInvalid, or a RejectedError for an operation
// on a resource without a token.
func (t *Transaction) Check() ([]int32, error) {
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
		ofTokens[i] = token
		if op.Table != nil {
			continue
		}
		if seen[record{op.Resource, op.Key}] {
			return nil, fmt.Errorf("%w: ops[%d]: record %s of %s is changed twice", ErrInvalid, i, op.Key, op.Resource)
		}
		seen[record{op.Resource, op.Key}] = true
	}
	return ofTokens, nil
}

func (o ResourceOperation) check() error {
	if o.Table != nil {
		return o.Table.check()
	}
	return o.Operation.check()
}
