package store

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// Record is a key and a value stored under a resource.
type Record struct {
	Resource    Name
	Key         Name
	Version     int64
	Token       int64 // of the write that stored it
	Sequence    *int64
	ContentType string
	Value       []byte // nil in lists
	Size        int64  // of the value in bytes
	UpdatedAt   time.Time
}

// RecordQuery selects records of a resource.
type RecordQuery struct {
	Resource Name
	Prefix   string // of the key, any text
	After    string // keys greater than this, in byte order
	Limit    int    // 1 to PageMax

	// ByTime has first what was written last, those of the same microsecond in byte order of their keys. Then After is the
	// key of the last record that was seen, and AfterMicros when that was written, in microseconds since 1970; zero: none
	// was.
	ByTime      bool
	AfterMicros int64
}

// Check returns ErrInvalid if the query is outside its limits.
func (q RecordQuery) Check() error { return checkLimit(q.Limit) }

const (
	recordSQL = `
		select r.version, r.fencing_token, r.sequence, r.content_type, r.value, octet_length(r.value), r.updated_at
		from fence.records r
		where r.resource = $1 and r.key = $2`
	// A condition without a column is evaluated once, before any row is looked for.
	durableRecordSQL = recordSQL + " and (select fence.confirm_read())"

	recordsSQL = `
		select r.resource, r.key, r.version, r.fencing_token, r.sequence, r.content_type, null::bytea, octet_length(r.value),
			r.updated_at
		from fence.records r
		where r.resource = $1 and r.key >= $2 and r.key <= $2 || repeat(chr(1114111), 128) and `
	recordsByKeySQL = recordsSQL + `r.key > $3
		order by r.key
		limit $4`
	recordsByTimeSQL = recordsSQL + `r.updated_at <= $5 and (r.updated_at < $5 or r.key > $3)
		order by r.updated_at desc, r.key
		limit $4`
)

// Record returns a record as it was stored, ErrNotFound, or ErrUnavailable. A failover may take back what it has read if
// no standby has confirmed that; see DurableRecord.
func (s *Store) Record(ctx context.Context, resource, key Name) (Record, error) {
	return s.record(ctx, statement{}, recordSQL, resource, key)
}

// DurableRecord is Record, and returns when what it has read, also that there is no record, is as durable as an
// acknowledged write. It waits where writes wait, so it takes their connections.
func (s *Store) DurableRecord(ctx context.Context, resource, key Name) (Record, error) {
	return s.record(ctx, statement{purpose: forTransactions}, durableRecordSQL, resource, key)
}

func (s *Store) record(ctx context.Context, stmt statement, sql string, resource, key Name) (Record, error) {
	record := Record{Resource: resource, Key: key}
	err := s.queryRow(ctx, stmt, sql, []any{resource, key},
		&record.Version, &record.Token, &record.Sequence, &record.ContentType, &record.Value, &record.Size, &record.UpdatedAt)
	return record, notFound(err, "there is no record %s of %s", key, resource)
}

// Records returns the records of a resource without their values, in byte order of their keys, or by time. It returns
// ErrInvalid or ErrUnavailable.
func (s *Store) Records(ctx context.Context, query RecordQuery) ([]Record, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	sql, args := recordsByKeySQL, []any{query.Resource, query.Prefix, query.After, query.Limit}
	if query.ByTime {
		if query.AfterMicros == 0 {
			query.AfterMicros = math.MaxInt64
		}
		sql, args = recordsByTimeSQL, append(args, timeAt(query.AfterMicros))
	}
	return collect(ctx, s.query, sql, args, pgx.RowToStructByPos[Record])
}
