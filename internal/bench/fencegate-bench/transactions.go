//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/bench/peers"
	"github.com/fencegate/fencegate/internal/bench/rig"
	"github.com/fencegate/fencegate/internal/embeddedpg"
)

// transaction is what a client makes over and over. Its statements have pgbench's variables :row (the first row of the
// client's resource), :resource, :token and :sequence.
type transaction struct {
	name, base string
	statements []string
	// steps sends the statements one by one, and not in one pipeline.
	steps bool
	// script is pgbench's, where it is not just the statements.
	script string
	do     func(ctx context.Context, c *tableClient) error
}

const (
	guardSQL  = "select fence.guard(:resource, :token, :sequence)"
	updateSQL = "update fencegate_bench.%s set balance = balance + 1 where id = :row"
)

func updateOf(table string) string { return fmt.Sprintf(updateSQL, table) }

// inTransaction puts statements between begin and commit.
func inTransaction(statements ...string) []string {
	return slices.Concat([]string{"begin"}, statements, []string{"commit"})
}

// writeTransactions each update one row.
var writeTransactions = []transaction{
	{name: "bare", base: "bare", statements: []string{updateOf("plain")}},
	{name: "pipelined", base: "bare", statements: inTransaction(updateOf("plain"))},
	{name: "guarded", base: "bare", statements: inTransaction(guardSQL, updateOf("plain"))},
	{name: "protected", base: "bare", statements: inTransaction(guardSQL, updateOf("protected"))},
	{name: "protected-implicit", base: "bare", statements: []string{guardSQL, updateOf("protected")}},
	{name: "partitioned", base: "bare", statements: inTransaction(updateOf("partitioned"))},
	{name: "partitioned-protected", base: "bare", statements: inTransaction(guardSQL, updateOf("partitioned_protected"))},
	{name: "settings", base: "bare", statements: inTransaction(
		"select set_config('fencegate.token', :token::bigint || '.' || :sequence::bigint, true)", updateOf("protected"))},
	{name: "by-hand", base: "bare", do: byHand, script: `begin;
select token as last from fencegate_bench.tokens where resource = :resource for update \gset
\if :last > :token
rollback;
\else
\if :last < :token
update fencegate_bench.tokens set token = :token where resource = :resource;
\endif
` + updateOf("plain") + `;
commit;
\endif
`},
}

// fiveTransactions each update the five rows of one resource, in one round trip or in a round trip for each statement.
var fiveTransactions = []transaction{
	{name: "five", base: "five", statements: inTransaction(five("plain")...)},
	{name: "five-protected", base: "five", statements: inTransaction(append([]string{guardSQL}, five("protected")...)...)},
	{name: "five-steps", base: "five-steps", steps: true, statements: inTransaction(five("plain")...)},
	{name: "five-steps-protected", base: "five-steps", steps: true,
		statements: inTransaction(append([]string{guardSQL}, five("protected")...)...)},
}

func five(table string) (updates []string) {
	for row := range rowsOfResource {
		updates = append(updates, fmt.Sprintf("%s::bigint + %d", updateOf(table), row))
	}
	return updates
}

func nameOfTransaction(t transaction) string { return t.name }

func tableTargetNames() (names []string) {
	for _, t := range writeTransactions {
		names = append(names, t.name)
	}
	return names
}

// tableClient writes to one resource, over a connection of its own.
type tableClient struct {
	conn                 *pgx.Conn
	row, token, sequence int64
	resource             string
}

var variables = regexp.MustCompile(`\B:(row|resource|token|sequence)\b`)

// prepared is a statement for pgx.
type prepared struct {
	sql  string
	args []string
}

func prepare(sql string) prepared {
	p := prepared{}
	p.sql = variables.ReplaceAllStringFunc(sql, func(variable string) string {
		p.args = append(p.args, variable[1:])
		return "$" + strconv.Itoa(len(p.args))
	})
	return p
}

func (c *tableClient) args(p prepared) []any {
	args := make([]any, len(p.args))
	for i, name := range p.args {
		switch name {
		case "row":
			args[i] = c.row
		case "resource":
			args[i] = c.resource
		case "token":
			args[i] = c.token
		case "sequence":
			args[i] = c.sequence
		}
	}
	return args
}

// pipeline sends statements in one round trip, or each when the last is answered.
func (c *tableClient) pipeline(ctx context.Context, statements []prepared, steps bool) (err error) {
	c.sequence++
	if steps {
		for _, p := range statements {
			tag, err := c.conn.Exec(ctx, p.sql, c.args(p)...)
			if err := checkRows(p, tag, err); err != nil {
				return err
			}
		}
		return nil
	}
	var batch pgx.Batch
	for _, p := range statements {
		batch.Queue(p.sql, c.args(p)...)
	}
	results := c.conn.SendBatch(ctx, &batch)
	defer func() { err = errors.Join(err, results.Close()) }()
	for _, p := range statements {
		tag, err := results.Exec()
		if err := checkRows(p, tag, err); err != nil {
			return err
		}
	}
	return nil
}

