package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/store"
)

// setCases are promises of a set of independent writes.
var setCases = []storeCase{
	{"set: two writes to one resource are judged in the order given", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest, sequence(2), expect(1)), "admitted v2"},
		setCase{with(newest, sequence(3), deletion, expect(2)), "admitted v3"},
		setCase{with(newest, sequence(4), expect(0)), "admitted v4 created"}))},
	{"set: a put changes no other record", noOtherRecord(all())},
	{"alone: a put changes no other record", noOtherRecord(writingAlone)},
	{"alone: the answers to a put, another, and the retry of that", all(acquire,
		setOf(setCase{with(newest, sequence(1)), "admitted v1 created"}),
		setOf(setCase{with(newest, sequence(2)), "admitted v2"}),
		setOf(setCase{with(newest, sequence(2)), "admitted v2 replayed"}))},
	{"set: puts of one resource, in the order given", all(acquire, setOf(
		setCase{with(newest, sequence(1)), "admitted v1 created"},
		setCase{with(newest, sequence(2)), "admitted v2"},
		setCase{with(newest, sequence(3), key("other")), "admitted v3 created"}))},
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
		setCase{with(newest, sequence(4), key("none"), deletion), "not_found"},
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
	{"set: a fence is made where the token of an open subtree is presented, and nowhere else", all(acquireSubtree, release,
		onBelow("-b", acquireSubtree), setOf(
			setCase{with(newest, at("/x")), "token_stale released"},
			setCase{ofBelow("-b", at("-b/x")), "admitted v1 created"},
			setCase{with(newest, at("-b/y")), "token_stale superseded"},
			setCase{ofBelow("-b", at("-c")), "token_unknown"}),
		execute("delete from fence.unused"), left("fence , fence -b, fence -b/x, subtree , subtree -b"))},
	{"set: puts of one resource that wait for no fence are busy while it is locked", all(acquire, beside(lockFenceSQL, "",
		execute("select 1 / (busy = '{1,2}')::integer from fence.write(array[$1, $1], array[$2, $2]::bigint[], '{1,2}', "+
			"'{null,null}', array['1', '2']::bytea[], '{put,put}', '{k,k}', array['1', '2']::bytea[], '{t,t}', "+
			"'{null,null}', '{2}', 0)")))},
	{"set: a fence that is made below a subtree counts for its holder alone", all(acquireSubtree, expire,
		wrote(with(newest, sequence(1), at("/y"))), onBelow("/b", acquireSubtree), fullPrincipal,
		setOf(setCase{with(newest, sequence(2), at("/y")), "admitted v2"},
			setCase{ofBelow("/b", at("/b/x")), "admitted v1 created"}),
		func(ctx context.Context, s *fixture) error {
			_, err := s.Write(ctx, []store.Write{with(newest, sequence(1), at("/z"))(s)})
			if !errors.Is(err, store.ErrLimit) {
				return fmt.Errorf("a fence too many is answered %w", err)
			}
			return nil
		})},
	{"set: a subtree whose token is not presented is not locked", all(acquireSubtree, expire, onBelow("/x", acquire),
		onBelow("-b", acquireSubtree), beside(lockFenceSQL, "", setOf(
			setCase{ofBelow("/x"), "admitted v1 created"}, setCase{ofBelow("-b", at("-b/x")), "admitted v1 created"})))},
	{"set: nor one that is beside", all(acquireSubtree, beside(lockFenceSQL, "",
		setOf(setCase{with(newest, at("-c")), "token_unknown"}, setCase{with(none, at("-d")), "token_required"})))},
	{"set: nor one that is closed", all(acquireSubtree, release,
		onBelow("-b", acquireSubtree), beside(lockFenceSQL, "", setOf(
			setCase{with(newest, at("/x")), "token_stale released"},
			setCase{ofBelow("-b", at("-b/x")), "admitted v1 created"})))},
}

// fullPrincipal is the holder of the subtree, who may make no fence any more.
var fullPrincipal = all(
	execute("update fence.leases set principal = 'full ' || $1 where lock = $1"),
	execute("insert into fence.fences_made (principal, \"full\") values ('full ' || $1, true)"))

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
		answer := spec.AnswerOfResult(result)
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

