package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Identity is which database it is, as fence.lineage says.
type Identity struct {
	System   int64
	Timeline int32
	Tokens   uint32
}

// Identify reads which database a connection is to. A standby, or one without the schema, is none: it becomes another
// one when it is promoted, migrated or restored. It returns ErrUnavailable, which is ErrDatabaseWentBack if the database
// is not to be used any more.
func (s *Store) Identify(ctx context.Context, conn *pgx.Conn) (Identity, error) {
	now, err := s.judge(ctx, conn.PgConn())
	if err != nil {
		return Identity{}, NotApplied(err)
	}
	return Identity{now.system, int32(now.timeline), uint32(now.tokens)}, nil
}