// checkRows makes sure that an update found its row.
func checkRows(p prepared, tag pgconn.CommandTag, err error) error {
	if err == nil && tag.Update() && tag.RowsAffected() != 1 {
		err = fmt.Errorf("%d rows", tag.RowsAffected())
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", p.sql, err)
	}
	return err
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
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "update fencegate_bench.plain set balance = balance + 1 where id = $1", c.row)
		return err
	})
}

func clientsName(clients int) string { return fmt.Sprintf("%d clients", clients) }

// transactions measures transactions with every number of clients.
func (t *tables) transactions(ctx context.Context, table string, all []transaction) error {
	for _, clients := range t.Clients {
		var targets []rig.Target
		for _, transaction := range all {
			targets = append(targets, t.target(transaction))
		}
		if err := t.Compare(ctx, rig.Case{Table: table, Name: clientsName(clients), Clients: clients, CPURatio: true},
			targets); err != nil {
			return err
		}
	}
	return nil
}

func (t *tables) target(made transaction) rig.Target {
	var statements []prepared
	for _, sql := range made.statements {
		statements = append(statements, prepare(sql))
	}
	return rig.Target{Name: made.name, Base: made.base,
		Open: func(ctx context.Context, count, _ int) (rig.Session, error) {
			clients := make([]*tableClient, 0, count)
			session := rig.Session{Close: func() (err error) {
				for _, c := range clients {
					err = errors.Join(err, c.conn.Close(context.WithoutCancel(ctx)))
				}
				return err
			}}
			session.Do = func(ctx context.Context, client, _ int) error {
				if made.do != nil {
					return made.do(ctx, clients[client])
				}
				return clients[client].pipeline(ctx, statements, made.steps)
			}
			sequence := t.numbers()
			for i := range count {
				conn, err := pgx.Connect(ctx, t.URL)
				if err != nil {
					return session, errors.Join(err, session.Close())
				}
				account := i * t.stride(count)
				clients = append(clients, &tableClient{conn, int64(account * rowsOfResource), t.token, sequence,
					fmt.Sprintf("%s/%d", t.Prefix, account)})
			}
			return session, nil
		}}
}

// pgbench is the transaction as a script for it.
func (t transaction) pgbench() string {
	script := fmt.Sprintf("\\set account :client_id * :stride\n\\set row :account * %d\n\\set sequence :sequence + 1\n",
		rowsOfResource)
	if t.script != "" {
		script += t.script
	} else {
		script += "\\startpipeline\n" + strings.Join(t.statements, ";\n") + ";\n\\endpipeline\n"
	}
	return strings.ReplaceAll(script, ":resource", ":prefix::text || '/' || :account::text")
}

// findPgbench returns the program's path: it is beside PostgreSQL's own, or in the PATH.
func findPgbench() (string, error) {
	if binaries, err := embeddedpg.FindBinaries(); err == nil {
		if program, err := exec.LookPath(filepath.Join(binaries.Dir, "pgbench")); err == nil {
			return program, nil
		}
	}
	program, err := exec.LookPath("pgbench")
	if err != nil {
		return "", fmt.Errorf("pgbench: %w", peers.ErrAbsent)
	}
	return program, nil
}

var tps = regexp.MustCompile(`(?m)^tps = ([0-9.]+) `)

// pgbench measures transactions once more, by pgbench's client, for whole seconds.
func (t *tables) pgbench(ctx context.Context, all []transaction, transactions int) error {
	program, err := findPgbench()
	if takesPart, err := t.TakesPart("pgbench", err); !takesPart {
		return err
	}
	dir, err := os.MkdirTemp("", "fencegate-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "script.sql")
	length := fmt.Sprintf("--time=%d", max(1, int(math.Ceil(t.Duration.Seconds()))))
	if transactions > 0 {
		length = fmt.Sprintf("--transactions=%d", transactions)
	}
	for _, clients := range t.Clients {
		err := t.InTurn(len(all), func(round, i int) error {
			if err := os.WriteFile(script, []byte(all[i].pgbench()), 0o600); err != nil {
				return err
			}
			cmd := exec.CommandContext(ctx, program, "--no-vacuum", "--protocol=prepared", "--file="+script,
				"--client="+strconv.Itoa(clients), "--jobs="+strconv.Itoa(min(clients, runtime.NumCPU())),
				length, "--define=prefix="+t.Prefix,
				fmt.Sprintf("--define=token=%d", t.token), fmt.Sprintf("--define=stride=%d", t.stride(clients)),
				fmt.Sprintf("--define=sequence=%d", t.numbers()), t.URL)
			var failure strings.Builder
			cmd.Stderr = &failure
			output, err := cmd.Output()
			found := tps.FindSubmatch(output)
			if err != nil || found == nil {
				return fmt.Errorf("pgbench, %s: %w: %s%s", all[i].name, err, output, &failure)
			}
			perSecond, err := strconv.ParseFloat(string(found[1]), 64)
			t.Note(rig.Sample{Table: "pgbench", Case: clientsName(clients), Target: all[i].name, Base: "bare", Round: round,
				Values: []rig.Value{{Name: rig.PerSecond, Of: perSecond}}})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
