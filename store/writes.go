package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"
)

// Write decides a set of independent writes and applies those that are admitted, in one round trip and one commit. A
// rejected write does not fail its neighbours; two writes to one resource are judged in the order given. The results
// are in the order of the writes. When it returns nil, what was admitted is committed with its fences (P4).
//
// It returns ErrInvalid, with nothing applied, if any write is outside its limits; ErrUnavailable (an UnavailableError)
// for the whole set otherwise.
func (s *Store) Write(ctx context.Context, writes []Write) ([]Result, error) {
	batch := writeBatches.Get().(*WriteBatch)
	defer func() {
		batch.Reset()
		writeBatches.Put(batch)
	}()
	if len(writes) == 0 {
		return nil, nil
	}
	digests := make([]Digest, len(writes))
	for i := range writes {
		err := writes[i].Check()
		if err != nil && len(writes) > 1 {
			err = fmt.Errorf("write %d: %w", i, err)
		}
		if err != nil {
			return nil, err
		}
		writes[i].Digest(&digests[i])
		batch.Add(&writes[i], &digests[i])
	}
	results := make([]Result, len(writes))
	if err := s.ExecWrites(ctx, batch, true); err != nil {
		return results, err
	}
	for i := range writes {
		results[i] = batch.Result(i)
	}
	return results, nil
}

// Check returns ErrInvalid, naming the field, if the write is outside its limits.
func (w *Write) Check() error { return cmp.Or(w.WriteToken.check(), w.Operation.check()) }

// tokenColumns and operationColumns are tokens and operations as the arrays that the functions take.
type tokenColumns struct {
	resources []string
	tokens    []*int64
	sequences []*int64
	leaseIDs  []*uuid.UUID
}

func (c *tokenColumns) add(token *WriteToken) {
	var number *int64
	if token.Token != 0 {
		number = &token.Token
	}
	c.resources = append(c.resources, string(token.Resource))
	c.tokens = append(c.tokens, number)
	c.sequences = append(c.sequences, token.Sequence)
	c.leaseIDs = append(c.leaseIDs, token.LeaseID)
}

type operationColumns struct {
	kinds, keys, contentTypes []string
	values                    [][]byte
	expected                  []*int64
}

func (c *operationColumns) add(op *Operation) {
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
