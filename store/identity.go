package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// Identity is which database it is, as fence.running_database says.
type Identity struct {
	System   int64
	Timeline int32
	Tokens   uint32
}

// Identify reads which database a connection is to. Without the schema it is none, which becomes another one by a
// migration or restore. It returns ErrUnavailable.
func (s *Store) Identify(ctx context.Context, conn *pgx.Conn) (i Identity, err error) {
	const sql = "select r.system_identifier, r.timeline, r.tokens_oid from fence.running_database() r"
	err = conn.QueryRow(ctx, sql, pgx.QueryExecModeExec).Scan(&i.System, &i.Timeline, &i.Tokens)
	if err = classify(err); errors.Is(err, ErrNotMigrated) {
		return Identity{}, nil
	}
	return i, err
}
