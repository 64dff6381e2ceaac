package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fencegate/fencegate/store"
)

// transactionTrials are what a transaction over several fences promises. They are played with two locks, a and b, each granted once.
var transactionTrials = []trial{
	{"transaction: all is applied", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		return s.expectTransaction(ctx, "versions [1 1 1]", claims(with(newest)(a), with(newest)(b)),
			with(newest)(a), with(newest, key("second"))(a), with(newest)(b))
	})},
	{"transaction: its claims need not be in the order of their names", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		return s.expectTransaction(ctx, "versions [1 1]", claims(with(newest)(b), with(newest)(a)), with(newest)(a), with(newest)(b))
	})},
	{"transaction: versions, with deletions", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		if err := a.do(ctx, wrote(with(newest, sequence(1)), with(newest, sequence(2), key("old")))); err != nil {
			return err
		}
		return s.expectTransaction(ctx, "versions [3 3 1]", claims(with(newest, sequence(3))(a), with(newest, sequence(1))(b)),
			with(newest, deletion, key("old"), expect(2))(a), with(newest, expect(1))(a), with(newest, expect(0))(b))
	})},
	{"transaction: a fence that is only claimed is raised, too", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		if err := s.expectTransaction(ctx, "versions [1]", claims(with(newest)(a), with(newest)(b)), with(newest)(a)); err != nil {
			return err
		}
		return b.expectVerdict(ctx, bySet, with(newest)(b), store.VerdictTokenStale, "reused")
	})},

	{"transaction: the second token is stale", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		if err := b.do(ctx, replace); err != nil {
			return err
		}
		return s.expectTransaction(ctx, "token_stale superseded of b", claims(with(newest)(a), with(first)(b)),
			with(newest)(a), with(newest)(b))
	})},
	{"transaction: the first refused claim is named", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		return s.expectTransaction(ctx, "token_required of b", claims(with(none)(b), with(beyond)(a)), with(newest)(a), with(newest)(b))
	})},
	{"transaction: a claim is refused before an operation", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		return s.expectTransaction(ctx, "token_unknown of b", claims(with(newest)(a), with(beyond)(b)),
			with(newest, expect(7))(a), with(newest)(b))
	})},
	{"transaction: a claim that nothing is written under must pass, too", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		return s.expectTransaction(ctx, "lease_mismatch of b", claims(with(newest)(a), with(newest, otherLeaseID)(b)), with(newest)(a))
	})},
	{"transaction: the second precondition fails", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		if err := b.do(ctx, wrote(with(newest))); err != nil {
			return err
		}
		return s.expectTransaction(ctx, "version_mismatch at 1 of op 1 key of b",
			claims(with(newest)(a), with(newest, sequence(1))(b)), with(newest)(a), with(newest, expect(7))(b), with(newest, expect(7), key("x"))(a))
	})},
	{"transaction: a deletion of what is not there", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		return s.expectTransaction(ctx, "not_found", claims(with(newest)(a), with(newest)(b)), with(newest)(a), with(newest, deletion)(b))
	})},
	{"transaction: an operation without a claim", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		return s.expectTransaction(ctx, "token_required of op 1 key of b", claims(with(newest)(a)), with(newest)(a), with(newest)(b))
	})},

	{"transaction: a replay on each of its fences", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		send := func(answer string) error {
			return s.expectTransaction(ctx, answer, claims(with(newest, sequence(1))(a), with(newest, sequence(1))(b)),
				with(newest)(a), with(newest, expect(0))(b))
		}
		if err := errors.Join(send("versions [1 1]"), s.unchanged(ctx, func() error { return send("replayed versions [1 1]") })); err != nil {
			return err
		}
		if err := errors.Join(a.do(ctx, expire), b.do(ctx, release)); err != nil {
			return err
		}
		return s.unchanged(ctx, func() error { return send("replayed versions [1 1]") })
	})},
	{"transaction: a replay whose claims come in another order", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		one, two := with(newest, sequence(1))(a), with(newest, sequence(1))(b)
		return errors.Join(s.expectTransaction(ctx, "versions [1 1]", claims(one, two), one, two),
			s.expectTransaction(ctx, "replayed versions [1 1]", claims(two, one), one, two))
	})},
	{"transaction: a replay on one of its fences only", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		one, two := with(newest, sequence(1))(a), with(newest, sequence(1))(b)
		if err := s.expectTransaction(ctx, "versions [1 1]", claims(one, two), one, two); err != nil {
			return err
		}
		if err := b.do(ctx, wrote(with(newest, sequence(2)))); err != nil {
			return err
		}
		return s.expectTransaction(ctx, "token_stale reused of a", claims(one, two), one, two)
	})},
	{"transaction: one of its claims is not numbered", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		one, two := with(newest, sequence(1))(a), with(newest)(b)
		return errors.Join(s.expectTransaction(ctx, "versions [1 1]", claims(one, two), one, two),
			s.expectTransaction(ctx, "token_stale reused of a", claims(one, two), one, two))
	})},
	{"transaction: the same numbers with other content", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		one, two := with(newest, sequence(1))(a), with(newest, sequence(1))(b)
		return errors.Join(s.expectTransaction(ctx, "versions [1 1]", claims(one, two), one, two),
			s.expectTransaction(ctx, "token_stale reused of a", claims(one, two), one, with(newest, value("other"))(b)),
			s.expectTransaction(ctx, "token_stale reused of a", claims(one, two), two, one),
			s.expectTransaction(ctx, "token_stale reused of a", claims(one, two), one))
	})},
	{"transaction: the values of two resources exchanged", onTwo(func(ctx context.Context, s *stage, a, b *stage) error {
		one, two := with(newest, sequence(1), value("1"))(a), with(newest, sequence(1), value("2"))(b)
		return errors.Join(s.expectTransaction(ctx, "versions [1 1]", claims(one, two), one, two),
			s.expectTransaction(ctx, "token_stale reused of a", claims(one, two),
				with(newest, value("2"))(a), with(newest, value("1"))(b)))
	})},
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	runTrials(t, transactionTrials)
}

