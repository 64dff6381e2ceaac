package drive

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/store"
)

// Store performs operations on a store, or an engine, of PostgreSQL.
type Store struct {
	spec.Service
	// SQL is for doing past it what time does.
	SQL *pgxpool.Pool
	// InMilliseconds: its times have no more.
	InMilliseconds bool
	// Sweep does what a sweeper does.
	Sweep func(context.Context) error
	// WriteSet sends the writes of a set in its own way; nil: by Service.Write.
	WriteSet func(context.Context, []spec.Op) (spec.Answer, error)
	// HoldBatches holds back so many calls, until all of them wait or were answered; nil: they are sent as they come.
	HoldBatches func(calls int) (answered func())
	// Expire, if set, ends the lease of a lock that is kept elsewhere, where nobody but its holder knows when it expires.
	Expire func(lock store.Name)
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
		if s.InMilliseconds {
			at -= at % 1000
		}
		return done, spec.Choice{Until: at}, err
	case spec.Set:
		if s.WriteSet != nil {
			answer, err := s.WriteSet(ctx, op.Parts)
			return answer, spec.Choice{}, err
		}
	}
	op.Late = op.Late && before.HasBegun()
	answer, chosen := spec.Perform(ctx, s.Service, op)
	if answer.Code == spec.CodeWentBack { // the client was not told which lease was given back
		var at time.Time
		err := s.SQL.QueryRow(ctx, "select fencing_token, lease_id, granted_at from fence.leases where lock = $1 "+
			"order by fencing_token desc limit 1", op.Name).Scan(&chosen.Token, &chosen.ID, &at)
		chosen.GrantedAt = at.UnixMicro()
		return answer, chosen, err
	}
	if op.Kind == spec.Guard {
		if _, now := before.Step(op, chosen); answer.Code == spec.CodeSnapshot {
			chosen.Judged = spec.JudgedFailed
		} else if answer.Code != spec.CodeAdmitted && !answer.Same(now) {
			chosen.Judged = spec.JudgedBefore
		}
	}
	if s.Expire != nil {
		answer.ExpiresAt, chosen.Until = 0, 0
	}
	return answer, chosen, nil
}

// endings are the statements that do what time does.
var endings = map[spec.Kind]string{
	spec.Expire: `
		update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity'
		where lock = $1 and fencing_token = $2 and ended_at is null
		returning (extract(epoch from expires_at) * 1000000)::bigint`,
	spec.HoldOut: `
		update fence.leases l set hold_until = now.at, expires_at = now.at, check_at = now.at
		from (select clock_timestamp() as at) now
		where l.lock = $1 and l.fencing_token = $2 and l.hold_until is not null
		returning (extract(epoch from now.at) * 1000000)::bigint`,
	spec.ExpireSession: ExpireSession,
}

// ExpireSession is the statement that lets the session $1 run out, and with it its leases and waiters. It returns when, in
// microseconds.
const ExpireSession = `
		with session as (
			update fence.sessions set expires_at = clock_timestamp(), check_at = '-infinity'
			where session_id = $1 and ended_at is null and expires_at > clock_timestamp()
			returning session_id, expires_at
		), leases as (
			update fence.leases l set expires_at = s.expires_at from session s
			where l.session_id = s.session_id and l.ended_at is null and l.expires_at > s.expires_at
		), waiters as (
			update fence.waiters w set session_until = s.expires_at from session s where w.session_id = s.session_id
		)
		select (extract(epoch from expires_at) * 1000000)::bigint from session`

// end moves the end of what runs to now, in microseconds. 0: it does not run.
func (s Store) end(ctx context.Context, before spec.State, op spec.Op) (at int64, err error) {
	arguments := []any{op.Session}
	if op.Kind != spec.ExpireSession {
		arguments = []any{op.Name, op.Token}
		if !before.Runs(op.Name, op.Token) {
			return 0, nil
		}
	}
	if op.Kind == spec.Expire && s.Expire != nil {
		s.Expire(op.Name)
		return 0, nil
	}
	err = s.SQL.QueryRow(ctx, endings[op.Kind], arguments...).Scan(&at)
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

// Cluster performs operations on a cluster: what time does, at the node of the name.
type Cluster struct {
	// Nodes have the service of the cluster, and each its own SQL.
	Nodes []Store
	// At is the node that has a name.
	At func(store.Name) int
}

// Perform performs an operation.
func (c Cluster) Perform(ctx context.Context, before spec.State, op spec.Op) (spec.Answer, spec.Choice, error) {
	name := op.Name
	if len(op.Parts) > 0 {
		name = op.Parts[0].Name
	}
	if op.Kind != spec.Sweep {
		return c.Nodes[c.At(name)].Perform(ctx, before, op)
	}
	var failed error
	for _, node := range c.Nodes {
		failed = errors.Join(failed, node.Sweep(ctx))
	}
	return spec.Answer{Code: spec.CodeDone}, spec.Choice{}, failed
}

// Forget removes the policies.
func (c Cluster) Forget(ctx context.Context) (failed error) {
	for _, node := range c.Nodes {
		failed = errors.Join(failed, node.Forget(ctx))
	}
	return failed
}
