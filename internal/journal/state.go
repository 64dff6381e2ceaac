package journal

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// readState reads what fencegate keeps of the names with a prefix, as of one moment.
func readState(ctx context.Context, db *pgxpool.Pool, prefix string) (state, error) {
	s := state{fences: map[string]storedFence{}}
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		return readTables(ctx, tx, prefix, &s)
	})
	return s, err
}

func readTables(ctx context.Context, tx pgx.Tx, prefix string, s *state) error {
	leases, err := tx.Query(ctx, `
		select lock, owner_id, lease_id::text, fencing_token, granted_at, coalesce(ended_at, expires_at) from fence.leases
		where starts_with(lock, $1)`, prefix)
	if err != nil {
		return err
	}
	s.leases, err = pgx.CollectRows(leases, func(row pgx.CollectableRow) (l storedLease, err error) {
		return l, row.Scan(&l.lock, &l.owner, &l.leaseID, &l.token, &l.grantedAt, &l.endsAt)
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
