package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
)

// grove is a small tree of names that many take, alone and with all below, and write to.
type grove struct {
	*engines
	acknowledged, refused, granted atomic.Int64
}

var groveNames = []store.Name{"t", "t/a", "t/a/x", "t/a/y", "t/b"}

// below returns the names that a lease may write to.
func (*grove) below(lease store.Lease) (names []store.Name) {
	for _, name := range groveNames {
		if name == lease.Lock || lease.Scope == store.Subtree && len(name) > len(lease.Lock) &&
			name[:len(lease.Lock)+1] == lease.Lock+"/" {
			names = append(names, name)
		}
	}
	return names
}

// visit takes a lock if it can, writes under it for a moment, sometimes for longer than it has it, and gives it back, or
// not.
func (g *grove) visit(ctx context.Context, t *testing.T, visitor string, random *rand.Rand) {
	stays, leaves := random.IntN(4) == 0, random.IntN(4) > 0
	request := store.AcquireRequest{
		Lock: groveNames[random.IntN(len(groveNames))], OwnerID: visitor, TTL: time.Minute,
		Mode: []store.Mode{store.Exclusive, store.Exclusive, store.Shared}[random.IntN(3)],
	}
	if stays || !leaves {
		request.TTL = 100 * time.Millisecond
	}
	if random.IntN(2) == 0 {
		request.Scope = store.Subtree
	}
	if random.IntN(3) > 0 {
		request.Wait = time.Minute
	}
	inSession := random.IntN(2) == 0
	if inSession {
		session, err := g.At(random.IntN(3)).CreateSession(ctx, store.SessionRequest{OwnerID: visitor, TTL: request.TTL})
		if err != nil {
			t.Errorf("open a session: %v", err)
			return
		}
		// Nobody sweeps, so nobody would end the wait of a waiter whose session has expired.
		request.SessionID, request.TTL, request.Wait = session.ID, 0, min(request.Wait, 300*time.Millisecond)
	}
	lease, err := g.At(random.IntN(3)).Acquire(ctx, request)
	if err != nil {
		if !errors.Is(err, store.ErrLeaseHeld) && !errors.Is(err, store.ErrDeadlock) &&
			!(inSession && errors.Is(err, store.ErrLeaseLost)) {
			t.Errorf("acquire %s %s: %v", request.Scope, request.Lock, err)
		}
		return
	}
	g.granted.Add(1)
	names := g.below(lease)
	for sequence := int64(1); sequence <= 4; sequence++ {
		g.write(ctx, t, lease, names[random.IntN(len(names))], sequence, random)
		if stays {
			time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		}
	}
	if leaves {
		var err error
		if inSession && random.IntN(2) == 0 {
			_, err = g.At(random.IntN(3)).EndSession(ctx, request.SessionID)
		} else {
			err = g.At(random.IntN(3)).Release(ctx, lease.Ref())
		}
		if err != nil && !errors.Is(err, store.ErrLeaseLost) {
			t.Errorf("release %s %s: %v", lease.Scope, lease.Lock, err)
		}
	}
}

func (g *grove) write(
	ctx context.Context, t *testing.T, lease store.Lease, name store.Name, sequence int64, random *rand.Rand,
) {
	key := store.Name(fmt.Sprintf("%d.%d", lease.Token, sequence))
	results, err := g.At(random.IntN(3)).Write(ctx, []store.Write{{
		WriteToken: store.WriteToken{Resource: name, Token: lease.Token, Sequence: &sequence},
		Operation:  store.Operation{Kind: store.Put, Key: key, Value: []byte("{}"), ContentType: "application/json"},
	}})
	switch {
	case err != nil:
		t.Errorf("write %s: %v", name, err)
	case results[0].Err == nil:
		g.acknowledged.Add(1)
	case errors.Is(results[0].Err, store.ErrStaleToken):
		g.refused.Add(1)
	default:
		t.Errorf("write %s: %v", name, results[0].Err)
	}
}

const (
	// besideSQL counts leases that ran at the same time and may not (P1).
	besideSQL = `
		with ran as materialized (
			select lock, scope, mode, fencing_token, granted_at, coalesce(ended_at, fence.runs_until(l)) as over
			from fence.leases l
		)
		select count(*) from ran a, ran b
		where a.fencing_token < b.fencing_token and 'exclusive' in (a.mode, b.mode) and b.granted_at < a.over and (a.lock = b.lock
			or a.scope = 'subtree' and starts_with(b.lock, a.lock || '/') or b.scope = 'subtree' and starts_with(a.lock, b.lock || '/'))`

	// zombiesSQL counts records that were stored after a newer token was granted on their resource, or on a subtree that
	// it is in (P3).
	zombiesSQL = `
		select count(*) from fence.records r, fence.leases l
		where l.fencing_token > r.fencing_token and r.updated_at > l.granted_at
			and (l.lock = r.resource or l.scope = 'subtree' and starts_with(r.resource, l.lock || '/'))`
)

// TestSubtreesAndNames has clients of three engines lease names and the subtrees that they are in at random, in sessions
// and without, and write to them. It checks that no two leases run that conflict, that none is granted or ends after its
// time, that no write with an older token passes, and that no waiter is left.
func TestSubtreesAndNames(t *testing.T) {
	t.Parallel()
	g := &grove{engines: newEngines(t, enginetest.New(t), 3, enginetest.NoPoll)}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(context.Background(), 2*await.Limit)
	defer cancel()
	var visiting sync.WaitGroup
	for visitor := range 12 {
		random := rand.New(rand.NewPCG(seed, uint64(visitor)))
		visiting.Go(func() {
			for range 30 {
				g.visit(ctx, t, fmt.Sprint("visitor ", visitor), random)
			}
		})
	}
	visiting.Wait()
	for what, sql := range map[string]string{"leases ran beside each other": besideSQL,
		"writes came too late, and passed": zombiesSQL} {
		if n := g.Count(t, sql); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	if err := g.LeasesEndInTime(t.Context()); err != nil {
		t.Error(err)
	}
	if n := g.Count(t, "select count(*) from fence.records"); int64(n) != g.acknowledged.Load() {
		t.Errorf("there are %d records, and %d writes were acknowledged", n, g.acknowledged.Load())
	}
	if g.acknowledged.Load() < 100 || g.refused.Load() < 10 {
		t.Errorf("%d were granted, %d writes passed and %d did not: that is no test", g.granted.Load(),
			g.acknowledged.Load(), g.refused.Load())
	}
	await.True(t, "the last leases expire", func() bool {
		return g.Count(t, "select count(*) from fence.leases l where l.ended_at is null and fence.runs_until(l) > "+
			"clock_timestamp()") == 0
	})
	g.ExpectQuiet(t)
}
