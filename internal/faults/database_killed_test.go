//go:build unix

package faults

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/load"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
)

func TestDatabaseKilledUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t)
	f := startFleet(t, cluster.URL(), 2)
	pids := []int{f.at(0).PID(), f.at(1).PID()}
	witness := mustAcquire(t, f.at(0), "witness", "witness", 0)
	f.databaseCrashes = true
	l := startLoad(t, f)
	l.journal.Granted(witness, 0, 0)
	starts := 0
	l.rounds(t, 3, func(round int) {
		starts++
		cluster.Kill()
		w := numbered(witness, int64(round)+1)
		for index := range pids {
			wantDown(t, f.at(index), w)
		}
		cluster.Restart()
		for index := range pids {
			f.at(index).AwaitReady(t)
		}
		result := mustPut(t, f.at(0), w)
		l.journal.Wrote(load.Write{Resource: w.resource, Key: w.key, Value: w.value, Token: w.token, Sequence: w.sequence,
			Applied: true, Version: result.Version})
	})
	l.end(t)
	if f.at(0).PID() != pids[0] || f.at(1).PID() != pids[1] {
		t.Error("a gateway did not stay up")
	}

	db := connect(t, cluster.URL())
	l.verify(t, db)
	wantJumpsAtStarts(t, db, starts)
}

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

// wantDown expects a gateway whose database is down to say so, at every source.
func wantDown(t *testing.T, g *gateway, w write) {
	t.Helper()
	ctx := patient(t)
	awaitUnreachable(t, g)
	if code, _ := get(t, g, "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("without a database, /readyz answers %d", code)
	}
	if code, _ := get(t, g, "/healthz"); code != http.StatusOK {
		t.Errorf("without a database, /healthz answers %d", code)
	}
	_, acquired := g.Acquire(ctx, "job", api.AcquireRequest{OwnerID: "worker"})
	for _, err := range []error{(<-goPut(t, g, w)).err, acquired} {
		if !answeredUnavailable(err) || problemOf(t, err).Outcome == "" {
			t.Errorf("without a database, it answers %v", err)
		}
	}
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
