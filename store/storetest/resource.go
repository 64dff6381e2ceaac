// Package storetest has what every provider of leases and every store of fences must do: a reference model that is small
// enough to be read against the contract, and a conformance suite for lease providers.
//
// The model is written from the contract and knows no SQL. It is pure: an operation takes a state and returns the next
// one and the answer to the caller. Two things are not the model's to decide. Which token, lease_id and times a
// grant gets is the provider's choice: the caller hands them in, and the model says whether that choice was allowed.
// And time: a lease or a session runs out when [Model.Expire] or [Model.SessionOver] says so, which may be at any
// moment.
package storetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Resource is one name: its lock, its fence and its records. The zero value is a name that was never used. It is a
// value: no method changes what its receiver shows.
type Resource struct {
	GrantedToken int64
	Open         bool // whether the newest grant may still write
	LastToken    int64
	LastSequence int64

	// covering is what the newest subtree grant on this name is to the names below.
	covering covering

	// Of the last accepted write, by which its retry is known and answered. Empty if it was not numbered.
	lastContent string
	lastCreated bool

	newestVersion int64 // that any record ever had

	grants  []Grant // oldest first
	records map[store.Name]Record
}

// covering is a fence of all names below one: a subtree grant, and whether it may still write there.
type covering struct {
	token int64
	open  bool
}

// Grant is a lease and what became of it.
type Grant struct {
	Token     int64
	ID        uuid.UUID
	OwnerID   string
	RequestID string
	Mode      store.Mode
	Scope     store.Scope
	SessionID uuid.UUID // zero: in none; else it runs out with the session
	TTL       time.Duration
	AskedTTL  time.Duration // of the acquire; 0 in a session
	GrantedAt int64         // microseconds by the database's clock, like ExpiresAt
	ExpiresAt int64         // 0: unknown, since the answer to a renewal was lost
	HoldUntil int64         // 0: no limit
	End       End

	replaced bool // it had expired, and the lock was granted to another owner
	heldOut  bool // it expired at its HoldUntil
	settled  bool // its session was over, and its fence was closed for that
}

// End is how a lease ended.
type End string

// The ends of a lease, as a LostError gives them for a reason.
const (
	Running  End = ""
	Expired  End = "expired" // and was not released or broken since
	Released End = "released"
	Broken   End = "broken"
)

// Record is a record as the model keeps it.
type Record struct {
	Version, Token, Sequence int64
	Numbered                 bool
	ContentType, Value       string
}

// String shows a record as 34.2 "value" (text/plain).
func (r Record) String() string {
	number := ""
	if r.Numbered {
		number = fmt.Sprintf(".%d", r.Sequence)
	}
	return fmt.Sprintf("%d%s %q (%s)", r.Token, number, r.Value, r.ContentType)
}

// GrantOf is a lease as the provider gave it out.
func GrantOf(lease store.Lease, requestID string) Grant {
	return Grant{
		Token: lease.Token, ID: lease.ID, OwnerID: lease.OwnerID, RequestID: requestID,
		Mode: lease.Mode, Scope: lease.Scope, SessionID: lease.SessionID, TTL: lease.TTL,
		GrantedAt: lease.GrantedAt.UnixMicro(), ExpiresAt: lease.ExpiresAt.UnixMicro(),
	}
}

// Equal reports whether no operation can distinguish two states.
func (r Resource) Equal(other Resource) bool {
	return r.GrantedToken == other.GrantedToken && r.Open == other.Open &&
		r.LastToken == other.LastToken && r.LastSequence == other.LastSequence &&
		r.lastContent == other.lastContent && r.lastCreated == other.lastCreated && r.newestVersion == other.newestVersion &&
		r.covering == other.covering &&
		slices.Equal(r.grants, other.grants) && maps.Equal(r.records, other.records)
}

// hash is the same for equal states.
func (r Resource) hash() uint64 {
	sum := uint64(len(r.grants))
	for _, number := range []int64{r.GrantedToken, r.LastToken, r.LastSequence, r.newestVersion} {
		sum = sum*31 + uint64(number)
	}
	return sum
}

// Newest returns the newest grant; ok is false if there was none.
func (r Resource) Newest() (grant Grant, ok bool) {
	if len(r.grants) == 0 {
		return Grant{}, false
	}
	return r.grants[len(r.grants)-1], true
}

// Running returns the leases that run, the oldest first.
func (r Resource) Running() []Grant {
	var running []Grant
	for _, grant := range r.grants {
		if grant.End == Running {
			running = append(running, grant)
		}
	}
	return running
}

func (r Resource) grant(token int64) (grant Grant, ok bool) {
	i := slices.IndexFunc(r.grants, func(g Grant) bool { return g.Token == token })
	if i < 0 {
		return Grant{}, false
	}
	return r.grants[i], true
}

// closed returns the state in which a grant may not write any more, neither here nor below. A newer one still may.
func (r Resource) closed(token int64) Resource {
	if r.GrantedToken == token {
		r.Open = false
	}
	if r.covering.token == token {
		r.covering.open = false
	}
	return r
}

// with returns the state in which one grant is another.
func (r Resource) with(changed Grant) Resource {
	r.grants = slices.Clone(r.grants)
	for i := range r.grants {
		if r.grants[i].Token == changed.Token {
			r.grants[i] = changed
		}
	}
	return r
}
