package k8slock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencegate/fencegate/lockclient"
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
	election, err := l.client.API().Election(ctx, l.election)
	if errors.Is(err, lockclient.ErrNotFound) {
		return nil, nil, apierrors.NewNotFound(elections, l.election)
	}
	if err != nil {
		return nil, nil, err
	}
	return recordOf(election)
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
		lockclient.WithLeaseOwner(l.identity), lockclient.WithTTL(ttl), lockclient.WithMetadata(termMetadata(ttl)),
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
