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
	id, err := s.sessionOf(a.name)
	if err != nil {
		return nil, err
	}
	if verb == "keep-alive" {
		return statusAction("kept alive", "select status from fence.keep_alive($1)", id), nil
	}
	return statusAction("released", "select fence.end_session($1)", id), nil
}

func (s *scenario) sessionOf(name string) (*uuid.UUID, error) {
	a, ok := s.sessions[name]
	if !ok || a.session == nil {
		return nil, fmt.Errorf("%s has opened no session", name)
	}
	return a.session, nil
}
