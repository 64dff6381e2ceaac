//go:build linux

package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

var failoversTable = flag.String("failovers.table", "", "the file that TestFailovers writes its table to; it is skipped "+
	"without one")

// failover is a row of the table.
type failover struct {
	fault, setup string
	// lossless says that nothing may be lost: the history is checked in full. Without it, commits are lost by design; but
	// tokens must rise all the same, and no zombie be admitted, unless split says that nobody can promise that.
	lossless, split bool
	run             func(t *testing.T, lossless bool) figures
}

// figures is what a failover cost.
type figures struct {
	journal.Cost

	outage time.Duration
	phases phases
}

// TestFailovers runs failovers under load, one after the other, and writes a table of what each cost. It takes some
// minutes: `make failovers`.
func TestFailovers(t *testing.T) {
	if *failoversTable == "" {
		t.Skip("run `make failovers`")
	}
	table := &strings.Builder{}
	fmt.Fprintln(table, "| failover | setup | seconds without service | "+phaseNames+" | writes acknowledged | "+
		"of these lost | tokens repeated or gone back | zombies admitted |\n|---|---|---|---|---|---|---|---|")
	add := func(t *testing.T, f failover) {
		t.Helper()
		t.Run(f.fault+", "+f.setup, func(t *testing.T) {
			got := f.run(t, f.lossless)
			fmt.Fprintf(table, "| %s | %s | %.1f | %s | %d | %d | %d | %d |\n", f.fault, f.setup, got.outage.Seconds(),
				got.phases, got.Acknowledged, got.Lost, got.Tokens, got.Admitted)
			if f.lossless && got.Lost > 0 || !f.split && got.Tokens+got.Admitted > 0 {
				t.Errorf("it broke a promise: %+v", got)
			}
		})
		check(t, os.WriteFile(*failoversTable, []byte(table.String()), 0o600))
	}
	for _, f := range failoversByHand {
		add(t, f)
	}
	failoversOfPatroni(t, add)
}

// measured is a load during a failover.
type measured struct {
	*underLoad
	// observe runs a function beside the load. Its context ends with the load.
	observe   func(func(context.Context))
	stopWatch context.CancelFunc
	watch     sync.WaitGroup
	outage    time.Duration
	phases    phases
}

// measuredClients are few: a busy machine must not add to what a failover takes.
const measuredClients = 8

// outageMin is the shortest pause between two acknowledgements that counts as an outage.
const outageMin = 500 * time.Millisecond

// measure starts a load, and returns when it is under way.
func measure(t *testing.T, f *fleet) *measured {
	t.Helper()
	f.databaseCrashes = true
	m := &measured{underLoad: startClients(t, f, measuredClients, loadLocks)}
	m.proceed(t, 200)
	ctx, stop := context.WithCancel(context.Background())
	m.stopWatch = stop
	t.Cleanup(stop)
	m.observe = func(observer func(context.Context)) { m.watch.Go(func() { observer(ctx) }) }
	m.observe(m.watchOutages)
	return m
}

// watchOutages adds up the pauses between acknowledgements, until ctx ends.
func (m *measured) watchOutages(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	acks, _ := m.progressed()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now, _ := m.progressed()
			if now == acks {
				continue
			}
			if pause := time.Since(last); pause >= outageMin {
				m.outage += pause
			}
			acks, last = now, time.Now()
		}
	}
}

// proceed returns when so many more writes were acknowledged. Other than progress, it minds no unexpected answers: they
// are to be expected where commits are lost.
func (m *measured) proceed(t *testing.T, acks int) {
	t.Helper()
	before, _ := m.progressed()
	await.True(t, "clients get on", func() bool {
		now, _ := m.progressed()
		return now >= before+acks
	})
}

// finish waits until clients work again, ends the load, and compares what they saw with the database that is left.
func (m *measured) finish(t *testing.T, lossless bool, databaseURL string) figures {
	t.Helper()
	m.proceed(t, 200)
	m.stopWatch()
	m.watch.Wait()
	db := connect(t, databaseURL)
	if lossless {
		m.end(t)
		m.verify(t, db)
	} else {
		m.stop()
		m.clients.Wait()
	}
	cost, err := m.journal.Cost(patient(t), db)
	check(t, err)
	return figures{Cost: cost, outage: m.outage, phases: m.phases}
}

const (
	synchronous  = "synchronous pair"
	asynchronous = "asynchronous standby"
	oneServer    = "one server"
)

