package tables

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// client writes to one resource, over a connection of its own.
type client struct {
	conn *pgx.Conn
	// account is the resource's number, row the first of its rows.
	account, row    int64
	resource        string
	token, sequence int64
}

// statement is one of a pipeline.
type statement struct {
	sql  string
	args []any
}

var (
	begin  = statement{sql: "begin"}
	commit = statement{sql: "commit"}
)

// guard admits the client's next write.
func (c *client) guard() statement {
	c.sequence++
	return statement{"select fence.guard($1, $2, $3)", []any{c.resource, c.token, c.sequence}}
}

// settings let the trigger admit the client's next write.
func (c *client) settings() statement {
	c.sequence++
	return statement{"select set_config('fencegate.token', $1, true)", []any{fmt.Sprintf("%d.%d", c.token, c.sequence)}}
}

// update changes one of the resource's rows in a table.
func (c *client) update(table string, row int) statement {
	return statement{
		"update fencegate_bench." + table + " set balance = balance + 1 where id = $1", []any{c.row + int64(row)},
	}
}

// send sends statements in one round trip.
func (c *client) send(ctx context.Context, statements ...statement) (err error) {
	var batch pgx.Batch
	for _, s := range statements {
		batch.Queue(s.sql, s.args...)
	}
	results := c.conn.SendBatch(ctx, &batch)
	defer func() { err = errors.Join(err, results.Close()) }()
	for _, s := range statements {
		tag, err := results.Exec()
		if err := checkRows(s, tag, err); err != nil {
			return err
		}
	}
	return nil
}

// sendEach sends statements one by one, each when the last is answered.
func (c *client) sendEach(ctx context.Context, statements ...statement) error {
	for _, s := range statements {
		if err := c.exec(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) exec(ctx context.Context, s statement) error {
	tag, err := c.conn.Exec(ctx, s.sql, s.args...)
	return checkRows(s, tag, err)
}

// checkRows makes sure that an update found its row.
func checkRows(s statement, tag pgconn.CommandTag, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", s.sql, err)
	case tag.Update() && tag.RowsAffected() != 1:
		return fmt.Errorf("%s: %d rows", s.sql, tag.RowsAffected())
	}
	return nil
}
