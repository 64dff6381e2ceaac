package redislease_test

import (
	"crypto/tls"
	"errors"
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

// failing is a server that can't serve an acquire.
type failing struct {
	name  string
	kind  redislease.Kind
	words string // in the error
	// make returns the URL, of a server that was broken after Leases has connected to it, by breaks.
	make func(t *testing.T) (url string, breaks func())
}

func with(settings []string, breaks func(s *redis.Server)) func(*testing.T) (string, func()) {
	return func(t *testing.T) (string, func()) {
		s := redis.Start(t, settings...)
		return s.URL(), func() { breaks(s) }
	}
}

var failures = []failing{
	{"killed", redislease.KindUnreachable, "connection refused", with(nil, (*redis.Server).Kill)},
	{"frozen", redislease.KindTimeout, "timeout", with(nil, (*redis.Server).Freeze)},
	{"full", redislease.KindFull, "maxmemory", with(nil, func(s *redis.Server) {
		s.Do("CONFIG", "SET", "maxmemory", "1")
	})},
	{"a replica", redislease.KindReadOnly, "name the master", with(nil, func(s *redis.Server) {
		s.Do("REPLICAOF", "127.0.0.1", "1")
	})},
	{"a replica without its master", redislease.KindDown, "MASTERDOWN", with([]string{"replica-serve-stale-data no"},
		func(s *redis.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") })},
	{"too few replicas", redislease.KindReplicas, "NOREPLICAS", with(nil, func(s *redis.Server) {
		s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	})},
	{"a list at the key", redislease.KindWrongType, "delete the key", with(nil, func(s *redis.Server) {
		s.Do("RPUSH", "lock", "a")
	})},
	{"a password is needed", redislease.KindAuth, "correct the user",
		with([]string{"requirepass secret"}, func(*redis.Server) {})},
	{"the password is wrong", redislease.KindAuth, "WRONGPASS", func(t *testing.T) (string, func()) {
		s := redis.Start(t)
		s.Do("ACL", "SETUSER", "worker", "on", ">right", "~*", "+@all")
		return s.UserURL("worker", "wrong"), func() {}
	}},
	{"no right to a command of the scripts", redislease.KindPermission, "docs/other-locks.md",
		func(t *testing.T) (string, func()) {
			s := redis.Start(t)
			s.Do("ACL", "SETUSER", "worker", "on", ">pw", "~*", "&*", "+@all", "-set")
			return s.UserURL("worker", "pw"), func() {}
		}},
	{"a certificate that is not trusted", redislease.KindTLS, "certificate", func(t *testing.T) (string, func()) {
		url, _ := redis.StartTLS(t)
		return url, func() {}
	}},
}

// TestServerFails checks that each failure of a server is ErrUnavailable with its reason, that it is counted under its
// kind, that it is reported, and that no password is shown.
func TestServerFails(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	for _, c := range failures {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url, breaks := c.make(t)
			config := redislease.Config{URLs: []string{url}}
			if c.kind == redislease.KindTimeout {
				config.Timeout = hasty
			}
			leases := open(t, db, config)
			breaks()
			_, err := leases.Acquire(await.Context(t), request("lock", "A"))
			failed, ok := errors.AsType[*store.ProviderError](err)
			if !ok || failed.Provider != store.ProviderRedis || !errors.Is(err, store.ErrUnavailable) ||
				!errors.Is(err, store.ErrProviderUnavailable) || !strings.Contains(err.Error(), c.words) ||
				strings.Contains(err.Error(), "wrong@") {
				t.Errorf("the acquire: %v, want ErrUnavailable of redis with %q", err, c.words)
			}
			stats := leases.Stats()[0]
			if stats.Errors[c.kind] == 0 || stats.LastError == "" {
				t.Errorf("the stats are %+v, want an error of the kind %s", stats, c.kind)
			}
		})
	}
}

// TestServerRecovers checks what does not fail: scripts that the server has forgotten, a server that is back, and a
// renewal and a release while the server has no memory left.
func TestServerRecovers(t *testing.T) {
	t.Parallel()
	server := redis.Start(t)
	db := openDB(t)
	leases, impatient := open(t, db, redislease.Config{}, server), open(t, db, redislease.Config{Timeout: hasty}, server)
	lease := acquire(t, leases, request("lock", "A"))
	server.Do("SCRIPT", "FLUSH")
	if _, err := leases.Renew(await.Context(t), lease.Ref(), 0); err != nil {
		t.Errorf("a renewal after SCRIPT FLUSH: %v", err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "1")
	if _, err := leases.Renew(await.Context(t), lease.Ref(), 0); err != nil {
		t.Errorf("a renewal while the server is full: %v", err)
	}
	release(t, leases, lease)
	server.Do("CONFIG", "SET", "maxmemory", "0")

	server.Freeze()
	_, err := impatient.Acquire(await.Context(t), request("lock", "A"))
	fails(t, "an acquire from a frozen server", err, store.ErrUnavailable)
	server.Thaw()
	acquire(t, leases, waiting("lock", "B")) // after what the lost acquire has left there
	server.RestartEmpty()
	await.True(t, "an acquire after the restart", func() bool {
		lease, err = leases.Acquire(await.Context(t), request("lock", "C"))
		return err == nil
	})
	server.Kill()
	_, err = leases.ReleaseLease(await.Context(t), lease.Ref())
	if store.OutcomeOf(err) != store.OutcomeUnknown {
		t.Errorf("a release while the server is down: %v, want ErrUnavailable with an unknown outcome", err)
	}
	server.RestartEmpty()
	await.True(t, "the release sent again", func() bool {
		_, err := leases.ReleaseLease(await.Context(t), lease.Ref())
		return err == nil
	})
}

// TestTLS checks that leases are kept by TLS, and that the connection for releases uses it, too.
func TestTLS(t *testing.T) {
	t.Parallel()
	url, roots := redis.StartTLS(t)
	leases := open(t, openDB(t), redislease.Config{
		URLs: []string{url}, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, PollInterval: never,
	})
	lease := acquire(t, leases, request("lock", "A"))
	next := inBackground(await.Context(t), t, leases, waiting("lock", "B"))
	release(t, leases, lease)
	granted(t, "the lock after the release", next)
}

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
