package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// How long the database waits for a fence that somebody else has locked, as fence.write takes it.
var (
	waitBriefly = ptr(int32(100)) // ms: longer than a commit takes, unless something is wrong with that
	waitNot     = ptr(int32(0))   // not at all
)

// decide has the database decide the writes of the columns, and reads its verdicts into them. When it returns nil, what was admitted is
// committed. Where wait is false, a write whose fence somebody else keeps locked gets verdictBusy, and is not applied.
func (s *Store) decide(ctx context.Context, columns *writeColumns, wait bool) (err error) {
	lockWait := waitBriefly
	if wait {
		lockWait = ptr(int32(s.config.StatementTimeout.Milliseconds()))
	}
	ask := s.writeSet
	if len(columns.writes) == 1 {
		ask = s.writeOne
	}
	columns.arrange()
	err = ask(ctx, columns, lockWait)
	if !wait && isState(err, "55P03") {
		err = ask(ctx, columns, waitNot) // nothing was applied, because of one fence: the others do not wait for it again
	}
	return err
}

// writeOne asks for a set of one.
func (s *Store) writeOne(ctx context.Context, c *writeColumns, wait *int32) error {
	const sql = `select verdict, reason, version, created, replayed, coalesce(granted_token, 0), coalesce(last_token, 0), coalesce(last_sequence, 0)
		from fence.write_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
	row := &c.verdicts[0]
	return s.queryRowAs(ctx, job{use: useBatches}, sql,
		[]any{
			c.resources[0], c.tokens[0], c.sequences[0], c.leaseIDs[0], c.digests[0],
			c.kinds[0], c.keys[0], c.values[0], c.contentTypes[0], c.expected[0], wait,
		},
		&row.verdict, &row.reason, &row.version, &row.created, &row.replayed, &row.grantedToken, &row.lastToken, &row.lastSequence)
}

// writeSet asks for all of them at once.
func (s *Store) writeSet(ctx context.Context, c *writeColumns, wait *int32) error {
	const sql = `select admitted, versions, created, replayed, busy,
			refused, verdicts, reasons, current_versions, granted_tokens, last_tokens, last_sequences
		from fence.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
	var answer setAnswer
	err := s.queryAs(ctx, job{use: useBatches}, sql,
		[]any{c.resources, c.tokens, c.sequences, c.leaseIDs, c.digests, c.kinds, c.keys, c.values, c.contentTypes, c.expected, c.turnEnds, wait},
		func(rows pgx.Rows) error {
			return rows.Scan(&answer.admitted, &answer.versions, &answer.created, &answer.replayed, &answer.busy,
				&answer.refused, &answer.verdicts, &answer.reasons, &answer.standing,
				&answer.grantedTokens, &answer.lastTokens, &answer.lastSequences)
		})
	if err != nil {
		return err
	}
	if answered := len(answer.admitted) + len(answer.busy) + len(answer.refused); answered != len(c.verdicts) {
		return fmt.Errorf("fence.write answered %d of %d writes", answered, len(c.verdicts))
	}
	answer.spread(c)
	return nil
}

// setAnswer is the row of fence.write.
type setAnswer struct {
	admitted                                           []int32
	versions                                           []int64
	created, replayed, busy                            []int32
	refused                                            []int32
	verdicts, reasons                                  []string
	standing, grantedTokens, lastTokens, lastSequences []int64
}

// spread puts what there is of each write into its place.
func (a *setAnswer) spread(c *writeColumns) {
	for i, place := range a.admitted {
		*c.verdictAt(place) = verdictRow{verdict: Admitted, version: a.versions[i]}
	}
	for _, place := range a.created {
		c.verdictAt(place).created = true
	}
	for _, place := range a.replayed {
		c.verdictAt(place).replayed = true
	}
	for _, place := range a.busy {
		*c.verdictAt(place) = verdictRow{verdict: verdictBusy}
	}
	for i, place := range a.refused {
		*c.verdictAt(place) = verdictRow{
			verdict: Verdict(a.verdicts[i]), reason: a.reasons[i], version: a.standing[i],
			grantedToken: a.grantedTokens[i], lastToken: a.lastTokens[i], lastSequence: a.lastSequences[i],
		}
	}
}

func isState(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}

func ptr[T any](value T) *T { return &value }
