//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
)

type cpuCmd struct {
	rig.Servers
	rig.Pace `set:"clients=1" set:"rounds=20" set:"duration=500ms" set:"warmup=100ms"` //nolint:staticcheck // kong takes several "set"

	Idle time.Duration `help:"How long PostgreSQL's CPU time without calls is observed, which is not counted for calls; 0: all is counted." default:"10s"`
}

const cpuTable = "PostgreSQL's CPU time for a call"

// Run measures.
func (c *cpuCmd) Run(ctx context.Context, to output) error {
	return measure(ctx, to, c.Servers, c.Pace, rig.Private{Settings: manyConnections}, func(r *rig.Rig) error {
		const resources = 1000
		t := &tables{Rig: r, rows: resources * rowsOfResource}
		if err := t.prepare(ctx); err != nil {
			return err
		}
		w := &writes{Rig: r}
		if err := w.Execute(ctx, plainTables[2]); err != nil {
			return err
		}
		through, err := r.Gateway(ctx)
		if err != nil {
			return err
		}
		l, err := w.acquireLayout(ctx, "many", resources, false)
		if err != nil {
			return err
		}
		locks := fencegate([]*gateway.Process{through})
		targets := []rig.Target{w.direct().on(l, "upsert"), w.through(putting, through).on(l, "upsert"),
			locks.cycle(r.Prefix+"/lone", ownLocks, "upsert"), locks.cycle(r.Prefix+"/handed", oneLock, "upsert"),
			t.target(writeTransactions[3])}
		for i, name := range []string{"upsert", "write", "acquire and release", "hand-over to the next waiter",
			"protected transaction"} {
			targets[i].Name, targets[i].Base = name, "upsert"
		}
		targets[3].Clients = 4 // who share one lock, so that there is always one that waits

		if c.Idle > 0 {
			r.Progress("nothing happens for %s", c.Idle)
			if r.Background, _, err = r.Idle(ctx, c.Idle, nil); err != nil {
				return err
			}
		}
		for _, clients := range r.Clients {
			err := r.Compare(ctx, rig.Case{Table: cpuTable, Name: clientsName(clients), Clients: clients,
				First: rig.PostgresCPU}, targets)
			if err != nil {
				return err
			}
		}
		return nil
	}, nil)
}

const (
	jobsTable = "fencegate_bench.jobs"
	// jobsMax is more than the clients do in a round.
	jobsMax = 100000
)

var errNoJob = errors.New("no job was left")

// claims measures workers that take jobs from one queue and complete them, beside those of a plain queue, which keep a
// job locked while they do it.
func (t *tables) claims(ctx context.Context) error {
	for _, clients := range t.Clients {
		targets := []rig.Target{t.queue("plain queue", 1, takeJob)}
		for _, many := range []int{1, 10, 100} {
			targets = append(targets, t.queue(fmt.Sprintf("claim %d", many), many,
				func(ctx context.Context, c *tableClient) error { return claimJobs(ctx, c, many) }))
		}
		c := rig.Case{Table: "claims", Name: clientsName(clients), Clients: clients, CPURatio: true}
		if err := t.Compare(ctx, c, targets); err != nil {
			return err
		}
	}
	return nil
}

// queue is a target that does so many jobs in a call. Each round has new jobs, whose fences do not exist.
func (t *tables) queue(name string, many int, do func(context.Context, *tableClient) error) rig.Target {
	target := t.target(transaction{name: name, base: "plain queue", do: do})
	target.PerCall = many
	open := target.Open
	target.Open = func(ctx context.Context, count, connections int) (rig.Session, error) {
		statements := []string{"drop table if exists " + jobsTable,
			"create table " + jobsTable + " (id bigint primary key, payload text, done_at timestamptz)",
			fmt.Sprintf("insert into %s select i, repeat('x', 100) from generate_series(1, %d) i", jobsTable, jobsMax),
			"create index on " + jobsTable + " (id) where done_at is null", "vacuum (analyze) " + jobsTable, "checkpoint"}
		if name != target.Base {
			statements = append(statements,
				fmt.Sprintf("select fence.protect('%s', 'bench-jobs-%d/{id}', inserts => 'free')", jobsTable, t.numbers()))
		}
		if err := t.Execute(ctx, statements...); err != nil {
			return rig.Session{}, err
		}
		return open(ctx, count, connections)
	}
	return target
}

