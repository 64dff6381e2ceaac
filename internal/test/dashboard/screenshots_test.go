//go:build unix

package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient/api"
)

// TestSlow_Screenshots stores pictures of every page in three states: under load at two gateways after a restart of
// PostgreSQL, from which on tokens are long; with SQL clients alone; and while the database is down.
func TestSlow_Screenshots(t *testing.T) {
	if os.Getenv(artifactsEnv) == "" {
		t.Skip(artifactsEnv + " names no directory for the pictures")
	}
	t.Run("restarted", pictureAfterRestart)
	t.Run("sql", pictureSQLClients)
	t.Run("down", pictureWithoutDatabase)
}

func pictureAfterRestart(t *testing.T) {
	cluster := postgres.NewCluster(t)
	g := startGatewayOn(t, cluster.URL())
	other := startGatewayOn(t, cluster.URL())
	load(t, g, other)
	await.True(t, "the load writes", func() bool { return g.points(t) > 0 })
	cluster.Kill()
	cluster.Restart()
	await.True(t, "the database is swept again", func() bool { // a rejection before that may be in no count
		return g.sweptAgain(t)
	})
	await.True(t, "the gateway serves again", func() bool {
		_, err := g.Acquire(t.Context(), "after/restart", api.AcquireRequest{OwnerID: "an-owner"})
		return err == nil
	})
	f := newFixtureAt(t, g)
	f.addWaiters(t)
	f.sleepy(t)
	await.True(t, "the overview has 8 points with writes", func() bool { return f.points(t) >= 8 })
	pages := append([]shownPage{
		{"rejections-of-one", "#/rejections?owner_id=importer-7f3a&range=15m", "Rejections", []string{"importer-7f3a"}},
		{"lock-free", lockHash("archive/2025"), "archive/2025", []string{"free"}},
	}, shownPages...)
	for _, as := range []device{desktop, desktopDark, phone, phoneDark} {
		p := openTab(t, f.gateway, as)
		for _, page := range pages {
			if page.name == "rejections" {
				page.hash += "?range=15m"
			}
			if page.name == "overview" || page.name == "rejections" {
				page.shows = []string{"Zombie"} // the load's rejections are newer than the fixture's
			}
			p.show(page)
			if page.name != "api" {
				p.waitText("#live", "Live")
			}
			p.waitLoaded()
			switch {
			case page.name == "overview":
				p.wait("the charts are drawn", `document.querySelectorAll("main svg path").length > 3`)
			case strings.HasPrefix(page.name, "rejections"):
				p.wait("the marks are drawn", `document.querySelector("main svg .mark")?.checkVisibility()`)
			case page.name == "lock":
				p.wait("the wait-for graph is drawn", `document.querySelector(".graph .node")?.checkVisibility()`)
			}
			p.picture("restarted-"+page.name+"-"+as.name, pictureHeightMax)
		}
		f.pictureDialogs(p, as)
	}
}

// pictureDialogs stores pictures of the drawer of a rejection, of a value and of the dialog that breaks a lock.
func (f *fixture) pictureDialogs(p *tab, as device) {
	p.open("#/rejections?range=15m&owner_id=worker-sleepy")
	p.openDrawerOf("worker-sleepy")
	p.waitText("dialog.drawer", "no renewal for")
	p.picture("restarted-drawer-"+as.name, 0)
	p.open(lockHash(fixtureLock))
	p.openValue("Grace")
	p.picture("restarted-value-"+as.name, 0)
	p.press(kb.Escape)
	p.openBreak(fixtureLock, "importer-91bc")
	p.write("dialog textarea", "host a7 was replaced, see the incident of today")
	p.picture("restarted-break-"+as.name, 0)
}

func pictureSQLClients(t *testing.T) {
	g := startGateway(t)
	g.protectTables(t)
	g.sqlRole(t)
	first := openTab(t, g, desktop)
	first.open("#/")
	account := 6
	first.until("a zombie is counted", func() bool { // not before the gateway has read the counts for the first time
		account++
		g.sqlZombie(t, account)
		return strings.Contains(first.text(".headline"), "zombie write")
	})
	for _, as := range []device{desktop, phone} {
		p := openTab(t, g, as)
		for _, page := range shownPages {
			switch page.name {
			case "lock":
				page.hash, page.heading = lockHash("accounts/7"), "accounts/7"
			case "owner":
				page.hash, page.heading = "#/owners/biller-next", "biller-next"
			}
			p.show(shownPage{hash: page.hash, heading: page.heading})
			p.waitLoaded()
			switch page.name {
			case "overview":
				p.waitText(".headline", "zombie write")
			case "rejections":
				p.waitText("main", "biller-asleep")
			}
			p.picture("sql-"+page.name+"-"+as.name, pictureHeightMax)
		}
	}
}

