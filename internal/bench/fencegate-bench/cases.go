package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What all workloads write.
const (
	benchKey    = "value"
	contentType = "application/octet-stream"
)

// makeFences makes the resources named prefix and a number, from one number to another, with a fence and a record each,
// as if each had been acquired and written to. Acquiring millions of leases would take an hour; the rows are the same.
func makeFences(ctx context.Context, db *pgxpool.Pool, prefix string, from, to int, value []byte) (
	token int64, err error,
) {
	if err := db.QueryRow(ctx, "select nextval('fence.tokens')").Scan(&token); err != nil {
		return 0, fmt.Errorf("take a token: %w", err)
	}
	_, err = db.Exec(ctx, `
		insert into fence.fences (resource, granted_token, last_version, open)
		select $1 || n, $4::bigint, 1, true from generate_series($2::integer, $3::integer) n`, prefix, from, to, token)
	if err != nil {
		return 0, fmt.Errorf("make fences: %w", err)
	}
	_, err = db.Exec(ctx, `
		insert into fence.records (resource, key, version, fencing_token, sequence, updated_at, content_type, value)
		select $1 || n, $5, 1, $4::bigint, 0, now(), $6, $7::bytea from generate_series($2::integer, $3::integer) n`,
		prefix, from, to, token, benchKey, contentType, value)
	if err != nil {
		return 0, fmt.Errorf("make records: %w", err)
	}
	return token, nil
}
