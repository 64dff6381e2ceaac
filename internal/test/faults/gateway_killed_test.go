//go:build unix

package faults

import (
	"fmt"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

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
