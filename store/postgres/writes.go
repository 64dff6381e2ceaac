package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/store"
)

// Write decides a set of independent writes and applies those that are admitted, in one round trip and one commit. A
// rejected write does not fail its neighbours; two writes to one resource are judged in the order given. The results
// are in the order of the writes. When it returns nil, what was admitted is committed with its fences (P4).
//
// It returns ErrInvalid, with nothing applied, if any write is outside its limits; ErrUnavailable (an UnavailableError)
// for the whole set otherwise.
func (s *Store) Write(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	batch := writeBatches.Get().(*store.WriteBatch)
	defer func() {
		batch.Reset()
		writeBatches.Put(batch)
	}()
	if len(writes) == 0 {
		return nil, nil
	}
	order, digests := make([]int, len(writes)), make([]store.Digest, len(writes))
	for i := range writes {
		err := writes[i].Check()
		if err != nil && len(writes) > 1 {
			err = fmt.Errorf("write %d: %w", i, err)
		}
		if err != nil {
			return nil, err
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(writes[x].Resource, writes[y].Resource) })
	for _, i := range order {
		writes[i].Digest(&digests[i])
		batch.Add(&writes[i], &digests[i])
	}
	results := make([]store.Result, len(writes))
	if err := s.ExecWrites(ctx, batch, true); err != nil {
		return results, err
	}
	for n, i := range order {
		results[i] = batch.Result(n)
	}
	return results, nil
}

// tokenColumns and operationColumns are tokens and operations as the arrays that the functions take.
type tokenColumns struct {
	resources []string
	tokens    []*int64
	sequences []*int64
	leaseIDs  []*uuid.UUID
}

