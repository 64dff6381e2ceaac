package store_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/store"
)

// TestLeasesWithoutTheNewestRights checks that a gateway whose role was not granted the functions for one lease, which a
// later version has added, acquires and releases all the same: one lock at a time, and many at once.
func TestLeasesWithoutTheNewestRights(t *testing.T) {
	t.Parallel()
	gateway := postgres.ForGateway(t)
	owner, err := pgx.Connect(t.Context(), postgres.AsOwner(gateway))
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(gateway)
	if err != nil {
		t.Fatal(err)
	}
	_, err = owner.Exec(t.Context(), "revoke execute on function fence.acquire_one, fence.release_one from "+
		pgx.Identifier{config.User}.Sanitize())
	if err := errors.Join(err, owner.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, store.Config{DatabaseURL: gateway})
	cycle := func(lock store.Name) error {
		request := store.AcquireRequest{Lock: lock, OwnerID: "first", RequestID: "r"}
		for range 2 { // the second time, the lock has a fence, and a lease that has ended
			lease, err := s.Acquire(t.Context(), request)
			if err != nil {
				return err
			}
			again, err := s.Acquire(t.Context(), request)
			if err != nil || again.ID != lease.ID {
				return errors.Join(errors.New("the same request was granted another lease"), err)
			}
			_, err = s.Acquire(t.Context(), store.AcquireRequest{Lock: lock, OwnerID: "second"})
			if held := new(store.HeldError); !errors.As(err, &held) || held.OwnerID != "first" {
				return errors.Join(errors.New("another owner's acquire was not refused with the holder"), err)
			}
			for range 2 { // the second one changes nothing
				if err := s.Release(t.Context(), lease.Ref()); err != nil {
					return err
				}
			}
			request.RequestID += "r"
		}
		return nil
	}
	if err := cycle("alone"); err != nil {
		t.Error(err)
	}
	var cycles sync.WaitGroup
	for i := range 32 {
		cycles.Go(func() {
			if err := cycle(numbered("many", i)); err != nil {
				t.Error(err)
			}
		})
	}
	cycles.Wait()
}
