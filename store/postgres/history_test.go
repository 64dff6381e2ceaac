package postgres_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

var (
	historyDuration = flag.Duration("history.duration", 3*time.Second,
		"how long the history tests produce histories, each")
	historySeed = flag.Uint64("history.seed", 0,
		"what the clients of the history tests do; 0: another thing each time")
)

// historyPatience bounds the checker's search. It needs milliseconds where an order exists, on a quiet machine.
const historyPatience = 2 * time.Minute

// historyPlan is the clients of a history, and the policies of its names.
type historyPlan struct {
	gateways int
	together bool // names are written together, or are in one tree
	clients  drive.Clients
	policies []string
}

// The checker's work grows faster than a history does: with each write that was sent and whose answer nobody waited for,
// which may take effect at any time after. Where the names can't be looked at one by one, histories are shorter.
var (
	historyOfWrites = historyPlan{gateways: 3,
		clients: drive.Clients{Count: 24, Names: []store.Name{"strict", "same", "live"}, SlotsMax: 6,
			For: 400 * time.Millisecond, Weights: clientWeights},
		policies: []string{"strict policy=strict,builtin", "same policy=same_token,builtin,lease_id",
			"live policy=strict,builtin,live"}}
	historyOfTransactions = historyPlan{gateways: 2, together: true,
		clients: drive.Clients{Count: 8, Names: []store.Name{"left", "right"}, SlotsMax: 6,
			For: 160 * time.Millisecond, Weights: append([]spec.Weight{{Kind: spec.Transact, Share: 10}}, clientWeights...)}}
	historyOfTrees = historyPlan{gateways: 2, together: true,
		clients: drive.Clients{Count: 6, Names: []store.Name{"tree", "tree/a", "tree/a/x", "tree/b"}, SlotsMax: 6,
			For: 160 * time.Millisecond, Sessions: 4, Weights: append([]spec.Weight{
				{Kind: spec.Transact, Share: 3}, {Kind: spec.KeepAlive, Share: 1}, {Kind: spec.EndSession, Share: 4},
			}, clientWeights...)}}
)

var clientWeights = []spec.Weight{
	{Kind: spec.Acquire, Share: 3}, {Kind: spec.Put, Share: 30}, {Kind: spec.Renew, Share: 3},
	{Kind: spec.Release, Share: 4}, {Kind: spec.Break, Share: 1}, {Kind: spec.ReadLock, Share: 2},
	{Kind: spec.ReadFence, Share: 2}, {Kind: spec.ReadRecord, Share: 3},
}

// TestHistory checks that the calls of many concurrent clients, on a few resources through several gateways, can be put
// in an order in which the contract has the same answers.
func TestHistory(t *testing.T) { testHistories(t, historyOfWrites) }

// TestHistoryOfTransactions checks the same where resources are written together.
func TestHistoryOfTransactions(t *testing.T) { testHistories(t, historyOfTransactions) }

// TestHistoryOfTrees checks the same where clients take subtrees and names in them, exclusive or shared, some of them
// in sessions that they end.
func TestHistoryOfTrees(t *testing.T) { testHistories(t, historyOfTrees) }

func testHistories(t *testing.T, plan historyPlan) {
	t.Parallel()
	f := newHistoryFixture(t, plan)
	seed := *historySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	answers := map[string]int{}
	for end := time.Now().Add(*historyDuration); time.Now().Before(end) && !t.Failed(); seed++ {
		calls, err := f.run(t, seed)
		if err != nil {
			t.Errorf("-history.seed=%d: %v", seed, err)
		}
		for _, call := range calls {
			answers[string(call.Op.Kind)+" "+call.Answer.Code]++
		}
	}
	for _, gateway := range f.gateways {
		if n := gateway.Failures()[store.ReasonDeadlock]; n > 0 {
			t.Errorf("%d statements of one gateway were in a deadlock", n)
		}
	}
	t.Logf("%d rounds, answers %v", f.rounds, answers)
}

// historyFixture is a database with gateways, one of which sweeps.
type historyFixture struct {
	*testbed
	plan     historyPlan
	gateways []enginetest.Served
	rounds   int
}

func newHistoryFixture(t *testing.T, plan historyPlan) *historyFixture {
	t.Helper()
	f := &historyFixture{testbed: newTestbed(t), plan: plan}
	for range plan.gateways {
		gateway := enginetest.Serve(t,
			openStore(t, postgres.Config{DatabaseURL: f.URL, ConnectionsMax: 8}),
			// An early refusal shows the fence as it was once. That it is right is another test's.
			engine.Config{RefusalsRememberedMax: -1})
		f.gateways = append(f.gateways, gateway)
	}
	running, stop := context.WithCancel(t.Context())
	var background sync.WaitGroup
	for _, gateway := range f.gateways {
		background.Go(func() { gateway.Run(running, func(err error) { t.Error(err) }) })
	}
	background.Go(func() { historySweep(running, t, f.gateways[0].Store) })
	t.Cleanup(func() {
		stop()
		background.Wait()
	})
	return f
}

