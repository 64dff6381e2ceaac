package watch_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/watch"
)

// fakeDatabase answers each reading with the next state, and begins it before it waits for that.
type fakeDatabase struct {
	began  chan struct{}
	states chan store.WatchState
	failed error
}

func (*fakeDatabase) BeginWatch(_ context.Context, locks []store.Name, _ time.Duration, begun func(store.Name, string)) error {
	for _, lock := range locks {
		begun(lock, "key of "+string(lock))
	}
	return nil
}

func (f *fakeDatabase) WatchStates(context.Context, []store.Name) ([]store.WatchState, error) {
	if f.failed != nil {
		return nil, f.failed
	}
	f.began <- struct{}{}
	return []store.WatchState{<-f.states}, nil
}

// onFake runs a Broadcast on a fakeDatabase, with the time of synctest.
func onFake(t *testing.T, test func(t *testing.T, f *fakeDatabase, b *watch.Broadcast)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeDatabase{began: make(chan struct{}, 1), states: make(chan store.WatchState)}
		b := watch.New(f, time.Hour)
		go b.Run(t.Context(), func(error) {})
		test(t, f, b)
	})
}

func subscribe(t *testing.T, b *watch.Broadcast) *reader {
	t.Helper()
	s, err := b.Subscribe(t.Context(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	return &reader{Subscription: s}
}

// A subscription does not get the state of a reading that began before it: its reader may know a newer one already.
func TestSubscriptionWaitsForItsOwnReading(t *testing.T) {
	t.Parallel()
	onFake(t, func(t *testing.T, f *fakeDatabase, b *watch.Broadcast) {
		first := subscribe(t, b)
		<-f.began
		late := subscribe(t, b)
		f.states <- store.WatchState{Lock: store.Lock{Lock: "lock"}, Version: 10}
		<-f.began
		f.states <- store.WatchState{Lock: store.Lock{Lock: "lock"}, Version: 30}
		synctest.Wait()
		first.next(t)
		late.next(t)
		if first.last != 10 || late.last != 30 {
			t.Errorf("the versions are %d and %d, want 10, and 30 of the next reading", first.last, late.last)
		}
	})
}

// Versions rise where the clock of the database was set back.
func TestVersionsRiseWhenTheClockFalls(t *testing.T) {
	t.Parallel()
	onFake(t, func(t *testing.T, f *fakeDatabase, b *watch.Broadcast) {
		w := subscribe(t, b)
		for i, version := range []int64{100, 50, 50, 101} {
			f.states <- store.WatchState{Lock: store.Lock{Lock: "lock", Token: int64(i)}, Version: version}
			<-f.began
			if got := w.next(t).Token; got != int64(i) {
				t.Errorf("state %d has the token %d", i, got)
			}
			b.Fetch("key of lock")
		}
		<-f.began
		f.states <- store.WatchState{Lock: store.Lock{Lock: "lock", Token: 4}, Version: 102}
		w.next(t)
		if w.last != 104 {
			t.Errorf("the last version is %d, want 104, four above 100", w.last)
		}
	})
}

// Subscriptions end when locks could not be read for a minute, so that clients try another gateway.
func TestSubscriptionsEndWithoutADatabase(t *testing.T) {
	t.Parallel()
	onFake(t, func(t *testing.T, f *fakeDatabase, b *watch.Broadcast) {
		f.failed = store.NotApplied(errors.New("unreachable"))
		w := subscribe(t, b)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if state, err := w.Next(ctx); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("it returned %+v (%v), want ErrUnavailable", state, err)
		}
		if after := time.Since(began).Round(time.Second); after != time.Minute {
			t.Errorf("the subscription ended after %s, want a minute", after)
		}
	})
}

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// engines are several engines on one database.
type engines struct{ *enginetest.Engines }

func newEngines(t *testing.T, b *enginetest.DB, count int, config engine.Config) *engines {
	t.Helper()
	return &engines{enginetest.NewEngines(t, b, count, config)}
}

// nosyRole connects as a role that may use the name "mine" alone, and returns the channels of fencegate that it knows, to
// which it adds those that its own statements notify.
func nosyRole(t *testing.T, b *enginetest.DB) (listener *pgx.Conn, channels map[string]bool) {
	t.Helper()
	config, err := pgx.ParseConfig(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	role := pgx.Identifier{config.Database + "_listener"}.Sanitize()
	b.Exec(t, "create role "+role)
	t.Cleanup(func() {
		for _, sql := range []string{"drop owned by " + role, "drop role " + role} {
			if _, err := b.SQL.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	owner, err := pgx.Connect(t.Context(), b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(context.Background())
	err = migrations.Grant(t.Context(), owner, migrations.Roles{App: []string{strings.Trim(role, `"`)}, AppNames: []string{"mine"}})
	if err != nil {
		t.Fatal(err)
	}
	channels = map[string]bool{"fence_changes": true, "fence_keys": true, "fence_policies": true, "done": true}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if traced := regexp.MustCompile(`^Async_Notify\((.*)\)$`).FindStringSubmatch(n.Message); traced != nil {
			channels[traced[1]] = true
		}
	}
	listener, err = pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close(context.Background()) }) // before the role is dropped
	_, err = listener.Exec(t.Context(),
		"set session authorization "+role+"; set trace_notify = on; set client_min_messages = debug1")
	if err != nil {
		t.Fatal(err)
	}
	return listener, channels
}

// passOnSecretly has clients watch, wait for and pass on a lock in all ways that notify.
func passOnSecretly(t *testing.T, s *engines) {
	t.Helper()
	const secret = store.Name("secret/name")
	s.watch(t, 0, secret)
	session, err := s.CreateSession(await.Context(t), store.SessionRequest{OwnerID: "next", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, waiter := range []store.AcquireRequest{
		{Lock: secret, OwnerID: "next"}, {Lock: secret, OwnerID: "next", Mode: store.Shared},
		{Lock: "secret", OwnerID: "next", Scope: store.Subtree}, {Lock: secret, OwnerID: "next", SessionID: session.ID},
	} {
		holder := s.Acquire(t, 1, store.AcquireRequest{Lock: secret, OwnerID: "holder"})
		next := s.Queue(t, 0, waiter)
		if waiter.SessionID == session.ID {
			if _, err := s.EndSession(await.Context(t), session.ID); err != nil {
				t.Fatal(err)
			}
			<-next
			s.Release(t, 1, holder)
			continue
		}
		s.Release(t, 1, holder)
		s.Release(t, 0, enginetest.Granted(t, next))
	}
}

// TestNobodyHearsNames checks that a role which listens on all channels that it can learn hears no name that it may not
// use, and nothing that it could compare with one.
func TestNobodyHearsNames(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	s := newEngines(t, b, 2, enginetest.NoPoll)
	listener, channels := nosyRole(t, b)
	exec := func(sql string) {
		t.Helper()
		if _, err := listener.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}

	s.watch(t, 0, "mine")
	exec("select set_config('test.lease_id', lease_id::text, false), set_config('test.token', fencing_token::text, false) " +
		"from fence.acquire('mine', 'role')")
	mine := s.Queue(t, 0, store.AcquireRequest{Lock: "mine", OwnerID: "next"})
	exec("select fence.release('mine', 'role', current_setting('test.lease_id')::uuid, current_setting('test.token')::bigint)")
	enginetest.Granted(t, mine)
	if len(channels) != 5 {
		t.Fatalf("the role has learned the channels %v, want that of a gateway", channels)
	}
	for channel := range channels {
		exec("listen " + pgx.Identifier{channel}.Sanitize())
	}

	passOnSecretly(t, s)
	b.Exec(t, "notify done")
	heard := map[string]int{}
	opaque := regexp.MustCompile(`^(|[0-9a-f-]{36}|[0-9]+ [0-9a-f]{32})$`)
	for {
		notification, err := listener.WaitForNotification(await.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		if notification.Channel == "done" {
			break
		}
		heard[notification.Channel]++
		if !opaque.MatchString(notification.Payload) {
			t.Errorf("the role heard %q on %s", notification.Payload, notification.Channel)
		}
		for i := range 2 {
			id := strings.ReplaceAll(s.At(i).GatewayID().String(), "-", "")
			if strings.Contains(notification.Channel+notification.Payload, id) {
				t.Errorf("%s %s shows the id of a gateway, which turns names into payloads", notification.Channel, notification.Payload)
			}
		}
	}
	if len(heard) != 2 {
		t.Errorf("the role heard of %v, want changes and waiters", heard)
	}
}
