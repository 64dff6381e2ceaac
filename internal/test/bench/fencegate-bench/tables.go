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
)

type tablesCmd struct {
	rig.Servers
	rig.Pace `set:"clients=1,8,64" set:"rounds=10" set:"duration=500ms" set:"warmup=200ms"` //nolint:staticcheck // kong takes several "set"

	Measure       []string `help:"What to measure: ${enum}." enum:"writes,five,bulk,claims" default:"writes,five,bulk,claims"`
	Targets       []string `help:"What takes part in writes: ${enum}." enum:"${transactions}" default:"${transactions}"`
	Rows          int      `help:"Rows of each table, and fences." default:"1000000"`
	BulkRows      int      `help:"Bulk: how many rows one statement updates." default:"100000"`
	BulkResources int      `help:"Bulk: of how many resources, beside one." default:"1000"`
}

// rowsOfResource is how many rows of the clients' tables belong to one resource.
const rowsOfResource = 5

// Validate is called by kong.
func (c tablesCmd) Validate() error {
	if c.BulkRows < 1 || c.BulkResources < 1 || c.BulkResources > c.BulkRows {
		return errors.New("--bulk-rows must be positive, and --bulk-resources no more than that")
	}
	if len(c.Clients) > 0 && slices.Max(c.Clients)*rowsOfResource > c.Rows {
		return fmt.Errorf("--rows must be at least %d for each of --clients", rowsOfResource)
	}
	return nil
}

// Run measures.
func (c *tablesCmd) Run(ctx context.Context, to output) error {
	return measure(ctx, to, c.Servers, c.Pace, rig.Private{Settings: manyConnections}, func(r *rig.Rig) error {
		t := &tables{Rig: r, rows: c.Rows}
		if err := t.prepare(ctx); err != nil {
			return err
		}
		for _, measure := range c.Measure {
			var err error
			switch measure {
			case "writes":
				err = t.transactions(ctx, "writes", slices.DeleteFunc(slices.Clone(writeTransactions),
					func(t transaction) bool { return !slices.Contains(c.Targets, t.name) }))
			case "five":
				err = t.transactions(ctx, "five", fiveTransactions)
			case "bulk":
				err = errors.Join(t.bulk(ctx, c.BulkRows, 1), t.bulk(ctx, c.BulkRows, c.BulkResources))
			case "claims":
				err = t.claims(ctx)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", measure, err)
			}
		}
		return nil
	}, c.goals)
}

// goals are limits of ratios. On a disk whose flush costs time, the flush is most of a write of one client.
func (c *tablesCmd) goals(r rig.Report) (goals []rig.Goal) {
	const nearlyFreeUS = 100
	limits := map[int]float64{1: 0.68, 8: 0.55, 64: 0.62}
	if r.FlushMicroseconds >= nearlyFreeUS {
		limits = map[int]float64{64: 0.85}
	}
	for _, clients := range []int{1, 8, 64} {
		if limit := limits[clients]; limit != 0 {
			goals = append(goals, rig.Goal{Name: fmt.Sprintf("writes, %d clients: protected / bare", clients), Limit: limit,
				Figure: r.Ratio("writes", clientsName(clients), "protected", "bare", rig.PerSecond)})
		}
	}
	for _, clients := range c.Clients {
		for _, five := range []string{"five", "five-steps"} {
			goals = append(goals, rig.Goal{Name: fmt.Sprintf("%s, %d clients: protected / not", five, clients), Limit: 0.85,
				Figure: r.Ratio("five", clientsName(clients), five+"-protected", five, rig.PerSecond)})
		}
	}
	for resources, limit := range map[int]float64{1: 1.1, c.BulkResources: 1.3} {
		goals = append(goals, rig.Goal{Name: fmt.Sprintf("bulk, %d resources: protected / plain", resources), Limit: limit,
			AtMost: true, Figure: r.Ratio("bulk", bulkName(c.BulkRows, resources), "protected", "plain", "ms")})
	}
	return goals
}

// tables are those that clients write to, each with an unprotected or a protected twin.
type tables struct {
	*rig.Rig

	rows  int
	token int64
	// sequence is where the next clients begin to number their writes.
	sequence int64
}

// tableSpecs are the kinds of tables, each with its unprotected twin.
var tableSpecs = []struct {
	name, base             string
	partitioned, protected bool
}{
	{"plain", "plain", false, false}, {"protected", "plain", false, true}, {"partitioned", "partitioned", true, false},
	{"partitioned_protected", "partitioned", true, true},
}

