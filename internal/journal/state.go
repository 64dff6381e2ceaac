package journal

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// readState reads what the database keeps of the names with a prefix, as of one moment. For rows see Journal.
func readState(ctx context.Context, db *pgxpool.Pool, prefix, rows string) (state, error) {
	s := state{fences: map[string]storedFence{}}
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		err := readTables(ctx, tx, prefix, &s)
		if err == nil && rows != "" {
			err = readRows(ctx, tx, rows, prefix, &s)
		}
		return err
	})
	return s, err
}

// readRows reads the rows of protected tables. Their resources have no records. A row has no version: its place in the
// order of numbers is one, and the fence counts none.
func readRows(ctx context.Context, tx pgx.Tx, query, prefix string, s *state) error {
	rows, err := tx.Query(ctx, query, prefix)
	if err != nil {
		return err
	}
	var r storedRecord
	columns := []any{&r.resource, &r.key, &r.value, &r.token, &r.sequence, &r.updatedAt}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		f := s.fences[r.resource]
		f.lastVersion++
		r.version, s.fences[r.resource] = f.lastVersion, f
		s.records = append(s.records, r)
		return nil
	})
	return errors.Join(err, rows.Err())
}

func readTables(ctx context.Context, tx pgx.Tx, prefix string, s *state) error {
	leases, err := tx.Query(ctx, `
		select lock, owner_id, lease_id::text, fencing_token, mode = 'shared', scope = 'subtree', granted_at,
			coalesce(ended_at, fence.runs_until(l))
		from fence.leases l where starts_with(lock, $1)`, prefix)
	if err != nil {
		return err
	}
	s.leases, err = pgx.CollectRows(leases, func(row pgx.CollectableRow) (l storedLease, err error) {
		return l, row.Scan(&l.lock, &l.owner, &l.leaseID, &l.token, &l.shared, &l.subtree, &l.grantedAt, &l.endsAt)
	})
	if err != nil {
		return err
	}
	records, err := tx.Query(ctx, `
		select resource, key, version, fencing_token, coalesce(sequence, 0), convert_from(value, 'UTF8'), updated_at
		from fence.records where starts_with(resource, $1)`, prefix)
	if err != nil {
		return err
	}
	s.records, err = pgx.CollectRows(records, func(row pgx.CollectableRow) (r storedRecord, err error) {
		return r, row.Scan(&r.resource, &r.key, &r.version, &r.token, &r.sequence, &r.value, &r.updatedAt)
	})
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `
		select resource, granted_token, last_token, last_sequence, last_version from fence.fences
		where starts_with(resource, $1)`, prefix)
	if err != nil {
		return err
	}
	var name string
	var f storedFence
	columns := []any{&name, &f.grantedToken, &f.lastToken, &f.lastSequence, &f.lastVersion}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		s.fences[name] = f
		return nil
	})
	return errors.Join(err, rows.Err())
}
