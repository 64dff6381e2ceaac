package keyring

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/store"
)

// database has keys, and fails if it is down.
type database struct {
	mu    sync.Mutex
	live  store.LiveKeys
	down  bool
	reads int
	uses  map[string]time.Duration
	slow  chan struct{} // a report waits until it is closed; nil: it does not wait
}

var errDown = errors.New("the database is down")

func (d *database) LiveKeys(_ context.Context, known int64) (*store.LiveKeys, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	if d.down {
		return nil, errDown
	}
	if known == d.live.Changes {
		return nil, nil //nolint:nilnil // as postgres.Store.LiveKeys
	}
	copied := d.live
	return &copied, nil
}

func (d *database) NoteKeyUses(_ context.Context, ages map[string]time.Duration) error {
	if d.slow != nil {
		<-d.slow
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return errDown
	}
	d.uses = ages
	return nil
}

func (d *database) set(keys ...store.LiveKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live = store.LiveKeys{Changes: d.live.Changes + 1, At: time.Now().Add(-time.Hour), Keys: keys}
}

func newKey(principal string) store.LiveKey {
	_, id, digest := apikey.New()
	return store.LiveKey{ID: id, Digest: digest, Principal: principal, Grants: []access.Grant{{Scope: access.Read}}}
}

func expect(t *testing.T, k *Keyring, key store.LiveKey, want error) {
	t.Helper()
	principal, err := k.Find(key.ID, key.Digest)
	if !errors.Is(err, want) || (err == nil && (principal.Name != key.Principal || !principal.MayAll(access.Read))) {
		t.Errorf("found %v, %v, want the principal %s and %v", principal, err, key.Principal, want)
	}
}

// A key is found by its id and its secret, neither alone is enough, and it expires by the database's clock, which here
// is an hour behind.
func TestFind(t *testing.T) {
	t.Parallel()
	d := &database{}
	k, a, b, old, young := New(d), newKey("a"), newKey("b"), newKey("old"), newKey("young")
	expect(t, k, a, ErrNotReady)
	d.set(a, old, young)
	old.ExpiresAt, young.ExpiresAt = d.live.At, d.live.At.Add(time.Minute)
	d.live.Keys = []store.LiveKey{a, old, young}
	if err := k.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, k, a, nil)
	expect(t, k, b, ErrUnknown)
	expect(t, k, store.LiveKey{ID: a.ID, Digest: b.Digest}, ErrUnknown)
	expect(t, k, store.LiveKey{ID: b.ID, Digest: a.Digest}, ErrUnknown)
	expect(t, k, old, ErrExpired)
	expect(t, k, young, nil)
	if d.reads != 1 {
		t.Errorf("there were %d readings, want 1: a request causes none", d.reads)
	}
}

// A change is seen without a notification, by polling. While the database is down, the keys stay, and uses are reported
// once it is back.
func TestRun(t *testing.T) {
	t.Parallel()
	d := &database{}
	k, a := New(d), newKey("a")
	k.pollInterval, k.usesInterval = 5*time.Millisecond, 5*time.Millisecond
	d.set(a)
	ctx, end := context.WithCancel(t.Context())
	failures := make(chan error, 1000)
	var running sync.WaitGroup
	running.Go(func() {
		k.Run(ctx, func(err error) {
			select {
			case failures <- err:
			default:
			}
		})
	})
	defer running.Wait()
	defer end()
	accepted := func() bool { _, err := k.Find(a.ID, a.Digest); return err == nil }
	await.True(t, "the key is accepted", accepted)

	d.mu.Lock()
	d.down, d.uses = true, nil
	d.mu.Unlock()
	if err := <-failures; !errors.Is(err, errDown) {
		t.Errorf("got %v, want %v", err, errDown)
	}
	if !accepted() {
		t.Error("the key is refused while the database is down")
	}
	d.mu.Lock()
	d.down = false
	d.mu.Unlock()
	await.True(t, "the use is reported", func() bool {
		accepted()
		d.mu.Lock()
		defer d.mu.Unlock()
		_, used := d.uses[a.ID]
		return used
	})
	d.set()
	await.True(t, "the key is refused after it was revoked", func() bool { return !accepted() })
}

// A report of uses that hangs does not delay the end of a revoked key.
func TestSlowReportDelaysNoReading(t *testing.T) {
	t.Parallel()
	d := &database{slow: make(chan struct{})}
	k, a := New(d), newKey("a")
	k.pollInterval, k.usesInterval = 5*time.Millisecond, 5*time.Millisecond
	d.set(a)
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.Run(ctx, func(error) {}) })
	defer running.Wait()
	defer close(d.slow)
	defer end()
	accepted := func() bool { _, err := k.Find(a.ID, a.Digest); return err == nil }
	await.True(t, "the key is accepted, and its use reported", accepted)
	d.set()
	await.True(t, "the key is refused after it was revoked", func() bool { return !accepted() })
}

// A key expires while the machine is suspended, when only the wall clock goes on, and while the wall clock is set back.
// When a clock was set, the keys are read again, though they have not changed: a wall clock that was set forward refuses
// no key for longer.
func TestClocks(t *testing.T) {
	t.Parallel()
	d, clock := &database{}, now()
	k, minute := New(d), newKey("a")
	k.now = func() instant { return clock }
	reload := func() {
		t.Helper()
		if err := k.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d.set()
	minute.ExpiresAt = d.live.At.Add(time.Minute)
	d.live.Keys = []store.LiveKey{minute}
	reload()
	expect(t, k, minute, nil)

	clock.wall = clock.wall.Add(2 * time.Minute) // it was suspended, or its clock was set forward
	expect(t, k, minute, ErrExpired)
	reload()
	expect(t, k, minute, nil) // by the database's clock it still lasts a minute

	clock.wall = clock.wall.Add(-time.Hour)
	clock.monotonic += 2 * time.Minute
	expect(t, k, minute, ErrExpired)
}
