//go:build unix

package dashboard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
)

const many = 10_000

// TestManyLocks pages, sorts and searches through many locks. A free one is listed only on demand.
func TestManyLocks(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	g.release(t, g.hold(t, "a-free-lock", "an-owner"))
	g.manyLocks(t, many)
	p := openTab(t, g, desktop)
	p.open("#/locks")
	p.waitText("main .pager", "1–100 of 10,000")
	p.waitText("main tbody tr", "many/00001")
	p.checkRows()

	p.clickText("main .pager button", "Next")
	p.waitText("main .pager", "101–200 of 10,000")
	p.waitText("main tbody tr", "many/00101")
	p.clickText("main .pager button", "Next")
	p.waitText("main tbody tr", "many/00201")
	p.clickText("main .pager button", "Previous")
	p.waitText("main tbody tr", "many/00101")
	p.open("?again" + eval[string](p, "location.hash")) // the position can be linked
	p.waitText("main tbody tr", "many/00101")
	p.waitText("main .pager", "101–200 of 10,000")

	p.clickText("main th button", "Token")
	p.waitText("main tbody tr", "many/10000")
	p.clickText("main th button", "Time left")
	p.waitText("main tbody tr", "many/00001")
	p.clickText("main th button", "Time left")
	p.waitText("main tbody tr", "many/10000")

	p.write("main input[name=contains]", "owner-42")
	p.wait("only locks of owner-42 are listed", `[...document.querySelectorAll("main tbody tr")]
		.every((row) => row.innerText.includes("owner-42"))`)
	p.waitText("main .pager", "of 103")
	p.wait("the filter is in the address", `location.hash.includes("contains=owner-42")`)
	p.write("main input[name=contains]", "no such lock")
	p.waitText("main", "No lock matches")
	p.clickText("main form button", "Clear")
	p.waitText("main .pager", "of 10,000")
	p.write("main input[name=contains]", "a-free")
	p.clickText("main a", "Show free and expired locks")
	p.waitText("main tbody tr", "a-free-lock")
}

// TestManyRejections shows many groups, a page at a time, while new ones arrive.
func TestManyRejections(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	g.manyRejections(t, many)
	p := openTab(t, g, desktop)
	p.open("#/rejections")
	p.waitText("main", "many/10000")
	p.checkRows()
	notReloaded := p.checkNotReloaded()
	g.zombie(t, "jobs/42", "row", "sleepy-worker", "next-worker")
	p.waitText("main", "jobs/42")
	p.checkRows()
	notReloaded()

	p.open("#/rejections?owner_id=owner-42&range=1h")
	p.wait("only groups of owner-42 are listed", `document.querySelectorAll("main tbody tr").length > 10 &&
		![...document.querySelectorAll("main table.data")].at(-1).innerText.includes("owner-41")`)
	p.checkRows()
}

// TestManyWaiters shows a queue that is too long to be drawn.
func TestManyWaiters(t *testing.T) {
	t.Parallel()
	const waiters = 100
	g := startGateway(t)
	g.hold(t, "jobs/42", "an-owner")
	for i := range waiters {
		g.wait(t, "jobs/42", fmt.Sprintf("waiter-%03d", i))
	}
	await.True(t, "all acquires are in the queue", func() bool {
		state, err := g.Lock(t.Context(), "jobs/42")
		check(t, err)
		return state.QueueLength >= waiters
	})
	p := openTab(t, g, desktop)
	p.open(lockHash("jobs/42"))
	p.waitText("main", "100 waiting")
	p.waitText("main", "too many to be drawn")
	p.checkRows()
}

// load runs clients at gateways until the test ends. Some come back after their lease, and their writes are rejected.
func load(t *testing.T, gateways ...*gateway) {
	t.Helper()
	var locks []string
	for i := range 8 {
		locks = append(locks, fmt.Sprintf("imports/orders/%02d", i))
	}
	work := journal.New().Exercise(6, locks, await.Limit)
	work.Gateway = func(random *rand.Rand) *lockclient.API { return gateways[random.IntN(len(gateways))].API }
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { work.Run(ctx, 1) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}
