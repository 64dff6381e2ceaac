package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// RejectionDetail is a rejection with the leases that it concerns, as far as the database still has them.
type RejectionDetail struct {
	Rejection
	Lease     *LeaseInfo // of the token that was presented; nil: not known
	Successor *LeaseInfo // of the newer token; nil: not known, or there is none
}

var leasesOfTokensSQL = fmt.Sprintf(leasesListSQL, shownColumns, withinSQL("l.lock", "@within")+`
	and l.lock = any (fence.ancestors(@resource) || @resource::text) and l.fencing_token = any (@tokens) and `)

// RejectionDetail returns a rejection by its ID. within limits the names that the caller sees, as in a
// [RejectionFilter]: it returns ErrNotFound for rejections on others, and leaves their leases out. It returns
// ErrUnavailable, too.
func (s *Store) RejectionDetail(ctx context.Context, id int64, within []string) (RejectionDetail, error) {
	found, err := s.readRejections(ctx, "select "+rejectionColumns+" from fence.rejections r where r.id = $1", id)
	if err != nil {
		return RejectionDetail{}, err
	}
	if visible := (RejectionFilter{Within: within}); len(found) == 0 || !visible.Matches(&found[0]) {
		return RejectionDetail{}, ErrNotFound
	}
	detail := RejectionDetail{Rejection: found[0]}
	tokens := []int64{detail.Token, detail.SupersededBy()}
	args := pgx.NamedArgs{
		"resource": detail.Resource, "tokens": tokens, "within": within, "token": max(tokens[0], tokens[1]), "after": "",
		"limit": len(tokens),
	}
	// Leases are on the resource's name or, with the scope subtree, on one above it.
	leases, err := collect(ctx, s.query, leasesOfTokensSQL, []any{pgx.QueryExecModeCacheDescribe, args}, readLeaseInfo)
	for i := range leases {
		if leases[i].Token == detail.Token {
			detail.Lease = &leases[i]
		} else {
			detail.Successor = &leases[i]
		}
	}
	return detail, err
}
