//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	testgateway "github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// The database dies while it executes a write. The outcome is unknown until the same write is sent again.
func TestDatabaseKilledWhileItWrites(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t)
	g := startGateway(t, cluster.URL())
	lease := mustAcquire(t, g, "job", "worker", 0)
	mustPut(t, g, numbered(lease, 1))
	db := connect(t, cluster.URL())
	holdFence(t, db, "job")
	answer := goPut(t, g, numbered(lease, 2))
	awaitPatient(t, db)
	cluster.Kill()
	wantOutcome(t, (<-answer).err, api.OutcomeUnknown)

	cluster.Restart()
	db.Reset()
	g.AwaitReady(t)
	if again := mustPut(t, g, numbered(lease, 1)); !again.Replayed || again.Version != 1 {
		t.Errorf("the write before the crash, sent again, got %+v", again)
	}
	if again := mustPut(t, g, numbered(lease, 2)); again.Replayed || again.Version != 2 {
		t.Errorf("the write in the crash, sent again, got %+v", again)
	}
	wantWrites(t, db, "job", 2)
}

// answeredUnavailable reports whether a gateway answered that it is unavailable. No answer at all does not count.
func answeredUnavailable(err error) bool {
	var failed *lockclient.Error
	return errors.Is(err, lockclient.ErrUnavailable) && errors.As(err, &failed) && failed.Cause == nil
}

func get(t *testing.T, g *gateway, path string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(patient(t), http.MethodGet, g.URL+path, nil)
	check(t, err)
	response, err := (&http.Client{Transport: g.Transport}).Do(request)
	check(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(t, err)
	return response.StatusCode, string(text)
}

// fencegate with a PostgreSQL of its own is killed in the middle of everything, and started again on the same data.
func TestServeWithItsOwnDatabaseKilledUnderLoad(t *testing.T) {
	t.Parallel()
	postgres.Require(t, "initdb")
	dataDir := newDataDir(t)
	f := &fleet{members: make([]atomicGateway, 1)}
	// The empty URL wins over one in the environment.
	f.members[0].Store(serve(t, "--database-url", "", "--data-dir", dataDir))
	f.databaseCrashes = true
	l := startLoad(t, f)
	starts := 0
	l.rounds(t, 2, func(int) {
		starts++
		dead := f.at(0)
		processes, err := process.Family(postmasterPID(t, dataDir))
		check(t, err)
		if len(processes) < 5 {
			t.Fatalf("PostgreSQL seems to be the processes %d", processes)
		}
		dead.Kill()
		awaitEnds(t, processes)
		f.members[0].Store(serve(t, "--database-url", "", "--data-dir", dataDir))
		dead.Transport.CloseIdleConnections()
	})
	l.end(t)
	check(t, f.at(0).Stop())

	db := openDataDir(t, dataDir)
	l.verify(t, db)
	wantJumpsAtStarts(t, db, starts)
}

// A gateway does not outlive a PostgreSQL of its own: its supervisor may start both again.
func TestServeEndsWithItsOwnDatabase(t *testing.T) {
	t.Parallel()
	postgres.Require(t, "initdb")
	dataDir := newDataDir(t)
	served, err := testgateway.Run(patient(t), process.BuildChecked(t), "--database-url", "", "--data-dir", dataDir)
	check(t, err)
	t.Cleanup(served.Kill)
	processes, err := process.Family(postmasterPID(t, dataDir))
	check(t, err)
	check(t, syscall.Kill(postmasterPID(t, dataDir), syscall.SIGKILL))
	<-served.Ended()
	if err := served.Stop(); err == nil {
		t.Error("it ended as after a request to end")
	}
	if log := served.Log(); !strings.Contains(log, "the private PostgreSQL ended") {
		t.Errorf("it did not say why it ended:\n%s", log)
	}
	awaitEnds(t, processes)
	openDataDir(t, dataDir)
}

// awaitEnds returns when nothing is left of a PostgreSQL.
func awaitEnds(t *testing.T, processes []int) {
	t.Helper()
	for _, pid := range processes {
		await.True(t, "process "+strconv.Itoa(pid)+" of PostgreSQL ends", func() bool { return !process.Running(pid) })
	}
}

// openDataDir starts the PostgreSQL of a data directory without its gateway, until the test ends.
func openDataDir(t *testing.T, dataDir string) *pgxpool.Pool {
	t.Helper()
	cluster, err := embeddedpg.Start(patient(t), embeddedpg.Config{DataDir: dataDir})
	check(t, err)
	t.Cleanup(func() { check(t, cluster.Stop(context.Background())) })
	return connect(t, cluster.URL())
}

// newDataDir is a data directory that does not exist yet, where PostgreSQL's user can reach it.
func newDataDir(t *testing.T) string {
	t.Helper()
	parent, err := os.MkdirTemp("", "fg-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(parent)) })
	check(t, os.Chmod(parent, 0o711))
	return filepath.Join(parent, "data")
}

func postmasterPID(t *testing.T, dataDir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dataDir, "cluster", "postmaster.pid"))
	check(t, err)
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	check(t, err)
	return pid
}

