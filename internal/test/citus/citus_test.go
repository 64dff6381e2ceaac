// Package citus_test runs fencegate on a coordinator and two workers of Citus: `make test-citus`.
package citus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	testgateway "github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// cluster is a coordinator and its workers.
type cluster struct {
	coordinator *postgres.Cluster
	workers     []*postgres.Cluster
	program     string
}

// newCluster returns a cluster with a distributed table accounts, and fencegate's names distributed with it. The
// tenants of the table are numbers.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterOf(t, "bigint")
}

// newClusterOf is newCluster with tenants of another type.
func newClusterOf(t *testing.T, tenant string) *cluster {
	t.Helper()
	if os.Getenv("FENCEGATE_TEST_CITUS") == "" {
		t.Skip("make test-citus runs this")
	}
	c := &cluster{program: process.Build(t)}
	start := func() *postgres.Cluster {
		on := postgres.NewCluster(t, settings()...)
		execute(t, on, "create extension citus")
		execute(t, on, fmt.Sprintf("alter system set citus.local_hostname = '%s'", directory(on)))
		execute(t, on, "select pg_reload_conf()")
		return on
	}
	c.coordinator, c.workers = start(), []*postgres.Cluster{start(), start()}
	execute(t, c.coordinator, fmt.Sprintf("select citus_set_coordinator_host('%s', 5432)", directory(c.coordinator)))
	for _, worker := range c.workers {
		execute(t, c.coordinator, fmt.Sprintf("select citus_add_node('%s', 5432)", directory(worker)))
	}
	execute(t, c.coordinator, "set citus.shard_count = 8; create table accounts (tenant "+tenant+", id bigint, "+
		"balance bigint not null, primary key (tenant, id)); select create_distributed_table('accounts', 'tenant')")
	c.run(t, "migrate", "--distribute", "accounts")
	execute(t, c.coordinator, "set citus.enable_unsafe_triggers = on; select fence.protect('accounts', '{tenant}/accounts/{id}')")
	return c
}

// settings are those of each server.
func settings() []postgres.Option {
	return []postgres.Option{postgres.Stranger(), postgres.Setting("shared_preload_libraries", "citus"),
		postgres.Setting("wal_level", "logical"), postgres.Setting("max_prepared_transactions", "100"),
		postgres.Setting("citus.defer_shard_delete_interval", "1s"), postgres.Setting("citus.recover_2pc_interval", "1s"),
		postgres.Setting("citus.check_available_space_before_move", "off")}
}

// directory is that of a server's socket, by which the others reach it.
func directory(on *postgres.Cluster) string {
	return strings.TrimSuffix(on.Socket(), "/.s.PGSQL.5432")
}

