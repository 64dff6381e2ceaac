// Package k8slock lets the leader election of Kubernetes' client-go run on fencegate. A [Lock] is a
// [resourcelock.Interface], for leaderelection.LeaderElectionConfig:
//
//	lock := k8slock.New(client, "controllers/billing", identity)
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
//		Lock:            lock,
//		LeaseDuration:   15 * time.Second,
//		RenewDeadline:   10 * time.Second,
//		RetryPeriod:     2 * time.Second,
//		ReleaseOnCancel: true,
//		Callbacks: leaderelection.LeaderCallbacks{
//			OnStartedLeading: func(ctx context.Context) {
//				lease := lock.Lease()
//				if ctx.Err() != nil {
//					return // the term is over already, and lease may be that of the next one
//				}
//				_, err := lease.Put(ctx, "state", state) // rejected once another candidate leads
//				…
//			},
//			OnStoppedLeading: func() { os.Exit(1) },
//		},
//	})
//
// With a Lease of Kubernetes, a leader that was paused may still write after another one has begun to lead: each checks
// its own clock, and nothing checks the writes. Here each term has a fencing token, and the gateway rejects the writes
// of an older term.
//
// # How an election is kept
//
// A term is a lease on the lock with the election's name, and its TTL is LeaseDuration in whole seconds. The elector's
// renewals renew it; there is no other heartbeat. In the record of the election
//
//   - LeaderTransitions is the term, which is the fencing token of the newest lease. It rises with each term, but not
//     by one. A token is below 2^53; where an int has 32 bits, LeaderTransitions stops at the greatest int. The number
//     that an elector writes is ignored: tokens are granted, not chosen.
//   - HolderIdentity is empty if nobody leads: after a release, and from the moment that the lease has expired. So
//     candidates take over at their next try.
//   - AcquireTime and RenewTime are by the database's clock.
//
// # Differences from a Lease of Kubernetes
//
//   - A term that is lost stays lost. Update returns a conflict until the elector has given up (LeaseDuration and a
//     second), although nobody may lead meanwhile. Otherwise a leader could lead again under a new token and not know
//     that another one led in between. A new Lock does not wait.
//   - A process that starts again with the same identity is another candidate: it waits until the old lease has ended.
//   - A release of a lost term succeeds and does nothing.
//   - LeaseDuration is at least a second.
//   - Coordinated leader election (Strategy, PreferredHolder) is not supported.
//
// Give the client WithAnswerTimeout of less than RenewDeadline, so that one request to a gateway that hangs leaves time
// for the next one.
package k8slock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// elections names the kind of a Lock in the errors that electors expect.
var elections = schema.GroupResource{Group: "fencegate", Resource: "elections"}

// errTermLost is the cause of the conflicts between the loss of a term and the next candidacy.
var errTermLost = errors.New("the term is over, and its elector may not have noticed yet")

// Lock is one candidate's view of an election. It is safe for concurrent use. Use one Lock for one elector at a time.
type Lock struct {
	client   *lockclient.Client
	election string
	identity string
	onEvent  func(event string)

	// lease is that of the newest term of this Lock.
	lease atomic.Pointer[lockclient.Lease]

	// mu lets one change run at a time.
	mu sync.Mutex
	// leads says that the term of lease has not been released, and that its elector may still lead by it.
	leads bool
	// lostUntil is when an elector that led by a lost term has given up; zero if the term is not known to be lost.
	lostUntil time.Time
}

var _ resourcelock.Interface = (*Lock)(nil)

// Option configures a Lock.
type Option func(*Lock)

// OnEvent sets a function that is called with what an elector reports, such as "became leader". Without it the reports
// are ignored.
func OnEvent(report func(event string)) Option {
	return func(l *Lock) { l.onEvent = report }
}

// New returns a lock for a candidate in an election. The identity is the owner of the leases, 1 to 256 bytes. Give each
// process its own.
func New(client *lockclient.Client, election, identity string, opts ...Option) *Lock {
	lock := &Lock{client: client, election: election, identity: identity, onEvent: func(string) {}}
	for _, opt := range opts {
		opt(lock)
	}
	return lock
}

// Lease returns the lease of this candidate's newest term, also after its end; nil before the first term. Write by its
// methods: they carry the term's fencing token, and are rejected once another candidate leads. Take it once at the
// beginning of OnStartedLeading, before a look at the ctx there: if that has not ended, the lease is this term's.
//
// Don't release it, but cancel the elector's ctx, with ReleaseOnCancel.
func (l *Lock) Lease() *lockclient.Lease { return l.lease.Load() }

// Identity returns the candidate's identity.
func (l *Lock) Identity() string { return l.identity }

// Describe names the election.
func (l *Lock) Describe() string { return "fencegate election " + l.election }

