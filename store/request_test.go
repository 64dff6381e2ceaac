package store_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// requestTrials: an acquire sent again with its request_id is the same acquire.
var requestTrials = []trial{
	{"request_id: the same lease again", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, request("r")); err != nil {
			return err
		}
		return s.unchanged(ctx, func() error {
			if err := s.do(ctx, request("r")); err != nil {
				return err
			}
			if !reflect.DeepEqual(s.leases[0], s.leases[1]) {
				return fmt.Errorf("%+v the first time, %+v the second", s.leases[0], s.leases[1])
			}
			return nil
		})
	}},
	{"request_id: a renewed lease", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, request("r")); err != nil {
			return err
		}
		renewed, err := s.Renew(ctx, s.newest().Ref(), 2*time.Hour)
		if err != nil {
			return err
		}
		if err := s.do(ctx, request("r")); err != nil {
			return err
		}
		if !s.newest().ExpiresAt.Equal(renewed.ExpiresAt) {
			return fmt.Errorf("the lease is %+v after it was renewed to %+v", s.newest(), renewed)
		}
		return nil
	}},
	{"request_id: another one is held off", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, request("r")); err != nil {
			return err
		}
		if err := s.do(ctx, request("q")); !errors.Is(err, store.ErrLeaseHeld) {
			return fmt.Errorf("the answer is %w, want ErrLeaseHeld", err)
		}
		return nil
	}},
	{"request_id: of another owner", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, request("r")); err != nil {
			return err
		}
		return s.unchanged(ctx, func() error {
			_, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.lock, OwnerID: "another", TTL: time.Hour, RequestID: "r"})
			if !errors.Is(err, store.ErrInvalid) {
				return fmt.Errorf("the answer is %w, want ErrInvalid", err)
			}
			return nil
		})
	}},
	{"request_id: on another lock", func(ctx context.Context, s *stage) error {
		other := s.beside("-other")
		if err := errors.Join(s.do(ctx, request("r")), other.do(ctx, request("r"))); err != nil {
			return err
		}
		if s.newest().ID == other.newest().ID {
			return errors.New("two locks have one lease")
		}
		return nil
	}},
	{"request_id: with other parameters", requestOtherwise()},
	{"request_id: with other parameters, of a lease that was renewed", requestOtherwise(func(ctx context.Context, s *stage) error {
		_, err := s.Renew(ctx, s.newest().Ref(), time.Minute)
		return err
	})},
	{"request_id: with other parameters, of a lease that was released", requestOtherwise(release)},
	{"request_id: a place with other parameters", placeOtherwise},
	{"request_id: of a lease that was released", requestAfter("released", release)},
	{"request_id: of a lease that was broken", requestAfter("broken", breakLock)},
	{"request_id: of a lease that has expired", requestAfter("expired", expire)},
	{"request_id: of a lease that has expired and was swept", requestAfter("expired", expire, sweep)},
	{"request_id: of a lease that was replaced", requestAfter("expired", replace)},
	{"request_id: of a lease that was released before another", requestAfter("released", release, acquire)},
}

// request acquires with a request_id.
func request(id string) step {
	return func(ctx context.Context, s *stage) error {
		lease, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.lock, OwnerID: "requester", TTL: time.Hour, RequestID: id})
		s.leases = append(s.leases, lease)
		return err
	}
}

// requestChanges are what may not change when a request is sent again.
var requestChanges = map[string]func(s *stage, r *store.AcquireRequest){
	"mode":     func(_ *stage, r *store.AcquireRequest) { r.Mode = store.Shared },
	"scope":    func(_ *stage, r *store.AcquireRequest) { r.Scope = store.Subtree },
	"ttl":      func(_ *stage, r *store.AcquireRequest) { r.TTL = time.Minute },
	"session":  func(s *stage, r *store.AcquireRequest) { r.SessionID, r.TTL = s.session.ID, 0 },
	"metadata": func(_ *stage, r *store.AcquireRequest) { r.Metadata = []byte(`{"other":1}`) },
}

// requestOtherwise sends a request again with other parameters, after it was granted and what else happened: it is refused, and changes
// nothing.
func requestOtherwise(happened ...step) func(ctx context.Context, s *stage) error {
	return func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, append([]step{openSession, request("r")}, happened...)...); err != nil {
			return err
		}
		for name, change := range requestChanges {
			again := store.AcquireRequest{Lock: s.lock, OwnerID: "requester", TTL: time.Hour, RequestID: "r"}
			change(s, &again)
			err := s.unchanged(ctx, func() error {
				if lease, err := s.Acquire(ctx, again); !errors.Is(err, store.ErrInvalid) {
					return fmt.Errorf("with another %s: %+v, %w, want ErrInvalid", name, lease, err)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// placeOtherwise sends a request that waits again, from another gateway and with other parameters: it does not get the place. How long it
// waits may differ.
func placeOtherwise(ctx context.Context, s *stage) error {
	if err := s.do(ctx, openSession, acquire); err != nil {
		return err
	}
	request := store.AcquireRequest{Lock: s.lock, OwnerID: "requester", TTL: time.Hour, RequestID: "r", Wait: time.Minute}
	first, err := s.enqueue(ctx, request)
	if err != nil || first == "" {
		return fmt.Errorf("the request waits with %q (%w)", first, err)
	}
	for name, change := range requestChanges {
		again := request
		change(s, &again)
		err := s.unchanged(ctx, func() error {
			if outcome, err := s.enqueue(ctx, again); err != nil || outcome != "request_id_changed" {
				return fmt.Errorf("with another %s: %s (%w), want request_id_changed", name, outcome, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	request.Wait = time.Hour
	if again, err := s.enqueue(ctx, request); err != nil || again != "queued" {
		return fmt.Errorf("with a longer wait: %s (%w), want queued", again, err)
	}
	return nil
}

// enqueue asks as a gateway of its own does, and returns the outcome.
func (s *stage) enqueue(ctx context.Context, r store.AcquireRequest) (outcome string, err error) {
	var session *uuid.UUID
	if r.SessionID != uuid.Nil {
		session = &r.SessionID
	}
	var metadata *string
	if r.Metadata != nil {
		metadata = ptr(string(r.Metadata))
	}
	err = s.sql.QueryRow(ctx, "select outcome from fence.acquire(fence.lease_request($1, $2, $3, $4, $5, $6, $7, $8), $9, $10)",
		r.Lock, r.OwnerID, cmp.Or(r.Mode, store.Exclusive), cmp.Or(r.Scope, store.Node), r.TTL.Milliseconds(), session, r.RequestID, metadata,
		r.Wait.Milliseconds(), uuid.New()).Scan(&outcome)
	return outcome, err
}

// requestAfter sends the request of a lease that has ended: no other lease is granted in its place.
func requestAfter(reason string, ended ...step) func(ctx context.Context, s *stage) error {
	return func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, request("r")); err != nil {
			return err
		}
		if err := s.do(ctx, ended...); err != nil {
			return err
		}
		return s.unchanged(ctx, func() error { return expectLost(request("r")(ctx, s), s.lock, reason) })
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	runTrials(t, requestTrials)
}
