package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/cluster"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// moveSteps are those of a move, each of which another process finds done.
var moveSteps = []struct {
	name string
	do   func(ctx context.Context, from, to *postgres.Store, m *halfMove) error
}{
	{"nothing", func(context.Context, *postgres.Store, *postgres.Store, *halfMove) error { return nil }},
	{"the move has begun", func(ctx context.Context, from, _ *postgres.Store, m *halfMove) error {
		err := from.BeginMove(ctx, -1<<31, 1<<31-1, "1")
		if err != nil {
			return err
		}
		ranges, err := from.Ranges(ctx)
		m.moving = ranges[0]
		return err
	}},
	{"a tree was exported", func(ctx context.Context, from, _ *postgres.Store, m *halfMove) error {
		exported, err := from.ExportTrees(ctx, m.moving.ID, "", 1)
		m.transfer = exported.Transfer
		return err
	}},
	{"its rows have come", func(ctx context.Context, from, to *postgres.Store, m *halfMove) error {
		return m.receive(ctx, from, to)
	}},
	{"they were imported", func(ctx context.Context, _, to *postgres.Store, m *halfMove) error { return m.finish(ctx, to) }},
	{"the transfer has ended", func(ctx context.Context, from, _ *postgres.Store, m *halfMove) error {
		return from.EndTransfer(ctx, m.transfer)
	}},
	{"all was exported", func(ctx context.Context, from, to *postgres.Store, m *halfMove) error {
		for after := ""; ; {
			exported, err := from.ExportTrees(ctx, m.moving.ID, after, 1)
			if err != nil || exported.Transfer == uuid.Nil {
				return errors.Join(err, from.FinishExport(ctx, m.moving.ID))
			}
			after, m.transfer = exported.After, exported.Transfer
			if err := errors.Join(m.receive(ctx, from, to), m.finish(ctx, to), from.EndTransfer(ctx, m.transfer)); err != nil {
				return err
			}
		}
	}},
	{"the range was taken", func(ctx context.Context, _, to *postgres.Store, m *halfMove) error {
		return to.TakeRange(ctx, m.moving)
	}},
	{"the range was taken twice", func(ctx context.Context, _, to *postgres.Store, m *halfMove) error {
		return to.TakeRange(ctx, m.moving)
	}},
}

// halfMove is a move that a process has not ended.
type halfMove struct {
	moving   store.NameRange
	transfer uuid.UUID
	items    int
}

func (m *halfMove) receive(ctx context.Context, from, to *postgres.Store) error {
	m.items = 0
	return from.ReadTransfer(ctx, m.transfer, func(kinds, items []string) error {
		m.items += len(items)
		return to.ImportRows(ctx, m.transfer, true, kinds, items)
	})
}

func (m *halfMove) finish(ctx context.Context, to *postgres.Store) error {
	done, err := to.FinishImport(ctx, m.transfer, m.items)
	if !done {
		err = errors.Join(err, errors.New("the import is not complete"))
	}
	return err
}

// TestInterruptedMoves checks that a move which ended after any of its steps is completed by the next, and that a name
// has all its rows then, at one node.
func TestInterruptedMoves(t *testing.T) {
	t.Parallel()
	for steps := range moveSteps {
		t.Run(moveSteps[steps].name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			b := newBed(t, 2, 1, "text")
			gateway := b.gateways[0]
			check(t, gateway.Move(ctx)) // to node 0
			for i, name := range []store.Name{"a", "b/1", "b/2", "c"} {
				lease, err := gateway.Acquire(ctx, store.AcquireRequest{Lock: name, OwnerID: "holder", TTL: time.Hour})
				check(t, err)
				result, err := gateway.Commit(ctx, store.Write{
					WriteToken: store.WriteToken{Resource: name, Token: lease.Token},
					Operation:  store.Operation{Kind: store.Put, Key: "k", Value: []byte{byte(i)}, ContentType: "text/plain"}})
				check(t, errors.Join(err, result.Err))
			}
			before := b.rows(t, 0)
			from, to := b.nodes[0].Store, b.nodes[1].Store
			b.nodes[0].Exec(t, `delete from fence.ranges; insert into fence.ranges (first, last) values (-2147483648, 2147483647)`)
			m := &halfMove{}
			for _, step := range moveSteps[:steps+1] {
				if err := step.do(ctx, from, to, m); err != nil {
					t.Fatal(step.name, err)
				}
			}
			b.place(t, 1, func(int) int { return 1 })
			check(t, gateway.Start(ctx))
			check(t, gateway.Move(ctx))
			if after := b.rows(t, 1); !slices.Equal(after, before) {
				t.Errorf("the rows are %v, want %v", after, before)
			}
			if left := b.rows(t, 0); len(left) > 0 {
				t.Errorf("node 0 still has %v", left)
			}
			for node, want := range []int{0, 1} {
				ranges, err := b.nodes[node].Ranges(ctx)
				if err != nil || len(ranges) != want {
					t.Errorf("node %d has the ranges %v, want %d (%v)", node, ranges, want, err)
				}
			}
			lease, err := gateway.Acquire(ctx, store.AcquireRequest{Lock: "d", OwnerID: "holder", TTL: time.Hour})
			if err != nil || lease.Token <= 1000 {
				t.Errorf("a new name was granted %d: %v", lease.Token, err)
			}
		})
	}
}

