package enginetest

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/store"
)

// Hold is how an owner has what the owner before it in a ring waits for.
type Hold struct {
	Name         string
	Has, Wants   store.AcquireRequest // of the lock named after the position, followed by this Lock
	InSession    bool
	ByTicketOnly bool // an outsider has the lock: the owner is before the other in the queue
}

// Holds are all ways to be in the way.
var Holds = []Hold{
	{Name: "leases"},
	{Name: "a reader in a writer's way", Has: store.AcquireRequest{Mode: store.Shared}},
	{Name: "a writer in a reader's way", Wants: store.AcquireRequest{Mode: store.Shared}},
	{Name: "tickets in the queue", ByTicketOnly: true},
	{Name: "a ticket before a reader", ByTicketOnly: true, Wants: store.AcquireRequest{Mode: store.Shared}},
	{Name: "a name below the subtree", Has: store.AcquireRequest{Lock: "/below/it"},
		Wants: store.AcquireRequest{Scope: store.Subtree}},
	{Name: "the subtree above", Has: store.AcquireRequest{Scope: store.Subtree},
		Wants: store.AcquireRequest{Lock: "/below/it"}},
	{Name: "a ticket below the subtree", ByTicketOnly: true, Has: store.AcquireRequest{Lock: "/below"},
		Wants: store.AcquireRequest{Scope: store.Subtree}},
	{Name: "sessions", InSession: true},
}

// Ring has owners. Each has something, and all but the last wait for what the next has.
type Ring struct {
	*Engines
	Hold
	Prefix  string
	Leases  []store.Lease // of the owners, or of outsiders before them
	Waits   []<-chan Outcome
	InQueue []<-chan Outcome
}

// Owner is the name of the owner of an index, modulo their number.
func (r *Ring) Owner(index int) string { return fmt.Sprint("owner ", index%len(r.Waits)) }

func (r *Ring) request(of store.AcquireRequest, owner, index int) store.AcquireRequest {
	of.Lock = store.Name(fmt.Sprintf("%s/%d", r.Prefix, index%len(r.Waits))) + of.Lock
	of.OwnerID = r.Owner(owner)
	return of
}

// Wanted returns what an owner waits for: what the next has.
func (r *Ring) Wanted(index int) store.AcquireRequest { return r.request(r.Wants, index, index+1) }

// BuildRing has all but the last wait.
func BuildRing(t *testing.T, s *Engines, h Hold, size int) *Ring {
	t.Helper()
	r := &Ring{Engines: s, Hold: h, Prefix: uuid.NewString(), Waits: make([]<-chan Outcome, size)}
	for index := range size {
		request := r.request(h.Has, index, index)
		switch {
		case h.InSession:
			session, err := s.At(index).CreateSession(await.Context(t), store.SessionRequest{OwnerID: request.OwnerID})
			check(t, err)
			request.SessionID = session.ID
		case h.ByTicketOnly:
			outsider := request
			outsider.OwnerID = "outsider"
			r.Leases = append(r.Leases, s.Acquire(t, index, outsider))
			r.InQueue = append(r.InQueue, s.Queue(t, index+1, request))
			continue
		}
		r.Leases = append(r.Leases, s.Acquire(t, index, request))
	}
	for index := range size - 1 {
		r.Waits[index] = s.Queue(t, index, r.Wanted(index))
	}
	return r
}

// Unwind makes the last owner release its lease, and the others in turn. All are granted their locks.
func (r *Ring) Unwind(t *testing.T) {
	t.Helper()
	if r.ByTicketOnly {
		for index, lease := range r.Leases {
			r.Release(t, index, lease)
			r.Leases[index] = Granted(t, r.InQueue[index])
		}
	}
	for index := len(r.Waits) - 1; index >= 0; index-- {
		r.Release(t, index, r.Leases[index])
		if index > 0 {
			lease := Granted(t, r.Waits[index-1])
			r.Release(t, index, lease)
		}
	}
}
