package vault_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	log "github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/sdk/physical"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/internal/program"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"

	"github.com/fencegate/fencegate/integrations/vault"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// nodes makes backends of one test's resource.
type nodes struct{ url string }

func (n nodes) client(t *testing.T) *lockclient.Client {
	t.Helper()
	client, err := lockclient.New(n.url, lockclient.WithLogger(slog.New(slog.DiscardHandler)))
	check(t, err)
	t.Cleanup(client.Close)
	return client
}

func (n nodes) start(t *testing.T) *vault.Backend {
	t.Helper()
	return vault.New(n.client(t), vault.Options{Resource: t.Name()})
}

// breakLease ends the lease of the active node.
func (n nodes) breakLease(t *testing.T) {
	t.Helper()
	_, err := admin.New(n.client(t)).Break(t.Context(), t.Name(), api.BreakRequest{Reason: "a test"})
	check(t, err)
}

// endOfWrite returns how the lease before the newest has ended.
func (n nodes) endOfWrite(t *testing.T) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/v1/leases?lock="+t.Name(), nil)
	check(t, err)
	answer, err := http.DefaultClient.Do(request)
	check(t, err)
	defer func() { check(t, answer.Body.Close()) }()
	var page api.LeaseInfos
	check(t, json.NewDecoder(answer.Body).Decode(&page))
	if len(page.Leases) != 2 {
		t.Fatalf("there are %d leases, expected 2", len(page.Leases))
	}
	return page.Leases[1].EndReason
}

// TestBackend runs Vault's own exercises, and fencegate's, against one gateway.
func TestBackend(t *testing.T) {
	process := program.Serve(t, pgtest.Migrated(t))
	node := nodes{process.URL}
	for name, test := range map[string]func(*testing.T, nodes){
		"ExerciseBackend":            func(t *testing.T, node nodes) { physical.ExerciseBackend(t, node.start(t)) },
		"ExerciseBackend_ListPrefix": func(t *testing.T, node nodes) { physical.ExerciseBackend_ListPrefix(t, node.start(t)) },
		"ExerciseHABackend":          func(t *testing.T, node nodes) { physical.ExerciseHABackend(t, node.start(t), node.start(t)) },
		"ExerciseTransactionalBackend": func(t *testing.T, node nodes) {
			physical.ExerciseTransactionalBackend(t, node.start(t))
		},
		"exercises while active": testActiveExercises, "fencing": testFencing, "lock after write": testLockAfterWrite,
		"lost lock": testLostLock, "keys": testKeys, "limits": testLimits, "transaction": testTransaction,
		"many keys": testManyKeys,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, node) })
	}
	t.Run("configuration", func(t *testing.T) { testConfiguration(t, process.URL) })
	t.Run("README", func(t *testing.T) { testReadme(t, process.URL) })
}

// lock locks, as an active node of Vault does.
func lock(t *testing.T, node *vault.Backend) (held physical.Lock, lost <-chan struct{}) {
	t.Helper()
	held, err := node.LockWith("core/lock", "node")
	check(t, err)
	lost, err = held.Lock(nil)
	check(t, err)
	check(t, node.RegisterActiveNodeLock(held))
	return held, lost
}

func put(node *vault.Backend, key, value string) error {
	return node.Put(context.Background(), &physical.Entry{Key: key, Value: []byte(value)})
}

func expectValue(t *testing.T, node *vault.Backend, key, value string) {
	t.Helper()
	entry, err := node.Get(t.Context(), key)
	check(t, err)
	if entry == nil || string(entry.Value) != value {
		t.Errorf("the entry %q is %v, expected %q", key, entry, value)
	}
}

func testActiveExercises(t *testing.T, node nodes) {
	active := node.start(t)
	held, _ := lock(t, active)
	physical.ExerciseBackend(t, active)
	physical.ExerciseBackend_ListPrefix(t, active)
	physical.ExerciseTransactionalBackend(t, active)
	check(t, held.Unlock())
}

