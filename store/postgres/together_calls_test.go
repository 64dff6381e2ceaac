package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/store"
)

// togetherCall is a call of one of the functions, about one lease.
type togetherCall struct {
	function  string // with its arguments: $1 the lock, $2 the token
	answer    string // the column of its answer
	of        func(*fixture) store.Lease
	owner, id string
}

func newestOrNone(s *fixture) store.Lease {
	if len(s.leases) == 0 {
		return store.Lease{}
	}
	return s.newest()
}

func acquiring(mode store.Mode) togetherCall {
	return togetherCall{of: newestOrNone, answer: "outcome", function: fmt.Sprintf("fence.acquire_leases(array[$1], "+
		"array['together'], array['principal'], array['%s'], array[3600000], array['together'], array[null::text], array[0], "+
		"'{}')", mode)}
}

// acquiringOne is acquiring by the function for one lock, in a session, with its other arguments.
func acquiringOne(mode store.Mode, session, arguments string) togetherCall {
	return togetherCall{of: newestOrNone, answer: "outcome", function: fmt.Sprintf("fence.acquire_lease(fence.lease_request("+
		"$1, 'together', '%s', 'node', 3600000, %s, 'together', null, 'principal'), %s)", mode, session, arguments)}
}

func onLease(answer, function string) togetherCall {
	return togetherCall{of: (*fixture).newest, owner: "$3", id: "$4", answer: answer, function: function}
}

func (c togetherCall) ofFirst() togetherCall {
	c.of = (*fixture).first
	return c
}

var (
	toAcquire         = acquiring(store.Exclusive)
	toShare           = acquiring(store.Shared)
	toRelease         = onLease("status", "fence.release_leases(array[$1], array[%s], array[%s::uuid], array[$2::bigint])")
	toReleaseFirst    = toRelease.ofFirst()
	toAcquireOne      = acquiringOne(store.Exclusive, "null", "0, null, false")
	toShareOne        = acquiringOne(store.Shared, "null", "0, null, false")
	toReleaseOne      = onLease("status", "fence.release_lease($1, %s, %s::uuid, $2, null, false)")
	toReleaseFirstOne = toReleaseOne.ofFirst()

	toWaitHere         = acquiringOne(store.Exclusive, "null", "1000, '"+hereID+"', false")
	toAcquireInSession = acquiringOne(store.Exclusive,
		"(select session_id from fence.sessions order by created_at desc limit 1)", "0, null, true")
	toSeeHowLong = togetherCall{of: newestOrNone, answer: "(f.left_ms > 0)::text", function: toAcquireOne.function}

	toRenew = onLease("status",
		"fence.renew_leases(array[$1], array[%s], array[%s::uuid], array[$2::bigint], array[7200000], false)")
	toShorten = onLease("status",
		"fence.renew_leases(array[$1], array[%s], array[%s::uuid], array[$2::bigint], array[1000], false)")
)

func (c togetherCall) as(owner string) togetherCall {
	c.owner = "'" + owner + "'"
	return c
}

func (c togetherCall) with(id string) togetherCall {
	c.id = id
	return c
}

// send sends the call and returns the answer: undecided where there is none, or the code of an error that is the
// schema's own. It waits for no lock for long.
func (c togetherCall) send(ctx context.Context, s *fixture) (answer string, err error) {
	lease := c.of(s)
	from, args := " from "+c.function, []any{s.lock}
	if c.owner != "" {
		// All arguments are used, whatever replaces them.
		from = fmt.Sprintf(" from (select $3::text, $4::uuid) a, "+c.function, c.owner, c.id)
		args = append(args, lease.Token, lease.OwnerID, lease.ID)
	}
	sql := "select coalesce((select coalesce(" + c.answer + ", 'nothing')" + from + " f limit 1), 'undecided')"
	err = pgx.BeginFunc(ctx, s.SQL, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local lock_timeout = '200ms'"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, sql, args...).Scan(&answer)
	})
	if failed := (*pgconn.PgError)(nil); errors.As(err, &failed) && strings.HasPrefix(failed.Code, "LF") {
		return failed.Code, nil
	}
	return answer, err
}

// is expects an answer.
func (c togetherCall) is(want string) step {
	return func(ctx context.Context, s *fixture) error {
		answer, err := c.send(ctx, s)
		if err == nil && answer != want {
			err = fmt.Errorf("%s: %s, want %s", c.function, answer, want)
		}
		return err
	}
}

// whileHolding expects an answer while another session holds a lock, which the statement takes.
func (c togetherCall) whileHolding(statement, want string) step {
	return func(ctx context.Context, s *fixture) error {
		return s.whileHolding(ctx, statement, s.lock, func() error { return s.do(ctx, c.is(want)) })
	}
}

// tells expects an answer, and that a notification is sent after it.
func (c togetherCall) tells(want string, of notification) step {
	return func(ctx context.Context, s *fixture) error {
		listener, err := pgx.ConnectConfig(ctx, s.SQL.Config().ConnConfig)
		if err != nil {
			return err
		}
		defer listener.Close(context.WithoutCancel(ctx))
		var channel, payload string
		if err := listener.QueryRow(ctx, "select "+of.channel+", "+of.payload, s.lock).Scan(&channel, &payload); err != nil {
			return err
		}
		channel = pgx.Identifier{channel}.Sanitize()
		if _, err := listener.Exec(ctx, "listen "+channel); err != nil {
			return err
		}
		if err := s.do(ctx, c.is(want)); err != nil {
			return err
		}
		if _, err := listener.Exec(ctx, "notify "+channel+", 'the end'"); err != nil {
			return err
		}
		for {
			told, err := listener.WaitForNotification(ctx)
			switch {
			case err != nil:
				return err
			case strings.HasPrefix(told.Payload, of.begins) && strings.HasSuffix(told.Payload, payload):
				return nil
			case told.Payload == "the end":
				return fmt.Errorf("%s: nothing was sent on %s", c.function, channel)
			}
		}
	}
}

// notification is what a call may send about a lock, $1: on a channel, with a payload of this beginning and end.
type notification struct{ channel, payload, begins string }

// wakeOf is a wake of a gateway about the waiters of a lock, both in SQL.
func wakeOf(gateway, lock, begins string) notification {
	return notification{
		channel: "fence.gateway_channel('" + gateway + "')", begins: begins,
		payload: "left(encode(sha256(uuid_send('" + gateway + "') || convert_to(" + lock + ", 'UTF8')), 'hex'), 32)",
	}
}

var (
	changeOf    = notification{channel: "'fence_changes'", payload: "(select key::text from fence.watched where lock = $1)"}
	wakeHere    = wakeOf(hereID, "$1", "")
	wakeAbove   = wakeOf(hereID, `regexp_replace($1, '/[^/]*$', '')`, "0 ")
	wakeThere   = wakeOf(thereID, "$1", "")
	wakeThereAt = wakeOf(thereID, "$1", "0 ")
)

// writesBelow writes below the lock with the token of its first lease, which is accepted or not.
func writesBelow(accepted bool) step {
	if accepted {
		return wrote(with(first, sequence(1), at("/x")))
	}
	return rejected(with(first, sequence(2), at("/x")), "token_stale released")
}