// RecordEvent reports an event to the function of OnEvent.
func (l *Lock) RecordEvent(event string) { l.onEvent(event) }

// Get returns the record of the election. The error is NotFound if there never was a leader.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lock, err := l.client.API().Lock(ctx, l.election)
	if errors.Is(err, lockclient.ErrNotFound) {
		return nil, nil, apierrors.NewNotFound(elections, l.election)
	}
	if err != nil {
		return nil, nil, err
	}
	return recordOf(lock)
}

// Create begins a term. The error is AlreadyExists if another candidate leads.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.change(ctx, record)
	if errors.Is(err, lockclient.ErrLockHeld) {
		return apierrors.NewAlreadyExists(elections, l.election)
	}
	return err
}

// Update renews the term, begins one, or ends it if the record has no holder. The error is Conflict if another candidate
// leads, or if the term is lost.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.change(ctx, record)
	if errors.Is(err, lockclient.ErrLockHeld) || errors.Is(err, errTermLost) {
		return apierrors.NewConflict(elections, l.election, err)
	}
	return err
}

func (l *Lock) change(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if record.HolderIdentity == "" {
		return l.resign(ctx)
	}
	if record.HolderIdentity != l.identity {
		return fmt.Errorf("%s: the record names %q, this candidate is %q", l.Describe(), record.HolderIdentity, l.identity)
	}
	if record.LeaseDurationSeconds < 1 {
		return fmt.Errorf("%s: LeaseDuration must be at least a second", l.Describe())
	}
	ttl := time.Duration(record.LeaseDurationSeconds) * time.Second
	if l.leads {
		err := l.renew(ctx, ttl)
		if l.lostUntil.IsZero() || time.Now().Before(l.lostUntil) {
			return err
		}
	}
	return l.campaign(ctx, ttl)
}

// renew renews the lease of the term, and notes its loss. RenewDeadline is less than LeaseDuration, of which ttl has the
// whole seconds. So an elector that is refused now has given up at lostUntil.
func (l *Lock) renew(ctx context.Context, ttl time.Duration) error {
	err := l.lease.Load().RenewWithTTL(ctx, ttl)
	if !errors.Is(err, lockclient.ErrLeaseLost) && !errors.Is(err, lockclient.ErrLeaseReleased) {
		return err
	}
	if l.lostUntil.IsZero() {
		l.lostUntil = time.Now().Add(ttl + time.Second)
	}
	return fmt.Errorf("%w: %w", errTermLost, err)
}

// campaign tries to begin a term. It does not wait in the lock's queue, since electors try again by themselves.
func (l *Lock) campaign(ctx context.Context, ttl time.Duration) error {
	lease, err := l.client.Acquire(ctx, l.election,
		lockclient.WithLeaseOwner(l.identity), lockclient.WithTTL(ttl), lockclient.WithMetadata(termMetadata{int(ttl / time.Second)}),
		lockclient.WithoutHeartbeat()) // the elector renews
	if err != nil {
		return err
	}
	l.lease.Store(lease)
	l.leads, l.lostUntil = true, time.Time{}
	return nil
}

// resign ends the term. An elector repeats a release at once for as long as it is a conflict, so that of a term which
// has ended is none.
func (l *Lock) resign(ctx context.Context) error {
	if !l.leads {
		return nil
	}
	if err := l.lease.Load().Release(ctx); err != nil && !errors.Is(err, lockclient.ErrLeaseLost) {
		return err
	}
	l.leads, l.lostUntil = false, time.Time{}
	return nil
}

// termMetadata is the metadata of a term's lease.
type termMetadata struct {
	LeaseDurationSeconds int `json:"lease_duration_seconds"`
}

// recordOf returns the record of an election, and bytes that differ after each change: also after a renewal within the
// same second, which the record does not show.
func recordOf(lock api.Lock) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record := resourcelock.LeaderElectionRecord{LeaderTransitions: int(min(lock.FencingToken, math.MaxInt))}
	if lock.State == "held" && lock.Holders[0].Mode == "exclusive" {
		leader := lock.Holders[0]
		var metadata termMetadata
		_ = json.Unmarshal(leader.Metadata, &metadata) // another client's has no duration
		record.HolderIdentity, record.LeaseDurationSeconds = leader.OwnerID, metadata.LeaseDurationSeconds
		record.AcquireTime = metav1.NewTime(leader.GrantedAt.Time)
		record.RenewTime = metav1.NewTime(leader.ExpiresAt.Add(-time.Duration(metadata.LeaseDurationSeconds) * time.Second))
	}
	lock.Queue, lock.QueueLength, lock.Fence = nil, 0, nil // they change without a change of the leader
	raw, err := json.Marshal(lock)
	return &record, raw, err
}
