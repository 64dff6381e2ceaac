package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

const lockFencesSQL = "select from fence.fences where resource = any ($1) order by resource for update"

// namedCall is a call and its name in failure messages.
type namedCall struct {
	name string
	call func() error
}

// others are a lock, its lease, a session and a policy that have nothing to do with what is stuck.
type others struct {
	on           enginetest.Served
	held, ending store.Lease
	session      store.Session
}

func newOthers(t *testing.T, on enginetest.Served) *others {
	t.Helper()
	o := &others{on: on}
	var heldErr, endingErr, err error
	o.held, heldErr = on.Acquire(t.Context(), store.AcquireRequest{Lock: "held", OwnerID: "o", TTL: time.Hour})
	o.ending, endingErr = on.Acquire(t.Context(), store.AcquireRequest{Lock: "ending", OwnerID: "o", TTL: time.Hour})
	o.session, err = on.CreateSession(t.Context(), store.SessionRequest{OwnerID: "o", TTL: time.Hour})
	if err := errors.Join(heldErr, endingErr, err); err != nil {
		t.Fatal(err)
	}
	return o
}

// expectServed makes a call of each kind, and expects an answer to each.
func (o *others) expectServed(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	calls := []namedCall{
		{"renew", func() error { _, err := o.on.Renew(ctx, o.held.Ref(), 0); return err }},
		{"keep alive", func() error { _, err := o.on.KeepAlive(ctx, o.session.ID); return err }},
		{"acquire", func() error {
			_, err := o.on.Acquire(ctx, store.AcquireRequest{Lock: "free", OwnerID: "o"})
			return err
		}},
		{"wait", func() error {
			_, err := o.on.Acquire(ctx, store.AcquireRequest{Lock: "free too", OwnerID: "o", Wait: store.WaitMax})
			return err
		}},
		{"write", func() error { _, err := o.on.Commit(ctx, enginetest.Put(o.held, 1, "v")); return err }},
		{"transaction", func() error {
			_, err := o.on.Transact(ctx, transactionOf(enginetest.Put(o.ending, 1, "v")))
			return err
		}},
		{"release", func() error { return o.on.Release(ctx, o.ending.Ref()) }},
		{"lock", func() error { _, err := o.on.Lock(ctx, "held"); return err }},
	}
	for _, c := range calls {
		if err := c.call(); err != nil {
			t.Errorf("%s, of another lock: %v", c.name, err)
		}
	}
}

// What transactions of other sessions lock.
const (
	lockWatchesSQL = "insert into fence.watched select lock, now() from unnest($1::text[]) lock order by lock"
	lockLeasesSQL  = "select from fence.leases where lock = any ($1) order by lock for update"
	lockSubtreeSQL = "select fence.acquire_lease(fence.lease_request('hot', 'sql', 'exclusive', 'subtree', 3600000, null, " +
		"null, null), 0, null, true) where cardinality($1::text[]) > 0"
)

// stuckCalls are calls that need what a statement locks.
var stuckCalls = map[string]struct {
	lockSQL string
	call    func(ctx context.Context, o *others, hot store.Lease) error
}{
	"acquires": {lockFencesSQL, func(ctx context.Context, o *others, hot store.Lease) error {
		_, err := o.on.Acquire(ctx, store.AcquireRequest{Lock: hot.Lock, OwnerID: "another"})
		return err
	}},
	"waiting acquires": {lockFencesSQL, func(ctx context.Context, o *others, hot store.Lease) error {
		_, err := o.on.Acquire(ctx, store.AcquireRequest{Lock: hot.Lock, OwnerID: "another", Wait: time.Second})
		return err
	}},
	"acquires below a subtree": {lockSubtreeSQL, func(ctx context.Context, o *others, hot store.Lease) error {
		_, err := o.on.Acquire(ctx, store.AcquireRequest{Lock: "hot/" + hot.Lock, OwnerID: "another"})
		return err
	}},
	"releases": {lockFencesSQL, func(ctx context.Context, o *others, hot store.Lease) error {
		return o.on.Release(ctx, hot.Ref())
	}},
	"renewals": {lockLeasesSQL, func(ctx context.Context, o *others, hot store.Lease) error {
		_, err := o.on.Renew(ctx, hot.Ref(), 0)
		return err
	}},
	"breaks": {lockFencesSQL, func(ctx context.Context, o *others, hot store.Lease) error {
		_, err := o.on.Break(ctx, hot.Lock, "a reason")
		return err
	}},
	"watches": {lockWatchesSQL, func(ctx context.Context, o *others, hot store.Lease) error {
		watch, err := o.on.Watch(ctx, hot.Lock)
		if err == nil {
			watch.Close()
		}
		return err
	}},
	"transactions": {lockFencesSQL, func(ctx context.Context, o *others, hot store.Lease) error {
		_, err := o.on.Transact(ctx, transactionOf(enginetest.Put(hot, 1, "v")))
		return err
	}},
}

