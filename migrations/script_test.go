package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
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
		if err := sessions[name].step(ctx, admin, sql, want, known); err != nil {
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

func (s *scriptSession) step(ctx context.Context, admin *pgx.Conn, sql, want string, known map[string]string) error {
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
		return s.waits(ctx, admin)
	}
	result := <-s.running
	s.running = nil
	return result.check(want, known)
}

// waits returns when the session waits for another one.
func (s *scriptSession) waits(ctx context.Context, admin *pgx.Conn) error {
	for waits := false; !waits; {
		select {
		case result := <-s.running:
			s.running = nil
			return fmt.Errorf("it did not wait: %q, %w", result.text, result.err)
		case <-time.After(time.Millisecond):
		}
		err := admin.QueryRow(ctx, "select pg_blocking_pids($1) <> '{}'", s.conn.PgConn().PID()).Scan(&waits)
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

// scriptFunctions help scripts. test.grant grants a lock, after any lease that is in the way has expired.
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
    from fence.acquire_lease(fence.lease_request(p_lock, 'owner', p_mode, p_scope, p_ttl_ms, null, null, null), 0, null) a;
    if v_outcome <> 'granted' then
        raise '% is %', p_lock, v_outcome;
    end if;
    return v_token;
end $$;
create function test.lease(p_lock text, p_token bigint) returns uuid language sql as $$
    select lease_id from fence.leases where lock = p_lock and fencing_token = p_token $$;
create function test.release(p_lock text, p_token bigint) returns text language sql as $$
    select status from fence.release(p_lock, 'owner', test.lease(p_lock, p_token), p_token) $$;
create function test.nothing() returns trigger language plpgsql as $$ begin return null; end $$;
create function test.expire(p_lock text) returns void language sql as $$
    update fence.leases set expires_at = clock_timestamp() where lock = p_lock $$;
`

// scripted returns a migrated database with the functions for scripts.
func scripted(t *testing.T, setup string) string {
	t.Helper()
	url := postgres.Migrated(t)
	exec(t, connect(t, url), scriptFunctions+setup)
	return url
}

// runScripts runs the scripts in one database, several at a time.
func runScripts(t *testing.T, url string, variables map[string]string, scripts []script) {
	t.Helper()
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if err := s.run(t.Context(), url, variables); err != nil {
				t.Error(err)
			}
		})
	}
}
