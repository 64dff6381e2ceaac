package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
		transaction store.Transaction
		want        error
	}{
		"as much as it may have": {store.Transaction{Tokens: tokens(store.WriteTokensMax), Operations: operations(store.OperationsMax)},
			store.ErrUnknownToken},
		"no fence":            {store.Transaction{Tokens: nil, Operations: operations(1)}, store.ErrInvalid},
		"too many fences":     {store.Transaction{Tokens: tokens(store.WriteTokensMax + 1), Operations: operations(1)}, store.ErrInvalid},
		"no operation":        {store.Transaction{Tokens: tokens(1), Operations: nil}, store.ErrInvalid},
		"too many operations": {store.Transaction{Tokens: tokens(1), Operations: operations(store.OperationsMax + 1)}, store.ErrInvalid},
		"a resource twice":    {store.Transaction{Tokens: append(tokens(1), tokens(1)...), Operations: operations(1)}, store.ErrInvalid},
		"a record twice":      {store.Transaction{Tokens: tokens(1), Operations: append(operations(1), operations(1)...)}, store.ErrInvalid},
		"an invalid write token": {store.Transaction{Tokens: []store.WriteToken{{Resource: "r0", Token: -1}}, Operations: operations(1)},
			store.ErrInvalid},
		"an operation of no kind": {store.Transaction{Tokens: tokens(1), Operations: []store.ResourceOperation{{Resource: "r0"}}},
			store.ErrInvalid},
	} {
		if _, err := b.Transact(t.Context(), c.transaction); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
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
