package redislease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/redislease"
	"github.com/fencegate/fencegate/store/storetest"
)

const (
	historyWorkers  = 8
	historyRounds   = 3
	historyPatience = 2 * time.Minute // of the checker, which needs milliseconds
	// historyRemembered is how many leases a worker remembers to write with late.
	historyRemembered = 4
)

var historyLocks = []store.Name{"a", "b", "c"}

// TestHistory checks that grants, releases, writes and reads are in an order that the contract allows (P2, P3, P4),
// while a Redis that loses keys, is started empty and freezes lets leases overlap: P1 alone is not promised.
func TestHistory(t *testing.T) {
	t.Parallel()
	server := redis.Start(t)
	h := &history{
		Store: openDB(t), began: time.Now(), unseen: map[int64]porcupine.Operation{},
		running: map[int64]heldUntil{}, codes: map[string]int{},
	}
	// The end of leases is not reported to PostgreSQL: it can't be known when a report arrives.
	config := redislease.Config{Timeout: 100 * time.Millisecond, PollInterval: 20 * time.Millisecond, LookInterval: time.Hour}
	gateways := []*redislease.Leases{open(t, h, config, server), open(t, h, config, server)}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	for i := range historyWorkers {
		w := &worker{history: h, t: t, name: fmt.Sprint("worker ", i), leases: gateways[i%len(gateways)]}
		working.Go(func() { w.work(ctx) })
	}
	for range historyRounds {
		h.disturb(t, server, gateways)
	}
	await.True(t, "two leases overlap, and a late write is rejected", func() bool {
		overlaps, late := h.found()
		if overlaps > 0 && late > 0 {
			return true
		}
		h.disturb(t, server, gateways)
		return false
	})
	stop()
	working.Wait()
	(&worker{history: h, t: t}).readAll()
	t.Logf("%d operations in %s: %v; %d overlaps of leases; %d grants that no client received",
		len(h.operations), time.Since(h.began).Round(time.Millisecond), h.codes, h.overlaps, len(h.unseen))
	h.check(t)
}

// disturb loses the keys of leases that run, in each way.
func (h *history) disturb(t *testing.T, server *redis.Server, gateways []*redislease.Leases) {
	t.Helper()
	for i := range 6 {
		h.awaitMore(t, 10)
		server.Do("DEL", string(historyLocks[i%len(historyLocks)]))
	}
	timeouts := func() (n uint64) {
		for _, gateway := range gateways {
			n += gateway.Stats()[0].Errors[redislease.KindTimeout]
		}
		return n
	}
	before := timeouts()
	server.Freeze()
	await.True(t, "a call of the frozen server times out", func() bool { return timeouts() > before })
	server.Thaw()
	h.awaitMore(t, 20)
	server.RestartEmpty()
}

// history is a database that notes the grants that it makes, and what its clients did.
type history struct {
	*postgres.Store

	began time.Time

	mu         sync.Mutex
	operations []porcupine.Operation
	unseen     map[int64]porcupine.Operation // the grants that no client received, by their tokens
	running    map[int64]heldUntil           // the leases that their holders believe in, by their tokens
	overlaps   int
	codes      map[string]int
}

type heldUntil struct {
	lock  store.Name
	until time.Time
}

// call is an operation. Without a field other than the lock, it reads the record.
type call struct {
	lock     store.Name
	acquired *store.Lease
	released *store.LeaseRef
	write    *store.Write
}

const historyKey store.Name = "key" // of enginetest.Put

func (h *history) clock() int64 { return time.Since(h.began).Nanoseconds() }

// note adds an operation that has just ended. The lease of an acquire has begun then, and that of a release has ended.
func (h *history) note(c call, answer storetest.Answer, called int64) {
	operation := porcupine.Operation{Input: c, Output: answer, Call: called, Return: h.clock()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, operation)
	h.codes[answer.Code]++
	if c.acquired != nil {
		delete(h.unseen, c.acquired.Token)
	}
}

