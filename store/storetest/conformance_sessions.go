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

func (d *desk) session(ttl time.Duration) store.Session {
	d.Helper()
	session, err := d.CreateSession(d.Context(), store.SessionRequest{OwnerID: "A", TTL: ttl})
	if err != nil {
		d.Fatal(err)
	}
	return session
}

// in asks for the lock in a session.
func (d *desk) in(session store.Session) store.AcquireRequest {
	return store.AcquireRequest{Lock: d.lock, OwnerID: "A", SessionID: session.ID}
}

// stands expects a state of a session, and a number of leases that run in it.
func (d *desk) stands(session store.Session, state store.SessionState, leases int64) {
	d.Helper()
	got, count, err := d.Session(d.Context(), session.ID)
	if err != nil || got.State != state || count != leases || got.ID != session.ID || got.OwnerID != session.OwnerID {
		d.Errorf("the session stands as %+v with %d leases (%v), it must be %s with %d", got, count, err, state, leases)
	}
}

func (d *desk) sessionAsAsked() {
	request := store.SessionRequest{OwnerID: "A", TTL: 1234 * time.Millisecond, Metadata: json.RawMessage(`{"pid": 7}`)}
	session, err := d.CreateSession(d.Context(), request)
	switch {
	case err != nil:
		d.Fatal(err)
	case session.ID == uuid.Nil, session.OwnerID != "A", session.TTL != request.TTL, session.State != store.SessionLive:
		d.Errorf("%+v was asked for, and made is %+v", request, session)
	case !bytes.Equal(session.Metadata, request.Metadata), session.ExpiresAt.Sub(session.CreatedAt) != request.TTL:
		d.Errorf("%+v was asked for, and made is %+v", request, session)
	}
	other := d.session(0)
	if other.TTL != store.TTLDefault || other.ID == session.ID || other.Metadata != nil {
		d.Errorf("by default made is %+v", other)
	}
	d.stands(other, store.SessionLive, 0)
}

func (d *desk) sessionKept() {
	session := d.session(long)
	lease := d.granted(d.in(session))
	if lease.SessionID != session.ID || !lease.ExpiresAt.Equal(session.ExpiresAt) || lease.TTL != session.TTL {
		d.Errorf("granted in %+v is %+v", session, lease)
	}
	d.stands(session, store.SessionLive, 1)
	kept, err := d.KeepAlive(d.Context(), session.ID)
	if err != nil || !kept.ExpiresAt.After(session.ExpiresAt) || kept.TTL != session.TTL || !kept.CreatedAt.Equal(session.CreatedAt) {
		d.Errorf("%+v was kept alive, and is %+v (%v)", session, kept, err)
	}
	if holder := d.look().Holder(); holder == nil || !holder.ExpiresAt.Equal(kept.ExpiresAt) || holder.SessionID != uuid.Nil {
		d.Errorf("%+v was kept alive, and the lock is held by %+v", kept, holder)
	}
	d.refused(store.AcquireRequest{Lock: d.lock, OwnerID: "B"}, "A")
	d.released(lease)
	d.stands(session, store.SessionLive, 0)
}

func (d *desk) sessionEnds() {
	session := d.session(long)
	lease := d.granted(d.in(session))
	request := d.in(session)
	request.Lock, request.Mode = d.lock+"/shared", store.Shared
	reader := d.granted(request)
	for i, want := range []int64{2, 0} {
		if released, err := d.EndSession(d.Context(), session.ID); err != nil || released != want {
			d.Errorf("ended for the %dth time, it released %d (%v), and must release %d", i+1, released, err, want)
		}
	}
	d.stands(session, store.SessionEnded, 0)
	if state := d.look().State; state != store.LockFree {
		d.Errorf("the lock is %s", state)
	}
	for _, lease := range []store.Lease{lease, reader} {
		_, err := d.Renew(d.Context(), lease.Ref(), 0)
		d.lost(err, "released")
		d.released(lease)
	}
	_, err := d.KeepAlive(d.Context(), session.ID)
	d.sessionLost(err, "released")
	_, err = d.Acquire(d.Context(), d.in(session))
	d.sessionLost(err, "released")
	d.heldBy(d.acquire("B", long))
}

