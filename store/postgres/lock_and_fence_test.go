package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/store"
)

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