// GrantElsewhere notes the grant, until its client receives it.
func (h *history) GrantElsewhere(ctx context.Context, grant store.ElsewhereGrant) (store.Lease, error) {
	called := h.clock()
	lease, err := h.Store.GrantElsewhere(ctx, grant)
	if err != nil {
		return lease, err
	}
	operation := porcupine.Operation{
		Input: call{lock: lease.Lock, acquired: &lease}, Output: grantAnswer(lease), Call: called, Return: h.clock(),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unseen[lease.Token] = operation
	return lease, nil
}

// GiveBack notes the release.
func (h *history) GiveBack(ctx context.Context, lease store.Lease) error {
	called, ref := h.clock(), lease.Ref()
	err := h.Store.GiveBack(ctx, lease)
	h.note(call{lock: ref.Lock, released: &ref}, storetest.Answer{Code: storetest.CodeUnknown}, called)
	return err
}

func grantAnswer(lease store.Lease) storetest.Answer {
	return storetest.Answer{Code: storetest.CodeGranted, Token: lease.Token, ID: lease.ID, Owner: lease.OwnerID}
}

// believe notes until when the holder of a lease can be certain of it, and whether another holder is of the same lock.
func (h *history) believe(lease store.Lease, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if _, renewed := h.running[lease.Token]; !renewed && now.Before(until) {
		for _, other := range h.running {
			if other.lock == lease.Lock && now.Before(other.until) {
				h.overlaps++
			}
		}
	}
	h.running[lease.Token] = heldUntil{lease.Lock, until}
}

func (h *history) disbelieve(token int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, token)
}

// found returns how many leases overlapped, and how many writes were late.
func (h *history) found() (overlaps, late int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.overlaps, h.codes[string(store.VerdictTokenStale)]
}

// awaitMore waits for a number of operations.
func (h *history) awaitMore(t *testing.T, count int) {
	t.Helper()
	length := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.operations)
	}
	until := length() + count
	await.True(t, "more operations", func() bool { return length() >= until })
}

// check looks for an order of all operations in which the model gives the same answers.
func (h *history) check(t *testing.T) {
	t.Helper()
	for _, operation := range h.unseen {
		h.operations = append(h.operations, operation)
	}
	result, info := porcupine.CheckOperationsVerbose(historyModel, h.operations, historyPatience)
	if result == porcupine.Ok {
		return
	}
	t.Errorf("no order of the operations has these answers by the contract: %s", result)
	path := filepath.Join(t.ArtifactDir(), "history.html")
	if err := porcupine.VisualizePath(historyModel, info, path); err != nil {
		t.Error(err)
	}
	t.Logf("go test -artifacts keeps a picture: %s", path)
}

var historyModel = porcupine.Model{
	Partition: func(operations []porcupine.Operation) (parts [][]porcupine.Operation) {
		of := map[store.Name][]porcupine.Operation{}
		for _, operation := range operations {
			lock := operation.Input.(call).lock
			of[lock] = append(of[lock], operation)
		}
		for _, lock := range historyLocks {
			parts = append(parts, of[lock])
		}
		return parts
	},
	Init: func() any { return storetest.Model{} },
	Step: func(state, input, output any) (bool, any) {
		answer := output.(storetest.Answer)
		next, predicted := input.(call).predict(state.(storetest.Model))
		return predicted.Same(answer) || answer.Code == storetest.CodeUnknown, next
	},
	Equal: func(a, b any) bool { return a.(storetest.Model).Equal(b.(storetest.Model)) },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v → %s", input, output.(storetest.Answer))
	},
	DescribeState: func(state any) string { return state.(storetest.Model).Summary() },
}

