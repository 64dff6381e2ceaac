package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// A script is a list of steps of the sessions A to E of a database. Each begins a line:
//
//	A select fence.guard('n', $t, 1)  -- t
//
// The comment says what is expected: the values of the last row that the statements return, separated by |; after an
// exclamation mark, an SQLSTATE and a part of the error; after $, a name for the value in later steps, also of other
// sessions; or "waits": the statement waits for another session. A later step "..." of the session expects the end of
// that wait. "copy TABLE" copies the row behind the table's name into it. A line that does not begin with a session
// continues the step before.
type script struct {
	name  string
	steps string
}

// scriptSession is a session. It runs one statement at a time.
type scriptSession struct {
	conn    *pgx.Conn
	running chan scriptResult // nil: nothing runs
}

type scriptResult struct {
	text string
	err  error
}

// scriptPatience bounds a step.
const scriptPatience = time.Minute

var (
	scriptBegin    = regexp.MustCompile(`^[A-E] `)
	scriptStep     = regexp.MustCompile(`^([A-E]) (.*?)(?:\s*-- (.+))?$`)
	scriptVariable = regexp.MustCompile(`\$[a-z]\w*|\$\{\w+\}`)
)

// run runs the script in sessions of its own, which it ends. The variables are those of the script's user.
func (s script) run(ctx context.Context, url string, variables map[string]string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, scriptPatience)
	defer cancel()
	sessions := map[string]*scriptSession{}
	defer func() {
		for _, session := range sessions {
			session.end()
		}
	}()
	admin, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer admin.Close(ctx)
	known := map[string]string{}
	for name, value := range variables {
		known[name] = value
	}
	for _, line := range s.lines() {
		step := scriptStep.FindStringSubmatch(line)
		if step == nil {
			return fmt.Errorf("%q is not a step", line)
		}
		name, sql, want := step[1], substitute(step[2], known), step[3]
		if sessions[name] == nil {
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				return err
			}
			sessions[name] = &scriptSession{conn: conn}
		}
		var blocker *scriptSession
		if before, waits := strings.CutPrefix(want, "waits for "); waits {
			want, blocker = "waits", sessions[before]
		}
		if err := sessions[name].step(ctx, admin, sql, want, blocker, known); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	return nil
}

// lines returns the steps.
func (s script) lines() (steps []string) {
	for line := range strings.Lines(s.steps) {
		line = strings.TrimSpace(line)
		switch {
		case scriptBegin.MatchString(line):
			steps = append(steps, line)
		case line != "":
			steps[len(steps)-1] += " " + line
		}
	}
	return steps
}

func substitute(text string, known map[string]string) string {
	return scriptVariable.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := known[strings.Trim(name, "${}")]; ok {
			return value
		}
		return name
	})
}

func (s *scriptSession) step(
	ctx context.Context, admin *pgx.Conn, sql, want string, blocker *scriptSession, known map[string]string,
) error {
	if s.running == nil {
		running := make(chan scriptResult, 1)
		s.running = running
		go func() {
			text, err := runStatements(ctx, s.conn, sql)
			running <- scriptResult{text, err}
		}()
	} else if sql != "..." {
		return errors.New("the session still waits")
	}
	if want == "waits" {
		return s.waits(ctx, admin, blocker)
	}
	result := <-s.running
	s.running = nil
	return result.check(want, known)
}

// waits returns when the session waits for another one: for any if blocker is nil.
func (s *scriptSession) waits(ctx context.Context, admin *pgx.Conn, blocker *scriptSession) error {
	var blocking []uint32
	if blocker != nil {
		blocking = append(blocking, blocker.conn.PgConn().PID())
	}
	for waits := false; !waits; {
		select {
		case result := <-s.running:
			s.running = nil
			return fmt.Errorf("it did not wait: %q, %w", result.text, result.err)
		case <-time.After(time.Millisecond):
		}
		err := admin.QueryRow(ctx, "select p = coalesce($2, p) and p <> '{}' from pg_blocking_pids($1) p",
			s.conn.PgConn().PID(), blocking).Scan(&waits)
		if err != nil {
			return err
		}
	}
	return nil
}

func (r scriptResult) check(want string, known map[string]string) error {
	variable, binds := strings.CutPrefix(want, "$")
	binds = binds && !strings.Contains(want, "|")
	want = substitute(want, known)
	failure, fails := strings.CutPrefix(want, "!")
	var pgErr *pgconn.PgError
	switch {
	case fails && errors.As(r.err, &pgErr):
		code, part, _ := strings.Cut(failure, " ")
		text := strings.Join([]string{pgErr.Message, pgErr.Detail, pgErr.Hint}, "\n")
		if pgErr.Code != code || !strings.Contains(text, part) {
			return fmt.Errorf("it fails with %s: %s", pgErr.Code, text)
		}
		return nil
	case fails && r.err == nil:
		return fmt.Errorf("it returns %q", r.text)
	case r.err != nil:
		if errors.As(r.err, &pgErr) {
			return fmt.Errorf("%w\n%s\n%s", r.err, pgErr.Detail, pgErr.Where)
		}
		return r.err
	case binds:
		known[variable] = r.text
	case want != "" && r.text != want:
		return fmt.Errorf("it returns %q", r.text)
	}
	return nil
}

