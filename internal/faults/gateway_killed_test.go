//go:build unix

package faults

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/lockclient"
)

func TestGatewaysKilledUnderLoad(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	f := startFleet(t, url, 2)
	l := startLoad(t, f)
	l.rounds(t, 4, func(round int) { f.crash(t, round) })
	verify(t, l.end(t), connect(t, url))
}

// A write reached the database, and the one that was to tell of it died. The database finishes it all the same: the retry by another gateway
// is a replay, and the write counts once.
func TestGatewayKilledWhileItWrites(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	db := connect(t, url)
	f := startFleet(t, url, 2)
	lease := mustAcquire(t, f.at(0), "job", "worker", 0)
	release := holdFence(t, db, "job")
	answer := goPut(t, f.at(0), numbered(lease, 1))
	awaitPatient(t, db)
	f.at(0).Kill()
	wantUnanswered(t, <-answer)
	release()
	await.True(t, "the write is committed", func() bool {
		return ask[bool](t, db, "select exists (select from fence.records)")
	})

	if again := mustPut(t, f.at(1), numbered(lease, 1)); !again.Replayed || again.Version != 1 {
		t.Errorf("the retry got %+v", again)
	}
	wantWrites(t, db, "job", 1)
}

// The session that carried a write was ended before it got at the fence: nothing was changed, though nobody can know it. The retry is applied.
func TestSessionEndedWhileItWrites(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	db := connect(t, url)
	g := startGateway(t, url)
	lease := mustAcquire(t, g, "job", "worker", 0)
	release := holdFence(t, db, "job")
	answer := goPut(t, g, numbered(lease, 1))
	awaitPatient(t, db)
	execute(t, db, "select pg_terminate_backend(pid) "+waitingStatements)
	wantOutcome(t, (<-answer).err, api.OutcomeUnknown)
	release()

	if again := mustPut(t, g, numbered(lease, 1)); again.Replayed || again.Version != 1 {
		t.Errorf("the retry got %+v", again)
	}
	wantWrites(t, db, "job", 1)
}

// A gateway died with the answer to an acquire: the same request by another gateway returns the same lease, and not lock_held.
func TestGatewayKilledWhileItGrants(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	db := connect(t, url)
	f := startFleet(t, url, 2)
	execute(t, db, "insert into fence.fences (resource) values ('job')")
	release := holdFence(t, db, "job")
	request := api.AcquireRequest{OwnerID: "worker", RequestID: new("once")}
	ended := make(chan error, 1)
	ctx := patient(t)
	go func() {
		_, err := f.at(0).Acquire(ctx, "job", request)
		ended <- err
	}()
	awaitWaiting(t, db, 1)
	f.at(0).Kill()
	wantUnanswered(t, answer{err: <-ended})
	release()
	await.True(t, "the grant is committed", func() bool {
		return ask[bool](t, db, "select exists (select from fence.leases)")
	})

	lease, err := f.at(1).Acquire(ctx, "job", request)
	check(t, err)
	if granted := ask[int64](t, db, "select fencing_token from fence.leases"); lease.FencingToken != granted {
		t.Errorf("the retry got token %d, %d was granted", lease.FencingToken, granted)
	}
	if _, err := f.at(1).Acquire(ctx, "job", api.AcquireRequest{OwnerID: "other"}); !errors.Is(err, lockclient.ErrLockHeld) {
		t.Errorf("another was told %v", err)
	}
}

// P7: the dead need not be swept away. The gateway that granted is killed, and the one that is left does not sweep.
func TestDeadHoldersLockIsGrantable(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	db := connect(t, url)
	f := startFleet(t, url, 2, "--sweep-interval", "1h")
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