// sweptAgain reports whether the sweep has counted rejections since the database was started.
func (g *gateway) sweptAgain(t *testing.T) (swept bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), g.database)
	if err != nil {
		return false // it starts
	}
	defer conn.Close(t.Context())
	err = conn.QueryRow(t.Context(),
		"select swept_at > pg_postmaster_start_time() from fence.sweeps where part = 'reported'").Scan(&swept)
	check(t, err)
	return swept
}

// sqlZombie makes an owner lose the lock of a row to another, and write all the same, by SQL.
func (g *gateway) sqlZombie(t *testing.T, account int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), g.database)
	check(t, err)
	defer conn.Close(t.Context())
	lock := fmt.Sprint("accounts/", account)
	acquire := func(owner string, ttlMS int64) (token int64) {
		check(t, conn.QueryRow(t.Context(), "select fencing_token from fence.acquire($1, $2, $3)", lock, owner, ttlMS).
			Scan(&token))
		return token
	}
	stale := acquire("biller-asleep", 100)
	_, err = conn.Exec(t.Context(), "select pg_sleep(0.2)")
	check(t, err)
	current := acquire("biller-next", longTTL)
	_, err = conn.Exec(t.Context(), "select fence.guard($1, $2)", lock, stale)
	if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "LF103" {
		t.Fatalf("a guard under a superseded lease returned %v, want LF103", err)
	}
	_, err = conn.Exec(t.Context(), "select * from fence.try_guard($1, $2)", lock, stale)
	check(t, err)
	tx, err := conn.Begin(t.Context())
	check(t, err)
	_, err = tx.Exec(t.Context(), "select fence.guard($1, $2, 1)", lock, current)
	check(t, err)
	_, err = tx.Exec(t.Context(), "update accounts set balance = 90 where id = $1", account)
	check(t, err)
	check(t, tx.Commit(t.Context()))
}

func pictureWithoutDatabase(t *testing.T) {
	cluster := postgres.NewCluster(t)
	f := newFixtureAt(t, startGatewayOn(t, cluster.URL()))
	t.Cleanup(cluster.Restart) // for the fixture's own
	for _, as := range []device{desktop, phone} {
		tabs := make([]*tab, len(shownPages))
		for i, page := range shownPages {
			tabs[i] = openTab(t, f.gateway, as)
			tabs[i].allow("503")
			tabs[i].show(page)
		}
		cluster.Kill()
		for i, page := range shownPages {
			if page.name != "api" {
				tabs[i].wait("the page is not live", `/^Not c/.test(document.querySelector("#live").innerText)`)
			}
			tabs[i].picture("down-"+page.name+"-"+as.name, pictureHeightMax)
			tabs[i].open("?again" + page.hash)
			tabs[i].wait("the page has a heading", `document.querySelector("main h1")`)
			tabs[i].waitLoaded()
			tabs[i].picture("opened-down-"+page.name+"-"+as.name, pictureHeightMax)
		}
		cluster.Restart()
	}
}

// addWaiters adds waiters and a free lock to the fixture.
func (f *fixture) addWaiters(t *testing.T) {
	t.Helper()
	f.queue(t, fixtureLock, "importer-e001")
	f.queue(t, fixtureLock, "importer-e002")
	f.queue(t, "index/a", "importer-91bc") // the holder of fixtureLock waits itself
	f.queue(t, "index/a", "compactor-1")
	f.wait(t, fixtureElection, "scheduler-b")
	f.wait(t, fixtureElection, "scheduler-c")
	lease := f.hold(t, "archive/2025", "archiver")
	f.put(t, lease, "index", "{}", 1)
	f.release(t, lease)
}

// sleepy makes a zombie whose lease expires while another waits for the lock, who then writes.
func (f *fixture) sleepy(t *testing.T) {
	t.Helper()
	const lock = "imports/invoices/7"
	stale, err := f.Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: "worker-sleepy", TTLMS: new(int64(1000))})
	check(t, err)
	f.put(t, stale, "total", "12", 1)
	_, err = f.Renew(t.Context(), lock, api.RenewRequest{
		OwnerID: stale.OwnerID, LeaseID: stale.LeaseID, FencingToken: stale.FencingToken,
	})
	check(t, err)
	next, err := f.Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: "worker-next", TTLMS: new(longTTL), WaitMS: longWait})
	check(t, err)
	f.put(t, next, "total", "13", 1)
	for range 3 {
		f.putStale(t, stale, "total")
	}
}

// points returns the number of points of the overview's charts with accepted writes.
func (g *gateway) points(t *testing.T) int {
	t.Helper()
	answer, err := http.Get(g.url + "/v1/overview?range_ms=60000")
	check(t, err)
	defer answer.Body.Close()
	var overview api.Overview
	check(t, json.NewDecoder(answer.Body).Decode(&overview))
	return len(slices.DeleteFunc(overview.Points, func(point api.OverviewPoint) bool {
		return point.OverviewRates == nil || point.AcceptedPerS == 0
	}))
}
