package store_test

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// leaseCommand is what a command about a lease says: NAME [of=SESSION] [owner=NAME] [request=ID] [ttl_ms=N] [shared]
// [subtree] [in=SESSION].
type leaseCommand struct {
	store.LeaseRef
	request     *string
	ttlMS       *int64
	mode, scope string
	in          *uuid.UUID
}

// leaseCommand takes what is not said from the session's own newest grant on the name.
func (s *scenario) leaseCommand(a *scenarioSession, words []string) (leaseCommand, error) {
	c := leaseCommand{LeaseRef: a.granted[words[0]], mode: "exclusive", scope: "node"}
	c.Lock = store.Name(words[0])
	c.OwnerID = cmp.Or(c.OwnerID, a.name)
	for _, word := range words[1:] {
		option, value, _ := strings.Cut(word, "=")
		var err error
		switch option {
		case "of":
			c.LeaseRef, err = s.newestOf(words[0], value)
		case "owner":
			c.OwnerID = value
		case "request":
			c.request = &value
		case "ttl_ms":
			c.ttlMS, err = numberArgument(value)
		case "shared":
			c.mode = option
		case "subtree":
			c.scope = option
		case "in":
			c.in, err = s.sessionOf(value)
		default:
			err = fmt.Errorf("what is %q?", word)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// tokenOf is the token that a word means: a number, or SESSION[@NAME], its newest on the name.
func (s *scenario) tokenOf(name, word string) (int64, error) {
	if number, err := strconv.ParseInt(word, 10, 64); err == nil {
		return number, nil
	}
	lease, err := s.newestOf(name, word)
	return lease.Token, err
}

func (s *scenario) newestOf(name, word string) (store.LeaseRef, error) {
	session, of, elsewhere := strings.Cut(word, "@")
	if elsewhere {
		name = of
	}
	a, ok := s.sessions[session]
	if !ok || a.granted[name].Token == 0 {
		return store.LeaseRef{}, fmt.Errorf("%s was granted nothing on %s", session, name)
	}
	return a.granted[name], nil
}

func (s *scenario) acquireAction(a *scenarioSession, c leaseCommand) action {
	return func(ctx context.Context, conn *pgx.Conn) (scenarioResult, error) {
		var outcome string
		var token *int64
		var id *uuid.UUID
		var owner, endReason *string
		err := conn.QueryRow(ctx, `
			select outcome, (lease).fencing_token, (lease).lease_id, (lease).owner_id, (lease).end_reason
			from fence.acquire_lease(fence.lease_request($1, $2, $3, $4, coalesce($5, 30000), $6, $7, null), 0, null)`,
			c.Lock, c.OwnerID, c.mode, c.scope, c.ttlMS, c.in, c.request).
			Scan(&outcome, &token, &id, &owner, &endReason)
		if err != nil {
			return nil, err
		}
		return func() string {
			switch outcome {
			case "granted":
				a.granted[string(c.Lock)] = store.LeaseRef{Lock: c.Lock, OwnerID: *owner, ID: *id, Token: *token}
				return "granted " + s.token(*token)
			case "held":
				if owner == nil {
					return "free, and others are before it"
				}
				return "held by " + *owner
			case "lost", "session_lost":
				return fmt.Sprintf("%s: %s", outcome, *endReason)
			}
			return outcome
		}, nil
	}
}

func (s *scenario) renewAction(c leaseCommand) action {
	return statusAction("renewed", "select status from fence.renew_lease($1, $2, $3, $4, $5)", c.Lock, c.OwnerID, c.ID,
		c.Token, c.ttlMS)
}

func (s *scenario) releaseAction(c leaseCommand) action {
	return statusAction("released", "select status from fence.release_lease($1, $2, $3, $4)", c.Lock, c.OwnerID, c.ID, c.Token)
}

// statusAction is a call that only the holder may make. The statement returns the status of the lease or
// the session.
func statusAction(success, sql string, args ...any) action {
	return func(ctx context.Context, conn *pgx.Conn) (scenarioResult, error) {
		var status string
		err := conn.QueryRow(ctx, sql, args...).Scan(&status)
		return func() string {
			if status == "live" || status == success {
				return success
			}
			return "lost: " + status
		}, err
	}
}

func (s *scenario) breakAction(c leaseCommand) action {
	return func(ctx context.Context, conn *pgx.Conn) (scenarioResult, error) {
		var outcome string
		var token *int64
		err := conn.QueryRow(ctx, "select outcome, (lease).fencing_token from fence.break($1, 'ordered')",
			c.Lock).Scan(&outcome, &token)
		return func() string {
			if outcome != "broken" {
				return outcome
			}
			return "broke the lease of token " + s.token(*token)
		}, err
	}
}

func sweepAction(ctx context.Context, conn *pgx.Conn) (scenarioResult, error) {
	var held, expired int64
	if err := conn.QueryRow(ctx, "select done from fence.sweep('holds', '0', 1000, null, null)").Scan(&held); err != nil {
		return nil, err
	}
	err := conn.QueryRow(ctx, "select done from fence.sweep('leases', '0', 1000, null, null)").Scan(&expired)
	return func() string { return fmt.Sprintf("%d expired", held+expired) }, err
}
