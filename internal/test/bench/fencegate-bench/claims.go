//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
)

const (
	jobsTable = "fencegate_bench.jobs"
	// jobsMax is more than the clients do in a round.
	jobsMax = 100000
)

var errNoJob = errors.New("no job was left")

// claims measures workers that take jobs from one queue and complete them, beside those of a plain queue, which keep a
// job locked while they do it.
func (t *tables) claims(ctx context.Context) error {
	for _, clients := range t.Clients {
		targets := []rig.Target{t.queue("plain queue", 1, takeJob)}
		for _, many := range []int{1, 10, 100} {
			targets = append(targets, t.queue(fmt.Sprintf("claim %d", many), many,
				func(ctx context.Context, c *tableClient) error { return claimJobs(ctx, c, many) }))
		}
		c := rig.Case{Table: "claims", Name: clientsName(clients), Clients: clients, CPURatio: true}
		if err := t.Compare(ctx, c, targets); err != nil {
			return err
		}
	}
	return nil
}

// queue is a target that does so many jobs in a call. Each round has new jobs, whose fences do not exist.
func (t *tables) queue(name string, many int, do func(context.Context, *tableClient) error) rig.Target {
	target := t.target(transaction{name: name, base: "plain queue", do: do})
	target.PerCall = many
	open := target.Open
	target.Open = func(ctx context.Context, count, connections int) (rig.Session, error) {
		statements := []string{"drop table if exists " + jobsTable,
			"create table " + jobsTable + " (id bigint primary key, payload text, done_at timestamptz)",
			fmt.Sprintf("insert into %s select i, repeat('x', 100) from generate_series(1, %d) i", jobsTable, jobsMax),
			"create index on " + jobsTable + " (id) where done_at is null", "vacuum (analyze) " + jobsTable, "checkpoint"}
		if name != target.Base {
			statements = append(statements,
				fmt.Sprintf("select fence.protect('%s', 'bench-jobs-%d/{id}', inserts => 'free')", jobsTable, t.numbers()))
		}
		if err := t.Execute(ctx, statements...); err != nil {
			return rig.Session{}, err
		}
		return open(ctx, count, connections)
	}
	return target
}

// takeJob does a job of the plain queue.
func takeJob(ctx context.Context, c *tableClient) error {
	var take, complete pgx.Batch
	take.Queue("begin")
	take.Queue("select id from " + jobsTable + " where done_at is null order by id limit 1 for update skip locked").
		QueryRow(func(row pgx.Row) error { return row.Scan(&c.row) })
	if err := c.conn.SendBatch(ctx, &take).Close(); err != nil {
		return err
	}
	complete.Queue("update "+jobsTable+" set done_at = now() where id = $1", c.row)
	complete.Queue("commit")
	return c.conn.SendBatch(ctx, &complete).Close()
}

var completion = inTransaction(guard,
	statement{"update " + jobsTable + " set done_at = now() where id = $1",
		func(c *tableClient) []any { return []any{c.row} }},
	statement{"select fence.release($1, 'bench', $2, $3)",
		func(c *tableClient) []any { return []any{c.resource, c.leaseID, c.token} }})

// claimJobs claims so many jobs, and completes each.
func claimJobs(ctx context.Context, c *tableClient, many int) error {
	type claimed struct {
		Resource, LeaseID string
		Token, ID         int64
	}
	for done := 0; done < many; {
		rows, _ := c.conn.Query(ctx, `
			select resource, lease_id::text, fencing_token, (job ->> 'id')::bigint
			from fence.claim($1, $2, 'bench', 30000, 'done_at is null')`, jobsTable, many-done)
		jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claimed])
		if err == nil && len(jobs) == 0 {
			err = errNoJob
		}
		if err != nil {
			return err
		}
		for _, job := range jobs {
			c.resource, c.leaseID, c.token, c.row = job.Resource, job.LeaseID, job.Token, job.ID
			if err := c.pipeline(ctx, completion, false); err != nil {
				return err
			}
		}
		done += len(jobs)
	}
	return nil
}
