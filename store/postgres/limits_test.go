package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestLimitsOfWrites checks each limit of a write, at its edge and one beyond, by every source.
func TestLimitsOfWrites(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	longestType := "text/plain; x=" + strings.Repeat("y", store.ContentTypeBytesMax-len("text/plain; x="))
	for name, c := range map[string]struct {
		spec  writeSpec
		valid bool
	}{
		"the greatest token":          {with(token(store.TokenMax)), true},
		"a token beyond":              {with(token(store.TokenMax + 1)), false},
		"a negative token":            {with(token(-1)), false},
		"the greatest sequence":       {with(newest, sequence(store.SequenceMax)), true},
		"a sequence beyond":           {with(newest, sequence(store.SequenceMax+1)), false},
		"a negative sequence":         {with(newest, sequence(-1)), false},
		"any version":                 {with(newest, expect(store.ExpectAny)), true},
		"an expectation below":        {with(newest, expect(store.ExpectAny-1)), false},
		"the longest content type":    {with(newest, contentType(longestType)), true},
		"a content type that is long": {with(newest, contentType(longestType+"y")), false},
		"no content type":             {with(newest, contentType("")), false},
		"a content type of nonsense":  {with(newest, contentType("text/plain; ;")), false},
		"a deletion without one":      {with(newest, deletion), true},
		"no kind":                     {with(newest, func(_ *fixture, w *store.Write) { w.Kind = "" }), false},
		"an unknown kind":             {with(newest, func(_ *fixture, w *store.Write) { w.Kind = "patch" }), false},
	} {
		for _, source := range []source{bySet, byOne, byTransaction} {
			s := b.given(t, "limits", acquire)
			before, err := b.Dump(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = source(t.Context(), b.Store, c.spec(s))
			after, dumpErr := b.Dump(t.Context())
			switch {
			case dumpErr != nil:
				t.Fatal(dumpErr)
			case c.valid && err != nil:
				t.Errorf("%s: %v", name, err)
			case !c.valid && (!errors.Is(err, store.ErrInvalid) || before != after):
				t.Errorf("%s: %v, want ErrInvalid, and no trace", name, err)
			}
			if err := s.do(t.Context(), release); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestInvalidWriteFailsItsSet checks that one write outside its limits, or with a name that was never parsed, fails its
// set before any is applied, and that the database refuses such a name of a lock.
func TestInvalidWriteFailsItsSet(t *testing.T) {
	t.Parallel()
	s := newFixture(t, acquire)
	set := func(bad writeSpec) error {
		_, err := s.Write(t.Context(), []store.Write{with(newest)(s), bad(s)})
		return err
	}
	err := s.Unchanged(t.Context(), func() error {
		if err := set(with(token(-1))); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "write 1") {
			return fmt.Errorf("the answer is %w, want ErrInvalid that names write 1", err)
		}
		_, acquireErr := s.Acquire(t.Context(), store.AcquireRequest{Lock: "a/", OwnerID: "w"})
		for _, err := range []error{set(with(newest, sequence(1), key("a//b"))), acquireErr} {
			if !errors.Is(err, store.ErrInvalidName) {
				return fmt.Errorf("the answer is %w, want ErrInvalidName", err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestLimitsOfTransactions checks that transactions outside their limits are refused.
func TestLimitsOfTransactions(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	tokens := func(count int) (tokens []store.WriteToken) {
		for i := range count {
			tokens = append(tokens, store.WriteToken{Resource: store.Name(fmt.Sprintf("r%d", i)), Token: 1})
		}
		return tokens
	}
	operations := func(count int) (operations []store.ResourceOperation) {
		for i := range count {
			operations = append(operations, store.ResourceOperation{
				Resource: "r0", Operation: store.Operation{Kind: store.Delete, Key: store.Name(fmt.Sprintf("k%d", i))},
			})
		}
		return operations
	}
	for name, c := range map[string]struct {
		tokens     []store.WriteToken
		operations []store.ResourceOperation
		want       error
	}{
		"as much as it may have": {tokens(store.WriteTokensMax), operations(store.OperationsMax),
			store.ErrUnknownToken},
		"no fence":            {nil, operations(1), store.ErrInvalid},
		"too many fences":     {tokens(store.WriteTokensMax + 1), operations(1), store.ErrInvalid},
		"no operation":        {tokens(1), nil, store.ErrInvalid},
		"too many operations": {tokens(1), operations(store.OperationsMax + 1), store.ErrInvalid},
		"a resource twice":    {append(tokens(1), tokens(1)...), operations(1), store.ErrInvalid},
		"a record twice":      {tokens(1), append(operations(1), operations(1)...), store.ErrInvalid},
		"an invalid write token": {[]store.WriteToken{{Resource: "r0", Token: -1}}, operations(1),
			store.ErrInvalid},
		"an operation of no kind": {tokens(1), []store.ResourceOperation{{Resource: "r0"}},
			store.ErrInvalid},
	} {
		transaction := store.Transaction{Tokens: c.tokens, Operations: c.operations}
		if _, err := b.Transact(t.Context(), transaction); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// fenceWays are the ways to make the fence of a name, for a principal.
var fenceWays = map[string]func(ctx context.Context, b *testbed, principal string, name store.Name) error{
	"an acquire": func(ctx context.Context, b *testbed, principal string, name store.Name) error {
		_, err := b.Acquire(ctx, store.AcquireRequest{Lock: name, OwnerID: "w", Principal: principal})
		return err
	},
	"an acquire of a name with a row": func(ctx context.Context, b *testbed, principal string, name store.Name) error {
		_, err := b.SQL.Exec(ctx, unusedFenceSQL, name)
		if err == nil {
			_, err = b.Acquire(ctx, store.AcquireRequest{Lock: name, OwnerID: "w", Principal: principal})
		}
		return err
	},
	"an acquire in a batch": func(ctx context.Context, b *testbed, principal string, name store.Name) error {
		if _, err := b.SQL.Exec(ctx, unusedFenceSQL, name); err != nil {
			return err
		}
		var decided []string
		err := b.SQL.QueryRow(ctx, "select array_agg(lock::text) from fence.acquire_leases(array['neighbour', $2], "+
			"array['w', 'w'], array['', $1], array['exclusive', 'exclusive'], array[1000, 1000], array[null, null], "+
			"array[null, null], array[0, 0], '{}')", principal, name).Scan(&decided)
		switch {
		case err == nil && !slices.Contains(decided, "neighbour"):
			return fmt.Errorf("%v were decided, and the neighbour was not", decided)
		case err != nil || len(decided) == 2:
			return err
		}
		_, err = b.Acquire(ctx, store.AcquireRequest{Lock: name, OwnerID: "w", Principal: principal})
		return err
	},
	"an acquire that waits": func(ctx context.Context, b *testbed, principal string, name store.Name) error {
		above, err := b.Acquire(ctx, store.AcquireRequest{Lock: name[:len(name)-2], OwnerID: "above", Scope: store.Subtree})
		if err != nil {
			return err
		}
		gateway, request := uuid.New(), store.AcquireRequest{
			Lock: name, OwnerID: "w", Principal: principal, Mode: store.Exclusive, Scope: store.Node, TTL: time.Minute,
			Wait: time.Minute, RequestID: uuid.NewString(),
		}
		if _, err = b.Enqueue(ctx, request, gateway, store.ToQueue{}); err == nil {
			err = b.requeuedWhenFull(ctx, request, gateway)
		}
		if released := b.Release(ctx, above.Ref()); err != nil || released != nil {
			return errors.Join(err, released)
		}
		_, err = b.GrantNext(ctx, gateway, name, store.Node, time.Second)
		return err
	},
	"a lease in Redis": func(ctx context.Context, b *testbed, principal string, name store.Name) error {
		_, err := b.GrantElsewhere(ctx, store.ElsewhereGrant{
			Lock: name, OwnerID: "w", Principal: principal, LeaseID: store.NewLeaseID(store.ProviderRedis), TTL: time.Hour,
		})
		return err
	},
	"a write below a subtree": belowSubtree(func(ctx context.Context, b *testbed, write store.Write) error {
		results, err := b.Write(ctx, []store.Write{write})
		if err == nil {
			err = results[0].Err
		}
		return err
	}),
	"a transaction below a subtree": belowSubtree(func(ctx context.Context, b *testbed, write store.Write) error {
		_, err := b.Transact(ctx, store.Transaction{
			Tokens:     []store.WriteToken{write.WriteToken},
			Operations: []store.ResourceOperation{{Resource: write.Resource, Operation: write.Operation}},
		})
		return err
	}),
	"a guard below a subtree": belowSubtree(func(ctx context.Context, b *testbed, write store.Write) error {
		_, err := b.SQL.Exec(ctx, "select fence.guard($1, $2)", write.Resource, write.Token)
		return err
	}),
}

// unusedFenceSQL makes the row of a name, as a request does that is refused.
const unusedFenceSQL = "insert into fence.fences (resource) values ($1) on conflict do nothing"

// requeuedWhenFull sends a request that waits again, while its principal may make no fence.
func (b *testbed) requeuedWhenFull(ctx context.Context, request store.AcquireRequest, gateway uuid.UUID) error {
	const fill = `update fence.fences_made set "full" = not "full" where principal = $1`
	if _, err := b.SQL.Exec(ctx, fill, request.Principal); err != nil {
		return err
	}
	_, err := b.Enqueue(ctx, request, gateway, store.ToQueue{Again: true})
	_, undone := b.SQL.Exec(ctx, fill, request.Principal)
	return errors.Join(err, undone)
}

// belowSubtree makes fences by writes with the token of a subtree lease, whose name has a fence of another principal.
func belowSubtree(
	write func(context.Context, *testbed, store.Write) error,
) func(context.Context, *testbed, string, store.Name) error {
	return func(ctx context.Context, b *testbed, principal string, name store.Name) error {
		request := store.AcquireRequest{Lock: name[:len(name)-2], OwnerID: "w", Scope: store.Subtree}
		other, err := b.Acquire(ctx, request)
		if err != nil {
			return err
		}
		if err := b.Release(ctx, other.Ref()); err != nil {
			return err
		}
		request.Principal = principal
		lease, err := b.Acquire(ctx, request)
		if err != nil {
			return err
		}
		err = write(ctx, b, store.Write{
			WriteToken: store.WriteToken{Resource: name, Token: lease.Token},
			Operation:  store.Operation{Kind: store.Put, Key: "k", ContentType: "text/plain", Value: []byte("v")},
		})
		return errors.Join(err, b.Release(ctx, lease.Ref()))
	}
}

// TestFencesOfOnePrincipal checks that a principal makes as many fences as one may, in every way, and then uses those
// that are there; that others make more; and that nobody is counted where a gateway asks for no credential.
func TestFencesOfOnePrincipal(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	source, _ := migrations.GuardSource("note_new_fence")
	b.Exec(t, "insert into fence.fences (resource, last_token) values ('neighbour', 1)")
	b.Exec(t, strings.NewReplacer(":= 10000000;", ":= 2;", ":= 256;", ":= 1;").Replace(source))
	for way, makeFence := range fenceWays {
		for _, c := range []struct {
			principal string
			name      store.Name
			full      bool
		}{
			{"p", "1", false}, {"p", "1", false}, {"p", "2", false}, {"p", "3", true}, {"p", "4", true}, {"p", "2", false},
			{"another", "3", false}, {"p", "3", false}, {"", "4", false}, {"", "5", false}, {"", "6", false},
		} {
			principal, name := c.principal, store.Name(way+"/"+string(c.name))
			if principal != "" {
				principal += " of " + way
			}
			err := makeFence(t.Context(), b, principal, name)
			b.Exec(t, "update fence.leases set ended_at = clock_timestamp(), end_reason = 'released' where ended_at is null")
			if full := errors.Is(err, store.ErrLimit) || sqlState(err) == "LF007"; full != c.full || err != nil && !full {
				t.Errorf("%s by %q makes %s: %v; want that it is refused: %t", way, principal, name, err, c.full)
			}
		}
	}
}

// TestLimitsOfConfigurations checks that configurations outside their limits are refused.
func TestLimitsOfConfigurations(t *testing.T) {
	t.Parallel()
	const url = "postgres://localhost/x"
	for _, config := range []postgres.Config{
		{},
		{DatabaseURL: "postgres://localhost:port/"},
		{DatabaseURL: url, ConnectionsMax: 1},
		{DatabaseURL: url, ConnectionsMax: 10_001},
		{DatabaseURL: url, StatementTimeout: 99 * time.Millisecond},
		{DatabaseURL: url, StatementTimeout: time.Hour + 1},
		{DatabaseURL: url, LockTimeout: 10*time.Millisecond - 1},
		{DatabaseURL: url, LockTimeout: time.Hour + 1},
	} {
		if _, err := postgres.Open(t.Context(), config); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", config, err)
		}
	}
	for _, config := range []postgres.SweeperConfig{
		{Interval: 9 * time.Millisecond}, {Interval: time.Hour + 1}, {LeaseRetention: time.Second - 1},
		{RejectionAge: time.Second - 1}, {RejectionsMax: -1}, {AuditAnonymousMax: -1},
	} {
		if _, err := postgres.NewSweeper(nil, config); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", config, err)
		}
	}
}

// nameJudge asks the database which texts are names, many at once.
type nameJudge struct{ sql *pgxpool.Pool }

func newNameJudge(t testing.TB) nameJudge {
	t.Helper()
	sql, err := pgxpool.New(context.Background(), pgtest.Migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sql.Close)
	_, err = sql.Exec(context.Background(), `
		create function public.is_name(text) returns boolean language plpgsql as $$
		begin
			perform $1::fence.name;
			return true;
		exception when check_violation then
			return false;
		end
		$$`)
	if err != nil {
		t.Fatal(err)
	}
	return nameJudge{sql}
}

// expectAgreement compares ParseName with the domain fence.name. What the database can't even hold as text must be no
// name.
func (j nameJudge) expectAgreement(t rapid.TB, texts []string) {
	var sendable []string
	for _, text := range texts {
		_, err := store.ParseName("lock", text)
		switch {
		case utf8.ValidString(text) && !strings.ContainsRune(text, 0):
			sendable = append(sendable, text)
		case err == nil:
			t.Fatalf("%q is a name, but no text", text)
		}
	}
	var verdicts []bool
	err := j.sql.QueryRow(context.Background(), `
		select coalesce(array_agg(public.is_name(text) order by index), '{}') from unnest($1::text[]) with ordinality t (text, index)`,
		sendable).Scan(&verdicts)
	if err != nil || len(verdicts) != len(sendable) {
		t.Fatalf("%d verdicts on %d texts: %v", len(verdicts), len(sendable), err)
	}
	for i, text := range sendable {
		if _, err := store.ParseName("lock", text); verdicts[i] != (err == nil) {
			t.Errorf("%q: the database says %v, ParseName %v", text, verdicts[i], err)
		}
	}
}

// nameLike makes texts that are names or nearly so.
func nameLike() *rapid.Generator[string] {
	segment := rapid.OneOf(
		rapid.SampledFrom([]string{"", ".", "..", "...", "a", "job-42", "x\x7f", "\u0085", strings.Repeat("s", 500),
			strings.Repeat("é", 250)}),
		rapid.StringOfN(rapid.RuneFrom(nil, unicode.Cc, unicode.L, unicode.P, unicode.Z), 1, 20, -1),
		rapid.StringN(1, 200, -1),
	)
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(segment, 0, 5).Draw(t, "segments"), "/")
	})
}

// TestCharactersAgreeWithDatabase checks that ParseName and the database agree on every character that could be
// special.
func TestCharactersAgreeWithDatabase(t *testing.T) {
	t.Parallel()
	var every []string // one of each character that could be special
	for char := rune(0); char < 0x300; char++ {
		every = append(every, string(char), "a/"+string(char)+"/b")
	}
	newNameJudge(t).expectAgreement(t, every)
}

// TestNamesAgreeWithDatabase checks that ParseName and the database agree on random texts.
func TestNamesAgreeWithDatabase(t *testing.T) {
	t.Parallel()
	judge := newNameJudge(t)
	rapid.Check(t, func(t *rapid.T) {
		judge.expectAgreement(t, rapid.SliceOfN(nameLike(), 1, 100).Draw(t, "texts"))
	})
}

func FuzzParseName(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "", "/", "a//b", ".", "..", "a\x00", "\xff", "é\u0080",
		strings.Repeat("x", 513)} {
		f.Add(seed)
	}
	judge := newNameJudge(f)
	f.Fuzz(func(t *testing.T, text string) { judge.expectAgreement(t, []string{text}) })
}