func (c *cluster) run(t *testing.T, args ...string) string {
	t.Helper()
	said, err := c.try(t, args...)
	if err != nil {
		t.Fatalf("fencegate %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return said
}

func (c *cluster) try(t *testing.T, args ...string) (said string, err error) {
	t.Helper()
	command := exec.CommandContext(await.Context(t), c.program, args...)
	command.Env = append(os.Environ(), "FENCEGATE_DATABASE_URL="+c.coordinator.URL())
	output, err := command.CombinedOutput()
	return string(output), err
}

func connect(t *testing.T, on *postgres.Cluster) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(await.Context(t), on.URL())
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, on *postgres.Cluster, sql string) {
	t.Helper()
	conn := connect(t, on)
	if _, err := conn.Exec(await.Context(t), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestClientsAtEachNode checks that SQL clients at any node acquire, guard and release names of any node, that rows of
// the distributed table are written under their fence alone, and that a gateway lists the rejections of all nodes.
func TestClientsAtEachNode(t *testing.T) {
	c := newCluster(t)
	gateway := testgateway.Start(t, c.program, "--cluster", "--database-url", c.coordinator.URL())
	for at, on := range append(c.workers, c.coordinator) {
		conn := connect(t, on)
		for tenant := range 6 {
			name := fmt.Sprintf("%d/accounts/%d", tenant, at)
			if err := useName(await.Context(t), conn, name, tenant, at); err != nil {
				t.Errorf("%s through server %d: %v", name, at, err)
			}
		}
	}
	client, err := lockclient.New(gateway.URL)
	check(t, err)
	at := map[string]string{} // the nodes of names
	for tenant := range 6 {
		var node string
		check(t, connect(t, c.coordinator).QueryRow(await.Context(t), `select nodename from pg_dist_shard_placement
			where shardid = get_shard_id_for_distribution_column('accounts', $1::bigint)`, tenant).Scan(&node))
		for i := range 3 {
			at[fmt.Sprintf("%d/accounts/%d", tenant, i)] = node
		}
	}
	await.True(t, "the zombies that both nodes have recorded are listed", func() bool {
		listed, err := admin.New(client).Rejections(await.Context(t), admin.RejectionsQuery{Kind: api.KindZombie, Limit: 100})
		check(t, err)
		for _, rejection := range listed.Rejections {
			if rejection.OwnerID != "worker" || rejection.LateMS == nil {
				t.Fatalf("it is not known of whom the rejection is, or how late: %+v", rejection)
			}
		}
		left := 0
		for _, worker := range c.workers {
			var rejections int
			check(t, connect(t, worker).QueryRow(await.Context(t), "select count(*) from fence.rejections").Scan(&rejections))
			left += rejections
		}
		atEach := map[bool]bool{}
		for _, rejection := range listed.Rejections {
			atEach[at[rejection.Resource] == at["0/accounts/0"]] = true
		}
		return left == 0 && len(atEach) == 2
	})
}

// useName makes a row under the fence of its name, and tries to write to it otherwise.
func useName(ctx context.Context, conn *pgx.Conn, name string, tenant, id int) error {
	var lease string
	var token int64
	err := conn.QueryRow(ctx, "select lease_id, fencing_token from fencegate.acquire($1, 'worker', 60000)", name).Scan(&lease, &token)
	if err != nil {
		return err
	}
	guarded := func(token, sequence int64, sql string, args ...any) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if token > 0 {
				if _, err := tx.Exec(ctx, "select fencegate.guard($1, $2, $3)", name, token, sequence); err != nil {
					return err
				}
			}
			_, err := tx.Exec(ctx, sql, args...)
			return err
		})
	}
	const put = "insert into accounts values ($1, $2, 1) on conflict (tenant, id) do update set balance = accounts.balance + 1"
	for _, c := range []struct {
		token, sequence int64
		state           string
	}{{token, 1, ""}, {token, 2, ""}, {0, 0, "LF101"}, {token + 1000000, 1, "LF102"}, {token, 1, "LF103"}} {
		if err := guarded(c.token, c.sequence, put, tenant, id); stateOf(err) != c.state {
			return fmt.Errorf("a write with the token %d.%d returned %w, want %q", c.token, c.sequence, err, c.state)
		}
	}
	if err := guarded(token, 3, put, tenant, id+1000); stateOf(err) != "LF101" {
		return fmt.Errorf("a write to another row returned %w", err)
	}
	var status string
	if err := conn.QueryRow(ctx, "select status from fencegate.renew($1, 'worker', $2, $3)", name, lease, token).Scan(&status); err != nil || status != "renewed" {
		return fmt.Errorf("the renewal returned %s, %w", status, err)
	}
	if err := conn.QueryRow(ctx, "select status from fencegate.release($1, 'worker', $2, $3)", name, lease, token).Scan(&status); err != nil || status != "released" {
		return fmt.Errorf("the release returned %s, %w", status, err)
	}
	if err := guarded(token, 4, put, tenant, id); stateOf(err) != "LF103" {
		return fmt.Errorf("a write after the release returned %w", err)
	}
	var balance int
	if err := conn.QueryRow(ctx, "select balance from accounts where tenant = $1 and id = $2", tenant, id).Scan(&balance); err != nil || balance != 2 {
		return fmt.Errorf("the balance is %d, want 2: %w", balance, err)
	}
	return nil
}

