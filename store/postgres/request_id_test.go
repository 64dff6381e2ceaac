package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// requestCases: an acquire sent again with its request_id is the same acquire.
var requestCases = []storeCase{
	{"request_id: the same lease again", all(request("r"),
		changingNothing(request("r"), func(_ context.Context, s *fixture) error {
			first, again := s.leases[0], s.leases[1]
			first.Replayed = true
			if !reflect.DeepEqual(first, again) {
				return fmt.Errorf("the first answer is %+v, the second %+v", first, again)
			}
			return nil
		}))},
	{"request_id: a renewed lease", all(request("r"), func(ctx context.Context, s *fixture) error {
		renewed, err := s.Renew(ctx, s.newest().Ref(), 2*time.Hour)
		if err = errors.Join(err, s.do(ctx, request("r"))); err == nil && !s.newest().ExpiresAt.Equal(renewed.ExpiresAt) {
			err = fmt.Errorf("the lease is %+v after it was renewed to %+v", s.newest(), renewed)
		}
		return err
	})},
	{"request_id: of another owner", all(request("r"), changingNothing(func(ctx context.Context, s *fixture) error {
		_, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.lock, OwnerID: "another", TTL: time.Hour, RequestID: "r"})
		if !errors.Is(err, store.ErrInvalid) {
			return fmt.Errorf("the acquire returned %w, want ErrInvalid", err)
		}
		return nil
	}))},
	{"request_id: with other parameters", requestOtherwise()},
	{"request_id: with other parameters, of a lease that was renewed",
		requestOtherwise(func(ctx context.Context, s *fixture) error {
			_, err := s.Renew(ctx, s.newest().Ref(), time.Minute)
			return err
		})},
	{"request_id: with other parameters, of a lease that was released", requestOtherwise(release)},
	{"request_id: a ticket with other parameters", all(openSession, acquire, queuedOtherwise)},
	{"request_id: of a lease that was released", requestAfter("released", release)},
	{"request_id: of a lease that was broken", requestAfter("broken", breakLock)},
	{"request_id: of a lease that has expired", requestAfter("expired", expire)},
	{"request_id: of a lease that has expired and was swept", requestAfter("expired", expire, sweep)},
	{"request_id: of a lease that was replaced", requestAfter("expired", replace)},
	{"request_id: of a lease that was released before another", requestAfter("released", release, acquire)},
}

// request acquires with a request_id.
func request(id string) step {
	return func(ctx context.Context, s *fixture) error {
		lease, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.lock, OwnerID: "requester", TTL: time.Hour, RequestID: id})
		s.leases = append(s.leases, lease)
		return err
	}
}

// requestChanges are what may not change when a request is sent again.
var requestChanges = map[string]func(s *fixture, r *store.AcquireRequest){
	"mode":     func(_ *fixture, r *store.AcquireRequest) { r.Mode = store.Shared },
	"scope":    func(_ *fixture, r *store.AcquireRequest) { r.Scope = store.Subtree },
	"ttl":      func(_ *fixture, r *store.AcquireRequest) { r.TTL = time.Minute },
	"session":  func(s *fixture, r *store.AcquireRequest) { r.SessionID, r.TTL = s.session.ID, 0 },
	"metadata": func(_ *fixture, r *store.AcquireRequest) { r.Metadata = []byte(`{"other":1}`) },
}

// requestOtherwise sends a request again with other parameters, after it was granted and the steps: it is refused.
func requestOtherwise(steps ...step) step {
	return all(openSession, request("r"), all(steps...), changingNothing(func(ctx context.Context, s *fixture) error {
		for name, change := range requestChanges {
			again := store.AcquireRequest{Lock: s.lock, OwnerID: "requester", TTL: time.Hour, RequestID: "r"}
			change(s, &again)
			if lease, err := s.Acquire(ctx, again); !errors.Is(err, store.ErrInvalid) {
				return fmt.Errorf("with another %s the acquire returned %+v, %w, want ErrInvalid", name, lease, err)
			}
		}
		return nil
	}))
}

// queuedOtherwise sends a request that waits again, from another gateway and with other parameters: it does not get the
// ticket. Only the time to wait may differ.
func queuedOtherwise(ctx context.Context, s *fixture) error {
	request := store.AcquireRequest{Lock: s.lock, OwnerID: "requester", Mode: store.Exclusive, Scope: store.Node,
		TTL: time.Hour, RequestID: "r", Wait: time.Minute}
	enqueue := func(r store.AcquireRequest, again bool) error {
		acquired, err := s.Enqueue(ctx, r, uuid.New())
		if err == nil && (acquired.Ticket == 0 || acquired.Requeued != again) {
			err = fmt.Errorf("%+v is not in the queue, or had a ticket before or not: %+v", r, acquired)
		}
		return err
	}
	if err := enqueue(request, false); err != nil {
		return err
	}
	for name, change := range requestChanges {
		again := request
		change(s, &again)
		err := s.Unchanged(ctx, func() error {
			if err := enqueue(again, true); !errors.Is(err, store.ErrInvalid) {
				return fmt.Errorf("with another %s the acquire returned %w, want ErrInvalid", name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	request.Wait = time.Hour
	return enqueue(request, true)
}

// requestAfter sends the request of a lease that has ended: no other lease is granted instead.
func requestAfter(reason string, ended ...step) step {
	return all(request("r"), all(ended...), changingNothing(func(ctx context.Context, s *fixture) error {
		return expectLost(request("r")(ctx, s), s.lock, reason)
	}))
}