// failoversByHand are those where a person, or a script, promotes or restores.
var failoversByHand = []failover{
	{fault: "primary killed", setup: synchronous, lossless: true, run: promoteAfter(func(_ *testing.T, c *postgres.Cluster) {
		c.Kill()
	})},
	{fault: "primary frozen; thawed beside the new one", setup: synchronous, lossless: true, run: frozenAndThawed},
	{fault: "waits for the standby cancelled, then primary killed", setup: synchronous, lossless: true, run: waitsCancelled},
	{fault: "both primaries, all gateways see both", setup: synchronous, lossless: true, run: bothPrimaries(true, true)},
	{fault: "both primaries, gateways see one each", setup: synchronous, split: true, run: bothPrimaries(true, false)},
	{fault: "both primaries, gateways see one each", setup: asynchronous, split: true, run: bothPrimaries(false, false)},
	{fault: "primary killed, the standby is behind", setup: asynchronous, run: promotedBehind},
	{fault: "`pg_dump` restored in place", setup: oneServer, run: restoredInPlace},
	{fault: "base backup started with recovery", setup: oneServer, run: restoredBackup(true)},
	{fault: "base backup started without recovery", setup: oneServer, run: restoredBackup(false)},
}

// pair starts a primary with a standby, and gateways that know both.
func pair(t *testing.T, isSynchronous bool) (primary, standby *postgres.Cluster) {
	t.Helper()
	primary = postgres.NewCluster(t)
	standby = primary.Standby()
	if isSynchronous {
		db := connect(t, primary.URL()) // not in the standby's own configuration
		execute(t, db, "alter system set synchronous_standby_names = '*'")
		execute(t, db, "select pg_reload_conf()")
		db.Close()
	}
	return primary, standby
}

// promoteAfter breaks the primary of a synchronous pair, and promotes the standby.
func promoteAfter(lose func(*testing.T, *postgres.Cluster)) func(*testing.T, bool) figures {
	return func(t *testing.T, lossless bool) figures {
		t.Helper()
		primary, standby := pair(t, true)
		m := measure(t, startFleet(t, postgres.FailoverURL(primary, standby), 2))
		lose(t, primary)
		standby.Promote()
		return m.finish(t, lossless, standby.URL())
	}
}

func frozenAndThawed(t *testing.T, lossless bool) figures {
	t.Helper()
	primary, standby := pair(t, true)
	m := measure(t, startFleet(t, postgres.FailoverURL(primary, standby), 2))
	thaw := primary.Freeze()
	standby.Promote()
	m.proceed(t, 200)
	thaw()
	return m.finish(t, lossless, standby.URL())
}

// waitsCancelled stops the standby, ends the waits of commits for it again and again, and fails over to it.
func waitsCancelled(t *testing.T, lossless bool) figures {
	t.Helper()
	primary, standby := pair(t, true)
	m := measure(t, startFleet(t, postgres.FailoverURL(primary, standby), 2))
	standby.Stop()
	db := connect(t, primary.URL())
	for cancelled := 0; cancelled < 50; {
		cancelled += query[int](t, db, "select count(pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'")
	}
	primary.Kill()
	standby.Restart()
	standby.Promote()
	return m.finish(t, lossless, standby.URL())
}

// splitFor is how long two primaries are up. Where the former one waits for its standby, nothing need succeed
// meanwhile.
const splitFor = 5 * time.Second

// bothPrimaries promotes the standby while the primary goes on. In the end the former primary is stopped.
func bothPrimaries(isSynchronous, seeBoth bool) func(*testing.T, bool) figures {
	return func(t *testing.T, lossless bool) figures {
		t.Helper()
		primary, standby := pair(t, isSynchronous)
		f := startFleet(t, postgres.FailoverURL(primary, standby), 1)
		urls := []string{postgres.FailoverURL(primary, standby), postgres.FailoverURL(primary, standby)}
		if !seeBoth {
			urls = []string{primary.URL(), standby.URL()}
		}
		f.members = make([]atomicGateway, len(urls))
		for i, url := range urls {
			f.members[i].Store(startGateway(t, url))
		}
		m := measure(t, f)
		standby.CatchUp()
		standby.Promote()
		time.Sleep(splitFor)
		primary.Kill()
		if !seeBoth {
			f.members[0].Store(startGateway(t, standby.URL()))
		}
		return m.finish(t, lossless, standby.URL())
	}
}

