//go:build unix

package faults

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
)

// Gateways die with many writes of many clients in one commit.
func TestGatewaysKilledUnderACrowd(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	f := startFleet(t, url, 2)
	l := startClients(t, f, crowdClients, crowdLocks)
	l.rounds(t, 4, func(round int) {
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
