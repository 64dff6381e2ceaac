package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

const (
	dueUnusedSQL = "update fence.unused set check_at = '-infinity'"
	// leftSQL lists the rows that are kept of names, but for those of the lock above.
	leftSQL = `
		select coalesce(string_agg(kind || ' ' || name, ', ' order by kind, name), '') from (
			select 'fence', resource from fence.fences union all
			select 'subtree', name from fence.subtrees union all
			select 'watched', lock from fence.watched union all
			select 'unpublished', lock from fence.unpublished union all
			select 'unused', name from fence.unused) as t (kind, name)`
)

func (b *testbed) expectLeft(t *testing.T, want string) {
	t.Helper()
	expectSQL(t, b, want, leftSQL)
}

// TestNamesNeverUsedLeaveNothing checks that refused requests, abandoned waits, rejected writes and watches leave no
// rows of names that were never granted nor written.
func TestNamesNeverUsedLeaveNothing(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 1, noPoll)
	sweeper := newSweeper(t, s.At(0).Store, postgres.SweeperConfig{})
	s.Exec(t, "insert into fence.policies (prefix, authority) values ('external', 'external')")
	holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "a/b", OwnerID: "holder", Scope: store.Subtree})
	for _, refused := range []store.AcquireRequest{
		{Lock: "a/b/c", OwnerID: "other"},
		{Lock: "a", OwnerID: "other", Scope: store.Subtree},
		{Lock: "a/b/d", OwnerID: "other", Scope: store.Subtree, Wait: 20 * time.Millisecond},
	} {
		if _, err := s.At(0).Acquire(patient(t), refused); !errors.Is(err, store.ErrLeaseHeld) {
			t.Errorf("acquire %s: %v, want it to be refused", refused.Lock, err)
		}
	}
	for resource, token := range map[store.Name]int64{"external/r": 7, "a/b/written": holder.Token,
		"a/b/not": holder.Token} {
		write := putOf(resource, "v")
		write.Token, write.Expect = token, new(int64(1))
		if result, err := byOne(patient(t), s.At(0).Store, write); err != nil ||
			!errors.Is(result.Err, store.ErrVersionMismatch) {
			t.Errorf("write to %s: %+v (%v), want it to be rejected", resource, result, err)
		}
	}
	watch, err := s.At(0).Watch(patient(t), "watched", nil)
	if err != nil {
		t.Fatal(err)
	}
	watch.Close()
	s.Exec(t, "select fence.publish_event(jsonb_populate_record(null::fence.events, '{\"lock\":\"watched\"}'))")

	expectSwept(t, sweeper, store.Swept{})
	s.Exec(t, "update fence.watched set until = clock_timestamp() - interval '1 hour'")
	s.Exec(t, dueUnusedSQL)
	expectSwept(t, sweeper, store.Swept{})
	s.bed.expectLeft(t, "fence a/b, subtree a/b")
}

// TestUnusedNamesThatAreNeeded checks that the rows of a name stay while it has a waiter, and when it was granted or
// written since.
func TestUnusedNamesThatAreNeeded(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 1, noPoll)
	sweeper := newSweeper(t, s.At(0).Store, postgres.SweeperConfig{})
	holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "a/b", OwnerID: "holder"})
	waiting := s.Queue(t, 0, store.AcquireRequest{Lock: "a", OwnerID: "waiter", Scope: store.Subtree})
	s.Exec(t, dueUnusedSQL)
	expectSwept(t, sweeper, store.Swept{})
	s.bed.expectLeft(t, "fence a, fence a/b, subtree a, unused a")
	s.Release(t, 0, holder)
	granted(t, waiting)
	s.Exec(t, dueUnusedSQL)
	expectSwept(t, sweeper, store.Swept{})
	s.bed.expectLeft(t, "fence a, fence a/b, subtree a")
}

// TestUnusedNamesAreMadeAgain checks that an acquire, a subtree acquire and a write that wait for a row while the sweep
// deletes it are granted and admitted all the same.
func TestUnusedNamesAreMadeAgain(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, "insert into fence.policies (prefix, authority) values ('external', 'external')")
	write := putOf("external", "v")
	write.Token = 7
	for name, request := range map[string]func() error{
		"node": func() error {
			_, err := b.Acquire(t.Context(), store.AcquireRequest{Lock: "node", OwnerID: "owner"})
			return err
		},
		"subtree": func() error {
			_, err := b.Acquire(t.Context(), store.AcquireRequest{Lock: "subtree", OwnerID: "owner", Scope: store.Subtree})
			return err
		},
		"external": func() error {
			result, err := byOne(t.Context(), b.Store, write)
			return errors.Join(err, result.Err)
		},
	} {
		b.Exec(t, "insert into fence.fences (resource) values ($1)", name)
		b.Exec(t, "insert into fence.subtrees (name) select $1::text where $1::text = 'subtree'", name)
		b.Exec(t, "insert into fence.unused (name, check_at) values ($1, '-infinity')", name)
		tx := b.begin(t)
		var swept int
		if err := tx.QueryRow(t.Context(), "select done from fence.sweep_unused(10)").Scan(&swept); err != nil ||
			swept != 1 {
			t.Fatalf("%d fences of %s were deleted (%v), want 1", swept, name, err)
		}
		answered := make(chan error, 1)
		go func() { answered <- request() }()
		if err := b.AwaitBlocked(t.Context(), answered); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-answered; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b.Exec(t, "delete from fence.unused")
	}
	if fence, err := b.Fence(t.Context(), "subtree"); err != nil || !fence.Open || fence.GrantedToken == 0 {
		t.Errorf("the fence of the subtree is %+v (%v)", fence, err)
	}
}

// TestRefusedSubtreeOfAUsedName checks that a subtree that was not granted leaves no row, also if the name itself is in
// use: as long as there is one, every grant and write looks for subtrees above.
func TestRefusedSubtreeOfAUsedName(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 1, noPoll)
	sweeper := newSweeper(t, s.At(0).Store, postgres.SweeperConfig{})
	s.Acquire(t, 0, store.AcquireRequest{Lock: "a", OwnerID: "holder"})
	_, err := s.At(0).Acquire(patient(t), store.AcquireRequest{Lock: "a", OwnerID: "other", Scope: store.Subtree})
	if !errors.Is(err, store.ErrLeaseHeld) {
		t.Fatalf("acquire: %v, want it to be refused", err)
	}
	s.Exec(t, dueUnusedSQL)
	expectSwept(t, sweeper, store.Swept{})
	s.bed.expectLeft(t, "fence a")
}
