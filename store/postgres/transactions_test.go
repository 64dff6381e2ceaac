package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fencegate/fencegate/store"
)

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
	{"transaction: a deletion of what is not there", onTwo(transacted("not found", bothPlain, plainA, deletedInB))},
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
