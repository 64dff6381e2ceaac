package load

import (
	"context"
	mathrand "math/rand/v2"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// Exercise is a load for tests that break gateways and databases while clients work, and that check more than an API
// shows. Its leases are exclusive, and its clients soon turn to another gateway.
type Exercise struct {
	Clients int
	Locks   []string
	// Gateway returns a gateway for a call. It is called by all clients at once.
	Gateway func(*mathrand.Rand) *lockclient.API
	// Compose returns the key and the value, in JSON, of a numbered write.
	Compose func(random *mathrand.Rand, number, owner string) (key, value string)
	// Put sends a write.
	Put      func(context.Context, *lockclient.API, string, string, lockclient.Write) (api.WriteResult, error)
	Observer Observer
	// TTLMS is the TTL of all leases, in milliseconds.
	TTLMS int64
	// FinishWithin bounds what was begun before the end.
	FinishWithin time.Duration
	// RenewalsMayBeLost says that the database may crash. Renewals do not wait for the disk: a crash may take one back
	// that was answered, and the lease then expires earlier.
	RenewalsMayBeLost bool
	// CommitsMayBeLost says that a database may take over which lacks the last commits of the one before. Then the run
	// checks nothing but that tokens rise.
	CommitsMayBeLost bool
	// SendNewestToken has clients send the newest token that any of them was granted with each acquire.
	SendNewestToken bool
}

// Observer is shown what clients do. Its methods are called by all of them at once. Times are since the begin of the
// run.
type Observer interface {
	// Granted is called with each lease. Its acquire was first sent at the time sent.
	Granted(lease api.Lease, sent, answered time.Duration)
	// Wrote is called with each write, when nothing more becomes known of it.
	Wrote(Write)
	// Unavailable is called with each answer that shows a gateway that can't serve, or that did not answer.
	Unavailable(error)
	// Unexpected is called with each answer that no client can have deserved.
	Unexpected(what string)
}

// Write is a numbered write, however often it was sent.
type Write struct {
	Resource, Key, Value string
	Token, Sequence      int64
	Attempts             int
	// MustFail is why it must be refused, whenever it comes; "" if it may be admitted.
	MustFail string
	// Applied writes were acknowledged. Doubtful ones may have been applied, once. All others were not.
	Applied, Doubtful bool
	// Of the attempt that was acknowledged, the first that was no replay if there is one:
	Sent, Answered time.Duration
	Version        int64
	Replayed       bool
}

// Run lets clients work until ctx ends, and bring to an end what they have begun. It returns what the load's own
// checker found, which needs no database.
func (e Exercise) Run(ctx context.Context, seed uint64) []Violation {
	r := newRun(e.Locks, seed)
	r.checker.renewalsMayBeLost, r.checker.commitsMayBeLost = e.RenewalsMayBeLost, e.CommitsMayBeLost
	r.sendNewestToken = e.SendNewestToken
	r.gateway, r.put, r.observer = e.Gateway, e.Put, e.Observer
	r.compose = func(random *mathrand.Rand, n number, owner string) (key, value string) {
		return e.Compose(random, n.String(), owner)
	}
	r.shared, r.waiting, r.reading, r.long = 0, 0, 0, 0
	r.freezing, r.abandoned, r.leaving = 20, 25, 25
	r.ttlLeastMS, r.ttlSpreadMS, r.writesMax = e.TTLMS, 1, 8
	r.patience, r.finishWithin = 500*time.Millisecond, e.FinishWithin
	r.work(ctx, e.Clients)
	found, _ := r.checker.violations()
	return found
}

// noObserver is the Observer of a load without one.
type noObserver struct{}

func (noObserver) Granted(api.Lease, time.Duration, time.Duration) {}
func (noObserver) Wrote(Write)                                     {}
func (noObserver) Unavailable(error)                               {}
func (noObserver) Unexpected(string)                               {}
