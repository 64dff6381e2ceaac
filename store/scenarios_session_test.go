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

// actor is a session of a group. What it does, it does in the background.
type actor struct {
	name     string
	conn     *pgx.Conn
	pid      uint32
	granted  map[string]store.LeaseRef // the newest on each name
	doing    chan told                 // nil: nothing
	waitsFor string                    // the sessions that it was seen to wait for
	cut      context.CancelFunc        // of what it does

	session *uuid.UUID // the newest that it opened

	frozen bool
	unsent []actorScript
}

// told says what came out; it is called when all is quiet.
type told func() string

// act is something that a session does.
type act func(ctx context.Context, conn *pgx.Conn) (told, error)

// actorScript is a command to a session.
type actorScript struct {
	words   []string
	lines   []string
	mayWait bool
}

func (s *scene) actor(t *testing.T, name string) *actor {
	t.Helper()
	if a, ok := s.actors[name]; ok {
		return a
	}
	conn := s.connect(t)
	a := &actor{name: name, conn: conn, pid: conn.PgConn().PID(), granted: map[string]store.LeaseRef{}}
	s.actors[name] = a
	return a
}

// start lets the session do something. Only leave cuts it off.
func (a *actor) start(ctx context.Context, act act) {
	ctx, a.cut = context.WithCancel(context.WithoutCancel(ctx))
	doing := make(chan told, 1)
	a.doing = doing
	go func() {
		told, err := act(ctx, a.conn)
		if err != nil {
			told = func() string { return actorError(err) }
		}
		doing <- told
	}()
}

// leave ends the session, whatever it does.
func (a *actor) leave(ctx context.Context) {
	if a.cut != nil {
		a.cut()
	}
	if a.doing != nil {
		<-a.doing
	}
	_ = a.conn.Close(ctx)
}

func actorError(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return fmt.Sprintf("error %s: %s", pgErr.Code, pgErr.Message)
	}
	return "error: " + err.Error()
}

// understand turns a command into something to do. Sessions of which the command speaks are asked now for what they
// were granted, not when it is done.
func (s *scene) understand(a *actor, script actorScript) (act, error) {
	verb, words := script.words[0], script.words[1:]
	switch verb {
	case "begin":
		return plainly("begun", "begin"), nil
	case "commit":
		return plainly("committed", "commit"), nil
	case "rollback":
		return plainly("rolled back", "rollback"), nil
	case "sql":
		return plainly("done", strings.Join(script.lines, "\n")), nil
	case "sweep":
		return sweepAct, nil
	case "set":
		return s.setAct(a, script.lines)
	case "transact":
		return s.transactAct(a, script.lines)
	case "write":
		return s.setAct(a, []string{strings.Join(words, " ")})
	case "open-session", "keep-alive", "end-session", "settle":
		return s.sessionAct(a, verb)
	}
	lease, err := s.leaseCommand(a, words)
	if err != nil {
		return nil, err
	}
	switch verb {
	case "acquire":
		return s.acquireAct(a, lease), nil
	case "renew":
		return s.renewAct(lease), nil
	case "release":
		return s.releaseAct(lease), nil
	case "break":
		return s.breakAct(lease), nil
	}
	return nil, fmt.Errorf("a session can't %q", verb)
}

func plainly(answer, sql string) act {
	return func(ctx context.Context, conn *pgx.Conn) (told, error) {
		_, err := conn.Exec(ctx, sql)
		return func() string { return answer }, err
	}
}
