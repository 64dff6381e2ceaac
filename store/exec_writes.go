package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// fenceWaitMS is how long fence.write waits for a fence that another session has locked, before it is sent once more
// without waiting. A commit takes less, unless something is wrong with it.
const fenceWaitMS = 100

// ExecWrites sends the writes of the batch in one statement and reads the verdicts into it. When it returns nil, the
// admitted writes are committed. Where wait is false, a write whose fence another session keeps locked is Busy, and not
// applied. It returns ErrLocked, where wait is true, or ErrUnavailable for the whole batch.
func (s *Store) ExecWrites(ctx context.Context, batch *WriteBatch, wait bool) error {
	batch.arrange()
	stmt := statement{purpose: forBatches, bounded: true}
	if wait {
		batch.lockWait = int32(s.config.StatementTimeout.Milliseconds())
	} else {
		batch.lockWait, stmt.lockWait = fenceWaitMS, &batch.lockWait
	}
	if len(batch.writes) == 1 {
		return s.writeOne(ctx, stmt, batch)
	}
	return s.writeSet(ctx, stmt, batch)
}

// writeOne sends a batch of one write.
func (s *Store) writeOne(ctx context.Context, stmt statement, b *WriteBatch) error {
	const sql = `select verdict, reason, version, created, replayed,
			coalesce(granted_token, 0), coalesce(last_token, 0), coalesce(last_sequence, 0)
		from fence.write_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
	row := &b.verdicts[0]
	return s.queryRow(ctx, stmt, sql,
		[]any{
			b.resources[0], b.tokens[0], b.sequences[0], b.leaseIDs[0], b.digests[0],
			b.kinds[0], b.keys[0], b.values[0], b.contentTypes[0], b.expected[0], &b.lockWait,
		},
		&row.verdict, &row.reason, &row.version, &row.created, &row.replayed,
		&row.grantedToken, &row.lastToken, &row.lastSequence)
}

// writeSet sends a batch of several writes.
func (s *Store) writeSet(ctx context.Context, stmt statement, b *WriteBatch) error {
	const sql = `select admitted, versions, created, replayed, busy,
			refused, verdicts, reasons, current_versions, granted_tokens, last_tokens, last_sequences
		from fence.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
	var answer setAnswer
	err := s.queryAs(ctx, stmt, sql,
		[]any{
			b.resources, b.tokens, b.sequences, b.leaseIDs, b.digests,
			b.kinds, b.keys, b.values, b.contentTypes, b.expected, b.turnEnds, &b.lockWait,
		},
		func(rows pgx.Rows) error {
			return rows.Scan(&answer.admitted, &answer.versions, &answer.created, &answer.replayed, &answer.busy,
				&answer.refused, &answer.verdicts, &answer.reasons, &answer.currentVersions,
				&answer.grantedTokens, &answer.lastTokens, &answer.lastSequences)
		})
	if err != nil {
		return err
	}
	if answered := len(answer.admitted) + len(answer.busy) + len(answer.refused); answered != len(b.verdicts) {
		return fmt.Errorf("fence.write answered %d of %d writes", answered, len(b.verdicts))
	}
	answer.spread(b)
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

// spread copies what the row says of each write to its verdict.
func (a *setAnswer) spread(b *WriteBatch) {
	for i, n := range a.admitted {
		*b.verdictOf(n) = verdictRow{verdict: Admitted, version: a.versions[i]}
	}
	for _, n := range a.created {
		b.verdictOf(n).created = true
	}
	for _, n := range a.replayed {
		b.verdictOf(n).replayed = true
	}
	for _, n := range a.busy {
		*b.verdictOf(n) = verdictRow{verdict: verdictBusy}
	}
	for i, n := range a.refused {
		*b.verdictOf(n) = verdictRow{
			verdict: Verdict(a.verdicts[i]), reason: a.reasons[i], version: a.currentVersions[i],
			grantedToken: a.grantedTokens[i], lastToken: a.lastTokens[i], lastSequence: a.lastSequences[i],
		}
	}
}

func isState(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}
