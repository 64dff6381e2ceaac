package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// trial is a sentence of the contract and the code that finds out whether it holds. The tests run trials against the
// functions as they are; TestEveryStepIsTested runs them against functions that it has broken, where they must fail.
type trial struct {
	name string
	run  func(ctx context.Context, s *stage) error
}

// runTrials plays trials one after the other in one database, each on a lock of its own.
func runTrials(t *testing.T, trials []trial) {
	t.Helper()
	b := newTestbed(t)
	for _, trial := range trials {
		t.Run(trial.name, func(t *testing.T) {
			if err := trial.play(t.Context(), b); err != nil {
				t.Error(err)
			}
		})
	}
}

// play runs the trial on a lock named after it.
func (c trial) play(ctx context.Context, b *testbed) error {
	lock, err := store.ParseName(strings.NewReplacer(" ", "-", "/", "-").Replace(c.name))
	if err != nil {
		return err
	}
	return c.run(ctx, &stage{testbed: b, lock: lock})
}

// stage is where a trial is played: one lock, which is one resource, too; or the lock of a subtree and a resource in it.
type stage struct {
	*testbed
	lock    store.Name
	subtree bool
	leases  []store.Lease  // granted so far, the newest last
	session *store.Session // the one that was opened

	sessionID uuid.UUID // that what is asked for is to be in
	alone     bool      // what was written before was written one by one

	stages map[store.Name]*stage // of the locks below, by what comes behind this name
}

// resource is what is written to.
func (s *stage) resource() store.Name {
	if s.subtree {
		return s.lock + "/in/it"
	}
	return s.lock
}

// beside is a stage for another lock of the same trial.
func (s *stage) beside(suffix string) *stage {
	return &stage{testbed: s.testbed, lock: s.lock + store.Name(suffix), subtree: s.subtree}
}

func (s *stage) newest() store.Lease { return s.leases[len(s.leases)-1] }

// step is something that happened before.
type step func(ctx context.Context, s *stage) error

// given is all that happened before, in its order.
type given []step

func (s *stage) do(ctx context.Context, steps ...step) error {
	for i, step := range steps {
		if err := step(ctx, s); err != nil {
			return fmt.Errorf("step %d of what happened before: %w", i+1, err)
		}
	}
	return nil
}

// acquire grants the lock to a new owner for an hour, to write.
func acquire(ctx context.Context, s *stage) error { return s.grant(ctx, s.request(store.Exclusive)) }

// share grants the lock to a new owner for an hour, to read.
func share(ctx context.Context, s *stage) error { return s.grant(ctx, s.request(store.Shared)) }

// acquireSubtree grants the lock and all below it; the resource stays what it was.
func acquireSubtree(ctx context.Context, s *stage) error {
	request := s.request(store.Exclusive)
	request.Scope = store.Subtree
	return s.grant(ctx, request)
}

// shareSubtree grants the lock and all below it, to read.
func shareSubtree(ctx context.Context, s *stage) error {
	request := s.request(store.Shared)
	request.Scope = store.Subtree
	return s.grant(ctx, request)
}

// acquireNode grants the lock without what is below it.
func acquireNode(ctx context.Context, s *stage) error {
	request := s.request(store.Exclusive)
	request.Scope = store.Node
	return s.grant(ctx, request)
}

func (s *stage) request(mode store.Mode) store.AcquireRequest {
	request := store.AcquireRequest{
		Lock: s.lock, OwnerID: fmt.Sprintf("owner-%d", len(s.leases)+1), Mode: mode, Scope: store.Node, TTL: time.Hour,
	}
	if s.subtree {
		request.Scope = store.Subtree
	}
	return request
}

func (s *stage) grant(ctx context.Context, request store.AcquireRequest) error {
	if request.SessionID = s.sessionID; request.SessionID != uuid.Nil {
		request.TTL = 0
	}
	lease, err := s.Acquire(ctx, request)
	if err == nil {
		s.leases = append(s.leases, lease)
	}
	return err
}

// expire lets the time of the newest lease run out.
func expire(ctx context.Context, s *stage) error {
	_, err := s.sql.Exec(ctx, `
		update fence.leases
		set granted_at = granted_at - interval '1 day', expires_at = clock_timestamp() - interval '1 millisecond', check_at = '-infinity'
		where lock = $1 and fencing_token = $2`, s.lock, s.newest().Token)
	return err
}

// replace lets the newest lease expire and grants the lock to another owner.
func replace(ctx context.Context, s *stage) error { return s.do(ctx, expire, acquire) }

func release(ctx context.Context, s *stage) error { return s.Release(ctx, s.newest().Ref()) }

func breakLock(ctx context.Context, s *stage) error {
	_, err := s.Break(ctx, s.lock, "the test says so")
	return err
}

func sweep(ctx context.Context, s *stage) error {
	sweeper, err := store.NewSweeper(s.Store, store.SweeperConfig{})
	if err == nil {
		_, err = sweeper.Sweep(ctx)
	}
	return err
}

// under sets a policy on the lock itself; what is left out is the default.
func under(policy store.Policy) step {
	if policy.Rule == "" {
		policy.Rule = store.RuleStrict
	}
	if policy.Authority == "" {
		policy.Authority = store.AuthorityBuiltin
	}
	return func(ctx context.Context, s *stage) error {
		own := policy // trials are played on many stages at once
		own.Prefix = string(s.lock)
		return s.PutPolicy(ctx, own)
	}
}

var (
	sameToken        = under(store.Policy{Rule: store.RuleSameToken})
	external         = under(store.Policy{Authority: store.AuthorityExternal})
	requireLeaseID   = under(store.Policy{RequireLeaseID: true})
	requireLiveLease = under(store.Policy{RequireLiveLease: true})
)
