package guards

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/lockclient/sqlguard"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code := postgres.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "guard: goroutines are left:", err)
		return 1
	}
	return code
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bank is a protected table of accounts, beside a gateway.
type bank struct {
	*enginetest.DB
	client *lockclient.Client
}

// test is one scenario by one driver, with an account and a lease on it of its own.
type test struct {
	bank
	driver
	account string // also the name of the lock
	lease   *lockclient.Lease
}

func TestTransactions(t *testing.T) {
	b := newBank(t)
	t.Run("with", func(t *testing.T) { b.testScenarios(t) })
	// Each driver's "own transaction" and "unguarded row". Those that were reported are not counted again, nor is the
	// question for the outcome of a lost COMMIT.
	b.Exec(t, "select fence.sweep('reported', '0', null, null, null)")
	for code, most := range map[string]int{"token_reused": len(drivers), "token_required": 2 * len(drivers)} {
		var counted int
		check(t, b.SQL.QueryRow(await.Context(t), "select sum(rejections)::bigint from fence.rejected_by_sql where code = $1", code).
			Scan(&counted))
		if counted > most {
			t.Errorf("%d rejections %s were counted, expected at most %d", counted, code, most)
		}
	}
}

func (b bank) testScenarios(t *testing.T) {
	for what, scenario := range map[string]func(*testing.T, *test){
		"zombie":                testZombie,
		"writes of one lease":   testWritesOfOneLease,
		"serialization failure": testSerializationFailure,
		"unguarded row":         testUnguardedRow,
		"subtree":               testSubtree,
		"lost answer":           testLostAnswer,
		"lost COMMIT":           testLostCommit,
		"own transaction":       testOwnTransaction,
	} {
		for name, open := range drivers {
			t.Run(what+"/"+name, func(t *testing.T) {
				t.Parallel()
				account := "accounts/" + strings.ReplaceAll(what, " ", "-") + "-" + name
				lease, err := b.client.Acquire(await.Context(t), account, lockclient.Subtree())
				check(t, err)
				t.Cleanup(lease.ReleaseOnce)
				x := &test{b, open(t, b.URL), account, lease}
				check(t, x.deposit(t, 100))
				scenario(t, x)
			})
		}
	}
}

func newBank(t *testing.T) bank {
	t.Helper()
	db := enginetest.New(t)
	process := gateway.Serve(t, db.URL)
	client, err := lockclient.New(process.URL)
	check(t, err)
	t.Cleanup(client.Close)
	db.Exec(t, "create table accounts (id text primary key, balance int)")
	db.Exec(t, "select fence.protect('accounts', 'accounts/{id}')")
	return bank{db, client}
}

// commit is the message that ends a transaction, and no part of another one.
const commit = "commit\x00"

const deposit = `insert into accounts values ($1, $2)
	on conflict (id) do update set balance = accounts.balance + excluded.balance`

func id(account string) string { return strings.TrimPrefix(account, "accounts/") }

func (x *test) deposit(t *testing.T, amount int) error {
	t.Helper()
	return x.inTx(await.Context(t), x.lease, nil, func(run exec) error { return run(deposit, id(x.account), amount) })
}

// throughCutter opens the driver on connections that may be cut.
func (x *test) throughCutter(t *testing.T) *enginetest.Cutter {
	t.Helper()
	cutter := enginetest.NewCutter(t, x.DB)
	name := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
	x.driver = drivers[name](t, cutter.URL(t))
	return cutter
}

func (x *test) wantBalance(t *testing.T, want int) {
	t.Helper()
	var got int
	check(t, x.SQL.QueryRow(await.Context(t), "select balance from accounts where id = $1", id(x.account)).Scan(&got))
	if got != want {
		t.Errorf("the balance is %d, expected %d", got, want)
	}
}

