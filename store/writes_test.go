package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// setTrials are what a set of independent writes promises.
var setTrials = []trial{
	{"set: two writes to one resource are judged in the order given", func(ctx context.Context, s *stage) error {
		return s.expectSet(ctx, given{acquire},
			setCase{with(newest, sequence(1)), "admitted v1 created"},
			setCase{with(newest, sequence(2), expect(1)), "admitted v2"},
			setCase{with(newest, sequence(3), deletion, expect(2)), "admitted v3"},
			setCase{with(newest, sequence(4), expect(0)), "admitted v4 created"})
	}},
	{"alone: the answers to a put, another, and the retry of that", func(ctx context.Context, s *stage) error {
		if err := s.do(ctx, acquire); err != nil {
			return err
		}
		for i, want := range []string{"admitted v1 created", "admitted v2", "admitted v2 replayed"} {
			result, err := byOne(ctx, s.Store, with(newest, sequence(min(int64(i), 1)+1))(s))
			if got := brief(result); err != nil || got != want {
				return fmt.Errorf("answer %d is %s (%w), want %s", i, got, err, want)
			}
		}
		return nil
	}},
	{"set: puts of one resource, in the order given", func(ctx context.Context, s *stage) error {
		return s.expectSet(ctx, given{acquire},
			setCase{with(newest, sequence(1)), "admitted v1 created"},
			setCase{with(newest, sequence(2)), "admitted v2"},
			setCase{with(newest, sequence(3), key("other")), "admitted v3 created"})
	}},
	{"set: the first of two plain tokens counts", func(ctx context.Context, s *stage) error {
		return s.expectSet(ctx, given{acquire},
			setCase{with(newest), "admitted v1 created"},
			setCase{with(newest, key("other")), "token_stale reused"})
	}},
	{"set: a later one does not go first", func(ctx context.Context, s *stage) error {
		return s.expectSet(ctx, given{acquire},
			setCase{with(newest, sequence(2)), "admitted v1 created"},
			setCase{with(newest, sequence(1)), "token_stale reused"},
			setCase{with(newest, sequence(3)), "admitted v2"})
	}},
	{"set: a write and its retry", func(ctx context.Context, s *stage) error {
		return s.expectSet(ctx, given{acquire},
			setCase{with(newest, sequence(1)), "admitted v1 created"},
			setCase{with(newest, sequence(1)), "admitted v1 created replayed"},
			setCase{with(newest, sequence(2)), "admitted v2"},
			setCase{with(newest, sequence(2)), "admitted v2 replayed"})
	}},
	{"set: a rejected write does not fail its neighbours", func(ctx context.Context, s *stage) error {
		return s.expectSet(ctx, given{acquire, replace},
			setCase{with(newest, sequence(1)), "admitted v1 created"},
			setCase{with(first, sequence(2)), "token_stale superseded"},
			setCase{with(newest, sequence(3), expect(7)), "version_mismatch at 1"},
			setCase{with(newest, sequence(4), key("none"), expect(store.ExpectAny)), "version_mismatch at 0"},
			setCase{with(newest, sequence(4), key("none"), deletion), "not_found"},
			setCase{with(newest, sequence(4), otherLeaseID), "lease_mismatch"},
			setCase{with(beyond), "token_unknown"},
			setCase{with(none), "token_required"},
			setCase{with(newest, sequence(4)), "admitted v2"})
	}},
	{"set: many resources, the answers in the order of the writes", manyResources},
	{"versions: greater than those of the deleted", versionsIncrease},
	{"set: no write at all", func(ctx context.Context, s *stage) error {
		results, err := s.Write(ctx, nil)
		if err != nil || len(results) != 0 {
			return fmt.Errorf("the answer is %v (%w), want none", results, err)
		}
		return nil
	}},
}

func TestSets(t *testing.T) {
	t.Parallel()
	runTrials(t, setTrials)
}

// setCase is a write of a set and the answer it gets, as brief says it.
type setCase struct {
	write draft
	want  string
}

func (s *stage) expectSet(ctx context.Context, before given, cases ...setCase) error {
	if err := s.do(ctx, before...); err != nil {
		return err
	}
	var writes []store.Write
	for _, c := range cases {
		writes = append(writes, c.write(s))
	}
	results, err := s.Write(ctx, writes)
	if err != nil {
		return err
	}
	for i, c := range cases {
		if got := brief(results[i]); got != c.want {
			return fmt.Errorf("write %d: %s, want %s", i, got, c.want)
		}
	}
	return nil
}

