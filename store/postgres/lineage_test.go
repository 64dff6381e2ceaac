package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestDatabaseWentBack checks what a Store does with a database that is replaced by a newer one, and then returns. The
// newer one is the same database with another accepted_at, which ranks above timelines.
func TestDatabaseWentBack(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	lease := b.granted(t, store.AcquireRequest{Lock: "lock", OwnerID: "w"})
	_, unlock := b.LockedBy(t, lockFenceSQL, "lock")
	written := make(chan error, 1)
	go func() { // a write waits for its fence with one connection, other calls change theirs
		_, err := b.Write(context.WithoutCancel(t.Context()), []store.Write{enginetest.Put(lease, 1, "v")})
		written <- err
	}()
	if err := b.AwaitBlocked(t.Context(), written); err != nil {
		t.Fatal(err)
	}

	b.Exec(t, "update fence.database_identity set accepted_at = now()")
	b.connectAnew(t, nil)
	unlock()
	if err := enginetest.Unavailable(<-written, store.OutcomeUnknown); err != nil {
		t.Errorf("a write that ended after another database had taken over: %v", err)
	}
	newest := mintOne(t, b, "b")

	b.Exec(t, "update fence.database_identity set accepted_at = null")
	b.connectAnew(t, store.ErrDatabaseWentBack)
	expectWentBack(t, b.Store, store.SignTimeline)
	fresh := openStore(t, postgres.Config{DatabaseURL: b.URL})
	expectRefused(t, b.Store)
	expectRefused(t, fresh)
	expectWentBack(t, fresh, store.SignSuperseded)
	if _, err := b.SQL.Exec(t.Context(), "select fence.acquire('c', 'w')"); sqlState(err) != "LF006" {
		t.Errorf("an acquire by SQL in the database that went back returned %v, want LF006", err)
	}

	b.Exec(t, "select fence.accept_database($1)", newest)
	b.Exec(t, "select fence.supersede(7, 8, 0)") // by a gateway that has judged it before
	for _, on := range []*postgres.Store{b.Store, fresh} {
		if token := mintOne(t, b.through(on), store.Name(fmt.Sprintf("after/%p", on))); token <= newest {
			t.Errorf("after it was accepted, the database granted token %d, %d was before", token, newest)
		}
	}
}

// TestTokenSequenceWentBack checks that a Store refuses a database whose token sequence is far lower than after a grant: at
// the next grant, and from then on at each connection.
func TestTokenSequenceWentBack(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, "select setval('fence.tokens', $1)", int64(1)<<40)
	mintOne(t, b, "a")
	b.Exec(t, "select setval('fence.tokens', 500)")
	_, err := b.Acquire(t.Context(), store.AcquireRequest{Lock: "b", OwnerID: "w"})
	if err := enginetest.Unavailable(err, store.OutcomeUnknown); err != nil {
		t.Errorf("the first acquire after the sequence went back: %v", err)
	}
	expectRefused(t, b.Store)
	expectWentBack(t, b.Store, store.SignTokens)
}

// connectAnew opens a connection that the Store judges, and expects an error.
func (b *testbed) connectAnew(t *testing.T, want error) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), b.ConnConfig())
	if !errors.Is(err, want) {
		t.Fatalf("a new connection returned %v, want %v", err, want)
	}
	if err == nil {
		_ = conn.Close(t.Context())
	}
}

// expectRefused expects that the Store changes nothing in its database, since that went back.
func expectRefused(t *testing.T, s *postgres.Store) {
	t.Helper()
	_, err := s.Acquire(t.Context(), store.AcquireRequest{Lock: "refused", OwnerID: "w"})
	if !errors.Is(err, store.ErrDatabaseWentBack) || enginetest.Unavailable(err, store.OutcomeNotApplied) != nil {
		t.Errorf("an acquire in a database that went back returned %v, want ErrDatabaseWentBack, not applied", err)
	}
	if err := probe(t.Context(), s); !errors.Is(err, store.ErrDatabaseWentBack) {
		t.Errorf("a probe returned %v, want ErrDatabaseWentBack", err)
	}
	if s.Failures()[store.ReasonWentBack] == 0 {
		t.Error("no failed statement was counted with the reason went_back")
	}
}

func expectWentBack(t *testing.T, s *postgres.Store, sign store.Sign) {
	t.Helper()
	if s.WentBack()[sign] == 0 {
		t.Errorf("the signs that were counted are %v, want %s among them", s.WentBack(), sign)
	}
}

func sqlState(err error) string {
	if reported, ok := errors.AsType[*pgconn.PgError](err); ok {
		return reported.Code
	}
	return ""
}
