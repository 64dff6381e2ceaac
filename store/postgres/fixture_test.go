package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// storeCase is a sentence of the contract and the code that checks it. The tests run cases against the functions as
// they are; TestEveryStepIsTested runs them against functions that it has broken, where they must fail.
type storeCase struct {
	name string
	run  step
}

// caseGroups are the cases, by what they are about; those of a group share a database. Writes under a policy that comes
// while they wait are apart (waitingCases), and so is the rule (ruleCases).
func caseGroups() map[string][]storeCase {
	return map[string][]storeCase{
		"leases": leaseCases, "lease status": leaseStatusCases(), "request_id": requestCases, "sharing": sharingCases,
		"sessions": sessionCases, "max_hold": holdCases, "queues": queueCases, "races": raceCases,
		"leases together": togetherCases, "leases passed": passCases, "sets of writes": setCases, "chains": chainCases,
		"rolled back": rolledBackCases, "spoiled": spoiledCases,
		"transactions": transactionCases, "unused names": unusedCases,
	}
}

// TestCases checks the cases of all groups.
func TestCases(t *testing.T) {
	t.Parallel()
	for name, cases := range caseGroups() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runCases(t, cases)
		})
	}
}

// runCases checks cases one after the other in one database, each on a lock of its own.
func runCases(t *testing.T, cases []storeCase) {
	t.Helper()
	b := newTestbed(t)
	for i, c := range cases {
		if i%20 == 19 { // rows of former cases make Dump slow
			b.forget(t)
		}
		t.Run(c.name, func(t *testing.T) {
			if err := c.check(t.Context(), b); err != nil {
				t.Error(err)
			}
		})
	}
}

// check runs the case on a lock named after it.
func (c storeCase) check(ctx context.Context, b *testbed) error {
	lock, err := store.ParseName("lock", strings.NewReplacer(" ", "-", "/", "-").Replace(c.name))
	if err != nil {
		return err
	}
	return errors.Join(c.run(ctx, &fixture{testbed: b, lock: lock}), b.LeasesEndInTime(ctx))
}

// fixture is what a case works on: one lock, which is one resource, too; or the lock of a subtree and a resource in it.
type fixture struct {
	*testbed
	lock    store.Name
	subtree bool
	leases  []store.Lease  // granted so far, the newest last
	session *store.Session // the one that was opened

	sessionID uuid.UUID // of the session in which leases are granted
	alone     bool      // earlier writes were sent one by one

	fixtures map[store.Name]*fixture // of the locks below, by the rest of their names
}

// newFixture is a lock in a database of its own, after the steps.
func newFixture(t testing.TB, steps ...step) *fixture {
	t.Helper()
	return newTestbed(t).given(t, "lock", steps...)
}

// given runs steps on a lock and returns its fixture.
func (b *testbed) given(t testing.TB, lock store.Name, steps ...step) *fixture {
	t.Helper()
	s := &fixture{testbed: b, lock: lock}
	if err := s.do(t.Context(), steps...); err != nil {
		t.Fatal(err)
	}
	return s
}

// resource is the name that writes go to.
func (s *fixture) resource() store.Name {
	if s.subtree {
		return s.lock + "/in/it"
	}
	return s.lock
}

// below is the fixture of a lock below this one.
func (s *fixture) below(suffix store.Name) *fixture {
	if s.fixtures == nil {
		s.fixtures = map[store.Name]*fixture{}
	}
	if s.fixtures[suffix] == nil {
		s.fixtures[suffix] = &fixture{testbed: s.testbed, lock: s.lock + suffix}
	}
	return s.fixtures[suffix]
}

func (s *fixture) first() store.Lease { return s.leases[0] }

func (s *fixture) newest() store.Lease { return s.leases[len(s.leases)-1] }

// step does something to a fixture, or checks it.
type step func(ctx context.Context, s *fixture) error

// given is a list of steps, in their order.
type given []step

// do runs the steps until one fails.
func (s *fixture) do(ctx context.Context, steps ...step) error {
	for i, step := range steps {
		if err := step(ctx, s); err != nil {
			return fmt.Errorf("step %d of %d: %w", i+1, len(steps), err)
		}
	}
	return nil
}

// all makes one step of several.
func all(steps ...step) step {
	return func(ctx context.Context, s *fixture) error { return s.do(ctx, steps...) }
}

