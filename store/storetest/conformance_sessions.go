package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

func (s *suite) session(ttl time.Duration) store.Session {
	s.Helper()
	session, err := s.CreateSession(s.Context(), store.SessionRequest{OwnerID: "A", TTL: ttl})
	if err != nil {
		s.Fatal(err)
	}
	return session
}

// in asks for the lock in a session.
func (s *suite) in(session store.Session) store.AcquireRequest {
	return store.AcquireRequest{Lock: s.lock, OwnerID: "A", SessionID: session.ID}
}

// expectSession compares the state of a session and the number of its running leases.
func (s *suite) expectSession(session store.Session, state store.SessionState, leases int64) {
	s.Helper()
	got, count, err := s.Session(s.Context(), session.ID)
	if err != nil || got.State != state || count != leases || got.ID != session.ID || got.OwnerID != session.OwnerID {
		s.Errorf("the session is %+v with %d leases (%v), want %s with %d", got, count, err, state, leases)
	}
}

func (s *suite) sessionAsAsked() {
	request := store.SessionRequest{OwnerID: "A", TTL: 1234 * time.Millisecond, Metadata: json.RawMessage(`{"pid": 7}`)}
	session, err := s.CreateSession(s.Context(), request)
	switch {
	case err != nil:
		s.Fatal(err)
	case session.ID == uuid.Nil, session.OwnerID != "A", session.TTL != request.TTL, session.State != store.SessionLive:
		s.Errorf("the request %+v made the session %+v", request, session)
	case !bytes.Equal(session.Metadata, request.Metadata), session.ExpiresAt.Sub(session.CreatedAt) != request.TTL:
		s.Errorf("the request %+v made the session %+v", request, session)
	}
	other := s.session(0)
	if other.TTL != store.TTLDefault || other.ID == session.ID || other.Metadata != nil {
		s.Errorf("by default made is %+v", other)
	}
	s.expectSession(other, store.SessionLive, 0)
}

func (s *suite) sessionKept() {
	session := s.session(long)
	lease := s.granted(s.in(session))
	if lease.SessionID != session.ID || !lease.ExpiresAt.Equal(session.ExpiresAt) || lease.TTL != session.TTL {
		s.Errorf("granted in %+v is %+v", session, lease)
	}
	s.expectSession(session, store.SessionLive, 1)
	kept, err := s.KeepAlive(s.Context(), session.ID)
	if err != nil || !kept.ExpiresAt.After(session.ExpiresAt) || kept.TTL != session.TTL ||
		!kept.CreatedAt.Equal(session.CreatedAt) {
		s.Errorf("%+v was kept alive, and is %+v (%v)", session, kept, err)
	}
	if holder := s.look().Holder(); holder == nil || !holder.ExpiresAt.Equal(kept.ExpiresAt) ||
		holder.SessionID != uuid.Nil {
		s.Errorf("%+v was kept alive, and the lock is held by %+v", kept, holder)
	}
	s.refused(store.AcquireRequest{Lock: s.lock, OwnerID: "B"}, "A")
	s.released(lease)
	s.expectSession(session, store.SessionLive, 0)
}

func (s *suite) sessionEnds() {
	session := s.session(long)
	lease := s.granted(s.in(session))
	request := s.in(session)
	request.Lock, request.Mode = s.lock+"/shared", store.Shared
	reader := s.granted(request)
	for i, want := range []int64{2, 0} {
		if released, err := s.EndSession(s.Context(), session.ID); err != nil || released != want {
			s.Errorf("ended for the %dth time, it released %d (%v), and must release %d", i+1, released, err, want)
		}
	}
	s.expectSession(session, store.SessionEnded, 0)
	s.free()
	for _, lease := range []store.Lease{lease, reader} {
		s.renewalLost(lease, "released")
		s.released(lease)
	}
	_, err := s.KeepAlive(s.Context(), session.ID)
	s.sessionLost(err, "released")
	_, err = s.Acquire(s.Context(), s.in(session))
	s.sessionLost(err, "released")
	s.heldBy(s.acquire("B", long))
}

