package migrations_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/await"
)

// gateScripts are about gates that a transaction holds while it stays open.
var gateScripts = []script{
	{"a subtree request that waits for an open transaction delays no request below", `
		A select test.grant('delay/held')  -- $t
		A begin; select status from fence.acquire('delay/open', 'owner')  -- granted
		B set lock_timeout = '1min'; select status from fence.acquire('delay', 'owner', scope => 'subtree')  -- waits
		C set lock_timeout = '10s'; select test.release('delay/held', $t)  -- released
		C select status from fence.acquire('delay/other', 'owner')  -- granted
		A commit
		B ...  -- held`},
	{"a subtree request waits for an open transaction no longer than lock_timeout", `
		A begin; select status from fence.acquire('bound/open', 'owner')  -- granted
		B set lock_timeout = '100ms'; select status from fence.acquire('bound', 'owner', scope => 'subtree')  -- !55P03
		B select current_setting('lock_timeout')  -- 100ms
		A commit
		B select status from fence.acquire('bound', 'owner', scope => 'subtree')  -- held`},
}

func TestGates(t *testing.T) {
	t.Parallel()
	runScripts(t, scripted(t, ""), nil, gateScripts)
}

// TestSubtreeRequestDoesNotStarve checks that a subtree request gets its gate, although at every moment some transaction
// below holds it.
func TestSubtreeRequestDoesNotStarve(t *testing.T) {
	t.Parallel()
	url := scripted(t, "")
	ctx := await.Context(t)
	done := make(chan struct{})
	var below errgroup.Group
	for i := range 6 {
		conn := connect(t, url)
		below.Go(func() error {
			for {
				select {
				case <-done:
					return nil
				default:
				}
				_, err := conn.Exec(ctx, fmt.Sprintf("begin; select fence.lock_gate('busy/%d', 'node'), pg_sleep(0.003); commit", i),
					pgx.QueryExecModeSimpleProtocol)
				if err != nil {
					return err
				}
			}
		})
	}
	conn := connect(t, url)
	for range 5 {
		if _, err := conn.Exec(ctx, "select fence.lock_gate('busy', 'subtree')"); err != nil {
			t.Error(err)
		}
	}
	close(done)
	if err := below.Wait(); err != nil {
		t.Error(err)
	}
}
