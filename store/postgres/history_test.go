package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/storetest"
)

var (
	historyDuration = flag.Duration("history.duration", 3*time.Second,
		"how long the history tests produce histories, each")
	historySeed = flag.Uint64("history.seed", 0,
		"what the clients of the history tests do; 0: another thing each time")
)

// historyRound is how long one history is. The checker's work grows faster than a history does: with each write that
// was sent and whose answer nobody waited for, which may take effect at any time after. Where the resources can't be
// looked at one by one, histories are shorter.
const (
	historyRound         = 400 * time.Millisecond
	historyRoundTogether = 160 * time.Millisecond
)

// historySlots is how many calls may concern a resource at a time. The checker's work doubles with each, and more bring
// no other order than these do.
const historySlots = 6

// historyPlan is the number of clients of a history and what they do.
type historyPlan struct {
	clients  int
	gateways int
	policies []store.Policy // a resource for each
	together bool           // transactions over two resources
	trees    bool           // subtree and shared leases, and sessions
}

var historyOfWrites = historyPlan{
	clients: 24, gateways: 3,
	policies: []store.Policy{
		{Prefix: "strict", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin},
		{Prefix: "same", Rule: store.RuleSameToken, Authority: store.AuthorityBuiltin, RequireLeaseID: true},
		{Prefix: "live", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin, RequireLiveLease: true},
	},
}

var historyOfTransactions = historyPlan{
	clients: 8, gateways: 2, together: true,
	policies: []store.Policy{
		{Prefix: "left", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin},
		{Prefix: "right", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin},
	},
}

// TestHistory checks that the calls of many concurrent clients, on a few resources through several gateways, can be put
// in an order in which the contract has the same answers.
func TestHistory(t *testing.T) { testHistories(t, historyOfWrites) }

// TestHistoryOfTransactions checks the same where resources are written together.
func TestHistoryOfTransactions(t *testing.T) { testHistories(t, historyOfTransactions) }

