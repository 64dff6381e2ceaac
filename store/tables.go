package store

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// SQLVerdicts are the codes of rejections by SQL.
var SQLVerdicts = []Verdict{
	VerdictTokenRequired, VerdictTokenUnknown, VerdictTokenStale, VerdictLeaseMismatch, VerdictLeaseExpired,
	VerdictTokenReused, VerdictTruncate,
}

// The verdicts that only SQL has.
const (
	// VerdictTokenReused: the transaction with this token and sequence was committed before.
	VerdictTokenReused Verdict = "token_reused"
	// VerdictTruncate: a protected table whose rows belong to many resources was to be truncated.
	VerdictTruncate Verdict = "truncate"
)

// ProtectedTable is a user's table whose rows can be written only under the fence of their resource.
type ProtectedTable struct {
	ID          int64
	Name        string // schema.table, not quoted; the oid of a table that was dropped
	Template    string
	Mode        string // enforce or observe
	ProtectedAt time.Time
	Problem     string     // what kept rows from being checked at CheckedAt; "": nothing
	CheckedAt   *time.Time // when a gateway looked last, some 30 s ago; nil: never yet
	// Rows is the estimate of the last vacuum or analyze; nil before the first.
	Rows *int64
	// Rejections are the recorded ones of groups that were last seen in the last 24 hours. Of a table that is enforced,
	// the record has only what was reported besides: a rejection rolls its transaction back.
	Rejections int64
}

// TableQuery selects protected tables, in byte order of their names.
type TableQuery struct {
	Prefix string // of the name, any text

	// AfterID and AfterName are those of the last table that was seen; zero: none was.
	AfterID   int64
	AfterName string
	Limit     int // 1 to PageMax
}

// Check returns ErrInvalid, naming the field, if the query is outside its limits.
func (q TableQuery) Check() error {
	return cmp.Or(checkText("prefix", q.Prefix, 0, NameBytesMax), checkLimit(q.Limit))
}

// tablesSQL reads the fields of a ProtectedTable. It waits for no lock on a table: it reads only the catalog.
const tablesSQL = `
	select t.id, t.name, t.template, t.mode, t.protected_at,
		coalesce(t.problem, ''), nullif(t.checked_at, '-infinity'), (
			select sum(c.reltuples)::bigint
			from fence.with_partitions(t.table_id) as p (relid) join pg_class c on c.oid = p.relid
			where c.relkind <> 'p' and c.reltuples >= 0),
		(select coalesce(sum(r.count), 0)::bigint from fence.rejections r
		where r.source = 'sql' and r.key = t.name and r.changed_at > clock_timestamp() - interval '24 hours')
	from (
		select * from (
			select p.id, p.table_id, p.template, p.mode, p.protected_at, p.problem, p.checked_at,
				case when c.oid is null then p.table_id::oid::text else format('%s.%s', n.nspname, c.relname) end
					collate "C" as name
			from fence.protected_tables p
			left join pg_class c on c.oid = p.table_id left join pg_namespace n on n.oid = c.relnamespace
		) named
		where starts_with(name, $1) and (name, id) > ($2, $3)
		order by name, id
		limit $4
	) t
	order by t.name, t.id`

// Tables returns protected tables. It returns ErrInvalid or ErrUnavailable.
func (s *Store) Tables(ctx context.Context, query TableQuery) ([]ProtectedTable, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	args := []any{query.Prefix, query.AfterName, query.AfterID, query.Limit}
	tables, err := collect(ctx, s.query, tablesSQL, args, pgx.RowToStructByPos[ProtectedTable])
	if err != nil {
		return nil, fmt.Errorf("list the protected tables: %w", err)
	}
	return tables, nil
}
