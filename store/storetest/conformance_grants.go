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

func (d *desk) leaseAsAsked() {
	request := store.AcquireRequest{Lock: d.lock, OwnerID: "A", TTL: 1234 * time.Millisecond, Metadata: json.RawMessage(`{"pid": 7}`)}
	lease := d.granted(request)
	switch {
	case lease.Lock != d.lock, lease.OwnerID != "A", lease.TTL != request.TTL, !bytes.Equal(lease.Metadata, request.Metadata):
		d.Errorf("%+v was asked for, and granted is %+v", request, lease)
	case lease.ID == uuid.Nil, lease.Token < 1, lease.Token > store.TokenMax:
		d.Errorf("the lease has no good lease_id or token: %+v", lease)
	case lease.ExpiresAt.Sub(lease.GrantedAt) != request.TTL:
		d.Errorf("the lease runs for %s", lease.ExpiresAt.Sub(lease.GrantedAt))
	case lease.Mode != "exclusive", lease.Scope != "node":
		d.Errorf("mode and scope are %s and %s", lease.Mode, lease.Scope)
	}
}

func (d *desk) leaseByDefault() {
	lease := d.acquire("A", 0)
	if lease.TTL != store.TTLDefault || lease.Metadata != nil {
		d.Errorf("the TTL is %s, the metadata %q", lease.TTL, lease.Metadata)
	}
}

func (d *desk) oneHolder() {
	lease := d.acquire("A", long)
	_, err := d.Acquire(d.Context(), store.AcquireRequest{Lock: d.lock, OwnerID: "B"})
	d.is(err, store.ErrLeaseHeld)
	var held *store.HeldError
	if !errors.As(err, &held) {
		d.Fatalf("%v tells not who holds the lock", err)
	}
	if held.Lock != d.lock || held.OwnerID != "A" || !held.ExpiresAt.Equal(lease.ExpiresAt) || held.Remaining <= 0 || held.Remaining > long {
		d.Errorf("held is %+v, of %+v", held, lease)
	}
	d.heldBy(lease)
}

// oneOfMany lets many ask at once, again and again.
func (d *desk) oneOfMany() {
	for round := range 5 {
		leases := d.atOnce(func(i int) store.AcquireRequest {
			return store.AcquireRequest{Lock: d.lock, OwnerID: fmt.Sprint("client ", i)}
		})
		if len(leases) != 1 {
			d.Fatalf("round %d: %d were granted the lock", round, len(leases))
		}
		d.released(leases[0])
	}
}

// clientsAtOnce is how many ask at the same time.
const clientsAtOnce = 8

// atOnce makes requests at the same time and returns the leases. Nothing but ErrLeaseHeld may come instead.
func (d *desk) atOnce(request func(i int) store.AcquireRequest) []store.Lease {
	d.Helper()
	var leases []store.Lease
	var mu sync.Mutex
	var asking sync.WaitGroup
	start := make(chan struct{})
	for i := range clientsAtOnce {
		asking.Go(func() {
			<-start
			lease, err := d.Acquire(d.Context(), request(i))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				leases = append(leases, lease)
			case !errors.Is(err, store.ErrLeaseHeld):
				d.Error(err)
			}
		})
	}
	close(start)
	asking.Wait()
	return leases
}

func (d *desk) notReentrant() {
	lease := d.acquire("A", long)
	_, err := d.Acquire(d.Context(), store.AcquireRequest{Lock: d.lock, OwnerID: "A"})
	d.is(err, store.ErrLeaseHeld)
	d.heldBy(lease)
}

func (d *desk) independent() {
	lease := d.acquire("A", long)
	for _, name := range []store.Name{d.lock + "/below", d.lock + "-beside", "above"} {
		if _, err := d.Acquire(d.Context(), store.AcquireRequest{Lock: name, OwnerID: "A", TTL: long}); err != nil {
			d.Errorf("%s: %v", name, err)
		}
	}
	d.heldBy(lease)
}

