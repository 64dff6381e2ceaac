package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/lockclient"
)

// SQL shows zombies that are psql processes, frozen in a transaction, and write to tables of a user's own. It runs three
// variants:
//
//   - fenced: the table is protected. A is frozen before it calls fence.guard, and rejected when it is thawed;
//   - unfenced: the same with a plain table;
//   - bounded: A is frozen after fence.guard, so that B must wait, until idle_in_transaction_session_timeout ends A.
type SQL struct {
	Config

	// Psql is PostgreSQL's client, a path or a name in PATH.
	Psql string
}

const (
	sqlTTL = time.Second
	// idleMax ends a transaction that is idle for that long.
	idleMax = time.Second
)

// sqlRun is one run.
type sqlRun struct {
	SQL
	*setup

	locks  *lockclient.Client
	schema string
}

// Run runs the variants and prints the result. It returns nil only if the zombies changed nothing in the protected
// table, and destroyed newer data in the plain one, and ErrUnexpected otherwise. It returns ErrNoPsql without psql. If
// ctx ends before, it returns the cause.
func (s SQL) Run(ctx context.Context) (err error) {
	ctx, ended := endedWithReader(ctx, &s.Out, &err)
	defer ended()
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	if _, err := exec.LookPath(s.Psql); err != nil {
		return fmt.Errorf("%w: %w", ErrNoPsql, err)
	}
	run := s.newRun()
	defer run.stop()
	if err := run.start(ctx); err != nil {
		return err
	}
	// B's acquires that wait for A's transaction are logged as retries, which would interrupt the narration.
	quiet := lockclient.WithLogger(slog.New(slog.DiscardHandler))
	if run.locks, err = lockclient.New(run.gateway.URL, quiet); err != nil {
		return err
	}
	defer run.locks.Close()
	run.print(Event{Event: "protected", Text: fmt.Sprintf("the table %s.fenced is protected: the resource of a row is %s",
		run.schema, run.lock("{id}"))})

	fenced, err := run.variant(ctx, "fenced", "With the fence: the table is protected, and each transaction calls "+
		"fence.guard with its token")
	if err != nil {
		return err
	}
	unfenced, err := run.variant(ctx, "unfenced", "Without the fence: the same lock and the same workers, a plain table")
	if err != nil {
		return err
	}
	bounded, err := run.variant(ctx, "bounded", fmt.Sprintf("Frozen after fence.guard: B waits until PostgreSQL "+
		"ends A's transaction, after %s (idle_in_transaction_session_timeout)", idleMax))
	if err != nil {
		return err
	}
	if fenced == (Worker{Name: "B"}).value() {
		fenced = bounded
	}
	return conclude(run.printer, fenced, unfenced)
}

func (s SQL) newRun() sqlRun {
	run := sqlRun{SQL: s, schema: pgx.Identifier{"fencegate_demo_sql" + s.Suffix}.Sanitize()}
	run.setup = s.newSetup()
	run.makeSQL = fmt.Sprintf(`
		create schema %[1]s;
		create table %[1]s.fenced (id text primary key, value text);
		create table %[1]s.unfenced (like %[1]s.fenced including all);
		insert into %[1]s.fenced values ('fenced', ''), ('bounded', '');
		insert into %[1]s.unfenced values ('unfenced', '');
		select fence.protect('%[1]s.fenced', '%[2]s')`, run.schema, run.lock("{id}"))
	run.removeSQL = fmt.Sprintf(`
		select fence.unprotect('%[1]s.fenced'); drop schema %[1]s cascade`, run.schema)
	return run
}

// lock returns the name of the lock of a row.
func (s SQL) lock(id string) string { return "demo-sql" + s.Suffix + "/" + id }