// stateOf is the SQLSTATE of an error; "" of none.
func stateOf(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// TestTablesWithOtherNames checks that a table whose rows and names are at different nodes is not protected, and that its
// names are not distributed if it is.
func TestTablesWithOtherNames(t *testing.T) {
	c := newCluster(t)
	conn := connect(t, c.coordinator)
	for _, sql := range []string{
		"create table public.local (id bigint primary key)",
		"create table public.others (id text primary key); select create_distributed_table('public.others', 'id')",
	} {
		execute(t, c.coordinator, sql)
	}
	for _, wrong := range []struct{ table, template, problem string }{
		{"accounts", "accounts/{tenant}/{id}", "the table public.accounts is distributed by tenant: its template must begin with {tenant}"},
		{"accounts", "{id}/{tenant}", "the table public.accounts is distributed by tenant: its template must begin with {tenant}"},
		{"public.local", "{id}", "the table public.local is not distributed with fencegate.places: its rows are not where their names are"},
		{"public.others", "{id}", "the table public.others is not distributed with fencegate.places: its rows are not where their names are"},
	} {
		_, err := conn.Exec(t.Context(), "select fence.protect($1, $2)", wrong.table, wrong.template)
		if stateOf(err) != "22023" || !strings.Contains(err.Error(), wrong.problem) {
			t.Errorf("%s with the template %s: %v, want %s", wrong.table, wrong.template, err, wrong.problem)
		}
	}
	execute(t, c.coordinator, "update fence.protected_tables set template = 'accounts/{id}'")
	said, err := c.try(t, "migrate", "--distribute", "accounts")
	if err == nil || !strings.Contains(said, "its template must begin with {tenant}") {
		t.Errorf("names of another template were distributed: %v\n%s", err, said)
	}
}

// TestShardsMoveUnderLoad checks the calls of clients of two gateways against the contract, while shards move from
// worker to worker.
func TestShardsMoveUnderLoad(t *testing.T) {
	c := newCluster(t)
	var gateways []*testgateway.Gateway
	for range 2 {
		gateways = append(gateways, testgateway.Start(t, c.program, "--cluster", "--database-url", c.coordinator.URL()))
	}
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("%d/load", i))
	}
	calls := journal.New()
	work := calls.Exercise(16, names, await.Limit)
	work.Gateway = func(random *rand.Rand) *lockclient.API { return gateways[random.IntN(len(gateways))].API }
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { work.Run(ctx, rand.Uint64()) })

	for range 6 {
		c.move(t)
		progress(t, calls, 300)
	}
	stop()
	working.Wait()
	recorded := calls.Calls()
	for _, violation := range spec.Check(recorded) {
		t.Error(violation)
	}
	if _, sound := calls.Progress(); !sound {
		t.Error("answers that no fault explains")
	}
	t.Log(calls.Summary())
	for _, on := range append(c.workers, c.coordinator) {
		var names, ranges, moving int
		check(t, connect(t, on).QueryRow(t.Context(), "select (select count(*) from fence.fences), count(*), count(moves_to) from fence.ranges").
			Scan(&names, &ranges, &moving))
		t.Logf("a server has %d names and %d ranges, %d of which move", names, ranges, moving)
	}
}

// move moves a shard with names to the other worker, as soon as Citus can.
func (c *cluster) move(t *testing.T) {
	t.Helper()
	await.True(t, "a shard moves", func() bool {
		ctx := await.Context(t)
		conn := connect(t, c.coordinator)
		var shard int64
		var from, to string
		err := conn.QueryRow(ctx, `select shardid, nodename, (select w.nodename from pg_dist_node w
				where w.shouldhaveshards and w.nodename <> p.nodename) from pg_dist_shard_placement p
			join pg_dist_shard s using (shardid) where s.logicalrelid = 'accounts'::regclass order by random() limit 1`).
			Scan(&shard, &from, &to)
		check(t, err)
		_, err = conn.Exec(ctx, "select citus_move_shard_placement($1, $2, 5432, $3, 5432, 'block_writes')", shard, from, to)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
}

// progress returns when so many more writes are acknowledged.
func progress(t *testing.T, calls *journal.Journal, writes int) {
	t.Helper()
	before, _ := calls.Progress("put", "transaction")
	await.True(t, "writes are acknowledged", func() bool {
		now, _ := calls.Progress("put", "transaction")
		return now >= before+writes
	})
}
