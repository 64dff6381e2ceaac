package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestRandomSequences makes random calls, one after the other, to a Store and to the specification: every answer must be
// the same.
func TestRandomSequences(t *testing.T) {
	t.Parallel()
	target, _ := newRandomTarget(t)
	drive.Sequences(t, target, randomCalls)
}

// TestRandomGroup is the same where the writes of a set are submitted to a group commit at once: each must be answered as
// if they had come one by one, whatever batches they went in.
func TestRandomGroup(t *testing.T) {
	t.Parallel()
	target, _ := newRandomTarget(t)
	group, err := groupcommit.New(target.Service.(*postgres.Store), groupcommit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	target.WriteSet = func(ctx context.Context, parts []spec.Op) (spec.Answer, error) { return submit(ctx, group, parts) }
	calls := randomCalls
	calls.Weights = append(slices.Clone(calls.Weights), spec.Weight{Kind: spec.Set, Share: 20})
	drive.Sequences(t, target, calls)
}

// TestRandomLeasesTogether is the same where acquires, renewals and releases of different locks come at once, and are
// decided in one statement as far as possible: each must be answered as if it had come alone.
func TestRandomLeasesTogether(t *testing.T) {
	t.Parallel()
	target, _ := newRandomTarget(t)
	target.HoldBatches = target.Service.(*postgres.Store).HoldBatches
	drive.Sequences(t, target, togetherCalls)
}

// togetherCalls are for names without a subtree, and mostly without a policy: about others no set is decided.
var togetherCalls = spec.Generator{
	Names: []store.Name{"a", "b", "c/d", "c/d/e"}, Owners: []string{"A", "B"}, Flat: true, TTL: time.Hour, TTLSpread: time.Second,
	Weights: []spec.Weight{
		{Kind: spec.Acquire, Share: 10}, {Kind: spec.Renew, Share: 4}, {Kind: spec.Release, Share: 10},
		{Kind: spec.Together, Share: 30}, {Kind: spec.Break, Share: 3}, {Kind: spec.Expire, Share: 4},
		{Kind: spec.OpenSession, Share: 2}, {Kind: spec.EndSession, Share: 1}, {Kind: spec.Put, Share: 8},
		{Kind: spec.SetPolicy, Share: 4}, {Kind: spec.DeletePolicy, Share: 6}, {Kind: spec.Sweep, Share: 2},
		{Kind: spec.ReadLock, Share: 2},
	},
}

var randomCalls = spec.Generator{
	Names: []store.Name{"a", "b", "b/c", "b/c/d"}, Owners: []string{"A", "B", "A/1"}, Principals: []string{"A", "", "b"},
	Weights: append([]spec.Weight{{Kind: spec.Together, Share: 1}}, spec.Sequential...),
	TTL:     time.Hour, TTLSpread: time.Second, // longer than any test runs: only Expire lets a lease expire
}

// TestNamesAreLocal makes random calls beside names that have the same tokens, owners, requests and keys: a decision about
// a name reads no rows of others.
func TestNamesAreLocal(t *testing.T) {
	t.Parallel()
	target, b := newRandomTarget(t)
	for seed := range uint64(10) {
		if err := drive.Strangers(t.Context(), b.SQL, seed%2 == 0); err != nil {
			t.Fatal(err)
		}
		if err := drive.Random(t.Context(), target, randomCalls, fmt.Sprint("seed-", seed), seed, 60); err != nil {
			t.Fatal(err)
		}
	}
}

// TestProvider checks what random calls rarely meet, through an engine.
func TestProvider(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	drive.Scenarios(t, randomTarget(t, b, enginetest.Run(t, b.Store, engine.Config{})), false)
}

// TestProviderOneByOne checks the same where no call about a lease is decided in a batch: each is sent again, and may wait
// for other transactions.
func TestProviderOneByOne(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	for function, edit := range map[string]edit{
		"acquire_lease": replacing("elsif fence.try_tree_lock(p_request.lock) then", "elsif false then"),
		"release_lease": replacing("elsif fence.try_tree_lock(p_lock) then", "elsif false then"),
		"renew_leases":  replacing("for update of l skip locked", "where false for update of l skip locked"),
	} {
		b.Exec(t, mutation{function: function, edit: edit}.broken(t))
	}
	drive.Scenarios(t, randomTarget(t, b, enginetest.Run(t, b.Store, engine.Config{})), false)
}

// newRandomTarget is a Store on a database of its own.
func newRandomTarget(t *testing.T) (drive.Store, *testbed) {
	t.Helper()
	b := newTestbed(t)
	return randomTarget(t, b, b.Store), b
}

// randomTarget is a Store, or an engine on it.
func randomTarget(t *testing.T, b *testbed, service spec.Service) drive.Store {
	t.Helper()
	t.Cleanup(func() {
		if err := b.LeasesEndInTime(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	return drive.Store{Service: service, SQL: b.SQL, Sweep: func(ctx context.Context) error {
		_, err := sweeper.Sweep(ctx)
		return err
	}}
}

// submit sends writes without waiting for the answers before.
func submit(ctx context.Context, group *groupcommit.Group, parts []spec.Op) (spec.Answer, error) {
	type reply struct {
		result store.Result
		err    error
	}
	replies := make([]chan reply, len(parts))
	for i, part := range parts {
		replies[i] = make(chan reply, 1)
		group.Submit(ctx, part.Write(), func(result store.Result, err error) { replies[i] <- reply{result, err} })
	}
	answers := make([]spec.Answer, len(parts))
	for i := range parts {
		got := <-replies[i]
		if got.err != nil {
			return spec.Answer{}, got.err
		}
		answers[i] = spec.AnswerOfResult(got.result)
	}
	return spec.AnswerOfSet(answers), nil
}
