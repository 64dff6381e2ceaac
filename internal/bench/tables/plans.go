package tables

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Scans are those that one transaction made.
type Scans struct {
	// Rows are how many the transaction wrote, each of a resource of its own, to a table with so many more.
	Rows   int    `json:"rows"`
	Target string `json:"target"`
	// Table is where the scans were.
	Table      string `json:"table"`
	Sequential int64  `json:"sequential"`
	Index      int64  `json:"index"`
}

// plansRows are how many rows the transactions write whose plans are looked at.
var plansRows = []int{1, 100, 1000}

// errRollback ends a transaction that has done what it was for.
var errRollback = errors.New("roll back")

// plansRepeats are enough transactions for a prepared statement to get its generic plan.
const plansRepeats = 7

// plans counts the scans of transactions of every size.
func (r *rig) plans(ctx context.Context) error {
	for _, table := range []string{protectedTable, partitionedProtectedTable} {
		for _, rows := range plansRows {
			if rows*rowsOfResource > r.config.Rows {
				continue
			}
			var scans []Scans
			for range plansRepeats {
				err := pgx.BeginFunc(ctx, r.control, func(tx pgx.Tx) (err error) {
					scans, err = r.writeRows(ctx, tx, table, rows)
					return errors.Join(err, errRollback)
				})
				if len(scans) == 0 {
					return fmt.Errorf("%s, %d rows: %w", table, rows, err)
				}
			}
			r.report.Scans = append(r.report.Scans, scans...)
		}
	}
	return nil
}

// writeRows updates, deletes and inserts rows, and returns the scans of the fences and of the table that were made for
// it.
func (r *rig) writeRows(ctx context.Context, tx pgx.Tx, table string, rows int) ([]Scans, error) {
	qualified := "fencegate_bench." + table
	before, err := countScans(ctx, tx, qualified)
	if err != nil {
		return nil, err
	}
	ids := make([]int64, rows)
	for i := range ids {
		ids[i] = int64(i) * rowsOfResource
	}
	for _, s := range []statement{
		{"select count(fence.guard($1 || '/' || i, $2, $3)) from generate_series(0, $4::integer - 1) i",
			[]any{r.prefix, r.token, r.numbers(), rows}},
		{"update " + qualified + " set balance = balance + 1 where id = any ($1)", []any{ids}},
		{"delete from " + qualified + " where id = any ($1)", []any{ids}},
		{"insert into " + qualified + " select id, id / $2, 0 from unnest($1::bigint[]) id", []any{ids, rowsOfResource}},
	} {
		if _, err := tx.Exec(ctx, s.sql, s.args...); err != nil {
			return nil, fmt.Errorf("%s: %w", s.sql, err)
		}
	}
	after, err := countScans(ctx, tx, qualified)
	if err != nil {
		return nil, err
	}
	for i := range after {
		after[i].Rows, after[i].Target = rows, table
		after[i].Sequential -= before[i].Sequential
		after[i].Index -= before[i].Index
	}
	return after, nil
}

// countScans returns the scans of the session that PostgreSQL has not reported yet, those of the transaction included.
func countScans(ctx context.Context, tx pgx.Tx, table string) ([]Scans, error) {
	rows, err := tx.Query(ctx, `
		select t.name, sum(pg_stat_get_xact_numscans(t.oid))::bigint,
			sum((select sum(pg_stat_get_xact_numscans(i.indexrelid)) from pg_index i where i.indrelid = t.oid))::bigint
		from (select 'fence.fences' as name, 'fence.fences'::regclass::oid as oid
			union all select $1, $1::text::regclass
			union all select $1, p.relid from pg_partition_tree($1::text::regclass) p where p.isleaf and p.level > 0) t
		group by t.name order by t.name`, table)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Scans, err error) {
		err = row.Scan(&s.Table, &s.Sequential, &s.Index)
		return s, err
	})
}