// rows are all that a node has of names.
func (b *bed) rows(t *testing.T, node int) (rows []string) {
	t.Helper()
	check(t, b.nodes[node].SQL.QueryRow(t.Context(), `
		select coalesce(array_agg(row order by row), '{}') from (
			select 'fence ' || f::text from fence.fences f union all
			select 'lease ' || l::text from fence.leases l union all
			select 'record ' || r::text from fence.records r union all
			select 'waiter ' || w.lock || w.owner_id from fence.waiters w union all
			select 'transfer ' || t::text from fence.transfers t) all_rows (row)`).Scan(&rows))
	return rows
}

// TestWaitersMoveInTheirOrder checks that acquires which wait for a lock that moves to another node are granted it
// there, in their order.
func TestWaitersMoveInTheirOrder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := newBed(t, 2, 1, "text")
	gateway := b.gateways[0]
	check(t, gateway.Move(ctx))
	running, stop := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		gateway.Follow(running, func(err error) { t.Log(err) })
	}()
	defer func() { stop(); <-followed }()

	held, err := gateway.Acquire(ctx, store.AcquireRequest{Lock: "tree/a", OwnerID: "holder", TTL: time.Hour})
	check(t, err)
	granted := make(chan string, 3)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for i := range 3 {
		owner := fmt.Sprint("waiter-", i)
		waiting.Go(func() {
			lease, err := gateway.Acquire(ctx, store.AcquireRequest{Lock: "tree/a", OwnerID: owner, TTL: time.Hour, Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			granted <- owner
			if err := gateway.Release(ctx, lease.Ref()); err != nil {
				t.Error(err)
			}
		})
		await.True(t, owner+" waits", func() bool { return b.count(t, 0, "fence.waiters") == i+1 })
	}
	b.place(t, 1, func(int) int { return 1 })
	await.True(t, "the lock has moved", func() bool { return b.count(t, 1, "fence.waiters") == 3 })
	check(t, gateway.Release(ctx, held.Ref()))
	for i := range 3 {
		if got, want := <-granted, fmt.Sprint("waiter-", i); got != want {
			t.Errorf("grant %d was to %s, want %s", i, got, want)
		}
	}
}

func (b *bed) count(t *testing.T, node int, table string) (n int) {
	t.Helper()
	check(t, b.nodes[node].SQL.QueryRow(t.Context(), "select count(*) from "+table).Scan(&n))
	return n
}

// TestLockedNamesDelayTheirOwnMove checks that a transaction which keeps a fence locked delays the move of its tree,
// and that other names move.
func TestLockedNamesDelayTheirOwnMove(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := newBed(t, 2, 1, "text")
	gateway := b.gateways[0]
	check(t, gateway.Move(ctx))
	for _, name := range []store.Name{"busy", "idle"} {
		_, err := gateway.Acquire(ctx, store.AcquireRequest{Lock: name, OwnerID: "holder", TTL: time.Hour})
		check(t, err)
	}
	tx, err := b.nodes[0].SQL.Begin(ctx)
	check(t, err)
	_, err = tx.Exec(ctx, "select from fence.fences where resource = 'busy' for update")
	check(t, err)
	b.place(t, 1, func(int) int { return 1 })
	check(t, gateway.Start(ctx))
	if err := gateway.Move(ctx); err == nil {
		t.Error("a move of locked names succeeded")
	}
	if n := b.count(t, 1, "fence.fences"); n != 1 {
		t.Errorf("%d names have moved beside the one that is locked, want 1", n)
	}
	check(t, tx.Rollback(ctx))
	check(t, gateway.Move(ctx))
	if n := b.count(t, 1, "fence.fences"); n != 2 {
		t.Errorf("%d names have moved, want 2", n)
	}
}

// TestNodeIsAway checks that names of other nodes notice nothing of a node that does not answer.
func TestNodeIsAway(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := newBed(t, 2, 0, "text")
	b.place(t, 2, func(i int) int { return i })
	all := b.gateway(t)
	check(t, all.Move(ctx))
	coordinator := enginetest.Run(t, enginetest.OpenStore(t, postgres.Config{DatabaseURL: b.coordinator.URL}), engine.Config{})
	gateway := served{cluster.New(coordinator.Engine, func(node string) (*engine.Engine, func(), error) {
		url := "postgres://127.0.0.1:1/nobody?connect_timeout=1"
		if node == address(0) {
			url = b.nodes[0].URL
		}
		opened := enginetest.OpenStore(t, postgres.Config{DatabaseURL: url})
		on, err := engine.New(opened, engine.Config{})
		return on, func() {}, err
	})}
	check(t, gateway.Start(ctx))
	var here, away int
	for i := range 40 {
		name := store.Name(fmt.Sprint("lock-", i))
		_, err := gateway.Acquire(ctx, store.AcquireRequest{Lock: name, OwnerID: "holder", TTL: time.Hour})
		switch {
		case err == nil:
			here++
		case errors.Is(err, store.ErrUnavailable):
			away++
		default:
			t.Error(name, err)
		}
	}
	if here == 0 || away == 0 || b.count(t, 0, "fence.fences") != here {
		t.Errorf("%d names are there and %d away", here, away)
	}
	if err := gateway.Move(ctx); err == nil {
		t.Error("a move without one of the nodes succeeded")
	}
}

// TestWhatIsNotThere checks that a node says at once that it has no such lock, fence, record or granted request, also of a
// name that has others of these, or a fence under which nothing was granted.
func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1, 1, "text")
	gateway := b.gateways[0]
	b.move(t)
	_, err := gateway.Acquire(t.Context(), store.AcquireRequest{Lock: "used", OwnerID: "A", TTL: time.Hour})
	check(t, err)
	b.nodes[0].Exec(t, "insert into fence.fences (resource) values ('refused')")
	for _, name := range []store.Name{"never", "refused", "used"} {
		begun := time.Now()
		_, failed := gateway.RequestedLease(t.Context(), name, "unknown")
		errs := []error{failed}
		_, failed = gateway.Record(t.Context(), name, "unknown")
		errs = append(errs, failed)
		if name != "used" {
			_, failed = gateway.Lock(t.Context(), name)
			errs = append(errs, failed)
			_, failed = gateway.Fence(t.Context(), name)
			errs = append(errs, failed)
		}
		for i, err := range errs {
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s, read %d returned %v after %s, want ErrNotFound", name, i, err, time.Since(begun))
			}
		}
		if records, err := gateway.Records(t.Context(), store.RecordQuery{Resource: name, Limit: 10}); err != nil || len(records) > 0 {
			t.Errorf("the records of %s are %v (%v), want none", name, records, err)
		}
	}
}