func testHistories(t *testing.T, plan historyPlan) {
	t.Parallel()
	f := newHistoryField(t, plan)
	seed := *historySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	answers := map[string]int{}
	for end := time.Now().Add(*historyDuration); time.Now().Before(end) && !t.Failed(); seed++ {
		history := f.run(t, seed)
		if err := history.check(); err != nil {
			t.Errorf("-history.seed=%d: %v", seed, err)
			history.saveVisualization(t)
		}
		for _, operation := range history.operations {
			answers[operation.Output.(historyResult).answer.Code]++
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
	plan     historyPlan
	sql      *pgx.Conn // past the gateways
	gateways []enginetest.Served
	rounds   int
}

func newHistoryField(t *testing.T, plan historyPlan) *historyFixture {
	t.Helper()
	url := pgtest.Migrated(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	f := &historyFixture{plan: plan, sql: conn}
	for range plan.gateways {
		f.gateways = append(f.gateways, enginetest.Serve(t,
			openStore(t, postgres.Config{DatabaseURL: url, ConnectionsMax: 8}),
			// An early refusal shows the fence as it was once. That it is right is another test's.
			engine.Config{RefusalsRememberedMax: -1}))
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

// history has the calls of the clients of one round with their answers, and the leases of the database after it.
type history struct {
	operations []porcupine.Operation
	leases     []historyLease
	model      porcupine.Model
}

// run makes a history of clients on names that were never used.
func (f *historyFixture) run(t *testing.T, seed uint64) *history {
	t.Helper()
	f.rounds++
	prefix := fmt.Sprintf("round-%d", f.rounds)
	state, names := f.prepare(t, prefix)
	began := time.Now()
	clock := func() int64 { return time.Since(began).Nanoseconds() }

	slots := map[store.Name]chan struct{}{}
	for _, name := range names {
		slots[name] = make(chan struct{}, historySlots)
	}
	over := make(chan struct{})
	var working sync.WaitGroup
	clients := make([]*historyClient, f.plan.clients)
	for i := range clients {
		clients[i] = &historyClient{
			id: i, gateway: f.gateways[i%len(f.gateways)], chance: rand.New(rand.NewPCG(seed, uint64(i))),
			clock: clock, names: names, slots: slots, together: f.plan.together, trees: f.plan.trees,
		}
	}
	if f.plan.trees {
		state = f.openSessions(t, state, clients)
	}
	for _, client := range clients {
		working.Go(func() { client.work(t.Context(), over) })
	}
	round := historyRound
	if f.plan.together {
		round = historyRoundTogether
	}
	time.AfterFunc(round, func() { close(over) })
	working.Wait()
	h := &history{model: historyModel(state, !f.plan.together)}
	for _, client := range clients {
		h.operations = append(h.operations, client.operations...)
	}
	h.operations = append(h.operations, f.readEverything(t, clients[0])...)
	// Read at the very end, so that the effects of calls with an unknown outcome that others have seen are there.
	h.leases = readHistoryLeases(t, f.sql, prefix)
	h.resolve()
	return h
}

// prepare sets the policies of a round and returns the state that it begins with.
func (f *historyFixture) prepare(t *testing.T, prefix string) (storetest.Model, []store.Name) {
	t.Helper()
	var state storetest.Model
	var names []store.Name
	for _, policy := range f.plan.policies {
		policy.Prefix = prefix + "/" + policy.Prefix
		if err := f.gateways[0].PutPolicy(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		state = state.WithPolicy(policy)
		names = append(names, store.Name(policy.Prefix))
	}
	return state, names
}

// readEverything reads everything after the clients: no acknowledged change may be missing.
func (f *historyFixture) readEverything(t *testing.T, like *historyClient) []porcupine.Operation {
	t.Helper()
	reader := &historyClient{
		id: f.plan.clients, gateway: f.gateways[0], chance: like.chance, clock: like.clock, names: like.names,
		slots: like.slots,
	}
	for _, name := range reader.names {
		resources := []store.Name{name}
		reader.send(t.Context(), historyCall{resources: resources, lock: true})
		reader.send(t.Context(), historyCall{resources: resources, fence: true})
		for _, key := range historyKeys {
			reader.send(t.Context(), historyCall{resources: resources, record: key})
		}
	}
	return reader.operations
}

// saveVisualization draws the history, for `go test -artifacts`, and logs the longest order that the contract allows.
func (h *history) saveVisualization(t *testing.T) {
	t.Helper()
	_, info := porcupine.CheckOperationsVerbose(h.model, h.operations, historyPatience)
	for i, orders := range info.PartialLinearizations() {
		part := h.operations
		if h.model.Partition != nil {
			part = h.model.Partition(h.operations)[i]
		}
		h.logLongestOrder(t, part, slices.MaxFunc(orders, func(a, b []int) int { return cmp.Compare(len(a), len(b)) }))
	}
	path := filepath.Join(t.ArtifactDir(), "history.html")
	if err := porcupine.VisualizePath(h.model, info, path); err != nil {
		t.Error(err)
		return
	}
	t.Logf("go test -artifacts keeps a picture of it: %s", path)
}

// logLongestOrder logs the end of the longest order of a part of the history, and the operations left over.
func (h *history) logLongestOrder(t *testing.T, part []porcupine.Operation, order []int) {
	t.Helper()
	if len(order) == len(part) {
		return
	}
	line := func(operation porcupine.Operation) string {
		return fmt.Sprintf("%12d–%12d client %d: %s", operation.Call, operation.Return, operation.ClientId,
			h.model.DescribeOperation(operation.Input, operation.Output))
	}
	t.Logf("the contract allows an order of %d of %d operations; the last of them:", len(order), len(part))
	state := h.model.Init()
	for i, index := range order {
		_, state = h.model.Step(state, part[index].Input, part[index].Output)
		if i >= len(order)-10 {
			t.Log(line(part[index]))
		}
	}
	var left []porcupine.Operation
	for index, operation := range part {
		if !slices.Contains(order, index) {
			left = append(left, operation)
		}
	}
	slices.SortFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	t.Logf("in the state %s, none of these can follow:", h.model.DescribeState(state))
	for _, operation := range left[:min(len(left), 30)] {
		t.Log(line(operation))
	}
}

// historyPatience bounds the checker's search. It needs milliseconds where an order exists, on a quiet machine.
const historyPatience = 2 * time.Minute

// historyLease is a lease as the database keeps it.
type historyLease struct {
	Lock      store.Name
	Mode      store.Mode
	Scope     store.Scope
	Token     int64
	ID        uuid.UUID
	RequestID string
	GrantedAt time.Time
}

func readHistoryLeases(t *testing.T, sql *pgx.Conn, prefix string) []historyLease {
	t.Helper()
	rows, err := sql.Query(t.Context(), `
		select l.lock, l.mode, l.scope, l.fencing_token, l.lease_id, l.request_id, l.granted_at
		from fence.leases l where l.lock ^@ ($1 || '/') order by l.lock, l.fencing_token`, prefix)
	if err != nil {
		t.Fatal(err)
	}
	leases, err := pgx.CollectRows(rows, pgx.RowToStructByPos[historyLease])
	if err != nil {
		t.Fatal(err)
	}
	return leases
}

// resolve finds the leases whose grants were not answered, and removes the acquires that were never granted.
func (h *history) resolve() {
	granted := map[string]historyLease{}
	for _, lease := range h.leases {
		granted[string(lease.Lock)+" "+lease.RequestID] = lease
	}
	resolved := h.operations[:0]
	for _, operation := range h.operations {
		call, result := operation.Input.(historyCall), operation.Output.(historyResult)
		if call.acquire != nil && result.answer.Code == storetest.CodeUnknown {
			lease, ok := granted[string(call.acquire.Lock)+" "+call.acquire.RequestID]
			if !ok {
				continue
			}
			result.made = storetest.Grant{
				Token: lease.Token, ID: lease.ID, Mode: lease.Mode, Scope: lease.Scope, TTL: call.acquire.TTL,
				GrantedAt: lease.GrantedAt.UnixMicro(), ExpiresAt: lease.GrantedAt.Add(call.acquire.TTL).UnixMicro(),
			}
			operation.Output = result
		}
		resolved = append(resolved, operation)
	}
	h.operations = resolved
}

// check returns an error if the answers break the contract (P1 to P3, P10), or a grant is lost (P9).
func (h *history) check() error { return errors.Join(h.checkOrder(), h.checkGrantsKept()) }

var errNoVerdict = errors.New("the checker found no verdict")

// checkOrder looks for an order of all operations in which the model gives the same answers.
func (h *history) checkOrder() error {
	switch result := porcupine.CheckOperationsTimeout(h.model, h.operations, historyPatience); result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%w on %d operations within %s", errNoVerdict, len(h.operations), historyPatience)
	default:
		return errors.New("no order of the calls has these answers by the contract")
	}
}

// checkGrantsKept is P9 for leases: no grant that was answered is missing.
func (h *history) checkGrantsKept() error {
	kept := map[string]bool{}
	for _, lease := range h.leases {
		kept[fmt.Sprint(lease.Lock, lease.Token, lease.ID)] = true
	}
	for _, operation := range h.operations {
		call, answer := operation.Input.(historyCall), operation.Output.(historyResult).answer
		if call.acquire != nil && answer.Code == storetest.CodeGranted &&
			!kept[fmt.Sprint(call.acquire.Lock, answer.Token, answer.ID)] {
			return fmt.Errorf("P9: %s was granted token %d, and the database has no such lease", answer.Owner, answer.Token)
		}
	}
	return nil
}