func (d *desk) sessionExpires() {
	session := d.session(store.TTLMin)
	late := d.granted(d.in(session))
	var next store.Lease
	d.await("the lock to be granted anew", func() bool {
		lease, err := d.Acquire(d.Context(), store.AcquireRequest{Lock: d.lock, OwnerID: "B", TTL: long})
		if err != nil && !errors.Is(err, store.ErrLeaseHeld) {
			d.Fatal(err)
		}
		next = lease
		return err == nil
	})
	if next.GrantedAt.Before(session.ExpiresAt) || next.Token <= late.Token {
		d.Errorf("%+v was granted while %+v was live", next, session)
	}
	d.stands(session, store.SessionExpired, 0)
	_, err := d.KeepAlive(d.Context(), session.ID)
	d.sessionLost(err, "expired")
	request := d.in(session)
	request.Lock += "/other"
	_, err = d.Acquire(d.Context(), request)
	d.sessionLost(err, "expired")
	_, err = d.EndSession(d.Context(), session.ID)
	d.sessionLost(err, "expired")
	d.lost(d.Release(d.Context(), late.Ref()), "superseded")
	d.heldBy(next)
}

func (d *desk) sessionUnknown() {
	session := store.Session{ID: uuid.New()}
	_, err := d.Acquire(d.Context(), d.in(session))
	d.is(err, store.ErrNotFound)
	_, err = d.KeepAlive(d.Context(), session.ID)
	d.is(err, store.ErrNotFound)
	_, err = d.EndSession(d.Context(), session.ID)
	d.is(err, store.ErrNotFound)
	_, _, err = d.Session(d.Context(), session.ID)
	d.is(err, store.ErrNotFound)
	_, err = d.Lock(d.Context(), d.lock)
	d.is(err, store.ErrNotFound)
}

func (d *desk) sessionLeaseRenewed() {
	session := d.session(long)
	lease := d.granted(d.in(session))
	for _, ttl := range []time.Duration{0, long} {
		_, err := d.Renew(d.Context(), lease.Ref(), ttl)
		d.is(err, store.ErrInvalid)
	}
	d.heldBy(lease)
}

// sessionEndsAtOnce ends a session while leases are asked for in it: none of them runs afterwards.
func (d *desk) sessionEndsAtOnce() {
	session := d.session(long)
	var asking sync.WaitGroup
	for i := range 8 {
		asking.Go(func() {
			if i == 4 {
				if _, err := d.EndSession(d.Context(), session.ID); err != nil {
					d.Error(err)
				}
				return
			}
			request := d.in(session)
			request.Lock = store.Name(fmt.Sprintf("%s/%d", d.lock, i))
			_, err := d.Acquire(d.Context(), request)
			if err != nil && !errors.Is(err, store.ErrLeaseLost) {
				d.Error(err)
			}
		})
	}
	asking.Wait()
	d.stands(session, store.SessionEnded, 0)
	for i := range 8 {
		d.granted(store.AcquireRequest{Lock: store.Name(fmt.Sprintf("%s/%d", d.lock, i)), OwnerID: "B"})
	}
}

func (d *desk) sessionLimits() {
	for _, request := range []store.SessionRequest{
		{},
		{OwnerID: "a\nb"},
		{OwnerID: "A", TTL: store.TTLMin - time.Millisecond},
		{OwnerID: "A", TTL: store.TTLMax + time.Millisecond},
		{OwnerID: "A", TTL: time.Second + time.Microsecond},
		{OwnerID: "A", Metadata: json.RawMessage(`[]`)},
	} {
		if _, err := d.CreateSession(d.Context(), request); !errors.Is(err, store.ErrInvalid) {
			d.Errorf("%+v: the error is %v", request, err)
		}
	}
}

// sessionLost expects that a session, and no lease, was lost for a reason.
func (d *desk) sessionLost(err error, reason string) {
	d.Helper()
	d.lost(err, reason)
	var lost *store.LostError
	if errors.As(err, &lost) && lost.Lock != "" {
		d.Errorf("the error is %v, which tells of a lock", err)
	}
}
