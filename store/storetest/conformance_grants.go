package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

func (s *suite) leaseAsAsked() {
	request := store.AcquireRequest{Lock: s.lock, OwnerID: "wörker", TTL: 1234 * time.Millisecond}
	request.Metadata = json.RawMessage(`{"host": "a", "pid":1, "pid":2}`) // to come back as it is, byte for byte
	lease := s.granted(request)
	switch {
	case lease.Lock != s.lock, lease.OwnerID != request.OwnerID, lease.TTL != request.TTL,
		!bytes.Equal(lease.Metadata, request.Metadata):
		s.Errorf("the request %+v was granted %+v", request, lease)
	case lease.ID == uuid.Nil, lease.Token < 1, lease.Token > store.TokenMax:
		s.Errorf("the lease has no good lease_id or token: %+v", lease)
	case lease.ExpiresAt.Sub(lease.GrantedAt) != request.TTL && s.promises.ExpiryShown,
		lease.ExpiresAt.Sub(lease.GrantedAt) > request.TTL, lease.ExpiresAt.Sub(lease.GrantedAt) < request.TTL/2:
		s.Errorf("the lease runs for %s", lease.ExpiresAt.Sub(lease.GrantedAt))
	case lease.Mode != "exclusive", lease.Scope != "node":
		s.Errorf("mode and scope are %s and %s", lease.Mode, lease.Scope)
	}
}

func (s *suite) leaseByDefault() {
	lease := s.acquire("A", 0)
	if lease.TTL != store.TTLDefault || lease.Metadata != nil {
		s.Errorf("the TTL is %s, the metadata %q", lease.TTL, lease.Metadata)
	}
}

func (s *suite) oneHolder() {
	lease := s.acquire("A", long)
	held := s.refused(store.AcquireRequest{Lock: s.lock, OwnerID: "B"}, "A")
	if !s.sameEnd(held.ExpiresAt, lease.ExpiresAt) || held.Remaining > long {
		s.Errorf("held is %+v, of %+v", held, lease)
	}
	s.heldBy(lease)
}

// oneOfMany sends many acquires at once, several times.
func (s *suite) oneOfMany() {
	for round := range 5 {
		leases := s.atOnce(func(i int) store.AcquireRequest {
			return store.AcquireRequest{Lock: s.lock, OwnerID: fmt.Sprint("client ", i)}
		})
		if len(leases) != 1 {
			s.Fatalf("round %d: %d were granted the lock", round, len(leases))
		}
		s.released(leases[0])
	}
}

// clientsAtOnce is how many acquires are sent at the same time.
const clientsAtOnce = 8

// atOnce makes requests at the same time and returns the leases. Nothing but ErrLeaseHeld may come instead.
func (s *suite) atOnce(request func(i int) store.AcquireRequest) []store.Lease {
	s.Helper()
	var leases []store.Lease
	var mu sync.Mutex
	var acquiring sync.WaitGroup
	start := make(chan struct{})
	for i := range clientsAtOnce {
		acquiring.Go(func() {
			<-start
			lease, err := s.Acquire(s.Context(), request(i))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				leases = append(leases, lease)
			case !errors.Is(err, store.ErrLeaseHeld):
				s.Error(err)
			}
		})
	}
	close(start)
	acquiring.Wait()
	return leases
}

func (s *suite) notReentrant() {
	lease := s.acquire("A", long)
	s.fails(store.AcquireRequest{Lock: s.lock, OwnerID: "A"}, store.ErrLeaseHeld)
	s.heldBy(lease)
}

func (s *suite) independent() {
	lease := s.acquire("A", long)
	for _, name := range []store.Name{s.lock + "/below", s.lock + "-beside", "above"} {
		s.granted(store.AcquireRequest{Lock: name, OwnerID: "A", TTL: long})
	}
	s.heldBy(lease)
}

// newestToken expects that a client is never given a token below one that it knows, and that its own lease is returned
// when its request is sent again, with a wait and without.
func (s *suite) newestToken() { s.refusesOlder(s.request("A")) }

func (s *suite) refusesOlder(request store.AcquireRequest) {
	s.Helper()
	for _, request.Wait = range []time.Duration{0, patience} {
		request.NewestToken = store.TokenMax
		s.fails(request, store.ErrDatabaseWentBack)
		request.NewestToken = 0
		request.NewestToken = s.granted(request).Token
		if again := s.granted(request); again.Token != request.NewestToken {
			s.Errorf("granted is token %d, and then, to a client that knows it, %d", request.NewestToken, again.Token)
		}
		request.NewestToken++
		s.fails(request, store.ErrDatabaseWentBack)
		s.free()
	}
}

// newestTokenOfReaders is newestToken for readers, who may know the tokens of those beside them.
func (s *suite) newestTokenOfReaders() {
	request := s.request("A")
	request.Mode = store.Shared
	s.refusesOlder(request)
	lease := s.granted(request)
	request.NewestToken = s.share("B").Token
	if again := s.granted(request); again.Token != lease.Token {
		s.Errorf("granted is token %d, and then, to one that knows %d, %d", lease.Token, request.NewestToken, again.Token)
	}
	request.NewestToken++
	s.fails(request, store.ErrDatabaseWentBack)
}

