//go:build unix

package faults

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// A gateway dies after its write has reached the database. The database finishes the write: the retry by another
// gateway is a replay, and the write counts once.
func TestGatewayKilledWhileItWrites(t *testing.T) {
	t.Parallel()
	db, f := startMigrated(t, 2)
	put := startPut(t, db, f.at(0), 0)
	f.at(0).Kill()
	wantUnanswered(t, <-put.answer)
	put.release()
	await.True(t, "the write is committed", func() bool {
		return query[bool](t, db, "select exists (select from fence.records)")
	})

	if again := mustPut(t, f.at(1), numbered(put.lease, 1)); !again.Replayed || again.Version != 1 {
		t.Errorf("the retry got %+v", again)
	}
	wantWrites(t, db, "job", 1)
}

// The database session of a write ends before the write gets the fence. Nothing was changed, but the outcome is
// unknown. The retry is applied.
func TestSessionEndedWhileItWrites(t *testing.T) {
	t.Parallel()
	db, f := startMigrated(t, 1)
	g := f.at(0)
	put := startPut(t, db, g, 0)
	execute(t, db, "select pg_terminate_backend(pid) "+waitingStatements)
	wantOutcome(t, (<-put.answer).err, api.OutcomeUnknown)
	put.release()

	if again := mustPut(t, g, numbered(put.lease, 1)); again.Replayed || again.Version != 1 {
		t.Errorf("the retry got %+v", again)
	}
	wantWrites(t, db, "job", 1)
}

// A gateway died with the answer to an acquire: the same request by another gateway returns the same lease, and not
// lock_held.
func TestGatewayKilledWhileItGrants(t *testing.T) {
	t.Parallel()
	// The statement of the dead gateway must still wait when the fence is released.
	db, f := startMigrated(t, 2, "--lock-timeout", "2m", "--statement-timeout", "2m")
	execute(t, db, "insert into fence.fences (resource) values ('job')")
	release := holdFence(t, db, "job")
	request := api.AcquireRequest{OwnerID: "worker", RequestID: new("once")}
	ended := make(chan error, 1)
	ctx := patient(t)
	go func() {
		_, err := f.at(0).Acquire(ctx, "job", request)
		ended <- err
	}()
	awaitPatient(t, db)
	f.at(0).Kill()
	wantUnanswered(t, answer{err: <-ended})
	release()
	await.True(t, "the grant is committed", func() bool {
		return query[bool](t, db, "select exists (select from fence.leases)")
	})

	lease, err := f.at(1).Acquire(ctx, "job", request)
	check(t, err)
	if granted := query[int64](t, db, "select fencing_token from fence.leases"); lease.FencingToken != granted {
		t.Errorf("the retry got token %d, %d was granted", lease.FencingToken, granted)
	}
	if _, err := f.at(1).Acquire(ctx, "job", api.AcquireRequest{OwnerID: "other"}); !errors.Is(err,
		lockclient.ErrLockHeld) {
		t.Errorf("another owner got %v", err)
	}
}

// P7: the dead need not be swept away. The gateway that granted is killed, and the one that is left does not sweep.
func TestDeadHoldersLockIsGrantable(t *testing.T) {
	t.Parallel()
	db, f := startMigrated(t, 2, "--sweep-interval", "1h")
	for i := range 5 {
		lock := fmt.Sprintf("job/%d", i)
		first := mustAcquire(t, f.at(0), lock, "dead", 100)
		if i == 4 {
			f.at(0).Kill()
		}
		awaitExpiry(t, db, lock)
		if second := mustAcquire(t, f.at(1), lock, "heir", 0); second.FencingToken <= first.FencingToken {
			t.Errorf("token %d was granted after %d", second.FencingToken, first.FencingToken)
		}
	}
}

// Gateways die with many writes of many clients in one commit.
func TestGatewaysKilledUnderACrowd(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	f := startFleet(t, url, 2)
	l := startClients(t, f, crowdClients, crowdLocks)
	l.rounds(t, 2, func(round int) {
		l.progress(t, crowdClients)
		f.crash(t, round)
	})
	l.end(t)
	l.verify(t, connect(t, url))
}

// A gateway died in mid-batch: writes of many clients wait for their fences in its commits. Whatever the database made
// of the batch, each write that is sent again by another gateway is applied once.
func TestGatewayKilledInMidBatch(t *testing.T) {
	t.Parallel()
	db, f := startMigrated(t, 2)
	leases := make([]api.Lease, crowdClients)
	for i := range leases {
		leases[i] = mustAcquire(t, f.at(0), fmt.Sprintf("job/%d", i), "worker", 0)
	}
	var held []string
	for i := 0; i < len(leases); i += 2 {
		held = append(held, leases[i].Lock)
	}
	release := holdFence(t, db, held...)
	answers := make([]<-chan answer, len(leases))
	for i, lease := range leases {
		answers[i] = goPut(t, f.at(0), numbered(lease, 1))
	}
	for i := 1; i < len(answers); i += 2 { // these fences are free
		got := <-answers[i]
		check(t, got.err)
	}
	awaitWaiting(t, db)
	f.at(0).Kill()
	for i := 0; i < len(answers); i += 2 {
		if got := <-answers[i]; !errors.Is(got.err, lockclient.ErrUnavailable) {
			t.Errorf("%s: the write got %+v", leases[i].Lock, got)
		}
	}
	release()

	for _, lease := range leases {
		if again := mustPut(t, f.at(1), numbered(lease, 1)); again.Version != 1 {
			t.Errorf("%s: the retry got %+v", lease.Lock, again)
		}
		wantWrites(t, db, lease.Lock, 1)
	}
}
