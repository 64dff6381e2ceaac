package gateway

import (
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/store"
)

// pair is a gateway before a primary whose commits wait for a standby.
type pair struct {
	*harness

	primary, standby *postgres.Cluster
}

// newPair makes a pair whose standby is up. Of the two the gateway finds the one that accepts writes.
func newPair(t *testing.T) pair {
	t.Helper()
	primary := postgres.NewCluster(t)
	standby := primary.Standby()
	h := newHarnessOn(t, Config{}, store.Config{
		DatabaseURL: postgres.FailoverURL(primary, standby), StatementTimeout: time.Hour,
	})
	if err := h.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.exec(t, "alter system set synchronous_standby_names = '*'") // not in the standby's own configuration
	h.exec(t, "select pg_reload_conf()")
	p := pair{h, primary, standby}
	await.True(t, "commits wait for the standby", func() bool {
		return p.count(t, "select count(*) from pg_stat_replication where sync_state = 'sync'") == 1 &&
			p.count(t, "select count(*) from pg_settings where name = 'synchronous_standby_names' and setting = '*'") == 1
	})
	return p
}

// waitingCommits are the database sessions whose commit waits for the standby, without the prober's.
const waitingCommits = " from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep' " +
	"and query <> 'select fence.probe()'"

// awaitCommit returns when a commit waits for the standby.
func (p pair) awaitCommit(t *testing.T) {
	t.Helper()
	await.True(t, "a commit waits for the standby", func() bool {
		return p.count(t, "select count(*)"+waitingCommits) > 0
	})
}

// Ends of a commit's wait for the standby, as an administrator may order them.
const (
	cancel    = "pg_cancel_backend(pid)"
	terminate = "pg_terminate_backend(pid, 60000)"
)

// endWaits ends the waits of commits until there is an answer. There must be one at least.
func (p pair) endWaits(t *testing.T, how string, answers <-chan answer) (got answer) {
	t.Helper()
	ended := int64(0)
	await.True(t, "the commit that did not wait to its end is answered", func() bool {
		ended += p.count(t, "select count("+how+")"+waitingCommits)
		select {
		case got = <-answers:
			return true
		default:
			return false
		}
	})
	if ended == 0 {
		t.Fatalf("%s: answered without a wait for the standby: %s", got.request, got.body)
	}
	return got
}
