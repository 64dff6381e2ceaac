package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Rejection is a write that the rule did not admit, or several alike.
type Rejection struct {
	ID       int64 // later stories have greater ones; those of the same tenth of a second in no order
	Resource Name
	Key      Name // empty where a transaction was refused for its token
	Verdict  Verdict
	Reason   string
	Door     string // http
	Address  string // of the client, without its port
	Token    int64  // 0: none was presented
	Sequence *int64

	GrantedToken, LastToken, LastSequence int64

	OwnerID string         // whose lease the token was; "" if that is not remembered
	Late    *time.Duration // how long after its lease had ended the latest came; nil if it had not, or is not remembered
	Count   int64
	FirstAt time.Time
	LastAt  time.Time
}

// RejectionQuery selects rejections, newest stories first.
type RejectionQuery struct {
	Resource Name      // "": any
	Verdict  Verdict   // "": any
	Since    time.Time // those seen at or after it
	Before   int64     // IDs smaller than this; 0: any
	Limit    int       // 1 to PageMax
}

// Rejections returns rejected writes. It returns ErrInvalid or ErrUnavailable.
func (s *Store) Rejections(ctx context.Context, query RejectionQuery) ([]Rejection, error) {
	if err := checkLimit(query.Limit); err != nil {
		return nil, err
	}
	if query.Verdict != "" && verdictErrors[query.Verdict] == nil {
		return nil, fmt.Errorf("%w: code must be one that a write is rejected with, like %s", ErrInvalid, VerdictTokenStale)
	}
	rejections := []Rejection{}
	err := s.query(ctx, `
		select r.id, r.resource, r.key, r.code, r.reason, r.door, r.address, r.fencing_token, r.sequence,
			r.granted_token, r.last_token, r.last_sequence, coalesce(r.owner_id, ''), r.late_ms, r.count, r.first_at, r.last_at
		from fence.rejections r
		where ($1 = '' or r.resource = $1) and ($2 = '' or r.code = $2) and r.last_at >= $3 and ($4 = 0 or r.id < $4)
		order by r.id desc
		limit $5`,
		[]any{query.Resource, query.Verdict, query.Since, query.Before, query.Limit},
		func(rows pgx.Rows) error {
			var r Rejection
			var lateMS *int64
			err := rows.Scan(&r.ID, &r.Resource, &r.Key, &r.Verdict, &r.Reason, &r.Door, &r.Address, &r.Token, &r.Sequence,
				&r.GrantedToken, &r.LastToken, &r.LastSequence, &r.OwnerID, &lateMS, &r.Count, &r.FirstAt, &r.LastAt)
			if lateMS != nil {
				late := time.Duration(*lateMS) * time.Millisecond
				r.Late = &late
			}
			rejections = append(rejections, r)
			return err
		})
	return rejections, err
}

// recordRejections adds to the record; no story twice in a call.
func (s *Store) recordRejections(ctx context.Context, rejections []Rejection) error {
	var (
		resources, keys, verdicts, reasons, doors, addresses []string
		tokens, granted, lastTokens, lastSequences, counts   []int64
		sequences                                            []*int64
		first, last                                          []time.Time
	)
	for _, r := range rejections {
		resources, keys = append(resources, string(r.Resource)), append(keys, string(r.Key))
		verdicts, reasons = append(verdicts, string(r.Verdict)), append(reasons, r.Reason)
		doors, addresses = append(doors, r.Door), append(addresses, r.Address)
		tokens, sequences = append(tokens, r.Token), append(sequences, r.Sequence)
		granted, lastTokens = append(granted, r.GrantedToken), append(lastTokens, r.LastToken)
		lastSequences, counts = append(lastSequences, r.LastSequence), append(counts, r.Count)
		first, last = append(first, r.FirstAt), append(last, r.LastAt)
	}
	return s.query(ctx, "select fence.record_rejections($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
		[]any{resources, keys, verdicts, reasons, doors, addresses, tokens, sequences, granted, lastTokens, lastSequences, counts, first, last},
		func(pgx.Rows) error { return nil })
}
