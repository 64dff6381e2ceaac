package waitqueue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/store"
)

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