// reported returns the rejections of the account that were recorded, as the sweep will find them.
func (x *test) reported(t *testing.T) (codes string) {
	t.Helper()
	check(t, x.SQL.QueryRow(await.Context(t), `
		select coalesce(string_agg(code || ' ' || fencing_token || '.' || coalesce(sequence, 0), ', '), '') from (
			select code, fencing_token, sequence from fence.reported where resource = $1
			union all
			select code, fencing_token, sequence from fence.rejections where resource = $1) r`, x.account).Scan(&codes))
	return codes
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s returned %v, expected %v", what, err, want)
	}
}

// replace breaks the lease, and acquires another one.
func (x *test) replace(ctx context.Context) (*lockclient.Lease, error) {
	if _, err := admin.New(x.client).Break(ctx, x.account, api.BreakRequest{Reason: "test"}); err != nil {
		return nil, err
	}
	return x.client.Acquire(ctx, x.account)
}

// A grant waits for an open transaction. Afterwards the old holder's transactions are rejected, and recorded.
func testZombie(t *testing.T, x *test) {
	ctx := await.Context(t)
	canceled, cancel := context.WithCancel(x.lease.Context())
	defer cancel()
	replaced := make(chan *lockclient.Lease, 1)
	check(t, x.inTx(ctx, x.lease, nil, func(run exec) error {
		if err := run("select set_config('application_name', $1, true)", x.account); err != nil {
			return err
		}
		go func() {
			newer, err := x.replace(ctx)
			if err != nil {
				t.Error(err)
			}
			replaced <- newer
		}()
		await.True(t, "a grant that waits for the transaction", func() bool {
			var waiting bool
			err := x.SQL.QueryRow(ctx, `
				select exists (
					select from pg_stat_activity holder, pg_stat_activity waiter
					where holder.application_name = $1 and holder.pid = any (pg_blocking_pids(waiter.pid)))`,
				x.account).Scan(&waiting)
			return err == nil && waiting
		})
		return run(deposit, id(x.account), 1)
	}))
	newer := await.Receive(t, "the grant", replaced)

	err := x.inTx(ctx, x.lease, nil, func(exec) error {
		t.Error("fn was called for a zombie")
		return nil
	})
	wantErr(t, "the zombie", err, lockclient.ErrTokenStale)
	problem := lockclient.ProblemOf(err)
	if problem.Reason != "superseded" || *problem.Token != x.lease.FencingToken() || *problem.Sequence != 3 ||
		*problem.GrantedToken != newer.FencingToken() || *problem.LastSequence != 2 || problem.Resource != x.account {
		t.Errorf("the problem is %+v", problem)
	}
	wantErr(t, "the zombie", err, lockclient.ErrNotHolder)
	if loss := lockclient.LossOf(err); loss.Holder == nil || loss.Holder.FencingToken != newer.FencingToken() {
		t.Errorf("the loss is %+v, expected the newer holder", loss)
	}
	wantErr(t, "Err of the lease", x.lease.Err(), lockclient.ErrLeaseLost)
	await.Receive(t, "the end of the lease's context", canceled.Done())
	err = x.inTx(canceled, x.lease, nil, func(exec) error { return nil })
	wantErr(t, "a transaction under the lease's context", err, lockclient.ErrNotHolder)
	wantErr(t, "a transaction under the lease's context", err, context.Canceled)
	want := fmt.Sprintf("token_stale %d.0", x.lease.FencingToken())
	await.True(t, "the rejection is recorded", func() bool { return x.reported(t) == want })
	x.wantBalance(t, 101)
}