func (s *suite) sessionExpires() {
	var session store.Session
	var late store.Lease
	for ttl := store.TTLMin; ; ttl *= 3 { // a busy machine may not grant a lock within a short one
		var err error
		session = s.session(ttl)
		if late, err = s.Acquire(s.Context(), s.in(session)); err == nil {
			break
		} else if !errors.Is(err, store.ErrLeaseLost) {
			s.Fatal(err)
		}
	}
	next := s.grantedAnew(late, session.ExpiresAt)
	s.expectSession(session, store.SessionExpired, 0)
	_, err := s.KeepAlive(s.Context(), session.ID)
	s.sessionLost(err, "expired")
	request := s.in(session)
	request.Lock += "/other"
	_, err = s.Acquire(s.Context(), request)
	s.sessionLost(err, "expired")
	_, err = s.EndSession(s.Context(), session.ID)
	s.sessionLost(err, "expired")
	s.lost(s.Release(s.Context(), late.Ref()), "superseded")
	s.heldBy(next)
}

func (s *suite) sessionUnknown() {
	session := store.Session{ID: uuid.New()}
	s.fails(s.in(session), store.ErrNotFound)
	_, err := s.KeepAlive(s.Context(), session.ID)
	s.is(err, store.ErrNotFound)
	_, err = s.EndSession(s.Context(), session.ID)
	s.is(err, store.ErrNotFound)
	_, _, err = s.Session(s.Context(), session.ID)
	s.is(err, store.ErrNotFound)
	_, err = s.Lock(s.Context(), s.lock)
	s.is(err, store.ErrNotFound)
}

func (s *suite) sessionLeaseRenewed() {
	session := s.session(long)
	lease := s.granted(s.in(session))
	for _, ttl := range []time.Duration{0, long} {
		_, err := s.Renew(s.Context(), lease.Ref(), ttl)
		s.is(err, store.ErrInvalid)
	}
	s.heldBy(lease)
}

// sessionEndsAtOnce ends a session during acquires in it: no lease runs afterwards.
func (s *suite) sessionEndsAtOnce() {
	session := s.session(long)
	var acquiring sync.WaitGroup
	for i := range 8 {
		acquiring.Go(func() {
			if i == 4 {
				if _, err := s.EndSession(s.Context(), session.ID); err != nil {
					s.Error(err)
				}
				return
			}
			request := s.in(session)
			request.Lock = store.Name(fmt.Sprintf("%s/%d", s.lock, i))
			_, err := s.Acquire(s.Context(), request)
			if err != nil && !errors.Is(err, store.ErrLeaseLost) {
				s.Error(err)
			}
		})
	}
	acquiring.Wait()
	s.expectSession(session, store.SessionEnded, 0)
	for i := range 8 {
		s.granted(store.AcquireRequest{Lock: store.Name(fmt.Sprintf("%s/%d", s.lock, i)), OwnerID: "B"})
	}
}

func (s *suite) sessionLimits() {
	for _, request := range []store.SessionRequest{
		{},
		{OwnerID: "a\nb"},
		{OwnerID: "A", TTL: store.TTLMin - time.Millisecond},
		{OwnerID: "A", TTL: store.TTLMax + time.Millisecond},
		{OwnerID: "A", TTL: time.Second + time.Microsecond},
		{OwnerID: "A", Metadata: json.RawMessage(`[]`)},
	} {
		if _, err := s.CreateSession(s.Context(), request); !errors.Is(err, store.ErrInvalid) {
			s.Errorf("%+v: the error is %v", request, err)
		}
	}
}

// sessionLost expects that a session, and no lease, was lost for a reason.
func (s *suite) sessionLost(err error, reason string) {
	s.Helper()
	s.lost(err, reason)
	var lost *store.LostError
	if errors.As(err, &lost) && lost.Lock != "" {
		s.Errorf("the error is %v, want one without a lock", err)
	}
}