// variant freezes A in its transaction, lets B take over and write, and thaws A, which writes. It returns what is
// stored.
func (r sqlRun) variant(ctx context.Context, variant, title string) (value string, err error) {
	r.print(Event{Event: "round", Variant: variant, Text: title})
	a, err := r.newSession(ctx, variant, "A")
	if err != nil {
		return "", err
	}
	defer a.kill()
	b, err := r.newSession(ctx, variant, "B")
	if err != nil {
		return "", err
	}
	defer b.kill()

	if err := a.begin(ctx); err != nil {
		return "", err
	}
	if err := freeze(ctx, a.cmd.Process); err != nil {
		return "", err
	}
	a.tell(Event{Event: "frozen", Text: "is frozen (SIGSTOP) in its transaction"})
	if err := errors.Join(b.begin(ctx), b.write()); err != nil {
		return "", err
	}
	a.tell(Event{Event: "thawed", Text: "is thawed (SIGCONT) and goes on as if nothing had happened"})
	if err := errors.Join(thaw(a.cmd.Process), a.write()); err != nil {
		return "", err
	}
	err = r.database.QueryRow(ctx, "select value from "+a.table+" where id = $1", variant).Scan(&value)
	if err == nil {
		r.print(Event{Event: "stored", Variant: variant, Value: value, Text: fmt.Sprintf("what is stored: %q", value)})
	}
	return value, err
}

// sqlSession is a worker: a psql process with a lease.
type sqlSession struct {
	*psql

	run           sqlRun
	variant, name string
	table, guard  string // guard: the statement, once the token is known
	token         int64
	guarded       bool
}

func (r sqlRun) newSession(ctx context.Context, variant, name string) (*sqlSession, error) {
	process, err := startPsql(ctx, r.Psql, r.DatabaseURL)
	if err != nil {
		return nil, err
	}
	table := r.schema + ".fenced"
	if variant == "unfenced" {
		table = r.schema + ".unfenced"
	}
	return &sqlSession{psql: process, run: r, variant: variant, name: name, table: table}, nil
}

func (s *sqlSession) tell(event Event) {
	event.Variant, event.Actor, event.Token = s.variant, s.name, s.token
	s.run.print(event)
}

// begin acquires the lock and begins a transaction. In the variant "bounded", it calls the guard, too, and then A's
// transaction may idle no longer than idleMax.
func (s *sqlSession) begin(ctx context.Context) error {
	lock := s.run.lock(s.variant)
	lease, err := s.run.locks.AcquireWithRetry(ctx, lock,
		lockclient.RetryPolicy{Attempts: 1000, Base: retryInterval, Max: retryInterval},
		lockclient.WithLeaseOwner(s.name), lockclient.WithTTL(sqlTTL), lockclient.WithoutHeartbeat())
	if err != nil {
		return err
	}
	s.token = lease.FencingToken()
	s.tell(Event{Event: "granted", Text: fmt.Sprintf("is granted %s with token %d, for %s", lock, s.token, sqlTTL)})
	s.guard = fmt.Sprintf("select fence.guard('%s', %d)", lock, s.token)
	statements, text := []string{"begin"}, "begins a transaction, and works on its result"
	if s.variant == "bounded" {
		statements, text = append(statements, s.guard), "begins a transaction, calls fence.guard, and works on its result"
		s.guarded = true
	}
	if s.guarded && s.name == "A" {
		statements = append(statements,
			fmt.Sprintf("set local idle_in_transaction_session_timeout = %d", idleMax.Milliseconds()))
	}
	err = s.psql.run(statements...)
	if err == nil {
		s.tell(Event{Event: "begun", Text: text})
	}
	return err
}

// write writes the result and commits. A rejection is an event, not an error.
func (s *sqlSession) write() error {
	value := Worker{Name: s.name}.value()
	statements := []string{
		fmt.Sprintf("update %s set value = '%s' where id = '%s'", s.table, value, s.variant), "commit",
	}
	if s.variant != "unfenced" && !s.guarded {
		statements = append([]string{s.guard}, statements...)
	}
	err := s.psql.run(statements...)
	var rejected *sqlError
	switch {
	case err == nil:
		s.tell(Event{Event: "written", Value: value, Text: fmt.Sprintf("writes %q and commits: accepted", value)})
	case errors.As(err, &rejected):
		s.tell(Event{Event: "rejected", Value: value, Code: rejected.state,
			Text: fmt.Sprintf("writes %q: REJECTED, %s", value, rejected)})
	case errors.Is(err, io.EOF) && s.variant == "bounded":
		s.tell(Event{Event: "ended", Value: value,
			Text: "finds its connection closed: PostgreSQL has rolled its transaction back"})
	default:
		return err
	}
	return nil
}