// Writes by HTTP and transactions of one lease share its numbers, and none makes another one stale.
func testWritesOfOneLease(t *testing.T, x *test) {
	var writing sync.WaitGroup
	for range 5 {
		writing.Go(func() {
			if err := x.deposit(t, 1); err != nil {
				t.Error(err)
			}
		})
		writing.Go(func() {
			if _, err := x.lease.Put(await.Context(t), "k", []byte("v")); err != nil {
				t.Error(err)
			}
		})
		writing.Go(func() {
			err := x.guarded(await.Context(t), x.lease, func(run exec) error { return run(deposit, id(x.account), 1) })
			if err != nil {
				t.Error(err)
			}
		})
	}
	writing.Wait()
	x.wantBalance(t, 110)
	fence, err := admin.New(x.client).Fence(await.Context(t), x.account)
	if err != nil || fence.LastSequence != 16 {
		t.Errorf("the fence is %+v, %v, expected the sequence 16", fence, err)
	}
}

// A transaction that fails with a serialization failure or a deadlock runs again. One that fails always ends.
func testSerializationFailure(t *testing.T, x *test) {
	tries := 0
	fail := func(state string, until int) func(exec) error {
		tries = 0
		return func(run exec) error {
			if tries++; tries < until {
				return fmt.Errorf("wrapped: %w", run("do $$ begin raise exception using errcode = '"+state+"'; end $$"))
			}
			return run(deposit, id(x.account), 1)
		}
	}
	for _, state := range []string{"40001", "40P01"} {
		check(t, x.inTx(await.Context(t), x.lease, nil, fail(state, 3)))
	}
	x.wantBalance(t, 102)
	err := x.inTx(await.Context(t), x.lease, nil, fail("40001", 1000))
	if err == nil || tries != 10 || lockclient.ProblemOf(err) != nil {
		t.Errorf("%d tries ended with %v, expected the driver's error after 10", tries, err)
	}
	err = x.inTx(await.Context(t), x.lease, nil, fail("23505", 1000))
	if err == nil || tries != 1 {
		t.Errorf("%d tries ended with %v, expected the driver's error after 1", tries, err)
	}
}

// A row whose resource is not guarded is rejected by its table's trigger, which the error says.
func testUnguardedRow(t *testing.T, x *test) {
	err := x.inTx(await.Context(t), x.lease, nil, func(run exec) error { return run(deposit, "other", 1) })
	wantErr(t, "an unguarded write", err, lockclient.ErrTokenRequired)
	if err == nil || !strings.Contains(err.Error(), "public.accounts, accounts/other: token_required: ") {
		t.Errorf("the error is %v, expected the table and the resource in it", err)
	}
	if state := (interface{ SQLState() string })(nil); !errors.As(err, &state) || state.SQLState() != "LF101" {
		t.Errorf("%v has no SQLSTATE LF101", err)
	}
	check(t, x.lease.Err())
}

// A lease on a subtree guards several resources below it under one number.
func testSubtree(t *testing.T, x *test) {
	below := []string{x.account + "/b", x.account + "/a"}
	err := x.inTx(await.Context(t), x.lease, below, func(run exec) error {
		return run("select fence.guard($1, $3, $4), fence.guard($2, $3, $4)", below[0], below[1],
			x.lease.FencingToken(), 2)
	})
	check(t, err)
	for _, resource := range below {
		fence, err := admin.New(x.client).Fence(await.Context(t), resource)
		if err != nil || fence.LastToken != x.lease.FencingToken() || fence.LastSequence != 2 {
			t.Errorf("the fence of %s is %+v, %v", resource, fence, err)
		}
	}
	err = x.inTx(await.Context(t), x.lease, []string{"elsewhere"}, func(exec) error { return nil })
	wantErr(t, "a guard of a name that is not below", err, lockclient.ErrTokenUnknown)
}