// runStatements returns the last row of the last statement as text.
func runStatements(ctx context.Context, conn *pgx.Conn, sql string) (string, error) {
	if rest, ok := strings.CutPrefix(sql, "copy "); ok {
		table, row, _ := strings.Cut(rest, " ")
		_, err := conn.PgConn().CopyFrom(ctx, strings.NewReader(row+"\n"), "copy "+table+" from stdin (format csv)")
		return "", err
	}
	// One at a time: statements that are sent together are one transaction.
	var results []*pgconn.Result
	for _, statement := range splitStatements(sql) {
		var err error
		if results, err = conn.PgConn().Exec(ctx, statement).ReadAll(); err != nil {
			return "", err
		}
	}
	if len(results) == 0 || len(results[len(results)-1].Rows) == 0 {
		return "", nil
	}
	rows := results[len(results)-1].Rows
	var values []string
	for _, value := range rows[len(rows)-1] {
		values = append(values, string(value))
	}
	return strings.Join(values, "|"), nil
}

// splitStatements splits at the semicolons that are not in quotes.
func splitStatements(sql string) []string {
	var quote rune
	return strings.FieldsFunc(sql, func(r rune) bool {
		switch {
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		case r == quote:
			quote = 0
		}
		return quote == 0 && r == ';'
	})
}

// end cuts the session off.
func (s *scriptSession) end() {
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	if s.running != nil {
		_ = s.conn.PgConn().Conn().Close()
		<-s.running
	}
	_ = s.conn.Close(ctx)
}