// changingNothing expects that the steps leave every row as it was.
func changingNothing(steps ...step) step {
	return func(ctx context.Context, s *fixture) error {
		return s.Unchanged(ctx, func() error { return s.do(ctx, steps...) })
	}
}

// onBelow runs steps on a lock below, in the same case. Leases that it is granted are kept.
func onBelow(suffix store.Name, steps ...step) step {
	return func(ctx context.Context, s *fixture) error { return s.below(suffix).do(ctx, steps...) }
}

// execute runs a statement, in which $1 is the lock and $2 its newest token.
func execute(statement string) step {
	return func(ctx context.Context, s *fixture) error {
		var args []any
		if strings.Contains(statement, "$1") {
			args = append(args, s.lock)
		}
		if strings.Contains(statement, "$2") {
			args = append(args, s.newest().Token)
		}
		_, err := s.SQL.Exec(ctx, statement, args...)
		return err
	}
}

// acquire grants the lock to a new owner for an hour, to write.
func acquire(ctx context.Context, s *fixture) error { return s.grant(ctx, s.request(store.Exclusive)) }

// share grants the lock to a new owner for an hour, to read.
func share(ctx context.Context, s *fixture) error { return s.grant(ctx, s.request(store.Shared)) }

// acquireSubtree grants the lock and all below it; the resource stays what it was.
func acquireSubtree(ctx context.Context, s *fixture) error {
	return s.grantScope(ctx, store.Exclusive, store.Subtree)
}

// shareSubtree grants the lock and all below it, to read.
func shareSubtree(ctx context.Context, s *fixture) error {
	return s.grantScope(ctx, store.Shared, store.Subtree)
}

// acquireNode grants the lock without the names below it.
func acquireNode(ctx context.Context, s *fixture) error {
	return s.grantScope(ctx, store.Exclusive, store.Node)
}

func (s *fixture) request(mode store.Mode) store.AcquireRequest {
	request := store.AcquireRequest{
		Lock: s.lock, OwnerID: fmt.Sprintf("owner-%d", len(s.leases)+1), Mode: mode, Scope: store.Node, TTL: time.Hour,
	}
	if s.subtree {
		request.Scope = store.Subtree
	}
	return request
}

func (s *fixture) grantScope(ctx context.Context, mode store.Mode, scope store.Scope) error {
	request := s.request(mode)
	request.Scope = scope
	return s.grant(ctx, request)
}

func (s *fixture) grant(ctx context.Context, request store.AcquireRequest) error {
	if request.SessionID = s.sessionID; request.SessionID != uuid.Nil {
		request.TTL = 0
	}
	lease, err := s.Acquire(ctx, request)
	if err == nil {
		s.leases = append(s.leases, lease)
	}
	return err
}

// expire lets the time of the newest lease run out.
var expire = execute(`
	update fence.leases
	set granted_at = granted_at - interval '1 day', expires_at = clock_timestamp() - interval '1 millisecond', check_at =
		'-infinity'
	where lock = $1 and fencing_token = $2`)

// replace lets the newest lease expire and grants the lock to another owner.
func replace(ctx context.Context, s *fixture) error { return s.do(ctx, expire, acquire) }

func release(ctx context.Context, s *fixture) error { return s.Release(ctx, s.newest().Ref()) }

func breakLock(ctx context.Context, s *fixture) error {
	_, err := s.Break(ctx, s.lock, "the test says so")
	return err
}

func sweep(ctx context.Context, s *fixture) error {
	sweeper, err := postgres.NewSweeper(s.Store, postgres.SweeperConfig{})
	if err == nil {
		_, err = sweeper.Sweep(ctx)
	}
	return err
}

// under sets a policy on the lock itself; fields that are left out have their defaults.
func under(policy store.Policy) step {
	if policy.Rule == "" {
		policy.Rule = store.RuleStrict
	}
	if policy.Authority == "" {
		policy.Authority = store.AuthorityBuiltin
	}
	return func(ctx context.Context, s *fixture) error {
		own := policy // several fixtures share the step
		own.Prefix = string(s.lock)
		return s.PutPolicy(ctx, own)
	}
}

