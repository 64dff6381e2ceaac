package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
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

// mintOne grants a lock of its own and returns the token.
func mintOne(t *testing.T, b *testbed, lock store.Name) int64 {
	t.Helper()
	return b.granted(t, store.AcquireRequest{Lock: lock, OwnerID: "w"}).Token
}

// TestTokensJumpInAnotherDatabase checks that tokens jump once, by more than 2^32, when the database is another one
// than before.
func TestTokensJumpInAnotherDatabase(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"a restored backup": "update fence.database_identity set system_identifier = system_identifier + 1, " +
			"started_at = started_at - interval '1 hour'",
		"a promoted standby": "update fence.database_identity set timeline = timeline + 1",
		"older files":        "update fence.database_identity set started_at = started_at - interval '1 second'",
		"a restored dump":    "update fence.database_identity set tokens_oid = (tokens_oid::bigint + 1)::oid",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t)
			b.Exec(t, "select setval('fence.tokens', $1)", int64(1)<<50) // more than the time since 2025 is worth
			before := mintOne(t, b, "a")
			b.Exec(t, change)
			jumped, after := mintOne(t, b, "b"), mintOne(t, b, "c")
			if jumped <= before+1<<32 {
				t.Errorf("token %d was followed by %d, want a jump of more than 2^32", before, jumped)
			}
			if after != jumped+1 {
				t.Errorf("token %d was followed by %d: one jump is enough", jumped, after)
			}
			expectSQL(t, b, 1, "select jumps from fence.database_identity")
		})
	}
}

// TestOpenJumpsDelayNobody checks that tokens jump at once and once for all, whatever becomes of the SQL transactions
// whose grants make them jump at the same time: while these stay open, other grants wait for nothing, and their tokens
// have jumped, too; also after a rollback.
func TestOpenJumpsDelayNobody(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, "select setval('fence.tokens', $1)", int64(1)<<50)
	before := mintOne(t, b, "before")
	b.Exec(t, "update fence.database_identity set timeline = timeline + 1")
	const open = 4
	tokens := make([]int64, open)
	txs := make([]pgx.Tx, open)
	var jumping sync.WaitGroup
	for i := range open {
		txs[i] = b.begin(t)
		jumping.Go(func() {
			const acquire = "select fencing_token from fence.acquire($1, 'sql')"
			if err := txs[i].QueryRow(t.Context(), acquire, numbered("open", i)).Scan(&tokens[i]); err != nil {
				t.Error(err)
			}
		})
	}
	jumping.Wait()
	var locked int
	const locks = "select count(*) from pg_locks where locktype = 'advisory' and classid = 1718511207 and pid = pg_backend_pid()"
	for _, tx := range txs {
		if err := tx.QueryRow(t.Context(), locks).Scan(&locked); err != nil || locked != 0 {
			t.Errorf("a transaction that has jumped keeps %d locks (%v), want none", locked, err)
		}
	}
	for i := range 21 {
		tokens = append(tokens, mintOne(t, b, numbered("unrelated", i)))
	}
	if err := txs[0].Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	tokens = append(tokens, mintOne(t, b, numbered("open", 0)))
	slices.Sort(tokens)
	if tokens[0] <= before+1<<32 || tokens[len(tokens)-1] >= before+1<<33 || len(slices.Compact(tokens)) < open+22 {
		t.Errorf("token %d was followed by %d, want one jump of 2^32 and no token twice", before, tokens)
	}
	expectSQL(t, b, 1, "select jumps from fence.database_identity")
}

// TestTokensJumpByTime checks that the tokens of a database that was restored from long ago jump by the time that has
// passed.
func TestTokensJumpByTime(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	elapsed := b.Count(t,
		"select extract(epoch from clock_timestamp() - timestamptz '2025-01-01 00:00:00Z')::bigint - 1")
	b.Exec(t, "update fence.database_identity set timeline = timeline + 1")
	if jumped := mintOne(t, b, "a"); jumped < int64(elapsed)<<20 {
		t.Errorf("%d s after the beginning of 2025 the token is %d, want 2^20 for each", elapsed, jumped)
	}
}

// TestNoTokensAreLeft checks that no lock is granted after the greatest token.
func TestNoTokensAreLeft(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, "select setval('fence.tokens', $1)", store.TokenMax-1)
	if last := mintOne(t, b, "a"); last != store.TokenMax {
		t.Fatalf("the last token is %d, want %d", last, store.TokenMax)
	}
	err := b.Unchanged(t.Context(), func() error {
		_, err := b.Acquire(t.Context(), store.AcquireRequest{Lock: "b", OwnerID: "w"})
		if !errors.Is(err, store.ErrTokensExhausted) {
			t.Errorf("an acquire after the last token returned %v, want ErrTokensExhausted", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNoTokenIsLeftForALock checks that a lock whose fence is at the greatest token is not granted, whatever the
// sequence has left.
func TestNoTokenIsLeftForALock(t *testing.T) {
	t.Parallel()
	s := newFixture(t, external, wrote(with(token(store.TokenMax))), under(store.Policy{}))
	b := s.testbed
	if err := acquire(t.Context(), s); !errors.Is(err, store.ErrTokensExhausted) {
		t.Errorf("an acquire after the last token returned %v, want ErrTokensExhausted", err)
	}
	mintOne(t, b, "b")
}