// specs are several writes, or the tokens of them.
type specs = []writeSpec

// inA and inB are writes to the resources of transactionCases.
func inA(token tokenOf, options ...option) writeSpec { return inResource("/a", token, options...) }
func inB(token tokenOf, options ...option) writeSpec { return inResource("/b", token, options...) }

func inResource(suffix store.Name, token tokenOf, options ...option) writeSpec {
	return func(s *fixture) store.Write { return with(token, options...)(s.below(suffix)) }
}

var (
	a1, b1     = inA(newest, sequence(1)), inB(newest, sequence(1))
	plainA     = inA(newest)
	plainB     = inB(newest)
	both1      = specs{a1, b1}
	bothPlain  = specs{plainA, plainB}
	deletedInB = inB(newest, deletion)
)

// transactionCases are promises of a transaction over several fences: those of the resources a and b, each granted
// once.
var transactionCases = []storeCase{
	{"transaction: all is applied", onTwo(
		transacted("versions [1 1 1]", bothPlain, plainA, inA(newest, key("second")), plainB))},
	{"transaction: its tokens need not be in the order of their names", onTwo(
		transacted("versions [1 1]", specs{plainB, plainA}, plainA, plainB))},
	{"transaction: versions, with deletions", onTwo(
		onBelow("/a", wrote(with(newest, sequence(1)), with(newest, sequence(2), key("old")))),
		transacted("versions [3 3 1]", specs{inA(newest, sequence(3)), b1},
			inA(newest, deletion, key("old"), expect(2)), inA(newest, expect(1)), inB(newest, expect(0))))},
	{"transaction: a fence that is only claimed is raised, too",
		onTwo(transacted("versions [1]", bothPlain, plainA), onBelow("/b", rejected(with(newest), "token_stale reused")))},

	{"transaction: the second token is stale", onTwo(onBelow("/b", replace),
		transacted("token_stale superseded of b", specs{plainA, inB(first)}, plainA, plainB))},
	{"transaction: the first refused write token is named", onTwo(
		transacted("token_required of b", specs{inB(none), inA(beyond)}, plainA, plainB))},
	{"transaction: a write token is refused before an operation", onTwo(
		transacted("token_unknown of b", specs{plainA, inB(beyond)}, inA(newest, expect(7)), plainB))},
	{"transaction: a write token that nothing is written under must pass, too", onTwo(
		transacted("lease_mismatch of b", specs{plainA, inB(newest, otherLeaseID)}, plainA))},
	{"transaction: the second precondition fails", onTwo(onBelow("/b", wrote(with(newest))),
		transacted("version_mismatch at 1 of op 1 key of b", specs{plainA, b1},
			plainA, inB(newest, expect(7)), inA(newest, expect(7), key("x"))))},
	{"transaction: a deletion of what is not there", onTwo(transacted("not_found", bothPlain, plainA, deletedInB))},
	{"transaction: an operation without a write token", onTwo(
		transacted("token_required of op 1 key of b", specs{plainA}, plainA, plainB))},

	{"transaction: a replay on each of its fences", onTwo(
		transacted("versions [1 1]", both1, plainA, inB(newest, expect(0))),
		changingNothing(transacted("replayed versions [1 1]", both1, plainA, inB(newest, expect(0)))),
		onBelow("/a", expire), onBelow("/b", release),
		changingNothing(transacted("replayed versions [1 1]", both1, plainA, inB(newest, expect(0)))))},
	{"transaction: a replay whose tokens come in another order", onTwo(
		transacted("versions [1 1]", both1, a1, b1), transacted("replayed versions [1 1]", specs{b1, a1}, a1, b1))},
	{"transaction: a replay on one of its fences only", onTwo(
		transacted("versions [1 1]", both1, a1, b1), onBelow("/b", wrote(with(newest, sequence(2)))),
		transacted("token_stale reused of a", both1, a1, b1))},
	{"transaction: one of its tokens is not numbered", onTwo(
		transacted("versions [1 1]", specs{a1, plainB}, a1, plainB),
		transacted("token_stale reused of a", specs{a1, plainB}, a1, plainB))},
	{"transaction: the same numbers with other content", onTwo(
		transacted("versions [1 1]", both1, a1, b1),
		transacted("token_stale reused of a", both1, a1, inB(newest, value("other"))),
		transacted("token_stale reused of a", both1, b1, a1),
		transacted("token_stale reused of a", both1, a1))},
	{"transaction: the values of two resources exchanged", onTwo(
		transacted("versions [1 1]", both1, inA(newest, value("1")), inB(newest, value("2"))),
		transacted("token_stale reused of a", both1, inA(newest, value("2")), inB(newest, value("1"))))},
}

