package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/store"
)

// scenarioSession is a session of the database. Its commands run in the background.
type scenarioSession struct {
	name     string
	conn     *pgx.Conn
	pid      uint32
	granted  map[string]store.LeaseRef // the newest on each name
	doing    chan scenarioResult       // nil: nothing
	waitsFor string                    // the sessions that it was seen to wait for
	cut      context.CancelFunc        // of what it does

	session *uuid.UUID // the newest that it opened
}

// scenarioResult returns the result of a command, as text. It is called when every session has ended its command or
// waits.
type scenarioResult func() string

// action is a command that a session runs.
type action func(ctx context.Context, conn *pgx.Conn) (scenarioResult, error)

func (s *scenario) sessionCalled(t *testing.T, name string) *scenarioSession {
	t.Helper()
	if a, ok := s.sessions[name]; ok {
		return a
	}
	conn := s.connect(t)
	a := &scenarioSession{name: name, conn: conn, pid: conn.PgConn().PID(), granted: map[string]store.LeaseRef{}}
	s.sessions[name] = a
	return a
}

// start lets the session do something. Only leave cuts it off.
func (a *scenarioSession) start(ctx context.Context, do action) {
	ctx, a.cut = context.WithCancel(context.WithoutCancel(ctx))
	doing := make(chan scenarioResult, 1)
	a.doing = doing
	go func() {
		result, err := do(ctx, a.conn)
		if err != nil {
			result = func() string { return errorText(err) }
		}
		doing <- result
	}()
}

// leave ends the session, whatever it does.
func (a *scenarioSession) leave(ctx context.Context) {
	if a.cut != nil {
		a.cut()
	}
	if a.doing != nil {
		<-a.doing
	}
	_ = a.conn.Close(ctx)
}

func errorText(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return fmt.Sprintf("error %s: %s", pgErr.Code, pgErr.Message)
	}
	return "error: " + err.Error()
}

// parse turns a command into an action. Tokens and leases are looked up now, not when the action is run.
func (s *scenario) parse(a *scenarioSession, words []string, input string) (action, error) {
	verb, words := words[0], words[1:]
	switch verb {
	case "begin":
		return plainly("begun", "begin"), nil
	case "commit":
		return plainly("committed", "commit"), nil
	case "rollback":
		return plainly("rolled back", "rollback"), nil
	case "sql":
		return plainly("done", input), nil
	case "sweep":
		return sweepAction, nil
	case "set":
		return s.writesAction(strings.Split(input, "\n"))
	case "transact":
		return s.transactAction(strings.Split(input, "\n"))
	case "write":
		return s.writesAction([]string{strings.Join(words, " ")})
	case "open-session", "keep-alive", "end-session":
		return s.sessionAction(a, verb)
	}
	lease, err := s.leaseCommand(a, words)
	if err != nil {
		return nil, err
	}
	switch verb {
	case "acquire":
		return s.acquireAction(a, lease), nil
	case "renew":
		return s.renewAction(lease), nil
	case "release":
		return s.releaseAction(lease), nil
	case "break":
		return s.breakAction(lease), nil
	}
	return nil, fmt.Errorf("a session can't %q", verb)
}

func plainly(answer, sql string) action {
	return func(ctx context.Context, conn *pgx.Conn) (scenarioResult, error) {
		_, err := conn.Exec(ctx, sql)
		return func() string { return answer }, err
	}
}
