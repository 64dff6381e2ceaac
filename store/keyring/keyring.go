// Package keyring holds the API keys that are live in the memory of a gateway, so that no request needs a query to show
// who sends it, and no unknown key causes one.
//
// The database is authoritative. A Keyring reads the keys again when it is notified of a change, and every PollInterval
// if the count of changes has moved: a key that was revoked stops within milliseconds, and if the notification is lost,
// within PollInterval. While the database is unreachable it keeps the keys that it has. Nothing can be written then.
//
// A key expires by the clock of the database: a reading says how much longer the key lasts, and the Keyring measures
// that by its own monotonic clock.
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

	pollInterval, usesInterval time.Duration
}

// snapshot is one reading. It does not change.
type snapshot struct {
	changes int64
	keys    map[string]*entry
}

type entry struct {
	digest    apikey.Digest
	principal *access.Principal
	expiresAt time.Time // by this process's clock; zero: never
	use       *use      // the same in all readings
}

// use is when a key was last used, in seconds since 1970, and what of that was reported.
type use struct{ last, reported atomic.Int64 }

// New returns a Keyring. It knows no key until Reload was called, or Run runs.
func New(from Keys) *Keyring {
	return &Keyring{
		from: from, wake: make(chan struct{}, 1), pollInterval: PollInterval, usesInterval: usesInterval,
	}
}

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
	now := time.Now()
	if !found.expiresAt.IsZero() && !now.Before(found.expiresAt) {
		return nil, ErrExpired
	}
	if seconds := now.Unix(); found.use.last.Load() < seconds { // many requests of a second share one write
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

// Run follows the changes and reports uses until ctx ends. It passes errors to onError, and tries again.
func (k *Keyring) Run(ctx context.Context, onError func(error)) {
	poll, report := time.NewTicker(k.pollInterval), time.NewTicker(k.usesInterval)
	defer poll.Stop()
	defer report.Stop()
	k.Wake()
	for {
		var err error
		select {
		case <-ctx.Done():
			err = k.ReportUses(context.WithoutCancel(ctx))
			if err != nil {
				onError(err)
			}
			return
		case <-k.wake:
			err = k.Reload(ctx)
		case <-poll.C:
			err = k.Reload(ctx)
		case <-report.C:
			err = k.ReportUses(ctx)
		}
		if err != nil && ctx.Err() == nil {
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
	before, known := k.current.Load(), int64(-1)
	if before != nil {
		known = before.changes
	}
	sent := time.Now()
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
func newSnapshot(before *snapshot, live *store.LiveKeys, sent time.Time) *snapshot {
	next := &snapshot{changes: live.Changes, keys: make(map[string]*entry, len(live.Keys))}
	for _, key := range live.Keys {
		e := &entry{
			digest: key.Digest, principal: access.New(key.Principal, access.Key, key.Grants), use: &use{},
		}
		if !key.ExpiresAt.IsZero() {
			e.expiresAt = sent.Add(key.ExpiresAt.Sub(live.At))
			e.principal.ExpiresAt = e.expiresAt
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
	now, lasts, ages := time.Now(), map[*use]int64{}, map[string]time.Duration{}
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
