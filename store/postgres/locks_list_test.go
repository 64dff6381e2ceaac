package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

var lockSorts = []store.LockSort{"", store.LocksByName, store.LocksByExpiry, store.LocksByGrant, store.LocksByToken,
	store.LocksByWaiters}

// lockPages reads a list to its end.
func lockPages(t *testing.T, b *testbed, query store.LockQuery) (all []store.Lock) {
	t.Helper()
	return readPages(t, query.Limit, func() ([]store.Lock, error) { return b.Locks(t.Context(), query) },
		func(last store.Lock) { query.After, query.AfterValue = string(last.Lock), last.SortKey })
}

// TestLockLists checks that lists of locks, with every filter, order and page size, are equal to those of the model.
func TestLockLists(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := newLockSetup(t, seed)
	names := append(slices.Clone(listNames), "a'b", "a%b", `a\b`, "<img src=x>", "@owner", "worker-1", "queue 5 a")
	for i := range 30 {
		names = append(names, fmt.Sprintf("many/%02d", i))
	}
	for _, name := range names {
		s.one(t, store.Name(name))
	}
	s.Exec(t, "insert into fence.fences (resource) values ('waited for'), ('nothing')")
	s.line(t, "waited for")
	s.endSessions(t)
	models := s.model(t)
	checkLockLists(t, s, models)
	if _, err := newSweeper(t, s.Store, postgres.SweeperConfig{}).Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkLockLists(t, s, s.model(t))
}

