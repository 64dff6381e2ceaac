package postgres_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

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