var (
	sameToken        = under(store.Policy{Rule: store.RuleSameToken})
	external         = under(store.Policy{Authority: store.AuthorityExternal})
	requireLeaseID   = under(store.Policy{RequireLeaseID: true})
	requireLiveLease = under(store.Policy{RequireLiveLease: true})
)

// expectOpen compares whether the fence of the lock is open.
func expectOpen(open bool) step {
	return func(ctx context.Context, s *fixture) error {
		fence, err := s.Fence(ctx, s.lock)
		if err == nil && fence.Open != open {
			err = fmt.Errorf("the fence is %+v, want open %v", fence, open)
		}
		return err
	}
}

// expectGreater expects that the newest token on the lock is greater than the first one.
func expectGreater(_ context.Context, s *fixture) error {
	if s.newest().Token <= s.leases[0].Token {
		return fmt.Errorf("token %d was granted after %d", s.newest().Token, s.leases[0].Token)
	}
	return nil
}

// whileLocked sends a call that must wait for a transaction that has begun with a statement, and returns its error
// after the transaction has gone on, if meanwhile is not nil, and is committed.
func (b *testbed) whileLocked(
	ctx context.Context, begin func(pgx.Tx) error, send func() error, meanwhile func(pgx.Tx) error,
) error {
	tx, err := b.SQL.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // it is committed below, or the case failed
	if err := begin(tx); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() { sent <- send() }()
	err = b.AwaitBlocked(ctx, sent)
	if meanwhile != nil {
		err = errors.Join(err, meanwhile(tx))
	}
	if err := errors.Join(err, tx.Commit(ctx)); err != nil {
		return err
	}
	return <-sent
}

// begin begins a transaction, which is rolled back at the end of the test unless it was committed.
func (b *testbed) begin(t *testing.T) pgx.Tx {
	t.Helper()
	tx, err := b.SQL.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

// executing is a statement of a transaction.
func executing(ctx context.Context, sql string, args ...any) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}
}

// whileFenceIsLocked sends a call that waits for the fence of a resource, and meanwhile does something else.
func (b *testbed) whileFenceIsLocked(ctx context.Context, resource store.Name, send, meanwhile func() error) error {
	return b.whileLocked(ctx, executing(ctx, lockFenceSQL, resource), send, func(pgx.Tx) error { return meanwhile() })
}

// whileGranted runs steps that must wait while the lock with the suffix is being granted to "the new one".
func whileGranted(suffix store.Name, scope store.Scope, steps ...step) step {
	return func(ctx context.Context, s *fixture) error {
		const acquire = "select fence.acquire_lease(fence.lease_request($1, 'the new one', 'exclusive', $2, 3600000, null, null, " +
			"null), 0, null, true)"
		return s.whileLocked(ctx, executing(ctx, acquire, s.lock+suffix, scope), func() error { return s.do(ctx, steps...) },
			nil)
	}
}

// whileReleased takes steps while the release of the lock's newest lease is not committed yet.
func whileReleased(steps ...step) step {
	return func(ctx context.Context, s *fixture) error {
		ref := s.newest().Ref()
		return s.whileLocked(ctx, executing(ctx, "select fence.release_lease($1, $2, $3, $4, null, true)", s.lock, ref.OwnerID, ref.ID, ref.Token),
			func() error { return s.do(ctx, steps...) }, nil)
	}
}

// collect reads rows beside the Store. The fields of T are the columns, in their order.
func collect[T any](t testing.TB, b *testbed, sql string, args ...any) []T {
	t.Helper()
	rows, err := b.SQL.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	read := pgx.RowToStructByPos[T]
	if kind := reflect.TypeFor[T]().Kind(); kind != reflect.Struct {
		read = pgx.RowTo[T]
	}
	all, err := pgx.CollectRows(rows, read)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// valueOf is the one value that a statement returns.
func valueOf[T any](t testing.TB, b *testbed, sql string, args ...any) T {
	t.Helper()
	values := collect[T](t, b, sql, args...)
	if len(values) != 1 {
		t.Fatalf("%s: %v, want one value", sql, values)
	}
	return values[0]
}

// expectSQL compares the one value that a statement returns.
func expectSQL[T comparable](t testing.TB, b *testbed, want T, sql string, args ...any) {
	t.Helper()
	if got := valueOf[T](t, b, sql, args...); got != want {
		t.Errorf("%s: %v, want %v", sql, got, want)
	}
}