func onTwo(play func(ctx context.Context, s *stage, a, b *stage) error) func(ctx context.Context, s *stage) error {
	return func(ctx context.Context, s *stage) error {
		a, b := s.beside("/a"), s.beside("/b")
		if err := errors.Join(a.do(ctx, acquire), b.do(ctx, acquire)); err != nil {
			return err
		}
		return play(ctx, s, a, b)
	}
}

func claims(writes ...store.Write) []store.WriteToken {
	var claims []store.WriteToken
	for _, write := range writes {
		claims = append(claims, write.WriteToken)
	}
	return claims
}

// expectTransaction compares the answer, as briefTransaction says it. What is not applied must change nothing; what is must stand
// in all its records, and raise all its fences.
func (s *stage) expectTransaction(ctx context.Context, want string, claims []store.WriteToken, writes ...store.Write) error {
	transaction := store.Transaction{Tokens: claims}
	for _, write := range writes {
		transaction.Operations = append(transaction.Operations, store.ResourceOperation{Resource: write.Resource, Operation: write.Operation})
	}
	var result store.TransactionResult
	send := func() (err error) {
		result, err = s.Transact(ctx, transaction)
		if got := s.briefTransaction(result, err); got != want {
			return fmt.Errorf("the answer is %s, want %s", got, want)
		}
		return nil
	}
	if len(want) < len("versions") || want[:len("versions")] != "versions" {
		return s.unchanged(ctx, send)
	}
	if err := send(); err != nil {
		return err
	}
	claimOf := map[store.Name]store.WriteToken{}
	for _, claim := range claims {
		claimOf[claim.Resource] = claim
		fence, err := s.Fence(ctx, claim.Resource)
		if err != nil || fence.LastToken != claim.Token || claim.Sequence != nil && fence.LastSequence != *claim.Sequence {
			return fmt.Errorf("the fence is %+v (%w) after %+v", fence, err, claim)
		}
	}
	for i, write := range writes {
		write.WriteToken = claimOf[write.Resource]
		if err := s.expectRecord(ctx, write, result.Versions[i]); err != nil {
			return err
		}
	}
	return nil
}

// briefTransaction says all of an answer in a line; resources are named by what comes after the stage's own name.
func (s *stage) briefTransaction(result store.TransactionResult, err error) string {
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
