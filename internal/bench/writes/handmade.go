package writes

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// handmadeTarget is the fence as one writes it by hand in Go: lock the row, look, raise it, write, commit. One
// statement after the other.
func handmadeTarget(databaseURL string) target {
	return target{name: nameHandmade, tuned: poolSizes, open: func(ctx context.Context, s setting) (session, error) {
		pool, err := openPool(ctx, databaseURL, s.connections)
		if err != nil {
			return session{}, err
		}
		if err := fillFences(ctx, pool, s.layout.resources); err != nil {
			pool.Close()
			return session{}, err
		}
		return session{close: closing(pool), write: func(ctx context.Context, _ int, w *writer) error {
			r, value := w.next()
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return handmade(ctx, tx, r, value) })
		}}, nil
	}}
}

func handmade(ctx context.Context, tx pgx.Tx, r *resource, value []byte) error {
	var last int64
	err := tx.QueryRow(ctx, "select token from fencegate_bench.fences where resource = $1 for update",
		string(r.name)).Scan(&last)
	if err != nil {
		return err
	}
	if r.token < last {
		return fmt.Errorf("the token %d is stale: %d was seen", r.token, last)
	}
	if _, err := tx.Exec(ctx, "update fencegate_bench.fences set token = $2 where resource = $1", string(r.name),
		r.token); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		insert into fencegate_bench.records (resource, key, value) values ($1, $2, $3)
		on conflict (resource, key) do update set value = excluded.value`, string(r.name), benchKey, value)
	return err
}

// fillFences makes the rows that the handmade fence locks, those that are not there yet.
func fillFences(ctx context.Context, pool *pgxpool.Pool, resources []*resource) error {
	names, tokens := make([]string, len(resources)), make([]int64, len(resources))
	for i, r := range resources {
		names[i], tokens[i] = string(r.name), r.token
	}
	_, err := pool.Exec(ctx, `
		insert into fencegate_bench.fences (resource, token) select * from unnest($1::text[], $2::bigint[])
		on conflict do nothing`, names, tokens)
	return err
}
