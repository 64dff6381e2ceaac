package tables

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// target is what is measured.
type target struct {
	name string
	// write makes one transaction. A client makes one after the other.
	write func(ctx context.Context, c *client) error
}

// The names of the targets.
const (
	nameBare                 = "bare"
	namePipelined            = "pipelined"
	nameGuarded              = "guarded"
	nameProtected            = "protected"
	nameProtectedImplicit    = "protected-implicit"
	namePartitioned          = "partitioned"
	namePartitionedProtected = "partitioned-protected"
	nameSettings             = "settings"
	nameByHand               = "by-hand"

	nameFive               = "five"
	nameFiveProtected      = "five-protected"
	nameFiveSteps          = "five-steps"
	nameFiveStepsProtected = "five-steps-protected"
)

// The tables that clients write to.
const (
	plainTable                = "plain"
	protectedTable            = "protected"
	partitionedTable          = "partitioned"
	partitionedProtectedTable = "partitioned_protected"
)

// writeTargets each update one row.
var writeTargets = []target{
	{nameBare, func(ctx context.Context, c *client) error { return c.exec(ctx, c.update(plainTable, 0)) }},
	{namePipelined, func(ctx context.Context, c *client) error {
		return c.send(ctx, begin, c.update(plainTable, 0), commit)
	}},
	{nameGuarded, func(ctx context.Context, c *client) error {
		return c.send(ctx, begin, c.guard(), c.update(plainTable, 0), commit)
	}},
	{nameProtected, func(ctx context.Context, c *client) error {
		return c.send(ctx, begin, c.guard(), c.update(protectedTable, 0), commit)
	}},
	{nameProtectedImplicit, func(ctx context.Context, c *client) error {
		return c.send(ctx, c.guard(), c.update(protectedTable, 0))
	}},
	{namePartitioned, func(ctx context.Context, c *client) error {
		return c.send(ctx, begin, c.update(partitionedTable, 0), commit)
	}},
	{namePartitionedProtected, func(ctx context.Context, c *client) error {
		return c.send(ctx, begin, c.guard(), c.update(partitionedProtectedTable, 0), commit)
	}},
	{nameSettings, func(ctx context.Context, c *client) error {
		return c.send(ctx, begin, c.settings(), c.update(protectedTable, 0), commit)
	}},
	{nameByHand, byHand},
}

// fiveTargets each update the five rows of one resource.
var fiveTargets = []target{
	{nameFive, func(ctx context.Context, c *client) error { return c.send(ctx, c.five(plainTable, begin)...) }},
	{nameFiveProtected, func(ctx context.Context, c *client) error {
		return c.send(ctx, c.five(protectedTable, begin, c.guard())...)
	}},
	{nameFiveSteps, func(ctx context.Context, c *client) error { return c.sendEach(ctx, c.five(plainTable, begin)...) }},
	{nameFiveStepsProtected, func(ctx context.Context, c *client) error {
		return c.sendEach(ctx, c.five(protectedTable, begin, c.guard())...)
	}},
}

// five are the statements of a transaction that begins with those given.
func (c *client) five(table string, statements ...statement) []statement {
	for row := range rowsOfResource {
		statements = append(statements, c.update(table, row))
	}
	return append(statements, commit)
}

// byHand is the fence as one writes it by hand: lock the token's row, compare, raise it if it is newer, update.
func byHand(ctx context.Context, c *client) error {
	return pgx.BeginFunc(ctx, c.conn, func(tx pgx.Tx) error {
		var last int64
		err := tx.QueryRow(ctx, "select token from fencegate_bench.tokens where resource = $1 for update",
			c.resource).Scan(&last)
		switch {
		case err != nil:
			return err
		case c.token < last:
			return fmt.Errorf("the token %d is stale: %d was seen", c.token, last)
		case c.token > last:
			if _, err := tx.Exec(ctx, "update fencegate_bench.tokens set token = $2 where resource = $1", c.resource,
				c.token); err != nil {
				return err
			}
		}
		return c.exec(ctx, c.update(plainTable, 0))
	})
}

// TargetNames are the valid values of --targets.
func TargetNames() []string {
	names := make([]string, len(writeTargets))
	for i, t := range writeTargets {
		names[i] = t.name
	}
	return names
}