// TestOpenTransactionsDelayNobodyElse checks that while transactions of other sessions stay open, any number of calls
// that need what these have locked leave the connections to others (P13).
func TestOpenTransactionsDelayNobodyElse(t *testing.T) {
	t.Parallel()
	const (
		locks = 10
		calls = 2 * locks // more than there are connections
	)
	for name, c := range stuckCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t)
			// The timeouts are long: what ends the wait of the others is not that.
			on := openStore(t, postgres.Config{DatabaseURL: b.URL, StatementTimeout: time.Hour, LockTimeout: time.Hour})
			o := newOthers(t, runService(t, on, engine.Config{}).Served)
			var hot []store.Lease
			var names []string
			for i := range locks {
				lease, err := o.on.Acquire(t.Context(),
					store.AcquireRequest{Lock: numbered("hot", i), OwnerID: "o", TTL: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				hot, names = append(hot, lease), append(names, string(lease.Lock))
			}
			_, unlock := b.LockedBy(t, c.lockSQL, names)
			before := on.PoolStats().Waited
			var answered atomic.Int64
			done := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			for i := range calls {
				go func() {
					_ = c.call(ctx, o, hot[i%locks])
					if answered.Add(1) == calls {
						close(done)
					}
				}()
			}
			await(t, "the calls are more than may be sent", func() bool { return on.PoolStats().Waited > before })
			if err := b.AwaitBlocked(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			o.expectServed(t)
			cancel()
			unlock()
			<-done
		})
	}
}

// Reads that take long, more than there are connections for reads, do not delay the policies that acquires go by.
func TestSlowReadsDelayNoPolicies(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	on := openStore(t, postgres.Config{DatabaseURL: b.URL, StatementTimeout: time.Hour})
	b.Exec(t, "create or replace function fence.recount() returns boolean language sql as 'select pg_sleep(3600) is null'")
	ctx, cancel := context.WithCancel(t.Context())
	var reads sync.WaitGroup
	defer reads.Wait()
	defer cancel()
	before := on.PoolStats().Waited
	for range 10 {
		reads.Go(func() { _, _ = on.Recount(ctx) })
	}
	await(t, "the reads are more than may be sent", func() bool { return on.PoolStats().Waited > before })
	limited, end := context.WithTimeout(t.Context(), soon)
	defer end()
	if _, err := on.Policies(limited); err != nil {
		t.Error(err)
	}
}

