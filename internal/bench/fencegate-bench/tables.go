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

	"github.com/fencegate/fencegate/internal/bench/rig"
)

type tablesCmd struct {
	rig.Servers
	rig.Pace `set:"clients=1,8,64" set:"rounds=10" set:"duration=500ms" set:"warmup=200ms"` //nolint:staticcheck // kong takes several "set"

	Measure       []string      `help:"What to measure: writes, five, bulk, plans, pgbench." enum:"writes,five,bulk,plans,pgbench" default:"writes,five,bulk,plans,pgbench"`
	Targets       []string      `help:"What takes part in writes and pgbench: bare, pipelined, guarded, protected, protected-implicit, partitioned, partitioned-protected, settings, by-hand. Default: all." placeholder:"TARGET,…"`
	Rows          int           `help:"Rows of each table, and fences." default:"1000000"`
	BulkRows      int           `help:"Bulk: how many rows one statement updates." default:"100000"`
	BulkResources int           `help:"Bulk: of how many resources, beside one." default:"1000"`
	FlushDelay    time.Duration `help:"How much longer each flush of the private PostgreSQL takes." default:"0s"`
	// PgbenchTransactions are those of each of pgbench's clients; 0: as many as they can in Duration.
	PgbenchTransactions int `hidden:"" default:"0"`
}

// Help is shown by --help.
func (tablesCmd) Help() string {
	return "Updates of tables that fence.protect protects, after fence.guard, beside bare updates of unprotected " +
		"tables and a fence made by hand, in the same run: by pgx, by pgbench where it is installed, and in bulk. " +
		quoteRatios
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
	return checkTargets(c.Targets, tableTargetNames())
}