// takeJob does a job of the plain queue.
func takeJob(ctx context.Context, c *tableClient) error {
	var take, complete pgx.Batch
	take.Queue("begin")
	take.Queue("select id from " + jobsTable + " where done_at is null order by id limit 1 for update skip locked").
		QueryRow(func(row pgx.Row) error { return row.Scan(&c.row) })
	if err := c.conn.SendBatch(ctx, &take).Close(); err != nil {
		return err
	}
	complete.Queue("update "+jobsTable+" set done_at = now() where id = $1", c.row)
	complete.Queue("commit")
	return c.conn.SendBatch(ctx, &complete).Close()
}

var completion = inTransaction(guard,
	statement{"update " + jobsTable + " set done_at = now() where id = $1",
		func(c *tableClient) []any { return []any{c.row} }},
	statement{"select fence.release($1, 'bench', $2, $3)",
		func(c *tableClient) []any { return []any{c.resource, c.leaseID, c.token} }})

// claimJobs claims so many jobs, and completes each.
func claimJobs(ctx context.Context, c *tableClient, many int) error {
	type claimed struct {
		Resource, LeaseID string
		Token, ID         int64
	}
	for done := 0; done < many; {
		rows, _ := c.conn.Query(ctx, `
			select resource, lease_id::text, fencing_token, (job ->> 'id')::bigint
			from fence.claim($1, $2, 'bench', 30000, 'done_at is null')`, jobsTable, many-done)
		jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claimed])
		if err == nil && len(jobs) == 0 {
			err = errNoJob
		}
		if err != nil {
			return err
		}
		for _, job := range jobs {
			c.resource, c.leaseID, c.token, c.row = job.Resource, job.LeaseID, job.Token, job.ID
			if err := c.pipeline(ctx, completion, false); err != nil {
				return err
			}
		}
		done += len(jobs)
	}
	return nil
}

// transaction is what a client makes over and over.
type transaction struct {
	name, base string
	statements []statement
	// steps sends the statements one by one, and not in one pipeline.
	steps bool
	// do is made instead of statements.
	do func(ctx context.Context, c *tableClient) error
}

// statement is one of a transaction, with its arguments.
type statement struct {
	sql  string
	args func(c *tableClient) []any
}

var guard = statement{"select fence.guard($1, $2, $3)",
	func(c *tableClient) []any { return []any{c.resource, c.token, c.sequence} }}

// guardBySetting leaves the guarding to the triggers of the table.
var guardBySetting = statement{"select fence.set_token($1, $2)",
	func(c *tableClient) []any { return []any{c.token, c.sequence} }}

func updateSQL(table string) string {
	return "update fencegate_bench." + table + " set balance = balance + 1 where id = $1"
}

// update changes one row of the client's resource.
func update(table string, row int64) statement {
	return statement{updateSQL(table), func(c *tableClient) []any { return []any{c.row + row} }}
}

// updateFive changes all rows of the client's resource.
func updateFive(table string) (updates []statement) {
	for row := range int64(rowsOfResource) {
		updates = append(updates, update(table, row))
	}
	return updates
}

// inTransaction puts statements between begin and commit.
func inTransaction(statements ...statement) []statement {
	none := func(*tableClient) []any { return nil }
	return slices.Concat([]statement{{"begin", none}}, statements, []statement{{"commit", none}})
}

// writeTransactions each update one row.
var writeTransactions = []transaction{
	{name: "bare", base: "bare", statements: []statement{update("plain", 0)}},
	{name: "pipelined", base: "bare", statements: inTransaction(update("plain", 0))},
	{name: "guarded", base: "bare", statements: inTransaction(guard, update("plain", 0))},
	{name: "protected", base: "bare", statements: inTransaction(guard, update("protected", 0))},
	{name: "partitioned-protected", base: "bare", statements: inTransaction(guard, update("partitioned_protected", 0))},
	{name: "settings", base: "bare", statements: inTransaction(guardBySetting, update("protected", 0))},
	{name: "by-hand", base: "bare", do: byHand},
}