// scriptFunctions help scripts. test.grant grants a lock, after any lease that is in the way has expired. A write is the
// text RESOURCE TOKEN[.SEQUENCE] VALUE [if VERSION].
const scriptFunctions = `
create schema test;
create function test.grant(p_lock text, p_mode text default 'exclusive', p_scope text default 'node',
    p_ttl_ms integer default 600000) returns bigint language plpgsql as $$
declare
    v_outcome text;
    v_token   bigint;
begin
    update fence.leases set expires_at = clock_timestamp()
    where ended_at is null and (lock = p_lock or fence.is_below(lock, p_lock) or fence.is_below(p_lock, lock));
    select a.outcome, (a.lease).fencing_token into v_outcome, v_token
    from fence.acquire_lease(fence.lease_request(p_lock, 'owner', p_mode, p_scope, p_ttl_ms, null, null, null), 0, null, true) a;
    if v_outcome <> 'granted' then
        raise '% is %', p_lock, v_outcome;
    end if;
    return v_token;
end $$;
create function test.lease(p_lock text, p_token bigint) returns uuid language sql as $$
    select lease_id from fence.leases where lock = p_lock and fencing_token = p_token $$;
create function test.release(p_lock text, p_token bigint) returns text language sql as $$
    select coalesce(r.reason, r.status) from fence.leases l, fence.release(l.lock, l.owner_id, l.lease_id, l.fencing_token) r
    where l.lock = p_lock and l.fencing_token = p_token $$;
create function test.acquire(p_lock text, p_owner text, p_session uuid default null)
returns text language sql as $$
    select case a.outcome
        when 'granted' then (a.lease).fencing_token::text
        when 'held' then coalesce('held by ' || (a.lease).owner_id, 'behind others')
        else concat_ws(' ', a.outcome, (a.lease).end_reason) end
    from fence.acquire_lease(
        fence.lease_request(p_lock, p_owner, 'exclusive', 'node', 30000, p_session, null, null), 0, null, true) a $$;
create function test.sweep() returns bigint language sql as $$
    select s.done from fence.sweep('leases', '0', 1000, null, null) s $$;
create function test.session(p_owner text) returns uuid language sql as $$
    insert into fence.sessions (session_id, owner_id, ttl_ms, created_at, expires_at)
    select gen_random_uuid(), p_owner, 30000, clock_timestamp(), clock_timestamp() + interval '30 seconds'
    returning session_id $$;
create function test.policy(p_prefix text, p_authority text default 'builtin', p_live boolean default false)
returns void language sql as $$
    select fence.put_policy(p_prefix, 'strict', p_authority, false, p_live, null, null, false, 100, null) $$;
create function test.writes(p_writes text[], out resources text[], out tokens bigint[], out sequences bigint[],
    out ids uuid[], out digests bytea[], out puts text[], out keys text[], out contents bytea[], out types text[],
    out expected bigint[], out indexes integer[]) language sql as $$
    select array_agg(w[1] order by n), array_agg(w[2]::bigint order by n), array_agg(w[3]::bigint order by n),
        array_agg(null::uuid), array_agg(sha256(convert_to(w[1] || w[4], 'UTF8')) order by n), array_agg('put'::text),
        array_agg('key'::text), array_agg(convert_to(w[4], 'UTF8') order by n), array_agg('text/plain'::text),
        array_agg(w[5]::bigint order by n), array_agg(n::integer order by n)
    from unnest(p_writes) with ordinality as u (line, n),
        regexp_match(line, '^(\S+) (\d+)(?:\.(\d+))? (\S+)(?: if (-?\d+))?$') w $$;
create function test.verdict(verdict text, reason text, version bigint, granted bigint, last bigint, sequence bigint)
returns text language sql as $$
    select case verdict when 'version_mismatch' then verdict || ' ' || version
        else concat_ws(' ', verdict, nullif(reason, ''), granted, last || '.' || sequence) end $$;
create function test.write(variadic p_writes text[]) returns text language sql as $$
    select string_agg(said.verdict, ', ' order by said.index)
    from test.writes(p_writes) w,
        fence.write(w.resources, w.tokens, w.sequences, w.ids, w.digests, w.puts, w.keys, w.contents, w.types,
            w.expected, w.indexes, null) a,
        lateral (
            select v.index, concat_ws(' ', 'admitted', v.version, case when v.index = any (a.replayed) then 'replayed'
                when v.index = any (a.created) then 'created' end) as verdict
            from unnest(a.admitted, a.versions) as v (index, version)
            union all
            select r.index, test.verdict(r.verdict, r.reason, r.version, r.granted, r.last, r.sequence)
            from unnest(a.refused, a.verdicts, a.reasons, a.current_versions, a.granted_tokens, a.last_tokens,
                a.last_sequences) as r (index, verdict, reason, version, granted, last, sequence)
        ) said $$;
create function test.record(p_resource text) returns text language sql as $$
    select coalesce(string_agg(concat_ws(' ', convert_from(value, 'UTF8'), version,
        concat_ws('.', fencing_token, sequence)), ', '), 'none')
    from fence.records where resource = p_resource $$;
create function test.fence(p_resource text) returns text language sql as $$
    select format('%s %s %s.%s', case when open then 'open' else 'closed' end, granted_token, last_token, last_sequence)
    from fence.fences where resource = p_resource $$;
-- test.leases says "too early" of a lease that was granted while the one before it was live, which P1 forbids.
create function test.leases(p_lock text) returns text language sql as $$
    select string_agg(shown.lease, ', ' order by shown.token)
    from (
        select l.fencing_token as token, concat_ws(' ', l.owner_id, l.fencing_token,
            coalesce(l.end_reason, case when l.expires_at > clock_timestamp() then 'live' else 'over' end),
            case when l.mode = 'exclusive' and l.granted_at < lag(coalesce(l.ended_at, l.expires_at))
                over (order by l.fencing_token) then 'too early' end) as lease
        from fence.leases l where l.lock = p_lock) shown $$;
-- test.forget sweeps all that has ended, and returns the fences below the name that stay.
create function test.forget(p_name text) returns text language sql as $$
    update fence.leases set ended_at = '-infinity' where ended_at is not null;
    select fence.sweep('ended leases', '0', 1000, '1 s', null); select fence.sweep('claims', '0', 1000, '1 s', null);
    select string_agg(resource, ' ' order by resource) from fence.fences where fence.is_below(resource, p_name) $$;
-- test.copy makes the database a copy by logical replication, which brings rows and no sequences.
create function test.copy() returns void language sql as $$
    update fence.database_identity
    set system_identifier = system_identifier - 1, started_at = started_at - interval '1 hour';
    select setval(s.seqrelid::regclass, s.seqstart, false)
    from pg_sequence s join pg_class c on c.oid = s.seqrelid where c.relnamespace = 'fence'::regnamespace $$;
-- test.cure returns the statements that the problem of a protected table offers.
create function test.cure(p_template text) returns text language sql as $$
    select substring(problem from ': ((select|alter) .*)$') from fence.protected where template = p_template $$;
create function test.nothing() returns trigger language plpgsql as $$ begin return null; end $$;
create function test.expire(p_lock text) returns void language sql as $$
    update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity'
    where lock = p_lock and ended_at is null $$;
`

// scripted returns a migrated database with the functions for scripts.
func scripted(t *testing.T, setup string) string {
	t.Helper()
	return scriptedOn(t, postgres.Migrated(t), setup)
}

// scriptedOn is scripted for a database that is there.
func scriptedOn(t *testing.T, url, setup string) string {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	exec(t, conn, "set check_function_bodies = off;"+scriptFunctions+setup)
	return url
}

// runScripts runs the scripts in one database, several at a time. If one of them sets a policy, the database has one
// before: the first policy of a database ends the writes and guards of others that wait meanwhile with 40001
// (fence.no_policy_came).
func runScripts(t *testing.T, url string, variables map[string]string, scripts []script) {
	t.Helper()
	setsPolicy := func(s script) bool { return strings.Contains(s.steps, "insert into fence.policies") }
	if len(scripts) > 1 && slices.ContainsFunc(scripts, setsPolicy) {
		exec(t, connect(t, url), "insert into fence.policies (prefix) values ('unrelated') on conflict do nothing")
	}
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if err := s.run(t.Context(), url, variables); err != nil {
				t.Error(err)
			}
		})
	}
}