// predict is what the contract says of the call. A grant in Redis may come at any time.
func (c call) predict(state storetest.Model) (storetest.Model, storetest.Answer) {
	switch {
	case c.acquired != nil:
		for _, running := range state.Resource(c.lock).Running() {
			state = state.Expire(c.lock, running.Token)
		}
		return state.Acquire(store.AcquireRequest{Lock: c.lock, OwnerID: c.acquired.OwnerID},
			storetest.Grant{Token: c.acquired.Token, ID: c.acquired.ID})
	case c.released != nil:
		return state.Release(*c.released)
	case c.write != nil:
		return state.Write(*c.write)
	}
	return state, state.Resource(c.lock).Record(historyKey)
}

// worker takes locks, writes, and forgets to release some. It also writes late, with leases that it had before.
type worker struct {
	*history

	t      *testing.T
	name   string
	leases *redislease.Leases
	had    []store.Lease
	wrote  int64
}

func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		if lease, ok := w.acquire(ctx); ok {
			w.hold(lease)
		}
		if len(w.had) > 0 {
			w.write(w.had[rand.IntN(len(w.had))])
		}
	}
}

// acquire tries to take a lock, or waits for it.
func (w *worker) acquire(ctx context.Context) (store.Lease, bool) {
	r := request(string(historyLocks[rand.IntN(len(historyLocks))]), w.name)
	r.TTL, r.Wait = short, time.Duration(rand.IntN(2))*short
	called, began := w.clock(), time.Now()
	lease, err := w.leases.Acquire(ctx, r)
	switch {
	case err == nil:
		w.note(call{lock: lease.Lock, acquired: &lease}, grantAnswer(lease), called)
		w.believe(lease, began.Add(r.TTL))
		w.had = append(w.had, lease)[max(0, len(w.had)+1-historyRemembered):]
		return lease, true
	case !errors.Is(err, store.ErrLeaseHeld) && !errors.Is(err, store.ErrProviderUnavailable) && ctx.Err() == nil:
		w.t.Errorf("%s acquires %s: %v", w.name, r.Lock, err)
	}
	time.Sleep(rand.N(5 * time.Millisecond)) // leaves the machine to the holders
	return store.Lease{}, false
}

// hold works under a lease for a while.
func (w *worker) hold(lease store.Lease) {
	for range rand.IntN(6) {
		switch rand.IntN(4) {
		case 0:
			w.read(lease.Lock)
		case 1:
			w.renew(lease)
		default:
			w.write(lease)
		}
	}
	if rand.IntN(4) > 0 {
		w.release(lease)
	}
}

func (w *worker) renew(lease store.Lease) {
	began := time.Now()
	_, err := w.leases.Renew(w.t.Context(), lease.Ref(), 0)
	switch {
	case err == nil:
		w.believe(lease, began.Add(lease.TTL))
	case errors.Is(err, store.ErrLeaseLost):
		w.disbelieve(lease.Token)
	case !errors.Is(err, store.ErrProviderUnavailable):
		w.t.Errorf("%s renews %s: %v", w.name, lease.Lock, err)
	}
}

func (w *worker) release(lease store.Lease) {
	w.disbelieve(lease.Token)
	ref, called := lease.Ref(), w.clock()
	_, err := w.leases.ReleaseLease(w.t.Context(), ref)
	w.note(call{lock: ref.Lock, released: &ref}, storetest.DoneAnswer(storetest.CodeReleased, err), called)
}

func (w *worker) write(lease store.Lease) {
	w.wrote++
	write, called := enginetest.Put(lease, w.wrote, fmt.Sprint(w.wrote, " of ", w.name)), w.clock()
	results, err := w.Write(w.t.Context(), []store.Write{write})
	if err != nil {
		w.t.Errorf("%s writes to %s: %v", w.name, lease.Lock, err)
		return
	}
	w.note(call{lock: lease.Lock, write: &write}, storetest.WriteAnswer(results[0]), called)
}

func (w *worker) read(lock store.Name) {
	called := w.clock()
	record, err := w.Record(w.t.Context(), lock, historyKey)
	w.note(call{lock: lock}, storetest.RecordAnswer(record, err), called)
}

func (w *worker) readAll() {
	for _, lock := range historyLocks {
		w.read(lock)
	}
}
