package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/storetest"
)

// TestRandomRefusals checks random writes through two Services that remember refusals: every answer must be the
// model's, and every early one the database's, too.
func TestRandomRefusals(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	conn, err := pgx.Connect(t.Context(), b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	gateways := []refusing{newRefusing(t, b, engine.Config{}), newRefusing(t, b, engine.Config{})}
	runs, answers := 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		runs++
		r := &randomRefusals{newRandomRun(b.Store, conn, fmt.Sprintf("run-%d", runs), answers), gateways}
		defer r.forgetPolicies(t)
		r.overtake(t)
		for _, name := range r.names {
			r.acquireOn(t, name)
			r.acquireOn(t, name)
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": r.acquire, "release": r.release, "break": r.breakLock, "sweep": r.sweep, "endSession": r.endSession,
			"writeThrough": r.writeThrough, "writeThroughAgain": r.writeThroughAgain, "hold": r.hold, "holdMore": r.hold,
			"hammer": r.hammer, "hammerMore": r.hammer, "write": r.write, "transact": r.transact, "changePolicy": r.changePolicy,
		})
	})
	t.Logf("answers: %v", answers)
	if early := answers["early token_stale superseded"]; early < runs/2 {
		t.Errorf("only %d writes in %d runs were refused early", early, runs)
	}
}

type randomRefusals struct {
	*randomRun

	gateways []refusing
}

func (r *randomRefusals) writeThrough(t *rapid.T) { r.through(t, r.draw(t)) }

func (r *randomRefusals) writeThroughAgain(t *rapid.T) {
	if len(r.writes) == 0 {
		t.Skip("nothing was written")
	}
	r.through(t, r.sentBefore(t))
}

// overtake grants a lock twice, and writes under the first lease: twice through each Service, of which the second time
// is refused early. Whether the random writes are is a matter of luck.
func (r *randomRefusals) overtake(t *rapid.T) {
	name := r.names[0]
	var leases []store.Lease
	for range 2 {
		r.do(t, historyCall{resources: []store.Name{name}, broken: true})
		request := store.AcquireRequest{Lock: name, OwnerID: "A", TTL: time.Hour}
		made := r.do(t, historyCall{resources: []store.Name{name}, acquire: &request}).made
		leases = append(leases, store.Lease{Lock: name, OwnerID: made.OwnerID, ID: made.ID, Token: made.Token})
	}
	r.leases = append(r.leases, leases...)
	for _, gateway := range r.gateways {
		for range 2 {
			r.throughOne(t, gateway, store.Write{
				WriteToken: store.WriteToken{Resource: name, Token: leases[0].Token}, Operation: r.operation(t, name)})
		}
	}
}

// hold takes the lock from its holder and writes correctly.
func (r *randomRefusals) hold(t *rapid.T) {
	r.breakLock(t)
	name := r.name(t)
	r.through(t, store.Write{WriteToken: r.next(name), Operation: r.operation(t, name)})
}

// hammer writes under one old lease several times, some of them as the last accepted write was numbered.
func (r *randomRefusals) hammer(t *rapid.T) {
	lease := r.someLease(t)
	for range rapid.IntRange(2, 4).Draw(t, "times") {
		write := store.Write{WriteToken: store.WriteToken{Resource: lease.Lock, Token: lease.Token},
			Operation: r.operation(t, lease.Lock)}
		last := r.model.Resource(lease.Lock)
		switch rapid.IntRange(0, 3).Draw(t, "number") {
		case 0:
			write.Sequence = new(last.LastSequence)
			write.Token = last.LastToken
		case 1:
			write.Sequence = new(last.LastSequence + 1)
		}
		r.through(t, write)
	}
}

// through sends a write through one of the Services.
func (r *randomRefusals) through(t *rapid.T, write store.Write) {
	r.throughOne(t, rapid.SampledFrom(r.gateways).Draw(t, "gateway"), write)
}

func (r *randomRefusals) throughOne(t *rapid.T, gateway refusing, write store.Write) {
	answer, err := gateway.commit(t.Context(), write)
	if err != nil {
		t.Fatal(err)
	}
	next, want := r.model.Write(write)
	wanted := verdictOf(want)
	t.Logf("%s → %s", historyCall{write: &write}, answer)
	if strings.TrimPrefix(answer, "early ") != wanted {
		t.Fatalf("%s\nreturned %s\nwant     %s\nin %s", historyCall{write: &write}, answer, wanted, r.model.Summary())
	}
	r.counts[answer]++
	r.model = next
	r.writes = append(r.writes, write)
}

