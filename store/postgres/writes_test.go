package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

// setCases are promises of a set of independent writes.
var setCases = []storeCase{
	{"set: two writes to one resource are judged in the order given", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest, sequence(2), expect(1)), "admitted v2"},
		setCase{with(newest, sequence(3), deletion, expect(2)), "admitted v3"},
		setCase{with(newest, sequence(4), expect(0)), "admitted v4 created"}))},
	{"alone: the answers to a put, another, and the retry of that", all(acquire,
		setOf(setCase{with(newest, sequence(1)), "admitted v1 created"}),
		setOf(setCase{with(newest, sequence(2)), "admitted v2"}),
		setOf(setCase{with(newest, sequence(2)), "admitted v2 replayed"}))},
	{"set: puts of one resource, in the order given", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest, sequence(2)), "admitted v2"},
		setCase{with(newest, sequence(3), key("other")), "admitted v3 created"}))},
	{"set: the first of two plain tokens counts", all(acquire, setOf(
		setCase{with(newest), "admitted v1 created"},
		setCase{with(newest, key("other")), "token_stale reused"}))},
	{"set: a later one does not go first", all(acquire, setOf(
		setCase{with(newest, sequence(2)), "admitted v1 created"},
		setCase{with(newest, sequence(1)), "token_stale reused"},
		setCase{with(newest, sequence(3)), "admitted v2"}))},
	{"set: a write and its retry", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest, sequence(1)), "admitted v1 created replayed"},
		setCase{with(newest, sequence(2)), "admitted v2"},
		setCase{with(newest, sequence(2)), "admitted v2 replayed"}))},
	{"set: a rejected write does not fail its neighbours", all(acquire, replace, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(first, sequence(2)), "token_stale superseded"},
		setCase{with(newest, sequence(3), expect(7)), "version_mismatch at 1"},
		setCase{with(newest, sequence(4), key("none"), expect(store.ExpectAny)), "version_mismatch at 0"},
		setCase{with(newest, sequence(4), key("none"), deletion), "not found"},
		setCase{with(newest, sequence(4), otherLeaseID), "lease_mismatch"},
		setCase{with(beyond), "token_unknown"},
		setCase{with(none), "token_required"},
		setCase{with(newest, sequence(4)), "admitted v2"}))},
	{"set: many resources, the answers in the order of the writes", manyResources},
	{"versions: greater than those of the deleted", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest, sequence(2), key("other")), "admitted v2 created"},
		setCase{with(newest, sequence(3), deletion), "admitted v3"},
		setCase{with(newest, sequence(4), key("other"), deletion), "admitted v4"},
		setCase{with(newest, sequence(5)), "admitted v5 created"},
		setCase{with(newest, sequence(6), expect(1)), "version_mismatch at 5"}),
		replace, setOf(setCase{with(newest, key("third")), "admitted v6 created"}))},
	{"set: no write at all", setOf()},
}

// setCase is a write of a set and the answer it gets, as brief says it.
type setCase struct {
	write writeSpec
	want  string
}

// setOf sends a set of writes and compares their answers.
func setOf(cases ...setCase) step {
	return func(ctx context.Context, s *fixture) error {
		var writes []store.Write
		for _, c := range cases {
			writes = append(writes, c.write(s))
		}
		results, err := s.Write(ctx, writes)
		if err != nil || len(results) != len(cases) {
			return fmt.Errorf("the answers are %+v (%w), want %d", results, err, len(cases))
		}
		for i, c := range cases {
			if got := brief(results[i]); got != c.want {
				return fmt.Errorf("write %d: %s, want %s", i, got, c.want)
			}
		}
		return nil
	}
}

// brief is results in a line.
func brief(results ...store.Result) string {
	texts := make([]string, len(results))
	for i, result := range results {
		answer := storetest.WriteAnswer(result)
		texts[i] = verdictOf(answer)
		switch {
		case answer.Code == string(store.VerdictVersionMismatch):
			texts[i] += fmt.Sprintf(" at %d", answer.Version)
		case result.Err == nil:
			texts[i] = fmt.Sprintf("admitted v%d", result.Version) +
				map[bool]string{true: " created"}[result.Created] + map[bool]string{true: " replayed"}[result.Replayed]
		}
	}
	return strings.Join(texts, ", ")
}

// manyResources writes twice to each of many resources, every third with a token that was never granted, in an order
// that is not that of their names. The second writes are then read.
func manyResources(ctx context.Context, s *fixture) error {
	const resources = 100
	var cases []setCase
	var records []step
	for turn := range 2 {
		for i := range resources {
			name := store.Name(fmt.Sprintf("-%d", resources-i))
			token, answer := tokenOf(newest), []string{"admitted v1 created", "admitted v2"}[turn]
			if i%3 == 0 {
				token, answer = beyond, "token_unknown"
			}
			spec := inResource(name, token, sequence(int64(turn)), value(fmt.Sprint(turn, i)))
			cases = append(cases, setCase{spec, answer})
			if turn == 0 {
				if err := onBelow(name, acquire)(ctx, s); err != nil {
					return err
				}
			} else if i%3 > 0 {
				records = append(records, func(ctx context.Context, s *fixture) error { return s.expectRecord(ctx, spec(s), 2) })
			}
		}
	}
	return s.do(ctx, setOf(cases...), all(records...))
}

// TestValues checks that a record's key and value are read as they were sent.
func TestValues(t *testing.T) {
	t.Parallel()
	s := newFixture(t, acquire)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	values := map[store.Name]string{
		"empty": "", "every byte": string(every), "ключ/键/🔑": "text",
		store.Name(strings.Repeat("k", store.NameBytesMax)): strings.Repeat("v", 1<<20),
	}
	number := int64(0)
	for name, text := range values {
		number++
		write := with(newest, sequence(number), key(name), value(text), contentType(`text/plain; charset="utf-8"`))(s)
		if err := s.expectVerdict(t.Context(), bySet, write, "admitted"); err != nil {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	write := with(newest, sequence(number+1), key("nil"))(s)
	write.Value = nil
	if err := s.expectVerdict(t.Context(), bySet, write, "admitted"); err != nil {
		t.Errorf("a nil value: %v", err)
	}
}

// TestEmptyFence checks that a first write under an external authority that is refused for its data leaves no fence
// that can be seen, though its row exists.
func TestEmptyFence(t *testing.T) {
	t.Parallel()
	s := newFixture(t, external)
	b := s.testbed
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
	if err := s.expectVerdict(t.Context(), bySet, with(token(1))(s), "admitted"); err != nil {
		t.Error(err)
	}
}
