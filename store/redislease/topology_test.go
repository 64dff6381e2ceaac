package redislease_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/redislease"
)

// TestFailover checks that leases go on after a Sentinel has promoted a replica: a waiter keeps its turn, and the holder
// of a lease that the replica lacks is shut out by the next grant.
func TestFailover(t *testing.T) {
	t.Parallel()
	db, master := enginetest.New(t), redis.Start(t)
	db.Exec(t, `create table notes (job text, done_by text); create table jobs (id text, done_by text);
		select fence.protect('jobs', 'jobs/{id}')`)
	replica := redis.StartReplica(t, master)
	sentinel := redis.StartSentinel(t, "main", master)
	sentinel.Do("SENTINEL", "SET", "main", "down-after-milliseconds", "300")
	await.True(t, "the Sentinel knows the replica", func() bool {
		return strings.Contains(sentinel.Do("INFO", "sentinel"), "status=ok,address="+master.Address()+",slaves=1")
	})
	leases := open(t, db.Store, redislease.Config{
		URLs: []string{sentinel.URL() + "?master_name=main"}, Timeout: time.Second, PollInterval: 20 * time.Millisecond,
	})
	kept, lost1 := acquire(t, leases, request("jobs/kept", "A")), acquire(t, leases, request("jobs/lost", "A"))
	next := inBackground(await.Context(t), t, leases, waiting("jobs/lost", "B"))
	await.True(t, "the replica has both leases", func() bool { return replica.Do("DBSIZE") == "2" })

	master.Kill()
	await.True(t, "the replica is promoted", func() bool {
		return strings.Contains(sentinel.Do("INFO", "sentinel"), "address="+replica.Address())
	})
	replica.Do("DEL", "jobs/lost") // as if the master had died before it was replicated
	second := granted(t, "the lock after the failover", next)
	writesBy(t, db, lost1, store.ErrStaleToken)
	writesBy(t, db, second, nil)
	lost(t, "a renewal of the lease that was lost", renew(t, leases, lost1), "superseded")
	if err := renew(t, leases, kept); err != nil {
		t.Errorf("a renewal of the lease that the replica has: %v", err)
	}
	writesBy(t, db, kept, nil)
}

// TestCluster checks leases in a Cluster of three nodes, on names with the characters that choose a slot, also while a
// slot moves to another node.
func TestCluster(t *testing.T) {
	t.Parallel()
	db, nodes := openDB(t), redis.StartCluster(t, 3)
	config := redislease.Config{URLs: []string{nodes[0].URL() + "?addr=" + nodes[0].Address()}, PollInterval: never}
	here, there := open(t, db, config), open(t, db, config)
	await.True(t, "both listen to releases", func() bool {
		listeners := 0
		for _, node := range nodes {
			if strings.HasPrefix(node.Do("PUBSUB", "NUMPAT"), "0") {
				listeners += strings.Count(node.Do("CLIENT", "LIST", "TYPE", "pubsub"), "\n")
			}
		}
		return listeners == 2
	})
	var refs []store.LeaseRef
	for _, name := range []string{"plain", "{tag}/a", "{tag}/b", "jobs/{id}", "{}", "{}{x}", "}{", "{", "*?[a-z]", "{ä}"} {
		lease := acquire(t, here, request(name, "A"))
		held(t, there, name, "A")
		if err := renew(t, there, lease); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		refs = append(refs, lease.Ref())
	}
	if left, err := here.Left(t.Context(), refs); err != nil || min(left[0], left[len(left)-1]) < long/2 {
		t.Errorf("left are %v, %v", left, err)
	}

	const moved, slot = "moved", "1999" // which nodes[0] has
	if got := nodes[0].Do("CLUSTER", "KEYSLOT", moved); got != slot {
		t.Fatalf("the slot of %s is %s", moved, got)
	}
	before, to := redirects(nodes), nodes[1].Do("CLUSTER", "MYID")
	for _, node := range nodes {
		node.Do("CLUSTER", "SETSLOT", slot, "NODE", to)
	}
	lease := acquire(t, here, request(moved, "A"))
	if redirects(nodes) == before {
		t.Error("no node has redirected the client")
	}
	next := inBackground(await.Context(t), t, there, waiting(moved, "B"))
	release(t, here, lease)
	release(t, there, granted(t, "the lock by the release that another node has published", next))
}

// redirects returns what the nodes say of the commands that they have redirected.
func redirects(nodes []*redis.Server) string {
	text := ""
	for i, node := range nodes {
		_, moved, _ := strings.Cut(node.Do("INFO", "errorstats"), "errorstat_MOVED:")
		count, _, _ := strings.Cut(moved, "\r\n")
		text += fmt.Sprint(i, ": ", count, "; ")
	}
	return text
}
