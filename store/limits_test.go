package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
)

// TestLimitsOfWrites tries each limit of a write at its edge and one beyond, by both sources.
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
			s := &fixture{testbed: b, lock: "limits"}
			if err := s.do(t.Context(), acquire); err != nil {
				t.Fatal(err)
			}
			before, err := b.dump(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = source(t.Context(), b.Store, c.spec(s))
			after, dumpErr := b.dump(t.Context())
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

// One write outside its limits fails the set before any is applied.
func TestInvalidWriteFailsItsSet(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	s := &fixture{testbed: b, lock: "set"}
	if err := s.do(t.Context(), acquire); err != nil {
		t.Fatal(err)
	}
	err := b.unchanged(t.Context(), func() error {
		_, err := b.Write(t.Context(), []store.Write{with(newest)(s), with(token(-1))(s)})
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "write 1") {
			return fmt.Errorf("the answer is %w, want ErrInvalid that names write 1", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A name that was never parsed is caught by the database, with all that came along with it.
func TestUnparsedNames(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	s := &fixture{testbed: b, lock: "names"}
	if err := s.do(t.Context(), acquire); err != nil {
		t.Fatal(err)
	}
	err := b.unchanged(t.Context(), func() error {
		_, setErr := b.Write(t.Context(), []store.Write{with(newest)(s), with(newest, sequence(1), key("a//b"))(s)})
		_, acquireErr := b.Acquire(t.Context(), store.AcquireRequest{Lock: "a/", OwnerID: "w"})
		for _, err := range []error{setErr, acquireErr} {
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

func TestLimitsOfTransactions(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	claims := func(count int) (claims []store.WriteToken) {
		for i := range count {
			claims = append(claims, store.WriteToken{Resource: store.Name(fmt.Sprintf("r%d", i)), Token: 1})
		}
		return claims
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
		"as much as it may have":  {store.Transaction{claims(store.WriteTokensMax), operations(store.OperationsMax)}, store.ErrUnknownToken},
		"no fence":                {store.Transaction{nil, operations(1)}, store.ErrInvalid},
		"too many fences":         {store.Transaction{claims(store.WriteTokensMax + 1), operations(1)}, store.ErrInvalid},
		"no operation":            {store.Transaction{claims(1), nil}, store.ErrInvalid},
		"too many operations":     {store.Transaction{claims(1), operations(store.OperationsMax + 1)}, store.ErrInvalid},
		"a resource twice":        {store.Transaction{append(claims(1), claims(1)...), operations(1)}, store.ErrInvalid},
		"a record twice":          {store.Transaction{claims(1), append(operations(1), operations(1)...)}, store.ErrInvalid},
		"an invalid claim":        {store.Transaction{[]store.WriteToken{{Resource: "r0", Token: -1}}, operations(1)}, store.ErrInvalid},
		"an operation of no kind": {store.Transaction{claims(1), []store.ResourceOperation{{Resource: "r0"}}}, store.ErrInvalid},
	} {
		if _, err := b.Transact(t.Context(), c.transaction); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestLimitsOfLeases(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	long := func(bytes int) string { return strings.Repeat("x", bytes) }
	type request = store.AcquireRequest
	for name, c := range map[string]struct {
		request request
		valid   bool
	}{
		"the shortest TTL":       {request{TTL: store.TTLMin}, true},
		"a shorter TTL":          {request{TTL: store.TTLMin - time.Millisecond}, false},
		"the longest TTL":        {request{TTL: store.TTLMax}, true},
		"a longer TTL":           {request{TTL: store.TTLMax + time.Millisecond}, false},
		"a negative TTL":         {request{TTL: -time.Second}, false},
		"a part of ms":           {request{TTL: time.Second + time.Microsecond}, false},
		"the longest owner":      {request{OwnerID: long(store.OwnerBytesMax)}, true},
		"a longer owner":         {request{OwnerID: long(store.OwnerBytesMax + 1)}, false},
		"a control character":    {request{OwnerID: "a\x00b"}, false},
		"an owner not in UTF-8":  {request{OwnerID: "a\xff"}, false},
		"the longest request_id": {request{RequestID: long(store.RequestBytesMax)}, true},
		"a longer request_id":    {request{RequestID: long(store.RequestBytesMax + 1)}, false},
		"an empty object":        {request{Metadata: []byte("{}")}, true},
		"the longest metadata":   {request{Metadata: []byte(`{"a":"` + long(store.MetadataBytesMax-8) + `"}`)}, true},
		"longer metadata":        {request{Metadata: []byte(`{"a":"` + long(store.MetadataBytesMax-7) + `"}`)}, false},
		"metadata null":          {request{Metadata: []byte("null")}, false},
		"metadata a list":        {request{Metadata: []byte("[]")}, false},
		"metadata of nonsense":   {request{Metadata: []byte("{")}, false},
		"metadata of no bytes":   {request{Metadata: []byte{}}, false},
	} {
		c.request.Lock = store.Name(name)
		if c.request.OwnerID == "" {
			c.request.OwnerID = "w"
		}
		lease, err := b.Acquire(t.Context(), c.request)
		if c.valid != (err == nil) || !c.valid && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, valid is %v", name, err, c.valid)
		}
		if c.valid && string(lease.Metadata) != string(c.request.Metadata) {
			t.Errorf("%s: the metadata is %q", name, lease.Metadata)
		}
	}
	if _, err := b.Acquire(t.Context(), request{Lock: "no owner"}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no owner: %v, want ErrInvalid", err)
	}
}

func TestLimitsOfRenewals(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	s := &fixture{testbed: b, lock: "lock"}
	if err := s.do(t.Context(), acquire); err != nil {
		t.Fatal(err)
	}
	for _, ttl := range []time.Duration{store.TTLMin - 1, -time.Second, store.TTLMax + time.Millisecond} {
		if _, err := b.Renew(t.Context(), s.newest().Ref(), ttl); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a renewal for %s: %v, want ErrInvalid", ttl, err)
		}
	}
	for _, reason := range []string{"", strings.Repeat("x", store.ReasonBytesMax+1), "a\nb", "\xff"} {
		if _, err := b.Break(t.Context(), s.lock, reason); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a break for the reason %.10q: %v, want ErrInvalid", reason, err)
		}
	}
	broken, err := b.Break(t.Context(), s.lock, strings.Repeat("x", store.ReasonBytesMax))
	if err != nil || broken.Token != s.newest().Token || broken.ID != [16]byte{} {
		t.Errorf("the broken lease is %+v (%v); its ID is secret", broken, err)
	}
	if _, err := b.Break(t.Context(), s.lock, "again"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a break of what is broken: %v, want ErrNotFound", err)
	}
}

func TestLimitsOfConfigurations(t *testing.T) {
	t.Parallel()
	const url = "postgres://localhost/x"
	for _, config := range []store.Config{
		{},
		{DatabaseURL: "postgres://localhost:port/"},
		{DatabaseURL: url, ConnectionsMax: 1},
		{DatabaseURL: url, ConnectionsMax: 10_001},
		{DatabaseURL: url, StatementTimeout: 99 * time.Millisecond},
		{DatabaseURL: url, StatementTimeout: time.Hour + 1},
		{DatabaseURL: url, LockTimeout: 10*time.Millisecond - 1},
		{DatabaseURL: url, LockTimeout: time.Hour + 1},
	} {
		if _, err := store.Open(t.Context(), config); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", config, err)
		}
	}
	for _, config := range []store.SweeperConfig{
		{Interval: 9 * time.Millisecond}, {Interval: time.Hour + 1}, {LeaseRetention: time.Second - 1},
		{RejectionAge: time.Second - 1}, {RejectionsMax: -1},
	} {
		if _, err := store.NewSweeper(nil, config); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", config, err)
		}
	}
}
