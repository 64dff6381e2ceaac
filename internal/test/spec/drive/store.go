package drive

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/spec"
)

// Store performs operations on a store, or an engine, of PostgreSQL.
type Store struct {
	spec.Service
	// SQL is for doing past it what time does.
	SQL *pgxpool.Pool
	// Sweep does what a sweeper does.
	Sweep func(context.Context) error
	// WriteSet sends the writes of a set in its own way; nil: by Service.Write.
	WriteSet func(context.Context, []spec.Op) (spec.Answer, error)
	// HoldBatches holds back so many calls, until all of them wait or were answered; nil: they are sent as they come.
	HoldBatches func(calls int) (answered func())
}

// Hold begins operations that are sent together.
func (s Store) Hold(calls int) (answered func()) {
	if s.HoldBatches == nil {
		return func() {}
	}
	return s.HoldBatches(calls)
}

// Perform performs an operation.
func (s Store) Perform(ctx context.Context, before spec.State, op spec.Op) (spec.Answer, spec.Choice, error) {
	done := spec.Answer{Code: spec.CodeDone}
	switch op.Kind {
	case spec.Sweep:
		return done, spec.Choice{}, s.Sweep(ctx)
	case spec.Expire, spec.HoldOut, spec.ExpireSession:
		at, err := s.end(ctx, before, op)
		return done, spec.Choice{Until: at}, err
	case spec.Set:
		if s.WriteSet != nil {
			answer, err := s.WriteSet(ctx, op.Parts)
			return answer, spec.Choice{}, err
		}
	}
	answer, chosen := spec.Perform(ctx, s.Service, op)
	return answer, chosen, nil
}

// end moves the end of what runs to now, in microseconds. 0: it does not run.
func (s Store) end(ctx context.Context, before spec.State, op spec.Op) (at int64, err error) {
	sql := map[spec.Kind]string{
		spec.Expire: `
			update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity'
			where lock = $1 and fencing_token = $2 and ended_at is null and session_id is null
			returning (extract(epoch from expires_at) * 1000000)::bigint`,
		spec.HoldOut: `
			update fence.leases l set hold_until = now.at, expires_at = now.at, check_at = now.at
			from (select clock_timestamp() as at) now
			where l.lock = $1 and l.fencing_token = $2 and l.hold_until is not null
			returning (extract(epoch from now.at) * 1000000)::bigint`,
		spec.ExpireSession: `
			update fence.sessions set expires_at = clock_timestamp(), check_at = '-infinity'
			where session_id = $1 and ended_at is null and expires_at > clock_timestamp()
			returning (extract(epoch from expires_at) * 1000000)::bigint`,
	}[op.Kind]
	arguments := []any{op.Session}
	if op.Kind != spec.ExpireSession {
		arguments = []any{op.Name, op.Token}
		if !before.Runs(op.Name, op.Token) {
			return 0, nil
		}
	}
	err = s.SQL.QueryRow(ctx, sql, arguments...).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return at, err
}

// Forget removes the policies.
func (s Store) Forget(ctx context.Context) error {
	_, err := s.SQL.Exec(ctx, "delete from fence.policies")
	return err
}
