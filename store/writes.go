package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Write decides a set of independent writes and applies those that are admitted, in one round trip and one commit. A rejected write
// does not fail its neighbours; two writes to one resource are judged in the order given. The results stand in the order
// of the writes. When it returns nil, what was admitted is committed with its fences (P4).
//
// It returns ErrInvalid, with nothing applied, if any write is outside its limits; ErrUnavailable (an UnavailableError) for the
// whole set otherwise.
func (s *Store) Write(ctx context.Context, writes []Write) ([]Result, error) {
	for i, write := range writes {
		err := write.check()
		if err != nil && len(writes) > 1 {
			err = fmt.Errorf("write %d: %w", i, err)
		}
		if err != nil {
			return nil, err
		}
	}
	const sql = `select place, verdict, reason, version, created, replayed, granted_token, last_token, last_sequence
		from fence.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	results := make([]Result, len(writes))
	answered := 0
	err := s.query(ctx, sql, columnsOf(writes).args(), func(rows pgx.Rows) error {
		var place int
		var row verdictRow
		if err := rows.Scan(&place, &row.verdict, &row.reason, &row.version, &row.created, &row.replayed,
			&row.grantedToken, &row.lastToken, &row.lastSequence); err != nil {
			return err
		}
		answered++
		results[place-1] = row.result(writes[place-1])
		return nil
	})
	if err == nil && answered != len(writes) {
		err = fmt.Errorf("fence.write answered %d of %d writes", answered, len(writes))
	}
	return results, err
}

func (w Write) check() error {
	if err := w.Claim.check(); err != nil {
		return err
	}
	return w.Operation.check()
}

// verdictRow is a row of fence.write.
type verdictRow struct {
	verdict                               Verdict
	reason                                string
	version                               int64
	created, replayed                     bool
	grantedToken, lastToken, lastSequence int64
}

func (r verdictRow) result(write Write) Result {
	switch r.verdict {
	case Admitted:
		return Result{Version: r.version, Created: r.created, Replayed: r.replayed}
	case verdictNotFound:
		return Result{Err: fmt.Errorf("%w: there is no record %s of %s", ErrNotFound, write.Key, write.Resource)}
	}
	return Result{Err: &RejectedError{
		Verdict: r.verdict, Reason: r.reason, Resource: write.Resource, Key: write.Key,
		Token: write.Token, Sequence: write.Sequence,
		GrantedToken: r.grantedToken, LastToken: r.lastToken, LastSequence: r.lastSequence, Version: r.version,
	}}
}

// claimColumns and operationColumns are claims and operations as the arrays that the functions take.
type claimColumns struct {
	resources []string
	tokens    []*int64
	sequences []*int64
	leaseIDs  []*uuid.UUID
}

func (c *claimColumns) add(claim Claim) {
	var token *int64
	if claim.Token != 0 {
		token = &claim.Token
	}
	c.resources = append(c.resources, string(claim.Resource))
	c.tokens = append(c.tokens, token)
	c.sequences = append(c.sequences, claim.Sequence)
	c.leaseIDs = append(c.leaseIDs, claim.LeaseID)
}

type operationColumns struct {
	kinds, keys, contentTypes []string
	values                    [][]byte
	expected                  []*int64
}

func (c *operationColumns) add(op Operation) {
	value := op.Value
	if op.Kind == Put && value == nil {
		value = []byte{} // nil would be null
	}
	c.kinds = append(c.kinds, string(op.Kind))
	c.keys = append(c.keys, string(op.Key))
	c.values = append(c.values, value)
	c.contentTypes = append(c.contentTypes, op.ContentType)
	c.expected = append(c.expected, op.Expect)
}

type writeColumns struct {
	claimColumns
	operationColumns
	digests [][]byte
}

func columnsOf(writes []Write) *writeColumns {
	columns := &writeColumns{}
	for _, write := range writes {
		columns.claimColumns.add(write.Claim)
		columns.operationColumns.add(write.Operation)
		columns.digests = append(columns.digests, digest([]Claim{write.Claim}, []placedOperation{{write.Operation, 0}}))
	}
	return columns
}

func (c *writeColumns) args() []any {
	return []any{c.resources, c.tokens, c.sequences, c.leaseIDs, c.digests, c.kinds, c.keys, c.values, c.contentTypes, c.expected}
}