// A call that meets a fence which another session or a prepared transaction keeps locked is not applied, and its error
// names the fence and the session, or the GID.
func TestLockedFenceIsNamed(t *testing.T) {
	t.Parallel()
	b, _ := newCrashbed(t, pgtest.Setting("max_prepared_transactions", "1"))
	on := openStore(t, postgres.Config{DatabaseURL: b.URL, StatementTimeout: time.Minute, LockTimeout: 10 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	hot, err := on.Acquire(ctx, store.AcquireRequest{Lock: "tree/hot", OwnerID: "o", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	acquire := func() error {
		_, err := on.Acquire(ctx, store.AcquireRequest{Lock: "tree/hot", OwnerID: "another"})
		return err
	}
	for name, c := range map[string]struct {
		lockSQL string
		arg     any
		named   string
		call    func() error
	}{
		"fence, acquire": {lockFencesSQL, []string{"tree/hot"}, "the fence of tree/hot is held by pid %d", acquire},
		"fence, release": {lockFencesSQL, []string{"tree/hot"},
			"the fence of tree/hot is held by pid %d", func() error { return on.Release(ctx, hot.Ref()) }},
		"tree lock": {"select pg_advisory_xact_lock(1718511205, hashtext($1))", "tree",
			"advisory lock (1718511205, %[2]d) is held by pid %[1]d", acquire},
	} {
		pid, unlock := b.LockedBy(t, c.lockSQL, c.arg)
		err := c.call()
		if err := expectUnavailable(err, store.OutcomeNotApplied); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := fmt.Sprintf(c.named, pid)
		if text, ok := c.arg.(string); ok {
			want = fmt.Sprintf(c.named, pid, valueOf[int32](t, b, "select hashtext($1)", text))
		}
		if !errors.Is(err, store.ErrLocked) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: the answer is %v, want ErrLocked that says %q", name, err, want)
		}
		unlock()
	}
	begun(t, b.URL, "begin; update fence.fences set open = open; select pg_advisory_xact_lock(1718511205, hashtext('tree'))",
		"prepare transaction 'it''s'")
	for _, want := range []string{
		"the fence of tree/hot is held by the prepared transaction 'it''s'",
		fmt.Sprintf("advisory lock (1718511205, %d) is held by the prepared transaction",
			valueOf[int32](t, b, "select hashtext('tree')")),
	} {
		if err := acquire(); !errors.Is(err, store.ErrLocked) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("a prepared transaction: the answer is %v, want ErrLocked that says %q", err, want)
		}
	}
	b.Exec(t, "rollback prepared 'it''s'")
	if err := on.Release(ctx, hot.Ref()); err != nil {
		t.Errorf("when nothing is locked: %v", err)
	}
}

// logLines receives the lines of a log.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// While a prepared transaction keeps a fence from a waiter, the log of its gateway names the GID.
func TestPreparedTransactionThatKeepsAWaiterIsLogged(t *testing.T) {
	t.Parallel()
	b, _ := newCrashbed(t, pgtest.Setting("max_prepared_transactions", "1"))
	logged := make(logLines, 100)
	on := openStore(t, postgres.Config{DatabaseURL: b.URL, StatementTimeout: time.Minute,
		Logger: slog.New(slog.NewTextHandler(logged, nil))})
	service := runService(t, on, engine.Config{})
	if _, err := service.Acquire(t.Context(), store.AcquireRequest{Lock: "kept", OwnerID: "holder", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	granted := make(chan error, 1)
	go func() {
		_, err := service.Acquire(t.Context(), store.AcquireRequest{Lock: "kept", OwnerID: "waiter", Wait: store.WaitMax})
		granted <- err
	}()
	b.AwaitQueued(t, 1)
	b.Exec(t, "update fence.leases set expires_at = clock_timestamp()")
	begun(t, b.URL, "begin; update fence.fences set open = open", "prepare transaction 'order 7'")
	b.Exec(t, "select pg_notify(fence.gateway_channel($1), '0 kept')", service.GatewayID())
	for want := `lock=kept holders="the fence of kept is held by the prepared transaction 'order 7'"`; ; {
		select {
		case line := <-logged:
			if !strings.Contains(line, "waiters wait for an open transaction") {
				continue
			}
			if !strings.Contains(line, want) {
				t.Errorf("the log is %s, want %s", line, want)
			}
		case <-time.After(soon):
			t.Fatal("nothing was logged")
		}
		break
	}
	b.Exec(t, "rollback prepared 'order 7'")
	if err := <-granted; err != nil {
		t.Error(err)
	}
}

// A waiter is granted its lock while the fences of many other queues are locked, and those are granted when they are
// not any more.
func TestStuckQueuesDelayNoOther(t *testing.T) {
	t.Parallel()
	const queues = 12
	b := newTestbed(t)
	on := openStore(t, postgres.Config{DatabaseURL: b.URL, StatementTimeout: time.Minute})
	service := runService(t, on, engine.Config{})
	type answer struct {
		lock store.Name
		err  error
	}
	answers := make(chan answer, queues+1)
	var locks []string
	leases := map[store.Name]store.Lease{}
	for i := range queues + 1 {
		lock := numbered("queue", i)
		locks = append(locks, string(lock))
		lease, err := service.Acquire(t.Context(), store.AcquireRequest{Lock: lock, OwnerID: "holder", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		leases[lock] = lease
		go func() {
			_, err := service.Acquire(t.Context(), store.AcquireRequest{Lock: lock, OwnerID: "waiter " + string(lock),
				Wait: store.WaitMax})
			answers <- answer{lock, err}
		}()
	}
	b.AwaitQueued(t, queues+1)
	_, unlock := b.LockedBy(t, lockFencesSQL, locks[:queues])
	for _, lock := range locks[:queues] { // as if its lease had ended
		b.Exec(t, "select fence.wake_gateway($1, $2, 0)", service.GatewayID(), lock)
	}
	if err := b.AwaitBlocked(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	free := store.Name(locks[queues])
	if err := b.Release(t.Context(), leases[free].Ref()); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-answers:
		if got.lock != free || got.err != nil {
			t.Errorf("%s was answered first, with %v", got.lock, got.err)
		}
	case <-time.After(soon):
		t.Error("it is not granted while the others' fences are locked")
	}
	unlock()
	for _, lock := range locks[:queues] {
		if err := b.Release(t.Context(), leases[store.Name(lock)].Ref()); err != nil {
			t.Error(err)
		}
	}
	for range queues {
		if got := <-answers; got.err != nil {
			t.Errorf("%s: %v", got.lock, got.err)
		}
	}
}

// TestWaitersWithoutATurn checks that a waiter for a lock waits until its time is over, also if it never gets a
// connection, because calls for a locked fence hold them all.
func TestWaitersWithoutATurn(t *testing.T) {
	const statementTimeout = time.Second
	st := openStore(t, postgres.Config{DatabaseURL: pgtest.Migrated(t), StatementTimeout: statementTimeout})
	service, err := engine.New(st, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	leave, err := st.TakeLockSlots(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan error, 1)
	go func() {
		request := store.AcquireRequest{Lock: "job", OwnerID: "patient", Wait: time.Minute}
		granted <- service.Acquire(t.Context(), &request, &store.Lease{})
	}()
	select {
	case err := <-granted:
		t.Fatalf("it ended with %v", err)
	case <-time.After(3 * statementTimeout):
	}
	leave()
	if err := <-granted; err != nil {
		t.Error(err)
	}
}
