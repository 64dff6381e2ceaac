package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// churn is many acquires of one lock through all engines: readers and writers, some of which leave, and tries in
// between.
type churn struct {
	*engines
	lock    store.Name
	granted atomic.Int64
}

// one waits, holds what it is granted for a moment, and gives it back. It must have it all that time.
func (c *churn) one(t *testing.T, index int, random *rand.Rand) {
	request := store.AcquireRequest{Lock: c.lock, OwnerID: fmt.Sprint("waiter ", index), Wait: store.WaitMax,
		Mode: store.Exclusive}
	if random.IntN(3) == 0 {
		request.Mode = store.Shared
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*await.Limit)
	defer cancel()
	stays := false
	switch random.IntN(10) {
	case 0, 1:
		time.AfterFunc(time.Duration(random.IntN(300))*time.Millisecond, cancel)
	case 2:
		request.OwnerID = fmt.Sprint(impatient, index)
		request.Wait = time.Duration(1+random.IntN(300)) * time.Millisecond
	default:
		stays = true
	}
	hold := time.Duration(random.IntN(1000)) * time.Microsecond
	lease, err := c.At(index).Acquire(ctx, request)
	switch {
	case err == nil:
		c.granted.Add(1)
		time.Sleep(hold)
		c.giveBack(t, index+1, lease)
	case stays || !errors.Is(err, store.ErrLeaseHeld) && !errors.Is(err, context.Canceled):
		t.Errorf("%s got %v", request.OwnerID, err)
	}
}

// giveBack releases a lease through another engine. It must still be the holder's.
func (c *churn) giveBack(t *testing.T, index int, lease store.Lease) {
	_, err := c.At(index).Renew(context.Background(), lease.Ref(), 0)
	if err == nil {
		err = c.At(index).Release(context.Background(), lease.Ref())
	}
	if err != nil {
		t.Errorf("%s was granted token %d, and then: %v", lease.OwnerID, lease.Token, err)
	}
}

