package tables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/bench"
	"github.com/fencegate/fencegate/store"
)

// rig is what is there while something is measured.
type rig struct {
	config  Config
	report  *Report
	control *pgx.Conn
	// prefix is above the names of all resources; all have the same token.
	prefix string
	token  int64
	// sequence is where the next clients begin to number their writes.
	sequence int64
}

// open makes the tables and their fences. The caller closes the rig also if it fails.
func open(ctx context.Context, config Config, report *Report) (r *rig, err error) {
	r = &rig{config: config, report: report, prefix: fmt.Sprintf("bench/%d", time.Now().UnixNano())}
	if err := migrate(ctx, config.DatabaseURL); err != nil {
		return r, err
	}
	if r.control, err = pgx.Connect(ctx, config.DatabaseURL); err != nil {
		return r, fmt.Errorf("--database-url: %w", err)
	}
	if report.Environment, err = bench.ReadEnvironment(ctx, r.control); err != nil {
		return r, err
	}
	report.FlushMicroseconds += float64(config.FlushDelay.Nanoseconds()) / 1000
	err = r.prepare(ctx)
	return r, err
}

func migrate(ctx context.Context, databaseURL string) error {
	st, err := store.Open(ctx, store.Config{DatabaseURL: databaseURL})
	if err != nil {
		return err
	}
	defer st.Close()
	return st.Migrate(ctx)
}

// prepare makes the tables that clients write to, and a fence for each of their resources.
func (r *rig) prepare(ctx context.Context) error {
	r.config.progress("making tables of %d rows, and as many fences", r.config.Rows)
	if err := r.control.QueryRow(ctx, "select nextval('fence.tokens')").Scan(&r.token); err != nil {
		return fmt.Errorf("take a token: %w", err)
	}
	err := r.execute(ctx, `
		drop schema if exists fencegate_bench cascade;
		create schema fencegate_bench;
		create table fencegate_bench.tokens (resource text collate "C" primary key, token bigint not null)`,
		fmt.Sprintf(`insert into fencegate_bench.tokens
			select '%s/' || i, %d from generate_series(0, %d) i`, r.prefix, r.token, r.config.Rows-1),
		`insert into fence.fences (resource, granted_token, open) select resource, token, true from fencegate_bench.tokens`,
		"vacuum (analyze) fence.fences, fencegate_bench.tokens")
	if err != nil {
		return fmt.Errorf("make fences: %w", err)
	}
	for _, t := range []tableSpec{
		{name: plainTable}, {name: protectedTable, protected: true},
		{name: partitionedTable, partitioned: true},
		{name: partitionedProtectedTable, partitioned: true, protected: true},
	} {
		t.rows, t.resource = r.config.Rows, fmt.Sprintf("i / %d", rowsOfResource)
		if err := r.makeTable(ctx, t); err != nil {
			return err
		}
	}
	return r.execute(ctx, "checkpoint")
}

// tableSpec is a table to make.
type tableSpec struct {
	name                   string
	partitioned, protected bool
	rows                   int
	// resource is the number of the resource of row i, in SQL.
	resource string
}

const partitions = 4

// makeTable makes a table and, where it is to be protected, makes sure that it is.
func (r *rig) makeTable(ctx context.Context, t tableSpec) error {
	table := "fencegate_bench." + t.name
	create := []string{"create table " + table + " (id bigint primary key, account bigint not null, balance bigint not null)"}
	if t.partitioned {
		create[0] += " partition by hash (id)"
		for i := range partitions {
			create = append(create, fmt.Sprintf("create table %[1]s_%[2]d partition of %[1]s for values with (modulus %[3]d, remainder %[2]d)",
				table, i, partitions))
		}
	}
	create = append(create,
		fmt.Sprintf("insert into %s select i, %s, 0 from generate_series(0, %d) i", table, t.resource, t.rows-1),
		"vacuum (analyze) "+table)
	if err := r.execute(ctx, create...); err != nil {
		return fmt.Errorf("make the table %s: %w", t.name, err)
	}
	if !t.protected {
		return nil
	}
	if _, err := r.control.Exec(ctx, "select fence.protect($1::text::regclass, $2)", table, r.prefix+"/{account}"); err != nil {
		return fmt.Errorf("protect the table %s: %w", t.name, err)
	}
	_, err := r.control.Exec(ctx, "update "+table+" set balance = 1 where id = 0")
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return fmt.Errorf("the table %s is not protected: a write without a token was accepted", t.name)
	case !errors.As(err, &refused) || refused.Code != codeTokenRequired:
		return fmt.Errorf("write to the table %s without a token: %w", t.name, err)
	}
	return nil
}

const codeTokenRequired = "LF101"

// execute executes statements one by one.
func (r *rig) execute(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := r.control.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// close drops the tables. The fences stay, as all fences do.
func (r *rig) close(ctx context.Context) error {
	if r.control == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	return errors.Join(r.execute(ctx, "drop schema if exists fencegate_bench cascade"), r.control.Close(ctx))
}

// sequencesOfClients is more than the writes that one client makes.
const sequencesOfClients = 1 << 32

// numbers returns a sequence from which clients may number their writes.
func (r *rig) numbers() int64 {
	r.sequence += sequencesOfClients
	return r.sequence
}

// connect returns so many clients; close closes their connections.
func (r *rig) connect(ctx context.Context, count int) (clients []*client, err error) {
	sequence := r.numbers()
	for i := range count {
		c := &client{account: r.account(i, count), token: r.token, sequence: sequence}
		c.row, c.resource = c.account*rowsOfResource, r.resource(c.account)
		if c.conn, err = pgx.Connect(ctx, r.config.DatabaseURL); err != nil {
			return nil, errors.Join(err, disconnect(ctx, clients))
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func disconnect(ctx context.Context, clients []*client) error {
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.conn.Close(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}

// account is the number of a client's resource: they are spread over the table.
func (r *rig) account(client, clients int) int64 {
	return int64(client) * r.stride(clients)
}

func (r *rig) stride(clients int) int64 { return int64(r.config.Rows / rowsOfResource / clients) }

func (r *rig) resource(account int64) string { return fmt.Sprintf("%s/%d", r.prefix, account) }