func checkLockLists(t *testing.T, s *lockSetup, models []lockModel) {
	t.Helper()
	for _, sort := range lockSorts {
		for round := range 12 {
			query := store.LockQuery{Sort: sort, Descending: round%2 == 1, Limit: 1 + s.random.IntN(30),
				QueueMax: store.QueueMax}
			if round > 1 {
				query.Prefix = pick(s.random, listPrefixes)
				query.State = pick(s.random, []store.LockState{"", store.LockHeld, store.LockFree, store.LockExpired, store.LockActive})
				query.OwnerID = pick(s.random, append([]string{"", "", "nobody"}, lockOwners...))
				query.Contains = pick(s.random, []string{"", "", "a", "/", "%", `\`, "'", "worker", "WORKER", "img src", "@owner",
					"\u202e", "no such text"})
			}
			want := selected(models, query)
			got := lockPages(t, s.testbed, query)
			for i := range max(len(want), len(got)) {
				if i >= len(want) || i >= len(got) || shownLock(got[i]) != want[i].String() ||
					got[i].QueueLength != int64(len(want[i].queue)) {
					t.Fatalf("%+v: element %d of %d is %+v, want %v", query, i, len(want), elementOf(got, i), elementOf(want, i))
				}
			}
			if count, err := s.CountLocks(t.Context(), query); err != nil || count != int64(len(want)) {
				t.Fatalf("%+v: counted are %d (%v), want %d", query, count, err, len(want))
			}
		}
	}
	for _, m := range models {
		lock, err := s.Lock(t.Context(), store.Name(m.name))
		if err != nil || shownLock(lock) != m.String() || lock.QueueLength != int64(len(m.queue)) {
			t.Errorf("by itself the lock is %+v (%v), want %v", lock, err, m)
		}
	}
}

func elementOf[T any](list []T, index int) any {
	if index < len(list) {
		return list[index]
	}
	return "nothing"
}

// TestListedQueuesAreBounded checks that a list shows no more waiters of a lock than it was asked for, and their
// number.
func TestListedQueuesAreBounded(t *testing.T) {
	t.Parallel()
	s := newLockSetup(t, 1)
	s.granted(t, store.AcquireRequest{Lock: "job", OwnerID: "holder"})
	s.waiters(t, "job", 1100)
	for _, queueMax := range []int{0, 1, 7, store.QueueMax} {
		locks, err := s.Locks(t.Context(), store.LockQuery{Limit: 1, QueueMax: queueMax})
		if err != nil || len(locks) != 1 || len(locks[0].Queue) != queueMax || locks[0].QueueLength != 1100 {
			t.Fatalf("of %d are shown %d of %d (%v)", queueMax, len(locks[0].Queue), locks[0].QueueLength, err)
		}
		for i, waiter := range locks[0].Queue {
			if waiter.OwnerID != fmt.Sprint("waiter ", i+1) {
				t.Fatalf("waiter %d of the queue is %s", i, waiter.OwnerID)
			}
		}
	}
	if lock, err := s.Lock(t.Context(), "job"); err != nil || len(lock.Queue) != store.QueueMax ||
		lock.QueueLength != 1100 {
		t.Errorf("by itself it shows %d of %d (%v)", len(lock.Queue), lock.QueueLength, err)
	}
}

// TestPagesOfLocksThatChange checks that locks that stay as they are stand in exactly one page, in order, while others
// are granted, released, waited for and expire.
func TestPagesOfLocksThatChange(t *testing.T) {
	t.Parallel()
	s := newLockSetup(t, rand.Uint64())
	still := func(lock store.Lock) bool { return strings.HasPrefix(string(lock.Lock), "still/") }
	for i := range 24 {
		s.one(t, store.Name(fmt.Sprintf("still/%02d", i)))
	}
	changing, stop := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	for client := range 3 {
		changes.Go(func() { s.churn(changing, t, client) })
	}
	for _, sort := range lockSorts {
		for _, descending := range []bool{false, true} {
			query := store.LockQuery{Sort: sort, Descending: descending, Limit: 5}
			want := selected(s.model(t), query)
			want = slices.DeleteFunc(want, func(m lockModel) bool { return !strings.HasPrefix(m.name, "still/") })
			got := slices.DeleteFunc(lockPages(t, s.testbed, query), func(lock store.Lock) bool { return !still(lock) })
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || string(got[i].Lock) != want[i].name {
					t.Errorf("%+v: element %d is %v, want %v", query, i, elementOf(got, i), elementOf(want, i))
					break
				}
			}
		}
	}
	stop()
	changes.Wait()
}

// churn has locks come and go, until ctx ends.
func (s *lockSetup) churn(ctx context.Context, t *testing.T, client int) {
	random := rand.New(rand.NewPCG(uint64(client), 1))
	changed := 0
	for ; ctx.Err() == nil; changed++ {
		time.Sleep(time.Millisecond) // leaves the machine to the lists
		lock := store.Name(fmt.Sprintf("%s/%d/%d", []string{"a", "still-", "zz"}[random.IntN(3)], client, random.IntN(10)))
		lease, err := s.Acquire(ctx, store.AcquireRequest{Lock: lock, OwnerID: "churn", TTL: time.Minute})
		if err == nil && random.IntN(2) == 0 {
			err = s.Release(ctx, lease.Ref())
		} else if err == nil {
			_, err = s.SQL.Exec(ctx,
				"update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where lock = $1 and ended_at is "+
					"null", lock)
		}
		if err == nil {
			_, err = s.SQL.Exec(ctx, `
				with gone as (delete from fence.waiters where lock = $1)
				insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
				select $1, $2, 'churn', 'shared', 'node', 1000, clock_timestamp(), clock_timestamp() + interval '1 hour' from generate_series(1, $3)`,
				lock, s.gateways[0], random.IntN(4))
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrLeaseHeld) {
			t.Error(err)
			return
		}
	}
	if changed < 10 {
		t.Errorf("only %d locks changed", changed)
	}
}

// TestPageOfHeldLocks checks that a page of held or active locks has those that it should, and does not read all leases
// that run.
func TestPageOfHeldLocks(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	const names = "(select format('%s/%s', n % 30, n) as name, n from generate_series(1, 3000) n)"
	b.Exec(t, "insert into fence.fences (resource, granted_token, open) select name, n, true from "+names+" t")
	b.Exec(t, `insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at)
		select name, n, gen_random_uuid(), 'w', 86400000, now(), now() + interval '1 day' from `+names+" t")
	b.Exec(t, "vacuum analyze fence.fences, fence.leases")
	var all []string
	for n := 1; n <= 3000; n++ {
		all = append(all, fmt.Sprintf("%d/%d", n%30, n))
	}
	slices.Sort(all)
	for _, query := range []store.LockQuery{
		{}, {State: store.LockActive}, {State: store.LockActive, Descending: true, After: "2/1502"}, {Prefix: "2"}, {After: "2/1502"}, {Within: []string{"15", "4"}}, {Within: []string{"3"}, After: "3/1503"},
		{Descending: true}, {Descending: true, Prefix: "3/"}, {Descending: true, After: "2/1502", Within: []string{"1"}},
	} {
		query.State, query.Limit = cmp.Or(query.State, store.LockHeld), 50
		want := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
			first, _, _ := strings.Cut(name, "/")
			return !strings.HasPrefix(name, query.Prefix) || query.Within != nil && !slices.Contains(query.Within, first) ||
				query.After != "" && (name == query.After || (name < query.After) != query.Descending)
		})
		if query.Descending {
			slices.Reverse(want)
		}
		listed, err := b.Locks(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, lock := range listed {
			got = append(got, string(lock.Lock))
		}
		if want = want[:50]; !slices.Equal(got, want) {
			t.Errorf("%+v: got %v, want %v", query, got, want)
		}
		// A lock needs its fence, and its lease twice. Leases outside of Within are passed over.
		if read := rowsOfPage(t, b, query); query.Within == nil && read > 300 {
			t.Errorf("%+v read %d rows", query, read)
		}
	}
}

func rowsOfPage(t *testing.T, b *testbed, query store.LockQuery) int64 {
	t.Helper()
	sql, args, err := postgres.ListSQL(query)
	if err != nil {
		t.Fatal(err)
	}
	tx := b.begin(t)
	read, err := rowsReadIn(t.Context(), tx, sql, args)
	if err := errors.Join(err, tx.Rollback(t.Context())); err != nil {
		t.Fatal(err)
	}
	return read
}

// TestLockAndFenceAreOfOneMoment checks that a lock and its fence are read at one moment: while the lock is granted and
// released, a held lock has an open fence with its token.
func TestLockAndFenceAreOfOneMoment(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	if _, _, err := b.LockAndFence(t.Context(), "job"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("of nothing is read %v, want ErrNotFound", err)
	}
	b.given(t, "job", acquire, release)
	changing, stop := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	changes.Go(func() {
		for changing.Err() == nil {
			lease, err := b.Acquire(changing, store.AcquireRequest{Lock: "job", OwnerID: "w"})
			if err == nil {
				err = b.Release(changing, lease.Ref())
			}
			if err != nil && changing.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	states := map[store.LockState]int{}
	for states[store.LockHeld] < 20 || states[store.LockFree] < 20 {
		lock, fence, err := b.LockAndFence(t.Context(), "job")
		if err != nil || fence == nil {
			t.Fatalf("read is the fence %v, %v", fence, err)
		}
		if fence.GrantedToken != lock.Token || fence.Open == (lock.State == store.LockFree) {
			t.Fatalf("the lock is %s with token %d, the fence %+v", lock.State, lock.Token, *fence)
		}
		states[lock.State]++
	}
	stop()
	changes.Wait()
}

// TestLockWithoutFence checks that a lock with waiters that was never granted has no fence.
func TestLockWithoutFence(t *testing.T) {
	t.Parallel()
	s := newLockSetup(t, 1)
	s.Exec(t, "insert into fence.fences (resource) values ('new')")
	s.waiters(t, "new", 1)
	if lock, fence, err := s.LockAndFence(t.Context(), "new"); err != nil || fence != nil || lock.QueueLength != 1 {
		t.Errorf("read are %+v, %+v, %v", lock, fence, err)
	}
}

// TestUnreadableRowIsADefect checks that a row of another shape than expected, read in a transaction, does not count as
// an unavailable database: to send the call again would not help.
func TestUnreadableRowIsADefect(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.given(t, "job", acquire)
	b.Exec(t, "alter table fence.fences alter granted_token drop not null; update fence.fences set granted_token = null")
	if _, _, err := b.LockAndFence(t.Context(), "job"); err == nil || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("read is %v, want an error other than ErrUnavailable", err)
	}
}

// TestRecordLists checks that the records of a resource are listed by key, or the last written first, in pages of any
// size, with any prefix.
func TestRecordLists(t *testing.T) {
	t.Parallel()
	s := newFixture(t, acquire, onBelow("/other", acquire, wrote(with(newest))))
	names := slices.Clone(listNames)
	for i := range 40 {
		names = append(names, fmt.Sprintf("%s/%02d", []string{"a", "b<i>"}[i%2], i))
	}
	var rows []store.Record
	begin := time.Date(2026, 1, 1, 0, 0, 0, 123_456_000, time.UTC)
	for i, name := range names {
		write := with(newest, sequence(int64(i)), key(store.Name(name)), value(name))
		if err := s.do(t.Context(), wrote(write)); err != nil {
			t.Fatal(err)
		}
		at := begin.Add(time.Duration(rand.IntN(20)) * time.Microsecond) // many at once
		s.Exec(t, "update fence.records set updated_at = $2 where resource = 'lock' and key = $1", name, at)
		rows = append(rows, store.Record{
			Resource: s.lock, Key: store.Name(name), Version: int64(i) + 1, Token: s.newest().Token, Sequence: new(int64(i)),
			Size: int64(len(name)), ContentType: "text/plain", UpdatedAt: at,
		})
	}
	for _, byTime := range []bool{false, true} {
		slices.SortFunc(rows, func(a, b store.Record) int {
			if byTime {
				return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), cmp.Compare(a.Key, b.Key))
			}
			return cmp.Compare(a.Key, b.Key)
		})
		for _, prefix := range append(listPrefixes, "b<", "c") {
			for _, limit := range []int{1, 3, 7, 20, len(rows), 1000} {
				query := store.RecordQuery{Resource: s.lock, Prefix: prefix, ByTime: byTime, Limit: limit}
				want := slices.DeleteFunc(slices.Clone(rows), func(r store.Record) bool {
					return !strings.HasPrefix(string(r.Key),
						prefix)
				})
				got := recordPages(t, s.testbed, query)
				if text(got) != text(want) {
					t.Errorf("%+v:\n%s\nwant\n%s", query, text(got), text(want))
				}
			}
		}
	}
}

// recordPages reads a list to its end.
func recordPages(t *testing.T, b *testbed, query store.RecordQuery) (all []store.Record) {
	t.Helper()
	return readPages(t, query.Limit, func() ([]store.Record, error) { return b.Records(t.Context(), query) },
		func(last store.Record) {
			query.After, query.AfterMicros = string(last.Key), last.UpdatedAt.UnixMicro()
		})
}

// text shows records in lines, with what is pointed to.
func text(records []store.Record) string {
	lines := make([]string, len(records))
	for i, r := range records {
		number := *r.Sequence
		r.Sequence, r.UpdatedAt = nil, r.UpdatedAt.UTC()
		lines[i] = fmt.Sprintf("%+v %d", r, number)
	}
	return strings.Join(lines, "\n")
}