// onTwo grants two locks before the steps.
func onTwo(steps ...step) step {
	return all(onBelow("/a", acquire), onBelow("/b", acquire), all(steps...))
}

// transacted sends a transaction with the tokens of some writes and the operations of others, and compares the answer,
// as briefTransaction says it. One that is not applied must change nothing. One that is applied must be in all its
// records, and raise all its fences.
func transacted(want string, tokens specs, operations ...writeSpec) step {
	return func(ctx context.Context, s *fixture) error {
		var transaction store.Transaction
		for _, spec := range tokens {
			transaction.Tokens = append(transaction.Tokens, spec(s).WriteToken)
		}
		for _, spec := range operations {
			write := spec(s)
			transaction.Operations = append(transaction.Operations, store.ResourceOperation{Resource: write.Resource,
				Operation: write.Operation})
		}
		var result store.TransactionResult
		send := func() (err error) {
			result, err = s.Transact(ctx, transaction)
			if got := s.briefTransaction(result, err); got != want {
				return fmt.Errorf("the answer is %s, want %s", got, want)
			}
			return nil
		}
		if !strings.HasPrefix(want, "versions") {
			return s.Unchanged(ctx, send)
		}
		if err := send(); err != nil {
			return err
		}
		return s.expectTransacted(ctx, transaction, result)
	}
}

func (s *fixture) expectTransacted(ctx context.Context, transaction store.Transaction,
	result store.TransactionResult) error {
	tokens := map[store.Name]store.WriteToken{}
	for _, token := range transaction.Tokens {
		tokens[token.Resource] = token
		fence, err := s.Fence(ctx, token.Resource)
		if err != nil || fence.LastToken != token.Token || token.Sequence != nil && fence.LastSequence != *token.Sequence {
			return fmt.Errorf("the fence is %+v (%w) after %+v", fence, err, token)
		}
	}
	for i, op := range transaction.Operations {
		write := store.Write{WriteToken: tokens[op.Resource], Operation: op.Operation}
		if err := s.expectRecord(ctx, write, result.Versions[i]); err != nil {
			return err
		}
	}
	return nil
}

// briefTransaction is an answer in a line. Resources are named by the part after the lock's name.
func (s *fixture) briefTransaction(result store.TransactionResult, err error) string {
	var rejected *store.RejectedError
	switch {
	case errors.As(err, &rejected):
		text := brief(store.Result{Err: err})
		if rejected.Op != nil {
			text += fmt.Sprintf(" of op %d %s", *rejected.Op, rejected.Key)
		} else if rejected.Key != "" {
			text += " (with a key)"
		}
		return text + " of " + string(rejected.Resource[len(s.lock)+1:])
	case err != nil:
		return brief(store.Result{Err: err})
	case result.Replayed:
		return fmt.Sprint("replayed versions ", result.Versions)
	}
	return fmt.Sprint("versions ", result.Versions)
}

// noOtherRecord puts records with two keys under two names.
func noOtherRecord(how step) step {
	one, other := with(newest, sequence(1)), with(newest, sequence(2), key("other"))
	again := with(newest, sequence(3), value("again"))
	return all(how, acquire, wrote(one), onBelow("/below", how, acquire, wrote(one, other, again), stored(again, 3),
		stored(other, 2)), stored(one, 1))
}
