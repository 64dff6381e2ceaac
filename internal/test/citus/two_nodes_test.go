package citus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	testgateway "github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/lockclient/api"
)

// TestTransactionsOfTwoNodes checks that a transaction with names and rows of both workers commits at both or at none,
// also if a worker is killed meanwhile.
func TestTransactionsOfTwoNodes(t *testing.T) {
	c := newCluster(t)
	coordinator := connect(t, c.coordinator)
	tenants := oneAtEach(t, coordinator)
	tokens := make([]int64, len(tenants))
	for i, tenant := range tenants {
		check(t, coordinator.QueryRow(t.Context(), "select fencing_token from fencegate.acquire($1, 'worker', 3600000)",
			accountName(tenant)).Scan(&tokens[i]))
	}
	var sequence int64
	// write adds to one row and takes from the other, each under its fence.
	write := func(conn *pgx.Conn, tokens []int64) error {
		sequence++
		return pgx.BeginFunc(await.Context(t), conn, func(tx pgx.Tx) error {
			for i, tenant := range tenants {
				if _, err := tx.Exec(await.Context(t), "select fencegate.guard($1, $2, $3)", accountName(tenant), tokens[i], sequence); err != nil {
					return err
				}
				if _, err := tx.Exec(await.Context(t), "insert into accounts values ($1, 1, $2) on conflict (tenant, id) "+
					"do update set balance = accounts.balance + $2", tenant, 1-2*i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	written := func() (written, atFences []int64) {
		for i, tenant := range tenants {
			var balance, last int64
			check(t, coordinator.QueryRow(await.Context(t), "select balance from accounts where tenant = $1", tenant).Scan(&balance))
			check(t, coordinator.QueryRow(await.Context(t), "select last_sequence from fencegate.try_guard($1, $2, 0)",
				accountName(tenant), tokens[i]).Scan(&last))
			written, atFences = append(written, balance*int64(1-2*i)), append(atFences, last)
		}
		return written, atFences
	}
	check(t, write(coordinator, tokens))
	if err := write(coordinator, []int64{tokens[0], tokens[1] + 1000000}); stateOf(err) != "LF102" {
		t.Errorf("a write with a token that was never granted returned %v", err)
	}
	if n, _ := written(); n[0] != 1 || n[1] != 1 {
		t.Errorf("the rows were written %v times, want once", n)
	}

	from, committed := connect(t, c.workers[1]), 0
	for round := range 10 {
		killed := make(chan struct{})
		time.AfterFunc(time.Duration(rand.IntN(20))*time.Millisecond, func() {
			c.workers[0].Kill()
			close(killed)
		})
		for write([]*pgx.Conn{coordinator, from}[sequence%2], tokens) == nil {
			committed++
		}
		<-killed
		c.workers[0].Restart()
		await.True(t, "a transaction of both nodes commits again", func() bool { return write(coordinator, tokens) == nil })
		n, last := written()
		if n[0] != n[1] || last[0] != last[1] {
			t.Fatalf("round %d: the rows were written %v times, the fences have the sequences %v", round, n, last)
		}
	}
	n, last := written()
	t.Logf("%d transactions were acknowledged, the rows were written %v times, the fences have the sequences %v", committed, n, last)
}

// oneAtEach returns a tenant at each worker.
func oneAtEach(t *testing.T, coordinator *pgx.Conn) (tenants []int64) {
	t.Helper()
	check(t, coordinator.QueryRow(t.Context(), `select array_agg(t) from (
		select min(t) as t from generate_series(1, 50) t join pg_dist_shard_placement p
			on p.shardid = get_shard_id_for_distribution_column('accounts', t)
		group by p.nodename, p.nodeport) f`).Scan(&tenants))
	return tenants
}

// TestReleaseAtTwoNodes checks that a transaction that releases locks of two nodes changes nothing where a client of a
// gateway waits: PostgreSQL can't prepare a transaction that has to notify the gateway.
func TestReleaseAtTwoNodes(t *testing.T) {
	c := newCluster(t)
	gateway := testgateway.Start(t, c.program, "--cluster", "--database-url", c.coordinator.URL())
	coordinator := connect(t, c.coordinator)
	tenants := oneAtEach(t, coordinator)
	tokens, leases := make([]int64, len(tenants)), make([]string, len(tenants))
	for i, tenant := range tenants {
		check(t, coordinator.QueryRow(t.Context(), "select fencing_token, lease_id from fencegate.acquire($1, 'worker', 3600000)",
			accountName(tenant)).Scan(&tokens[i], &leases[i]))
	}
	granted := make(chan error, 1)
	go func() {
		_, err := gateway.Acquire(await.Context(t), accountName(tenants[1]), api.AcquireRequest{OwnerID: "waiter", WaitMS: await.Limit.Milliseconds()})
		granted <- err
	}()
	await.True(t, "a client waits", func() bool {
		lock, err := gateway.Lock(await.Context(t), accountName(tenants[1]))
		return err == nil && lock.QueueLength == 1
	})
	release := func(conn execer, i int) error {
		_, err := conn.Exec(await.Context(t), "select fencegate.release($1, 'worker', $2, $3)", accountName(tenants[i]), leases[i], tokens[i])
		return err
	}
	err := pgx.BeginFunc(t.Context(), coordinator, func(tx pgx.Tx) error {
		return errors.Join(release(tx, 0), release(tx, 1))
	})
	if stateOf(err) != "0A000" {
		t.Errorf("releases at both nodes returned %v", err)
	}
	check(t, release(coordinator, 1))
	check(t, <-granted)
	check(t, release(coordinator, 0))
}

type execer interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}

func accountName(tenant int64) string { return fmt.Sprintf("%d/accounts/1", tenant) }
