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

// plans counts the scans of transactions of every size, each often enough that prepared statements have their generic
// plans.
func (r *rig) plans(ctx context.Context) error {
	for _, table := range []string{protectedTable, partitionedProtectedTable} {
		for _, rows := range plansRows {
			if rows*rowsOfResource > r.config.Rows {
				continue
			}
			var scans []Scans
			for range 7 {
				err := pgx.BeginFunc(ctx, r.control, func(tx pgx.Tx) (err error) {
					scans, err = r.scans(ctx, tx, table, rows)
					return errors.Join(err, errRollback)
				})
				if !errors.Is(err, errRollback) || len(scans) == 0 {
					return fmt.Errorf("%s, %d rows: %w", table, rows, err)
				}
			}
			r.report.Scans = append(r.report.Scans, scans...)
		}
	}
	return nil
}

// scans updates, deletes and inserts rows, and returns the transaction's scans of the fences and of the table.
func (r *rig) scans(ctx context.Context, tx pgx.Tx, table string, rows int) ([]Scans, error) {
	qualified, last := "fencegate_bench."+table, rows*rowsOfResource
	for _, s := range []statement{
		{"select count(fence.guard($1 || '/' || i, $2, $3)) from generate_series(0, $4::integer - 1) i",
			[]any{r.prefix, r.token, r.numbers(), rows}},
		{"update " + qualified + " set balance = balance + 1 where id = any (array(select i from generate_series(0, $1::bigint - 1, $2) i))",
			[]any{last, rowsOfResource}},
		{"delete from " + qualified + " where id = any (array(select i from generate_series(0, $1::bigint - 1, $2) i))",
			[]any{last, rowsOfResource}},
		{"insert into " + qualified + " select i, i / $2, 0 from generate_series(0, $1::bigint - 1, $2) i",
			[]any{last, rowsOfResource}},
	} {
		if _, err := tx.Exec(ctx, s.sql, s.args...); err != nil {
			return nil, fmt.Errorf("%s: %w", s.sql, err)
		}
	}
	found, err := tx.Query(ctx, `
		select case when s.schemaname = 'fence' then 'fence.fences' else $1 end, sum(s.seq_scan), sum(s.idx_scan)
		from pg_stat_xact_user_tables s
		where s.relid = 'fence.fences'::regclass or s.relid in (select relid from pg_partition_tree($1::text::regclass))
			or s.relid = $1::text::regclass
		group by 1 order by 1`, qualified)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(row pgx.CollectableRow) (Scans, error) {
		s := Scans{Rows: rows, Target: table}
		return s, row.Scan(&s.Table, &s.Sequential, &s.Index)
	})
}
