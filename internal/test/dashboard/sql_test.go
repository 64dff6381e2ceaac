//go:build unix

package dashboard

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// TestOverviewOfSQLClients checks that the overview of a database which only SQL clients use shows what they do: a zombie
// that was shut out, in the sentence, the figures and the charts; guarded writes, or that nobody counts them; a zombie that
// a table of the mode observe let pass; and that the page of tables counts the rejection of a guard.
func TestOverviewOfSQLClients(t *testing.T) {
	t.Parallel()
	const track = `do $$ begin execute format('alter database %I set track_functions = none', current_database()); end $$`
	g := &gateway{database: postgres.Migrated(t)}
	g.sql(t, track)
	g = startGatewayOn(t, g.database)
	p := openTab(t, g, desktop)
	p.open("#/")
	p.waitText(".headline", "No zombie wrote since ")
	p.waitText(".tile", "SQL not counted")
	p.waitText("main .columns", "accepted: by HTTP alone")
	p.wait("uncounted writes are not shown as 0", `document.querySelector(".tile-value").textContent === "–"`)

	g.sql(t, `create table accounts (id bigint primary key, balance int)`, `insert into accounts values (42, 100)`,
		`select fence.protect('accounts', 'accounts/{id}')`,
		`create table orders (id bigint)`, `select fence.protect('orders', 'orders/{id}', 'observe')`,
		strings.Replace(track, "none", "pl", 1))
	counting := startGatewayOn(t, g.database)
	sql := newSQLClient(t, g.database)
	stale := sql.acquire("accounts/42", "worker-1")
	sql.release(stale)
	current := sql.acquire("accounts/42", "worker-2")
	passing := sql.acquire("orders/7", "worker-3")
	sql.release(passing)

	var working sync.WaitGroup
	end := make(chan struct{})
	working.Go(func() { sql.work(t, current, end) })
	defer working.Wait()
	defer close(end)
	zombie := newSQLClient(t, g.database)
	if state := zombie.guard("accounts/42", stale, 1); state != "LF103" {
		t.Fatalf("the former holder got %q, want LF103", state)
	}
	zombie.do(`insert into orders select 7 from fence.set_token($1, 1)`, passing)

	p = openTab(t, counting, desktop)
	p.open("#/")
	p.waitText(".headline", "1 zombie write shut out since ")
	p.waitText(".headline", "worker-1 on accounts/42")
	p.waitText(".headline", "worker-2 had taken over with")
	p.waitText(".headline", "1 zombie write by SQL passed")
	p.waitText(".tile", "none failed")
	p.waitText("main", "no write by HTTP")
	p.wait("guarded writes are counted", `parseFloat(document.querySelector(".tile-value").textContent) > 0`)
	p.wait("a lease by SQL is held", `[...document.querySelectorAll(".tile")].some((tile) =>
		tile.textContent.includes("Leases held") && tile.querySelector(".tile-value").textContent === "1")`)
	p.wait("the charts are drawn", `document.querySelectorAll("main svg path").length > 3`)
	p.picture("overview-sql", pictureHeightMax)
	p.open("#/tables")
	p.wait("the table counts the rejection of its guard", `[...document.querySelectorAll("tbody tr")].some((row) =>
		row.textContent.includes("public.accounts") && [...row.querySelectorAll("a[href*='/rejections']")].some((link) =>
			link.textContent === "1"))`)
	p.waitText("main .intro", "Let through in the mode observe")
	p.clickText("tbody a", "public.accounts")
	p.waitText("main h1", "Rejections")
	p.waitText("main", "worker-1")
}

// sqlClient is a client of the database that knows no gateway.
type sqlClient struct {
	t    *testing.T
	conn *pgx.Conn
}

func newSQLClient(t *testing.T, database string) *sqlClient {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	check(t, err)
	t.Cleanup(func() { check(t, conn.Close(context.Background())) })
	return &sqlClient{t, conn}
}

func (c *sqlClient) do(sql string, args ...any) {
	c.t.Helper()
	_, err := c.conn.Exec(c.t.Context(), sql, args...)
	check(c.t, err)
}

func (c *sqlClient) acquire(lock, owner string) (token int64) {
	c.t.Helper()
	check(c.t, c.conn.QueryRow(c.t.Context(),
		"select fencing_token from fence.acquire($1, $2, 600000)", lock, owner).Scan(&token))
	return token
}

func (c *sqlClient) release(token int64) {
	c.t.Helper()
	c.do("select fence.release(lock, owner_id, lease_id, fencing_token) from fence.leases where fencing_token = $1", token)
}

// guard returns the SQLSTATE of a rejection; empty: it was admitted.
func (c *sqlClient) guard(resource string, token, sequence int64) string {
	_, err := c.conn.Exec(context.Background(), "select fence.guard($1, $2, $3)", resource, token, sequence)
	if rejection, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(rejection.Code, "LF1") {
		return rejection.Code
	}
	check(c.t, err)
	return ""
}

// work writes under a lease until the end.
func (c *sqlClient) work(t *testing.T, token int64, end <-chan struct{}) {
	for sequence := int64(1); ; sequence++ {
		select {
		case <-end:
			return
		case <-time.After(50 * time.Millisecond):
		}
		if state := c.guard("accounts/42", token, sequence); state != "" {
			t.Errorf("the holder got %s", state)
		}
	}
}
