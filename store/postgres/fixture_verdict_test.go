package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/fencegate/fencegate/internal/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

// sentinels are the errors that match the verdicts.
var sentinels = map[string]error{
	string(store.VerdictTokenRequired):   store.ErrTokenRequired,
	string(store.VerdictTokenUnknown):    store.ErrUnknownToken,
	string(store.VerdictTokenStale):      store.ErrStaleToken,
	string(store.VerdictLeaseMismatch):   store.ErrLeaseMismatch,
	string(store.VerdictLeaseExpired):    store.ErrLeaseExpired,
	string(store.VerdictVersionMismatch): store.ErrVersionMismatch,
	storetest.CodeNotFound:               store.ErrNotFound,
}

// expectVerdict sends a write through a source and compares the verdict, the data and the fence: an admitted write is
// in both, any other changed nothing at all (P5, P12).
func (s *fixture) expectVerdict(ctx context.Context, source source, write store.Write, want string) error {
	before, err := s.Dump(ctx)
	if err != nil {
		return err
	}
	fence, err := s.Fence(ctx, write.Resource)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	result, err := source(ctx, s.Store, write)
	if err != nil {
		return err
	}
	answer := storetest.WriteAnswer(result)
	if verdict := verdictOf(answer); verdict != want {
		return fmt.Errorf("token %d: the verdict is %q, want %q", write.Token, verdict, want)
	}
	if result.Err == nil && !result.Replayed {
		return s.expectApplied(ctx, write, result, fence)
	}
	after, err := s.Dump(ctx)
	if err != nil {
		return err
	}
	if err := enginetest.Trace(before, after); err != nil {
		return fmt.Errorf("%s: %w", want, err)
	}
	if result.Replayed {
		return s.expectRecord(ctx, write, result.Version)
	}
	return expectRejection(write, answer.Code, result.Err, fence)
}

// expectApplied compares record and fence with a write that was admitted on a fence.
func (s *fixture) expectApplied(ctx context.Context, write store.Write, result store.Result, before store.Fence) error {
	after, err := s.Fence(ctx, write.Resource)
	if err != nil {
		return err
	}
	want := before
	want.Resource, want.Policy = after.Resource, after.Policy
	want.LastSequence = 0
	if write.Sequence != nil {
		want.LastSequence = *write.Sequence
	}
	if before.LastToken == write.Token {
		want.LastSequence = max(want.LastSequence, before.LastSequence)
	}
	want.LastToken = write.Token
	if after != want {
		return fmt.Errorf("the fence is %+v, want %+v", after, want)
	}
	return s.expectRecord(ctx, write, result.Version)
}

// expectRecord compares the record with the write that gave it its version.
func (s *fixture) expectRecord(ctx context.Context, write store.Write, version int64) error {
	record, err := s.Record(ctx, write.Resource, write.Key)
	switch {
	case write.Kind == store.Delete && errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	case write.Kind == store.Delete || version != record.Version || write.Token != record.Token ||
		!equal(write.Sequence, record.Sequence) || !bytes.Equal(write.Value, record.Value) ||
		int64(len(write.Value)) != record.Size || write.ContentType != record.ContentType:
		return fmt.Errorf("the record is %+v after %+v, want version %d", record, write, version)
	}
	return nil
}

// expectRejection compares the fields of an error with the write and the fence.
func expectRejection(write store.Write, verdict string, err error, fence store.Fence) error {
	for other, sentinel := range sentinels {
		if errors.Is(err, sentinel) != (other == verdict) {
			return fmt.Errorf("%s: whether it is %q is %v: %w", verdict, sentinel.Error(), other != verdict, err)
		}
	}
	var rejected *store.RejectedError
	if !errors.As(err, &rejected) {
		return nil // not found
	}
	if rejected.Resource != write.Resource || rejected.Token != write.Token || !equal(rejected.Sequence, write.Sequence) {
		return fmt.Errorf("the error is %+v for the write %+v", *rejected, write)
	}
	if rejected.Verdict != store.VerdictVersionMismatch && (rejected.GrantedToken != fence.GrantedToken ||
		rejected.LastToken != fence.LastToken || rejected.LastSequence != fence.LastSequence) {
		return fmt.Errorf("the error is %+v for the fence %+v", *rejected, fence)
	}
	return nil
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