// fiveTransactions each update the five rows of one resource, in one round trip or in a round trip for each statement.
var fiveTransactions = []transaction{
	{name: "five", base: "five", statements: inTransaction(updateFive("plain")...)},
	{name: "five-protected", base: "five",
		statements: inTransaction(append([]statement{guard}, updateFive("protected")...)...)},
	{name: "five-steps", base: "five-steps", steps: true, statements: inTransaction(updateFive("plain")...)},
	{name: "five-steps-protected", base: "five-steps", steps: true,
		statements: inTransaction(append([]statement{guard}, updateFive("protected")...)...)},
}

func transactionNames() (names []string) {
	for _, t := range writeTransactions {
		names = append(names, t.name)
	}
	return names
}

// tableClient writes to one resource, over a connection of its own.
type tableClient struct {
	conn                 *pgx.Conn
	row, token, sequence int64
	resource, leaseID    string
}

// pipeline sends statements in one round trip, or each when the last is answered.
func (c *tableClient) pipeline(ctx context.Context, statements []statement, steps bool) (err error) {
	c.sequence++
	answer := func(s statement) (pgconn.CommandTag, error) { return c.conn.Exec(ctx, s.sql, s.args(c)...) }
	if !steps {
		var batch pgx.Batch
		for _, s := range statements {
			batch.Queue(s.sql, s.args(c)...)
		}
		results := c.conn.SendBatch(ctx, &batch)
		defer func() { err = errors.Join(err, results.Close()) }()
		answer = func(statement) (pgconn.CommandTag, error) { return results.Exec() }
	}
	for _, s := range statements {
		tag, err := answer(s)
		if err == nil && tag.Update() && tag.RowsAffected() != 1 {
			err = fmt.Errorf("%d rows", tag.RowsAffected())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.sql, err)
		}
	}
	return nil
}

// byHand is the fence as one writes it by hand: lock the token's row, compare, raise it if it is newer, update.
func byHand(ctx context.Context, c *tableClient) error {
	return pgx.BeginFunc(ctx, c.conn, func(tx pgx.Tx) error {
		var last int64
		err := tx.QueryRow(ctx, "select token from fencegate_bench.tokens where resource = $1 for update",
			c.resource).Scan(&last)
		if err == nil && c.token < last {
			err = fmt.Errorf("the token %d is stale: %d was seen", c.token, last)
		}
		if err == nil && c.token > last {
			_, err = tx.Exec(ctx, "update fencegate_bench.tokens set token = $2 where resource = $1", c.resource, c.token)
		}
		if err == nil {
			_, err = tx.Exec(ctx, updateSQL("plain"), c.row)
		}
		return err
	})
}

// transactions measures transactions with every number of clients.
func (t *tables) transactions(ctx context.Context, table string, all []transaction) error {
	for _, clients := range t.Clients {
		var targets []rig.Target
		for _, transaction := range all {
			targets = append(targets, t.target(transaction))
		}
		c := rig.Case{Table: table, Name: clientsName(clients), Clients: clients, CPURatio: true}
		if err := t.Compare(ctx, c, targets); err != nil {
			return err
		}
	}
	return nil
}

func (t *tables) target(made transaction) rig.Target {
	return rig.Target{Name: made.name, Base: made.base,
		Open: func(ctx context.Context, count, _ int) (rig.Session, error) {
			clients := make([]*tableClient, 0, count)
			session := rig.Session{Close: func() (err error) {
				for _, c := range clients {
					err = errors.Join(err, c.conn.Close(context.WithoutCancel(ctx)))
				}
				return err
			}, Do: func(ctx context.Context, client, _ int) error {
				if made.do != nil {
					return made.do(ctx, clients[client])
				}
				return clients[client].pipeline(ctx, made.statements, made.steps)
			}}
			sequence := t.numbers()
			stride := t.rows / rowsOfResource / count // the clients' resources are spread over the table
			for i := range count {
				conn, err := pgx.Connect(ctx, t.URL)
				if err != nil {
					return session, errors.Join(err, session.Close())
				}
				account := i * stride
				clients = append(clients, &tableClient{conn, int64(account * rowsOfResource), t.token, sequence,
					fmt.Sprintf("%s/%d", t.Prefix, account), ""})
			}
			return session, nil
		}}
}
