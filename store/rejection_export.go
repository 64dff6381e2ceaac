package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// RejectionsExportMax is how many rejections can be exported at once.
const RejectionsExportMax = 1_000_000

var exportOrderSQL = `
	select r.id from fence.rejections r where ` + rejectionFilterSQL + `
	order by case when $13 then r.changed_at end desc, r.id desc limit $14`

// RejectionIDs returns the IDs of all rejections that match, in their order: with them, [Store.RejectionsOf] reads the
// groups a few at a time, none twice and none left out that stays, however long the reader takes. It returns
// ErrInvalid, also where more than RejectionsExportMax match, or ErrUnavailable.
func (s *Store) RejectionIDs(ctx context.Context, filter RejectionFilter, order RejectionOrder) ([]int64, error) {
	if err := cmp.Or(filter.Check(), order.check()); err != nil {
		return nil, err
	}
	args := filter.args(order == RejectionsByLastSeen, RejectionsExportMax+1)
	ids, err := collect(ctx, s.query, exportOrderSQL, args, pgx.RowTo[int64])
	if err == nil && len(ids) > RejectionsExportMax {
		err = fmt.Errorf("%w: more than %d rejections match; narrow the filters", ErrInvalid, RejectionsExportMax)
	}
	if err != nil {
		return nil, err
	}
	return ids, nil
}

const rejectionsOfSQL = "select " + rejectionColumns + `
	from unnest($1::bigint[]) with ordinality as u (id, index) join fence.rejections r on r.id = u.id
	order by u.index`

// RejectionsOf returns rejections as they are now, in the order of the IDs, without those that are forgotten
// meanwhile. It returns ErrInvalid for more than PageMax, or ErrUnavailable.
func (s *Store) RejectionsOf(ctx context.Context, ids []int64) ([]Rejection, error) {
	if len(ids) > PageMax {
		return nil, fmt.Errorf("%w: there are %d ids, the limit is %d", ErrInvalid, len(ids), PageMax)
	}
	return s.readRejections(ctx, rejectionsOfSQL, ids)
}
