package migrations_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

// sqlLease is an answer of fence.acquire.
type sqlLease struct {
	Status    string
	Reason    pgtype.Text
	ID        pgtype.UUID        `db:"lease_id"`
	Token     pgtype.Int8        `db:"fencing_token"`
	ExpiresAt pgtype.Timestamptz `db:"expires_at"`
	HoldUntil pgtype.Timestamptz `db:"hold_until"`
	Holder    pgtype.Text
	Queue     pgtype.Int8 `db:"queue_length"`
	RetryMS   pgtype.Int8 `db:"recommended_retry_ms"`
}

// ask returns the row of a call.
func ask(t *testing.T, conn *pgx.Conn, call string, args ...any) sqlLease {
	t.Helper()
	rows, err := conn.Query(t.Context(), "select * from fence."+call, args...)
	if err != nil {
		t.Fatalf("%s: %v", call, err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByNameLax[sqlLease])
	if err != nil {
		t.Fatalf("%s: %v", call, err)
	}
	return row
}

// expectAnswer checks the status and the reason of a call's answer.
func expectAnswer(t *testing.T, conn *pgx.Conn, want, call string, args ...any) {
	t.Helper()
	got := ask(t, conn, call, args...)
	if text := strings.TrimSpace(got.Status + " " + got.Reason.String); text != want {
		t.Errorf("%s %v is %s, want %s", call, args, text, want)
	}
}

func granted(t *testing.T, conn *pgx.Conn, call string, args ...any) sqlLease {
	t.Helper()
	lease := ask(t, conn, call, args...)
	if lease.Status != "granted" || !lease.ID.Valid || !lease.Token.Valid || !lease.ExpiresAt.Valid || lease.Holder.Valid {
		t.Fatalf("%s %v: %+v, want a grant", call, args, lease)
	}
	return lease
}

// TestTransactionsAreBounded checks that each function of clients that keeps something locked bounds how long its
// transaction may be idle, for that transaction alone: by its setting, and never for longer than the session's own.
func TestTransactionsAreBounded(t *testing.T) {
	t.Parallel()
	conn := connect(t, postgres.Migrated(t))
	lease := granted(t, conn, "acquire('n', 'o')")
	calls := map[string]string{
		"fence.acquire('other', 'o')":   "lease",
		"fence.renew('n', 'o', $1, $2)": "lease", "fence.release('gone', 'o', $1, $2)": "lease",
		"fence.guard('n', $2, 1)":                          "guard",
		"fence.guard('n', $2, 1, $1)":                      "guard",
		"fence.try_guard('n', $2, 1)":                      "guard",
		"fence.guard('n', $2, 1, digest => 'x')":           "guard",
		"fence.guard_by_settings('n', $2, 1, null, false)": "guard",
	}
	const lasts = "select coalesce(current_setting('transaction_timeout', true), $1)" // before version 17 there is none
	for call, kind := range calls {
		most := map[string]string{"lease": "5s", "guard": "1min"}[kind]
		for _, c := range []struct{ set, want, lasts string }{
			{"select", most, most},
			{"set local idle_in_transaction_session_timeout = '2s'", "2s", most},
			{"set local idle_in_transaction_session_timeout = '2h'", most, most},
			{"set local fencegate." + kind + "_timeout = '7min'", "7min", "7min"},
			{"set local fencegate." + kind + "_timeout = '0'", "0", "0"},
		} {
			var bound, lasting, after string
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), c.set); err != nil {
					return err
				}
				rows, err := tx.Query(t.Context(), "select "+call+" from (select $1::uuid, $2::bigint) a", lease.ID, lease.Token)
				if err == nil {
					rows.Close()
					err = rows.Err()
				}
				if err == nil {
					err = tx.QueryRow(t.Context(), "show idle_in_transaction_session_timeout").Scan(&bound)
				}
				if err == nil {
					err = tx.QueryRow(t.Context(), lasts, c.lasts).Scan(&lasting)
				}
				if err == nil {
					err = errRollback
				}
				return err
			})
			if !errors.Is(err, errRollback) {
				t.Fatalf("%s after %s: %v", call, c.set, err)
			}
			if err := conn.QueryRow(t.Context(), "show idle_in_transaction_session_timeout").Scan(&after); err != nil {
				t.Fatal(err)
			}
			if bound != c.want || lasting != c.lasts || after != "0" {
				t.Errorf("%s after %s: idle for %s, in all %s, and afterwards %s; want %s, %s and 0",
					call, c.set, bound, lasting, after, c.want, c.lasts)
			}
		}
	}
}

