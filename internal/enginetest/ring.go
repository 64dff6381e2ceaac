package enginetest

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Hold is how an owner has what the owner before him in a ring waits for.
type Hold struct {
	Name         string
	Has, Wants   store.AcquireRequest // of the lock with the name of the place, which a Lock here follows
	InSession    bool
	ByTicketOnly bool // somebody else has the lock: the owner is before the other in the line
}

// Holds are all ways.
var Holds = []Hold{
	{Name: "leases"},
	{Name: "a reader in a writer's way", Has: store.AcquireRequest{Mode: store.Shared}},
	{Name: "a writer in a reader's way", Wants: store.AcquireRequest{Mode: store.Shared}},
	{Name: "places in the line", ByTicketOnly: true},
	{Name: "a place before a reader", ByTicketOnly: true, Wants: store.AcquireRequest{Mode: store.Shared}},
	{Name: "a name below the subtree", Has: store.AcquireRequest{Lock: "/below/it"}, Wants: store.AcquireRequest{Scope: store.Subtree}},
	{Name: "the subtree above", Has: store.AcquireRequest{Scope: store.Subtree}, Wants: store.AcquireRequest{Lock: "/below/it"}},
	{Name: "a place below the subtree", ByTicketOnly: true, Has: store.AcquireRequest{Lock: "/below"}, Wants: store.AcquireRequest{Scope: store.Subtree}},
	{Name: "sessions", InSession: true},
}

// Ring is owners of whom each has something, and all but the last wait for what the next has.
type Ring struct {
	*Engines
	Hold
	Prefix string
	Leases []store.Lease // of the owners, or of outsiders before them
	Waits  []<-chan Outcome
	Places []<-chan Outcome
}

func (r *Ring) Owner(place int) string { return fmt.Sprint("owner ", place%len(r.Waits)) }

func (r *Ring) request(of store.AcquireRequest, owner, place int) store.AcquireRequest {
	of.Lock = store.Name(fmt.Sprintf("%s/%d", r.Prefix, place%len(r.Waits))) + of.Lock
	of.OwnerID = r.Owner(owner)
	return of
}

// Wanted is what an owner waits for: what the next has.
func (r *Ring) Wanted(place int) store.AcquireRequest { return r.request(r.Wants, place, place+1) }

// BuildRing has all but the last wait.
func BuildRing(t *testing.T, s *Engines, h Hold, size int) *Ring {
	t.Helper()
	r := &Ring{Engines: s, Hold: h, Prefix: uuid.NewString(), Waits: make([]<-chan Outcome, size)}
	for place := range size {
		request := r.request(h.Has, place, place)
		switch {
		case h.InSession:
			session, err := s.At(place).CreateSession(Patient(t), store.SessionRequest{OwnerID: request.OwnerID})
			if err != nil {
				t.Fatal(err)
			}
			request.SessionID = session.ID
		case h.ByTicketOnly:
			outsider := request
			outsider.OwnerID = "outsider"
			r.Leases = append(r.Leases, s.Acquire(t, place, outsider))
			r.Places = append(r.Places, s.Queue(t, place+1, request))
			continue
		}
		r.Leases = append(r.Leases, s.Acquire(t, place, request))
	}
	for place := range size - 1 {
		r.Waits[place] = s.Queue(t, place, r.Wanted(place))
	}
	return r
}

// Unwind has the last owner give back what he Has, and the others in turn: all are served.
func (r *Ring) Unwind(t *testing.T) {
	t.Helper()
	if r.ByTicketOnly {
		for place, lease := range r.Leases {
			r.Release(t, place, lease)
			r.Leases[place] = Granted(t, r.Places[place])
		}
	}
	for place := len(r.Waits) - 1; place >= 0; place-- {
		r.Release(t, place, r.Leases[place])
		if place > 0 {
			lease := Granted(t, r.Waits[place-1])
			r.Release(t, place, lease)
		}
	}
}