// testFencing has the active node replaced while it does not notice.
func testFencing(t *testing.T, node nodes) {
	a, b := node.start(t), node.start(t)
	lockA, _ := lock(t, a)
	check(t, put(a, "shared", "a"))
	if err := a.RegisterActiveNodeLock(nil); err == nil {
		t.Error("a foreign lock was registered")
	}
	node.breakLease(t)
	lockB, lostB := lock(t, b)
	check(t, put(b, "shared", "b"))

	if err := put(a, "shared", "late"); err == nil {
		t.Error("a write of the node that was replaced was accepted")
	}
	if err := a.Delete(t.Context(), "shared"); err == nil {
		t.Error("a delete of the node that was replaced was accepted")
	}
	entry := &physical.TxnEntry{Operation: physical.PutOperation, Entry: &physical.Entry{Key: "late"}}
	if err := a.Transaction(t.Context(), []*physical.TxnEntry{entry}); err == nil {
		t.Error("a transaction of the node that was replaced was accepted")
	}
	soon, cancel := context.WithTimeout(physical.UnfencedWriteCtx(t.Context()), time.Second)
	defer cancel()
	if err := a.Put(soon, &physical.Entry{Key: "shared", Value: []byte("unfenced")}); err == nil {
		t.Error("an unfenced write was accepted while another node is active")
	}
	expectValue(t, b, "shared", "b")

	check(t, lockA.Unlock())
	select {
	case <-lostB:
		t.Error("the unlock of a replaced node ended the lock of the active one")
	default:
	}
	check(t, lockB.Unlock())
	if err := put(b, "shared", "late"); err == nil {
		t.Error("a write after the unlock was accepted")
	}
	check(t, a.Put(physical.UnfencedWriteCtx(t.Context()), &physical.Entry{Key: "shared", Value: []byte("unfenced")}))
	expectValue(t, b, "shared", "unfenced")
}

// testLockAfterWrite initializes a storage without a lock, as Vault does, and locks at once: by the same node, and by
// another one.
func testLockAfterWrite(t *testing.T, node nodes) {
	a, b := node.start(t), node.start(t)
	check(t, put(a, "core/seal-config", "init"))
	lockA, _ := lock(t, a)
	if reason := node.endOfWrite(t); reason != "released" {
		t.Errorf("the lease of the write before the lock has %q, expected that the node's own lock need not wait", reason)
	}
	check(t, put(a, "core/seal-config", "active"))
	check(t, lockA.Unlock())
	check(t, put(b, "core/other", "init"))
	lockC, _ := lock(t, node.start(t)) // when the lease of b's write has ended
	check(t, lockC.Unlock())
	expectValue(t, a, "core/seal-config", "active")
}

// testLostLock ends the lease of the lock: the node learns it, and can't write; a second Lock lets it write again.
func testLostLock(t *testing.T, node nodes) {
	active := node.start(t)
	held, lost := lock(t, active)
	if _, err := held.Lock(nil); err == nil {
		t.Error("the lock was locked twice")
	}
	node.breakLease(t)
	await.Receive(t, "the loss of the lock", lost)
	if err := put(active, "key", "late"); err == nil {
		t.Error("a write after the loss was accepted")
	}
	if is, _, err := held.Value(); is || err != nil {
		t.Errorf("the lost lock is held: %v, %v", is, err)
	}
	check(t, held.Unlock())
	if _, err := held.Lock(nil); err != nil {
		t.Fatal(err)
	}
	check(t, put(active, "key", "new"))
	if other, err := active.LockWith("other/lock", ""); err != nil {
		t.Error(err)
	} else if is, _, err := other.Value(); is || err != nil {
		t.Errorf("a lock of another key is held: %v, %v", is, err)
	}
	check(t, held.Unlock())
}

