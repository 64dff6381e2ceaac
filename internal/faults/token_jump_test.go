//go:build unix

package faults

import (
	"fmt"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

// A database is put back to what it was before it jumped, again and again and as fast as it goes, as if each time
// another sibling of it were promoted: one that knows nothing of the others, whose tokens its own must exceed all the
// same.
func TestTokenJumpsOfUnrelatedHistories(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	db := connect(t, url)
	g := startGateway(t, url)
	newest := int64(0)
	for sibling := range 30 {
		// In this order: a gateway that saw the sequence go back on the same timeline would not use the database any more.
		execute(t, db, "update fence.database_identity set timeline = timeline + 1")
		execute(t, db, "select setval('fence.tokens', 1)")
		for grant := range 3 {
			lease := mustAcquire(t, g, fmt.Sprintf("sibling/%d/%d", sibling, grant), "worker", 0)
			if lease.FencingToken <= newest {
				t.Fatalf("sibling %d granted token %d, one before it had granted %d", sibling, lease.FencingToken, newest)
			}
			newest = lease.FencingToken
		}
	}
	wantJumps(t, db, 30)
}
