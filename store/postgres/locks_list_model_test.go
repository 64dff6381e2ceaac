package postgres_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// lockOwners are as hostile as an owner_id can be.
var lockOwners = []string{"worker-1", "worker-2", "WORKER-1", `<img src=x onerror="x">`,
	`o'; drop table fence.leases; --`, "%", `\`, "\u202eowner", "@owner"}

// lockSetup makes locks of all kinds, with leases and queues of all kinds. Nothing changes by itself for hours.
type lockSetup struct {
	*testbed
	random   *rand.Rand
	sessions []uuid.UUID // some of them over
	gateways []uuid.UUID // the last of them dead
}

func newLockSetup(t *testing.T, seed uint64) *lockSetup {
	t.Helper()
	s := &lockSetup{testbed: newTestbed(t), random: rand.New(rand.NewPCG(seed, 0))}
	for i := range 3 {
		gateway := uuid.New()
		s.Exec(t, "insert into fence.gateways values ($1, clock_timestamp() + $2 * interval '1 hour')", gateway,
			[]int{9, 9, -9}[i])
		s.gateways = append(s.gateways, gateway)
	}
	for i := range 6 {
		session, err := s.CreateSession(t.Context(), store.SessionRequest{OwnerID: lockOwners[i], TTL: store.TTLMax})
		if err != nil {
			t.Fatal(err)
		}
		s.sessions = append(s.sessions, session.ID)
	}
	return s
}

// endSessions ends the last sessions but two, with their leases still there: one by its owner, one by expiry.
func (s *lockSetup) endSessions(t *testing.T) {
	t.Helper()
	s.Exec(t, `update fence.sessions set ended_at = clock_timestamp(), end_reason = 'released' where session_id = $1`,
		s.sessions[0])
	for _, table := range []string{"sessions", "leases"} {
		s.Exec(t, "update fence."+table+" set expires_at = clock_timestamp() - interval '5 minutes', check_at = '-infinity' "+
			"where session_id = $1", s.sessions[1])
	}
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// one makes a lock in a random state.
func (s *lockSetup) one(t *testing.T, lock store.Name) {
	t.Helper()
	request := store.AcquireRequest{Lock: lock, OwnerID: pick(s.random, lockOwners),
		TTL: time.Hour + time.Duration(s.random.IntN(5))*time.Hour}
	holders := 1
	if s.random.IntN(4) == 0 {
		request.Mode, holders = store.Shared, 1+s.random.IntN(3)
	}
	if s.random.IntN(3) == 0 {
		request.TTL, request.SessionID = 0, pick(s.random, s.sessions)
	}
	for range s.random.IntN(3) {
		lease := s.granted(t, store.AcquireRequest{Lock: lock, OwnerID: "before"})
		if err := s.Release(t.Context(), lease.Ref()); err != nil {
			t.Fatal(err)
		}
	}
	for range holders {
		request.OwnerID = pick(s.random, lockOwners)
		lease := s.granted(t, request)
		var err error
		switch s.random.IntN(6) {
		case 0:
			s.Exec(t, "update fence.leases set expires_at = clock_timestamp() - interval '1 minute', check_at = '-infinity' "+
				"where lock = $1 and fencing_token = $2", lock, lease.Token)
		case 1:
			err = s.Release(t.Context(), lease.Ref())
		case 2:
			_, err = s.Break(t.Context(), lock, "why not")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.line(t, lock)
}

// line adds waiters to the queue, some of which do not count.
func (s *lockSetup) line(t *testing.T, lock store.Name) {
	t.Helper()
	for range max(0, s.random.IntN(8)-3) {
		var session *uuid.UUID
		if s.random.IntN(3) == 0 {
			session = &s.sessions[s.random.IntN(len(s.sessions))]
		}
		s.Exec(t, `
			insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, session_id, queued_at, deadline_at)
			values ($1, $2, $3, $4, 'node', 1000, $5, clock_timestamp(), clock_timestamp() + $6 * interval '1 hour')`,
			lock, pick(s.random, s.gateways), pick(s.random, lockOwners), pick(s.random, []string{"shared", "exclusive"}),
			session, pick(s.random, []int{2, 2, 2, -2}))
	}
}

// waiters adds exclusive waiters to the queue of a lock, called "waiter 1" and so on.
func (s *lockSetup) waiters(t *testing.T, lock string, count int) {
	t.Helper()
	s.Exec(t, `
		insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
		select $1, $2, 'waiter ' || n, 'exclusive', 'node', 1000, clock_timestamp(), clock_timestamp() + interval '1 hour'
		from generate_series(1, $3) n`, lock, s.gateways[0], count)
}

// lockModel is a lock as lists must show it.
type lockModel struct {
	name           string
	state          store.LockState
	token          int64
	holders, queue []string // owner and token; owner and mode
	owners         []string
	until, granted time.Time // zero where there is no holder
}

func (m lockModel) String() string {
	return fmt.Sprintf("%s %s %d %q %q", m.name, m.state, m.token, m.holders, m.queue)
}

func shownLock(lock store.Lock) string {
	m := lockModel{name: string(lock.Lock), state: lock.State, token: lock.Token}
	for _, holder := range lock.Holders {
		m.holders = append(m.holders, fmt.Sprint(holder.OwnerID, " ", holder.Token))
	}
	for _, waiter := range lock.Queue {
		m.queue = append(m.queue, fmt.Sprint(waiter.OwnerID, " ", waiter.Mode))
	}
	return m.String()
}

// lockModelLease is a lease as the functions that decide on grants see it.
type lockModelLease struct {
	Lock, Owner    string
	Token          int64
	Granted, Until time.Time
	Runs           bool
}

// model reads all locks, with the function that decides on turns: fence.is_waiting.
func (b *testbed) model(t *testing.T) (models []lockModel) {
	t.Helper()
	leases := map[string][]lockModelLease{}
	for _, lease := range collect[lockModelLease](t, b, `
		select l.lock, l.owner_id, l.fencing_token, l.granted_at, l.expires_at, l.ended_at is null and l.expires_at > clock_timestamp()
		from fence.leases l order by l.fencing_token`) {
		leases[lease.Lock] = append(leases[lease.Lock], lease)
	}
	for _, row := range collect[struct {
		Name  string
		Token int64
		Open  bool
		Queue []string
	}](t, b, `
		select f.resource, f.granted_token, f.open, (
			select array_agg(w.owner_id || ' ' || w.mode order by w.ticket) from fence.waiters w where w.lock = f.resource and fence.is_waiting(w))
		from fence.fences f
		where f.granted_token > 0 or f.resource in (select w.lock from fence.waiters w)`) {
		m := lockModel{name: row.Name, token: row.Token, queue: row.Queue, state: store.LockFree}
		for _, lease := range leases[row.Name] {
			if lease.Runs {
				m.hold(lease, store.LockHeld)
			}
		}
		for _, lease := range leases[row.Name] {
			if m.state == store.LockFree && row.Open && lease.Token == row.Token {
				m.hold(lease, store.LockExpired)
			}
		}
		models = append(models, m)
	}
	return models
}

// hold adds a holder.
func (m *lockModel) hold(lease lockModelLease, state store.LockState) {
	m.state, m.owners = state, append(m.owners, lease.Owner)
	m.holders = append(m.holders, fmt.Sprint(lease.Owner, " ", lease.Token))
	m.until, m.granted = latest(m.until, lease.Until), latest(m.granted, lease.Granted)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// selected are the locks that a query selects, in its order.
func selected(models []lockModel, query store.LockQuery) (found []lockModel) {
	for _, m := range models {
		inOwner := slices.ContainsFunc(m.owners, func(owner string) bool { return strings.Contains(owner, query.Contains) })
		if strings.HasPrefix(m.name, query.Prefix) && (query.State == "" || m.state == query.State ||
			query.State == store.LockActive && (m.state == store.LockHeld || len(m.queue) > 0)) &&
			(query.OwnerID == "" || slices.Contains(m.owners, query.OwnerID)) && (strings.Contains(m.name, query.Contains) ||
			inOwner) {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b lockModel) int {
		order := 1
		if query.Descending {
			order = -1
		}
		switch query.Sort {
		case store.LocksByToken:
			return cmp.Or(order*cmp.Compare(a.token, b.token), cmp.Compare(a.name, b.name))
		case store.LocksByWaiters:
			return cmp.Or(order*cmp.Compare(len(a.queue), len(b.queue)), cmp.Compare(a.name, b.name))
		case store.LocksByExpiry:
			return cmp.Or(compareTimes(a.until, b.until, order), cmp.Compare(a.name, b.name))
		case store.LocksByGrant:
			return cmp.Or(compareTimes(a.granted, b.granted, order), cmp.Compare(a.name, b.name))
		}
		return order * cmp.Compare(a.name, b.name)
	})
	return found
}

// compareTimes puts zero times last.
func compareTimes(a, b time.Time, order int) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return order * a.Compare(b)
}
