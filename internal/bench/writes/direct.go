package writes

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// directTarget is the plain upsert.
func directTarget(databaseURL string) target {
	const upsert = `
		insert into fencegate_bench.direct (resource, key, value) values ($1, $2, $3)
		on conflict (resource, key) do update set value = excluded.value`
	return target{name: nameDirect, tuned: poolSizes, open: func(ctx context.Context, s setting) (session, error) {
		pool, err := openPool(ctx, databaseURL, s.connections)
		return session{close: closing(pool), write: func(ctx context.Context, _ int, w *writer) error {
			r, value := w.next()
			_, err := pool.Exec(ctx, upsert, string(r.name), benchKey, value)
			return err
		}}, err
	}}
}

// poolSizes are the numbers of connections to try.
var poolSizes = []int{8, 16, 32, 64, 128}

// prepareTables makes the tables of the targets that have some of their own, laid out as fencegate's are.
func prepareTables(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `
		drop schema if exists fencegate_bench cascade;
		create schema fencegate_bench;
		create table fencegate_bench.direct (
			resource text collate "C", key text collate "C", value bytea not null, primary key (resource, key)
		) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
		create table fencegate_bench.records (like fencegate_bench.direct including all)
			with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
		create table fencegate_bench.fences (
			resource text collate "C" primary key, token bigint not null
		) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
		create table fencegate_bench.unfenced (like fencegate_bench.direct including all)
			with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05)`)
	if err != nil {
		return fmt.Errorf("make the plain tables: %w", err)
	}
	return nil
}

func openPool(ctx context.Context, databaseURL string, connections int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("--database-url: %w", err)
	}
	config.MaxConns = int32(connections)
	config.ConnConfig.RuntimeParams["jit"] = "off"
	return pgxpool.NewWithConfig(ctx, config)
}

func closing(pool *pgxpool.Pool) func() error {
	return func() error {
		pool.Close()
		return nil
	}
}