var errRollback = errors.New("roll back")

// TestLeasesBySQL checks the answers to a role that has the rights of an application and no others.
func TestLeasesBySQL(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	conn, _ := app(t, url)
	owner := connect(t, url)
	const renew, release = "renew('job', $1, $2, $3)", "release('job', $1, $2, $3)"

	first := granted(t, conn, "acquire('job', 'A', 600000, metadata => '{\"pid\": 7}')")
	held := ask(t, conn, "acquire('job', 'A')")
	if held.Status != "held" || held.Holder.String != "A" || held.ID.Valid || held.Token.Valid ||
		!held.ExpiresAt.Time.Equal(first.ExpiresAt.Time) || held.Queue.Int64 != 0 || !held.Queue.Valid ||
		held.RetryMS.Int64 < 1000 || held.RetryMS.Int64 > 1250 {
		t.Errorf("a try while it is held: %+v", held)
	}
	expectAnswer(t, conn, "lost mismatch", renew, "B", first.ID, first.Token)
	expectAnswer(t, conn, "lost mismatch", renew, "A", uuid.New(), first.Token)
	expectAnswer(t, conn, "lost mismatch", release, "A", first.ID, first.Token.Int64+1)
	expectAnswer(t, conn, "lost not_found", "renew('another', $1, $2, $3)", "A", first.ID, first.Token)
	renewed := ask(t, conn, "renew('job', $1, $2, $3, 3600000)", "A", first.ID, first.Token)
	if renewed.Status != "renewed" || renewed.ExpiresAt.Time.Sub(first.ExpiresAt.Time) < 50*time.Minute {
		t.Errorf("the renewal is %+v", renewed)
	}
	expectAnswer(t, conn, "released", release, "A", first.ID, first.Token)
	expectAnswer(t, conn, "released", release, "A", first.ID, first.Token)
	expectAnswer(t, conn, "lost released", renew, "A", first.ID, first.Token)

	// A lease that has expired is lost. Until it is replaced, it can be released.
	expire := func(lease sqlLease) {
		exec(t, owner, "update fence.leases set expires_at = clock_timestamp() where fencing_token = $1", lease.Token)
	}
	late := granted(t, conn, "acquire('job', 'B')")
	expire(late)
	expectAnswer(t, conn, "lost expired", renew, "B", late.ID, late.Token)
	next := granted(t, conn, "acquire('job', 'C')")
	if first.Token.Int64 >= late.Token.Int64 || late.Token.Int64 >= next.Token.Int64 {
		t.Errorf("the tokens are %d, %d, %d", first.Token.Int64, late.Token.Int64, next.Token.Int64)
	}
	expectAnswer(t, conn, "lost superseded", renew, "B", late.ID, late.Token)
	expectAnswer(t, conn, "lost superseded", release, "B", late.ID, late.Token)
	expire(next)
	expectAnswer(t, conn, "released", release, "C", next.ID, next.Token)

	// An acquire is repeated by its request_id.
	const again = "acquire('again', 'A', request_id => 'r1')"
	lease := granted(t, conn, again)
	if same := granted(t, conn, again); same != lease {
		t.Errorf("the acquire sent again is %+v, want %+v", same, lease)
	}
	expectAnswer(t, conn, "released", "release('again', 'A', $1, $2)", lease.ID, lease.Token)
	expectAnswer(t, conn, "lost released", again)

	granted(t, conn, "acquire('shared', 'A', mode => 'shared')")
	granted(t, conn, "acquire('shared', 'B', mode => 'shared')")
	expectAnswer(t, conn, "held", "acquire('shared', 'C')")
	granted(t, conn, "acquire('tree', 'A', scope => 'subtree')")
	expectAnswer(t, conn, "held", "acquire('tree/branch', 'B')")

	// A try does not jump the queue, and a limit of the policy is shown.
	gateway := uuid.New()
	exec(t, owner, "insert into fence.gateways values ($1, 'infinity')", gateway)
	exec(t, owner, `select fence.acquire_lease(fence.lease_request(
		'shared', 'W', 'exclusive', 'node', 1000, null, null, null), 600000, $1, true)`, gateway)
	exec(t, owner, "update fence.leases set expires_at = clock_timestamp() where lock = 'shared'")
	behind := ask(t, conn, "acquire('shared', 'C')")
	if behind.Status != "held" || behind.Holder.Valid || behind.ExpiresAt.Valid || behind.Queue.Int64 != 1 ||
		behind.RetryMS.Int64 < 100 || behind.RetryMS.Int64 > 125 {
		t.Errorf("a try behind a waiter: %+v", behind)
	}
	exec(t, owner, "insert into fence.policies (prefix, max_hold_ms) values ('job', 5000)")
	if limited := granted(t, conn, "acquire('job', 'D')"); limited.HoldUntil != limited.ExpiresAt {
		t.Errorf("under max_hold_ms the lease is %+v", limited)
	}
}