// tries acquires without waiting again and again, until ctx ends.
func (c *churn) tries(ctx context.Context, t *testing.T, index int) {
	for i := 0; ctx.Err() == nil; i++ {
		request := store.AcquireRequest{Lock: c.lock, OwnerID: fmt.Sprintf("try %d of %d", i, index),
			Mode: []store.Mode{store.Exclusive, store.Shared}[i%2]}
		lease, err := c.At(index).Acquire(context.Background(), request)
		switch {
		case err == nil:
			c.giveBack(t, index+1, lease)
		case !errors.Is(err, store.ErrLeaseHeld):
			t.Errorf("a try got %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}

// run returns when all have been served.
func (c *churn) run(t *testing.T, waiters int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	trying, stop := context.WithCancel(context.Background())
	defer stop()
	var waiting, tries sync.WaitGroup
	for index := range c.All {
		tries.Go(func() { c.tries(trying, t, index) })
	}
	for index := range waiters {
		random := rand.New(rand.NewPCG(seed, uint64(index)))
		waiting.Go(func() { c.one(t, index, random) })
		if index%8 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	waiting.Wait()
	stop()
	tries.Wait()
}

// Acquires are granted first come, first served over all engines, by notifications alone, whichever waiters leave and
// whichever tries come in between.
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	c := &churn{engines: newEngines(t, enginetest.New(t), 3, enginetest.NoPoll), lock: "lock"}
	c.recordEvents(t)
	c.run(t, 300)
	line := c.expectOrder(t, c.lock)
	if line.queued < 100 || line.grants < 100 {
		t.Errorf("of the line, only %d waited, and %d were granted the lock", line.queued, line.grants)
	}
	c.ExpectQuiet(t)
}

// outage is how notifications are lost.
type outage struct {
	name   string
	config engine.Config
	pause  time.Duration // between two cuts of the connections
	cuts   int           // at most
}

// The same holds while the connections for notifications are cut: no waiter loses its ticket, and no owner a lease that
// it was granted. In one case there is polling and next to no notification; in the other, reconnecting alone makes up
// for what was missed.
func TestFirstComeFirstServedWithoutNotifications(t *testing.T) {
	t.Parallel()
	for _, o := range []outage{
		{"polling", engine.Config{PollInterval: 20 * time.Millisecond}, 5 * time.Millisecond, 1 << 20},
		{"reconnecting", enginetest.NoPoll, 200 * time.Millisecond, 4},
	} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			c := &churn{engines: newEngines(t, enginetest.New(t), 3, o.config), lock: "lock"}
			c.recordEvents(t)
			ctx, stop := context.WithCancel(context.Background())
			broken := make(chan int)
			go func() {
				n := 0
				for i := 0; i < o.cuts && ctx.Err() == nil; i++ {
					n += c.BreakListeners(t)
					time.Sleep(o.pause)
				}
				broken <- n
			}()
			c.run(t, 150)
			stop()
			if n := <-broken; n < 3 {
				t.Errorf("the connections were cut %d times", n)
			}
			c.expectOrder(t, c.lock)
			c.ExpectQuiet(t)
		})
	}
}

// queueEvent is what the database did to a lock. Events of one lock are in the order in which it was decided.
type queueEvent struct {
	kind  string // queued, granted or ended
	owner string // of one request alone
	token int64
	mode  store.Mode
}

// recordEvents has the database record the events of all locks from now on. Who queues or grants has the fence locked,
// and a grant waits for the end of the lease before it, so the events get their ids in their order.
func (b *engines) recordEvents(t *testing.T) {
	t.Helper()
	b.Exec(t, `
		create table queue_events (id bigint generated always as identity, kind text, lock text, owner text, token bigint, mode text);
		create function queue_event() returns trigger language plpgsql as $$
		begin
			insert into public.queue_events (kind, lock, owner, token, mode)
			select tg_argv[0], new.lock, new.owner_id, coalesce((to_jsonb(new) ->> 'fencing_token')::bigint, 0), new.mode;
			return null;
		end $$;
		create trigger queued after insert on fence.waiters for each row execute function queue_event('queued');
		create trigger granted after insert on fence.leases for each row execute function queue_event('granted');
		create trigger ended after update of ended_at on fence.leases for each row
			when (old.ended_at is null and new.ended_at is not null) execute function queue_event('ended')`)
}

func (b *engines) queueEvents(t *testing.T, lock store.Name) []queueEvent {
	t.Helper()
	rows, err := b.SQL.Query(await.Context(t), "select kind, owner, token, mode from queue_events where lock = $1 order by id", lock)
	if err != nil {
		t.Fatal(err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (event queueEvent, err error) {
		return event, row.Scan(&event.kind, &event.owner, &event.token, &event.mode)
	})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// impatient begins the name of an owner that waits for a limited time. Once that is over, others may be granted the
// lock before it. Its gateway may send the acquire once more at that moment, and it may still be granted the lock.
const impatient = "impatient "

// orderChecker holds the events of a lock against the contract: P1, P2 and P8.
type orderChecker struct {
	stayed map[string]bool // the owners that were granted the lock in the end: others left the queue, at an unknown time

	waiting []queueEvent
	running map[int64]queueEvent
	newest  int64
	found   []string
	grants  int
	queued  int
}

// checkOrder returns what contradicts the contract.
func checkOrder(events []queueEvent) *orderChecker {
	c := &orderChecker{stayed: map[string]bool{}, running: map[int64]queueEvent{}}
	for _, event := range events {
		if event.kind == "granted" {
			c.stayed[event.owner] = true
		}
	}
	for _, event := range events {
		switch event.kind {
		case "queued":
			c.queued++
			if c.stayed[event.owner] {
				c.waiting = append(c.waiting, event)
			}
		case "granted":
			c.granted(event)
		case "ended":
			delete(c.running, event.token)
		}
	}
	for _, left := range c.waiting {
		c.found = append(c.found, left.owner+" was granted the lock, but not as a waiter")
	}
	return c
}

func conflict(a, b queueEvent) bool { return a.mode == store.Exclusive || b.mode == store.Exclusive }

func (c *orderChecker) granted(event queueEvent) {
	c.grants++
	if event.token <= c.newest {
		c.found = append(c.found, fmt.Sprintf("token %d was granted after %d", event.token, c.newest))
	}
	c.newest = event.token
	for _, other := range c.running {
		if conflict(event, other) {
			c.found = append(c.found, fmt.Sprintf("%s was granted %d (%s) beside %d (%s) of %s", event.owner, event.token,
				event.mode, other.token, other.mode, other.owner))
		}
	}
	c.running[event.token] = event
	own := slices.IndexFunc(c.waiting, func(waits queueEvent) bool { return waits.owner == event.owner })
	ahead := c.waiting
	if own >= 0 {
		ahead = c.waiting[:own]
		c.waiting = slices.Delete(slices.Clone(c.waiting), own, own+1)
	}
	for _, before := range ahead {
		if conflict(event, before) && !strings.HasPrefix(before.owner, impatient) {
			c.found = append(c.found, fmt.Sprintf("%s (%s) was granted the lock before %s (%s), which waited", event.owner,
				event.mode, before.owner, before.mode))
			return
		}
	}
}

// expectOrder fails the test for what contradicts the contract, and returns how many were granted the lock.
func (b *engines) expectOrder(t *testing.T, lock store.Name) *orderChecker {
	t.Helper()
	c := checkOrder(b.queueEvents(t, lock))
	for i, found := range c.found {
		if i == 10 {
			t.Errorf("… and %d more", len(c.found)-i)
			break
		}
		t.Error(found)
	}
	return c
}

func TestOrderCheckerFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	event := func(kind, owner string, token int64, mode store.Mode) queueEvent {
		return queueEvent{kind, owner, token, mode}
	}
	good := []queueEvent{
		event("granted", "a", 1, store.Exclusive),
		event("queued", "b", 0, store.Shared), event("queued", "c", 0, store.Shared),
		event("queued", "gone", 0, store.Exclusive), event("queued", "d", 0, store.Exclusive),
		event("ended", "a", 1, store.Exclusive),
		event("granted", "c", 2, store.Shared), event("granted", "b", 3, store.Shared),
		event("ended", "c", 2, store.Shared), event("ended", "b", 3, store.Shared),
		event("granted", "d", 4, store.Exclusive),
	}
	good = append(good, event("ended", "d", 4, store.Exclusive),
		event("queued", impatient+"1", 0, store.Exclusive), event("queued", "e", 0, store.Exclusive),
		event("granted", "e", 5, store.Exclusive), event("ended", "e", 5, store.Exclusive),
		event("granted", impatient+"1", 6, store.Exclusive))
	if c := checkOrder(good); len(c.found) > 0 || c.grants != 6 || c.queued != 6 {
		t.Errorf("it finds fault with a good queue: %+v", c)
	}
	for what, bad := range map[string][]queueEvent{
		"two writers":     {good[0], event("granted", "b", 2, store.Exclusive)},
		"a reader beside": {good[0], event("granted", "b", 2, store.Shared)},
		"a token again":   {good[0], good[5], event("granted", "b", 1, store.Exclusive)},
		"out of turn": {good[0], good[1], good[4], good[5], good[10],
			event("ended", "d", 4, store.Exclusive), event("granted", "b", 5, store.Shared)},
		"impatience before a waiter": {event("queued", "e", 0, store.Exclusive),
			event("queued", impatient+"1", 0, store.Exclusive),
			event("granted", impatient+"1", 1, store.Exclusive),
			event("ended", impatient+"1", 1, store.Exclusive),
			event("granted", "e", 2, store.Exclusive)},
		"a try before a waiter": {good[0], good[4], good[5], event("granted", "try", 3, store.Shared),
			event("ended", "try", 3, store.Shared), good[10]},
		"granted before waiting": {good[0], good[5], event("granted", "b", 2, store.Shared), good[1]},
	} {
		if c := checkOrder(bad); len(c.found) != 1 {
			t.Errorf("of %s it says %q", what, c.found)
		}
	}
}
