package migrations_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/testenv/await"
)

// gateScripts are about gates that a transaction holds while it stays open.
var gateScripts = []script{
	{"a subtree request that waits for an open transaction delays no request below", `
		A select test.grant('delay/held')  -- $t
		A begin; select status from fence.acquire('delay/open', 'owner')  -- granted
		B set lock_timeout = '1min'; select status from fence.acquire('delay', 'owner', scope => 'subtree')  -- waits
		C set lock_timeout = '5s'; select test.release('delay/held', $t)  -- released
		C select status from fence.acquire('delay/other', 'owner')  -- granted
		A commit
		B ...  -- held`},
	{"a subtree request that waits for a late holder's open transaction delays no request below", `
		A select test.grant('late/x')  -- $t
		A select test.expire('late/x'); begin; select fence.guard('late/x', $t, 1)  -- t
		B set lock_timeout = '1min'; select status from fence.acquire('late', 'owner', scope => 'subtree')  -- waits
		C set lock_timeout = '5s'; select status from fence.acquire('late/other', 'owner')  -- granted
		A commit
		B ...  -- held`},
	{"a break that waits for the holder's open transaction delays no request below", `
		A select test.grant('broken', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('broken/x', $t, 1)  -- t
		B set lock_timeout = '1min'; select outcome from fence.break('broken', 'note')  -- waits
		C set lock_timeout = '5s'; select status from fence.acquire('broken/other', 'owner')  -- held
		A commit
		B ...  -- broken`},
	{"a release that waits for the holder's open transaction delays no request below", `
		A select test.grant('ended', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('ended/x', $t, 1)  -- t
		B set lock_timeout = '1min'; select test.release('ended', $t)  -- waits
		C set lock_timeout = '5s'; select status from fence.acquire('ended/other', 'owner')  -- held
		A commit
		B ...  -- released`},
	{"a subtree request waits for an open transaction no longer than lock_timeout", `
		A begin; select status from fence.acquire('bound/open', 'owner')  -- granted
		B set lock_timeout = '100ms'; select status from fence.acquire('bound', 'owner', scope => 'subtree')  -- !55P03
		B select current_setting('lock_timeout')  -- 100ms
		A commit
		B select status from fence.acquire('bound', 'owner', scope => 'subtree')  -- held`},
	{"a transaction takes 64 gates", `
		A begin; select count(*) from generate_series(1, 100) n,
			fence.acquire('gates/' || n, 'owner') where status = 'granted'  -- 100
		A select count(*) from generate_series(1, 100) n,
			fence.acquire('ungated-' || n, 'owner') where status = 'granted'  -- 100
		A select fence.acquire('gates-' || n || '/x', 'owner') from generate_series(1, 63) n
		A savepoint s; select fence.acquire('gates-64/x', 'owner')  -- !54000 several transactions
		A rollback to s; select status from fence.acquire('ungated-101', 'owner')  -- granted
		A commit
		A select status from fence.acquire('gates-64/x', 'owner')  -- granted`},
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

// TestLocksOfAGuardedWrite checks that a guarded write locks at most 16 relations and indexes: so many locks of a
// transaction need no place in the lock table that all sessions share, before PostgreSQL 18.
func TestLocksOfAGuardedWrite(t *testing.T) {
	t.Parallel()
	url := scripted(t, `
		create table accounts (id integer primary key, balance bigint);
		insert into accounts values (1, 1);
		select fence.protect('accounts', 'accounts/{id}')`)
	for name, begin := range map[string]string{
		"fence.guard":     "select fence.guard('accounts/1', $t, 1)",
		"fencegate.token": "set local fencegate.token = '$t.1'",
	} {
		write := script{name, `
			A select test.grant('accounts/1')  -- $t
			A begin; ` + begin + `; update accounts set balance = 3 where id = 1
			A select count(*) <= 16 from pg_locks where pid = pg_backend_pid()  -- t`}
		if err := write.run(t.Context(), url, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