// badLeaseArguments are refused. $1 and $2 are the lease_id and the token of a lease in a session.
var badLeaseArguments = []struct{ call, state, message string }{
	{"acquire(null, 'A')", "22023", "which is not a name"},
	{"acquire('', 'A')", "22023", "which is not a name"},
	{"acquire('a//b', 'A')", "22023", "which is not a name"},
	{"acquire(repeat('a', 513), 'A')", "22023", "which is not a name"},
	{"acquire('a', null)", "22023", "owner_id has 0 bytes"},
	{"acquire('a', '')", "22023", "owner_id has 0 bytes"},
	{"acquire('a', repeat('ä', 129))", "22023", "owner_id has 258 bytes"},
	{"acquire('a', e'A\\n')", "22023", "owner_id has a control character"},
	{"acquire('a', 'A' || chr(133))", "22023", "owner_id has a control character"},
	{"acquire('a', 'A', 99)", "22023", "ttl_ms is '99'"},
	{"acquire('a', 'A', 86400001)", "22023", "ttl_ms is '86400001'"},
	{"acquire('a', 'A', null)", "22023", "ttl_ms is NULL"},
	{"acquire('a', 'A', mode => 'both')", "22023", "it must be exclusive or shared"},
	{"acquire('a', 'A', mode => null)", "22023", "it must be exclusive or shared"},
	{"acquire('a', 'A', scope => 'all')", "22023", "it must be node or subtree"},
	{"acquire('a', 'A', request_id => '')", "22023", "request_id has 0 bytes"},
	{"acquire('a', 'A', request_id => repeat('r', 257))", "22023", "request_id has 257 bytes"},
	{"acquire('used', 'B', request_id => 'r')", "22023", "by another owner"},
	{"acquire('used', 'A', 500, request_id => 'r')", "22023", "with another mode"},
	{"acquire('a', 'A', metadata => '[]')", "22023", "metadata must be a JSON object"},
	{"acquire('a', 'A', metadata => 'null')", "22023", "metadata must be a JSON object"},
	{"acquire('a', 'A', metadata => json_build_object('a', repeat('b', 4096)))", "22023", "metadata has 4106 bytes"},
	{`acquire('a', 'A', metadata => '{"a": "\u0000"}')`, "22P05", "Unicode escape"},
	{"acquire('elsewhere/a', 'A')", "LF003", "another lock service"},
	{"renew('a', 'A', null, 1)", "22023", "lease_id is null"},
	{"renew('a', 'A', gen_random_uuid(), 0)", "22023", "fencing_token is '0'"},
	{"renew('a', 'A', gen_random_uuid(), 1, 99)", "22023", "ttl_ms is '99'"},
	{"renew('a', '', gen_random_uuid(), 1)", "22023", "owner_id has 0 bytes"},
	{"renew('in-session', 'A', $1, $2)", "22023", "as long as its session"},
	{"release('a/', 'A', gen_random_uuid(), 1)", "22023", "which is not a name"},
	{"release('a', 'A', gen_random_uuid(), 9007199254740992)", "22023", "fencing_token is '9007199254740992'"},
	{"release('a', 'A', null, null)", "22023", "lease_id is null"},
}

