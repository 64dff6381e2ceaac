package guards

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx of database/sql

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/pgxguard"
	"github.com/fencegate/fencegate/lockclient/sqlguard"
)

// exec runs a statement in a transaction.
type exec func(statement string, args ...any) error

// driver is one of the two packages.
type driver interface {
	inTx(ctx context.Context, lease *lockclient.Lease, resources []string, fn func(exec) error) error
	// guarded runs a transaction of the caller's own, by Guard and Error.
	guarded(ctx context.Context, lease *lockclient.Lease, fn func(exec) error) error
}

var drivers = map[string]func(t *testing.T, url string) driver{
	"pgx": func(t *testing.T, url string) driver {
		pool, err := pgxpool.New(t.Context(), url)
		check(t, err)
		t.Cleanup(pool.Close)
		return pgxDriver{pool}
	},
	"sql": func(t *testing.T, url string) driver {
		db, err := sql.Open("pgx", url)
		check(t, err)
		t.Cleanup(func() { check(t, db.Close()) })
		return sqlDriver{db}
	},
}

type pgxDriver struct{ pool *pgxpool.Pool }

func pgxExec(ctx context.Context, tx pgx.Tx) exec {
	return func(statement string, args ...any) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	}
}

func (d pgxDriver) inTx(
	ctx context.Context, lease *lockclient.Lease, resources []string, fn func(exec) error,
) error {
	var opts []pgxguard.Option
	for _, resource := range resources {
		opts = append(opts, pgxguard.OnResource(resource))
	}
	return pgxguard.InTx(ctx, d.pool, lease, func(tx pgx.Tx) error { return fn(pgxExec(ctx, tx)) }, opts...)
}

func (d pgxDriver) guarded(ctx context.Context, lease *lockclient.Lease, fn func(exec) error) error {
	return pgxguard.Error(pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if err := pgxguard.Guard(ctx, tx, lease); err != nil {
			return err
		}
		return fn(pgxExec(ctx, tx))
	}))
}

type sqlDriver struct{ db *sql.DB }

func sqlExec(ctx context.Context, tx *sql.Tx) exec {
	return func(statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	}
}

func (d sqlDriver) inTx(
	ctx context.Context, lease *lockclient.Lease, resources []string, fn func(exec) error,
) error {
	var opts []sqlguard.Option
	for _, resource := range resources {
		opts = append(opts, sqlguard.OnResource(resource))
	}
	return sqlguard.InTx(ctx, d.db, lease, func(tx *sql.Tx) error { return fn(sqlExec(ctx, tx)) }, opts...)
}

func (d sqlDriver) guarded(ctx context.Context, lease *lockclient.Lease, fn func(exec) error) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err = sqlguard.Guard(ctx, tx, lease); err == nil {
		err = fn(sqlExec(ctx, tx))
	}
	if err != nil {
		return errors.Join(sqlguard.Error(err), tx.Rollback())
	}
	return sqlguard.Error(tx.Commit())
}
