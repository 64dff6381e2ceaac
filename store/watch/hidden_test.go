package watch_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
)

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
