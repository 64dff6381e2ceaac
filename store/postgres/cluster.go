package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// transferBytes is about how much of a transfer is sent at once.
const transferBytes = 4 << 20

// PlaceType returns the type of the places of names, if the database is a node of a cluster; otherwise ErrNotFound.
func (s *Store) PlaceType(ctx context.Context) (placeType string, err error) {
	err = s.queryRow(ctx, statement{}, "select place_type from fence.cluster", nil, &placeType)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", store.ErrNotFound
	}
	return placeType, err
}

// Placements passes the ranges of names that the coordinator of a cluster has, each with its node and its address.
func (s *Store) Placements(ctx context.Context, each func(first, last int64, node, address string)) error {
	const sql = "select first, last, node, address from fencegate.placements()"
	return s.queryAs(ctx, statement{}, sql, nil, func(rows pgx.Rows) error {
		var first, last int64
		var node, address string
		if err := rows.Scan(&first, &last, &node, &address); err != nil {
			return err
		}
		each(first, last, node, address)
		return nil
	})
}

// MissesLock reports whether the database has the name, if anyone has it, and there is no such lock.
func (s *Store) MissesLock(ctx context.Context, name store.Name) (bool, error) {
	return s.misses(ctx, name, "select from fence.fences f where f.resource = $1 and "+isLockSQL)
}

// MissesFence is MissesLock for the fence of a name.
func (s *Store) MissesFence(ctx context.Context, name store.Name) (bool, error) {
	return s.misses(ctx, name, fenceSQL)
}

// MissesLease is MissesLock for the lease that a request was granted.
func (s *Store) MissesLease(ctx context.Context, lock store.Name, requestID string) (bool, error) {
	return s.misses(ctx, lock, `select from fence.leases l where l.lock = $1 collate "POSIX" and l.request_id = $2`, requestID)
}

// MissesRecord is MissesLock for a record of a resource.
func (s *Store) MissesRecord(ctx context.Context, resource, key store.Name) (bool, error) {
	return s.misses(ctx, resource, "select from fence.records r where r.resource = $1 and r.key = $2", string(key))
}

func (s *Store) misses(ctx context.Context, name store.Name, sql string, args ...any) (misses bool, err error) {
	err = s.queryRow(ctx, statement{}, "select not fence.is_elsewhere($1) and not exists ("+sql+")",
		append([]any{string(name)}, args...), &misses)
	return misses, err
}

// Ranges returns the ranges of names that the database has.
func (s *Store) Ranges(ctx context.Context) (ranges []store.NameRange, err error) {
	const sql = "select range_id, first, last, coalesce(moves_to, ''), sent from fence.ranges order by first, range_id"
	err = s.queryAs(ctx, statement{restart: func() { ranges = nil }}, sql, nil, func(rows pgx.Rows) error {
		var r store.NameRange
		err := rows.Scan(&r.ID, &r.First, &r.Last, &r.MovesTo, &r.Sent)
		ranges = append(ranges, r)
		return err
	})
	return ranges, err
}

// BeginMove begins the move of names to another node; see fence.begin_move.
func (s *Store) BeginMove(ctx context.Context, first, last int64, node string) error {
	return s.exec(ctx, statement{}, "select fence.begin_move($1, $2, $3)", first, last, node)
}

// ExportTrees takes trees of a range out of the database; see fence.export_trees.
func (s *Store) ExportTrees(ctx context.Context, rangeID uuid.UUID, after string, namesMax int) (exported store.Exported, err error) {
	var id *uuid.UUID
	var next *string
	err = s.queryRow(ctx, statement{}, "select id, after, skipped from fence.export_trees($1, $2, $3)",
		[]any{rangeID, after, namesMax}, &id, &next, &exported.Skipped)
	if id != nil {
		exported.Transfer = *id
	}
	if next != nil {
		exported.After = *next
	}
	return exported, err
}

