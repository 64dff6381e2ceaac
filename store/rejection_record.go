package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Recorded is what the database knows of rejections that it has recorded: writes of one group, since that was recorded
// last.
type Recorded struct {
	Verdict Verdict
	Writes  int64
	// Late is how long after its lease had ended the latest of them came; nil if it had not, or is not remembered.
	Late *time.Duration
	// TokenAge is how long before the latest of them its token had been granted; nil if that is not remembered.
	TokenAge *time.Duration
}

const recordRejectionsSQL = `
	select rejected_code, writes, lateness_ms * interval '1 millisecond', token_age_ms * interval '1 millisecond'
	from fence.record_rejections($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`

// recordRejections adds to the record; no group twice in a call. It returns one Recorded for each, with 0 writes where
// another session has locked the row of the group.
func (s *Store) recordRejections(ctx context.Context, rejections []Rejection) ([]Recorded, error) {
	var (
		resources, keys, verdicts, reasons, sources, addresses, principals []string
		tokens, granted, lastTokens, lastSequences, counts                 []int64
		sequences                                                          []*int64
		first, last                                                        []time.Time
	)
	for _, r := range rejections {
		resources, keys = append(resources, string(r.Resource)), append(keys, string(r.Key))
		verdicts, reasons = append(verdicts, string(r.Verdict)), append(reasons, r.Reason)
		sources, addresses = append(sources, r.Source), append(addresses, r.Address)
		principals = append(principals, r.Principal)
		tokens, sequences = append(tokens, r.Token), append(sequences, r.Sequence)
		granted, lastTokens = append(granted, r.GrantedToken), append(lastTokens, r.LastToken)
		lastSequences, counts = append(lastSequences, r.LastSequence), append(counts, r.Count)
		first, last = append(first, r.FirstAt), append(last, r.LastAt)
	}
	args := []any{resources, keys, verdicts, reasons, sources, addresses, tokens, sequences, granted, lastTokens,
		lastSequences, counts, first, last, principals}
	return collect(ctx, s.query, recordRejectionsSQL, args, pgx.RowToStructByPos[Recorded])
}
