package store_test

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// sessionAction is a command about the lease session that a database session opened.
func (s *scenario) sessionAction(a *scenarioSession, verb string) (action, error) {
	if verb == "open-session" {
		return func(ctx context.Context, conn *pgx.Conn) (scenarioResult, error) {
			var id uuid.UUID
			err := conn.QueryRow(ctx, `
				insert into fence.sessions (session_id, owner_id, ttl_ms, created_at, expires_at)
				select gen_random_uuid(), $1, 30000, clock_timestamp(), clock_timestamp() + interval '30 seconds'
				returning session_id`, a.name).Scan(&id)
			a.session = &id
			return func() string { return "opened" }, err
		}, nil
	}
	if a.session == nil {
		return nil, fmt.Errorf("%s has opened no session", a.name)
	}
	switch verb {
	case "keep-alive":
		return statusAction("kept alive", "select status from fence.keep_alive($1)", a.session), nil
	case "end-session":
		return statusAction("released", "select fence.end_session($1)", a.session), nil
	}
	return func(ctx context.Context, conn *pgx.Conn) (scenarioResult, error) {
		var ended int64
		err := conn.QueryRow(ctx, "select ended from fence.settle_leases($1, '', 10, 60000)", a.session).Scan(&ended)
		return func() string { return fmt.Sprintf("%d leases ended", ended) }, err
	}, nil
}

func (s *scenario) sessionOf(name string) (*uuid.UUID, error) {
	a, ok := s.sessions[name]
	if !ok || a.session == nil {
		return nil, fmt.Errorf("%s has opened no session", name)
	}
	return a.session, nil
}