// brief says all of a result in a line.
func brief(result store.Result) string {
	var rejected *store.RejectedError
	switch {
	case errors.Is(result.Err, store.ErrNotFound):
		return "not_found"
	case errors.As(result.Err, &rejected) && rejected.Verdict == store.VerdictVersionMismatch:
		return fmt.Sprintf("%s at %d", rejected.Verdict, rejected.Version)
	case errors.As(result.Err, &rejected):
		return strings.TrimSpace(string(rejected.Verdict) + " " + rejected.Reason)
	case result.Err != nil:
		return result.Err.Error()
	}
	text := fmt.Sprintf("admitted v%d", result.Version)
	if result.Created {
		text += " created"
	}
	if result.Replayed {
		text += " replayed"
	}
	return text
}

// manyResources writes twice to each of many resources, every third with a token that nobody was granted, in an order that is not
// that of their names.
func manyResources(ctx context.Context, s *stage) error {
	const resources = 100
	var stages []*stage
	for i := range resources {
		other := s.beside(fmt.Sprintf("-%d", resources-i))
		if err := other.do(ctx, acquire); err != nil {
			return err
		}
		stages = append(stages, other)
	}
	var writes []store.Write
	var want []string
	for turn := range 2 {
		for i, other := range stages {
			token, answer := tokenOf(newest), "admitted v1 created"
			if turn == 1 {
				answer = "admitted v2"
			}
			if i%3 == 0 {
				token, answer = beyond, "token_unknown"
			}
			writes = append(writes, with(token, sequence(int64(turn)), value(fmt.Sprint(turn, i)))(other))
			want = append(want, answer)
		}
	}
	results, err := s.Write(ctx, writes)
	if err != nil {
		return err
	}
	for i, result := range results {
		if got := brief(result); got != want[i] {
			return fmt.Errorf("write %d: %s, want %s", i, got, want[i])
		}
		if result.Err == nil && i >= resources {
			if err := s.expectRecord(ctx, writes[i], 2); err != nil {
				return err
			}
		}
	}
	return nil
}

// versionsIncrease makes a record again after its deletion, beside others: who read the first one is not fooled.
func versionsIncrease(ctx context.Context, s *stage) error {
	err := s.expectSet(ctx, given{acquire},
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest, sequence(2), key("other")), "admitted v2 created"},
		setCase{with(newest, sequence(3), deletion), "admitted v3"},
		setCase{with(newest, sequence(4), key("other"), deletion), "admitted v4"},
		setCase{with(newest, sequence(5)), "admitted v5 created"},
		setCase{with(newest, sequence(6), expect(1)), "version_mismatch at 5"})
	if err != nil {
		return err
	}
	return s.expectSet(ctx, given{replace}, setCase{with(newest, key("third")), "admitted v6 created"})
}

// A record's name and value come back as they were sent.
func TestValues(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	s := &stage{testbed: b, lock: "values"}
	if err := s.do(t.Context(), acquire); err != nil {
		t.Fatal(err)
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	values := map[store.Name]string{
		"empty": "", "every byte": string(every), "ключ/键/🔑": "text", store.Name(strings.Repeat("k", store.NameBytesMax)): strings.Repeat("v", 1<<20),
	}
	number := int64(0)
	for name, text := range values {
		number++
		write := with(newest, sequence(number), key(name), value(text), contentType(`text/plain; charset="utf-8"`))(s)
		if err := s.expectVerdict(t.Context(), bySet, write, store.Admitted, ""); err != nil {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	write := with(newest, sequence(number+1), key("nil"))(s)
	write.Value = nil
	if err := s.expectVerdict(t.Context(), bySet, write, store.Admitted, ""); err != nil {
		t.Errorf("a nil value: %v", err)
	}
}

// An authority elsewhere grants nothing here, so that the fence is made by the first write. If that is refused for its data, an
// empty fence stays, which nobody can tell from none.
func TestEmptyFence(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	s := &stage{testbed: b, lock: "external"}
	if err := s.do(t.Context(), external); err != nil {
		t.Fatal(err)
	}
	result, err := bySet(t.Context(), b.Store, with(token(7), expect(1))(s))
	if got := brief(result); err != nil || got != "version_mismatch at 0" {
		t.Errorf("the answer is %s (%v)", got, err)
	}
	if fence, err := b.Fence(t.Context(), s.lock); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the fence is %+v (%v), want ErrNotFound", fence, err)
	}
	if lock, err := b.Lock(t.Context(), s.lock); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the lock is %+v (%v), want ErrNotFound", lock, err)
	}
	if err := s.expectVerdict(t.Context(), bySet, with(token(1))(s), store.Admitted, ""); err != nil {
		t.Error(err)
	}
}
