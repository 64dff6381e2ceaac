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
			c.resources[0], c.tokens[0], c.sequences[0], c.leaseIDs[0], c.digests[0],
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
			c.resources, c.tokens, c.sequences, c.leaseIDs, c.digests,
			c.kinds, c.keys, c.values, c.contentTypes, c.expected, c.turnEnds, &c.lockWait,
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
	answer.spread(c)
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

// spread copies what the row says of each write to its decision.
func (a *setAnswer) spread(c *writeColumns) {
	for i, n := range a.admitted {
		*c.decisionOf(n) = Decision{Verdict: Admitted, Version: a.versions[i]}
	}
	for _, n := range a.created {
		c.decisionOf(n).Created = true
	}
	for _, n := range a.replayed {
		c.decisionOf(n).Replayed = true
	}
	for _, n := range a.busy {
		*c.decisionOf(n) = Decision{Verdict: VerdictBusy}
	}
	for i, n := range a.refused {
		*c.decisionOf(n) = Decision{
			Verdict: Verdict(a.verdicts[i]), Reason: a.reasons[i], Version: a.currentVersions[i],
			GrantedToken: a.grantedTokens[i], LastToken: a.lastTokens[i], LastSequence: a.lastSequences[i],
		}
	}
}

func isState(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}