func (c *tokenColumns) add(token *store.WriteToken) {
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

func (c *operationColumns) add(op *store.Operation) {
	value := op.Value
	if op.Kind == store.Put && value == nil {
		value = []byte{} // nil would be null
	}
	c.kinds = append(c.kinds, string(op.Kind))
	c.keys = append(c.keys, string(op.Key))
	c.values = append(c.values, value)
	c.contentTypes = append(c.contentTypes, op.ContentType)
	c.expected = append(c.expected, op.Expect)
}

// fenceWaitMS is how long fence.write waits for a fence that another session has locked, before it is sent once more
// without waiting. A healthy commit takes less time.
const fenceWaitMS = 100

// ExecWrites sends the writes of the batch in one statement and reads the verdicts into it. When it returns nil, the
// admitted writes are committed. Where wait is false, a write whose fence another session keeps locked is Busy, and not
// applied. It returns ErrLocked, where wait is true, or ErrUnavailable for the whole batch.
func (s *Store) ExecWrites(ctx context.Context, batch *store.WriteBatch, wait bool) error {
	columns := columnsPool.Get().(*writeColumns)
	defer columns.release()
	columns.arrange(batch)
	stmt := statement{purpose: forBatches, bounded: true}
	if wait {
		columns.lockWait = int32(s.config.StatementTimeout.Milliseconds())
	} else {
		columns.lockWait, stmt.lockWait = fenceWaitMS, &columns.lockWait
	}
	if len(batch.Writes) == 1 {
		return s.writeOne(ctx, stmt, columns)
	}
	return s.writeSet(ctx, stmt, columns)
}

// writeOne sends a batch of one write.
func (s *Store) writeOne(ctx context.Context, stmt statement, c *writeColumns) error {
	const sql = `select verdict, reason, version, created, replayed,
			coalesce(granted_token, 0), coalesce(last_token, 0), coalesce(last_sequence, 0)
		from fence.write_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
	row := &c.batch.Decisions[0]
	return s.queryRow(ctx, stmt, sql,
		[]any{
			c.resources[0], c.tokens[0], c.sequences[0], c.leaseIDs[0], c.batch.Digests[0],
			c.kinds[0], c.keys[0], c.values[0], c.contentTypes[0], c.expected[0], &c.lockWait,
		},
		&row.Verdict, &row.Reason, &row.Version, &row.Created, &row.Replayed,
		&row.GrantedToken, &row.LastToken, &row.LastSequence)
}

// writeSet sends a batch of several writes.
func (s *Store) writeSet(ctx context.Context, stmt statement, c *writeColumns) error {
	const sql = `select admitted, versions, created, replayed, busy,
			refused, verdicts, reasons, current_versions, granted_tokens, last_tokens, last_sequences
		from fence.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
	var answer setAnswer
	err := s.queryAs(ctx, stmt, sql,
		[]any{
			c.resources, c.tokens, c.sequences, c.leaseIDs, c.batch.Digests,
			c.kinds, c.keys, c.values, c.contentTypes, c.expected, c.chainEnds, &c.lockWait,
		},
		func(rows pgx.Rows) error {
			return rows.Scan(&answer.admitted, &answer.versions, &answer.created, &answer.replayed, &answer.busy,
				&answer.refused, &answer.verdicts, &answer.reasons, &answer.currentVersions,
				&answer.grantedTokens, &answer.lastTokens, &answer.lastSequences)
		})
	if err != nil {
		return err
	}
	if answered := len(answer.admitted) + len(answer.busy) + len(answer.refused); answered != len(c.batch.Decisions) {
		return fmt.Errorf("fence.write answered %d of %d writes", answered, len(c.batch.Decisions))
	}
	answer.spread(c.batch.Decisions)
	return nil
}

// setAnswer is the row of fence.write.
type setAnswer struct {
	admitted                                                  []int32
	versions                                                  []int64
	created, replayed, busy                                   []int32
	refused                                                   []int32
	verdicts, reasons                                         []string
	currentVersions, grantedTokens, lastTokens, lastSequences []int64
}

// spread copies what the row says of each write, by its number from 1, to its decision.
func (a *setAnswer) spread(decisions []store.Decision) {
	for i, n := range a.admitted {
		decisions[n-1] = store.Decision{Verdict: store.Admitted, Version: a.versions[i]}
	}
	for _, n := range a.created {
		decisions[n-1].Created = true
	}
	for _, n := range a.replayed {
		decisions[n-1].Replayed = true
	}
	for _, n := range a.busy {
		decisions[n-1] = store.Decision{Verdict: store.VerdictBusy}
	}
	for i, n := range a.refused {
		decisions[n-1] = store.Decision{
			Verdict: store.Verdict(a.verdicts[i]), Reason: a.reasons[i], Version: a.currentVersions[i],
			GrantedToken: a.grantedTokens[i], LastToken: a.lastTokens[i], LastSequence: a.lastSequences[i],
		}
	}
}

func isState(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}

// writeColumns are the arguments for a WriteBatch. The writes to one resource are a chain. They are reused.
type writeColumns struct {
	batch *store.WriteBatch
	tokenColumns
	operationColumns
	chainEnds []int32 // the number of the last write of each chain

	lockWait int32 // how long the statement waits for fences, in milliseconds
}

var (
	writeBatches = sync.Pool{New: func() any { return &store.WriteBatch{} }}
	columnsPool  = sync.Pool{New: func() any { return &writeColumns{} }}
)

// arrange fills the arguments with those of a batch.
func (c *writeColumns) arrange(batch *store.WriteBatch) {
	c.batch = batch
	c.batch.Decisions = slices.Grow(c.batch.Decisions[:0], len(c.batch.Writes))[:len(c.batch.Writes)]
	for i, write := range c.batch.Writes {
		if i > 0 && write.Resource != c.batch.Writes[i-1].Resource {
			c.chainEnds = append(c.chainEnds, int32(i))
		}
		c.tokenColumns.add(&write.WriteToken)
		c.operationColumns.add(&write.Operation)
	}
	c.chainEnds = append(c.chainEnds, int32(len(c.batch.Writes)))
}

// release keeps the memory for the next batch, but no pointer to a write.
func (c *writeColumns) release() {
	clear(c.resources)
	clear(c.tokens)
	clear(c.sequences)
	clear(c.leaseIDs)
	clear(c.kinds)
	clear(c.keys)
	clear(c.contentTypes)
	clear(c.values)
	clear(c.expected)
	*c = writeColumns{
		tokenColumns:     tokenColumns{c.resources[:0], c.tokens[:0], c.sequences[:0], c.leaseIDs[:0]},
		operationColumns: operationColumns{c.kinds[:0], c.keys[:0], c.contentTypes[:0], c.values[:0], c.expected[:0]},
		chainEnds:        c.chainEnds[:0],
	}
	columnsPool.Put(c)
}