// Transfers returns the transfers for a node that have left, and are not known to have arrived.
func (s *Store) Transfers(ctx context.Context, node string) (transfers []uuid.UUID, err error) {
	const sql = "select distinct transfer_id from fence.transfers where moves_to = $1"
	err = s.queryAs(ctx, statement{restart: func() { transfers = nil }}, sql, []any{node},
		func(rows pgx.Rows) error {
			var id uuid.UUID
			err := rows.Scan(&id)
			transfers = append(transfers, id)
			return err
		})
	return transfers, err
}

// ReadTransfer passes the items of a transfer, some at a time, in their order.
func (s *Store) ReadTransfer(ctx context.Context, transfer uuid.UUID, send func(kinds, items []string) error) error {
	for after := int64(0); ; {
		var kinds, items []string
		from := after
		const sql = `select n, kind, item from (
				select n, kind, item, sum(octet_length(item)) over (order by n) - octet_length(item) as before
				from fence.transfers where transfer_id = $1 and n > $2) p
			where before < $3 order by n`
		restart := func() { kinds, items, after = nil, nil, from }
		err := s.queryAs(ctx, statement{restart: restart}, sql, []any{transfer, from, transferBytes},
			func(rows pgx.Rows) error {
				var kind, item string
				err := rows.Scan(&after, &kind, &item)
				kinds, items = append(kinds, kind), append(items, item)
				return err
			})
		if err != nil || len(items) == 0 {
			return err
		}
		if err := send(kinds, items); err != nil {
			return err
		}
	}
}

// ImportRows keeps items of a transfer that is on its way to this database; see fence.import_rows.
func (s *Store) ImportRows(ctx context.Context, transfer uuid.UUID, first bool, kinds, items []string) error {
	return s.exec(ctx, statement{}, "select fence.import_rows($1, $2, $3, $4)", transfer, first, kinds, items)
}

// FinishImport puts the names of a transfer into this database; see fence.finish_import.
func (s *Store) FinishImport(ctx context.Context, transfer uuid.UUID, items int) (done bool, err error) {
	err = s.queryRow(ctx, statement{}, "select fence.finish_import($1, $2)", []any{transfer, items}, &done)
	return done, err
}

// EndTransfer forgets a transfer that has arrived; see fence.end_transfer.
func (s *Store) EndTransfer(ctx context.Context, transfer uuid.UUID) error {
	return s.exec(ctx, statement{}, "select fence.end_transfer($1)", transfer)
}

// FinishExport says that all names of a range have arrived at the node to which they move; see fence.finish_export.
func (s *Store) FinishExport(ctx context.Context, rangeID uuid.UUID) error {
	return s.exec(ctx, statement{}, "select fence.finish_export($1)", rangeID)
}

// TakeRange says that this database has the names of a range now; see fence.take_range.
func (s *Store) TakeRange(ctx context.Context, moved store.NameRange) error {
	return s.exec(ctx, statement{}, "select fence.take_range($1, $2, $3)", moved.ID, moved.First, moved.Last)
}

// EndMove says that another database has the names of a range now; see fence.end_move.
func (s *Store) EndMove(ctx context.Context, rangeID uuid.UUID) error {
	return s.exec(ctx, statement{}, "select fence.end_move($1)", rangeID)
}

// TakeRejections takes rejections that are recorded here, at most rowsMax, and passes them to merge. If that returns an
// error, they stay.
func (s *Store) TakeRejections(ctx context.Context, rowsMax int, merge func(rows []string) error) error {
	return s.inTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, "select fence.take_rejections($1)", rowsMax)
		taken, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(taken) == 0 {
			return err
		}
		return merge(taken)
	})
}

// MergeRejections adds rejections of another node; see fence.merge_rejections.
func (s *Store) MergeRejections(ctx context.Context, rows []string) error {
	return s.exec(ctx, statement{}, "select fence.merge_rejections($1)", rows)
}
