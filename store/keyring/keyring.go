// Package keyring holds the API keys that are live in the memory of a gateway, so that no request needs a query to show
// who sends it, and no unknown key causes one.
//
// The database is authoritative. A Keyring reads the keys again when it is notified of a change, and every PollInterval
// if the count of changes has moved: a key that was revoked stops within milliseconds, and if the notification is lost,
// within PollInterval. While the database is unreachable it keeps the keys that it has. Nothing can be written then.
//
// A key expires by the clock of the database: a reading says how much longer the key lasts, and the Keyring measures
// that by its monotonic clock, which nobody sets, and by its wall clock, which does not stop while the machine is
// suspended. The key has expired when either says so. When the two differ more than at the reading, the Keyring reads
// the keys again.
package keyring

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/store"
)

const (
	// PollInterval is the time between two looks for changes whose notification was lost.
	PollInterval = 5 * time.Second
	// usesInterval is the time between two reports of when keys were used.
	usesInterval = time.Minute
	// readTimeout bounds a reading and a report.
	readTimeout = 5 * time.Second
	// driftMax is how far the wall clock may move from the monotonic one before the keys are read again.
	driftMax = time.Second
)

// Why a key is not accepted.
var (
	ErrUnknown  = errors.New("there is no live key with this id and secret")
	ErrExpired  = errors.New("the key has expired")
	ErrNotReady = errors.New("the keys were not read yet")
)

// Keys is what a Keyring needs of the store.
type Keys interface {
	LiveKeys(ctx context.Context, known int64) (*store.LiveKeys, error)
	NoteKeyUses(ctx context.Context, ages map[string]time.Duration) error
}

// Keyring knows all live keys. It is safe for concurrent use.
type Keyring struct {
	from    Keys
	current atomic.Pointer[snapshot] // nil: the keys were not read yet
	wake    chan struct{}
	reading sync.Mutex
	now     func() instant
}

// instant is a time by both clocks of this process.
type instant struct {
	wall      time.Time     // without a monotonic reading
	monotonic time.Duration // since the start of the process
}

var started = time.Now()

func now() instant {
	now := time.Now()
	return instant{now.Round(0), now.Sub(started)}
}

func (i instant) add(d time.Duration) instant { return instant{i.wall.Add(d), i.monotonic + d} }

// before reports whether an instant is before another one by both clocks.
func (i instant) before(other instant) bool {
	return i.monotonic < other.monotonic && i.wall.Before(other.wall)
}

// drift is how far the wall clock was set, or the monotonic clock stood still, since an earlier instant.
func (i instant) drift(since instant) time.Duration {
	return (i.wall.Sub(since.wall) - (i.monotonic - since.monotonic)).Abs()
}

// snapshot is one reading. It does not change.
type snapshot struct {
	changes int64
	sent    instant
	keys    map[string]*entry
}

type entry struct {
	digest    apikey.Digest
	principal *access.Principal
	expiresAt *instant // by this process's clocks; nil: never
	use       *use     // the same in all readings
}

// use is when a key was last used, in seconds since 1970, and what of that was reported.
type use struct{ last, reported atomic.Int64 }

// New returns a Keyring. It knows no key until Reload was called, or Run runs.
func New(from Keys) *Keyring {
	return &Keyring{from: from, wake: make(chan struct{}, 1), now: now}
}

// Ready reports whether the keys were read.
func (k *Keyring) Ready() bool { return k.current.Load() != nil }

// Find returns the principal of a key. It returns ErrUnknown, ErrExpired or ErrNotReady.
func (k *Keyring) Find(id string, digest apikey.Digest) (*access.Principal, error) {
	current := k.current.Load()
	if current == nil {
		return nil, ErrNotReady
	}
	found := current.keys[id]
	if found == nil || subtle.ConstantTimeCompare(found.digest[:], digest[:]) == 0 {
		return nil, ErrUnknown
	}
	now := k.now()
	if found.expiresAt != nil && !now.before(*found.expiresAt) {
		return nil, ErrExpired
	}
	if seconds := now.wall.Unix(); found.use.last.Load() < seconds { // many requests of a second share one write
		found.use.last.Store(seconds)
	}
	return found.principal, nil
}

// Wake has Run read the keys again, if they have changed.
func (k *Keyring) Wake() {
	select {
	case k.wake <- struct{}{}:
	default: // it will
	}
}

// Run follows the changes and reports uses until ctx ends. It passes errors to onError, and tries again. A report that
// takes long delays no reading.
func (k *Keyring) Run(ctx context.Context, onError func(error)) {
	var reporting sync.WaitGroup
	defer reporting.Wait()
	reporting.Go(func() { k.runReports(ctx, onError) })
	poll := time.NewTicker(PollInterval)
	defer poll.Stop()
	k.Wake()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-poll.C:
		}
		if err := k.Reload(ctx); err != nil && ctx.Err() == nil {
			onError(err)
		}
	}
}

func (k *Keyring) runReports(ctx context.Context, onError func(error)) {
	report := time.NewTicker(usesInterval)
	defer report.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-report.C:
		}
		if err := k.ReportUses(context.WithoutCancel(ctx)); err != nil {
			onError(err)
		}
	}
}

// Reload reads the keys if they have changed. It returns ErrUnavailable, or an error that says which keys this version
// can't read and refuses; all others are in use then.
func (k *Keyring) Reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	k.reading.Lock()
	defer k.reading.Unlock()
	before, known, sent := k.current.Load(), int64(-1), k.now()
	if before != nil && sent.drift(before.sent) <= driftMax {
		known = before.changes
	}
	live, err := k.from.LiveKeys(ctx, known)
	if err != nil {
		return fmt.Errorf("read the keys: %w", err)
	}
	if live == nil {
		return nil
	}
	k.current.Store(newSnapshot(before, live, sent))
	if live.Unreadable != nil {
		return fmt.Errorf("keys are refused: %w", live.Unreadable)
	}
	return nil
}

// newSnapshot makes a snapshot of a reading that was sent at a time of this process: at live.At of the database, or
// before it. So no key lasts longer than the database says.
func newSnapshot(before *snapshot, live *store.LiveKeys, sent instant) *snapshot {
	next := &snapshot{changes: live.Changes, sent: sent, keys: make(map[string]*entry, len(live.Keys))}
	for _, key := range live.Keys {
		e := &entry{
			digest: key.Digest, principal: access.New(key.Principal, access.Key, key.Grants), use: &use{},
		}
		if !key.ExpiresAt.IsZero() {
			e.expiresAt = new(sent.add(key.ExpiresAt.Sub(live.At)))
			e.principal.ExpiresAt = e.expiresAt.wall
		}
		if before != nil && before.keys[key.ID] != nil {
			e.use = before.keys[key.ID].use
		}
		next.keys[key.ID] = e
	}
	return next
}

// ReportUses reports, in one statement, when the keys were last used that were used since the last report. It returns
// ErrUnavailable; then the next report has them, too.
func (k *Keyring) ReportUses(ctx context.Context) error {
	current := k.current.Load()
	if current == nil {
		return nil
	}
	now, lasts, ages := k.now().wall, map[*use]int64{}, map[string]time.Duration{}
	for id, key := range current.keys {
		if last := key.use.last.Load(); last > key.use.reported.Load() {
			lasts[key.use], ages[id] = last, max(0, now.Sub(time.Unix(last, 0)))
		}
	}
	if len(ages) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := k.from.NoteKeyUses(ctx, ages); err != nil {
		return fmt.Errorf("report the uses of keys: %w", err)
	}
	for of, last := range lasts {
		of.reported.Store(last)
	}
	return nil
}
