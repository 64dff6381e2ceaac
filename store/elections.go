package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ElectionQuery selects elections, in byte order of their names.
type ElectionQuery struct {
	Prefix string // of the name, any text
	After  string // names greater than this, in byte order
	Limit  int    // 1 to PageMax

	Within []string // only these names and those below them; nil: all
}

// Check returns ErrInvalid if the query is outside its limits.
func (q ElectionQuery) Check() error { return checkLimit(q.Limit) }

// electionsSQL chooses the locks whose newest lease was made by a campaign. That is known by its metadata, in which a
// campaign keeps the leader's value: an object that has the one field "value", written without a space. The text is
// kept as it came. Escapes are replaced before PostgreSQL reads it: a row with an escaped NUL, stored before CheckJSON
// refused it, would make every list fail.
var electionsSQL = `
	select f.resource, f.granted_token, ` + openSQL + ` as open, f.resource as sorted
	from fence.leases l
	join fence.fences f on f.resource = l.lock and f.granted_token = l.fencing_token
	where l.metadata::text like '{"value":%' and l.mode = 'exclusive' and l.scope = 'node'
		and (select count(*) from json_object_keys(regexp_replace(l.metadata::text, '\\(u[0-9a-fA-F]{4}|.)', '_', 'g')::json)) = 1
		and l.lock >= @prefix and l.lock <= @prefix || repeat(chr(1114111), 128) and l.lock > @after
		and ` + withinSQL("l.lock", "@within") + `
	order by l.lock
	limit @limit`

// Elections returns the locks that are elections. It returns ErrInvalid or ErrUnavailable.
func (s *Store) Elections(ctx context.Context, query ElectionQuery) ([]Lock, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	args := pgx.NamedArgs{
		"prefix": narrowed(query.Prefix, query.Within), "after": query.After, "limit": query.Limit, "queue_max": QueueMax,
		"within": query.Within,
	}
	sql := fmt.Sprintf(showSQL, electionsSQL, "0::bigint", shownColumns, "", "")
	return readLocks(ctx, s.query, sql, pgx.QueryExecModeCacheDescribe, args)
}