// TestCallsOfSeveralNodes checks lists, policies and transactions that concern names of several nodes.
func TestCallsOfSeveralNodes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := newBed(t, 3, 1, "bigint")
	b.place(t, 8, func(i int) int { return i % 3 })
	gateway := b.gateways[0]
	check(t, gateway.Start(ctx))
	check(t, gateway.Move(ctx))
	check(t, gateway.PutPolicy(ctx, store.Policy{Prefix: "1", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin, MaxHold: time.Minute}))
	var tokens []store.WriteToken
	for i := range 12 {
		name := store.Name(fmt.Sprintf("%d/x", i))
		lease, err := gateway.Acquire(ctx, store.AcquireRequest{Lock: name, OwnerID: "holder", TTL: time.Hour})
		check(t, err)
		if limited := !lease.HoldUntil.IsZero(); limited != (i == 1) {
			t.Errorf("the policy applies to %s: %v", name, limited)
		}
		tokens = append(tokens, store.WriteToken{Resource: name, Token: lease.Token})
	}
	for _, on := range b.nodes {
		var names int
		check(t, on.SQL.QueryRow(ctx, "select count(*) from fence.fences").Scan(&names))
		if names == 0 || names == 12 {
			t.Errorf("a node has %d of 12 names", names)
		}
	}
	var listed []store.Name
	for query := (store.LockQuery{Limit: 5}); ; {
		page, err := gateway.Locks(ctx, query)
		check(t, err)
		for _, lock := range page {
			listed = append(listed, lock.Lock)
		}
		if len(page) < query.Limit {
			break
		}
		query.After = string(page[len(page)-1].Lock)
	}
	if len(listed) != 12 || !slices.IsSorted(listed) {
		t.Errorf("the list has %v", listed)
	}
	if n, err := gateway.CountLocks(ctx, store.LockQuery{Limit: 1}); err != nil || n != 12 {
		t.Errorf("%d locks were counted, want 12: %v", n, err)
	}
	leases, err := gateway.Leases(ctx, store.LeaseQuery{Limit: 100})
	if err != nil || len(leases) != 12 {
		t.Errorf("%d leases are listed, want 12: %v", len(leases), err)
	}
	put := func(tokens ...store.WriteToken) error {
		transaction := store.Transaction{Tokens: tokens}
		for _, token := range tokens {
			transaction.Operations = append(transaction.Operations, store.ResourceOperation{Resource: token.Resource,
				Operation: store.Operation{Key: "k", Kind: store.Put, Value: []byte("v"), ContentType: "text/plain"}})
		}
		_, err := gateway.Transact(ctx, transaction)
		return err
	}
	check(t, put(tokens[0]))
	if err := put(tokens[1:]...); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("a transaction of several nodes returned %v", err)
	}
	if _, err := gateway.CreateSession(ctx, store.SessionRequest{OwnerID: "holder", TTL: time.Minute}); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("a session was created: %v", err)
	}
}