// TestLeaseArgumentsBySQL checks that bad arguments are refused with a message that names them: SQL has no gateway
// before it that checks them.
func TestLeaseArgumentsBySQL(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	conn, _ := app(t, url)
	owner := connect(t, url)
	exec(t, owner, "insert into fence.policies (prefix, authority) values ('elsewhere', 'external')")
	session := uuid.New()
	exec(t, owner, "insert into fence.sessions (session_id, owner_id, ttl_ms, created_at, expires_at) "+
		"values ($1, 'A', 60000, now(), 'infinity')", session)
	var inSession sqlLease
	err := owner.QueryRow(t.Context(), `
		select (a.lease).lease_id, (a.lease).fencing_token from fence.acquire_lease(fence.lease_request(
			'in-session', 'A', 'exclusive', 'node', null, $1, null, null), 0, null, true) a`, session).
		Scan(&inSession.ID, &inSession.Token)
	if err != nil {
		t.Fatal(err)
	}
	granted(t, conn, "acquire('used', 'A', request_id => 'r')")
	for _, c := range badLeaseArguments {
		var args []any
		if strings.Contains(c.call, "$") {
			args = []any{inSession.ID, inSession.Token}
		}
		_, err := conn.Exec(t.Context(), "select fence."+c.call, args...)
		if err == nil || !strings.Contains(err.Error(), c.state) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want SQLSTATE %s: %s", c.call, err, c.state, c.message)
		}
	}
	var traces int
	err = owner.QueryRow(t.Context(), "select count(*) from fence.fences where resource not in ('used', 'in-session')").
		Scan(&traces)
	if err != nil || traces > 0 {
		t.Errorf("%d fences were made for nothing (%v)", traces, err)
	}
	// Clients that send parameters without their types find one function.
	for _, call := range []string{
		"acquire($1, $2, $3, $4, $5, $6, $7)", "acquire($1, $2, $3)", "renew($1, $2, $3, $4, $5)",
		"release($1, $2, $3, $4)",
	} {
		if _, err := conn.Prepare(t.Context(), call, "select fence."+call); err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// TestLeasesInTransactionsOfUsers checks what the functions do to the transaction that calls them, and what that does
// to them: a rollback takes a lease back; only a grant and a release change synchronous_commit, so that they are on
// disk; and only READ COMMITTED is right.
func TestLeasesInTransactionsOfUsers(t *testing.T) {
	t.Parallel()
	conn, _ := app(t, postgres.Migrated(t))
	exec(t, conn, "begin")
	exec(t, conn, "savepoint before")
	granted(t, conn, "acquire('job', 'A')")
	exec(t, conn, "rollback to before")
	granted(t, conn, "acquire('job', 'B')")
	exec(t, conn, "rollback")
	lease := granted(t, conn, "acquire('job', 'C', 600000, request_id => 'r')")

	for _, c := range []struct{ call, before, after string }{
		{"acquire('free', 'A')", "off", "on"},
		{"acquire('free', 'A')", "local", "local"},
		{"acquire('job', 'A')", "on", "on"},
		{"acquire('job', 'A')", "remote_write", "remote_write"},
		{"acquire('job', 'A')", "off", "off"},
		{"renew('job', 'C', $1, $2)", "on", "on"},
		{"renew('job', 'C', $1, $2)", "off", "off"},
		{"release('job', 'C', $1, $2)", "off", "on"},
	} {
		var args []any
		if strings.Contains(c.call, "$") {
			args = []any{lease.ID, lease.Token}
		}
		exec(t, conn, "begin; set local synchronous_commit = "+c.before)
		exec(t, conn, "select fence."+c.call, args...)
		var after string
		if err := conn.QueryRow(t.Context(), "show synchronous_commit").Scan(&after); err != nil || after != c.after {
			t.Errorf("%s: synchronous_commit is %s after it, and was %s, want %s (%v)", c.call, after, c.before, c.after, err)
		}
		exec(t, conn, "rollback")

		for _, level := range []string{"repeatable read", "serializable"} {
			exec(t, conn, "begin isolation level "+level)
			if state := stateOf(t, conn, "select fence."+c.call, args...); state != "25000" {
				t.Errorf("%s, %s: SQLSTATE %q, want 25000", level, c.call, state)
			}
			exec(t, conn, "rollback")
		}
	}
}

// TestFencesOfOneRole checks that a role that acquires ever new names by SQL is refused in the end, that it still
// acquires names that have a fence, and that another role makes new ones.
func TestFencesOfOneRole(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	owner, greedy := connect(t, url), makeRole(t, url, "greedy")
	if err := migrations.Grant(t.Context(), owner, migrations.Roles{App: []string{greedy}}); err != nil {
		t.Fatal(err)
	}
	acquire := func(name string) error {
		_, err := owner.Exec(t.Context(), "select fence.acquire($1, 'w')", name)
		return err
	}
	exec(t, owner, "insert into fence.fences_made select 'sql:' || $1, false from generate_series(1, 39061)", greedy)
	exec(t, owner, "set session authorization "+quote(greedy))
	var err error
	const most = 3000 // one in 256 counts
	made := 0
	for ; made < most && err == nil; made++ {
		err = acquire(fmt.Sprint("new/", made))
	}
	if err == nil || !strings.Contains(err.Error(), "LF007") {
		t.Fatalf("after %d names the role got %v, want LF007", made, err)
	}
	exec(t, owner, "select fence.acquire('new/0', 'another')")
	exec(t, owner, "reset session authorization")
	exec(t, owner, "select fence.acquire('another', 'w')")
}