// historySweep ends expired leases all the time, at the same time as other calls.
func historySweep(ctx context.Context, t *testing.T, gateway *postgres.Store) {
	sweeper, err := postgres.NewSweeper(gateway, postgres.SweeperConfig{Interval: 10 * time.Millisecond})
	if err != nil {
		t.Error(err)
		return
	}
	sweeper.Run(ctx, func(store.Swept) {}, func(err error) {
		// On a busy machine, a client keeps a lock for longer than a sweep waits for it.
		if !errors.Is(err, postgres.ErrSettleLater) {
			t.Error(err)
		}
	})
}

// run makes a history of clients on names that were never used, and checks it.
func (f *historyFixture) run(t *testing.T, seed uint64) ([]spec.Call, error) {
	t.Helper()
	f.rounds++
	prefix := store.Name(fmt.Sprintf("round-%d/", f.rounds))
	clients := f.plan.clients
	clients.Seed, clients.Names, clients.Gateways = seed, nil, nil
	for _, gateway := range f.gateways {
		clients.Gateways = append(clients.Gateways, gateway)
	}
	for _, name := range f.plan.clients.Names {
		clients.Names = append(clients.Names, prefix+name)
	}
	var initial spec.State
	for _, policy := range f.plan.policies {
		op, err := spec.ParseOp(fmt.Sprintf("set-policy %s%s", prefix, policy), initial)
		if err != nil {
			t.Fatal(err)
		}
		if answer, _ := spec.Perform(t.Context(), f.gateways[0], op); answer.Code != spec.CodeDone {
			t.Fatal(answer)
		}
		initial, _ = initial.Step(op, spec.Choice{})
	}
	calls, initial, err := clients.Run(t.Context(), initial)
	if err != nil {
		t.Fatal(err)
	}
	// Read at the very end, so that the effects of calls with an unknown outcome that others have seen are there.
	calls, err = spec.Resolve(calls, f.leases(t, prefix))
	return calls, errors.Join(err, spec.Linearize(initial, calls, f.plan.together, historyPatience))
}

// leases are all that the database has.
func (f *historyFixture) leases(t *testing.T, prefix store.Name) []spec.Lease {
	t.Helper()
	type row struct {
		Lock      store.Name
		Mode      store.Mode
		Scope     store.Scope
		Token     int64
		ID        uuid.UUID
		Request   string
		TTL       int64
		GrantedAt time.Time
	}
	var leases []spec.Lease
	for _, l := range collect[row](t, f.testbed, `
		select l.lock, l.mode, l.scope, l.fencing_token, l.lease_id, coalesce(l.request_id, ''), coalesce(l.requested_ttl_ms, 0), l.granted_at
		from fence.leases l where l.lock ^@ $1 order by l.lock, l.fencing_token`, string(prefix)) {
		leases = append(leases, spec.Lease{Lock: l.Lock, Mode: l.Mode, Scope: l.Scope, Token: l.Token, ID: l.ID,
			Request: l.Request, GrantedAt: l.GrantedAt.UnixMicro(), ExpiresAt: l.GrantedAt.UnixMicro() + l.TTL*1000})
	}
	return leases
}

// TestHistoryCatches checks that a history of a database that is broken in one place is found to be wrong.
func TestHistoryCatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                    string
		plan                    historyPlan
		function, text, instead string
	}{
		{"the rule without step 3", historyOfWrites, "rule", "when not external and (token < granted_token or not open)",
			"when false"},
		{"grants that do not raise the fence", historyOfWrites, "grant_lease",
			"set granted_token = v_lease.fencing_token, open =", "set open ="},
		{"a release that leaves the fence open", historyOfWrites, "close_fence", "fences f set open = false",
			"fences f set open = true"},
		{"writes that do not raise the fence", historyOfWrites, "raised_sequence",
			"else coalesce(p_sequence, 0) end", "else 0 end"},
		{"writes that look at their name alone", historyOfTrees, "admit",
			"a.subtree_token > coalesce(stored.newest, 0)", "false"},
		{"grants without a tree lock", historyOfTrees, "acquire_lease",
			"perform fence.take_tree_lock(p_request.lock, 'node');", ""},
		{"shared leases that may write", historyOfTrees, "grant_lease", "open = v_lease.mode = 'exclusive',", "open = true,"},
		{"sessions that leave fences open", historyOfTrees, "settle_leases",
			"perform fence.close_fence(v_lease.lock, v_lease.fencing_token);", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newHistoryFixture(t, c.plan)
			source, ok := migrations.GuardSource(c.function)
			if !ok || strings.Count(source, c.text) != 1 {
				t.Fatalf("%s.SQL must have %q once", c.function, c.text)
			}
			f.Exec(t, strings.Replace(source, c.text, c.instead, 1))
			for seed := uint64(1); seed <= 200; seed++ {
				if _, err := f.run(t, seed); err != nil && !errors.Is(err, spec.ErrNoVerdict) {
					t.Logf("found in round %d: %v", seed, err)
					return
				}
			}
			t.Error("200 histories were found to be right")
		})
	}
}