func promotedBehind(t *testing.T, lossless bool) figures {
	t.Helper()
	primary, standby := pair(t, false)
	m := measure(t, startFleet(t, postgres.FailoverURL(primary, standby), 2))
	standby.CatchUp()
	standby.Stop()
	m.proceed(t, 200) // lost
	primary.Kill()
	standby.Restart()
	standby.Promote()
	return m.finish(t, lossless, standby.URL())
}

// restoredInPlace restores a dump while no gateway runs: their transactions and the restore would be a deadlock.
func restoredInPlace(t *testing.T, lossless bool) figures {
	t.Helper()
	pgDump, pgRestore := postgres.RequireDump(t, "pg_restore")
	cluster := postgres.NewCluster(t)
	f := startFleet(t, cluster.URL(), 2)
	m := measure(t, f)
	dump := filepath.Join(t.TempDir(), "dump")
	runProgram(t, pgDump, "--dbname", cluster.URL(), "--format", "custom", "--file", dump)
	m.proceed(t, 200) // lost
	for i := range f.members {
		f.at(i).Kill()
	}
	runProgram(t, pgRestore, "--clean", "--if-exists", "--single-transaction", "--dbname", cluster.URL(), dump)
	for i := range f.members {
		f.crash(t, i)
	}
	return m.finish(t, lossless, cluster.URL())
}

// restoredBackup starts a base backup in place of the server. Gateways are started anew before it.
func restoredBackup(recover bool) func(*testing.T, bool) figures {
	return func(t *testing.T, lossless bool) figures {
		t.Helper()
		primary := postgres.NewCluster(t)
		f := startFleet(t, primary.URL(), 2)
		m := measure(t, f)
		backup := primary.Backup()
		if recover {
			backup.Recover()
		}
		m.proceed(t, 200) // lost
		primary.Kill()
		backup.Restart()
		f.databaseURL = backup.URL()
		for i := range f.members {
			f.crash(t, i)
		}
		got := m.finish(t, lossless, backup.URL())
		timeline := query[int](t, connect(t, backup.URL()), "select timeline_id from pg_control_checkpoint()")
		if (timeline > 1) != recover {
			t.Errorf("this is no test: the backup is on timeline %s", strconv.Itoa(timeline))
		}
		return got
	}
}

// phaseNames are what a failover by Patroni goes through, in this order.
const phaseNames = "key free → other leader → promoted → standby confirms → first write"

// phases are when a failover reached each phase, as long after the fault.
type phases []time.Duration

func (p phases) String() string {
	var texts []string
	for _, after := range p {
		texts = append(texts, fmt.Sprintf("%.1f", after.Seconds()))
	}
	return strings.Join(texts, " → ")
}

// notePhases notes the phases of the failover from a leader that is about to break, by what the other nodes show.
func (m *measured) notePhases(t *testing.T, former *patroniNode, rest []*patroniNode) {
	t.Helper()
	others := &patroniCluster{nodes: rest}
	var successor *patroniNode
	var acks int
	reached := []func(context.Context) bool{
		func(context.Context) bool {
			members := others.members(t)
			return len(members) > 0 && !slices.ContainsFunc(members, func(member patroniMember) bool {
				return member.Role == "leader" && member.Name == former.name
			})
		},
		func(context.Context) bool {
			successor, _ = others.leader(t)
			return successor != nil
		},
		func(ctx context.Context) bool {
			acks, _ = m.progressed()
			return successor.says(ctx, "select not pg_is_in_recovery()")
		},
		func(ctx context.Context) bool {
			return successor.says(ctx, "select pg_logical_emit_message(true, '', '') is not null") // and commits
		},
		func(context.Context) bool {
			now, _ := m.progressed()
			return now > acks
		},
	}
	m.observe(func(ctx context.Context) {
		begun := time.Now()
		for _, holds := range reached {
			for !holds(ctx) {
				if ctx.Err() != nil {
					return
				}
				time.Sleep(retryPause)
			}
			m.phases = append(m.phases, time.Since(begun))
		}
	})
}

// says reports whether PostgreSQL of the node answers a query, and with true.
func (n *patroniNode) says(ctx context.Context, query string) (yes bool) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, (&patroniCluster{nodes: []*patroniNode{n}}).url("postgres"))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(ctx) }() // its error is that the server has closed it
	return conn.QueryRow(ctx, query).Scan(&yes) == nil && yes
}