// tokensRise ends leases in each way there is. What is granted next has a greater token, and begins no earlier.
func (d *desk) tokensRise() {
	last := d.acquire("A", long)
	for _, end := range []struct {
		name string
		how  func(store.Lease)
	}{
		{"release", d.released},
		{"break", func(store.Lease) {
			if _, err := d.Break(d.Context(), d.lock, "test"); err != nil {
				d.Fatal(err)
			}
		}},
		{"expiry", func(lease store.Lease) {
			if _, err := d.Renew(d.Context(), lease.Ref(), store.TTLMin); err != nil {
				d.Fatal(err)
			}
			d.await("the lease to expire", func() bool { return d.look().State == store.LockExpired })
		}},
	} {
		end.how(last)
		next := d.acquire("A", long)
		if next.Token <= last.Token || next.GrantedAt.Before(last.GrantedAt) || next.ID == last.ID {
			d.Errorf("after %s of %+v, granted is %+v", end.name, last, next)
		}
		last = next
	}
}

// tokensInOrder lets many acquire and release the lock. Whoever holds it appends its token: mutual exclusion makes the order that of
// the grants.
func (d *desk) tokensInOrder() {
	var tokens []int64
	var mu sync.Mutex // for the race detector, which does not see locks that are kept elsewhere
	var working sync.WaitGroup
	for i := range 4 {
		working.Go(func() {
			for granted := 0; granted < 8 && d.Context().Err() == nil; {
				lease, err := d.Acquire(d.Context(), store.AcquireRequest{Lock: d.lock, OwnerID: fmt.Sprint("client ", i), TTL: long})
				if errors.Is(err, store.ErrLeaseHeld) {
					continue
				}
				if err != nil {
					d.Error(err)
					return
				}
				granted++
				mu.Lock()
				tokens = append(tokens, lease.Token)
				mu.Unlock()
				if err := d.Release(d.Context(), lease.Ref()); err != nil {
					d.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			d.Fatalf("token %d was granted after %d", tokens[i], tokens[i-1])
		}
	}
}

func (d *desk) withinLimits() {
	for i, request := range []store.AcquireRequest{
		{OwnerID: "A", TTL: store.TTLMin},
		{OwnerID: "A", TTL: store.TTLMax},
		{OwnerID: strings.Repeat("ä", store.OwnerBytesMax/2)},
		{OwnerID: "A", RequestID: strings.Repeat("r", store.RequestBytesMax)},
		{OwnerID: "A", Metadata: json.RawMessage(`{"k":"` + strings.Repeat("v", store.MetadataBytesMax-8) + `"}`)},
	} {
		request.Lock = store.Name(fmt.Sprintf("%s/%d", d.lock, i))
		lease := d.granted(request)
		if lease.OwnerID != request.OwnerID || !bytes.Equal(lease.Metadata, request.Metadata) {
			d.Errorf("%+v was asked for, and granted is %+v", request, lease)
		}
	}
}

func (d *desk) outsideLimits() {
	for _, request := range []store.AcquireRequest{
		{},
		{OwnerID: strings.Repeat("x", store.OwnerBytesMax+1)},
		{OwnerID: "a\nb"},
		{OwnerID: "a\xff"},
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
		request.Lock = d.lock
		_, err := d.Acquire(d.Context(), request)
		if !errors.Is(err, store.ErrInvalid) {
			d.Errorf("%+v: the error is %v", request, err)
		}
	}
	if _, err := d.Lock(d.Context(), d.lock); !errors.Is(err, store.ErrNotFound) {
		d.Errorf("something was granted: %v", err)
	}
	lease := d.acquire("A", long)
	_, err := d.Renew(d.Context(), lease.Ref(), store.TTLMin-time.Millisecond)
	d.is(err, store.ErrInvalid)
}

func (d *desk) reasonLimits() {
	lease := d.acquire("A", long)
	for _, reason := range []string{"", "a\nb", strings.Repeat("x", store.ReasonBytesMax+1)} {
		_, err := d.Break(d.Context(), d.lock, reason)
		d.is(err, store.ErrInvalid)
	}
	d.heldBy(lease)
}