// testKeys stores keys that records may not have.
func testKeys(t *testing.T, node nodes) {
	keys := []string{
		"a", "a/", "/a", "a//b", "", "/", ".", "..", "a/../b", "release", "x/records/y", "fence", "fences", "%", "%2F", "%-",
		"%72elease", "line\nbreak", "\x00", "\xff\xfe", "\u0085", "logical/ünicode/\U0001F511", "a b+c?d#e", `q"\`,
	}
	b := node.start(t)
	for _, key := range keys {
		check(t, put(b, key, "value of "+key))
	}
	for _, key := range keys {
		expectValue(t, b, key, "value of "+key)
		dir := key[:strings.LastIndex(key, "/")+1]
		found, err := b.List(t.Context(), dir)
		check(t, err)
		if !slices.Contains(found, key[len(dir):]) {
			t.Errorf("the list of %q is %q, without %q", dir, found, key)
		}
	}
	for _, key := range keys {
		check(t, b.Delete(t.Context(), key))
		if entry, err := b.Get(t.Context(), key); entry != nil || err != nil {
			t.Errorf("the deleted entry %q: %v, %v", key, entry, err)
		}
	}
}

func testLimits(t *testing.T, node nodes) {
	b := node.start(t)
	largest := &physical.Entry{Key: strings.Repeat("k", 512), Value: bytes.Repeat([]byte{0xff}, 1<<20)}
	check(t, b.Put(t.Context(), largest))
	expectValue(t, b, largest.Key, string(largest.Value))
	err := b.Put(t.Context(), &physical.Entry{Key: "k", Value: make([]byte, 1<<20+1)})
	if err == nil || !strings.Contains(err.Error(), physical.ErrValueTooLarge) {
		t.Errorf("a value of more than 1 MiB: %v, expected %q", err, physical.ErrValueTooLarge)
	}
	if err := put(b, largest.Key+"k", ""); err == nil || !strings.Contains(err.Error(), physical.ErrKeyTooLarge) {
		t.Errorf("a key of 513 bytes: %v, expected %q", err, physical.ErrKeyTooLarge)
	}

	entriesMax, bytesMax := b.TransactionLimits()
	var entries []*physical.TxnEntry
	for i := range entriesMax {
		key := fmt.Sprint(strings.Repeat("%", 100), i) // 300 bytes as the key of a record
		value := make([]byte, bytesMax/entriesMax-len(key))
		entries = append(entries, &physical.TxnEntry{
			Operation: physical.PutOperation, Entry: &physical.Entry{Key: key, Value: value},
		})
	}
	check(t, b.Transaction(t.Context(), entries))
}

// testTransaction checks that get operations read what was before, and that nothing is changed if one change can't be.
func testTransaction(t *testing.T, node nodes) {
	b := node.start(t)
	check(t, put(b, "old", "1"))
	get := &physical.TxnEntry{Operation: physical.GetOperation, Entry: &physical.Entry{Key: "old"}}
	change := func(key, value string) *physical.TxnEntry {
		return &physical.TxnEntry{Operation: physical.PutOperation, Entry: &physical.Entry{Key: key, Value: []byte(value)}}
	}
	missing := &physical.TxnEntry{Operation: physical.DeleteOperation, Entry: &physical.Entry{Key: "missing"}}
	check(t, b.Transaction(t.Context(), []*physical.TxnEntry{change("old", "2"), missing, get}))
	if string(get.Entry.Value) != "1" {
		t.Errorf("the transaction read %q, expected the value before it", get.Entry.Value)
	}
	check(t, b.Transaction(t.Context(), []*physical.TxnEntry{missing, get}))
	large := change("large", strings.Repeat("x", 1<<20))
	if err := b.Transaction(t.Context(), []*physical.TxnEntry{change("old", "3"), large}); err == nil {
		t.Error("a transaction over the limit was accepted")
	}
	unknown := &physical.TxnEntry{Operation: physical.ListOperation, Entry: &physical.Entry{Key: "old"}}
	if err := b.Transaction(t.Context(), []*physical.TxnEntry{change("old", "3"), unknown}); err == nil {
		t.Error("a transaction with a list was accepted")
	}
	expectValue(t, b, "old", "2")
}

// testManyKeys lists more keys than a page has.
func testManyKeys(t *testing.T, node nodes) {
	b := node.start(t)
	const count = 1100
	for start := 0; start < count; start += 100 {
		var entries []*physical.TxnEntry
		for i := range 100 {
			entries = append(entries, &physical.TxnEntry{
				Operation: physical.PutOperation, Entry: &physical.Entry{Key: fmt.Sprintf("dir/%04d/x", start+i)},
			})
		}
		check(t, b.Transaction(t.Context(), entries))
	}
	for prefix, want := range map[string]int{"": 1, "dir/": count, "dir/00": 100, "dir/0001/": 1, "dirt/": 0} {
		found, err := b.List(t.Context(), prefix)
		check(t, err)
		if len(found) != want {
			t.Errorf("%d keys directly below %q, expected %d", len(found), prefix, want)
		}
	}
}

func testConfiguration(t *testing.T, url string) {
	quiet := log.NewNullLogger()
	for says, config := range map[string]map[string]string{
		"address is required": {},
		"ha_enabled must be":  {"address": url, "ha_enabled": "maybe"},
		"lock_ttl must be":    {"address": url, "lock_ttl": "15"},
		"http":                {"address": "localhost"},
		"no such file":        {"address": url, "token_file": "/nowhere"},
	} {
		if _, err := vault.NewBackend(config, quiet); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, expected %q", config, err, says)
		}
	}
	backend, err := vault.NewBackend(map[string]string{
		"address": "http://127.0.0.1:1, " + url, "resource": "configured", "lock_ttl": "20s", "ha_enabled": "false",
	}, quiet)
	check(t, err)
	check(t, backend.Put(t.Context(), &physical.Entry{Key: "k", Value: []byte("v")}))
	if backend.(physical.HABackend).HAEnabled() {
		t.Error("ha_enabled is false, but the backend locks")
	}
}