// changePolicy changes a policy and waits until both Services have forgotten their refusals.
func (r *randomRefusals) changePolicy(t *rapid.T) {
	var before []uint64
	for _, gateway := range r.gateways {
		before = append(before, gateway.Refusals().Forgotten())
	}
	policies := r.policies(t)
	if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
		r.deletePolicy(t)
	} else {
		r.putPolicy(t)
	}
	if policies == r.policies(t) {
		return // there was none to delete
	}
	for i, gateway := range r.gateways {
		for deadline := time.Now().Add(soon); gateway.Refusals().Forgotten() == before[i] ||
			gateway.RefusalsRemembered() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("a Service has not forgotten its refusals after a change of policies")
			}
		}
	}
}

// policies identifies the rows: also a change to equal values makes another one.
func (r *randomRefusals) policies(t *rapid.T) (rows string) {
	err := r.sql.QueryRow(t.Context(),
		"select coalesce(string_agg(p.ctid::text || p.xmin::text, ' '), '') from fence.policies p").Scan(&rows)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestConcurrentRefusals checks that no write of concurrent holders and zombies is refused early that the database
// would admit.
func TestConcurrentRefusals(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	gateways := []refusing{newRefusing(t, b, engine.Config{}),
		newRefusing(t, b, engine.Config{RefusalsRememberedMax: 2})}
	ctx, cancel := context.WithTimeout(t.Context(), 5*soon)
	defer cancel()
	var early atomic.Int64
	var running sync.WaitGroup
	for n := range 8 {
		running.Go(func() {
			w := &refusalWriter{gateways: gateways, direct: b.Store, random: rand.New(rand.NewPCG(uint64(n), 1)), early: &early}
			for range 150 {
				if err := w.turn(ctx); err != nil {
					t.Errorf("client %d: %v", n, err)
					return
				}
			}
		})
	}
	running.Wait()
	t.Logf("%d early refusals", early.Load())
	if early.Load() == 0 && !t.Failed() {
		t.Error("nothing was refused early")
	}
}

// refusalWriter takes locks from others, and writes under all leases that it ever had.
type refusalWriter struct {
	gateways []refusing
	direct   *postgres.Store
	random   *rand.Rand
	early    *atomic.Int64

	leases []store.Lease
	writes []store.Write
}

func (w *refusalWriter) turn(ctx context.Context) error {
	gateway := w.gateways[w.random.IntN(len(w.gateways))]
	names := []store.Name{"a", "a/b", "a/b/c", "d"}
	name := names[w.random.IntN(len(names))]
	switch n := w.random.IntN(10); {
	case n == 0 || len(w.leases) == 0:
		request := store.AcquireRequest{Lock: name, OwnerID: "A",
			Scope: []store.Scope{store.Node, store.Subtree}[w.random.IntN(2)]}
		_, _ = gateway.Break(ctx, name, "the next one's turn")
		if lease, err := gateway.Acquire(ctx, request); err == nil {
			w.leases = append(w.leases, lease)
		}
		return nil
	case n < 4 && len(w.writes) > 0:
		return w.commit(ctx, gateway, w.writes[len(w.writes)-1-w.random.IntN(min(len(w.writes), 5))])
	}
	lease := w.leases[len(w.leases)-1-w.random.IntN(min(len(w.leases), 4))]
	write := putOf(lease.Lock, "v")
	if lease.Scope == store.Subtree {
		write.Resource = name
	}
	write.Token = lease.Token
	if w.random.IntN(4) > 0 {
		write.Sequence = new(int64(len(w.writes)))
	}
	w.writes = append(w.writes, write)
	return w.commit(ctx, gateway, write)
}

// commit compares an early refusal with the database's verdict on the same write, which may come later: it does not
// change.
func (w *refusalWriter) commit(ctx context.Context, gateway refusing, write store.Write) error {
	if !gateway.Refusals().Refuses(write) {
		_, err := gateway.Commit(ctx, write)
		return err
	}
	w.early.Add(1)
	judged, err := w.direct.Write(ctx, []store.Write{write})
	if err != nil {
		return err
	}
	if verdict := verdictOf(storetest.WriteAnswer(judged[0])); verdict != "token_stale superseded" {
		return fmt.Errorf("token %d of %s, sequence %v, would be refused, and the database says %s", write.Token,
			write.Resource, write.Sequence, verdict)
	}
	return nil
}