// prepare makes the tables, and a fence for each resource.
func (t *tables) prepare(ctx context.Context) error {
	t.Progress("making tables of %d rows, and as many fences", t.rows)
	if err := t.Control.QueryRow(ctx, "select nextval('fence.tokens')").Scan(&t.token); err != nil {
		return fmt.Errorf("take a token: %w", err)
	}
	t.OnClose(func() error {
		return t.Execute(context.WithoutCancel(ctx), "drop schema if exists fencegate_bench cascade")
	})
	err := t.Execute(ctx, `drop schema if exists fencegate_bench cascade`, `create schema fencegate_bench`,
		`create table fencegate_bench.tokens (resource text collate "C" primary key, token bigint not null)`,
		fmt.Sprintf(`insert into fencegate_bench.tokens select '%s/' || i, %d from generate_series(0, %d) i`,
			t.Prefix, t.token, t.rows-1),
		`insert into fence.fences (resource, granted_token, open) select resource, token, true from fencegate_bench.tokens`,
		"vacuum (analyze) fence.fences, fencegate_bench.tokens")
	if err != nil {
		return err
	}
	if err := t.makeTables(ctx, "", t.rows, fmt.Sprintf("i / %d", rowsOfResource)); err != nil {
		return err
	}
	return t.Execute(ctx, "checkpoint")
}

// makeTables makes a table of each kind; resource is the number of the resource of row i, in SQL.
func (t *tables) makeTables(ctx context.Context, prefix string, rows int, resource string) error {
	const partitions = 4
	for _, spec := range tableSpecs {
		table := "fencegate_bench." + prefix + spec.name
		create := []string{"create table " + table +
			" (id bigint primary key, account bigint not null, balance bigint not null)"}
		if spec.partitioned {
			create[0] += " partition by hash (id)"
			for i := range partitions {
				create = append(create, fmt.Sprintf(
					"create table %[1]s_%[2]d partition of %[1]s for values with (modulus %[3]d, remainder %[2]d)", table, i,
					partitions))
			}
		}
		create = append(create, fmt.Sprintf("insert into %s select i, %s, 0 from generate_series(0, %d) i", table, resource,
			rows-1), "vacuum (analyze) "+table)
		if spec.protected {
			create = append(create, fmt.Sprintf("select fence.protect('%s', '%s/{account}')", table, t.Prefix))
		}
		if err := t.Execute(ctx, create...); err != nil {
			return err
		}
		_, err := t.Control.Exec(ctx, "update "+table+" set balance = 1 where id = 0")
		var refused *pgconn.PgError
		if spec.protected != (errors.As(err, &refused) && refused.Code == "LF101") {
			return fmt.Errorf("a write to %s without a token: %w", table, err)
		}
	}
	return nil
}

// numbers returns a sequence from which clients may number their writes.
func (t *tables) numbers() int64 {
	t.sequence += 1 << 32 // more than the writes that one client makes
	return t.sequence
}

const bulkPrefix = "bulk_"

func bulkName(rows, resources int) string {
	return fmt.Sprintf("%d rows of %d resources", rows, resources)
}

// bulk measures one statement that updates many rows.
func (t *tables) bulk(ctx context.Context, rows, resources int) error {
	if err := t.makeTables(ctx, bulkPrefix, rows, fmt.Sprintf("i %% %d", resources)); err != nil {
		return err
	}
	update := func(i int) (took, guards time.Duration, err error) {
		table := "fencegate_bench." + bulkPrefix + tableSpecs[i].name
		err = pgx.BeginFunc(ctx, t.Control, func(tx pgx.Tx) error {
			begun := time.Now()
			if tableSpecs[i].protected {
				if _, err := tx.Exec(ctx, guardAll, t.Prefix, t.token, t.numbers(), resources); err != nil {
					return err
				}
				guards = time.Since(begun)
			}
			begun = time.Now()
			tag, err := tx.Exec(ctx, "update "+table+" set balance = balance + 1")
			if took = time.Since(begun); err == nil && tag.RowsAffected() != int64(rows) {
				err = fmt.Errorf("%d rows of %d were updated", tag.RowsAffected(), rows)
			}
			return err
		})
		return took, guards, errors.Join(err, t.Execute(ctx, "vacuum "+table))
	}
	for i := range tableSpecs { // pages have room from now on
		if _, _, err := update(i); err != nil {
			return err
		}
	}
	err := t.InTurn(len(tableSpecs), func(round, i int) error {
		took, guards, err := update(i)
		milliseconds := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
		t.Note("bulk", bulkName(rows, resources), tableSpecs[i].name, tableSpecs[i].base, round,
			rig.Value{Name: "ms", Of: milliseconds(took)}, rig.Value{Name: "guards ms", Of: milliseconds(guards)})
		return err
	})
	for _, spec := range tableSpecs {
		err = errors.Join(err, t.Execute(ctx, "drop table fencegate_bench."+bulkPrefix+spec.name))
	}
	return err
}

// guardAll admits a write to each of the resources from 0 to below $4.
const guardAll = "select count(fence.guard($1 || '/' || i, $2, $3)) from generate_series(0, $4::integer - 1) i"
