package bench

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Fence is what each of many resources has that are made by MakeFences.
type Fence struct {
	Token       int64 // of the newest grant, which may still write
	Key         string
	Value       []byte // of the one record
	ContentType string
}

// MakeFences makes the resources named prefix and a number, from one number to another, with a fence and a record each,
// as if each had been acquired and written to. Millions of leases through the lock service would take an hour; the rows
// are the same.
func MakeFences(ctx context.Context, db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, prefix string, from, to int, fence Fence) error {
	_, err := db.Exec(ctx, `
		insert into fence.fences (resource, granted_token, last_version, open)
		select $1 || n, $4::bigint, 1, true from generate_series($2::integer, $3::integer) n`, prefix, from, to, fence.Token)
	if err != nil {
		return fmt.Errorf("make fences: %w", err)
	}
	_, err = db.Exec(ctx, `
		insert into fence.records (resource, key, version, fencing_token, sequence, updated_at, content_type, value)
		select $1 || n, $5, 1, $4::bigint, 0, now(), $6, $7::bytea from generate_series($2::integer, $3::integer) n`,
		prefix, from, to, fence.Token, fence.Key, fence.ContentType, fence.Value)
	if err != nil {
		return fmt.Errorf("make records: %w", err)
	}
	return nil
}