// The answer to COMMIT is lost. The transaction is found to be committed, unless a newer holder has written since: then
// the fence can't tell.
func testLostAnswer(t *testing.T, x *test) {
	cutter := x.throughCutter(t)
	ctx, cancel := context.WithCancel(await.Context(t))
	defer cancel()
	var newest atomic.Pointer[lockclient.Lease]
	newest.Store(x.lease)
	replace := func() error {
		newer, err := x.replace(await.Context(t))
		newest.Store(newer)
		return err
	}
	for _, lost := range []struct {
		meanwhile func() error
		want      []error
	}{
		{func() error { return nil }, nil},
		{replace, nil},
		{func() error {
			cancel()
			return nil
		}, nil},
		{func() error {
			if err := replace(); err != nil {
				return err
			}
			_, err := newest.Load().Put(await.Context(t), "k", nil)
			return err
		}, []error{lockclient.ErrTokenStale, lockclient.ErrOutcomeUnknown}},
	} {
		if x.lease = newest.Load(); ctx.Err() != nil {
			ctx = await.Context(t)
		}
		cutter.CutAfter(enginetest.BeforeClient, commit, func() {
			if err := lost.meanwhile(); err != nil {
				t.Error(err)
			}
		})
		err := x.inTx(ctx, x.lease, nil, func(run exec) error { return run(deposit, id(x.account), 1) })
		if lost.want == nil && err != nil {
			t.Errorf("a transaction that was committed returned %v", err)
		}
		for _, want := range lost.want {
			wantErr(t, "the hidden transaction", err, want)
		}
	}
	x.wantBalance(t, 104)
	if got := x.reported(t); got != "" {
		t.Errorf("reported are %q, expected none", got)
	}
}

// COMMIT is lost: the transaction is found not to be committed, also after a newer grant. The grant has waited for it.
func testLostCommit(t *testing.T, x *test) {
	cutter := x.throughCutter(t)
	cutter.Cut(enginetest.BeforeServer, commit)
	err := x.deposit(t, 1)
	wantErr(t, "a lost COMMIT", err, lockclient.ErrUnavailable)
	if errors.Is(err, lockclient.ErrOutcomeUnknown) || lockclient.ProblemOf(err).Outcome != api.OutcomeNotApplied {
		t.Errorf("a lost COMMIT returned %v, expected the outcome not_applied", err)
	}
	cutter.Cut(enginetest.Never, "")
	check(t, x.deposit(t, 1))
	x.wantBalance(t, 101)

	cutter.CutAfter(enginetest.BeforeServer, commit, func() {
		cutter.CutAfter(enginetest.BeforeServer, "fence.outcome", func() {
			cutter.Cut(enginetest.Never, "")
			if _, err := x.replace(await.Context(t)); err != nil {
				t.Error(err)
			}
		})
	})
	err = x.deposit(t, 1)
	wantErr(t, "a lost COMMIT before a newer grant", err, lockclient.ErrTokenStale)
	if errors.Is(err, lockclient.ErrOutcomeUnknown) || lockclient.ProblemOf(err).Outcome != api.OutcomeNotApplied {
		t.Errorf("a lost COMMIT before a newer grant returned %v, expected the outcome not_applied", err)
	}
	x.wantBalance(t, 101)
}

// The errors of the caller's own transaction are the SDK's.
func testOwnTransaction(t *testing.T, x *test) {
	ctx := await.Context(t)
	check(t, x.guarded(ctx, x.lease, func(run exec) error { return run(deposit, id(x.account), 1) }))
	err := x.guarded(ctx, x.lease, func(run exec) error { return run(deposit, "other", 1) })
	wantErr(t, "an unguarded write", err, lockclient.ErrTokenRequired)
	_, err = x.SQL.Exec(ctx, "select fence.guard($1, $2, 2)", x.account, x.lease.FencingToken())
	wantErr(t, "the number of a committed transaction", sqlguard.Error(err), lockclient.ErrTokenReused)
	_, err = x.replace(ctx)
	check(t, err)
	err = x.guarded(ctx, x.lease, func(run exec) error { return run(deposit, id(x.account), 1) })
	wantErr(t, "the zombie", err, lockclient.ErrTokenStale)
	wantErr(t, "Err of the lease", x.lease.Err(), lockclient.ErrLeaseLost)
	x.wantBalance(t, 101)
}
