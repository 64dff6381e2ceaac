//go:build linux

package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/journal"
	"github.com/fencegate/fencegate/internal/testenv/await"
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
}

// TestFailovers runs failovers under load, one after the other, and writes a table of what each cost. It takes some
// minutes: `make failovers`.
func TestFailovers(t *testing.T) {
	if *failoversTable == "" {
		t.Skip("run `make failovers`")
	}
	table := &strings.Builder{}
	fmt.Fprintln(table, "| failover | setup | seconds without service | writes acknowledged | of these lost | "+
		"tokens repeated or gone back | zombies admitted |\n|---|---|---|---|---|---|---|")
	add := func(t *testing.T, f failover) {
		t.Helper()
		t.Run(f.fault+", "+f.setup, func(t *testing.T) {
			got := f.run(t, f.lossless)
			fmt.Fprintf(table, "| %s | %s | %.1f | %d | %d | %d | %d |\n", f.fault, f.setup, got.outage.Seconds(),
				got.Acknowledged, got.Lost, got.Tokens, got.Admitted)
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
	stopWatch context.CancelFunc
	watch     sync.WaitGroup
	outage    time.Duration
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
	m.watch.Go(func() { m.watchOutages(ctx) })
	return m
}

// watchOutages adds up the pauses between acknowledgements, until ctx ends.
func (m *measured) watchOutages(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	acks, _ := m.journal.Progress()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now, _ := m.journal.Progress()
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
	before, _ := m.journal.Progress()
	await.True(t, "clients get on", func() bool {
		now, _ := m.journal.Progress()
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
	return figures{Cost: cost, outage: m.outage}
}