const (
	loadClients = 16
	loadLocks   = 6 // fewer than clients: they contend
	// A crowd fills batches: many writes are in flight in one commit when something breaks.
	crowdClients = 96
	crowdLocks   = 60
)

// underLoad is clients at work on a fleet.
type underLoad struct {
	journal *journal.Journal
	stop    context.CancelFunc
	clients sync.WaitGroup
	acks    int // when progress was looked at last
}

func startLoad(t *testing.T, f *fleet) *underLoad {
	t.Helper()
	return startClients(t, f, loadClients, loadLocks)
}

func startClients(t *testing.T, f *fleet, clients, lockCount int) *underLoad {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &underLoad{journal: journal.New(), stop: stop}
	t.Cleanup(func() { // where the test failed before the end
		stop()
		l.clients.Wait()
	})
	locks := make([]string, lockCount)
	for i := range locks {
		locks[i] = fmt.Sprintf("faults/%d", i)
	}
	work := l.journal.Exercise(clients, locks, await.Limit)
	work.Gateway = func(random *rand.Rand) *lockclient.API { return f.at(random.IntN(len(f.members))).API }
	work.CommitsMayBeLost = f.losesCommits
	if f.databaseCrashes {
		l.journal.Crashed()
	}
	l.clients.Go(func() { work.Run(ctx, 1) })
	return l
}

// progressed is journal.Progress for all writes of the load.
func (l *underLoad) progressed() (acks int, sound bool) {
	return l.journal.Progress(journal.ByPut, journal.ByTransaction)
}

// progress returns when so many more writes were acknowledged since the last call. Faults are paced by it, and not by
// time: between two of them, work gets done however slow the machine is.
func (l *underLoad) progress(t *testing.T, acks int) {
	t.Helper()
	await.True(t, "clients get on", func() bool {
		now, sound := l.progressed()
		if !sound {
			l.end(t)
			t.Fatal(l.journal.Summary())
		}
		return now >= l.acks+acks
	})
	l.acks, _ = l.progressed()
}

// lasted reports whether the load has lasted for long enough.
func (l *underLoad) lasted() bool { return time.Duration(l.journal.Now()) >= *duration }

// end lets the clients bring to an end what they have begun.
func (l *underLoad) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.clients.Wait()
	t.Log(l.journal.Summary())
}

// verify holds what clients saw against the database.
func (l *underLoad) verify(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	found, err := l.journal.Check(patient(t), db, "")
	check(t, err)
	report(t, found)
}

// report fails the test for what was found. The last says where the history is.
func report(t *testing.T, found []string) {
	t.Helper()
	for _, what := range found[max(0, len(found)-20):] {
		t.Error(what)
	}
}

// rounds calls fault between stretches of work, at least so many times and until the load has lasted long enough.
func (l *underLoad) rounds(t *testing.T, least int, fault func(round int)) {
	t.Helper()
	begun := time.Now()
	round := 0
	for ; round < least || !l.lasted(); round++ {
		l.progress(t, 40)
		fault(round)
	}
	l.progress(t, 40)
	t.Logf("%d faults in %s", round, time.Since(begun).Round(time.Millisecond))
}

// TestPoolerUnderLoad checks that gateways behind PgBouncer in transaction mode keep the contract while it is killed,
// and while the server behind it is killed or restarted: clients are answered unavailable, and nothing acknowledged is
// lost.
func TestPoolerUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t)
	pooler := postgres.NewPooler(t, cluster.URL())
	f := startFleet(t, pooler.URL(t, cluster.URL()), 2, "--listen-url", cluster.URL())
	f.databaseCrashes = true
	faults := []struct{ begin, end func() }{
		{pooler.Kill, pooler.Start},
		{cluster.Kill, cluster.Restart},
		{cluster.Stop, cluster.Restart},
	}
	l := startLoad(t, f)
	l.rounds(t, len(faults), func(round int) {
		fault := faults[round%len(faults)]
		fault.begin()
		awaitUnreachable(t, f.at(round))
		fault.end()
		for index := range f.members {
			f.at(index).AwaitReady(t)
		}
	})
	l.end(t)
	l.verify(t, connect(t, cluster.URL()))
}
