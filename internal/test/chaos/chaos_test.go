//go:build unix

package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
)

var (
	seed     = flag.Uint64("chaos.seed", 0, "the seed of the schedule; 0: the short form, with a few fixed faults")
	clock    = flag.Bool("chaos.clock", false, "build a program with another wall clock, which takes minutes")
	without  = flag.String("chaos.without", "", "the safeguard to switch off, or all")
	duration = flag.Duration("chaos.duration", time.Minute, "how long a schedule with a seed runs, at least")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(postgres.Main(m))
}

const (
	clients = 12
	locks   = 5 // fewer than clients: they contend
	// acksEachStep is how many writes are acknowledged between two faults, at least: work gets done however slow the
	// machine is.
	acksEachStep = 20
)

// short is the schedule of the short form.
var short = []epoch{
	{steps: []step{
		{fault: "gateway-frozen", target: 0, hold: 400 * time.Millisecond},
		{fault: "gateway-ended", target: 1, hold: 50 * time.Millisecond},
		{fault: "gateway-killed", target: 0, hold: 50 * time.Millisecond, beside: "client-late"},
		{fault: "primary-frozen", hold: 700 * time.Millisecond},
		{fault: "statements-canceled", hold: 300 * time.Millisecond, beside: "client-cut"},
		{fault: "standby-promoted-after-cancel", hold: 500 * time.Millisecond},
	}},
	{loses: true, remembers: true, steps: []step{
		{fault: "database-slow", target: 1, hold: 500 * time.Millisecond},
		{fault: forgotten},
		{fault: "client-late", target: 0, hold: 500 * time.Millisecond},
	}},
	{loses: true, steps: []step{{fault: "old-primary-returned", hold: 300 * time.Millisecond}}},
}

// TestChaos checks that no fault of the schedule, in any order, breaks a promise.
func TestChaos(t *testing.T) {
	if *seed == 0 {
		t.Parallel()
		w := newWorld(t, process.BuildChecked(t), gateway.Start, 2)
		for number, e := range short {
			w.run(number, e)
		}
		if t.Failed() {
			t.Log("to replay the short form, seed 0: make test PACKAGES=./internal/test/chaos TEST_FLAGS='-run TestChaos$$ -count=1'")
		}
		return
	}
	w := newWorld(t, process.BuildChecked(t), gateway.Start, 3)
	if *clock {
		w.withMovingClock = withMovingClock(t)
	} else {
		t.Log("without -chaos.clock, gateways are restarted where their clock would be moved")
	}
	replay := fmt.Sprintf("make chaos SEED=%d DURATION=%s", *seed, *duration)
	t.Log(replay)
	s := newSchedule(*seed)
	for begun, number := time.Now(), 0; time.Since(begun) < *duration && !t.Failed(); number++ {
		w.run(number, s.next())
	}
	if t.Failed() {
		t.Logf("to replay: %s", replay)
	}
}

// run runs an epoch, and fails the test for each violation.
func (w *world) run(number int, e epoch) {
	w.t.Helper()
	for _, what := range w.violations(number, e) {
		w.t.Error(what)
	}
}

// violations runs an epoch, and returns what contradicts the contract.
func (w *world) violations(number int, e epoch) []string {
	w.t.Helper()
	prefix := fmt.Sprintf("chaos/%d/", number)
	if e.loses {
		w.waitForStandbys(w.primary, "")
		w.waitForStandbys(w.standby, "")
	}
	end := w.startLoad(prefix, e)
	defer end()
	for _, s := range e.steps {
		w.apply(s)
		if _, sound := w.journal.Progress(); !sound {
			break
		}
	}
	w.progress(acksEachStep)
	w.awaitPaths()
	end()
	found := w.check(prefix)
	w.t.Logf("epoch %d: %s", number, w.journal.Summary())
	if e.loses {
		w.waitForStandbys(w.primary, "*")
		w.waitForStandbys(w.standby, "*")
	}
	return found[max(0, len(found)-20):] // with the file that has the history
}

// apply applies the faults of a step between two stretches of work.
func (w *world) apply(s step) {
	w.t.Helper()
	w.progress(acksEachStep)
	w.t.Logf("%8.3fs  %s", float64(w.journal.Now())/1e9, s)
	calm := func() {}
	if s.beside != "" {
		calm = faultNamed(s.beside).apply(w, s)
	}
	heal := faultNamed(s.fault).apply(w, s)
	if heal != nil {
		hold(s)
	}
	calm() // a gateway that is started anew waits for its database
	if heal != nil {
		heal()
	}
	w.t.Logf("%8.3fs  healed", float64(w.journal.Now())/1e9)
}

// startLoad starts the clients of an epoch. end returns when they have ended.
func (w *world) startLoad(prefix string, e epoch) (end func()) {
	names := make([]string, locks)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	w.journal = journal.New()
	w.journal.Rows = readRows
	work := w.journal.Exercise(clients, names, await.Limit)
	work.Gateway = func(random *rand.Rand) *lockclient.API { return w.members[random.IntN(len(w.members))].api }
	work.CommitsMayBeLost, work.SendNewestToken = e.loses, e.remembers
	if e.breaksDatabases() {
		w.journal.Crashed()
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { work.Run(ctx, *seed+1) })
	pathsEnd := w.startPaths(ctx, prefix, e)
	return func() {
		stop()
		running.Wait()
		pathsEnd()
	}
}

// check compares what clients saw with the database, and then removes what the epoch has stored.
func (w *world) check(prefix string) []string {
	w.t.Helper()
	db, err := pgxpool.New(w.t.Context(), w.primary.URL())
	check(w.t, err)
	defer db.Close()
	found, err := w.journal.Check(await.Context(w.t), db, prefix)
	check(w.t, err)
	_, err = db.Exec(await.Context(w.t), "delete from fence.records where starts_with(resource, $1)", prefix)
	check(w.t, err)
	return found
}
