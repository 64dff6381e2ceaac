package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

// For internal/test/mutants, environment variables name
const (
	breakEnv = "FENCEGATE_TEST_BREAK" // a file with SQL that breaks each migrated database
	callsEnv = "FENCEGATE_TEST_CALLS" // a file to which the functions are written that each test calls, see Calls
	// A database of the server in which the migrations have been applied, see Serve.
	templateEnv = "FENCEGATE_TEST_TEMPLATE"
)

// Serve starts a server for the tests of other processes, which run with the environment that it returns: a server and a
// migrated database of its own take a process longer than most of its tests.
func Serve(ctx context.Context) (environment []string, stop func() error, err error) {
	volatile["max_connections"] = "1000"
	s, err := startShared(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop = func() error { return errors.Join(s.dropTemplates(), s.stop(), scratch.remove()) }
	if err := s.template.make(s, "", s.migrate); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return []string{urlEnv + "=" + s.url, templateEnv + "=" + s.template.name}, stop, nil
}

// Calls are the functions of the schema that a test has called in one of its databases.
type Calls struct {
	Test      string
	Functions []string
}

func breakSchema(ctx context.Context, conn *pgx.Conn) error {
	file := os.Getenv(breakEnv)
	if file == "" {
		return nil
	}
	sql, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, string(sql)); err != nil {
		return fmt.Errorf("%s: %w", breakEnv, err)
	}
	return nil
}

// trackCalls has the database count the calls of functions, if that is asked for.
func (s *server) trackCalls(ctx context.Context, name string) error {
	if os.Getenv(callsEnv) == "" {
		return nil
	}
	return s.exec(ctx, "alter database "+pgx.Identifier{name}.Sanitize()+" set track_functions = 'all'")
}

// writeCalls writes the calls of a database that the test needs no more.
func (s *server) writeCalls(t testing.TB, name, url string) {
	t.Helper()
	file := os.Getenv(callsEnv)
	if file == "" {
		return
	}
	// A session counts its calls for others when it has ended.
	check(t, await.Nil(func() error {
		return s.exec(await.Context(t), fmt.Sprintf("do $$ begin perform pg_terminate_backend(pid) from pg_stat_activity "+
			"where datname = '%[1]s'; assert not exists (select from pg_stat_activity where datname = '%[1]s'); end $$", name))
	}))
	conn, err := pgx.Connect(await.Context(t), url)
	check(t, err)
	defer conn.Close(context.Background())
	rows, _ := conn.Query(await.Context(t), "select funcname from pg_stat_user_functions where schemaname = 'fence' and calls > 0")
	functions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(t, err)
	test, _, _ := strings.Cut(t.Name(), "/")
	line, err := json.Marshal(Calls{test, functions})
	check(t, err)
	to, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the user names it
	check(t, err)
	defer to.Close()
	_, err = to.Write(append(line, '\n'))
	check(t, err)
}
