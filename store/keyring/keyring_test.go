package keyring

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/store"
)

// database has keys, and fails if it is down.
type database struct {
	mu    sync.Mutex
	live  store.LiveKeys
	down  atomic.Bool
	reads int
	uses  map[string]time.Duration
	slow  chan struct{} // a report waits until it is closed; nil: it does not wait
}

var errDown = errors.New("the database is down")

func (d *database) LiveKeys(_ context.Context, known int64) (*store.LiveKeys, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	if d.down.Load() {
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
	if d.down.Load() {
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

// running runs a keyring that has the key, on the clock of synctest, and returns whether it accepts the key.
func running(t *testing.T, d *database, key store.LiveKey) (accepted func() bool) {
	t.Helper()
	k := New(d)
	d.set(key)
	go k.Run(t.Context(), func(err error) {
		if !errors.Is(err, errDown) {
			t.Error(err)
		}
	})
	synctest.Wait()
	return func() bool { _, err := k.Find(key.ID, key.Digest); return err == nil }
}

// A change is seen without a notification, by polling. While the database is down, the keys stay, and uses are reported
// once it is back.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, a := &database{}, newKey("a")
		accepted := running(t, d, a)
		d.down.Store(true)
		if !accepted() {
			t.Error("the key is refused")
		}
		time.Sleep(time.Hour)
		if !accepted() {
			t.Error("the key is refused while the database is down")
		}
		d.down.Store(false)
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, used := d.uses[a.ID]; !used {
			t.Error("the use is not reported")
		}
		d.set()
		time.Sleep(time.Hour)
		if accepted() {
			t.Error("the key is accepted after it was revoked")
		}
	})
}

// A report of uses that hangs does not delay the end of a revoked key.
func TestSlowReportDelaysNoReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &database{slow: make(chan struct{})}
		defer close(d.slow)
		accepted := running(t, d, newKey("a"))
		if !accepted() {
			t.Error("the key is refused")
		}
		time.Sleep(time.Hour)
		d.set()
		time.Sleep(time.Hour)
		if accepted() {
			t.Error("the key is accepted after it was revoked")
		}
	})
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
