package tables

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// bulk measures one statement that updates many rows, of one resource and of many.
func (r *rig) bulk(ctx context.Context) error {
	for _, resources := range []int{1, r.config.BulkResources} {
		if err := r.bulkOf(ctx, resources); err != nil {
			return fmt.Errorf("%d resources: %w", resources, err)
		}
	}
	return nil
}

func (r *rig) bulkOf(ctx context.Context, resources int) error {
	var specs []tableSpec
	for _, t := range []tableSpec{
		{name: plainTable}, {name: protectedTable, protected: true},
		{name: partitionedTable, partitioned: true},
		{name: partitionedProtectedTable, partitioned: true, protected: true},
	} {
		t.name = bulkTable(t.name)
		t.rows, t.resource = r.config.BulkRows, fmt.Sprintf("i %% %d", resources)
		if err := r.makeTable(ctx, t); err != nil {
			return err
		}
		specs = append(specs, t)
		if err := r.bulkUpdate(ctx, t, resources, func(Sample) {}); err != nil { // pages have room from now on
			return err
		}
	}
	err := r.inTurn(len(specs), func(round, i int) error {
		return r.bulkUpdate(ctx, specs[i], resources, func(s Sample) {
			s.Case = Case{Measure: Bulk, Clients: 1, Rows: r.config.BulkRows, Resources: resources}
			s.Round, s.PerSecond = round, 1000/s.Milliseconds
			r.note(s)
		})
	})
	if err != nil {
		return err
	}
	for _, t := range specs {
		if err := r.execute(ctx, "drop table fencegate_bench."+t.name); err != nil {
			return err
		}
	}
	return nil
}

func bulkTable(name string) string { return "bulk_" + name }

// guardsOf names the guards before the update of a table.
func guardsOf(table string) string { return "guards of " + table }

// bulkUpdate updates all rows of a table in one statement; where it is protected, after guards for all resources. It
// notes how long each took, without the commit.
func (r *rig) bulkUpdate(ctx context.Context, t tableSpec, resources int, note func(Sample)) error {
	err := pgx.BeginFunc(ctx, r.control, func(tx pgx.Tx) error {
		if t.protected {
			before := time.Now()
			_, err := tx.Exec(ctx, `
				select count(fence.guard($1 || '/' || i, $2, $3)) from generate_series(0, $4::integer - 1) i`,
				r.prefix, r.token, r.numbers(), resources)
			if err != nil {
				return fmt.Errorf("guard: %w", err)
			}
			note(Sample{Target: guardsOf(t.name), Milliseconds: milliseconds(time.Since(before))})
		}
		before := time.Now()
		tag, err := tx.Exec(ctx, "update fencegate_bench."+t.name+" set balance = balance + 1")
		if err != nil {
			return err
		}
		if tag.RowsAffected() != int64(t.rows) {
			return fmt.Errorf("%d rows of %d were updated", tag.RowsAffected(), t.rows)
		}
		note(Sample{Target: t.name, Milliseconds: milliseconds(time.Since(before))})
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	return r.execute(ctx, "vacuum fencegate_bench."+t.name)
}