// tokensRise ends leases in each way there is. What is granted next has a greater token, and begins no earlier.
func (s *suite) tokensRise() {
	last := s.acquire("A", long)
	for _, end := range []struct {
		name string
		how  func(store.Lease)
	}{
		{"release", s.released},
		{"break", func(store.Lease) { s.broken() }},
		{"expiry", func(lease store.Lease) {
			s.await("a renewal that is so short", func() bool { // which a busy machine may not answer in time
				_, err := s.Renew(s.Context(), lease.Ref(), store.TTLMin)
				return !errors.Is(err, store.ErrProviderUnavailable)
			})
			s.awaitExpiry()
		}},
	} {
		end.how(last)
		next := s.acquire("A", long)
		if next.Token <= last.Token || next.GrantedAt.Before(last.GrantedAt) || next.ID == last.ID {
			s.Errorf("after %s of %+v, granted is %+v", end.name, last, next)
		}
		last = next
	}
}

// tokensInOrder lets many acquire and release the lock. Its holder appends its token: mutual exclusion makes the
// order that of the grants.
func (s *suite) tokensInOrder() {
	var tokens []int64
	var mu sync.Mutex // for the race detector, which does not see locks that are kept elsewhere
	var working sync.WaitGroup
	for i := range 4 {
		working.Go(func() {
			for granted := 0; granted < 8 && s.Context().Err() == nil; {
				lease, err := s.Acquire(s.Context(), store.AcquireRequest{Lock: s.lock, OwnerID: fmt.Sprint("client ", i),
					TTL: long})
				if errors.Is(err, store.ErrLeaseHeld) {
					continue
				}
				if err != nil {
					s.Error(err)
					return
				}
				granted++
				mu.Lock()
				tokens = append(tokens, lease.Token)
				mu.Unlock()
				if err := s.Release(s.Context(), lease.Ref()); err != nil {
					s.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			s.Fatalf("token %d was granted after %d", tokens[i], tokens[i-1])
		}
	}
}

func (s *suite) withinLimits() {
	for i, request := range []store.AcquireRequest{
		{OwnerID: "A", TTL: store.TTLMin},
		{OwnerID: "A", TTL: store.TTLMax},
		{OwnerID: strings.Repeat("ä", store.OwnerBytesMax/2)},
		{OwnerID: "A", RequestID: strings.Repeat("r", store.RequestBytesMax)},
		{OwnerID: "A", Metadata: json.RawMessage(`{}`)},
		{OwnerID: "A", Metadata: json.RawMessage(`{"k":"` + strings.Repeat("v", store.MetadataBytesMax-8) + `"}`)},
	} {
		request.Lock = store.Name(fmt.Sprintf("%s/%d", s.lock, i))
		lease := s.granted(request)
		if lease.OwnerID != request.OwnerID || !bytes.Equal(lease.Metadata, request.Metadata) {
			s.Errorf("the request %+v was granted %+v", request, lease)
		}
	}
}

func (s *suite) outsideLimits() {
	for _, request := range []store.AcquireRequest{
		{},
		{OwnerID: strings.Repeat("x", store.OwnerBytesMax+1)},
		{OwnerID: "a\nb"},
		{OwnerID: "a\xff"},
		{OwnerID: "a\x00b"},
		{OwnerID: "A", Metadata: json.RawMessage{}},
		{OwnerID: "A", TTL: store.TTLMin - time.Millisecond},
		{OwnerID: "A", TTL: store.TTLMax + time.Millisecond},
		{OwnerID: "A", TTL: time.Second + time.Microsecond},
		{OwnerID: "A", TTL: -time.Second},
		{OwnerID: "A", RequestID: strings.Repeat("r", store.RequestBytesMax+1)},
		{OwnerID: "A", Mode: "any"},
		{OwnerID: "A", Scope: "all"},
		{OwnerID: "A", TTL: time.Second, SessionID: uuid.New()},
		{OwnerID: "A", Wait: -time.Second},
		{OwnerID: "A", Metadata: json.RawMessage(`[]`)},
		{OwnerID: "A", Metadata: json.RawMessage(`null`)},
		{OwnerID: "A", Metadata: json.RawMessage(`{`)},
		{OwnerID: "A", Metadata: json.RawMessage(`{"k":"` + strings.Repeat("v", store.MetadataBytesMax-7) + `"}`)},
	} {
		request.Lock = s.lock
		if _, err := s.Acquire(s.Context(), request); !errors.Is(err, store.ErrInvalid) {
			s.Errorf("%+v: the error is %v", request, err)
		}
	}
	_, err := s.Lock(s.Context(), s.lock)
	s.is(err, store.ErrNotFound)
	lease := s.acquire("A", long)
	for _, ttl := range []time.Duration{store.TTLMin - 1, -time.Second, store.TTLMax + time.Millisecond} {
		_, err := s.Renew(s.Context(), lease.Ref(), ttl)
		s.is(err, store.ErrInvalid)
	}
}

func (s *suite) reasonLimits() {
	lease := s.acquire("A", long)
	for _, reason := range []string{"", "a\nb", "\xff", strings.Repeat("x", store.ReasonBytesMax+1)} {
		_, err := s.Break(s.Context(), s.lock, reason)
		s.is(err, store.ErrInvalid)
	}
	s.heldBy(lease)
	broken, err := s.Break(s.Context(), s.lock, strings.Repeat("x", store.ReasonBytesMax))
	if err != nil || broken.Token != lease.Token {
		s.Errorf("a break with the longest reason returned %+v (%v)", broken, err)
	}
}