// Run measures.
func (c *tablesCmd) Run(ctx context.Context, to output) error {
	private := rig.Private{Settings: manyConnections, FlushDelay: c.FlushDelay}
	return measure(ctx, to, c.Servers, c.Pace, private, func(r *rig.Rig) error {
		t := &tables{Rig: r, rows: c.Rows}
		if err := t.prepare(ctx); err != nil {
			return err
		}
		for _, measure := range c.Measure {
			var err error
			switch measure {
			case "writes":
				err = t.transactions(ctx, "writes", wanted(writeTransactions, c.Targets, nameOfTransaction))
			case "five":
				err = t.transactions(ctx, "five", fiveTransactions)
			case "bulk":
				err = errors.Join(t.bulk(ctx, c.BulkRows, 1), t.bulk(ctx, c.BulkRows, c.BulkResources))
			case "plans":
				err = t.plans(ctx)
			case "pgbench":
				err = t.pgbench(ctx, wanted(writeTransactions, c.Targets, nameOfTransaction), c.PgbenchTransactions)
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
	for _, table := range []string{"writes", "pgbench"} {
		for _, clients := range []int{1, 8, 64} {
			if limit := limits[clients]; limit != 0 {
				goals = append(goals, rig.Goal{Name: fmt.Sprintf("%s, %d clients: protected / bare", table, clients), Limit: limit,
					Figure: r.Ratio(table, clientsName(clients), "protected", "bare", rig.PerSecond)})
			}
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
	scans := rig.Goal{Name: "plans: sequential scans of a transaction", AtMost: true, Figure: rig.SpreadOf(nil)}
	for _, s := range r.Samples {
		if s.Table == plansTable {
			scans.Figure = rig.SpreadOf([]float64{max(s.Values[0].Of, scans.Figure.Median)})
		}
	}
	return append(goals, scans)
}

// tables are those that clients write to, each with an unprotected or a protected twin.
type tables struct {
	*rig.Rig

	rows  int
	token int64
	// sequence is where the next clients begin to number their writes.
	sequence int64
}

// tableSpecs are the kinds of tables.
var tableSpecs = []struct {
	name                   string
	partitioned, protected bool
}{
	{"plain", false, false}, {"protected", false, true}, {"partitioned", true, false},
	{"partitioned_protected", true, true},
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

// stride is how many resources are between those of two clients: they are spread over the table.
func (t *tables) stride(clients int) int { return t.rows / rowsOfResource / clients }

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
		base := "plain"
		if tableSpecs[i].partitioned {
			base = "partitioned"
		}
		t.Note(rig.Sample{Table: "bulk", Case: bulkName(rows, resources), Target: tableSpecs[i].name, Base: base,
			Round:  round,
			Values: []rig.Value{{Name: "ms", Of: milliseconds(took)}, {Name: "guards ms", Of: milliseconds(guards)}}})
		return err
	})
	for _, spec := range tableSpecs {
		err = errors.Join(err, t.Execute(ctx, "drop table fencegate_bench."+bulkPrefix+spec.name))
	}
	return err
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// guardAll admits a write to each of the resources from 0 to below $4.
const guardAll = "select count(fence.guard($1 || '/' || i, $2, $3)) from generate_series(0, $4::integer - 1) i"

const plansTable = "plans: the scans of a transaction that updates, deletes and inserts rows"

// errRollback ends a transaction that has done what it was for.
var errRollback = errors.New("roll back")

// plans counts the scans of transactions of every size, often enough for a prepared statement to get its generic plan.
func (t *tables) plans(ctx context.Context) error {
	for _, table := range []string{"protected", "partitioned_protected"} {
		for _, rows := range []int{1, 100, 1000} {
			for round := range 7 {
				if rows*rowsOfResource > t.rows {
					continue
				}
				err := pgx.BeginFunc(ctx, t.Control, func(tx pgx.Tx) error {
					before, err := countScans(ctx, tx, table)
					if err != nil {
						return err
					}
					if err := t.writeRows(ctx, tx, table, rows); err != nil {
						return err
					}
					after, err := countScans(ctx, tx, table)
					if err != nil {
						return err
					}
					for i, scanned := range []string{"fence.fences", "fencegate_bench." + table} {
						t.Note(rig.Sample{Table: plansTable, Case: fmt.Sprint(rows, " rows"), Target: table + ": " + scanned,
							Round: round + 1,
							Values: []rig.Value{{Name: "sequential", Of: after[2*i] - before[2*i]}, {Name: "by index",
								Of: after[2*i+1] - before[2*i+1]}}})
					}
					return errRollback
				})
				if !errors.Is(err, errRollback) {
					return err
				}
			}
		}
	}
	return nil
}

// countScans returns the sequential scans and those of indexes that the transaction made, of the fences and of a table.
func countScans(ctx context.Context, tx pgx.Tx, table string) (scans [4]float64, err error) {
	const count = `
		select coalesce(sum(pg_stat_get_xact_numscans(t)), 0)::float8, coalesce(sum((
			select sum(pg_stat_get_xact_numscans(i.indexrelid)) from pg_index i where i.indrelid = t)), 0)::float8
		from (select $1::text::regclass as t union select relid from pg_partition_tree($1::text::regclass) where isleaf) t`
	err = tx.QueryRow(ctx, count, "fence.fences").Scan(&scans[0], &scans[1])
	if err == nil {
		err = tx.QueryRow(ctx, count, "fencegate_bench."+table).Scan(&scans[2], &scans[3])
	}
	return scans, err
}

// writeRows updates, deletes and inserts rows, each of a resource of its own.
func (t *tables) writeRows(ctx context.Context, tx pgx.Tx, table string, rows int) error {
	table = "fencegate_bench." + table
	ids := make([]int64, rows)
	for i := range ids {
		ids[i] = int64(i) * rowsOfResource
	}
	for _, s := range []struct {
		sql  string
		args []any
	}{
		{guardAll, []any{t.Prefix, t.token, t.numbers(), rows}},
		{"update " + table + " set balance = balance + 1 where id = any ($1)", []any{ids}},
		{"delete from " + table + " where id = any ($1)", []any{ids}},
		{"insert into " + table + " select id, id / $2, 0 from unnest($1::bigint[]) id", []any{ids, rowsOfResource}},
	} {
		if _, err := tx.Exec(ctx, s.sql, s.args...); err != nil {
			return fmt.Errorf("%s: %w", s.sql, err)
		}
	}
	return nil
}
